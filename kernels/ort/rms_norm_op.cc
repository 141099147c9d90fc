// LigerRMSNorm(x, scale?) -> y and LigerAddRMSNorm(x, residual, scale) -> y, sum.
// x, residual, y, sum: [..., hidden_size]; scale: [hidden_size].
#include "kernel.h"
#include "tensor.h"

namespace liger::ort {
namespace {

class RmsNormKernel : public Kernel {
 public:
  RmsNormKernel(const NodeInfo& node, bool adds, const LigerRmsNormArgs& plan)
      : label_(node.label()),
        launchers_(node.launchers()),
        adds_(adds),
        input_count_(node.input_count()),
        output_count_(node.output_count()),
        plan_(plan) {}

  Status Compute(OrtKernelContext* context) const override {
    InputTensor x, residual, scale;
    if (Status status = ReadInput(context, 0, x); !status) return status;
    if (adds_) {
      if (Status status = ReadInput(context, 1, residual); !status) return status;
    }
    const size_t scale_index = adds_ ? 2 : 1;
    if (scale_index < input_count_) {
      if (Status status = ReadInput(context, scale_index, scale); !status) return status;
    }

    if (x.rank() == 0) return Invalid("input 'x' has shape [], expected [..., hidden_size]");
    const int64_t hidden_size = x.FromEnd(0);
    if (adds_ && !SameDims(x.dims(), residual.dims())) {
      return Invalid("input 'residual' has shape " + DimsText(residual.dims()) +
                     ", expected that of 'x', " + DimsText(x.dims()));
    }
    if (scale.present() && (scale.rank() != 1 || scale.FromEnd(0) != hidden_size)) {
      return Invalid("input 'scale' has shape " + DimsText(scale.dims()) + ", expected [" +
                     std::to_string(hidden_size) + "], the last dimension of 'x', " +
                     DimsText(x.dims()));
    }
    if (!scale.present() && plan_.offset != 0) {
      return Invalid("attribute 'offset' is not 0, but there is no input 'scale' to add it to");
    }

    LigerRmsNormArgs args = plan_;
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
    args.hidden_size = hidden_size;
    args.rows = Count(x.dims().first(x.rank() - 1));
    return launchers_.rms_norm(context, args);
  }

 private:
  Error Invalid(std::string message) const {
    return {ErrorCode::kUsage, std::move(message), label_, ""};
  }

  std::string label_;
  const Launchers& launchers_;
  bool adds_;
  size_t input_count_;
  size_t output_count_;
  LigerRmsNormArgs plan_;  // attributes and dtypes; pointers and sizes are filled in per call
};

Result<std::unique_ptr<Kernel>> Make(const NodeInfo& node, bool adds) {
  Result<float> epsilon = node.Float("epsilon");
  if (!epsilon) return epsilon.error();
  if (*epsilon < 0) return node.Invalid("attribute 'epsilon' is negative");
  Result<float> offset = node.Float("offset");
  if (!offset) return offset.error();
  Result<DType> stash_type = node.FloatType("stash_type");
  if (!stash_type) return stash_type.error();
  Result<DType> scale_type = node.FloatType("scale_type");
  if (!scale_type) return scale_type.error();

  LigerRmsNormArgs plan{};
  plan.dtype = static_cast<int32_t>(node.Find("T"));
  plan.scale_dtype = static_cast<int32_t>(node.Find("S"));
  plan.stash_type = static_cast<int32_t>(*stash_type);
  plan.scale_type = static_cast<int32_t>(*scale_type);
  plan.epsilon = *epsilon;
  plan.offset = *offset;
  return std::unique_ptr<Kernel>(std::make_unique<RmsNormKernel>(node, adds, plan));
}

}  // namespace

Result<std::unique_ptr<Kernel>> MakeRmsNorm(const NodeInfo& node) { return Make(node, false); }

Result<std::unique_ptr<Kernel>> MakeAddRmsNorm(const NodeInfo& node) { return Make(node, true); }

}  // namespace liger::ort
