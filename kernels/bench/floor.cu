// Floors for bench_cuda.py: kernels that move the bytes of another kernel and do nothing else.
//
// LigerBenchCopy reads `reads` buffers and writes `writes` buffers of `bytes` bytes each, a multiple
// of 16. Several ways of doing it, since the best one depends on the mix; the fastest is the floor.
#include <cuda_runtime.h>
#include <stdint.h>

namespace {

struct Buffers {
  const uint4* in[3];
  uint4* out[2];
};

template <int kReads, int kWrites, int kVecs, bool kStreams>
__global__ void __launch_bounds__(256) Copy(const __grid_constant__ Buffers buffers, int64_t vecs) {
  const int64_t first = static_cast<int64_t>(blockIdx.x) * blockDim.x * kVecs + threadIdx.x;
  uint4 v[kVecs][kReads];
#pragma unroll
  for (int i = 0; i < kVecs; ++i) {
    const int64_t at = first + i * blockDim.x;
#pragma unroll
    for (int r = 0; r < kReads; ++r) {
      if (at < vecs) v[i][r] = kStreams ? __ldcs(buffers.in[r] + at) : buffers.in[r][at];
    }
  }
#pragma unroll
  for (int i = 0; i < kVecs; ++i) {
    const int64_t at = first + i * blockDim.x;
    if (at >= vecs) continue;
    uint4 sum = v[i][0];
#pragma unroll
    for (int r = 1; r < kReads; ++r) {
      sum.x ^= v[i][r].x;
      sum.y ^= v[i][r].y;
      sum.z ^= v[i][r].z;
      sum.w ^= v[i][r].w;
    }
#pragma unroll
    for (int w = 0; w < kWrites; ++w) {
      sum.x += w;
      if (kStreams) {
        __stcs(buffers.out[w] + at, sum);
      } else {
        buffers.out[w][at] = sum;
      }
    }
  }
}

template <int kReads, int kWrites>
int Run(int variant, const Buffers& buffers, int64_t vecs, cudaStream_t stream) {
  const auto launch = [&](auto kernel, int vecs_of_thread) {
    const int64_t tile = 256 * vecs_of_thread;
    kernel<<<static_cast<unsigned>((vecs + tile - 1) / tile), 256, 0, stream>>>(buffers, vecs);
    return static_cast<int>(cudaGetLastError());
  };
  switch (variant) {
    case 0:
      return launch(Copy<kReads, kWrites, 1, true>, 1);
    case 1:
      return launch(Copy<kReads, kWrites, 1, false>, 1);
    case 2:
      return launch(Copy<kReads, kWrites, 2, true>, 2);
    default:
      return launch(Copy<kReads, kWrites, 4, false>, 4);
  }
}

__global__ void Nothing() {}

}  // namespace

extern "C" __attribute__((visibility("default"))) int LigerBenchCopy(
    int variant, int reads, int writes, const void* const* in, void* const* out, int64_t bytes,
    cudaStream_t stream) {
  Buffers buffers = {};
  for (int i = 0; i < reads; ++i) buffers.in[i] = static_cast<const uint4*>(in[i]);
  for (int i = 0; i < writes; ++i) buffers.out[i] = static_cast<uint4*>(out[i]);
  const int64_t vecs = bytes / 16;
  switch (10 * reads + writes) {
    case 11:
      return Run<1, 1>(variant, buffers, vecs, stream);
    case 21:
      return Run<2, 1>(variant, buffers, vecs, stream);
    case 22:
      return Run<2, 2>(variant, buffers, vecs, stream);
    default:
      return static_cast<int>(cudaErrorInvalidValue);
  }
}

extern "C" __attribute__((visibility("default"))) int LigerBenchNothing(cudaStream_t stream) {
  Nothing<<<1, 32, 0, stream>>>();
  return static_cast<int>(cudaGetLastError());
}
