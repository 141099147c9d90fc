// y = exp(x - max(x)) / sum(exp(x - max(x))), row by row
//
// A row's exponentials are summed against the largest element seen so far, so that one pass gives
// both; partial results (largest, sum) of threads are merged. Five kernels, by width and rows:
//
//   LaneRows     a warp holds a row, several rows a block: no barrier
//   BlockRows    a block holds a row, 2 or 4 vectors of 16 bytes a thread: one barrier
//   ClusterRows  few wide rows: a cluster of blocks holds a row and merges through distributed
//                shared memory: one cluster barrier
//   LoopRows     any width, alignment and dtype: a block reads its row twice, the second time
//                backwards, since the end of the row is what the cache still holds
//   StreamRows   wide rows, through shared memory (stream_rows.cuh)
//
// Bytes moved: x and y once (LoopRows: x twice, mostly from cache). The memory is what limits all of
// them but the few-row cases, which the latency of the merges does.
#include <cuda_runtime.h>

#include <limits>

#include "check.h"
#include "launch.h"
#include "reduce.cuh"
#include "stream_rows.cuh"
#include "vec.cuh"

namespace liger::cuda {
namespace {

struct Rows {
  const void* x;  // [rows, width] of T
  void* y;
  int64_t rows;
  int64_t width;
};

// Exponential of a difference from the largest element. f32: one approximate instruction, whose
// error of 2 ulp is far below the result's tolerance; numbers below the normal ones become 0.
__device__ __forceinline__ float Exp(float x) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x * 1.4426950408889634f));
  return result;
}
__device__ __forceinline__ double Exp(double x) { return exp(x); }

template <typename A>
inline constexpr A kInfinity = std::numeric_limits<A>::infinity();

// What has been seen of a row: sum = sum of exp(x - largest). NaN is passed over in `largest`; its
// exponential makes the sum NaN.
template <typename A>
struct Exponentials {
  A largest;
  A sum;

  __device__ __forceinline__ static Exponentials None() { return {-kInfinity<A>, 0}; }

  // exp(x - largest) is 0, not NaN, where nothing but -inf has been seen.
  __device__ __forceinline__ static A Reference(A largest) {
    return largest == -kInfinity<A> ? A(0) : largest;
  }

  template <int kSize>
  __device__ __forceinline__ void Add(const A (&v)[kSize]) {
    A highest = v[0];
#pragma unroll
    for (int i = 1; i < kSize; ++i) highest = fmax(highest, v[i]);
    if (highest > largest) {
      sum *= Exp(largest - highest);
      largest = highest;
    }
    const A reference = Reference(largest);
#pragma unroll
    for (int i = 0; i < kSize; ++i) sum += Exp(v[i] - reference);
  }

  // The sum as if `to` had been the largest.
  __device__ __forceinline__ A SumAt(A to) const { return sum * Exp(largest - Reference(to)); }
};

// The largest of a warp by one instruction: floats in the order of their bits as integers.
__device__ __forceinline__ float WarpMax(float value) {
#if __CUDA_ARCH__ >= 800
  const int bits = __float_as_int(value);
  const int ordered = bits ^ ((bits >> 31) & 0x7fffffff);
  const int highest = __reduce_max_sync(kAllLanes, ordered);
  return __int_as_float(highest ^ ((highest >> 31) & 0x7fffffff));
#else
  return WarpReduce(value, [](float a, float b) { return fmaxf(a, b); });
#endif
}
__device__ __forceinline__ double WarpMax(double value) {
  return WarpReduce(value, [](double a, double b) { return fmax(a, b); });
}

template <typename A>
__device__ __forceinline__ Exponentials<A> MergeWarp(const Exponentials<A>& mine) {
  const A largest = WarpMax(mine.largest);
  return {largest, WarpSum(mine.SumAt(largest))};
}

