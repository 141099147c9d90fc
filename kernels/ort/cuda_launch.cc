// Launches the kernels on the compute stream of the session. Nothing here allocates, waits or reads
// device memory, so that a session can capture its run into a CUDA graph.
#include <cuda_runtime_api.h>

#include "host.h"
#include "kernel.h"

namespace liger::ort {
namespace {

template <typename Args>
using StreamKernel = LigerStatus (*)(const Args*, LigerCudaStream stream);

Error ToError(LigerStatus status) {
  const int code = static_cast<int>(status);
  if (code < LIGER_CUDA_ERROR) {
    return {ErrorCode::kInternal,
            "the kernel refused its arguments: status " + std::to_string(code), "", ""};
  }
  const auto error = static_cast<cudaError_t>(code - LIGER_CUDA_ERROR);
  std::string message = "the kernel was not launched: CUDA error ";
  message += std::to_string(static_cast<int>(error));
  message += std::string(", ") + cudaGetErrorString(error);
  return {ErrorCode::kInternal, std::move(message), "",
          error == cudaErrorNoKernelImageForDevice
              ? "libliger_ort was built for other GPUs: build it with the CMake option "
                "CMAKE_CUDA_ARCHITECTURES of this one"
              : ""};
}

template <typename Args, StreamKernel<Args> kKernel>
Status Run(OrtKernelContext* context, const Args& args) {
  void* stream = nullptr;
  if (Status status = FromOrt(Api().KernelContext_GetGPUComputeStream(context, &stream)); !status) {
    return status;
  }
  const LigerStatus status = kKernel(&args, static_cast<LigerCudaStream>(stream));
  return status == LIGER_OK ? Status() : Status(ToError(status));
}

}  // namespace

const Launchers& CudaLaunchers() {
  static constexpr Launchers kLaunchers = {
      Run<LigerRmsNormArgs, LigerCudaRmsNorm>,     Run<LigerRopeArgs, LigerCudaRope>,
      Run<LigerSwiGluArgs, LigerCudaSwiGlu>,       Run<LigerLayerNormArgs, LigerCudaLayerNorm>,
      Run<LigerGroupNormArgs, LigerCudaGroupNorm>, Run<LigerGeGluArgs, LigerCudaGeGlu>,
      Run<LigerSoftmaxArgs, LigerCudaSoftmax>,
  };
  return kLaunchers;
}

}  // namespace liger::ort
