// RMSNorm and LayerNorm over rows, alone or behind a residual addition: one family of kernels.
//
//   s = x + residual, rounded to T;  n = s * rstd  or  (s - mean) * rstd;  y = n * scale + bias
//
// A row is read once, held packed in registers, reduced, and written; so the bytes moved are x,
// residual, y and sum once, scale and bias once a multiprocessor. Three kernels, by width:
//
//   LaneRows   8 to 32 neighbouring lanes hold a row, several rows a block: no barrier
//   BlockRows  a block holds a row, 1 to 4 vectors of 16 bytes a thread: one barrier
//   LoopRows   any width, alignment, dtype and rounding: a block reads its row again for each pass,
//              which finds it in cache
//
// What limits them is the memory traffic in flight: two to four vectors a thread in small blocks
// keep enough of it, and registers are capped so that a multiprocessor stays full of threads.
//
// How mean and variance are taken: scaled.cuh.
#pragma once

#include <cuda_runtime.h>

#include "launch.h"
#include "reduce.cuh"
#include "scaled.cuh"
#include "vec.cuh"

namespace liger::cuda {

enum class Norm { kRms, kLayer };

// The ways of a kernel. Nearly every model takes one of the first two: scale, and bias, are there and
// of T, the offset is 0, and each thread holds the same number of vectors; product and sum are rounded
// to T, pair by pair, or formed in f32.
enum class Way : int32_t { kPairs, kFloats, kGeneral };

// What a launch hands to a kernel.
struct RowNorm {
  const void* x;         // [rows, hidden_size] of T
  const void* residual;  // as x, or null
  const void* scale;     // [hidden_size] of T or f32, or null for ones
  const void* bias;      // as scale, or null for zeros
  void* y;               // as x
  void* sum;             // as x, or null
  int64_t rows;
  int64_t hidden_size;
  float inverse;  // of hidden_size
  float epsilon;
  float offset;  // of the scale, rounded to the scale type; RMSNorm only
  Rounding rounding;
  bool scale_is_f32;
};

// s at the start of a row.
template <typename T, typename A>
__device__ __forceinline__ A FirstOf(const T* x, const T* residual) {
  const A value = To<A>(*x);
  return residual == nullptr ? value : Rounded<T>(value + To<A>(*residual));
}

// The vectors of a row that one thread holds: those at first, first + stride, ...
// kStreams: there is far more data than the second-level cache holds, and none is read again soon.
template <typename T, Norm kNorm, bool kAdd, bool kEarly, int kVecs, Way kWay, bool kStreams>
struct Part {
  static constexpr int kSize = kVecSize<T>;

  const RowNorm& p;
  int size;        // of the row
  int first;       // column of this thread's first vector
  int stride;      // columns from one vector to the next
  int64_t offset;  // of the row

  uint4 s[kVecs];
  uint4 scale[kEarly ? kVecs : 1];
  uint4 bias[kEarly && kNorm == Norm::kLayer ? kVecs : 1];
  float shift = 0;

  __device__ Part(const RowNorm& p_in, int64_t row, int first_vec, int vec_stride)
      : p(p_in),
        size(static_cast<int>(p_in.hidden_size)),
        first(first_vec * kSize),
        stride(vec_stride * kSize),
        offset(row * p_in.hidden_size) {}

  __device__ __forceinline__ int Column(int i) const { return first + i * stride; }
  // Rows that fill all vectors need no test.
  __device__ __forceinline__ bool Exists(int i) const {
    return kWay != Way::kGeneral || Column(i) < size;
  }

  // There is no such row; kGeneral only.
  __device__ __forceinline__ void Leave() { size = 0; }

