// y at a = a * cos - b * sin;  y at b = b * cos + a * sin, for the pairs (a, b) of each head's
// vector.
//
// x, y: rows of head_dim elements of T; cos, sin: rows of rotary_dim or rotary_dim / 2 elements of
// S. One row is one head at one position. Read: x, and the table row, which stays in cache over the
// heads of a position (or the positions of a head); written: y.
#include "rope.h"

#include "simd.h"

namespace liger::cpu::LIGER_ISA {
namespace {

template <typename A, typename T, typename S, bool kInterleaved, bool kFullTable>
struct Rotation {
  using Vec = typename Simd<A>::Vec;
  static constexpr int kLanes = Simd<A>::kLanes;
  static constexpr LaneIndices<A> kIndices{};

  // The table's values for pairs [i, i + n).
  template <bool kPart>
  static Vec Table(const S* table, int64_t i, int n) {
    if constexpr (kInterleaved && kFullTable) {
      Vec low, high;
      LoadPairs<kPart>(table + 2 * i, n, low, high);
      return EvenLanes(low, high, kIndices);
    } else {
      return LoadSome<kPart, A>(table + i, n);
    }
  }

  // 2 n elements as two vectors.
  template <bool kPart, typename E>
  static void LoadPairs(const E* p, int n, Vec& low, Vec& high) {
    if constexpr (kPart) {
      low = 2 * n < kLanes ? LoadPart<A>(p, 2 * n) : Load<A>(p);
      high = 2 * n > kLanes ? LoadPart<A>(p + kLanes, 2 * n - kLanes) : Vec{};
    } else {
      low = Load<A>(p);
      high = Load<A>(p + kLanes);
    }
  }

  template <bool kPart>
  static void StorePairs(T* p, int n, Vec low, Vec high) {
    if constexpr (kPart) {
      StorePart<A>(p, low, 2 * n < kLanes ? 2 * n : kLanes);
      if (2 * n > kLanes) StorePart<A>(p + kLanes, high, 2 * n - kLanes);
    } else {
      Store<A>(p, low);
      Store<A>(p + kLanes, high);
    }
  }

  template <bool kPart>
  static void At(const T* x, const S* cos, const S* sin, T* y, int64_t half, int64_t i, int n) {
    const Vec c = Table<kPart>(cos, i, n);
    const Vec s = Table<kPart>(sin, i, n);
    if constexpr (kInterleaved) {
      Vec low, high;
      LoadPairs<kPart>(x + 2 * i, n, low, high);
      const Vec a = EvenLanes(low, high, kIndices);
      const Vec b = OddLanes(low, high, kIndices);
      const Vec ya = a * c - b * s;
      const Vec yb = b * c + a * s;
      StorePairs<kPart>(y + 2 * i, n, ZipLow(ya, yb, kIndices), ZipHigh(ya, yb, kIndices));
    } else {
      const Vec a = LoadSome<kPart, A>(x + i, n);
      const Vec b = LoadSome<kPart, A>(x + half + i, n);
      StoreSome<kPart, A>(y + i, a * c - b * s, n);
      StoreSome<kPart, A>(y + half + i, b * c + a * s, n);
    }
  }

  static void Row(const T* x, const S* cos, const S* sin, T* y, int64_t half) {
    int64_t i = 0;
    for (; i + kLanes <= half; i += kLanes) At<false>(x, cos, sin, y, half, i, kLanes);
    if (i < half) At<true>(x, cos, sin, y, half, i, static_cast<int>(half - i));
  }
};

template <typename T>
void Copy(const T* from, T* to, int64_t size) {
  if (from != to && size > 0) __builtin_memmove(to, from, static_cast<uint64_t>(size) * sizeof(T));
}

// Rows [begin, end) of one tensor with the given number of heads.
template <typename A, typename T, typename S, bool kInterleaved, bool kFullTable>
void Rows(const LigerRopeArgs& args, const T* x, T* y, int64_t heads, int64_t begin, int64_t end) {
  if (begin >= end) return;
  const bool heads_first = args.layout == LIGER_HEADS_FIRST;
  const int64_t inner = heads_first ? args.sequence : heads;
  const int64_t outer = heads_first ? heads : args.sequence;
  int64_t in = begin % inner;
  int64_t out = begin / inner % outer;
  int64_t batch = begin / inner / outer;
  const int64_t rotary_end = args.rotary_offset + args.rotary_dim;
  for (int64_t row = begin; row < end; ++row) {
    const int64_t position = heads_first ? in : out;
    const T* from = x + row * args.head_dim;
    T* to = y + row * args.head_dim;
    const S* cos = static_cast<const S*>(args.cos) + batch * args.cos_batch_stride +
                   position * args.cos_sequence_stride;
    const S* sin = static_cast<const S*>(args.sin) + batch * args.sin_batch_stride +
                   position * args.sin_sequence_stride;
    Copy(from, to, args.rotary_offset);
    Rotation<A, T, S, kInterleaved, kFullTable>::Row(from + args.rotary_offset, cos, sin,
                                                     to + args.rotary_offset, args.rotary_dim / 2);
    Copy(from + rotary_end, to + rotary_end, args.head_dim - rotary_end);
    if (++in == inner) {
      in = 0;
      if (++out == outer) {
        out = 0;
        ++batch;
      }
    }
  }
}

template <typename A, typename T, typename S, bool kInterleaved, bool kFullTable>
void BothTensors(const LigerRopeArgs& args, int64_t begin, int64_t end) {
  const int64_t first = args.batch * args.sequence * args.heads;  // rows of x
  Rows<A, T, S, kInterleaved, kFullTable>(args, static_cast<const T*>(args.x),
                                          static_cast<T*>(args.y), args.heads, begin,
                                          end < first ? end : first);
  if (args.second_x == nullptr) return;
  Rows<A, T, S, kInterleaved, kFullTable>(args, static_cast<const T*>(args.second_x),
                                          static_cast<T*>(args.second_y), args.second_heads,
                                          begin < first ? 0 : begin - first, end - first);
}

template <typename A, typename T, typename S>
void DispatchForm(const LigerRopeArgs& args, int64_t begin, int64_t end) {
  if (args.interleaved == 0) return BothTensors<A, T, S, false, false>(args, begin, end);
  if (args.full_table == 0) return BothTensors<A, T, S, true, false>(args, begin, end);
  BothTensors<A, T, S, true, true>(args, begin, end);
}

template <typename T, typename S>
void DispatchArithmetic(const LigerRopeArgs& args, int64_t begin, int64_t end) {
  if constexpr (sizeof(T) == 8) {
    DispatchForm<double, T, S>(args, begin, end);
  } else if (args.stash_type == LIGER_F64) {
    DispatchForm<double, T, S>(args, begin, end);
  } else {
    DispatchForm<float, T, S>(args, begin, end);
  }
}

template <typename T>
void DispatchTable(const LigerRopeArgs& args, int64_t begin, int64_t end) {
  if (args.table_dtype == args.dtype) return DispatchArithmetic<T, T>(args, begin, end);
  DispatchArithmetic<T, F32>(args, begin, end);
}

}  // namespace

void Rope(const LigerRopeArgs& args, int64_t begin, int64_t end) {
  switch (args.dtype) {
    case LIGER_F16:
      return DispatchTable<F16>(args, begin, end);
    case LIGER_BF16:
      return DispatchTable<BF16>(args, begin, end);
    case LIGER_F64:
      return DispatchTable<F64>(args, begin, end);
    default:
      return DispatchArithmetic<F32, F32>(args, begin, end);
  }
}

}  // namespace liger::cpu::LIGER_ISA
