// The loops of the gated activations: y = activation(gate, up), element by element, with gate and
// up in any packing.
//
//   return LaunchGated<T>(args, SwiGluOf<T, float>{...}, stream);
//
// An activation is a device function (A gate, A up) -> A, handed to the kernel by value. A thread
// computes one vector and stops: many small blocks keep more memory traffic in flight than a loop
// does. Little work is cut into vectors of 8 bytes, so that it is spread over more multiprocessors.
// Bytes moved: gate, up and y once.
#pragma once

#include <cuda_runtime.h>

#include "launch.h"
#include "liger/packing.h"
#include "vec.cuh"

namespace liger::cuda {

// How a launch finds gate and up of an element.
struct GatedData {
  const void* gate;  // [rows, width] of T; packed: [rows, 2 * width]
  const void* up;    // as gate, unless packed
  void* y;           // [rows, width] of T
  int64_t size;      // rows * width
  int64_t width;
};

enum class Packing { kSeparate, kGateUp, kUpGate, kInterleaved };

// kWords words of 32 bits, loaded at once.
template <int kWords>
struct alignas(4 * kWords) Words {
  uint32_t word[kWords];

  __device__ __forceinline__ static Words Load(const void* p) {
    Words w;
    if constexpr (kWords == 4) {
      *reinterpret_cast<uint4*>(w.word) = *static_cast<const uint4*>(p);
    } else {
      *reinterpret_cast<uint2*>(w.word) = *static_cast<const uint2*>(p);
    }
    return w;
  }

  __device__ __forceinline__ void Store(void* p) const {
    if constexpr (kWords == 4) {
      *static_cast<uint4*>(p) = *reinterpret_cast<const uint4*>(word);
    } else {
      *static_cast<uint2*>(p) = *reinterpret_cast<const uint2*>(word);
    }
  }

  template <typename T>
  __device__ __forceinline__ void Unpack(float (&v)[kWords * 4 / sizeof(T)]) const {
#pragma unroll
    for (int i = 0; i < kWords; ++i) {
      if constexpr (sizeof(T) == 2) {
        const float2 pair = UnpackPair<T>(word[i]);
        v[2 * i] = pair.x;
        v[2 * i + 1] = pair.y;
      } else {
        v[i] = __uint_as_float(word[i]);
      }
    }
  }

  template <typename T>
  __device__ __forceinline__ static Words Pack(const float (&v)[kWords * 4 / sizeof(T)]) {
    Words w;
#pragma unroll
    for (int i = 0; i < kWords; ++i) {
      if constexpr (sizeof(T) == 2) {
        w.word[i] = PackPair<T>(v[2 * i], v[2 * i + 1]);
      } else {
        w.word[i] = __float_as_uint(v[i]);
      }
    }
    return w;
  }
};

// Where the halves of packed rows put element `i` of y. Division in 32 bits is several times faster.
__device__ __forceinline__ int64_t PackedIndex(int64_t i, int64_t width) {
  const bool is_small = i <= 0xffffffff && width <= 0xffffffff;
  const int64_t row =
      is_small ? static_cast<int64_t>(static_cast<uint32_t>(i) / static_cast<uint32_t>(width))
               : i / width;
  return i + row * width;
}

// Widths are whole vectors and pointers aligned to them.
template <typename T, Packing kPacking, int kWords, typename Activation>
__global__ void __launch_bounds__(256)
    GatedVectors(const __grid_constant__ GatedData data, const __grid_constant__ Activation apply) {
  constexpr int kSize = kWords * 4 / static_cast<int>(sizeof(T));
  const int64_t i = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * kSize;
  if (i >= data.size) return;
  const T* gate = static_cast<const T*>(data.gate);
  float g[kSize], u[kSize];
  if constexpr (kPacking == Packing::kInterleaved) {
    float low[kSize], high[kSize];
    Words<kWords>::Load(gate + 2 * i).template Unpack<T>(low);
    Words<kWords>::Load(gate + 2 * i + kSize).template Unpack<T>(high);
#pragma unroll
    for (int j = 0; j < kSize / 2; ++j) {
      g[j] = low[2 * j];
      u[j] = low[2 * j + 1];
      g[kSize / 2 + j] = high[2 * j];
      u[kSize / 2 + j] = high[2 * j + 1];
    }
  } else {
    const T* first = gate + i;
    const T* second = static_cast<const T*>(data.up) + i;
    if constexpr (kPacking != Packing::kSeparate) {
      first = gate + PackedIndex(i, data.width);
      second = first + data.width;
    }
    const Words<kWords> a = Words<kWords>::Load(first);
    const Words<kWords> b = Words<kWords>::Load(second);
    (kPacking == Packing::kUpGate ? b : a).template Unpack<T>(g);
    (kPacking == Packing::kUpGate ? a : b).template Unpack<T>(u);
  }
#pragma unroll
  for (int j = 0; j < kSize; ++j) g[j] = apply(g[j], u[j]);
  Words<kWords>::template Pack<T>(g).Store(static_cast<T*>(data.y) + i);
}

// Any width, alignment and dtype.
template <typename T, typename A, typename Activation>
__global__ void __launch_bounds__(256)
    GatedElements(const __grid_constant__ GatedData data, Packing packing,
                  const __grid_constant__ Activation apply) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= data.size) return;
  const T* first = static_cast<const T*>(data.gate) + i;
  const T* second = static_cast<const T*>(data.up) + i;
  if (packing == Packing::kInterleaved) {
    first = static_cast<const T*>(data.gate) + 2 * i;
    second = first + 1;
  } else if (packing != Packing::kSeparate) {
    first = static_cast<const T*>(data.gate) + PackedIndex(i, data.width);
    second = first + data.width;
  }
  const A a = To<A>(*first), b = To<A>(*second);
  const A y = packing == Packing::kUpGate ? apply(b, a) : apply(a, b);
  static_cast<T*>(data.y)[i] = RoundTo<T>::Of(y);
}

