// Sums and maxima over the lanes of a warp and the threads of a block; every thread gets the result.
#pragma once

namespace liger::cuda {

inline constexpr int kWarp = 32;
inline constexpr unsigned kAllLanes = 0xffffffffu;

// Over groups of kLanes neighbouring lanes.
template <int kLanes = kWarp, typename A, typename Combine>
__device__ __forceinline__ A WarpReduce(A value, Combine combine) {
#pragma unroll
  for (int offset = kLanes / 2; offset > 0; offset /= 2) {
    value = combine(value, __shfl_xor_sync(kAllLanes, value, offset));
  }
  return value;
}

template <int kLanes = kWarp, typename A>
__device__ __forceinline__ A WarpSum(A value) {
  return WarpReduce<kLanes>(value, [](A a, A b) { return a + b; });
}

// The smallest power of two that is not below the warps of this block.
__device__ __forceinline__ unsigned WarpSlots() {
  const unsigned warps = blockDim.x / kWarp;
  return warps == 1 ? 1 : 1u << (kWarp - __clz(static_cast<int>(warps - 1)));
}

// One barrier. `partials`: shared memory for one value a warp, which the caller may reuse after its
// next barrier only. A block is a whole number of warps.
template <typename A, typename Combine>
__device__ __forceinline__ A BlockReduce(A value, A identity, A* partials, Combine combine) {
  const unsigned warps = blockDim.x / kWarp;
  const unsigned slots = WarpSlots();
  value = WarpReduce(value, combine);
  if (warps == 1) return value;
  if (threadIdx.x % kWarp == 0) partials[threadIdx.x / kWarp] = value;
  __syncthreads();
  // Each lane takes one slot, so that few warps need few steps; slots behind the last warp hold the
  // identity, so that any number of warps will do.
  const unsigned slot = threadIdx.x % slots;
  value = slot < warps ? partials[slot] : identity;
#pragma unroll
  for (unsigned offset = kWarp / 2; offset > 0; offset /= 2) {
    if (offset < slots) value = combine(value, __shfl_xor_sync(kAllLanes, value, offset));
  }
  return value;
}

// Two sums at once.
__device__ __forceinline__ float2 BlockSum(float2 value, float2* partials) {
  const unsigned warps = blockDim.x / kWarp;
  const unsigned slots = WarpSlots();
  value = {WarpSum(value.x), WarpSum(value.y)};
  if (warps == 1) return value;
  if (threadIdx.x % kWarp == 0) partials[threadIdx.x / kWarp] = value;
  __syncthreads();
  const unsigned slot = threadIdx.x % slots;
  value = slot < warps ? partials[slot] : float2{0, 0};
#pragma unroll
  for (unsigned offset = kWarp / 2; offset > 0; offset /= 2) {
    if (offset >= slots) continue;
    value.x += __shfl_xor_sync(kAllLanes, value.x, offset);
    value.y += __shfl_xor_sync(kAllLanes, value.y, offset);
  }
  return value;
}

// A sum that keeps what each addition loses, so that its error does not grow with the terms.
template <typename A>
struct Compensated {
  A sum = 0;
  A lost = 0;

  __device__ __forceinline__ void Add(A value) {
    const A term = value - lost;
    const A next = sum + term;
    lost = (next - sum) - term;
    sum = next;
  }
};

template <typename A>
__device__ __forceinline__ A BlockSum(A value, A* partials) {
  return BlockReduce(value, A(0), partials, [](A a, A b) { return a + b; });
}

}  // namespace liger::cuda
