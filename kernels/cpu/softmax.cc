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

  static Vec Larger(Vec a, Vec b) { return a > b ? a : b; }

  // NaN is passed over: its exponential makes the sum NaN.
  A Largest() const {
    Vec a = Broadcast(static_cast<A>(-__builtin_inf())), b = a;
    int64_t i = 0;
    for (; i + 2 * kLanes <= size; i += 2 * kLanes) {
      a = Larger(Load<A>(x + i), a);
      b = Larger(Load<A>(x + i + kLanes), b);
    }
    a = Larger(a, b);
    for (; i + kLanes <= size; i += kLanes) a = Larger(Load<A>(x + i), a);
    A largest = a[0];
    for (int lane = 1; lane < kLanes; ++lane) largest = a[lane] > largest ? a[lane] : largest;
    if (i < size) {
      const int n = static_cast<int>(size - i);
      const Vec rest = LoadPart<A>(x + i, n);
      for (int lane = 0; lane < n; ++lane) largest = rest[lane] > largest ? rest[lane] : largest;
    }
    return largest;
  }

  template <bool kPart>
  Vec Exponentials(int64_t i, int n, A largest) const {
    return ExpOfNonPositive(LoadSome<kPart, A>(x + i, n) - largest, Broadcast(kLowestExponent<A>));
  }

  void Run() const {
    const A largest = Largest();
    Accumulator<A> sum;
    int64_t i = 0;
    for (; i + kLanes <= size; i += kLanes) {
      const Vec e = Exponentials<false>(i, kLanes, largest);
      if constexpr (kKeeps) Store<A>(y + i, e);
      sum.Add(e);
    }
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