  __device__ __forceinline__ void Load() {
    const T* x = static_cast<const T*>(p.x) + offset;
    const T* residual = static_cast<const T*>(p.residual) + offset;
    uint4 r[kAdd ? kVecs : 1];
    const auto load = [](const T* from) {
      return kStreams ? LoadVecStreaming(from) : LoadVec(from);
    };
#pragma unroll
    for (int i = 0; i < kVecs; ++i) {
      if (!Exists(i)) continue;
      s[i] = load(x + Column(i));
      if constexpr (kAdd) r[i] = load(residual + Column(i));
    }
    if constexpr (kNorm == Norm::kLayer) {
      if (kWay != Way::kGeneral || size > 0)
        shift = FirstOf<T, float>(x, kAdd ? residual : nullptr);
    }
    if constexpr (kEarly) {
      if (kWay != Way::kGeneral || sizeof(T) == 4 || !p.scale_is_f32) {
        if (kWay != Way::kGeneral || p.scale != nullptr) LoadEarly(p.scale, scale);
        if constexpr (kNorm == Norm::kLayer) {
          if (kWay != Way::kGeneral || p.bias != nullptr) LoadEarly(p.bias, bias);
        }
      }
    }
    if constexpr (kAdd) {
#pragma unroll
      for (int i = 0; i < kVecs; ++i) {
        float a[kSize], b[kSize];
        Unpack<T>(s[i], a);
        Unpack<T>(r[i], b);
#pragma unroll
        for (int j = 0; j < kSize; ++j) a[j] += b[j];
        s[i] = Pack<T>(a);
      }
    }
  }

  template <int kCount>
  __device__ __forceinline__ void LoadEarly(const void* row, uint4 (&to)[kCount]) const {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      if (Exists(i)) to[i] = LoadVec(static_cast<const T*>(row) + Column(i));
    }
  }

  // Calls body(value) for each element, less the shift (LayerNorm).
  template <typename Body>
  __device__ __forceinline__ void ForEach(Body body) const {
#pragma unroll
    for (int i = 0; i < kVecs; ++i) {
      if (Exists(i)) {
        float v[kSize];
        Unpack<T>(s[i], v);
#pragma unroll
        for (int j = 0; j < kSize; ++j) body(kNorm == Norm::kLayer ? v[j] - shift : v[j]);
      }
    }
  }

  __device__ __forceinline__ float Sum() const {
    float sum = 0;
    ForEach([&](float v) { sum += v; });
    return sum;
  }

  __device__ __forceinline__ float Squares() const {
    float sum = 0;
    ForEach([&](float v) { sum = fmaf(v, v, sum); });
    return sum;
  }

  // Sum and sum of squares in one pass.
  __device__ __forceinline__ float2 Sums() const {
    float2 sums = {0, 0};
    ForEach([&](float v) {
      sums.x += v;
      sums.y = fmaf(v, v, sums.y);
    });
    return sums;
  }

  // From here on the elements are unpacked anew: they do not wait in registers, twice as wide.
  __device__ __forceinline__ void Forget() {
#pragma unroll
    for (int i = 0; i < kVecs; ++i) {
      asm volatile("" : "+r"(s[i].x), "+r"(s[i].y), "+r"(s[i].z), "+r"(s[i].w));
    }
  }

  // The scale or the bias at a column, which is there and of T.
  __device__ __forceinline__ uint4 Packed(const void* row, const uint4& early, int column) const {
    return kEarly ? early : LoadVec(static_cast<const T*>(row) + column);
  }

  // The scale or the bias at a column, as f32.
  __device__ __forceinline__ void Parameter(const void* row, const uint4& early, int column,
                                            float absent, float (&v)[kSize]) const {
    if (row == nullptr) {
#pragma unroll
      for (int j = 0; j < kSize; ++j) v[j] = absent;
    } else if (sizeof(T) == 2 && p.scale_is_f32) {
      const float* from = static_cast<const float*>(row) + column;
#pragma unroll
      for (int j = 0; j < kSize; j += 4) {
        const uint4 bits = LoadVec(from + j);
        v[j] = __uint_as_float(bits.x);
        v[j + 1] = __uint_as_float(bits.y);
        v[j + 2] = __uint_as_float(bits.z);
        v[j + 3] = __uint_as_float(bits.w);
      }
    } else {
      Unpack<T>(Packed(row, early, column), v);
    }
  }

