// LigerGroupNorm(x, scale, bias) -> y; x, y: [batch, channels, ...]; scale, bias: [channels].
#include "kernel.h"
#include "tensor.h"

namespace liger::ort {
namespace {

class GroupNormKernel : public Kernel {
 public:
  GroupNormKernel(const NodeInfo& node, const LigerGroupNormArgs& plan)
      : label_(node.label()), launchers_(node.launchers()), plan_(plan) {}

  Status Compute(OrtKernelContext* context) const override {
    InputTensor x, scale, bias;
    if (Status status = ReadInput(context, 0, x); !status) return status;
    if (Status status = ReadInput(context, 1, scale); !status) return status;
    if (Status status = ReadInput(context, 2, bias); !status) return status;
    if (x.rank() < 2) {
      return Invalid("input 'x' has shape " + DimsText(x.dims()) +
                     ", expected [batch, channels, ...]");
    }
    const int64_t channels = x.dims()[1];
    if (channels % plan_.num_groups != 0) {
      return Invalid("input 'x' has shape " + DimsText(x.dims()) + ", whose " +
                     std::to_string(channels) + " channels are no multiple of " +
                     std::to_string(plan_.num_groups) + " groups");
    }
    if (Status status = CheckRow("scale", scale, channels, x); !status) return status;
    if (Status status = CheckRow("bias", bias, channels, x); !status) return status;

    LigerGroupNormArgs args = plan_;
    Result<OutputTensor> y = MakeOutput(context, 0, x.dims());
    if (!y) return y.error();
    args.y = y->data;
    args.x = x.data();
    args.scale = scale.data();
    args.bias = bias.data();
    args.batch = x.dims()[0];
    args.channels = channels;
    args.spatial = Count(x.dims().subspan(2));
    return launchers_.group_norm(context, args);
  }

 private:
  Error Invalid(std::string message) const {
    return {ErrorCode::kUsage, std::move(message), label_, ""};
  }

  Status CheckRow(const char* name, const InputTensor& row, int64_t channels,
                  const InputTensor& x) const {
    if (row.rank() == 1 && row.FromEnd(0) == channels) return {};
    return Invalid("input '" + std::string(name) + "' has shape " + DimsText(row.dims()) +
                   ", expected [" + std::to_string(channels) + "], the channels of 'x', " +
                   DimsText(x.dims()));
  }

  std::string label_;
  const Launchers& launchers_;
  LigerGroupNormArgs plan_;  // attributes and dtypes; pointers and sizes are filled in per call
};

}  // namespace

Result<std::unique_ptr<Kernel>> MakeGroupNorm(const NodeInfo& node) {
  Result<int64_t> num_groups = node.Int("num_groups");
  if (!num_groups) return num_groups.error();
  if (*num_groups < 1) {
    return node.Invalid("attribute 'num_groups' is " + std::to_string(*num_groups) +
                        ", expected at least 1");
  }
  Result<float> epsilon = node.Float("epsilon");
  if (!epsilon) return epsilon.error();
  if (*epsilon < 0) return node.Invalid("attribute 'epsilon' is negative");
  Result<DType> stash_type = node.FloatType("stash_type");
  if (!stash_type) return stash_type.error();
  Result<DType> scale_type = node.FloatType("scale_type");
  if (!scale_type) return scale_type.error();

  LigerGroupNormArgs plan{};
  plan.num_groups = *num_groups;
  plan.dtype = static_cast<int32_t>(node.Find("T"));
  plan.scale_dtype = static_cast<int32_t>(node.Find("S"));
  plan.stash_type = static_cast<int32_t>(*stash_type);
  plan.scale_type = static_cast<int32_t>(*scale_type);
  plan.epsilon = *epsilon;
  return std::unique_ptr<Kernel>(std::make_unique<GroupNormKernel>(node, plan));
}

}  // namespace liger::ort
