// LigerSwiGLU(gate, up?) -> y and LigerGeGLU(gate, up?) -> y.
// gate, up, y: [..., width], or gate: [..., 2 * width] when packed.
#include <algorithm>

#include "kernel.h"
#include "tensor.h"

namespace liger::ort {
namespace {

template <typename Args>
class GatedKernel : public Kernel {
 public:
  using Launcher = Status (*)(OrtKernelContext* context, const Args& args);

  GatedKernel(const NodeInfo& node, Launcher launcher, const Args& plan)
      : label_(node.label()), launcher_(launcher), input_count_(node.input_count()), plan_(plan) {}

  Status Compute(OrtKernelContext* context) const override {
    InputTensor gate, up;
    if (Status status = ReadInput(context, 0, gate); !status) return status;
    if (input_count_ > 1) {
      if (Status status = ReadInput(context, 1, up); !status) return status;
    }
    if (gate.rank() == 0) return Invalid("input 'gate' has shape [], expected [..., width]");

    const bool packed = plan_.packed != LIGER_NOT_PACKED;
    Args args = plan_;
    args.gate = gate.data();
    args.up = up.data();
    args.width = packed ? gate.FromEnd(0) / 2 : gate.FromEnd(0);
    args.rows = Count(gate.dims().first(gate.rank() - 1));
    if (packed && up.present()) return Invalid("there is an input 'up' beside a packed 'gate'");
    if (packed && gate.FromEnd(0) % 2 != 0) {
      return Invalid("input 'gate' has shape " + DimsText(gate.dims()) +
                     ", expected an even last dimension since it is packed");
    }
    if (!packed && !up.present()) return Invalid("input 'up' is missing");
    if (!packed && !SameDims(gate.dims(), up.dims())) {
      return Invalid("input 'up' has shape " + DimsText(up.dims()) + ", expected that of 'gate', " +
                     DimsText(gate.dims()));
    }

    Result<OutputTensor> y = Output(context, gate, packed, args.width);
    if (!y) return y.error();
    args.y = y->data;
    return launcher_(context, args);
  }

 private:
  Error Invalid(std::string message) const {
    return {ErrorCode::kUsage, std::move(message), label_, ""};
  }

  Result<OutputTensor> Output(OrtKernelContext* context, const InputTensor& gate, bool packed,
                              int64_t width) const {
    if (!packed) return MakeOutput(context, 0, gate.dims());
    int64_t dims[InputTensor::kMaxCopiedRank];
    if (gate.rank() > InputTensor::kMaxCopiedRank) {
      return Invalid("input 'gate' has more than 16 dimensions");
    }
    std::copy(gate.dims().begin(), gate.dims().end(), dims);
    dims[gate.rank() - 1] = width;
    return MakeOutput(context, 0, {dims, gate.rank()});
  }

  std::string label_;
  Launcher launcher_;
  size_t input_count_;
  Args plan_;  // attributes and dtypes; pointers and sizes are filled in per call
};

// The attributes that both ops have.
template <typename Args>
Status ReadCommon(const NodeInfo& node, Args& plan) {
  Result<float> limit = node.Float("limit");
  if (!limit) return limit.error();
  if (*limit < 0) return node.Invalid("attribute 'limit' is negative; 0 stands for none");
  Result<float> up_offset = node.Float("up_offset");
  if (!up_offset) return up_offset.error();
  Result<std::string> packed = node.String("packed");
  if (!packed) return packed.error();
  Result<DType> stash_type = node.FloatType("stash_type");
  if (!stash_type) return stash_type.error();
  plan.limit = *limit;
  plan.up_offset = *up_offset;
  plan.packed = *packed == "none"      ? LIGER_NOT_PACKED
                : *packed == "gate_up" ? LIGER_GATE_UP
                : *packed == "up_gate" ? LIGER_UP_GATE
                                       : LIGER_INTERLEAVED;
  plan.dtype = static_cast<int32_t>(node.Find("T"));
  plan.stash_type = static_cast<int32_t>(*stash_type);
  return {};
}

}  // namespace

Result<std::unique_ptr<Kernel>> MakeSwiGlu(const NodeInfo& node) {
  LigerSwiGluArgs plan{};
  Result<float> alpha = node.Float("alpha");
  if (!alpha) return alpha.error();
  Result<float> gate_multiplier = node.Float("gate_multiplier");
  if (!gate_multiplier) return gate_multiplier.error();
  if (Status status = ReadCommon(node, plan); !status) return std::move(status).error();
  plan.alpha = *alpha;
  plan.gate_multiplier = *gate_multiplier;
  return std::unique_ptr<Kernel>(
      std::make_unique<GatedKernel<LigerSwiGluArgs>>(node, node.launchers().swiglu, plan));
}

Result<std::unique_ptr<Kernel>> MakeGeGlu(const NodeInfo& node) {
  LigerGeGluArgs plan{};
  Result<std::string> approximate = node.String("approximate");
  if (!approximate) return approximate.error();
  if (Status status = ReadCommon(node, plan); !status) return std::move(status).error();
  plan.form = *approximate == "tanh"   ? LIGER_GELU_TANH
              : *approximate == "none" ? LIGER_GELU_EXACT
                                       : LIGER_GELU_SIGMOID;
  return std::unique_ptr<Kernel>(
      std::make_unique<GatedKernel<LigerGeGluArgs>>(node, node.launchers().geglu, plan));
}

}  // namespace liger::ort
