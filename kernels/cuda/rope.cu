// y at a = a * cos - b * sin;  y at b = b * cos + a * sin, for the pairs (a, b) of each head's
// vector, of one tensor or of two that share their tables.
//
// A group of threads works on one position, the heads of both tensors side by side: a thread takes
// one vector of 16 bytes of each half (two neighbours if interleaved), loads the table values for it
// once, and rotates that vector of two heads. Where there is too little work to fill the device it
// rotates one, and each tensor has blocks of its own. The halves of a head are read in whole lines in every layout. Columns that are not
// rotated are copied vector by vector, or stay where y is x. Bytes moved: x and y once, the tables
// once a position; the memory is what limits it.
#include <cuda_runtime.h>

#include "check.h"
#include "launch.h"
#include "vec.cuh"

namespace liger::cuda {
namespace {

struct Tensor {
  const void* x;
  void* y;
  int64_t heads;
  int64_t batch_stride;  // all strides in elements
  int64_t sequence_stride;
  int64_t head_stride;
};

struct Table {
  const void* values;
  int64_t batch_stride;
  int64_t sequence_stride;
};

struct Rotation {
  Tensor first;
  Tensor second;
  Table cos;
  Table sin;
  int64_t batch;
  int64_t sequence;
  uint32_t units_reciprocal;  // RopeVectors: 2^32 over the items of a head, rounded up
  int head_dim;
  int half;  // of the rotated columns
  int offset;
  bool table_is_f32;
  bool full_table;
  bool interleaved;
};

// Where one head of one position stands. kBoth: heads count on from the first tensor into the second;
// else a block works on one of them, by blockIdx.z.
template <typename T, bool kBoth>
struct Head {
  const T* x;
  T* y;