  // The same, rounded to T.
  __device__ __forceinline__ uint4 RoundedParameter(const void* row, const uint4& early, int column,
                                                    float absent) const {
    if (row != nullptr && !p.scale_is_f32) {
      return Packed(row, early, column);
    }
    float v[kSize];
    Parameter(row, early, column, absent, v);
    return Pack<T>(v);
  }

  // y at a column, from n.
  __device__ __forceinline__ uint4 Scale(const float (&n)[kSize], int i, int column) const {
    const uint4& w_early = scale[kEarly ? i : 0];
    const uint4& b_early = bias[kEarly && kNorm == Norm::kLayer ? i : 0];
    if constexpr (sizeof(T) == 2) {
      if (kWay == Way::kPairs || (kWay == Way::kGeneral && p.rounding == Rounding::kStorage)) {
        const auto times = [](auto a, auto b) { return Times(a, b); };
        const auto plus = [](auto a, auto b) { return Plus(a, b); };
        uint4 w = kWay == Way::kPairs ? Packed(p.scale, w_early, column)
                                      : RoundedParameter(p.scale, w_early, column, 1);
        if (kNorm == Norm::kRms && kWay == Way::kGeneral) {
          const uint32_t pair = PackPair<T>(p.offset, p.offset);
          w = OnPairs<T>(w, {pair, pair, pair, pair}, plus);
        }
        const uint4 y = OnPairs<T>(Pack<T>(n), w, times);
        if constexpr (kNorm == Norm::kRms) return y;
        return OnPairs<T>(y,
                          kWay == Way::kPairs ? Packed(p.bias, b_early, column)
                                              : RoundedParameter(p.bias, b_early, column, 0),
                          plus);
      }
    }
    float w[kSize], b[kSize], y[kSize];
    if constexpr (kWay == Way::kFloats) {
      Unpack<T>(Packed(p.scale, w_early, column), w);
      if constexpr (kNorm == Norm::kLayer) Unpack<T>(Packed(p.bias, b_early, column), b);
    } else {
      Parameter(p.scale, w_early, column, 1, w);
      if constexpr (kNorm == Norm::kLayer) Parameter(p.bias, b_early, column, 0, b);
    }
#pragma unroll
    for (int j = 0; j < kSize; ++j) {
      if constexpr (kNorm == Norm::kLayer) {
        y[j] = Plus(Times(n[j], w[j]), b[j]);
      } else {
        y[j] = Times(n[j], kWay == Way::kGeneral ? Plus(w[j], p.offset) : w[j]);
      }
    }
    return Pack<T>(y);
  }

  __device__ __forceinline__ void Store(float mean, float rstd) {
    Forget();
    T* y = static_cast<T*>(p.y) + offset;
    T* sum = static_cast<T*>(p.sum) + offset;
    const float middle = -mean * rstd;
#pragma unroll
    for (int i = 0; i < kVecs; ++i) {
      const int column = Column(i);
      if (!Exists(i)) continue;
      float v[kSize];
      Unpack<T>(s[i], v);
#pragma unroll
      for (int j = 0; j < kSize; ++j) {
        v[j] = kNorm == Norm::kLayer ? fmaf(v[j] - shift, rstd, middle) : v[j] * rstd;
      }
      const uint4 result = Scale(v, i, column);
      const auto store = [](T* to, uint4 bits) {
        if constexpr (kStreams) {
          StoreVecStreaming(to, bits);
        } else {
          StoreVec(to, bits);
        }
      };
      store(y + column, result);
      if (kAdd && p.sum != nullptr) store(sum + column, s[i]);
    }
  }
};

inline constexpr int kLaneRowsThreads = 256;

