// Vectors of f32 or f64 lanes, their loads and stores in four storage types, roundings, exp,
// sigmoid, the normal distribution.
//
//   using V = Simd<float>;
//   V::Vec v = Load<float>(p);                 // p: const F16*, V::kLanes elements
//   Store<float>(q, v * v);
//
// Written with the compiler's vector types. Each kernel file is compiled once per instruction set
// with LIGER_ISA naming it; everything here lives in a namespace of that name, so that code for a
// newer processor never replaces code for an older one at link time. For the same reason no header
// with inline functions of the standard library is included.
#pragma once

#include <stdint.h>

#if defined(__F16C__)
#include <immintrin.h>
#endif

#ifndef LIGER_ISA
#error "LIGER_ISA names the instruction set this file is compiled for"
#endif

namespace liger::cpu::LIGER_ISA {

#if defined(__AVX512F__)
inline constexpr int kVectorBytes = 64;
#elif defined(__AVX2__)
inline constexpr int kVectorBytes = 32;
#else
inline constexpr int kVectorBytes = 16;
#endif

// Storage types. They are bytes, so that a pointer to them needs no alignment.
struct F32 {
  unsigned char bytes[4];
};
struct F64 {
  unsigned char bytes[8];
};
struct F16 {
  unsigned char bytes[2];
};
struct BF16 {
  unsigned char bytes[2];
};

template <typename T>
inline constexpr bool kIsF16 = false;
template <>
inline constexpr bool kIsF16<F16> = true;

template <typename A>
struct Simd;

template <>
struct Simd<float> {
  static constexpr int kLanes = kVectorBytes / 4;
  typedef float Vec __attribute__((vector_size(kVectorBytes)));
  typedef int32_t Int __attribute__((vector_size(kVectorBytes)));
  typedef uint32_t UInt __attribute__((vector_size(kVectorBytes)));
  typedef uint16_t Half __attribute__((vector_size(kVectorBytes / 2)));
};

template <>
struct Simd<double> {
  static constexpr int kLanes = kVectorBytes / 8;
  typedef double Vec __attribute__((vector_size(kVectorBytes)));
  typedef int64_t Int __attribute__((vector_size(kVectorBytes)));
  typedef uint64_t UInt __attribute__((vector_size(kVectorBytes)));
  typedef float Float __attribute__((vector_size(kVectorBytes / 2)));
};

using F32Vec = Simd<float>::Vec;
using F64Vec = Simd<double>::Vec;

template <typename A>
inline typename Simd<A>::Vec Broadcast(A value) {
  return typename Simd<A>::Vec{} + value;
}

template <typename To, typename From>
inline To BitCast(const From& from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  __builtin_memcpy(&to, &from, sizeof(to));
  return to;
}

// f16 and bf16 against f32.

inline F32Vec WidenF16(Simd<float>::Half half) {
#if defined(__AVX512F__)
  // The masked forms: GCC 12 takes the others for uses of an uninitialised value.
  return _mm512_maskz_cvtph_ps(0xffff, BitCast<__m256i>(half));
#elif defined(__F16C__) && defined(__AVX2__)
  return _mm256_cvtph_ps(BitCast<__m128i>(half));
#else
  using UInt = Simd<float>::UInt;
  const UInt bits = __builtin_convertvector(half, UInt);
  const UInt magnitude = bits & 0x7fff;
  // The exponent's bias grows from 15 to 127, and that of inf and NaN from 31 to 255.
  const UInt normal = (magnitude << 13) + (112u << 23);
  const UInt special = normal + (112u << 23);
  const UInt subnormal = BitCast<UInt>(
      __builtin_convertvector(BitCast<Simd<float>::Int>(magnitude), F32Vec) * 0x1p-24f);
  UInt out = magnitude >= 0x7c00u ? special : normal;
  out = magnitude < 0x400u ? subnormal : out;
  return BitCast<F32Vec>(out | ((bits & 0x8000u) << 16));
#endif
}

inline Simd<float>::Half NarrowF16(F32Vec v) {
#if defined(__AVX512F__)
  return BitCast<Simd<float>::Half>(
      _mm512_maskz_cvtps_ph(0xffff, v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
#elif defined(__F16C__) && defined(__AVX2__)
  return BitCast<Simd<float>::Half>(_mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
#else
  using UInt = Simd<float>::UInt;
  const UInt bits = BitCast<UInt>(v);
  const UInt magnitude = bits & 0x7fffffffu;
  UInt normal = magnitude - (112u << 23);
  normal = (normal + 0xfffu + ((normal >> 13) & 1u)) >> 13;
  normal = normal > 0x7c00u ? UInt{} + 0x7c00u : normal;
  // Below 2^-14 the result counts units of 2^-24, which is the unit of the last place of 0.5.
  const UInt subnormal = BitCast<UInt>(BitCast<F32Vec>(magnitude) + 0.5f) - BitCast<uint32_t>(0.5f);
  UInt out = magnitude < 0x38800000u ? subnormal : normal;
  out = magnitude > 0x7f800000u ? UInt{} + 0x7e00u : out;
  return __builtin_convertvector(out | ((bits >> 16) & 0x8000u), Simd<float>::Half);
#endif
}

// The bits of v rounded to bf16 (nearest even, NaN kept quiet), still in the upper half of each
// lane.
inline Simd<float>::UInt RoundBitsToBF16(F32Vec v) {
  using UInt = Simd<float>::UInt;
  const UInt bits = BitCast<UInt>(v);
  const UInt rounded = bits + 0x7fffu + ((bits >> 16) & 1u);
  return v != v ? (bits | 0x400000u) : rounded;
}

inline F32Vec WidenBF16(Simd<float>::Half half) {
#if defined(__AVX512F__)
  const auto bits =
      BitCast<Simd<float>::UInt>(_mm512_maskz_cvtepu16_epi32(0xffff, BitCast<__m256i>(half)));
#elif defined(__AVX2__)
  // GCC 12 widens in several steps otherwise.
  const auto bits = BitCast<Simd<float>::UInt>(_mm256_cvtepu16_epi32(BitCast<__m128i>(half)));
#else
  const auto bits = __builtin_convertvector(half, Simd<float>::UInt);
#endif
  return BitCast<F32Vec>(bits << 16);
}

inline Simd<float>::Half NarrowBF16(F32Vec v) {
#if defined(__AVX2__) && !defined(__AVX512F__)
  // GCC 12 narrows lanes one by one here.
  const __m256i bits = BitCast<__m256i>(RoundBitsToBF16(v) >> 16);
  return BitCast<Simd<float>::Half>(
      _mm_packus_epi32(_mm256_castsi256_si128(bits), _mm256_extracti128_si256(bits, 1)));
#else
  return __builtin_convertvector(RoundBitsToBF16(v) >> 16, Simd<float>::Half);
#endif
}

// Loads and stores of whole vectors.

template <typename Raw>
inline Raw LoadRaw(const void* p) {
  Raw raw;
  __builtin_memcpy(&raw, p, sizeof(raw));
  return raw;
}

template <typename Raw>
inline void StoreRaw(void* p, const Raw& raw) {
  __builtin_memcpy(p, &raw, sizeof(raw));
}

template <typename A, typename T>
struct Memory;  // Load and Store of Simd<A>::kLanes elements of T

template <>
struct Memory<float, F32> {
  static F32Vec Load(const F32* p) { return LoadRaw<F32Vec>(p); }
  static void Store(F32* p, F32Vec v) { StoreRaw(p, v); }
};

template <>
struct Memory<float, F16> {
  static F32Vec Load(const F16* p) { return WidenF16(LoadRaw<Simd<float>::Half>(p)); }
  static void Store(F16* p, F32Vec v) { StoreRaw(p, NarrowF16(v)); }
};

template <>
struct Memory<float, BF16> {
  static F32Vec Load(const BF16* p) { return WidenBF16(LoadRaw<Simd<float>::Half>(p)); }
  static void Store(BF16* p, F32Vec v) { StoreRaw(p, NarrowBF16(v)); }
};

template <>
struct Memory<double, F64> {
  static F64Vec Load(const F64* p) { return LoadRaw<F64Vec>(p); }
  static void Store(F64* p, F64Vec v) { StoreRaw(p, v); }
};

template <>
struct Memory<double, F32> {
  static F64Vec Load(const F32* p) {
    return __builtin_convertvector(LoadRaw<Simd<double>::Float>(p), F64Vec);
  }
  static void Store(F32* p, F64Vec v) {
    StoreRaw(p, __builtin_convertvector(v, Simd<double>::Float));
  }
};

// v in f32, rounded to odd: a second rounding to a half type then gives what one rounding would
// have.
inline Simd<double>::Float RoundToOdd(F64Vec v) {
  Simd<double>::Float out = __builtin_convertvector(v, Simd<double>::Float);
  for (int i = 0; i < Simd<double>::kLanes; ++i) {
    const double exact = v[i];
    const double rounded = static_cast<double>(out[i]);
    const uint32_t bits = BitCast<uint32_t>(static_cast<float>(out[i]));
    if (rounded == exact || exact != exact || (bits & 1u) != 0) continue;
    const bool too_large = __builtin_fabs(rounded) > __builtin_fabs(exact);
    out[i] = BitCast<float>(too_large ? bits - 1 : bits + 1);
  }
  return out;
}

// Half types in f64 arithmetic: rare (a graph that asks for f64 statistics), hence through f32
// vectors half of whose lanes are unused.
template <typename T>
struct HalfAsDouble {
  static constexpr int kLanes = Simd<double>::kLanes;

  static F64Vec Load(const T* p) {
    T wide[Simd<float>::kLanes] = {};
    __builtin_memcpy(wide, p, kLanes * sizeof(T));
    const F32Vec v = Memory<float, T>::Load(wide);
    return __builtin_convertvector(LoadRaw<Simd<double>::Float>(&v), F64Vec);
  }
  static void Store(T* p, F64Vec v) {
    const Simd<double>::Float narrow = RoundToOdd(v);
    F32Vec padded = {};
    __builtin_memcpy(&padded, &narrow, sizeof(narrow));
    T wide[Simd<float>::kLanes];
    Memory<float, T>::Store(wide, padded);
    __builtin_memcpy(p, wide, kLanes * sizeof(T));
  }
};

template <>
struct Memory<double, F16> : HalfAsDouble<F16> {};
template <>
struct Memory<double, BF16> : HalfAsDouble<BF16> {};

template <typename A, typename T>
inline typename Simd<A>::Vec Load(const T* p) {
  return Memory<A, T>::Load(p);
}

template <typename A, typename T>
inline void Store(T* p, typename Simd<A>::Vec v) {
  Memory<A, T>::Store(p, v);
}

// The first n < kLanes elements; the other lanes are zero.
template <typename A, typename T>
inline typename Simd<A>::Vec LoadPart(const T* p, int n) {
  T padded[Simd<A>::kLanes] = {};
  for (int i = 0; i < n; ++i) padded[i] = p[i];
  return Load<A>(static_cast<const T*>(padded));
}

template <typename A, typename T>
inline void StorePart(T* p, typename Simd<A>::Vec v, int n) {
  T padded[Simd<A>::kLanes];
  Store<A>(static_cast<T*>(padded), v);
  for (int i = 0; i < n; ++i) p[i] = padded[i];
}

// Whole or partial, decided at compile time: loops are written once and instantiated for both.
template <bool kPart, typename A, typename T>
inline typename Simd<A>::Vec LoadSome(const T* p, int n) {
  if constexpr (kPart) return LoadPart<A>(p, n);
  return Load<A>(p);
}

template <bool kPart, typename A, typename T>
inline void StoreSome(T* p, typename Simd<A>::Vec v, int n) {
  if constexpr (kPart) {
    StorePart<A>(p, v, n);
  } else {
    Store<A>(p, v);
  }
}

// Roundings inside a computation.

enum class Rounding { kNone, kF32, kF16, kBF16 };

// The rounding that storing as T brings with it.
template <typename T>
inline constexpr Rounding kStorageRounding = sizeof(T) == 8   ? Rounding::kNone
                                             : sizeof(T) == 4 ? Rounding::kF32
                                             : kIsF16<T>      ? Rounding::kF16
                                                              : Rounding::kBF16;

// Whether `rounding` leaves every value of storage type T as it is.
template <typename T>
constexpr bool IsRounded(Rounding rounding) {
  return rounding == Rounding::kNone || rounding == kStorageRounding<T> ||
         (rounding == Rounding::kF32 && sizeof(T) == 2);
}

template <Rounding kRounding, typename A>
inline typename Simd<A>::Vec Round(typename Simd<A>::Vec v) {
  if constexpr (kRounding == Rounding::kNone) {
    return v;
  } else if constexpr (sizeof(A) == 4) {
    if constexpr (kRounding == Rounding::kF16) {
      return WidenF16(NarrowF16(v));
    } else if constexpr (kRounding == Rounding::kBF16) {
      return BitCast<F32Vec>(RoundBitsToBF16(v) & 0xffff0000u);
    } else {
      return v;
    }
  } else {
    if constexpr (kRounding == Rounding::kF32) {
      return __builtin_convertvector(__builtin_convertvector(v, Simd<double>::Float), F64Vec);
    } else if constexpr (kRounding == Rounding::kF16) {
      F16 stored[Simd<double>::kLanes];
      Store<double>(static_cast<F16*>(stored), v);
      return Load<double>(static_cast<const F16*>(stored));
    } else {
      BF16 stored[Simd<double>::kLanes];
      Store<double>(static_cast<BF16*>(stored), v);
      return Load<double>(static_cast<const BF16*>(stored));
    }
  }
}

// Shuffles.

template <int... kI>
struct Indices {};

template <int kN, int... kI>
struct MakeIndices : MakeIndices<kN - 1, kN - 1, kI...> {};
template <int... kI>
struct MakeIndices<0, kI...> {
  using Type = Indices<kI...>;
};

template <typename A>
using LaneIndices = typename MakeIndices<Simd<A>::kLanes>::Type;

// The elements at even (odd) places of the concatenation of a and b.
template <typename V, int... kI>
inline V EvenLanes(V a, V b, Indices<kI...>) {
  return __builtin_shufflevector(a, b, (2 * kI)...);
}
template <typename V, int... kI>
inline V OddLanes(V a, V b, Indices<kI...>) {
  return __builtin_shufflevector(a, b, (2 * kI + 1)...);
}

// a0 b0 a1 b1 ...: the first and the second vector of it.
template <typename V, int... kI>
inline V ZipLow(V a, V b, Indices<kI...>) {
  constexpr int kLanes = sizeof...(kI);
  return __builtin_shufflevector(a, b, (kI / 2 + (kI % 2) * kLanes)...);
}
template <typename V, int... kI>
inline V ZipHigh(V a, V b, Indices<kI...>) {
  constexpr int kLanes = sizeof...(kI);
  return __builtin_shufflevector(a, b, (kLanes / 2 + kI / 2 + (kI % 2) * kLanes)...);
}

// The smaller of bound and x; NaN in x stays. The larger likewise.
template <typename A>
inline typename Simd<A>::Vec AtMost(typename Simd<A>::Vec x, A bound) {
#if defined(__AVX2__) && !defined(__AVX512F__)
  // These instructions give their second operand where one is NaN.
  if constexpr (sizeof(A) == 4) return _mm256_min_ps(Broadcast(bound), x);
#endif
  return x > bound ? Broadcast(bound) : x;
}

template <typename A>
inline typename Simd<A>::Vec AtLeast(typename Simd<A>::Vec x, typename Simd<A>::Vec bound) {
#if defined(__AVX2__) && !defined(__AVX512F__)
  if constexpr (sizeof(A) == 4) return _mm256_max_ps(bound, x);
#endif
  return x < bound ? bound : x;
}

// exp(x) = 2^n exp(r), x = n ln 2 + r with |r| <= ln(2) / 2. ln 2 is taken in two parts, the first
// with so few bits that n times it is exact. exp(r) = 1 + r + r^2 q(r), where q interpolates at the
// Chebyshev points: relative error below 2^-26 (f32) and 2^-55 (f64).
template <typename A>
struct ExpConstants;
template <>
struct ExpConstants<float> {
  static constexpr float kShift = 0x1.8p23f;  // adding it rounds to an integer in the low bits
  static constexpr float kLog2E = 0x1.715476p+0f, kLn2High = 0x1.62ep-1f, kLn2Low = 0x1.0bfbe8p-15f;
  static constexpr float kCoefficients[] = {
      // of q, highest power first
      0x1.6d119ap-10f, 0x1.120c00p-7f, 0x1.555518p-5f, 0x1.5554dcp-3f, 0x1.000000p-1f};
  static constexpr int kMantissa = 23, kBias = 127;
  static constexpr float kLowestNormal = -87.3f;  // exp of it is a normal number
};
template <>
struct ExpConstants<double> {
  static constexpr double kShift = 0x1.8p52;
  static constexpr double kLog2E = 0x1.71547652b82fep+0, kLn2High = 0x1.62e42fee00000p-1,
                          kLn2Low = 0x1.a39ef35793c76p-33;
  static constexpr double kCoefficients[] = {
      0x1.af3924be99a57p-26, 0x1.2891e963ab1f9p-22, 0x1.71de0d7a972efp-19, 0x1.a019b8b8f8697p-16,
      0x1.a01a01a7d176dp-13, 0x1.6c16c178a18c1p-10, 0x1.11111111109a2p-7,  0x1.5555555553d2bp-5,
      0x1.5555555555556p-3,  0x1.0000000000001p-1};
  static constexpr int kMantissa = 52, kBias = 1023;
  static constexpr double kLowestNormal = -708.3;
};

// exp(r), and n as an integer; `x` is NaN or so small a number that n fits the exponent.
template <typename A>
inline typename Simd<A>::Vec ReduceExp(typename Simd<A>::Vec x, typename Simd<A>::UInt& n) {
  using Vec = typename Simd<A>::Vec;
  using Bits = decltype(typename Simd<A>::UInt{}[0] + 0);
  using C = ExpConstants<A>;
  const Vec shifted = x * C::kLog2E + C::kShift;
  const Vec rounded = shifted - C::kShift;
  n = BitCast<typename Simd<A>::UInt>(shifted) - BitCast<Bits>(C::kShift);
  Vec r = x - rounded * C::kLn2High;
  r = r - rounded * C::kLn2Low;
  Vec p = Broadcast(C::kCoefficients[0]);
  constexpr int kCount = sizeof(C::kCoefficients) / sizeof(A);
#pragma GCC unroll 16
  for (int i = 1; i < kCount; ++i) p = p * r + C::kCoefficients[i];
  p = p * r + static_cast<A>(1);
  return p * r + static_cast<A>(1);
}

// exp(x) for x <= 0, which is all that a sigmoid needs; x below `lowest` counts as `lowest`. 2^n is
// applied in two factors, the second of which may make the result subnormal. NaN stays.
template <typename A>
inline typename Simd<A>::Vec ExpOfNonPositive(typename Simd<A>::Vec x,
                                              typename Simd<A>::Vec lowest) {
  using C = ExpConstants<A>;
  constexpr int kSecond = sizeof(A) == 4 ? 32 : 64;
  constexpr A kFactor = static_cast<A>(sizeof(A) == 4 ? 0x1p-32 : 0x1p-64);
  typename Simd<A>::UInt n;
  const auto p = ReduceExp<A>(AtLeast<A>(x, lowest), n);
  const auto power = BitCast<typename Simd<A>::Vec>((n + (C::kBias + kSecond)) << C::kMantissa);
  return p * power * kFactor;
}

// exp(x) for x <= 0, with 0 for every result below the normal numbers: processors take a hundred
// times longer for subnormal ones. NaN stays.
template <typename A>
inline typename Simd<A>::Vec ExpOrZero(typename Simd<A>::Vec x) {
  using Vec = typename Simd<A>::Vec;
  using C = ExpConstants<A>;
  const Vec lowest = Broadcast(C::kLowestNormal);
  typename Simd<A>::UInt n;
  const Vec p = ReduceExp<A>(AtLeast<A>(x, lowest), n);
  const Vec e = p * BitCast<Vec>((n + C::kBias) << C::kMantissa);
  return x < lowest ? Vec{} : e;
}

// The larger of x and y; y where x is NaN.
template <typename A>
inline typename Simd<A>::Vec Larger(typename Simd<A>::Vec x, typename Simd<A>::Vec y) {
#if defined(__AVX2__) && !defined(__AVX512F__)
  if constexpr (sizeof(A) == 4) return _mm256_max_ps(x, y);
#endif
  return x > y ? x : y;
}

// The x below which ExpOfNonPositive is 0.
template <typename A>
inline constexpr A kLowestExponent = sizeof(A) == 4 ? static_cast<A>(-105) : static_cast<A>(-746);

// 1 / (1 + exp(-z)), formed from t = exp(-|z|) so that nothing overflows: 1 / (1 + t) or t / (1 +
// t).
template <typename A>
inline typename Simd<A>::Vec Sigmoid(typename Simd<A>::Vec z) {
  using Vec = typename Simd<A>::Vec;
  using UInt = typename Simd<A>::UInt;
  const auto negative = BitCast<typename Simd<A>::Int>(z) < 0;
  const UInt sign = (UInt{} + 1) << (8 * sizeof(A) - 1);
  // For z > 0 a t below the last place of 1 is as good as 0; a subnormal one would only cost time.
  const Vec lowest = negative ? Broadcast(kLowestExponent<A>) : Broadcast(static_cast<A>(-40));
  const Vec t = ExpOfNonPositive<A>(BitCast<Vec>(BitCast<UInt>(z) | sign), lowest);
  const Vec one = Broadcast(static_cast<A>(1));
  return (negative ? t : one) / (one + t);
}

// What rounding a * b to the product `ab` has lost, exactly (where nothing underflows).
template <typename A>
inline typename Simd<A>::Vec ProductError(typename Simd<A>::Vec a, typename Simd<A>::Vec b,
                                          typename Simd<A>::Vec ab) {
#if defined(__AVX512F__)
  if constexpr (sizeof(A) == 4)
    return _mm512_fmsub_ps(a, b, ab);
  else
    return _mm512_fmsub_pd(a, b, ab);
#elif defined(__AVX2__) && defined(__FMA__)
  if constexpr (sizeof(A) == 4)
    return _mm256_fmsub_ps(a, b, ab);
  else
    return _mm256_fmsub_pd(a, b, ab);
#else
  // The products of halves of the significands are exact.
  using Vec = typename Simd<A>::Vec;
  using UInt = typename Simd<A>::UInt;
  const UInt upper = ~(((UInt{} + 1) << (sizeof(A) == 4 ? 12 : 27)) - 1);
  const Vec a_high = BitCast<Vec>(BitCast<UInt>(a) & upper), a_low = a - a_high;
  const Vec b_high = BitCast<Vec>(BitCast<UInt>(b) & upper), b_low = b - b_high;
  return ((a_high * b_high - ab) + (a_high * b_low + a_low * b_high)) + a_low * b_low;
#endif
}

// The normal distribution's tail below -x, for x >= 0: erfc(x / sqrt(2)) / 2. It is exp(-x^2 / 2)
// times a function that falls slowly from 1/2, here t * P(2 t - 1) with t = 1 / (1 + x / 4); P
// interpolates it at the Chebyshev points of [0, 15] (f32, degree 9, relative error below 2^-26)
// and [0, 40] (f64, degree 22, below 2^-54), beyond which the tail is 0. What rounding x^2 loses is
// given back as a factor: the tail keeps its relative precision as far as exp(-x^2 / 2) is a normal
// number (x = 13.2 and 37.6), and is 0 behind that.
template <typename A>
struct TailPolynomial;
template <>
struct TailPolynomial<float> {
  static constexpr float kEnd = 15;
  static constexpr float kCoefficients[] = {
      // highest power first
      0x1.0750a6p-15f, 0x1.8c5abcp-15f, -0x1.9abfa6p-12f, -0x1.cd803ep-11f, 0x1.ed2f4ep-10f,
      0x1.eed8f4p-7f,  0x1.7dffeep-5f,  0x1.8c6d90p-4f,   0x1.373e38p-3f,   0x1.82b4bcp-3f};
};
template <>
struct TailPolynomial<double> {
  static constexpr double kEnd = 40;
  static constexpr double kCoefficients[] = {
      -0x1.129ec47f6a0a6p-32, 0x1.6539b554097c0p-39, 0x1.e03ad77f5e906p-29, -0x1.fdfb0b3351b0dp-29,
      -0x1.47e88e32b035ep-26, 0x1.4c0b11aec08afp-25, 0x1.1afa2d60d4048p-24, -0x1.11d2c4c75e533p-22,
      -0x1.4f8a115316eb1p-23, 0x1.8d37df4ae41f3p-20, 0x1.7fd3586e1dc36p-23, -0x1.26cfa080da321p-17,
      -0x1.001100120093ap-21, 0x1.e4a416c8b21ebp-15, 0x1.17a4a6244ab27p-15, -0x1.ab825f813220cp-12,
      -0x1.c81719c9c6173p-11, 0x1.ee276103553f4p-10, 0x1.eec4cc3e44934p-7,  0x1.7dff2bff6887ep-5,
      0x1.8c6dbf2cfc306p-4,   0x1.373e3a893c287p-3,  0x1.82b4bb8c94dcep-3};
};

template <typename A>
inline typename Simd<A>::Vec NormalTail(typename Simd<A>::Vec x) {
  using Vec = typename Simd<A>::Vec;
  using Polynomial = TailPolynomial<A>;
  constexpr A kHalf = static_cast<A>(0.5);
  x = AtMost<A>(x, Polynomial::kEnd);  // infinity would give NaN
  const Vec one = Broadcast(static_cast<A>(1));
  const Vec t = one / (x * static_cast<A>(0.25) + one);
  const Vec u = t + t - one;
  Vec p = Broadcast(Polynomial::kCoefficients[0]);
  constexpr int kCount = sizeof(Polynomial::kCoefficients) / sizeof(A);
#pragma GCC unroll 32
  for (int i = 1; i < kCount; ++i) p = p * u + Polynomial::kCoefficients[i];
  const Vec square = x * x;
  const Vec lost = ProductError<A>(x, x, square);
  const Vec e = ExpOrZero<A>(square * -kHalf);
  return e * (p * t) * (one - lost * kHalf);
}

// The normal distribution function: (1 + erf(x / sqrt(2))) / 2.
template <typename A>
inline typename Simd<A>::Vec NormalCdf(typename Simd<A>::Vec x) {
  using Vec = typename Simd<A>::Vec;
  using UInt = typename Simd<A>::UInt;
  const UInt sign = (UInt{} + 1) << (8 * sizeof(A) - 1);
  const Vec tail = NormalTail<A>(BitCast<Vec>(BitCast<UInt>(x) & ~sign));
  return x < 0 ? tail : static_cast<A>(1) - tail;
}

}  // namespace liger::cpu::LIGER_ISA
