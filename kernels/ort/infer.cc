#include "infer.h"

#include <atomic>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "host.h"

namespace liger::ort {
namespace {

// What is known of a tensor. An unknown dimension is -1 and has a name, or "" as name.
struct Description {
  ONNXTensorElementDataType type = ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED;
  std::vector<int64_t> dims;
  std::vector<const char*> names;  // owned by the runtime
};

Result<Description> Describe(OrtShapeInferContext* context, size_t input) {
  const OrtApi& api = Api();
  OrtTensorTypeAndShapeInfo* info = nullptr;  // owned by the context
  size_t rank = 0;
  Description description;
  if (Status status = FromOrt(api.ShapeInferContext_GetInputTypeShape(context, input, &info));
      !status) {
    return std::move(status).error();
  }
  if (Status status = FromOrt(api.GetDimensionsCount(info, &rank)); !status) {
    return std::move(status).error();
  }
  description.dims.resize(rank);
  description.names.resize(rank);
  if (Status status = FromOrt(api.GetTensorElementType(info, &description.type)); !status) {
    return std::move(status).error();
  }
  if (Status status = FromOrt(api.GetDimensions(info, description.dims.data(), rank)); !status) {
    return std::move(status).error();
  }
  if (Status status = FromOrt(api.GetSymbolicDimensions(info, description.names.data(), rank));
      !status) {
    return std::move(status).error();
  }
  return description;
}

Status SetOutput(OrtShapeInferContext* context, size_t output, Description description) {
  // The runtime describes an unknown rank as no dimensions; since none of our tensors is a scalar,
  // nothing is known then.
  if (description.dims.empty()) return {};

  // It writes an unknown dimension without a name as the value -1, which later nodes take at its
  // word. So every such dimension gets a name that no other has.
  static std::atomic<uint64_t> count = 0;
  const size_t rank = description.dims.size();
  std::vector<std::string> made(rank);
  for (size_t i = 0; i < rank; ++i) {
    if (description.dims[i] >= 0 || *description.names[i] != '\0') continue;
    made[i] = "liger_unknown_" + std::to_string(count++);
    description.names[i] = made[i].c_str();
  }

  const OrtApi& api = Api();
  OrtTensorTypeAndShapeInfo* raw = nullptr;
  if (Status status = FromOrt(api.CreateTensorTypeAndShapeInfo(&raw)); !status) return status;
  const auto release = [&api](OrtTensorTypeAndShapeInfo* info) {
    api.ReleaseTensorTypeAndShapeInfo(info);
  };
  const std::unique_ptr<OrtTensorTypeAndShapeInfo, decltype(release)> info(raw, release);
  if (Status status = FromOrt(api.SetTensorElementType(raw, description.type)); !status)
    return status;
  if (Status status = FromOrt(api.SetDimensions(raw, description.dims.data(), rank)); !status)
    return status;
  if (Status status = FromOrt(api.SetSymbolicDimensions(raw, description.names.data(), rank));
      !status) {
    return status;
  }
  return FromOrt(api.ShapeInferContext_SetOutputTypeShape(context, output, raw));
}

// Output `output` is described like input `input`.
Status PassOn(OrtShapeInferContext* context, size_t input, size_t output) {
  Result<Description> description = Describe(context, input);
  if (!description) return description.error();
  return SetOutput(context, output, *std::move(description));
}

Result<bool> IsPacked(OrtShapeInferContext* context) {
  const OrtApi& api = Api();
  const OrtOpAttr* attribute = nullptr;
  if (Status status = FromOrt(api.ShapeInferContext_GetAttribute(context, "packed", &attribute));
      !status) {
    return std::move(status).error();
  }
  char value[16] = {};
  size_t size = 0;
  if (Status status =
          FromOrt(api.ReadOpAttr(attribute, ORT_OP_ATTR_STRING, value, sizeof(value) - 1, &size));
      !status) {
    return std::move(status).error();
  }
  return std::string_view(value) != "none";
}

}  // namespace

Status InferLikeFirst(OrtShapeInferContext* context) { return PassOn(context, 0, 0); }

Status InferTwoLikeFirst(OrtShapeInferContext* context) {
  if (Status status = PassOn(context, 0, 0); !status) return status;
  return PassOn(context, 0, 1);
}

Status InferRope(OrtShapeInferContext* context) {
  // The first release known to check the index of an output; 1.24 ends the process where second_y
  // is missing.
  constexpr uint32_t kChecksOutputs = 32;
  if (Status status = PassOn(context, 0, 0); !status) return status;
  size_t inputs = 0;
  if (Status status = FromOrt(Api().ShapeInferContext_GetInputCount(context, &inputs)); !status) {
    return status;
  }
  return inputs > 3 && HostRelease() >= kChecksOutputs ? PassOn(context, 3, 1) : Status();
}

Status InferGated(OrtShapeInferContext* context) {
  Result<bool> packed = IsPacked(context);
  // A missing attribute is reported, with the node's name, when the kernel is made.
  if (!packed) return {};
  Result<Description> description = Describe(context, 0);
  if (!description) return description.error();
  if (*packed && !description->dims.empty()) {
    int64_t& last = description->dims.back();
    last = last < 0 ? -1 : last / 2;
    description->names.back() = "";  // half of a symbol has no name
  }
  return SetOutput(context, 0, *std::move(description));
}

}  // namespace liger::ort
