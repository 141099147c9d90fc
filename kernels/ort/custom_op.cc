#include "custom_op.h"

#include <exception>
#include <limits>

#include "host.h"

namespace liger::ort {
namespace {

const CustomOp& Self(const OrtCustomOp* op) { return *static_cast<const CustomOp*>(op); }

// Runs `body`, a function that returns a Status, at the C border.
template <typename Body>
OrtStatus* Guard(Body body) noexcept {
  try {
    const Status status = body();
    return status ? nullptr : ToOrt(Api(), status.error());
  } catch (const std::exception& exception) {
    return Api().CreateStatus(ORT_FAIL, exception.what());
  } catch (...) {
    return Api().CreateStatus(ORT_FAIL, "unknown exception in libliger_ort");
  }
}

// ONNX Runtime numbers the element types as ONNX does.
static_assert(static_cast<int>(DType::kF32) == ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT);
static_assert(static_cast<int>(DType::kF16) == ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16);
static_assert(static_cast<int>(DType::kF64) == ONNX_TENSOR_ELEMENT_DATA_TYPE_DOUBLE);
static_assert(static_cast<int>(DType::kBF16) == ONNX_TENSOR_ELEMENT_DATA_TYPE_BFLOAT16);

ONNXTensorElementDataType TypeOf(const CustomOp& op, const Port& port) {
  return static_cast<ONNXTensorElementDataType>(op.types.Find(port.type_symbol));
}

OrtCustomOpInputOutputCharacteristic CharacteristicOf(const Port& port) {
  return port.optional ? INPUT_OUTPUT_OPTIONAL : INPUT_OUTPUT_REQUIRED;
}

OrtStatus* ORT_API_CALL MakeKernelOf(const OrtCustomOp* op, const OrtApi*,
                                     const OrtKernelInfo* info, void** kernel) {
  return Guard([&]() -> Status {
    const CustomOp& self = Self(op);
    const NodeInfo node(self.contract, self.types, self.provider.launchers, info);
    Result<std::unique_ptr<Kernel>> made = self.op.make(node);
    if (!made) return made.error();
    *kernel = made->release();
    return {};
  });
}

OrtStatus* ORT_API_CALL ComputeKernel(void* kernel, OrtKernelContext* context) {
  return Guard([&] { return static_cast<const Kernel*>(kernel)->Compute(context); });
}

OrtStatus* ORT_API_CALL Infer(const OrtCustomOp* op, OrtShapeInferContext* context) {
  return Guard([&] { return Self(op).op.infer(context); });
}

}  // namespace

CustomOp::CustomOp(const OpContract& contract_in, const TypeTuple& types_in,
                   const ProviderBinding& provider_in, const OpBinding& op_in)
    : OrtCustomOp{},
      contract(contract_in),
      types(types_in),
      provider(provider_in),
      op(op_in),
      name(contract_in.op_type) {
  version = ORT_API_VERSION;
  GetName = [](const OrtCustomOp* self) { return Self(self).name.c_str(); };
  GetExecutionProviderType = [](const OrtCustomOp* self) { return Self(self).provider.name; };
  GetInputTypeCount = [](const OrtCustomOp* self) { return Self(self).contract.inputs.size(); };
  GetInputType = [](const OrtCustomOp* self, size_t i) {
    return TypeOf(Self(self), Self(self).contract.inputs[i]);
  };
  GetInputCharacteristic = [](const OrtCustomOp* self, size_t i) {
    return CharacteristicOf(Self(self).contract.inputs[i]);
  };
  GetInputMemoryType = [](const OrtCustomOp*, size_t) { return OrtMemTypeDefault; };
  GetOutputTypeCount = [](const OrtCustomOp* self) { return Self(self).contract.outputs.size(); };
  GetOutputType = [](const OrtCustomOp* self, size_t i) {
    return TypeOf(Self(self), Self(self).contract.outputs[i]);
  };
  GetOutputCharacteristic = [](const OrtCustomOp* self, size_t i) {
    return CharacteristicOf(Self(self).contract.outputs[i]);
  };
  // No port is variadic, but the runtime reads these without asking first.
  GetVariadicInputMinArity = [](const OrtCustomOp*) { return 1; };
  GetVariadicInputHomogeneity = [](const OrtCustomOp*) { return 1; };
  GetVariadicOutputMinArity = [](const OrtCustomOp*) { return 1; };
  GetVariadicOutputHomogeneity = [](const OrtCustomOp*) { return 1; };
  GetStartVersion = [](const OrtCustomOp* self) { return Self(self).contract.since_version; };
  GetEndVersion = [](const OrtCustomOp*) { return std::numeric_limits<int>::max(); };
  CreateKernelV2 = MakeKernelOf;
  KernelComputeV2 = ComputeKernel;
  KernelDestroy = [](void* kernel) { delete static_cast<Kernel*>(kernel); };
  InferOutputShapeFn = Infer;
  GetMayInplace = op.in_place;
  ReleaseMayInplace = [](int* inputs, int* outputs) {
    delete[] inputs;
    delete[] outputs;
  };
}

}  // namespace liger::ort
