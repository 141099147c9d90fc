// The arithmetic that the norms share: roundings to the scale type, the product with the scale, and
// a shift near the mean.
#pragma once

#include "vec.cuh"

namespace liger::cuda {

// The type that n, the product and the sum are rounded to, as seen from T.
enum class Rounding : int32_t { kNone, kStorage, kF16, kBF16, kF32 };

// Whether statistics, product or data ask for arithmetic in f64. Args: those of a norm.
template <typename Args>
bool IsInF64(const Args& args) {
  return args.dtype == LIGER_F64 || args.stash_type == LIGER_F64 || args.scale_type == LIGER_F64;
}

template <typename Args>
Rounding RoundingOf(const Args& args) {
  switch (args.scale_type) {
    case LIGER_F16:
      return args.dtype == LIGER_F16 ? Rounding::kStorage : Rounding::kF16;
    case LIGER_BF16:
      return args.dtype == LIGER_BF16 ? Rounding::kStorage : Rounding::kBF16;
    case LIGER_F32:
      return IsInF64(args) ? Rounding::kF32 : Rounding::kNone;
    default:
      return Rounding::kNone;
  }
}

// `value` as a graph holds it that computes in `dtype`.
template <typename A>
A RoundedOnHost(A value, int32_t dtype) {
  switch (dtype) {
    case LIGER_F16:
      return static_cast<A>(__half2float(__double2half(value)));
    case LIGER_BF16:
      return static_cast<A>(__bfloat162float(__double2bfloat16(value)));
    case LIGER_F32:
      return static_cast<A>(static_cast<float>(value));
    default:
      return value;
  }
}

template <typename A>
__device__ __forceinline__ A RoundAtRunTime(A value, Rounding rounding) {
  switch (rounding) {
    case Rounding::kF16:
      return Rounded<F16>(value);
    case Rounding::kBF16:
      return Rounded<BF16>(value);
    case Rounding::kF32:
      return Rounded<F32>(value);
    default:
      return value;
  }
}

// Products and sums that the compiler must not contract into one rounding.
__device__ __forceinline__ float Times(float a, float b) { return __fmul_rn(a, b); }
__device__ __forceinline__ double Times(double a, double b) { return __dmul_rn(a, b); }
__device__ __forceinline__ float Plus(float a, float b) { return __fadd_rn(a, b); }
__device__ __forceinline__ double Plus(double a, double b) { return __dadd_rn(a, b); }
// f32: within 2 ulp, by one instruction.
__device__ __forceinline__ float InverseRoot(float a) { return rsqrtf(a); }
__device__ __forceinline__ double InverseRoot(double a) { return 1 / sqrt(a); }

// One element of y before its rounding to T. `round` rounds to the scale type; the last rounding to
// T makes a rounding to T before it unnecessary.
template <typename A, typename Round>
__device__ __forceinline__ A Scaled(A n, A scale, A offset, Round round) {
  return round(Times(round(n), round(Plus(round(scale), offset))));
}
template <typename A, typename Round>
__device__ __forceinline__ A ScaledAndShifted(A n, A scale, A bias, Round round) {
  return round(Plus(round(Times(round(n), round(scale))), round(bias)));
}

// Means are taken of the elements less a shift that all threads know, the first element, so that an
// offset common to a row costs no precision. With the shift near the mean, one pass gives mean and
// variance by sum and sum of squares. Where it lies further off than this many variances, which
// would cost more than four bits, the pass is repeated with the mean as shift.
inline constexpr float kMaxShift = 16;

}  // namespace liger::cuda