template <typename Args>
GatedData DataOf(const Args& args) {
  return {args.gate, args.up, args.y, args.rows * args.width, args.width};
}

template <typename Args>
Packing PackingOf(const Args& args) {
  switch (args.packed) {
    case LIGER_GATE_UP:
      return Packing::kGateUp;
    case LIGER_UP_GATE:
      return Packing::kUpGate;
    case LIGER_INTERLEAVED:
      return Packing::kInterleaved;
    default:
      return Packing::kSeparate;
  }
}

// Element by element.
template <typename T, typename A, typename Args, typename Activation>
LigerStatus LaunchGatedElements(const Args& args, const Activation& apply, LigerCudaStream stream) {
  const GatedData data = DataOf(args);
  constexpr int kThreads = 256;
  return Launch(
      GatedElements<T, A, Activation>,
      {.grid = (data.size + kThreads - 1) / kThreads, .block = kThreads, .stream = stream}, data,
      PackingOf(args), apply);
}

// Vector by vector where the data allow it. T is no f64.
template <typename T, typename Args, typename Activation>
LigerStatus LaunchGated(const Args& args, const Activation& apply, LigerCudaStream stream) {
  const GatedData data = DataOf(args);
  if (args.width % kVecSize<T> != 0 || !AreAligned(data.gate, data.up, data.y)) {
    return LaunchGatedElements<T, float>(args, apply, stream);
  }
  const auto launch = [&](auto kernel, int elements, int block) {
    const int64_t threads = data.size / elements;
    return Launch(kernel, {.grid = (threads + block - 1) / block, .block = block, .stream = stream},
                  data, apply);
  };
  constexpr int kSize = kVecSize<T>;
  switch (PackingOf(args)) {
    case Packing::kGateUp:
      return launch(GatedVectors<T, Packing::kGateUp, 4, Activation>, kSize, 256);
    case Packing::kUpGate:
      return launch(GatedVectors<T, Packing::kUpGate, 4, Activation>, kSize, 256);
    case Packing::kInterleaved:
      return launch(GatedVectors<T, Packing::kInterleaved, 4, Activation>, kSize, 256);
    case Packing::kSeparate:
      break;
  }
  Device device;
  if (const LigerStatus status = CurrentDevice(device)) return status;
  // Threads that the device runs at once.
  const int64_t resident =
      static_cast<int64_t>(device.multiprocessors) * device.threads_of_multiprocessor;
  const int64_t halves = data.size / (kSize / 2);
  if (halves > resident) {
    return launch(GatedVectors<T, Packing::kSeparate, 4, Activation>, kSize, 256);
  }
  return launch(GatedVectors<T, Packing::kSeparate, 2, Activation>, kSize / 2,
                4 * halves > resident ? 256 : 128);
}

// --- Pieces of the activations -------------------------------------------------------------------

// 2^x by one instruction, within 2 ulp, down to the smallest numbers.
__device__ __forceinline__ float ExpOfTwo(float x) {
  float result;
  asm("ex2.approx.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

// Of the exponential of -|x|, which does not overflow, so that the sigmoid of a very negative x is
// small and not 0. Half types: by approximate instructions, whose errors of 2 ulp of f32 do not
// show. f32 and f64: within an ulp or two.
template <typename T>
__device__ __forceinline__ float Sigmoid(float x) {
  float e, share;
  if constexpr (sizeof(T) == 2) {
    e = ExpOfTwo(fabsf(x) * -1.4426950408889634f);
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(share) : "f"(1 + e));
  } else {
    e = expf(-fabsf(x));
    share = 1 / (1 + e);
  }
  return x < 0 ? e * share : share;
}
template <typename T>
__device__ __forceinline__ double Sigmoid(double x) {
  const double e = exp(-fabs(x));
  return (x < 0 ? e : 1) / (1 + e);
}

// NaN passes through.
template <typename A>
__device__ __forceinline__ A AtMost(A x, A limit) {
  return x > limit ? limit : x;
}
template <typename A>
__device__ __forceinline__ A AtLeast(A x, A limit) {
  return x < limit ? limit : x;
}

// An `x` to be rounded to T before it is used, where the graph does so.
template <typename T, typename A>
__device__ __forceinline__ A RoundedIf(bool round, A x) {
  return round ? Rounded<T>(x) : x;
}

}  // namespace liger::cuda
