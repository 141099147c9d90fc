#include "infer.h"

#include <memory>
#include <string>
#include <vector>

#include "host.h"

namespace liger::ort {
namespace {

// Output `output` is described like input `input`. A description without dimensions is what the
// runtime hands out for an unknown rank, since none of our tensors is a scalar: nothing is known
// then.
Status PassOn(OrtShapeInferContext* context, size_t input, size_t output) {
  const OrtApi& api = Api();
  OrtTensorTypeAndShapeInfo* info = nullptr;
  size_t rank = 0;
  if (Status status = FromOrt(api.ShapeInferContext_GetInputTypeShape(context, input, &info));
      !status) {
    return status;
  }
  if (Status status = FromOrt(api.GetDimensionsCount(info, &rank)); !status) return status;
  if (rank == 0) return {};
  return FromOrt(api.ShapeInferContext_SetOutputTypeShape(context, output, info));
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

// The first output is described like the first input with half its last dimension.
Status HalveLast(OrtShapeInferContext* context) {
  const OrtApi& api = Api();
  OrtTensorTypeAndShapeInfo* input = nullptr;
  size_t rank = 0;
  ONNXTensorElementDataType type = ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED;
  if (Status status = FromOrt(api.ShapeInferContext_GetInputTypeShape(context, 0, &input));
      !status) {
    return status;
  }
  if (Status status = FromOrt(api.GetDimensionsCount(input, &rank)); !status) return status;
  if (rank == 0) return {};
  std::vector<int64_t> dims(rank);
  std::vector<const char*> names(rank);
  if (Status status = FromOrt(api.GetTensorElementType(input, &type)); !status) return status;
  if (Status status = FromOrt(api.GetDimensions(input, dims.data(), rank)); !status) return status;
  if (Status status = FromOrt(api.GetSymbolicDimensions(input, names.data(), rank)); !status) {
    return status;
  }
  // Half of a symbol has no name.
  dims.back() = dims.back() < 0 ? -1 : dims.back() / 2;
  names.back() = "";

  OrtTensorTypeAndShapeInfo* raw = nullptr;
  if (Status status = FromOrt(api.CreateTensorTypeAndShapeInfo(&raw)); !status) return status;
  const auto release = [&api](OrtTensorTypeAndShapeInfo* info) {
    api.ReleaseTensorTypeAndShapeInfo(info);
  };
  const std::unique_ptr<OrtTensorTypeAndShapeInfo, decltype(release)> output(raw, release);
  if (Status status = FromOrt(api.SetTensorElementType(raw, type)); !status) return status;
  if (Status status = FromOrt(api.SetDimensions(raw, dims.data(), rank)); !status) return status;
  if (Status status = FromOrt(api.SetSymbolicDimensions(raw, names.data(), rank)); !status) {
    return status;
  }
  return FromOrt(api.ShapeInferContext_SetOutputTypeShape(context, 0, raw));
}

}  // namespace

Status InferRmsNorm(OrtShapeInferContext* context) { return PassOn(context, 0, 0); }

Status InferAddRmsNorm(OrtShapeInferContext* context) {
  if (Status status = PassOn(context, 0, 0); !status) return status;
  return PassOn(context, 0, 1);
}

Status InferRope(OrtShapeInferContext* context) {
  if (Status status = PassOn(context, 0, 0); !status) return status;
  size_t inputs = 0;
  if (Status status = FromOrt(Api().ShapeInferContext_GetInputCount(context, &inputs)); !status) {
    return status;
  }
  return inputs > 3 ? PassOn(context, 3, 1) : Status();
}

Status InferSwiGlu(OrtShapeInferContext* context) {
  Result<bool> packed = IsPacked(context);
  // A missing attribute is reported, with the node's name, when the kernel is made.
  if (!packed) return {};
  return *packed ? HalveLast(context) : PassOn(context, 0, 0);
}

}  // namespace liger::ort
