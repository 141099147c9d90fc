// s = x + residual;  n = s / sqrt(mean(s^2) + epsilon);  y = n * (offset + scale)
//
// x, residual, y, sum: [rows, hidden_size] of T; scale: [hidden_size] of S. One row at a time in
// two passes, the second of which finds the row in the first-level cache: the sum of squares, then
// the product. Read once per row: x, residual, scale; written: y, sum.
#include "rms_norm.h"

#include "row_sums.h"
#include "simd.h"

namespace liger::cpu::LIGER_ISA {
namespace {

template <typename A, typename T, typename S, Rounding kRounding, bool kOffset>
struct Product {
  using Vec = typename Simd<A>::Vec;
  const T* x;
  const S* scale;
  T* y;
  Vec rstd;
  Vec offset;

  // Rounding what is rounded already costs time only.
  static constexpr Rounding kScaleRounding = IsRounded<S>(kRounding) ? Rounding::kNone : kRounding;
  static constexpr Rounding kLastRounding =
      kRounding == kStorageRounding<T> ? Rounding::kNone : kRounding;

  template <bool kPart>
  void At(int64_t i, int n) const {
    const Vec scaled = LoadSome<kPart, A>(x + i, n) * rstd;
    if (scale == nullptr) {
      StoreSome<kPart, A>(y + i, Round<kLastRounding, A>(scaled), n);
      return;
    }
    Vec w = Round<kScaleRounding, A>(LoadSome<kPart, A>(scale + i, n));
    if constexpr (kOffset) w = Round<kRounding, A>(offset + w);
    StoreSome<kPart, A>(y + i, Round<kLastRounding, A>(Round<kRounding, A>(scaled) * w), n);
  }

  void Row(int64_t size) const {
    constexpr int kLanes = Simd<A>::kLanes;
    int64_t i = 0;
    for (; i + kLanes <= size; i += kLanes) At<false>(i, kLanes);
    if (i < size) At<true>(i, static_cast<int>(size - i));
  }
};

template <typename A, typename T, typename S, Rounding kRounding, bool kOffset>
void Rows(const LigerRmsNormArgs& args, int64_t begin, int64_t end) {
  const int64_t size = args.hidden_size;
  if (size == 0) return;
  const A offset = Round<kRounding, A>(Broadcast(static_cast<A>(args.offset)))[0];
  const bool large = size * args.rows >= kLargeBytes / static_cast<int64_t>(sizeof(T));
  for (int64_t row = begin; row < end; ++row) {
    const T* x = static_cast<const T*>(args.x) + row * size;
    T* y = static_cast<T*>(args.y) + row * size;
    double squares = 0;
    if (args.residual != nullptr) {
      const T* residual = static_cast<const T*>(args.residual) + row * size;
      // Without a place of its own the sum waits in y, which has the same dtype.
      T* sum = args.sum != nullptr ? static_cast<T*>(args.sum) + row * size : y;
      squares = SumOf<A>(size, AddStep<A, T>{x, residual, sum, large ? y : nullptr}, Square<A>);
      x = sum;
    } else if (large && sizeof(T) == sizeof(A)) {
      squares = SumOf<A>(size, CopyStep<A, T>{x, y}, Square<A>);
      x = y;
    } else {
      squares = SumOf<A>(size, LoadStep<A, T>{x, large ? y : nullptr}, Square<A>);
    }
    const double mean = squares / static_cast<double>(size);
    const A rstd = static_cast<A>(1.0 / __builtin_sqrt(mean + static_cast<double>(args.epsilon)));
    Product<A, T, S, kRounding, kOffset>{x, static_cast<const S*>(args.scale), y, Broadcast(rstd),
                                         Broadcast(offset)}
        .Row(size);
  }
}

template <typename A, typename T, typename S, Rounding kRounding>
void DispatchOffset(const LigerRmsNormArgs& args, int64_t begin, int64_t end) {
  if constexpr (sizeof(A) == 4) {  // arithmetic in f64 is rare: one variant will do
    if (args.offset == 0) return Rows<A, T, S, kRounding, false>(args, begin, end);
  }
  Rows<A, T, S, kRounding, true>(args, begin, end);
}

template <typename A, typename T, typename S>
void DispatchRounding(const LigerRmsNormArgs& args, int64_t begin, int64_t end) {
  switch (args.scale_type) {
    case LIGER_F16:
      return DispatchOffset<A, T, S, Rounding::kF16>(args, begin, end);
    case LIGER_BF16:
      return DispatchOffset<A, T, S, Rounding::kBF16>(args, begin, end);
    case LIGER_F32:
      return DispatchOffset < A, T, S,
             sizeof(A) == 4 ? Rounding::kNone : Rounding::kF32 > (args, begin, end);
    default:
      return DispatchOffset<A, T, S, Rounding::kNone>(args, begin, end);
  }
}

template <typename T, typename S>
void DispatchArithmetic(const LigerRmsNormArgs& args, int64_t begin, int64_t end) {
  if constexpr (sizeof(T) == 8) {
    DispatchRounding<double, T, S>(args, begin, end);
  } else if (args.stash_type == LIGER_F64 || args.scale_type == LIGER_F64) {
    DispatchRounding<double, T, S>(args, begin, end);
  } else {
    DispatchRounding<float, T, S>(args, begin, end);
  }
}

template <typename T>
void DispatchScale(const LigerRmsNormArgs& args, int64_t begin, int64_t end) {
  if (args.scale_dtype == args.dtype) return DispatchArithmetic<T, T>(args, begin, end);
  DispatchArithmetic<T, F32>(args, begin, end);
}

}  // namespace

void RmsNorm(const LigerRmsNormArgs& args, int64_t begin, int64_t end) {
  switch (args.dtype) {
    case LIGER_F16:
      return DispatchScale<F16>(args, begin, end);
    case LIGER_BF16:
      return DispatchScale<BF16>(args, begin, end);
    case LIGER_F64:
      return DispatchScale<F64>(args, begin, end);
    default:
      return DispatchArithmetic<F32, F32>(args, begin, end);
  }
}

}  // namespace liger::cpu::LIGER_ISA