// kLaneRowsThreads / kLanes rows a block.
template <typename T, Norm kNorm, bool kAdd, int kLanes, int kVecs, Way kWay>
__global__ void __launch_bounds__(kLaneRowsThreads, kVecs == 1 && kNorm == Norm::kRms ? 6 : 1)
    LaneRows(const __grid_constant__ RowNorm p) {
  constexpr int kRows = kLaneRowsThreads / kLanes;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kRows + threadIdx.x / kLanes;
  Part<T, kNorm, kAdd, false, kVecs, kWay, false> part(
      p, row, static_cast<int>(threadIdx.x) % kLanes, kLanes);
  if (kWay == Way::kGeneral && row >= p.rows) part.Leave();
  part.Load();
  if constexpr (kNorm == Norm::kRms) {
    const float squares = WarpSum<kLanes>(part.Squares());
    part.Store(0, InverseRoot(squares * p.inverse + p.epsilon));
  } else {
    part.shift += WarpSum<kLanes>(part.Sum()) * p.inverse;
    const float2 sums = part.Sums();
    const float mean = WarpSum<kLanes>(sums.x) * p.inverse;
    const float variance = WarpSum<kLanes>(sums.y) * p.inverse - mean * mean;
    part.Store(mean, InverseRoot(fmaxf(variance, 0.0f) + p.epsilon));
  }
}

// Threads of a block at most, and blocks that shall fit on a multiprocessor at least: that caps the
// registers of the kernels for many rows, at 40, at 48 or 64 where a thread holds more.
inline constexpr int BlockThreads(int vecs) { return vecs == 4 ? 1024 : 512; }
inline constexpr int MinBlocks(Norm norm, bool add, bool early, int vecs) {
  if (early || vecs == 4) return 1;
  return norm == Norm::kLayer && vecs == 2 ? 2 : 3;
}

// A row a block.
template <typename T, Norm kNorm, bool kAdd, bool kEarly, int kVecs, Way kWay, bool kStreams>
__global__ void __launch_bounds__(BlockThreads(kVecs), MinBlocks(kNorm, kAdd, kEarly, kVecs))
    BlockRows(const __grid_constant__ RowNorm p) {
  __shared__ float2 partials[kWarp];
  const int64_t row = blockIdx.x;
  Part<T, kNorm, kAdd, kEarly, kVecs, kWay, kStreams> part(p, row, static_cast<int>(threadIdx.x),
                                                           static_cast<int>(blockDim.x));
  part.Load();
  if constexpr (kNorm == Norm::kRms) {
    const float squares = BlockSum(part.Squares(), &partials[0].x);
    part.Store(0, InverseRoot(squares * p.inverse + p.epsilon));
  } else {
    float2 sums = BlockSum(part.Sums(), partials);
    float mean = sums.x * p.inverse;
    float variance = sums.y * p.inverse - mean * mean;
    if (mean * mean > kMaxShift * variance) {  // in all threads or in none
      part.shift += mean;
      __syncthreads();
      sums = BlockSum(part.Sums(), partials);
      mean = sums.x * p.inverse;
      variance = fmaxf(sums.y * p.inverse - mean * mean, 0.0f);
    }
    part.Store(mean, InverseRoot(variance + p.epsilon));
  }
}

inline constexpr int kLoopThreads = 1024;

