// y = a * (u + up_offset), a = g * sigmoid(alpha * g), g = min(gate * gate_multiplier, limit),
// u = clamp(up, -limit, limit)
//
// gate, up, y: [rows, width] of T, or one tensor [rows, 2 * width] that holds gate and up. The work
// is counted in elements of y, so that a single long row can be shared among threads. Read once:
// gate, up; written: y.
#include "swiglu.h"

#include "simd.h"

namespace liger::cpu::LIGER_ISA {
namespace {

// kPlain: alpha and gate_multiplier are 1, limit and up_offset 0, as in nearly every model.
template <typename A, typename T, bool kRoundActivation, bool kPlain>
struct Activation {
  using Vec = typename Simd<A>::Vec;
  static constexpr int kLanes = Simd<A>::kLanes;
  static constexpr LaneIndices<A> kIndices{};
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

  void Separate(const T* gate, const T* up, T* y, int64_t size) const {
    int64_t i = 0;
    for (; i + kLanes <= size; i += kLanes) {
      Store<A>(y + i, Apply(Load<A>(gate + i), Load<A>(up + i)));
    }
    if (i < size) {
      const int n = static_cast<int>(size - i);
      StorePart<A>(y + i, Apply(LoadPart<A>(gate + i, n), LoadPart<A>(up + i, n)), n);
    }
  }

  // pairs: gate and up by turns, 2 * size elements
  void Interleaved(const T* pairs, T* y, int64_t size) const {
    int64_t i = 0;
    for (; i + kLanes <= size; i += kLanes) {
      const Vec low = Load<A>(pairs + 2 * i);
      const Vec high = Load<A>(pairs + 2 * i + kLanes);
      Store<A>(y + i, Apply(EvenLanes(low, high, kIndices), OddLanes(low, high, kIndices)));
    }
    for (; i < size; ++i) {
      StorePart<A>(y + i, Apply(LoadPart<A>(pairs + 2 * i, 1), LoadPart<A>(pairs + 2 * i + 1, 1)),
                   1);
    }
  }
};

template <typename A, typename T, bool kRoundActivation, bool kPlain>
void ElementsOf(const LigerSwiGluArgs& args, int64_t begin, int64_t end) {
  const A limit = args.limit > 0 ? static_cast<A>(args.limit) : static_cast<A>(__builtin_inf());
  const Activation<A, T, kRoundActivation, kPlain> activation{
      static_cast<A>(args.alpha), static_cast<A>(args.gate_multiplier), limit,
      static_cast<A>(args.up_offset)};
  const T* gate = static_cast<const T*>(args.gate);
  T* y = static_cast<T*>(args.y);
  if (args.packed == LIGER_NOT_PACKED) {
    activation.Separate(gate + begin, static_cast<const T*>(args.up) + begin, y + begin,
                        end - begin);
    return;
  }
  if (args.packed == LIGER_INTERLEAVED) {  // rows of pairs behind each other are pairs again
    activation.Interleaved(gate + 2 * begin, y + begin, end - begin);
    return;
  }
  const int64_t width = args.width;
  while (begin < end) {
    const int64_t row = begin / width;
    const int64_t column = begin % width;
    const int64_t size = width - column < end - begin ? width - column : end - begin;
    const T* first = gate + row * 2 * width + column;
    const T* second = first + width;
    if (args.packed == LIGER_GATE_UP) {
      activation.Separate(first, second, y + begin, size);
    } else {
      activation.Separate(second, first, y + begin, size);
    }
    begin += size;
  }
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
