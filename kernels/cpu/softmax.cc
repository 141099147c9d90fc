// y = exp(x - max) / sum(exp(x - max)), row by row
//
// x, y: [rows, width] of T. Three passes over a row, the last two of which find it in cache: the
// largest element, the exponentials and their sum, the quotients. Where T holds the arithmetic's
// precision the exponentials wait in y; half types compute them a second time instead of rounding
// them twice. Read: x; written: y.
#include "softmax.h"

#include "row_sums.h"
#include "simd.h"

namespace liger::cpu::LIGER_ISA {
namespace {

template <typename A, typename T>
struct Row {
  using Vec = typename Simd<A>::Vec;
  static constexpr int kLanes = Simd<A>::kLanes;
  static constexpr bool kKeeps = sizeof(T) == sizeof(A);
  const T* x;
  T* y;
  int64_t size;

  // NaN is passed over: its exponential makes the sum NaN.
  A Largest() const {
    const Vec lowest = Broadcast(static_cast<A>(-__builtin_inf()));
    Vec m0 = lowest, m1 = lowest, m2 = lowest, m3 = lowest;
    int64_t i = 0;
    for (; i + 4 * kLanes <= size; i += 4 * kLanes) {
      m0 = Larger<A>(Load<A>(x + i), m0);
      m1 = Larger<A>(Load<A>(x + i + kLanes), m1);
      m2 = Larger<A>(Load<A>(x + i + 2 * kLanes), m2);
      m3 = Larger<A>(Load<A>(x + i + 3 * kLanes), m3);
    }
    for (; i + kLanes <= size; i += kLanes) m0 = Larger<A>(Load<A>(x + i), m0);
    m0 = Larger<A>(Larger<A>(m0, m1), Larger<A>(m2, m3));
    A largest = m0[0];
    for (int lane = 1; lane < kLanes; ++lane) largest = m0[lane] > largest ? m0[lane] : largest;
    if (i < size) {
      const int n = static_cast<int>(size - i);
      const Vec rest = LoadPart<A>(x + i, n);
      for (int lane = 0; lane < n; ++lane) largest = rest[lane] > largest ? rest[lane] : largest;
    }
    return largest;
  }

  template <bool kPart>
  Vec Exponentials(int64_t i, int n, A largest) const {
    return ExpOrZero<A>(LoadSome<kPart, A>(x + i, n) - largest);
  }

  void Run() const {
    const A largest = Largest();
    Accumulator<A> sum;
    int64_t i = 0;
    const auto whole = [&](int64_t at) {
      const Vec e = Exponentials<false>(at, kLanes, largest);
      if constexpr (kKeeps) Store<A>(y + at, e);
      return e;
    };
    for (; i + 4 * kLanes <= size; i += 4 * kLanes) {
      const Vec e0 = whole(i), e1 = whole(i + kLanes);
      const Vec e2 = whole(i + 2 * kLanes), e3 = whole(i + 3 * kLanes);
      sum.Add((e0 + e1) + (e2 + e3));
    }
    for (; i + kLanes <= size; i += kLanes) sum.Add(whole(i));
    if (i < size) {
      const int n = static_cast<int>(size - i);
      Vec e = Exponentials<true>(i, n, largest);
      if constexpr (kKeeps) StorePart<A>(y + i, e, n);
      for (int lane = n; lane < kLanes; ++lane) e[lane] = 0;
      sum.Add(e);
    }
    const Vec share = Broadcast(static_cast<A>(1 / Total(sum.Sum())));
    for (i = 0; i + kLanes <= size; i += kLanes) Finish<false>(i, kLanes, largest, share);
    if (i < size) Finish<true>(i, static_cast<int>(size - i), largest, share);
  }

  template <bool kPart>
  void Finish(int64_t i, int n, A largest, Vec share) const {
    const Vec e = kKeeps ? LoadSome<kPart, A>(static_cast<const T*>(y + i), n)
                         : Exponentials<kPart>(i, n, largest);
    StoreSome<kPart, A>(y + i, e * share, n);
  }
};

template <typename A, typename T>
void Rows(const LigerSoftmaxArgs& args, int64_t begin, int64_t end) {
  if (args.width == 0) return;
  for (int64_t row = begin; row < end; ++row) {
    Row<A, T>{static_cast<const T*>(args.x) + row * args.width,
              static_cast<T*>(args.y) + row * args.width, args.width}
        .Run();
  }
}

template <typename T>
void DispatchArithmetic(const LigerSoftmaxArgs& args, int64_t begin, int64_t end) {
  if constexpr (sizeof(T) < 8) {
    if (args.stash_type != LIGER_F64) return Rows<float, T>(args, begin, end);
  }
  Rows<double, T>(args, begin, end);
}

}  // namespace

void Softmax(const LigerSoftmaxArgs& args, int64_t begin, int64_t end) {
  switch (args.dtype) {
    case LIGER_F16:
      return DispatchArithmetic<F16>(args, begin, end);
    case LIGER_BF16:
      return DispatchArithmetic<BF16>(args, begin, end);
    case LIGER_F64:
      return DispatchArithmetic<F64>(args, begin, end);
    default:
      return DispatchArithmetic<F32>(args, begin, end);
  }
}

}  // namespace liger::cpu::LIGER_ISA