// A row a block, any width. With kVector T's vectors of 16 bytes, else element by element. The sum
// waits in its own place, or in y, for the later passes; each thread reads back what it wrote.
template <typename T, typename A, Norm kNorm, bool kVector>
__global__ void __launch_bounds__(kLoopThreads) LoopRows(const __grid_constant__ RowNorm p) {
  __shared__ A partials[3][kWarp];
  constexpr int kSize = kVector ? kVecSize<T> : 1;
  const int64_t size = p.hidden_size;
  const int64_t first = static_cast<int64_t>(threadIdx.x) * kSize;
  const int64_t stride = static_cast<int64_t>(blockDim.x) * kSize;
  const auto read = [](const T* from, A(&v)[kSize]) {
    if constexpr (kVector) {
      Unpack<T>(LoadVec(from), v);
    } else {
      v[0] = To<A>(*from);
    }
  };
  const auto write = [](T* to, const A(&v)[kSize]) {
    if constexpr (kVector) {
      StoreVec(to, Pack<T>(v));
    } else {
      *to = RoundTo<T>::Of(v[0]);
    }
  };
  const auto parameter = [&](const void* row, int64_t i, A absent) {
    if (row == nullptr) return absent;
    return p.scale_is_f32 ? To<A>(static_cast<const float*>(row)[i])
                          : To<A>(static_cast<const T*>(row)[i]);
  };
  const auto round = [&](A v) {
    return p.rounding == Rounding::kStorage ? Rounded<T>(v) : RoundAtRunTime(v, p.rounding);
  };

  for (int64_t row = blockIdx.x; row < p.rows; row += gridDim.x) {
    const T* x = static_cast<const T*>(p.x) + row * size;
    const T* residual =
        p.residual == nullptr ? nullptr : static_cast<const T*>(p.residual) + row * size;
    T* y = static_cast<T*>(p.y) + row * size;
    T* sum = p.sum == nullptr ? y : static_cast<T*>(p.sum) + row * size;
    const T* s = residual == nullptr ? x : sum;
    A shift = kNorm == Norm::kLayer ? FirstOf<T, A>(x, residual) : A(0);
    if (kNorm == Norm::kLayer && residual != nullptr)
      __syncthreads();  // before s is written over x

    Compensated<A> sum_of;  // the elements less the shift, or the squares
    for (int64_t i = first; i < size; i += stride) {
      A v[kSize];
      read(x + i, v);
      if (residual != nullptr) {
        A r[kSize];
        read(residual + i, r);
        for (int j = 0; j < kSize; ++j) v[j] = Rounded<T>(v[j] + r[j]);
        write(sum + i, v);
      }
      A some = 0;
      for (int j = 0; j < kSize; ++j) {
        some += kNorm == Norm::kLayer ? v[j] - shift : v[j] * v[j];
      }
      sum_of.Add(some);
    }
    const A total = BlockSum(sum_of.sum, partials[0]) / static_cast<A>(size);

    A mean = 0;
    A variance = total;
    if constexpr (kNorm == Norm::kLayer) {
      // Again, with the mean as shift.
      shift += total;
      Compensated<A> rest, squares;
      for (int64_t i = first; i < size; i += stride) {
        A v[kSize];
        read(s + i, v);
        A some = 0, some_squares = 0;
        for (int j = 0; j < kSize; ++j) {
          const A d = v[j] - shift;
          some += d;
          some_squares += d * d;
        }
        rest.Add(some);
        squares.Add(some_squares);
      }
      mean = BlockSum(rest.sum, partials[1]) / static_cast<A>(size);
      variance = BlockSum(squares.sum, partials[2]) / static_cast<A>(size) - mean * mean;
    }
    const A rstd = InverseRoot(variance + static_cast<A>(p.epsilon));

    for (int64_t i = first; i < size; i += stride) {
      A v[kSize];
      read(s + i, v);
      for (int j = 0; j < kSize; ++j) {
        const A n = kNorm == Norm::kLayer ? (v[j] - shift - mean) * rstd : v[j] * rstd;
        const A w = parameter(p.scale, i + j, A(1));
        if constexpr (kNorm == Norm::kRms) {
          v[j] = Scaled(n, w, static_cast<A>(p.offset), round);
        } else {
          v[j] = ScaledAndShifted(n, w, parameter(p.bias, i + j, A(0)), round);
        }
      }
      write(y + i, v);
    }
    __syncthreads();  // before the next row's partial sums, and its shift where y is x
  }
}

