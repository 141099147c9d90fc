// Elements and 16-byte vectors: types, conversion to the arithmetic's type, loads and stores.
//
//   float v[kVecSize<T>];
//   Unpack<T>(LoadVec(x + i), v);
//   StoreVec(y + i, Pack<T>(v));
//
// A vector stays packed as uint4 while it waits, so that a half type costs half the registers.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <stdint.h>

#include "liger/types.h"

namespace liger::cuda {

using F32 = float;
using F64 = double;
using F16 = __half;
using BF16 = __nv_bfloat16;

template <typename T>
inline constexpr int kVecSize = 16 / static_cast<int>(sizeof(T));

// Arithmetic for elements of T: f32, f64 for f64.
template <typename T>
struct ArithmeticOf {
  using Type = float;
};
template <>
struct ArithmeticOf<double> {
  using Type = double;
};

template <typename A>
__device__ __forceinline__ A To(float value) {
  return value;
}
template <typename A>
__device__ __forceinline__ A To(double value) {
  return static_cast<A>(value);
}
template <typename A>
__device__ __forceinline__ A To(F16 value) {
  return __half2float(value);
}
template <typename A>
__device__ __forceinline__ A To(BF16 value) {
  return __bfloat162float(value);
}

// One rounding, to the nearest even.
template <typename T>
struct RoundTo;
template <>
struct RoundTo<F32> {
  __device__ __forceinline__ static F32 Of(float v) { return v; }
  __device__ __forceinline__ static F32 Of(double v) { return static_cast<float>(v); }
};
template <>
struct RoundTo<F64> {
  __device__ __forceinline__ static F64 Of(double v) { return v; }
};
template <>
struct RoundTo<F16> {
  __device__ __forceinline__ static F16 Of(float v) { return __float2half_rn(v); }
  __device__ __forceinline__ static F16 Of(double v) { return __double2half(v); }
};
template <>
struct RoundTo<BF16> {
  __device__ __forceinline__ static BF16 Of(float v) { return __float2bfloat16_rn(v); }
  __device__ __forceinline__ static BF16 Of(double v) { return __double2bfloat16(v); }
};

// `value` rounded to T and widened again.
template <typename T, typename A>
__device__ __forceinline__ A Rounded(A value) {
  return To<A>(RoundTo<T>::Of(value));
}

template <typename T>
__device__ __forceinline__ uint4 LoadVec(const T* p) {
  return *reinterpret_cast<const uint4*>(p);
}
// For data that nothing reads again soon.
template <typename T>
__device__ __forceinline__ uint4 LoadVecStreaming(const T* p) {
  return __ldcs(reinterpret_cast<const uint4*>(p));
}
template <typename T>
__device__ __forceinline__ void StoreVec(T* p, uint4 bits) {
  *reinterpret_cast<uint4*>(p) = bits;
}
// By one instruction, where the compiler would make four of it.
template <typename T>
__device__ __forceinline__ void StoreVecWhole(T* p, uint4 bits) {
  asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(__cvta_generic_to_global(p)),
               "r"(bits.x), "r"(bits.y), "r"(bits.z), "r"(bits.w)
               : "memory");
}
template <typename T>
__device__ __forceinline__ void StoreVecStreaming(T* p, uint4 bits) {
  __stcs(reinterpret_cast<uint4*>(p), bits);
}

// The two elements of a 32-bit word, the lower address first.
template <typename T>
__device__ __forceinline__ float2 UnpackPair(uint32_t bits);
template <>
__device__ __forceinline__ float2 UnpackPair<BF16>(uint32_t bits) {
  return {__uint_as_float(bits << 16), __uint_as_float(bits & 0xffff0000u)};
}
template <>
__device__ __forceinline__ float2 UnpackPair<F16>(uint32_t bits) {
  __half2 pair;
  memcpy(&pair, &bits, sizeof(pair));
  return __half22float2(pair);
}

template <typename T>
__device__ __forceinline__ uint32_t PackPair(float low, float high);
template <>
__device__ __forceinline__ uint32_t PackPair<BF16>(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  uint32_t bits;
  memcpy(&bits, &pair, sizeof(bits));
  return bits;
}
template <>
__device__ __forceinline__ uint32_t PackPair<F16>(float low, float high) {
  const __half2 pair = __floats2half2_rn(low, high);
  uint32_t bits;
  memcpy(&bits, &pair, sizeof(bits));
  return bits;
}

// Product and sum of two pairs, each element rounded to T by itself: no contraction.
__device__ __forceinline__ __half2 Times(__half2 a, __half2 b) { return __hmul2_rn(a, b); }
__device__ __forceinline__ __half2 Plus(__half2 a, __half2 b) { return __hadd2_rn(a, b); }
__device__ __forceinline__ __nv_bfloat162 Times(__nv_bfloat162 a, __nv_bfloat162 b) {
  return __hmul2_rn(a, b);
}
__device__ __forceinline__ __nv_bfloat162 Plus(__nv_bfloat162 a, __nv_bfloat162 b) {
  return __hadd2_rn(a, b);
}

template <typename T>
struct PairOf;
template <>
struct PairOf<F16> {
  using Type = __half2;
};
template <>
struct PairOf<BF16> {
  using Type = __nv_bfloat162;
};

// op(a, b) on the four pairs of each vector.
template <typename T, typename Op>
__device__ __forceinline__ uint4 OnPairs(uint4 a, uint4 b, Op op) {
  const auto one = [&](uint32_t x, uint32_t y) {
    typename PairOf<T>::Type p, q;
    memcpy(&p, &x, sizeof(p));
    memcpy(&q, &y, sizeof(q));
    p = op(p, q);
    memcpy(&x, &p, sizeof(x));
    return x;
  };
  return {one(a.x, b.x), one(a.y, b.y), one(a.z, b.z), one(a.w, b.w)};
}

template <typename T, typename A>
__device__ __forceinline__ void Unpack(uint4 bits, A (&v)[kVecSize<T>]) {
  if constexpr (sizeof(T) == 2) {
    const uint32_t words[4] = {bits.x, bits.y, bits.z, bits.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float2 pair = UnpackPair<T>(words[i]);
      v[2 * i] = pair.x;
      v[2 * i + 1] = pair.y;
    }
  } else if constexpr (sizeof(T) == 4) {
    v[0] = __uint_as_float(bits.x);
    v[1] = __uint_as_float(bits.y);
    v[2] = __uint_as_float(bits.z);
    v[3] = __uint_as_float(bits.w);
  } else {
    v[0] = __hiloint2double(static_cast<int>(bits.y), static_cast<int>(bits.x));
    v[1] = __hiloint2double(static_cast<int>(bits.w), static_cast<int>(bits.z));
  }
}

// Rounds once, to T.
template <typename T, typename A>
__device__ __forceinline__ uint4 Pack(const A (&v)[kVecSize<T>]) {
  if constexpr (sizeof(T) == 2) {
    return {PackPair<T>(v[0], v[1]), PackPair<T>(v[2], v[3]), PackPair<T>(v[4], v[5]),
            PackPair<T>(v[6], v[7])};
  } else if constexpr (sizeof(T) == 4) {
    return {__float_as_uint(v[0]), __float_as_uint(v[1]), __float_as_uint(v[2]),
            __float_as_uint(v[3])};
  } else {
    return {
        static_cast<uint32_t>(__double2loint(v[0])), static_cast<uint32_t>(__double2hiint(v[0])),
        static_cast<uint32_t>(__double2loint(v[1])), static_cast<uint32_t>(__double2hiint(v[1]))};
  }
}

}  // namespace liger::cuda
