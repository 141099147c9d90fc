// Splits the work of a node among ONNX Runtime's intra-op threads, by its cost.
#include <algorithm>
#include <atomic>

#include "host.h"
#include "kernel.h"

namespace liger::ort {
namespace {

template <typename Args>
using RangeKernel = LigerStatus (*)(const Args*, int64_t begin, int64_t end);

template <typename Args>
struct Work {
  RangeKernel<Args> kernel;
  const Args* args;
  int64_t size;
  int64_t blocks;
  std::atomic<int> status{LIGER_OK};

  void RunBlock(int64_t block) {
    // The first size % blocks blocks are one item longer.
    const int64_t length = size / blocks;
    const int64_t longer = size % blocks;
    const int64_t begin = block * length + std::min(block, longer);
    const int64_t end = begin + length + (block < longer ? 1 : 0);
    if (const LigerStatus result = kernel(args, begin, end); result != LIGER_OK) status = result;
  }
};

template <typename Args>
void RunBlockOf(void* work, size_t block) {
  static_cast<Work<Args>*>(work)->RunBlock(static_cast<int64_t>(block));
}

Status CheckStatus(LigerStatus status) {
  if (status == LIGER_OK) return {};
  return Error{
      ErrorCode::kInternal,
      "the kernel refused its arguments: status " + std::to_string(static_cast<int>(status)), "",
      ""};
}

// Waking a thread and waiting for it costs some microseconds: a block is worth that from here on.
constexpr double kMinBlockNanoseconds = 10000;
constexpr int64_t kMaxBlocks = 256;

// `item_nanoseconds`: what one item of [0, size) takes on one thread, roughly.
template <typename Args>
Status Run(OrtKernelContext* context, RangeKernel<Args> kernel, const Args& args, int64_t size,
           double item_nanoseconds) {
  const double blocks = static_cast<double>(size) * item_nanoseconds / kMinBlockNanoseconds;
  if (blocks < 2 || size < 2) return CheckStatus(kernel(&args, 0, size));
  Work<Args> work{kernel, &args, size,
                  std::min({size, kMaxBlocks, static_cast<int64_t>(std::min(blocks, 1e9))})};
  // As many batches as blocks: each thread takes the next block when it is done with one, so that a
  // thread that the system holds up does not hold up the others.
  const size_t count = static_cast<size_t>(work.blocks);
  if (Status status =
          FromOrt(Api().KernelContext_ParallelFor(context, RunBlockOf<Args>, count, count, &work));
      !status) {
    return status;
  }
  return CheckStatus(static_cast<LigerStatus>(work.status.load()));
}

// Time per element: measured on one core with f32 data outside the second-level cache, rounded.
constexpr double kRmsNormNanoseconds = 0.5;
constexpr double kRopeNanoseconds = 0.6;
constexpr double kSwiGluNanoseconds = 1.5;
constexpr double kLayerNormNanoseconds = 0.7;
constexpr double kGroupNormNanoseconds = 0.7;
constexpr double kGeGluNanoseconds = 1.5;
constexpr double kSoftmaxNanoseconds = 1;

Status RunRmsNorm(OrtKernelContext* context, const LigerRmsNormArgs& args) {
  return Run(context, LigerCpuRmsNorm, args, args.rows,
             static_cast<double>(args.hidden_size) * kRmsNormNanoseconds);
}

Status RunRope(OrtKernelContext* context, const LigerRopeArgs& args) {
  return Run(context, LigerCpuRope, args, LigerRopeRows(&args),
             static_cast<double>(args.head_dim) * kRopeNanoseconds);
}

Status RunSwiGlu(OrtKernelContext* context, const LigerSwiGluArgs& args) {
  return Run(context, LigerCpuSwiGlu, args, args.rows * args.width, kSwiGluNanoseconds);
}

Status RunLayerNorm(OrtKernelContext* context, const LigerLayerNormArgs& args) {
  return Run(context, LigerCpuLayerNorm, args, args.rows,
             static_cast<double>(args.hidden_size) * kLayerNormNanoseconds);
}

Status RunGroupNorm(OrtKernelContext* context, const LigerGroupNormArgs& args) {
  const int64_t group = args.channels / args.num_groups * args.spatial;
  return Run(context, LigerCpuGroupNorm, args, args.batch * args.num_groups,
             static_cast<double>(group) * kGroupNormNanoseconds);
}

Status RunGeGlu(OrtKernelContext* context, const LigerGeGluArgs& args) {
  return Run(context, LigerCpuGeGlu, args, args.rows * args.width, kGeGluNanoseconds);
}

Status RunSoftmax(OrtKernelContext* context, const LigerSoftmaxArgs& args) {
  return Run(context, LigerCpuSoftmax, args, args.rows,
             static_cast<double>(args.width) * kSoftmaxNanoseconds);
}

}  // namespace

const Launchers& CpuLaunchers() {
  static constexpr Launchers kLaunchers = {RunRmsNorm,   RunRope,  RunSwiGlu, RunLayerNorm,
                                           RunGroupNorm, RunGeGlu, RunSoftmax};
  return kLaunchers;
}

}  // namespace liger::ort
