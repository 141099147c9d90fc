// s = x + residual;  n = s / sqrt(mean(s^2) + epsilon);  y = n * (offset + scale)
//
// x, residual, y, sum: [rows, hidden_size] of T; scale: [hidden_size] of S. One row at a time in
// two passes, the second of which finds the row in the first-level cache: the sum of squares, then
// the product. Read once per row: x, residual, scale; written: y, sum.
#include "rms_norm.h"

#include "simd.h"

namespace liger::cpu::LIGER_ISA {
namespace {

// Sum of lanes in f64, so that the rounding error does not grow with the row.
template <typename A>
struct Accumulator;

template <>
struct Accumulator<float> {
  F64Vec low = {}, high = {};
  void Add(F32Vec v) {
    low += __builtin_convertvector(Half<0>(v), F64Vec);
    high += __builtin_convertvector(Half<1>(v), F64Vec);
  }
  F64Vec Sum() const { return low + high; }

 private:
  template <int kHalf>
  static Simd<double>::Float Half(F32Vec v) {
    Simd<double>::Float half;
    __builtin_memcpy(&half, reinterpret_cast<const char*>(&v) + kHalf * sizeof(half), sizeof(half));
    return half;
  }
};

template <>
struct Accumulator<double> {
  F64Vec sum = {};
  void Add(F64Vec v) { sum += v; }
  F64Vec Sum() const { return sum; }
};

inline double Total(F64Vec v) {
  double total = 0;
  for (int i = 0; i < Simd<double>::kLanes; ++i) total += v[i];
  return total;
}

// Calls step(i, n) for the whole vectors (n == kLanes) and the rest of [0, size); step returns what
// is to be squared and summed. The squares of four vectors are added in A: three roundings at most.
template <typename A, typename Step>
inline double SumOfSquares(int64_t size, Step step) {
  constexpr int kLanes = Simd<A>::kLanes;
  using Vec = typename Simd<A>::Vec;
  Accumulator<A> first, second;
  const auto four = [&](int64_t i) {
    step.Prefetch(i, 4 * kLanes);
    const Vec v0 = step.template operator()<false>(i, kLanes);
    const Vec v1 = step.template operator()<false>(i + kLanes, kLanes);
    const Vec v2 = step.template operator()<false>(i + 2 * kLanes, kLanes);
    const Vec v3 = step.template operator()<false>(i + 3 * kLanes, kLanes);
    return (v0 * v0 + v1 * v1) + (v2 * v2 + v3 * v3);
  };
  int64_t i = 0;
  for (; i + 8 * kLanes <= size; i += 8 * kLanes) {
    first.Add(four(i));
    second.Add(four(i + 4 * kLanes));
  }
  for (; i + kLanes <= size; i += kLanes) {
    const Vec v = step.template operator()<false>(i, kLanes);
    first.Add(v * v);
  }
  if (i < size) {
    const Vec v = step.template operator()<true>(i, static_cast<int>(size - i));
    second.Add(v * v);
  }
  return Total(first.Sum() + second.Sum());
}

// Where y comes from memory, it pays to fetch its lines in the first pass, beside the reads of x;
// where it lies in cache that costs. So it is done for large tensors only, in one of two ways: wide
// types copy x to y, so that the second pass touches one row less of the first-level cache; the
// others prefetch, since a copy would convert.
constexpr int64_t kLargeBytes = 1 << 20;

template <typename T>
inline void PrefetchForWrite(const T* p, int64_t i, int n) {
  if (p == nullptr) return;
  for (int64_t byte = 0; byte < static_cast<int64_t>(n * sizeof(T)); byte += 64) {
    __builtin_prefetch(reinterpret_cast<const char*>(p + i) + byte, 1);
  }
}

template <typename A, typename T>
struct LoadStep {
  const T* x;
  const T* prefetch;  // y, or null
  void Prefetch(int64_t i, int n) const { PrefetchForWrite(prefetch, i, n); }
  template <bool kPart>
  typename Simd<A>::Vec operator()(int64_t i, int n) const {
    return LoadSome<kPart, A>(x + i, n);
  }
};

template <typename A, typename T>
struct CopyStep {
  const T* x;
  T* y;
  void Prefetch(int64_t, int) const {}
  template <bool kPart>
  typename Simd<A>::Vec operator()(int64_t i, int n) const {
    const typename Simd<A>::Vec v = LoadSome<kPart, A>(x + i, n);
    StoreSome<kPart, A>(y + i, v, n);
    return v;
  }
};

// Writes the sum, rounded to T, and returns it as it will be read back.
template <typename A, typename T>
struct AddStep {
  const T* x;
  const T* residual;
  T* sum;
  const T* prefetch;  // y, or null
  void Prefetch(int64_t i, int n) const { PrefetchForWrite(prefetch, i, n); }
  template <bool kPart>
  typename Simd<A>::Vec operator()(int64_t i, int n) const {
    StoreSome<kPart, A>(sum + i, LoadSome<kPart, A>(x + i, n) + LoadSome<kPart, A>(residual + i, n),
                        n);
    return LoadSome<kPart, A>(static_cast<const T*>(sum + i), n);
  }
};

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
      squares = SumOfSquares<A>(size, AddStep<A, T>{x, residual, sum, large ? y : nullptr});
      x = sum;
    } else if (large && sizeof(T) == sizeof(A)) {
      squares = SumOfSquares<A>(size, CopyStep<A, T>{x, y});
      x = y;
    } else {
      squares = SumOfSquares<A>(size, LoadStep<A, T>{x, large ? y : nullptr});
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
