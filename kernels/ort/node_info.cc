#include <algorithm>
#include <cmath>

#include "host.h"
#include "kernel.h"

namespace liger::ort {
namespace {

std::string NodeName(const OrtKernelInfo* info) {
  size_t size = 0;
  if (!FromOrt(Api().KernelInfo_GetNodeName(info, nullptr, &size)) || size == 0) return "";
  std::string name(size, '\0');  // size counts the terminating zero
  if (!FromOrt(Api().KernelInfo_GetNodeName(info, name.data(), &size))) return "";
  name.resize(size - 1);
  return name;
}

}  // namespace

NodeInfo::NodeInfo(const OpContract& contract, const TypeTuple& types, const Launchers& launchers,
                   const OrtKernelInfo* info)
    : contract_(contract), types_(types), launchers_(launchers), info_(info) {
  label_ = std::string(contract.op_type) + " (node '" + NodeName(info) + "')";
  if (!FromOrt(Api().KernelInfo_GetInputCount(info, &input_count_))) input_count_ = 0;
  if (!FromOrt(Api().KernelInfo_GetOutputCount(info, &output_count_))) output_count_ = 0;
}

Error NodeInfo::BadAttribute(const char* name, std::string_view wanted) const {
  return Invalid("attribute '" + std::string(name) + "' is missing or not " + std::string(wanted));
}

Result<float> NodeInfo::Float(const char* name) const {
  float value = 0;
  if (!FromOrt(Api().KernelInfoGetAttribute_float(info_, name, &value))) {
    return BadAttribute(name, "a float");
  }
  if (!std::isfinite(value)) return BadAttribute(name, "finite");
  return value;
}

Result<int64_t> NodeInfo::Int(const char* name) const {
  int64_t value = 0;
  if (!FromOrt(Api().KernelInfoGetAttribute_int64(info_, name, &value))) {
    return BadAttribute(name, "an int");
  }
  return value;
}

Result<std::string> NodeInfo::String(const char* name) const {
  size_t size = 0;
  std::string value;
  // The first call asks for the size, which counts a terminating zero.
  if (!FromOrt(Api().KernelInfoGetAttribute_string(info_, name, nullptr, &size)) || size == 0) {
    return BadAttribute(name, "a string");
  }
  value.resize(size);
  if (!FromOrt(Api().KernelInfoGetAttribute_string(info_, name, value.data(), &size))) {
    return BadAttribute(name, "a string");
  }
  value.resize(size - 1);
  const AttributeSpec* spec = contract_.FindAttribute(name);
  if (spec != nullptr && !spec->values.empty() &&
      std::find(spec->values.begin(), spec->values.end(), value) == spec->values.end()) {
    std::string known;
    for (const std::string_view allowed : spec->values) {
      known += (known.empty() ? "" : ", ") + std::string(allowed);
    }
    return Invalid("attribute '" + std::string(name) + "' is '" + value + "', expected one of " +
                   known);
  }
  return value;
}

Result<DType> NodeInfo::FloatType(const char* name) const {
  Result<int64_t> value = Int(name);
  if (!value) return value.error();
  const DType dtype = static_cast<DType>(*value);
  if (!IsFloat(dtype)) {
    return Invalid("attribute '" + std::string(name) + "' is " + std::to_string(*value) +
                   ", expected a float type: 1 (f32), 10 (f16), 11 (f64) or 16 (bf16)");
  }
  return dtype;
}

}  // namespace liger::ort