// Over all threads of a block, or over its first `warps` warps. One call of `sync`.
template <typename A, typename Sync>
__device__ __forceinline__ Exponentials<A> MergeBlock(const Exponentials<A>& mine, unsigned warps,
                                                      Exponentials<A>* partials, Sync sync) {
  const Exponentials<A> of_warp = MergeWarp(mine);
  if (warps == 1) return of_warp;
  const unsigned lane = threadIdx.x % kWarp;
  if (lane == 0) partials[threadIdx.x / kWarp] = of_warp;
  sync();
  return MergeWarp(lane < warps ? partials[lane] : Exponentials<A>::None());
}

// The vectors of a row that one thread holds, as exponentials against their own largest.
template <typename T, int kVecs>
struct Held {
  static constexpr int kSize = kVecSize<T>;
  float e[kVecs][kSize];
  Exponentials<float> seen = Exponentials<float>::None();

  // Vectors first, first + stride, ... of `vecs`.
  __device__ __forceinline__ void Load(const T* x, int first, int stride, int vecs) {
    uint4 bits[kVecs];
#pragma unroll
    for (int i = 0; i < kVecs; ++i) {
      if (first + i * stride < vecs) bits[i] = LoadVec(x + (first + i * stride) * kSize);
    }
#pragma unroll
    for (int i = 0; i < kVecs; ++i) {
#pragma unroll
      for (int j = 0; j < kSize; ++j) e[i][j] = -kInfinity<float>;
      if (first + i * stride < vecs) Unpack<T>(bits[i], e[i]);
#pragma unroll
      for (int j = 0; j < kSize; ++j) seen.largest = fmaxf(seen.largest, e[i][j]);
    }
  }

  // Takes the exponentials against `largest`.
  __device__ __forceinline__ void Exponentiate(float largest) {
    seen.largest = largest;
    const float reference = Exponentials<float>::Reference(largest);
#pragma unroll
    for (int i = 0; i < kVecs; ++i) {
#pragma unroll
      for (int j = 0; j < kSize; ++j) {
        e[i][j] = Exp(e[i][j] - reference);
        seen.sum += e[i][j];
      }
    }
  }

  __device__ __forceinline__ void Store(T* y, int first, int stride, int vecs, float share) {
#pragma unroll
    for (int i = 0; i < kVecs; ++i) {
      if (first + i * stride >= vecs) continue;
#pragma unroll
      for (int j = 0; j < kSize; ++j) e[i][j] *= share;
      StoreVec(y + (first + i * stride) * kSize, Pack<T>(e[i]));
    }
  }
};

inline constexpr int kLaneRowsThreads = 256;

template <typename T, int kVecs>
__global__ void __launch_bounds__(kLaneRowsThreads) LaneRows(const __grid_constant__ Rows p) {
  const int64_t row =
      static_cast<int64_t>(blockIdx.x) * (kLaneRowsThreads / kWarp) + threadIdx.x / kWarp;
  if (row >= p.rows) return;  // a whole warp
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int vecs = static_cast<int>(p.width / kVecSize<T>);
  Held<T, kVecs> held;
  held.Load(static_cast<const T*>(p.x) + row * p.width, lane, kWarp, vecs);
  held.Exponentiate(WarpMax(held.seen.largest));
  held.Store(static_cast<T*>(p.y) + row * p.width, lane, kWarp, vecs, 1 / WarpSum(held.seen.sum));
}