  __device__ __forceinline__ Head(const Rotation& p, int64_t batch, int64_t sequence,
                                  int64_t head) {
    const bool in_first = kBoth ? head < p.first.heads : blockIdx.z == 0;
    const Tensor& tensor = in_first ? p.first : p.second;
    const int64_t at = batch * tensor.batch_stride + sequence * tensor.sequence_stride +
                       (kBoth && !in_first ? head - p.first.heads : head) * tensor.head_stride;
    x = static_cast<const T*>(tensor.x) + at;
    y = static_cast<T*>(tensor.y) + at;
  }
};

// kVecSize<T> values from `column` of the table's row for a position.
template <typename T>
__device__ __forceinline__ void LoadTable(const Table& table, bool is_f32, int64_t batch,
                                          int64_t sequence, int column, float (&v)[kVecSize<T>]) {
  const int64_t at = batch * table.batch_stride + sequence * table.sequence_stride + column;
  if (sizeof(T) == 2 && is_f32) {
    const float* from = static_cast<const float*>(table.values) + at;
#pragma unroll
    for (int j = 0; j < kVecSize<T>; j += 4) {
      const uint4 bits = LoadVec(from + j);
      v[j] = __uint_as_float(bits.x);
      v[j + 1] = __uint_as_float(bits.y);
      v[j + 2] = __uint_as_float(bits.z);
      v[j + 3] = __uint_as_float(bits.w);
    }
  } else {
    Unpack<T>(LoadVec(static_cast<const T*>(table.values) + at), v);
  }
}

// The values for the pairs [pair, pair + kVecSize<T>).
template <typename T, bool kInterleaved>
__device__ __forceinline__ void LoadPairs(const Rotation& p, const Table& table, int64_t batch,
                                          int64_t sequence, int pair, float (&v)[kVecSize<T>]) {
  constexpr int kSize = kVecSize<T>;
  if (kInterleaved && p.full_table) {
    float low[kSize], high[kSize];
    LoadTable<T>(table, p.table_is_f32, batch, sequence, 2 * pair, low);
    LoadTable<T>(table, p.table_is_f32, batch, sequence, 2 * pair + kSize, high);
#pragma unroll
    for (int j = 0; j < kSize / 2; ++j) {
      v[j] = low[2 * j];
      v[kSize / 2 + j] = high[2 * j];
    }
  } else {
    LoadTable<T>(table, p.table_is_f32, batch, sequence, pair, v);
  }
}

// Rotates two vectors: the halves' (a, b), or two neighbours that hold pairs.
template <typename T, bool kInterleaved>
__device__ __forceinline__ void Rotate(uint4& first, uint4& second, const float (&c)[kVecSize<T>],
                                       const float (&s)[kVecSize<T>]) {
  constexpr int kSize = kVecSize<T>;
  float a[kSize], b[kSize];
  Unpack<T>(first, a);
  Unpack<T>(second, b);
  if constexpr (kInterleaved) {
#pragma unroll
    for (int j = 0; j < kSize / 2; ++j) {
      const float even = a[2 * j], odd = a[2 * j + 1];
      a[2 * j] = even * c[j] - odd * s[j];
      a[2 * j + 1] = odd * c[j] + even * s[j];
      const float even_b = b[2 * j], odd_b = b[2 * j + 1];
      b[2 * j] = even_b * c[kSize / 2 + j] - odd_b * s[kSize / 2 + j];
      b[2 * j + 1] = odd_b * c[kSize / 2 + j] + even_b * s[kSize / 2 + j];
    }
  } else {
#pragma unroll
    for (int j = 0; j < kSize; ++j) {
      const float from_a = a[j], from_b = b[j];
      a[j] = from_a * c[j] - from_b * s[j];
      b[j] = from_b * c[j] + from_a * s[j];
    }
  }
  first = Pack<T>(a);
  second = Pack<T>(b);
}

inline constexpr int kMaxThreads = 512;

// blockDim: (items of a position, positions of a block). An item is one vector pair, or one vector
// to copy, of kHeads heads.
template <typename T, bool kInterleaved, int kHeads>
__global__ void __launch_bounds__(kMaxThreads, 2) RopeVectors(const __grid_constant__ Rotation p) {
  constexpr int kSize = kVecSize<T>;
  const int64_t sequence = static_cast<int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
  if (sequence >= p.sequence) return;
  const int64_t batch = blockIdx.y;

  const unsigned pairs = static_cast<unsigned>(p.half / kSize);
  const unsigned copies = static_cast<unsigned>((p.head_dim - 2 * p.half) / kSize);
  const unsigned units = pairs + copies;
  constexpr bool kBoth = kHeads > 1;
  const int64_t heads = kBoth             ? p.first.heads + p.second.heads
                        : blockIdx.z == 0 ? p.first.heads
                                          : p.second.heads;
  const unsigned items = static_cast<unsigned>((heads + kHeads - 1) / kHeads) * units;
  for (unsigned item = threadIdx.x; item < items; item += blockDim.x) {
    const unsigned group = units == 1 ? item : __umulhi(item, p.units_reciprocal);
    const unsigned unit = item - group * units;
    const int64_t head = static_cast<int64_t>(group) * kHeads;
    if (unit < pairs) {
      const int first = p.offset + static_cast<int>(unit) * (kInterleaved ? 2 * kSize : kSize);
      const int second = first + (kInterleaved ? kSize : p.half);
      uint4 a[kHeads], b[kHeads];
      T* y[kHeads];
#pragma unroll
      for (int i = 0; i < kHeads; ++i) {
        if (kBoth && head + i >= heads) continue;
        const Head<T, kBoth> at(p, batch, sequence, head + i);
        y[i] = at.y;
        a[i] = LoadVec(at.x + first);
        b[i] = LoadVec(at.x + second);
      }
      float c[kSize], s[kSize];
      const int pair = static_cast<int>(unit) * kSize;
      LoadPairs<T, kInterleaved>(p, p.cos, batch, sequence, pair, c);
      LoadPairs<T, kInterleaved>(p, p.sin, batch, sequence, pair, s);
#pragma unroll
      for (int i = 0; i < kHeads; ++i) {
        if (kBoth && head + i >= heads) continue;
        Rotate<T, kInterleaved>(a[i], b[i], c, s);
        StoreVec(y[i] + first, a[i]);
        StoreVec(y[i] + second, b[i]);
      }
    } else {
      int column = static_cast<int>(unit - pairs) * kSize;
      if (column >= p.offset) column += 2 * p.half;
#pragma unroll
      for (int i = 0; i < kHeads; ++i) {
        if (head + i >= heads) continue;
        const Head<T, kBoth> at(p, batch, sequence, head + i);
        if (at.y != at.x) StoreVec(at.y + column, LoadVec(at.x + column));
      }
    }
  }
}

// Any size, alignment and dtype: a thread rotates one pair, or copies one element.
template <typename T, typename A>
__global__ void __launch_bounds__(256) RopeElements(const __grid_constant__ Rotation p) {
  const int copies = p.head_dim - 2 * p.half;
  const int64_t units = p.half + copies;
  const int64_t heads = p.first.heads + p.second.heads;
  const int64_t index = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (index >= p.batch * p.sequence * heads * units) return;
  const int64_t row = index / units;
  const int unit = static_cast<int>(index - row * units);
  const int64_t position = row / heads;
  const int64_t batch = position / p.sequence;
  const int64_t sequence = position - batch * p.sequence;
  const Head<T, true> at(p, batch, sequence, row - position * heads);
  if (unit >= p.half) {
    int column = unit - p.half;
    if (column >= p.offset) column += 2 * p.half;
    if (at.y != at.x) at.y[column] = at.x[column];
    return;
  }
  const auto value = [&](const Table& table) {
    const int column = p.interleaved && p.full_table ? 2 * unit : unit;
    const int64_t i = batch * table.batch_stride + sequence * table.sequence_stride + column;
    return p.table_is_f32 ? To<A>(static_cast<const float*>(table.values)[i])
                          : To<A>(static_cast<const T*>(table.values)[i]);
  };
  const int first = p.offset + (p.interleaved ? 2 * unit : unit);
  const int second = first + (p.interleaved ? 1 : p.half);
  const A a = To<A>(at.x[first]), b = To<A>(at.x[second]);
  const A c = value(p.cos), s = value(p.sin);
  at.y[first] = RoundTo<T>::Of(a * c - b * s);
  at.y[second] = RoundTo<T>::Of(b * c + a * s);
}

template <typename T, typename A>
LigerStatus LaunchElements(const Rotation& p, LigerCudaStream stream) {
  constexpr int kThreads = 256;
  const int64_t size =
      p.batch * p.sequence * (p.first.heads + p.second.heads) * (p.head_dim - p.half);
  return Launch(RopeElements<T, A>,
                {.grid = (size + kThreads - 1) / kThreads, .block = kThreads, .stream = stream}, p);
}

// So few that items times the error of the reciprocal stay below 2^32.
inline constexpr int64_t kMaxHeads = 4096;

template <typename T>
LigerStatus LaunchVectors(Rotation p, LigerCudaStream stream) {
  Device device;
  if (const LigerStatus status = CurrentDevice(device)) return status;
  const int64_t units = (p.head_dim - p.half) / kVecSize<T>;  // pairs and vectors to copy
  p.units_reciprocal = static_cast<uint32_t>(((int64_t{1} << 32) + units - 1) / units);
  const int64_t heads = p.first.heads + p.second.heads;
  const bool fills = p.batch * p.sequence > 2 * device.multiprocessors;
  const int64_t most = p.first.heads > p.second.heads ? p.first.heads : p.second.heads;
  const int64_t items = fills ? (heads + 1) / 2 * units : most * units;
  constexpr int kMinThreads = 128;
  const int width = static_cast<int>(items < kMaxThreads ? items : kMaxThreads);
  const int rows = width < kMinThreads ? kMinThreads / width : 1;
  const auto launch = [&](auto kernel) {
    return Launch(kernel,
                  {.grid = (p.sequence + rows - 1) / rows,
                   .grid_rows = p.batch,
                   .grid_layers = fills || p.second.heads == 0 ? 1 : 2,
                   .block = width,
                   .block_rows = rows,
                   .stream = stream},
                  p);
  };
  if (p.interleaved) {
    return fills ? launch(RopeVectors<T, true, 2>) : launch(RopeVectors<T, true, 1>);
  }
  return fills ? launch(RopeVectors<T, false, 2>) : launch(RopeVectors<T, false, 1>);
}

template <typename T>
LigerStatus LaunchOf(const LigerRopeArgs& args, const Rotation& p, LigerCudaStream stream) {
  if constexpr (sizeof(T) == 8) {
    return LaunchElements<T, double>(p, stream);
  } else {
    if (args.stash_type == LIGER_F64) return LaunchElements<T, double>(p, stream);
    constexpr int kSize = kVecSize<T>;
    const bool vectors =
        p.half > 0 && p.half % kSize == 0 && p.offset % kSize == 0 && p.head_dim % kSize == 0 &&
        p.sequence <= kMaxGrid && p.batch <= kMaxGridRows &&
        args.heads + args.second_heads <= kMaxHeads &&
        AreAligned(args.x, args.y, args.second_x, args.second_y, args.cos, args.sin);
    return vectors ? LaunchVectors<T>(p, stream) : LaunchElements<T, float>(p, stream);
  }
}

Tensor TensorOf(const LigerRopeArgs& args, const void* x, void* y, int64_t heads) {
  Tensor tensor = {};
  tensor.x = x;
  tensor.y = y;
  tensor.heads = heads;
  tensor.batch_stride = args.sequence * heads * args.head_dim;
  if (args.layout == LIGER_HEADS_FIRST) {
    tensor.head_stride = args.sequence * args.head_dim;
    tensor.sequence_stride = args.head_dim;
  } else {
    tensor.head_stride = args.head_dim;
    tensor.sequence_stride = heads * args.head_dim;
  }
  return tensor;
}

}  // namespace
}  // namespace liger::cuda

