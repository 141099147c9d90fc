#include "tensor.h"

#include <algorithm>
#include <memory>

#include "host.h"

namespace liger::ort {
namespace {

// The dimensions by the calls of API 1: the runtime allocates an info object and frees it again.
Status CopyDims(const OrtValue* value, std::span<int64_t> copied, size_t& rank) {
  const OrtApi& api = Api();
  OrtTensorTypeAndShapeInfo* raw = nullptr;
  if (Status status = FromOrt(api.GetTensorTypeAndShape(value, &raw)); !status) return status;
  const auto release = [&api](OrtTensorTypeAndShapeInfo* info) {
    api.ReleaseTensorTypeAndShapeInfo(info);
  };
  const std::unique_ptr<OrtTensorTypeAndShapeInfo, decltype(release)> info(raw, release);
  if (Status status = FromOrt(api.GetDimensionsCount(raw, &rank)); !status) return status;
  if (rank > copied.size()) {
    return Error{ErrorCode::kUsage, "a tensor has more than 16 dimensions", "", ""};
  }
  return FromOrt(api.GetDimensions(raw, copied.data(), rank));
}

}  // namespace

Status ReadInput(OrtKernelContext* context, size_t index, InputTensor& tensor) {
  const OrtApi& api = Api();
  const OrtValue* value = nullptr;
  if (Status status = FromOrt(api.KernelContext_GetInput(context, index, &value)); !status) {
    return status;
  }
  if (value == nullptr) return {};
  tensor.present_ = true;
  // The C API has no read-only variant of this call.
  void* data = nullptr;
  if (Status status = FromOrt(api.GetTensorMutableData(const_cast<OrtValue*>(value), &data));
      !status) {
    return status;
  }
  tensor.data_ = data;
  if (const ShapeReferenceFn shape_reference = ShapeReference()) {
    ONNXTensorElementDataType type;
    return FromOrt(shape_reference(value, &type, &tensor.dims_, &tensor.rank_));
  }
  tensor.dims_ = tensor.copied_;
  return CopyDims(value, tensor.copied_, tensor.rank_);
}

Result<OutputTensor> MakeOutput(OrtKernelContext* context, size_t index,
                                std::span<const int64_t> dims) {
  const OrtApi& api = Api();
  OrtValue* value = nullptr;
  if (Status status =
          FromOrt(api.KernelContext_GetOutput(context, index, dims.data(), dims.size(), &value));
      !status) {
    return std::move(status).error();
  }
  OutputTensor output;
  if (value == nullptr) return output;
  output.wanted = true;
  if (Status status = FromOrt(api.GetTensorMutableData(value, &output.data)); !status) {
    return std::move(status).error();
  }
  return output;
}

bool SameDims(std::span<const int64_t> a, std::span<const int64_t> b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end());
}

int64_t Count(std::span<const int64_t> dims) {
  int64_t count = 1;
  for (const int64_t dim : dims) count *= dim;
  return count;
}

std::string DimsText(std::span<const int64_t> dims) {
  std::string text = "[";
  for (const int64_t dim : dims) {
    if (text.size() > 1) text += ",";
    text += std::to_string(dim);
  }
  return text + "]";
}

}  // namespace liger::ort
