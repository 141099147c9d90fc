// y = a * (u + up_offset), a = g * sigmoid(alpha * g), g = min(gate * gate_multiplier, limit),
// u = clamp(up, -limit, limit)
//
// Shapes and loops: gated.h.
#include "swiglu.h"

#include "gated.h"
#include "simd.h"

namespace liger::cpu::LIGER_ISA {
namespace {

// kPlain: alpha and gate_multiplier are 1, limit and up_offset 0, as in nearly every model.
template <typename A, typename T, bool kRoundActivation, bool kPlain>
struct Activation {
  using Vec = typename Simd<A>::Vec;
  static constexpr Rounding kRounding =
      kRoundActivation && sizeof(T) == 2 ? kStorageRounding<T> : Rounding::kNone;
  A alpha;
  A gate_multiplier;
  A limit;
  A up_offset;

  Vec Apply(Vec gate, Vec up) const {
    if constexpr (kPlain) {
      return Round<kRounding, A>(gate * Sigmoid<A>(gate)) * up;
    } else {
      const Vec g = AtMost<A>(gate * gate_multiplier, limit);
      const Vec u = AtLeast<A>(AtMost<A>(up, limit), Broadcast(-limit));
      return Round<kRounding, A>(g * Sigmoid<A>(g * alpha)) * (u + up_offset);
    }
  }
};

template <typename A, typename T, bool kRoundActivation, bool kPlain>
void ElementsOf(const LigerSwiGluArgs& args, int64_t begin, int64_t end) {
  using Vec = typename Simd<A>::Vec;
  const A limit = args.limit > 0 ? static_cast<A>(args.limit) : static_cast<A>(__builtin_inf());
  const Activation<A, T, kRoundActivation, kPlain> activation{
      static_cast<A>(args.alpha), static_cast<A>(args.gate_multiplier), limit,
      static_cast<A>(args.up_offset)};
  ForEachGated<A, T>(args, begin, end,
                     [&](Vec gate, Vec up) { return activation.Apply(gate, up); });
}

template <typename A, typename T, bool kRoundActivation>
void Elements(const LigerSwiGluArgs& args, int64_t begin, int64_t end) {
  if (args.alpha == 1 && args.gate_multiplier == 1 && args.limit == 0 && args.up_offset == 0) {
    return ElementsOf<A, T, kRoundActivation, true>(args, begin, end);
  }
  ElementsOf<A, T, kRoundActivation, false>(args, begin, end);
}

template <typename T>
void DispatchHalf(const LigerSwiGluArgs& args, int64_t begin, int64_t end) {
  if (args.stash_type == LIGER_F64) return Elements<double, T, false>(args, begin, end);
  if (args.stash_type == LIGER_F32) return Elements<float, T, true>(args, begin, end);
  Elements<float, T, false>(args, begin, end);
}

}  // namespace

void SwiGlu(const LigerSwiGluArgs& args, int64_t begin, int64_t end) {
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
