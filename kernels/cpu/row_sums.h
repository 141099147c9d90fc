// Passes over a row that the norms share: sums with little rounding, mean and variance.
//
//   double squares = SumOf<A>(size, LoadStep<A, T>{x, nullptr}, Square<A>);
//   Moments<A> moments = MomentsOf<A>(size, LoadStep<A, T>{x, nullptr}, x);
//
// A step is the first pass over a row: it loads x, or adds the residual, and returns the values of
// a vector. The result of every sum is f64.
#pragma once

#include "simd.h"

namespace liger::cpu::LIGER_ISA {

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

template <typename A>
inline typename Simd<A>::Vec Itself(typename Simd<A>::Vec v) {
  return v;
}

template <typename A>
inline typename Simd<A>::Vec Square(typename Simd<A>::Vec v) {
  return v * v;
}

// The sum of term(step(i, n)) over the whole vectors (n == kLanes) and the rest of [0, size); term
// is 0 for 0, which the lanes behind the rest hold. The terms of four vectors are added in A: three
// roundings at most.
template <typename A, typename Step, typename Term>
inline double SumOf(int64_t size, Step step, Term term) {
  constexpr int kLanes = Simd<A>::kLanes;
  using Vec = typename Simd<A>::Vec;
  Accumulator<A> first, second;
  const auto four = [&](int64_t i) {
    step.Prefetch(i, 4 * kLanes);
    const Vec v0 = step.template operator()<false>(i, kLanes);
    const Vec v1 = step.template operator()<false>(i + kLanes, kLanes);
    const Vec v2 = step.template operator()<false>(i + 2 * kLanes, kLanes);
    const Vec v3 = step.template operator()<false>(i + 3 * kLanes, kLanes);
    return (term(v0) + term(v1)) + (term(v2) + term(v3));
  };
  int64_t i = 0;
  for (; i + 8 * kLanes <= size; i += 8 * kLanes) {
    first.Add(four(i));
    second.Add(four(i + 4 * kLanes));
  }
  for (; i + kLanes <= size; i += kLanes) {
    first.Add(term(step.template operator()<false>(i, kLanes)));
  }
  if (i < size) second.Add(term(step.template operator()<true>(i, static_cast<int>(size - i))));
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

// Mean and variance of a row, found in two passes: the mean, then sum and sum of squares of what is
// centred about it. The mean is high + low: x - high is exact where x is near the mean, and the sum
// of those differences gives low, which rounding the mean to A has lost.
template <typename A>
struct Moments {
  A high = 0;
  A low = 0;
  double variance = 0;
};

template <typename A, typename T, typename Step>
inline Moments<A> MomentsOf(int64_t size, Step step, const T* row) {
  constexpr int kLanes = Simd<A>::kLanes;
  using Vec = typename Simd<A>::Vec;
  const double count = static_cast<double>(size);
  Moments<A> moments;
  moments.high = static_cast<A>(SumOf<A>(size, step, Itself<A>) / count);
  const Vec mean = Broadcast(moments.high);
  Accumulator<A> sum, squares;
  int64_t i = 0;
  for (; i + 4 * kLanes <= size; i += 4 * kLanes) {
    const Vec v0 = Load<A>(row + i) - mean;
    const Vec v1 = Load<A>(row + i + kLanes) - mean;
    const Vec v2 = Load<A>(row + i + 2 * kLanes) - mean;
    const Vec v3 = Load<A>(row + i + 3 * kLanes) - mean;
    sum.Add((v0 + v1) + (v2 + v3));
    squares.Add((v0 * v0 + v1 * v1) + (v2 * v2 + v3 * v3));
  }
  for (; i < size; i += kLanes) {
    const int n = static_cast<int>(size - i < kLanes ? size - i : kLanes);
    Vec v = (n < kLanes ? LoadPart<A>(row + i, n) : Load<A>(row + i)) - mean;
    for (int lane = n; lane < kLanes; ++lane) v[lane] = 0;
    sum.Add(v);
    squares.Add(v * v);
  }
  const double low = Total(sum.Sum()) / count;
  const double variance = Total(squares.Sum()) / count - low * low;
  moments.low = static_cast<A>(low);
  moments.variance = variance < 0 ? 0 : variance;  // NaN stays
  return moments;
}

}  // namespace liger::cpu::LIGER_ISA
