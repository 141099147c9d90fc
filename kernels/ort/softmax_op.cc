// LigerSoftmax(x) -> y; x, y: [..., width].
#include "kernel.h"
#include "tensor.h"

namespace liger::ort {
namespace {

class SoftmaxKernel : public Kernel {
 public:
  SoftmaxKernel(const NodeInfo& node, const LigerSoftmaxArgs& plan)
      : label_(node.label()), launchers_(node.launchers()), plan_(plan) {}

  Status Compute(OrtKernelContext* context) const override {
    InputTensor x;
    if (Status status = ReadInput(context, 0, x); !status) return status;
    if (x.rank() == 0) {
      return Error{ErrorCode::kUsage, "input 'x' has shape [], expected [..., width]", label_, ""};
    }
    LigerSoftmaxArgs args = plan_;
    Result<OutputTensor> y = MakeOutput(context, 0, x.dims());
    if (!y) return y.error();
    args.x = x.data();
    args.y = y->data;
    args.width = x.FromEnd(0);
    args.rows = Count(x.dims().first(x.rank() - 1));
    return launchers_.softmax(context, args);
  }

 private:
  std::string label_;
  const Launchers& launchers_;
  LigerSoftmaxArgs plan_;  // attributes and dtypes; pointers and sizes are filled in per call
};

}  // namespace

Result<std::unique_ptr<Kernel>> MakeSoftmax(const NodeInfo& node) {
  Result<DType> stash_type = node.FloatType("stash_type");
  if (!stash_type) return stash_type.error();
  LigerSoftmaxArgs plan{};
  plan.dtype = static_cast<int32_t>(node.Find("T"));
  plan.stash_type = static_cast<int32_t>(*stash_type);
  return std::unique_ptr<Kernel>(std::make_unique<SoftmaxKernel>(node, plan));
}

}  // namespace liger::ort
