// The last pass of the norms that take the mean off: y = n * scale + bias with
// n = (x - mean) / deviation, each step rounded to the scale type.
//
//   const Normaliser<A, T, S, kRounding> normaliser(moments, epsilon);
//   normaliser.Row(x, y, size, scale, bias);            // a scale for each column
//   normaliser.Channel(x, y, size, scale, bias);        // one scale for all of them
#pragma once

#include "row_sums.h"
#include "simd.h"

namespace liger::cpu::LIGER_ISA {

template <typename A, typename T, typename S, Rounding kRounding>
class Normaliser {
 public:
  using Vec = typename Simd<A>::Vec;

  Normaliser(const Moments<A>& moments, float epsilon)
      : high_(Broadcast(moments.high)),
        low_(Broadcast(moments.low)),
        rstd_(Broadcast(static_cast<A>(
            1.0 / __builtin_sqrt(moments.variance + static_cast<double>(epsilon))))) {}

  // scale and bias: as wide as x, or null.
  void Row(const T* x, T* y, int64_t size, const S* scale, const S* bias) const {
    if (scale != nullptr && bias != nullptr) return RowWith<true, true>(x, y, size, scale, bias);
    if (scale != nullptr) return RowWith<true, false>(x, y, size, scale, bias);
    if (bias != nullptr) return RowWith<false, true>(x, y, size, scale, bias);
    RowWith<false, false>(x, y, size, scale, bias);
  }

  // scale and bias: one element each.
  void Channel(const T* x, T* y, int64_t size, const S* scale, const S* bias) const {
    const Vec w = Broadcast(Parameter<true>(scale, 1)[0]);
    const Vec b = Broadcast(Parameter<true>(bias, 1)[0]);
    ForEach(size, [&]<bool kPart>(int64_t i, int n) {
      const Vec scaled = Round<kRounding, A>(Normalised<kPart>(x + i, n) * w);
      StoreSome<kPart, A>(y + i, Round<kLastRounding, A>(scaled + b), n);
    });
  }

 private:
  // Rounding what is rounded already costs time only.
  static constexpr Rounding kScaleRounding = IsRounded<S>(kRounding) ? Rounding::kNone : kRounding;
  static constexpr Rounding kLastRounding =
      kRounding == kStorageRounding<T> ? Rounding::kNone : kRounding;

  template <bool kPart>
  static Vec Parameter(const S* p, int n) {
    return Round<kScaleRounding, A>(LoadSome<kPart, A>(p, n));
  }

  template <bool kPart>
  Vec Normalised(const T* x, int n) const {
    return Round<kRounding, A>((LoadSome<kPart, A>(x, n) - high_ - low_) * rstd_);
  }

  template <bool kScale, bool kBias>
  void RowWith(const T* x, T* y, int64_t size, const S* scale, const S* bias) const {
    ForEach(size, [&]<bool kPart>(int64_t i, int n) {
      Vec value = Normalised<kPart>(x + i, n);
      if constexpr (kScale) value = Round<kRounding, A>(value * Parameter<kPart>(scale + i, n));
      if constexpr (kBias) value = Round<kLastRounding, A>(value + Parameter<kPart>(bias + i, n));
      StoreSome<kPart, A>(y + i, value, n);
    });
  }

  template <typename Body>
  static void ForEach(int64_t size, Body body) {
    constexpr int kLanes = Simd<A>::kLanes;
    int64_t i = 0;
    for (; i + kLanes <= size; i += kLanes) body.template operator()<false>(i, kLanes);
    if (i < size) body.template operator()<true>(i, static_cast<int>(size - i));
  }

  Vec high_, low_, rstd_;
};

// Calls body.template operator()<A, T, S, kRounding>() for the types of `args`, which has dtype,
// scale_dtype, stash_type and scale_type.
template <typename A, typename T, typename S, typename Args, typename Body>
void DispatchScaleType(const Args& args, Body body) {
  switch (args.scale_type) {
    case LIGER_F16:
      return body.template operator()<A, T, S, Rounding::kF16>();
    case LIGER_BF16:
      return body.template operator()<A, T, S, Rounding::kBF16>();
    case LIGER_F32:
      return body.template operator() < A, T, S,
             sizeof(A) == 4 ? Rounding::kNone : Rounding::kF32 > ();
    default:
      return body.template operator()<A, T, S, Rounding::kNone>();
  }
}

template <typename T, typename S, typename Args, typename Body>
void DispatchNormArithmetic(const Args& args, Body body) {
  if constexpr (sizeof(T) < 8) {
    if (args.stash_type != LIGER_F64 && args.scale_type != LIGER_F64) {
      return DispatchScaleType<float, T, S>(args, body);
    }
  }
  DispatchScaleType<double, T, S>(args, body);
}

template <typename T, typename Args, typename Body>
void DispatchNormScale(const Args& args, Body body) {
  if (args.scale_dtype == args.dtype) return DispatchNormArithmetic<T, T>(args, body);
  DispatchNormArithmetic<T, F32>(args, body);
}

template <typename Args, typename Body>
void DispatchNorm(const Args& args, Body body) {
  switch (args.dtype) {
    case LIGER_F16:
      return DispatchNormScale<F16>(args, body);
    case LIGER_BF16:
      return DispatchNormScale<BF16>(args, body);
    case LIGER_F64:
      return DispatchNormScale<F64>(args, body);
    default:
      return DispatchNormArithmetic<F32, F32>(args, body);
  }
}

}  // namespace liger::cpu::LIGER_ISA
