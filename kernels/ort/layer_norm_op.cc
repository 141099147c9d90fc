// LigerLayerNorm(x, scale?, bias?) -> y and LigerAddLayerNorm(x, residual, scale?, bias?) -> y, sum.
// x, residual, y, sum: [..., hidden_size]; scale, bias: [hidden_size].
#include "kernel.h"
#include "tensor.h"

namespace liger::ort {
namespace {

class LayerNormKernel : public Kernel {
 public:
  LayerNormKernel(const NodeInfo& node, bool adds, const LigerLayerNormArgs& plan)
      : label_(node.label()),
        launchers_(node.launchers()),
        adds_(adds),
        input_count_(node.input_count()),
        output_count_(node.output_count()),
        plan_(plan) {}

  Status Compute(OrtKernelContext* context) const override {
    InputTensor x, residual, scale, bias;
    if (Status status = ReadInput(context, 0, x); !status) return status;
    if (adds_) {
      if (Status status = ReadInput(context, 1, residual); !status) return status;
    }
    const size_t scale_index = adds_ ? 2 : 1;
    if (scale_index < input_count_) {
      if (Status status = ReadInput(context, scale_index, scale); !status) return status;
    }
    if (scale_index + 1 < input_count_) {
      if (Status status = ReadInput(context, scale_index + 1, bias); !status) return status;
    }

    if (x.rank() == 0) return Invalid("input 'x' has shape [], expected [..., hidden_size]");
    if (adds_ && !SameDims(x.dims(), residual.dims())) {
      return Invalid("input 'residual' has shape " + DimsText(residual.dims()) +
                     ", expected that of 'x', " + DimsText(x.dims()));
    }
    if (Status status = CheckRow("scale", scale, x); !status) return status;
    if (Status status = CheckRow("bias", bias, x); !status) return status;

    LigerLayerNormArgs args = plan_;
    Result<OutputTensor> y = MakeOutput(context, 0, x.dims());
    if (!y) return y.error();
    args.y = y->data;
    if (adds_ && output_count_ > 1) {
      Result<OutputTensor> sum = MakeOutput(context, 1, x.dims());
      if (!sum) return sum.error();
      args.sum = sum->data;
    }
    args.x = x.data();
    args.residual = residual.data();
    args.scale = scale.data();
    args.bias = bias.data();
    args.hidden_size = x.FromEnd(0);
    args.rows = Count(x.dims().first(x.rank() - 1));
    return launchers_.layer_norm(context, args);
  }

 private:
  Error Invalid(std::string message) const {
    return {ErrorCode::kUsage, std::move(message), label_, ""};
  }

  Status CheckRow(const char* name, const InputTensor& row, const InputTensor& x) const {
    if (!row.present() || (row.rank() == 1 && row.FromEnd(0) == x.FromEnd(0))) return {};
    return Invalid("input '" + std::string(name) + "' has shape " + DimsText(row.dims()) +
                   ", expected [" + std::to_string(x.FromEnd(0)) +
                   "], the last dimension of 'x', " + DimsText(x.dims()));
  }

  std::string label_;
  const Launchers& launchers_;
  bool adds_;
  size_t input_count_;
  size_t output_count_;
  LigerLayerNormArgs plan_;  // attributes and dtypes; pointers and sizes are filled in per call
};

Result<std::unique_ptr<Kernel>> Make(const NodeInfo& node, bool adds) {
  Result<float> epsilon = node.Float("epsilon");
  if (!epsilon) return epsilon.error();
  if (*epsilon < 0) return node.Invalid("attribute 'epsilon' is negative");
  Result<DType> stash_type = node.FloatType("stash_type");
  if (!stash_type) return stash_type.error();
  Result<DType> scale_type = node.FloatType("scale_type");
  if (!scale_type) return scale_type.error();

  LigerLayerNormArgs plan{};
  plan.dtype = static_cast<int32_t>(node.Find("T"));
  plan.scale_dtype = static_cast<int32_t>(node.Find("S"));
  plan.stash_type = static_cast<int32_t>(*stash_type);
  plan.scale_type = static_cast<int32_t>(*scale_type);
  plan.epsilon = *epsilon;
  return std::unique_ptr<Kernel>(std::make_unique<LayerNormKernel>(node, adds, plan));
}

}  // namespace

Result<std::unique_ptr<Kernel>> MakeLayerNorm(const NodeInfo& node) { return Make(node, false); }

Result<std::unique_ptr<Kernel>> MakeAddLayerNorm(const NodeInfo& node) { return Make(node, true); }

}  // namespace liger::ort