// Exponentials are taken against the warp's largest element, and put right by a factor when the
// block's is known: so that they are taken once.
template <typename T, int kVecs>
__global__ void __launch_bounds__(512, kVecs == 2 ? 3 : 2)
    BlockRows(const __grid_constant__ Rows p) {
  __shared__ Exponentials<float> partials[kWarp];
  const int64_t row = blockIdx.x;
  const int first = static_cast<int>(threadIdx.x);
  const int stride = static_cast<int>(blockDim.x);
  const int vecs = static_cast<int>(p.width / kVecSize<T>);
  Held<T, kVecs> held;
  held.Load(static_cast<const T*>(p.x) + row * p.width, first, stride, vecs);
  held.Exponentiate(WarpMax(held.seen.largest));
  Exponentials<float> of_warp = held.seen;
  of_warp.sum = WarpSum(of_warp.sum);
  const unsigned warps = blockDim.x / kWarp;
  const unsigned lane = threadIdx.x % kWarp;
  if (lane == 0) partials[threadIdx.x / kWarp] = of_warp;
  __syncthreads();
  const Exponentials<float> all =
      MergeWarp(lane < warps ? partials[lane] : Exponentials<float>::None());
  const float share = Exp(of_warp.largest - Exponentials<float>::Reference(all.largest)) / all.sum;
  held.Store(static_cast<T*>(p.y) + row * p.width, first, stride, vecs, share);
}

inline constexpr int kMaxClusterThreads = 512;

// A cluster of gridDim.x / rows blocks a row. Every warp hands its partial result to every block of
// the cluster, so that one barrier is enough, after which no block touches another one's memory.
template <typename T, int kVecs>
__global__ void __launch_bounds__(kMaxClusterThreads) ClusterRows(const __grid_constant__ Rows p) {
#if __CUDA_ARCH__ >= 900
  constexpr int kMaxCluster = 8;
  __shared__ float2 partials[kMaxCluster * kMaxClusterThreads / kWarp];
  const unsigned warps = blockDim.x / kWarp;
  // The other blocks' shared memory is there once all have arrived.
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
  unsigned blocks, rank;
  asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(blocks));
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  const int64_t row = blockIdx.x / blocks;
  const int vecs = static_cast<int>(p.width / kVecSize<T>);
  const int first = static_cast<int>(rank * blockDim.x + threadIdx.x);
  const int stride = static_cast<int>(blocks * blockDim.x);
  Held<T, kVecs> held;
  held.Load(static_cast<const T*>(p.x) + row * p.width, first, stride, vecs);
  held.Exponentiate(WarpMax(held.seen.largest));
  const float largest = held.seen.largest;
  const float sum = WarpSum(held.seen.sum);
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");

  const unsigned lane = threadIdx.x % kWarp;
  if (lane < blocks) {
    const uint32_t mine = SharedAddress(&partials[rank * warps + threadIdx.x / kWarp]);
    uint32_t other;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(other) : "r"(mine), "r"(lane));
    asm volatile("st.shared::cluster.v2.f32 [%0], {%1, %2};" ::"r"(other), "f"(largest), "f"(sum)
                 : "memory");
  }
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");

  Exponentials<float> all = Exponentials<float>::None();
  for (unsigned i = lane; i < blocks * warps; i += kWarp) {
    const Exponentials<float> partial{partials[i].x, partials[i].y};
    const float highest = fmaxf(all.largest, partial.largest);
    all = {highest, all.SumAt(highest) + partial.SumAt(highest)};
  }
  all = MergeWarp(all);
  const float share = Exp(largest - Exponentials<float>::Reference(all.largest)) / all.sum;
  held.Store(static_cast<T*>(p.y) + row * p.width, first, stride, vecs, share);
#endif
}

inline constexpr int kLoopThreads = 1024;
// Two such blocks on a multiprocessor, where it holds 2048 threads.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ != 800 && __CUDA_ARCH__ / 100 != 9 && \
    __CUDA_ARCH__ / 100 != 10
inline constexpr int kLoopBlocks = 1;
#else
inline constexpr int kLoopBlocks = 2;
#endif