LigerStatus LigerCudaRope(const LigerRopeArgs* args, LigerCudaStream stream) {
  using namespace liger::cuda;
  if (const LigerStatus status = liger::Check(*args)) return status;
  if (LigerRopeRows(args) == 0 || args->head_dim == 0) return LIGER_OK;
  if (args->head_dim > 0x3fffffff) return LIGER_BAD_SHAPE;

  Rotation p = {};
  p.first = TensorOf(*args, args->x, args->y, args->heads);
  p.second = TensorOf(*args, args->second_x, args->second_y, args->second_heads);
  p.cos = {args->cos, args->cos_batch_stride, args->cos_sequence_stride};
  p.sin = {args->sin, args->sin_batch_stride, args->sin_sequence_stride};
  p.batch = args->batch;
  p.sequence = args->sequence;
  p.head_dim = static_cast<int>(args->head_dim);
  p.half = static_cast<int>(args->rotary_dim / 2);
  p.offset = static_cast<int>(args->rotary_offset);
  p.table_is_f32 = args->table_dtype == LIGER_F32;
  p.full_table = args->full_table != 0;
  p.interleaved = args->interleaved != 0;
  switch (args->dtype) {
    case LIGER_F16:
      return LaunchOf<F16>(*args, p, stream);
    case LIGER_BF16:
      return LaunchOf<BF16>(*args, p, stream);
    case LIGER_F64:
      return LaunchOf<F64>(*args, p, stream);
    default:
      return LaunchOf<F32>(*args, p, stream);
  }
}
