// n = (x - mean) / sqrt(variance + epsilon), y = n * scale[c] + bias[c], with the statistics of each
// group of channels
//
// A group is one piece of memory: a row of channels / num_groups * spatial elements. Three kernels:
//
//   HeldGroups    a block holds a group in registers
//   StreamGroups  larger groups, through shared memory (stream_rows.cuh)
//   LoopGroups    any size, alignment, dtype and rounding: a block reads its group three times, the
//                 later ones mostly from cache
//
// Statistics are taken of x less a shift near the mean, as in row_norm.cuh. Bytes
// moved: x and y once (LoopGroups: x up to three times). The memory is what limits them.
#include <cuda_runtime.h>

#include "check.h"
#include "launch.h"
#include "reduce.cuh"
#include "scaled.cuh"
#include "stream_rows.cuh"
#include "vec.cuh"

namespace liger::cuda {
namespace {

struct Groups {
  const void* x;      // [batch, num_groups, size] of T
  const void* scale;  // [num_groups, channels] of T or f32
  const void* bias;
  void* y;
  int64_t groups;  // batch * num_groups
  int64_t num_groups;
  int64_t channels;  // of a group
  int64_t spatial;
  int64_t size;              // channels * spatial
  uint32_t vecs_reciprocal;  // 2^32 over the vectors of a channel, rounded up
  float epsilon;
  Rounding rounding;
  bool scale_is_f32;
};

// Scale and bias of the channels of one group.
template <typename T, typename A>
struct Parameters {
  const Groups& p;
  int64_t first;  // channel

  __device__ Parameters(const Groups& p_in, int64_t group)
      : p(p_in), first(group % p_in.num_groups * p_in.channels) {}

