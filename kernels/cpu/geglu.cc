// y = gelu(min(gate, limit)) * (clamp(up, -limit, limit) + up_offset)
//
// gelu(g) = g * p(g) in all three forms, with p between 0 and 1: a sigmoid, or the normal
// distribution function. (1 + tanh(z)) / 2 is sigmoid(2 z), hence for the tanh form
// p = sigmoid(g * (2 b + 2 a b g^2)). Shapes and loops: gated.h.
#include "geglu.h"

#include "gated.h"
#include "simd.h"

namespace liger::cpu::LIGER_ISA {
namespace {

// A constant as a graph holds that computes in `stash_type`.
template <typename A>
A ConstantIn(int32_t stash_type, double value) {
  const typename Simd<double>::Vec v = Broadcast(value);
  switch (stash_type) {
    case LIGER_F16:
      return static_cast<A>(Round<Rounding::kF16, double>(v)[0]);
    case LIGER_BF16:
      return static_cast<A>(Round<Rounding::kBF16, double>(v)[0]);
    case LIGER_F32:
      return static_cast<A>(static_cast<float>(value));
    default:
      return static_cast<A>(value);
  }
}

template <typename A>
struct TanhForm {
  using Vec = typename Simd<A>::Vec;
  A linear, cubic;
  explicit TanhForm(int32_t stash_type) {
    const A b = ConstantIn<A>(stash_type, 0.7978845608028654);
    linear = 2 * b;
    cubic = linear * ConstantIn<A>(stash_type, 0.044715);
  }
  Vec operator()(Vec g) const { return g * Sigmoid<A>(g * (g * g * cubic + linear)); }
};

template <typename A>
struct ExactForm {
  using Vec = typename Simd<A>::Vec;
  explicit ExactForm(int32_t) {}
  Vec operator()(Vec g) const { return g * NormalCdf<A>(g); }
};

template <typename A>
struct SigmoidForm {
  using Vec = typename Simd<A>::Vec;
  A alpha;
  explicit SigmoidForm(int32_t stash_type) : alpha(ConstantIn<A>(stash_type, 1.702)) {}
  Vec operator()(Vec g) const { return g * Sigmoid<A>(g * alpha); }
};

// kPlain: limit and up_offset are 0, as in nearly every model.
template <typename A, typename T, bool kRoundActivation, bool kPlain, typename Form>
void ElementsOf(const LigerGeGluArgs& args, int64_t begin, int64_t end) {
  using Vec = typename Simd<A>::Vec;
  constexpr Rounding kRounding =
      kRoundActivation && sizeof(T) == 2 ? kStorageRounding<T> : Rounding::kNone;
  const Form form(args.stash_type);
  const A limit = args.limit > 0 ? static_cast<A>(args.limit) : static_cast<A>(__builtin_inf());
  const A up_offset = static_cast<A>(args.up_offset);
  ForEachGated<A, T>(args, begin, end, [&](Vec gate, Vec up) {
    if constexpr (kPlain) {
      return Round<kRounding, A>(form(gate)) * up;
    } else {
      const Vec u = AtLeast<A>(AtMost<A>(up, limit), Broadcast(-limit));
      return Round<kRounding, A>(form(AtMost<A>(gate, limit))) * Round<kRounding, A>(u + up_offset);
    }
  });
}

template <typename A, typename T, bool kRoundActivation, typename Form>
void DispatchPlain(const LigerGeGluArgs& args, int64_t begin, int64_t end) {
  if constexpr (sizeof(A) == 4) {  // arithmetic in f64 is rare: one variant will do
    if (args.limit == 0 && args.up_offset == 0) {
      return ElementsOf<A, T, kRoundActivation, true, Form>(args, begin, end);
    }
  }
  ElementsOf<A, T, kRoundActivation, false, Form>(args, begin, end);
}

template <typename A, typename T, bool kRoundActivation>
void Elements(const LigerGeGluArgs& args, int64_t begin, int64_t end) {
  switch (args.form) {
    case LIGER_GELU_EXACT:
      return DispatchPlain<A, T, kRoundActivation, ExactForm<A>>(args, begin, end);
    case LIGER_GELU_SIGMOID:
      return DispatchPlain<A, T, kRoundActivation, SigmoidForm<A>>(args, begin, end);
    default:
      return DispatchPlain<A, T, kRoundActivation, TanhForm<A>>(args, begin, end);
  }
}

template <typename T>
void DispatchHalf(const LigerGeGluArgs& args, int64_t begin, int64_t end) {
  if (args.stash_type == LIGER_F64) return Elements<double, T, false>(args, begin, end);
  if (args.stash_type == LIGER_F32) return Elements<float, T, true>(args, begin, end);
  Elements<float, T, false>(args, begin, end);
}

}  // namespace

void GeGlu(const LigerGeGluArgs& args, int64_t begin, int64_t end) {
  switch (args.dtype) {
    case LIGER_F16:
      return DispatchHalf<F16>(args, begin, end);
    case LIGER_BF16:
      return DispatchHalf<BF16>(args, begin, end);
    case LIGER_F64:
      return Elements<double, F64, false>(args, begin, end);
    default:
      if (args.stash_type == LIGER_F64) return Elements<double, F32, false>(args, begin, end);
      return Elements<float, F32, false>(args, begin, end);
  }
}

}  // namespace liger::cpu::LIGER_ISA