template <typename T, typename A, bool kVector>
__global__ void __launch_bounds__(kLoopThreads, sizeof(A) == 4 ? kLoopBlocks : 1)
    LoopRows(const __grid_constant__ Rows p) {
  __shared__ Exponentials<A> partials[kWarp];
  constexpr int kSize = kVector ? kVecSize<T> : 1;
  const int64_t items = p.width / kSize;
  const int64_t stride = blockDim.x;
  const auto read = [](const T* from, A(&v)[kSize]) {
    if constexpr (kVector) {
      Unpack<T>(LoadVec(from), v);
    } else {
      v[0] = To<A>(*from);
    }
  };
  for (int64_t row = blockIdx.x; row < p.rows; row += gridDim.x) {
    const T* x = static_cast<const T*>(p.x) + row * p.width;
    T* y = static_cast<T*>(p.y) + row * p.width;
    Exponentials<A> seen = Exponentials<A>::None();
    int64_t i = threadIdx.x;
    for (; i + stride < items; i += 2 * stride) {  // two loads in flight
      A v[kSize], w[kSize];
      read(x + i * kSize, v);
      read(x + (i + stride) * kSize, w);
      seen.Add(v);
      seen.Add(w);
    }
    if (i < items) {
      A v[kSize];
      read(x + i * kSize, v);
      seen.Add(v);
    }
    const Exponentials<A> all =
        MergeBlock(seen, blockDim.x / kWarp, partials, [] { __syncthreads(); });
    const A reference = Exponentials<A>::Reference(all.largest);
    const A share = 1 / all.sum;
    const auto finish = [&](int64_t at, A(&v)[kSize]) {
#pragma unroll
      for (int j = 0; j < kSize; ++j) v[j] = Exp(v[j] - reference) * share;
      if constexpr (kVector) {
        StoreVec(y + at * kSize, Pack<T>(v));
      } else {
        y[at] = RoundTo<T>::Of(v[0]);
      }
    };
    // This thread's items from the last one on.
    const int64_t count = (items - threadIdx.x + stride - 1) / stride;
    i = threadIdx.x + (count - 1) * stride;
    for (; i >= stride; i -= 2 * stride) {
      A v[kSize], w[kSize];
      read(x + i * kSize, v);
      read(x + (i - stride) * kSize, w);
      finish(i, v);
      finish(i - stride, w);
    }
    if (i >= 0) {
      A v[kSize];
      read(x + i * kSize, v);
      finish(i, v);
    }
    __syncthreads();  // before the next row's partial results
  }
}

template <typename T>
__global__ void __launch_bounds__(kStreamThreads, 1)
    StreamedRows(const __grid_constant__ Rows p, int slots) {
#if __CUDA_ARCH__ >= 900
  constexpr int kSize = kVecSize<T>;
  StreamRows(
      p.x, p.rows, p.width / kSize, slots, [&](RowStream& stream, int64_t row, float2* shared) {
        T* y = static_cast<T*>(p.y) + row * p.width;
        Exponentials<float> seen = Exponentials<float>::None();
        stream.FirstPass([&](uint4 bits, uint32_t) {
          float v[kSize];
          Unpack<T>(bits, v);
          seen.Add(v);
        });
        auto* partials = reinterpret_cast<Exponentials<float>*>(shared);
        const Exponentials<float> all = MergeBlock(seen, kConsumerWarps, partials, SyncConsumers);
        const float reference = Exponentials<float>::Reference(all.largest);
        const float share = 1 / all.sum;
        stream.LastPass([&](uint4 bits, uint32_t vec) {
          float v[kSize];
          Unpack<T>(bits, v);
#pragma unroll
          for (int j = 0; j < kSize; ++j) v[j] = Exp(v[j] - reference) * share;
          StoreVecWhole(y + vec * kSize, Pack<T>(v));
        });
      });
#endif
}

template <typename T, typename A, bool kVector>
LigerStatus LaunchLoop(const Rows& p, LigerCudaStream stream) {
  const int64_t items = kVector ? p.width / kVecSize<T> : p.width;
  const int64_t threads = (items + kWarp - 1) / kWarp * kWarp;
  const int block = static_cast<int>(threads < kLoopThreads ? threads : kLoopThreads);
  return Launch(LoopRows<T, A, kVector>, {.grid = p.rows, .block = block, .stream = stream}, p);
}

