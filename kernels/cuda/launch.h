// Launching kernels: what is known of the current device, and CUDA errors as LigerStatus.
//
//   return Launch(RmsNormRows<T>, {.grid = rows, .block = 256, .stream = stream}, args);
#pragma once

#include <cuda_runtime_api.h>
#include <stdint.h>

#include <utility>

#include "liger/types.h"

namespace liger::cuda {

struct Device {
  int multiprocessors = 0;
  int major = 0;         // of the compute capability
  int shared_bytes = 0;  // at most, of a block that opts in
  int threads_of_multiprocessor = 0;
};

// Of the current device; asked for once per device and process.
LigerStatus CurrentDevice(Device& device);

inline LigerStatus ToStatus(cudaError_t error) {
  return error == cudaSuccess
             ? LIGER_OK
             : static_cast<LigerStatus>(LIGER_CUDA_ERROR + static_cast<int>(error));
}

struct LaunchSize {
  int64_t grid = 1;         // blocks, in x
  int64_t grid_rows = 1;    // in y
  int64_t grid_layers = 1;  // in z
  int block = 0;            // threads, in x
  int block_rows = 1;       // in y
  int shared_bytes = 0;
  int cluster = 1;  // blocks of a cluster; more than 1 needs compute capability 9.0
  LigerCudaStream stream = nullptr;
};

// Blocks in a grid at most; kernels step through further work.
inline constexpr int64_t kMaxGrid = 0x7fffffff;
inline constexpr int64_t kMaxGridRows = 0xffff;

template <typename... Parameters, typename... Values>
LigerStatus Launch(void (*kernel)(Parameters...), const LaunchSize& size, Values&&... values) {
  cudaLaunchConfig_t config = {};
  config.gridDim =
      dim3(static_cast<unsigned>(size.grid < kMaxGrid ? size.grid : kMaxGrid),
           static_cast<unsigned>(size.grid_rows), static_cast<unsigned>(size.grid_layers));
  config.blockDim = dim3(static_cast<unsigned>(size.block), static_cast<unsigned>(size.block_rows));
  config.dynamicSmemBytes = static_cast<size_t>(size.shared_bytes);
  config.stream = size.stream;
  cudaLaunchAttribute cluster = {};
  if (size.cluster > 1) {
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim.x = static_cast<unsigned>(size.cluster);
    cluster.val.clusterDim.y = 1;
    cluster.val.clusterDim.z = 1;
    config.attrs = &cluster;
    config.numAttrs = 1;
  }
  const cudaError_t error = cudaLaunchKernelEx(&config, kernel, std::forward<Values>(values)...);
  // The error is the caller's; it must not turn up again in a later call of the process.
  if (error != cudaSuccess) cudaGetLastError();
  return ToStatus(error);
}

// Allows a kernel more than 48 KiB of dynamic shared memory, on the current device.
template <typename Kernel>
LigerStatus AllowShared(Kernel kernel, int bytes) {
  return ToStatus(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                                       cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
}

// Whether every pointer is a multiple of 16 bytes; null is.
template <typename... Pointers>
bool AreAligned(Pointers... pointers) {
  return ((reinterpret_cast<uintptr_t>(pointers) | ...) % 16) == 0;
}

}  // namespace liger::cuda