  template <typename Index>
  __device__ __forceinline__ A At(const void* row, Index channel) const {
    return p.scale_is_f32 ? To<A>((static_cast<const float*>(row) + first)[channel])
                          : To<A>((static_cast<const T*>(row) + first)[channel]);
  }
};

// Statistics of a group: of x less the shift.
struct Statistics {
  float shift;
  float mean;
  float rstd;
};

// y of one vector, which lies in one channel.
template <typename T>
__device__ __forceinline__ uint4 Normalised(const Groups& p, const Parameters<T, float>& parameters,
                                            uint4 bits, uint32_t vec, const Statistics& of) {
  constexpr int kSize = kVecSize<T>;
  // Exact, since a group is far smaller than 2^32 over the vectors of a channel.
  const uint32_t channel = p.vecs_reciprocal == 0 ? vec : __umulhi(vec, p.vecs_reciprocal);
  const float w = parameters.At(p.scale, channel), b = parameters.At(p.bias, channel);
  const float middle = -of.mean * of.rstd;
  float v[kSize];
  Unpack<T>(bits, v);
#pragma unroll
  for (int j = 0; j < kSize; ++j) v[j] = fmaf(v[j] - of.shift, of.rstd, middle);
  if constexpr (sizeof(T) == 2) {
    if (p.rounding == Rounding::kStorage) {
      const uint32_t ww = PackPair<T>(w, w), bb = PackPair<T>(b, b);
      const uint4 y =
          OnPairs<T>(Pack<T>(v), {ww, ww, ww, ww}, [](auto x, auto z) { return Times(x, z); });
      return OnPairs<T>(y, {bb, bb, bb, bb}, [](auto x, auto z) { return Plus(x, z); });
    }
  }
#pragma unroll
  for (int j = 0; j < kSize; ++j) v[j] = Plus(Times(v[j], w), b);
  return Pack<T>(v);
}

// Adds a vector's elements, less the shift, to sum and sum of squares.
template <typename T>
__device__ __forceinline__ void AddTo(float2& sums, uint4 bits, float shift) {
  float v[kVecSize<T>];
  Unpack<T>(bits, v);
#pragma unroll
  for (int j = 0; j < kVecSize<T>; ++j) {
    const float d = v[j] - shift;
    sums.x += d;
    sums.y = fmaf(d, d, sums.y);
  }
}

// From sums(shift), the sum and the sum of squares of the elements less the shift; a second time with
// a better shift where the first is far from the mean. All threads take the same way.
template <typename Sums>
__device__ __forceinline__ Statistics StatisticsOf(const Groups& p, float shift, Sums sums) {
  const float size = static_cast<float>(p.size);
  float2 of = sums(shift);
  float mean = of.x / size;
  float variance = of.y / size - mean * mean;
  if (mean * mean > kMaxShift * variance) {
    shift += mean;
    of = sums(shift);
    mean = of.x / size;
    variance = fmaxf(of.y / size - mean * mean, 0.0f);
  }
  return {shift, mean, InverseRoot(variance + p.epsilon)};
}

inline constexpr int kHeldThreads = 512;

template <typename T, int kVecs>
__global__ void __launch_bounds__(kHeldThreads) HeldGroups(const __grid_constant__ Groups p) {
  __shared__ float2 partials[kWarp];
  const int64_t group = blockIdx.x;
  const T* x = static_cast<const T*>(p.x) + group * p.size;
  T* y = static_cast<T*>(p.y) + group * p.size;
  const int vecs = static_cast<int>(p.size / kVecSize<T>);
  const int first = static_cast<int>(threadIdx.x);
  const int stride = static_cast<int>(blockDim.x);
  uint4 bits[kVecs];
#pragma unroll
  for (int i = 0; i < kVecs; ++i) {
    if (first + i * stride < vecs) bits[i] = LoadVec(x + (first + i * stride) * kVecSize<T>);
  }
  const Statistics of = StatisticsOf(p, To<float>(*x), [&](float shift) {
    float2 sums = {0, 0};
#pragma unroll
    for (int i = 0; i < kVecs; ++i) {
      if (first + i * stride < vecs) AddTo<T>(sums, bits[i], shift);
    }
    __syncthreads();  // after a first time
    return BlockSum(sums, partials);
  });
  const Parameters<T, float> parameters(p, group);
#pragma unroll
  for (int i = 0; i < kVecs; ++i) {
    const int vec = first + i * stride;
    if (vec >= vecs) continue;
    StoreVec(y + vec * kVecSize<T>,
             Normalised<T>(p, parameters, bits[i], static_cast<uint32_t>(vec), of));
  }
}

template <typename T>
__global__ void __launch_bounds__(kStreamThreads, 1)
    StreamGroups(const __grid_constant__ Groups p, int slots) {
#if __CUDA_ARCH__ >= 900
  StreamRows(p.x, p.groups, p.size / kVecSize<T>, slots,
             [&](RowStream& stream, int64_t group, float2* shared) {
               T* y = static_cast<T*>(p.y) + group * p.size;
               const unsigned lane = threadIdx.x % kWarp;
               bool is_first = true;
               const Statistics of =
                   StatisticsOf(p, To<float>(stream.template First<T>()), [&](float shift) {
                     float2 sums = {0, 0};
                     const auto add = [&](uint4 bits, uint32_t) { AddTo<T>(sums, bits, shift); };
                     if (is_first) {
                       stream.FirstPass(add);
                     } else {
                       stream.NextPass(add);
                       SyncConsumers();
                     }
                     is_first = false;
                     sums = {WarpSum(sums.x), WarpSum(sums.y)};
                     if (lane == 0) shared[threadIdx.x / kWarp] = sums;
                     SyncConsumers();
                     sums = lane < kConsumerWarps ? shared[lane] : float2{0, 0};
                     return float2{WarpSum(sums.x), WarpSum(sums.y)};
                   });
               const Parameters<T, float> parameters(p, group);
               stream.LastPass([&](uint4 bits, uint32_t vec) {
                 StoreVec(y + vec * kVecSize<T>, Normalised<T>(p, parameters, bits, vec, of));
               });
             });
#endif
}

inline constexpr int kLoopThreads = 1024;

template <typename T, typename A>
__global__ void __launch_bounds__(kLoopThreads) LoopGroups(const __grid_constant__ Groups p) {
  __shared__ A partials[3][kWarp];
  for (int64_t group = blockIdx.x; group < p.groups; group += gridDim.x) {
    const T* x = static_cast<const T*>(p.x) + group * p.size;
    T* y = static_cast<T*>(p.y) + group * p.size;
    A shift = To<A>(*x);
    Compensated<A> sum, rest, squares;
    for (int64_t i = threadIdx.x; i < p.size; i += blockDim.x) sum.Add(To<A>(x[i]) - shift);
    shift += BlockSum(sum.sum, partials[0]) / static_cast<A>(p.size);
    for (int64_t i = threadIdx.x; i < p.size; i += blockDim.x) {
      const A d = To<A>(x[i]) - shift;
      rest.Add(d);
      squares.Add(d * d);
    }
    const A mean = BlockSum(rest.sum, partials[1]) / static_cast<A>(p.size);
    const A variance = BlockSum(squares.sum, partials[2]) / static_cast<A>(p.size) - mean * mean;
    const A rstd = InverseRoot(variance + static_cast<A>(p.epsilon));
    const Parameters<T, A> parameters(p, group);
    const auto round = [&](A v) {
      return p.rounding == Rounding::kStorage ? Rounded<T>(v) : RoundAtRunTime(v, p.rounding);
    };
    for (int64_t i = threadIdx.x; i < p.size; i += blockDim.x) {
      const int64_t channel = i / p.spatial;
      y[i] = RoundTo<T>::Of(ScaledAndShifted((To<A>(x[i]) - shift - mean) * rstd,
                                             parameters.At(p.scale, channel),
                                             parameters.At(p.bias, channel), round));
    }
    __syncthreads();  // before the next group's partial sums, and its shift where y is x
  }
}

template <typename T, typename A>
LigerStatus LaunchLoop(const Groups& p, LigerCudaStream stream) {
  const int64_t threads = (p.size + kWarp - 1) / kWarp * kWarp;
  const int block = static_cast<int>(threads < kLoopThreads ? threads : kLoopThreads);
  return Launch(LoopGroups<T, A>, {.grid = p.groups, .block = block, .stream = stream}, p);
}

template <typename T>
LigerStatus LaunchVectors(Groups p, LigerCudaStream stream) {
  const int64_t vecs = p.size / kVecSize<T>;
  const int64_t of_channel = p.spatial / kVecSize<T>;
  // 0 where a channel is one vector: 2^32 has no place in 32 bits.
  p.vecs_reciprocal = static_cast<uint32_t>(((int64_t{1} << 32) + of_channel - 1) / of_channel);
  const auto held = [&](auto kernel, int64_t vecs_of_thread) {
    const int64_t threads = (vecs + vecs_of_thread - 1) / vecs_of_thread;
    return Launch(kernel,
                  {.grid = p.groups,
                   .block = static_cast<int>((threads + kWarp - 1) / kWarp * kWarp),
                   .stream = stream},
                  p);
  };
  if (p.groups <= kMaxGrid && vecs <= kHeldThreads) return held(HeldGroups<T, 2>, 2);
  if (p.groups <= kMaxGrid && vecs <= 4 * kHeldThreads) return held(HeldGroups<T, 4>, 4);
  Device device;
  if (const LigerStatus status = CurrentDevice(device)) return status;
  if (!FitsStream(device, vecs)) return LaunchLoop<T, float>(p, stream);
  const int slots = StreamSlots(device);
  const int bytes = StreamBytes(slots);
  if (const LigerStatus status = AllowShared(StreamGroups<T>, bytes)) return status;
  const int64_t blocks = p.groups < device.multiprocessors ? p.groups : device.multiprocessors;
  return Launch(StreamGroups<T>,
                {.grid = blocks, .block = kStreamThreads, .shared_bytes = bytes, .stream = stream},
                p, slots);
}

template <typename T>
LigerStatus LaunchOf(const LigerGroupNormArgs& args, const Groups& p, LigerCudaStream stream) {
  if constexpr (sizeof(T) == 8) {
    return LaunchLoop<T, double>(p, stream);
  } else {
    if (IsInF64(args)) return LaunchLoop<T, double>(p, stream);
    const bool vectors = p.spatial % kVecSize<T> == 0 && AreAligned(p.x, p.y) &&
                         (p.rounding == Rounding::kNone || p.rounding == Rounding::kStorage);
    return vectors ? LaunchVectors<T>(p, stream) : LaunchLoop<T, float>(p, stream);
  }
}

}  // namespace
}  // namespace liger::cuda

LigerStatus LigerCudaGroupNorm(const LigerGroupNormArgs* args, LigerCudaStream stream) {
  using namespace liger::cuda;
  if (const LigerStatus status = liger::Check(*args)) return status;
  Groups p = {};
  p.x = args->x;
  p.scale = args->scale;
  p.bias = args->bias;
  p.y = args->y;
  p.groups = args->batch * args->num_groups;
  p.num_groups = args->num_groups;
  p.channels = args->channels / args->num_groups;
  p.spatial = args->spatial;
  p.size = p.channels * p.spatial;
  p.epsilon = args->epsilon;
  p.rounding = RoundingOf(*args);
  p.scale_is_f32 = args->scale_dtype == LIGER_F32;
  if (p.groups == 0 || p.size == 0) return LIGER_OK;
  switch (args->dtype) {
    case LIGER_F16:
      return LaunchOf<F16>(*args, p, stream);
    case LIGER_BF16:
      return LaunchOf<BF16>(*args, p, stream);
    case LIGER_F64:
      return LaunchOf<F64>(*args, p, stream);
    default:
      return LaunchOf<F32>(*args, p, stream);
  }
}