template <typename T>
LigerStatus LaunchStream(const Rows& p, const Device& device, LigerCudaStream stream) {
  const int slots = StreamSlots(device);
  const int bytes = StreamBytes(slots);
  if (const LigerStatus status = AllowShared(StreamedRows<T>, bytes)) return status;
  const int64_t blocks = p.rows < device.multiprocessors ? p.rows : device.multiprocessors;
  return Launch(StreamedRows<T>,
                {.grid = blocks, .block = kStreamThreads, .shared_bytes = bytes, .stream = stream},
                p, slots);
}

template <typename T>
LigerStatus LaunchVectors(const Rows& p, LigerCudaStream stream) {
  Device device;
  if (const LigerStatus status = CurrentDevice(device)) return status;
  const int64_t vecs = p.width / kVecSize<T>;
  const auto lanes = [&](auto kernel) {
    constexpr int kRows = kLaneRowsThreads / kWarp;
    return Launch(
        kernel, {.grid = (p.rows + kRows - 1) / kRows, .block = kLaneRowsThreads, .stream = stream},
        p);
  };
  const auto block = [&](auto kernel, int64_t vecs_of_thread) {
    const int64_t threads = (vecs + vecs_of_thread - 1) / vecs_of_thread;
    return Launch(kernel,
                  {.grid = p.rows,
                   .block = static_cast<int>((threads + kWarp - 1) / kWarp * kWarp),
                   .stream = stream},
                  p);
  };
  const auto cluster = [&](auto kernel, int blocks, int threads) {
    return Launch(kernel,
                  {.grid = p.rows * blocks, .block = threads, .cluster = blocks, .stream = stream},
                  p);
  };
  const bool in_grid = p.rows <= kMaxGrid;
  if (in_grid && vecs <= 32) return lanes(LaneRows<T, 1>);
  if (in_grid && vecs <= 128) return lanes(LaneRows<T, 4>);
  if (in_grid && vecs <= 1024) return block(BlockRows<T, 2>, 2);
  // So few rows that a block a row would leave most of the device idle.
  if (device.major >= 9 && p.rows <= device.multiprocessors) {
    const bool very_few = 8 * p.rows <= device.multiprocessors;
    if (very_few && vecs <= 8 * 256 * 2) return cluster(ClusterRows<T, 2>, 8, 256);
    if (vecs <= 4 * 256 * 4) return cluster(ClusterRows<T, 4>, 4, 256);
    if (vecs <= 8 * 512 * 4) return cluster(ClusterRows<T, 4>, 8, 512);
  }
  if (in_grid && vecs <= 2048) return block(BlockRows<T, 4>, 4);
  if (FitsStream(device, vecs)) return LaunchStream<T>(p, device, stream);
  return LaunchLoop<T, float, true>(p, stream);
}

template <typename T>
LigerStatus LaunchOf(const LigerSoftmaxArgs& args, LigerCudaStream stream) {
  const Rows p = {args.x, args.y, args.rows, args.width};
  if constexpr (sizeof(T) == 8) {
    return LaunchLoop<T, double, false>(p, stream);
  } else {
    if (args.stash_type == LIGER_F64) return LaunchLoop<T, double, false>(p, stream);
    const bool vectors = args.width % kVecSize<T> == 0 && AreAligned(args.x, args.y);
    return vectors ? LaunchVectors<T>(p, stream) : LaunchLoop<T, float, false>(p, stream);
  }
}

}  // namespace
}  // namespace liger::cuda

LigerStatus LigerCudaSoftmax(const LigerSoftmaxArgs* args, LigerCudaStream stream) {
  using namespace liger::cuda;
  if (const LigerStatus status = liger::Check(*args)) return status;
  if (args->rows == 0 || args->width == 0) return LIGER_OK;
  switch (args->dtype) {
    case LIGER_F16:
      return LaunchOf<F16>(*args, stream);
    case LIGER_BF16:
      return LaunchOf<BF16>(*args, stream);
    case LIGER_F64:
      return LaunchOf<F64>(*args, stream);
    default:
      return LaunchOf<F32>(*args, stream);
  }
}
