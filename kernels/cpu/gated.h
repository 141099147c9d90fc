// The loops of the gated activations: y = activation(gate, up), element by element, with gate and
// up in any packing.
//
//   ForEachGated<A, T>(args, begin, end, [](Vec gate, Vec up) { return gate * up; });
//
// gate, up, y: [rows, width] of T, or one tensor [rows, 2 * width] that holds gate and up. The work
// is counted in elements of y, so that a single long row can be shared among threads. Read once:
// gate, up; written: y.
#pragma once

#include "liger/packing.h"
#include "simd.h"

namespace liger::cpu::LIGER_ISA {

template <typename A, typename T, typename Apply>
inline void GatedSeparate(const T* gate, const T* up, T* y, int64_t size, Apply apply) {
  constexpr int kLanes = Simd<A>::kLanes;
  int64_t i = 0;
  for (; i + kLanes <= size; i += kLanes) {
    Store<A>(y + i, apply(Load<A>(gate + i), Load<A>(up + i)));
  }
  if (i < size) {
    const int n = static_cast<int>(size - i);
    StorePart<A>(y + i, apply(LoadPart<A>(gate + i, n), LoadPart<A>(up + i, n)), n);
  }
}

// pairs: gate and up by turns, 2 * size elements
template <typename A, typename T, typename Apply>
inline void GatedInterleaved(const T* pairs, T* y, int64_t size, Apply apply) {
  constexpr int kLanes = Simd<A>::kLanes;
  constexpr LaneIndices<A> kIndices{};
  int64_t i = 0;
  for (; i + kLanes <= size; i += kLanes) {
    const auto low = Load<A>(pairs + 2 * i);
    const auto high = Load<A>(pairs + 2 * i + kLanes);
    Store<A>(y + i, apply(EvenLanes(low, high, kIndices), OddLanes(low, high, kIndices)));
  }
  for (; i < size; ++i) {
    StorePart<A>(y + i, apply(LoadPart<A>(pairs + 2 * i, 1), LoadPart<A>(pairs + 2 * i + 1, 1)), 1);
  }
}

// Args has gate, up, y, width and packed.
template <typename A, typename T, typename Args, typename Apply>
inline void ForEachGated(const Args& args, int64_t begin, int64_t end, Apply apply) {
  const T* gate = static_cast<const T*>(args.gate);
  T* y = static_cast<T*>(args.y);
  if (args.packed == LIGER_NOT_PACKED) {
    GatedSeparate<A>(gate + begin, static_cast<const T*>(args.up) + begin, y + begin, end - begin,
                     apply);
    return;
  }
  if (args.packed == LIGER_INTERLEAVED) {  // rows of pairs behind each other are pairs again
    GatedInterleaved<A>(gate + 2 * begin, y + begin, end - begin, apply);
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
      GatedSeparate<A>(first, second, y + begin, size, apply);
    } else {
      GatedSeparate<A>(second, first, y + begin, size, apply);
    }
    begin += size;
  }
}

}  // namespace liger::cpu::LIGER_ISA