// The kernel for a row of `vecs` vectors, which fits into registers.
template <typename T, Norm kNorm, bool kAdd>
class HeldLauncher {
 public:
  HeldLauncher(const RowNorm& p, const Device& device, LigerCudaStream stream)
      : p_(p), device_(device), stream_(stream), vecs_(p.hidden_size / kVecSize<T>) {}

  LigerStatus Launch() const {
    // Few rows are a matter of latency: scale and bias then come with x, and a row is spread over a
    // block. Many rows need the registers for more threads, and find scale and bias in cache.
    const bool few = p_.rows <= 2 * device_.multiprocessors;
    if constexpr (!kAdd) {
      if (vecs_ <= 8) return Lanes<8, 1>();
      if (vecs_ <= 16) return Lanes<16, 1>();
    }
    if (vecs_ <= 32) return Lanes<32, 1>();
    if (!few && vecs_ <= 128) return Lanes<32, 4>();
    if constexpr (kNorm == Norm::kRms) {
      if constexpr (kAdd) {
        if (vecs_ <= 256) return Block<true, 1>();
      }
      return vecs_ <= 512 ? Block<true, 2>() : Block<true, 4>();
    } else {
      if (few && vecs_ <= 1024) return Block<true, 2>();
      if constexpr (kAdd) {
        if (vecs_ <= 1024) return Block<false, 2>();
      }
      return Block<false, 4>();
    }
  }

 private:
  // `slots`: vectors that a row's threads can hold together.
  Way WayFor(int64_t slots) const {
    const bool is_plain = p_.scale != nullptr && (kNorm == Norm::kRms || p_.bias != nullptr) &&
                          p_.offset == 0 && p_.scale_is_f32 == (sizeof(T) == 4) && slots == vecs_;
    return !is_plain ? Way::kGeneral : p_.rounding == Rounding::kNone ? Way::kFloats : Way::kPairs;
  }

  template <int kLanes, int kVecs>
  LigerStatus Lanes() const {
    constexpr int kRows = kLaneRowsThreads / kLanes;
    const auto launch = [&](auto kernel) {
      return cuda::Launch(
          kernel,
          {.grid = (p_.rows + kRows - 1) / kRows, .block = kLaneRowsThreads, .stream = stream_},
          p_);
    };
    switch (p_.rows % kRows == 0 ? WayFor(kLanes * kVecs) : Way::kGeneral) {
      case Way::kPairs:
        return launch(LaneRows<T, kNorm, kAdd, kLanes, kVecs, Way::kPairs>);
      case Way::kFloats:
        return launch(LaneRows<T, kNorm, kAdd, kLanes, kVecs, Way::kFloats>);
      default:
        return launch(LaneRows<T, kNorm, kAdd, kLanes, kVecs, Way::kGeneral>);
    }
  }

  template <bool kEarly, int kVecs>
  LigerStatus Block() const {
    const int64_t threads = (vecs_ + kVecs - 1) / kVecs;
    const int block = static_cast<int>((threads + kWarp - 1) / kWarp * kWarp);
    const auto launch = [&](auto kernel) {
      return cuda::Launch(kernel, {.grid = p_.rows, .block = block, .stream = stream_}, p_);
    };
    const Way way = WayFor(static_cast<int64_t>(block) * kVecs);
    // Hints gain where four tensors are moved, and cost where two are.
    if constexpr (kAdd) {
      constexpr int64_t kCacheBytes = int64_t{64} << 20;
      const int64_t bytes = p_.rows * p_.hidden_size * static_cast<int64_t>(sizeof(T));
      if (way == Way::kPairs && bytes > kCacheBytes) {
        return launch(BlockRows<T, kNorm, kAdd, kEarly, kVecs, Way::kPairs, true>);
      }
      if (way == Way::kFloats && bytes > kCacheBytes) {
        return launch(BlockRows<T, kNorm, kAdd, kEarly, kVecs, Way::kFloats, true>);
      }
    }
    switch (way) {
      case Way::kPairs:
        return launch(BlockRows<T, kNorm, kAdd, kEarly, kVecs, Way::kPairs, false>);
      case Way::kFloats:
        return launch(BlockRows<T, kNorm, kAdd, kEarly, kVecs, Way::kFloats, false>);
      default:
        return launch(BlockRows<T, kNorm, kAdd, kEarly, kVecs, Way::kGeneral, false>);
    }
  }

  const RowNorm& p_;
  const Device& device_;
  LigerCudaStream stream_;
  int64_t vecs_;
};

template <typename T, typename A, Norm kNorm, bool kVector>
LigerStatus LaunchLoop(const RowNorm& p, LigerCudaStream stream) {
  const int64_t items = kVector ? p.hidden_size / kVecSize<T> : p.hidden_size;
  const int64_t threads = (items + kWarp - 1) / kWarp * kWarp;
  const int block = static_cast<int>(threads < kLoopThreads ? threads : kLoopThreads);
  return Launch(LoopRows<T, A, kNorm, kVector>, {.grid = p.rows, .block = block, .stream = stream},
                p);
}

// The widest row that BlockRows holds.
template <typename T>
inline constexpr int64_t kMaxHeld = 4 * BlockThreads(4) * kVecSize<T>;

template <typename T, Norm kNorm>
LigerStatus LaunchRowNorm(RowNorm p, bool in_f64, LigerCudaStream stream) {
  if constexpr (sizeof(T) == 8) {
    return LaunchLoop<T, double, kNorm, false>(p, stream);
  } else {
    if (in_f64) return LaunchLoop<T, double, kNorm, false>(p, stream);
    const bool vectors = p.hidden_size % kVecSize<T> == 0 &&
                         AreAligned(p.x, p.residual, p.scale, p.bias, p.y, p.sum);
    if (!vectors) return LaunchLoop<T, float, kNorm, false>(p, stream);
    const bool held = p.hidden_size <= kMaxHeld<T> && p.rows <= kMaxGrid &&
                      (p.rounding == Rounding::kNone || p.rounding == Rounding::kStorage);
    if (!held) return LaunchLoop<T, float, kNorm, true>(p, stream);
    Device device;
    if (const LigerStatus status = CurrentDevice(device)) return status;
    return p.residual == nullptr ? HeldLauncher<T, kNorm, false>(p, device, stream).Launch()
                                 : HeldLauncher<T, kNorm, true>(p, device, stream).Launch();
  }
}

// `args`: LigerRmsNormArgs or LigerLayerNormArgs. What they share.
template <typename Args>
RowNorm ToRowNorm(const Args& args) {
  RowNorm p = {};
  p.x = args.x;
  p.residual = args.residual;
  p.scale = args.scale;
  p.y = args.y;
  p.sum = args.sum;
  p.rows = args.rows;
  p.hidden_size = args.hidden_size;
  p.inverse = static_cast<float>(1 / static_cast<double>(args.hidden_size));
  p.epsilon = args.epsilon;
  p.scale_is_f32 = args.scale_dtype == LIGER_F32;
  return p;
}

template <Norm kNorm, typename Args>
LigerStatus DispatchRowNorm(const Args& args, RowNorm p, LigerCudaStream stream) {
  if (args.rows == 0 || args.hidden_size == 0) return LIGER_OK;
  const bool in_f64 = IsInF64(args);
  p.rounding = RoundingOf(args);
  switch (args.dtype) {
    case LIGER_F16:
      return LaunchRowNorm<F16, kNorm>(p, in_f64, stream);
    case LIGER_BF16:
      return LaunchRowNorm<BF16, kNorm>(p, in_f64, stream);
    case LIGER_F64:
      return LaunchRowNorm<F64, kNorm>(p, in_f64, stream);
    default:
      return LaunchRowNorm<F32, kNorm>(p, in_f64, stream);
  }
}

}  // namespace liger::cuda
