// s = x + residual;  n = (s - mean) / sqrt(variance + epsilon);  y = n * scale + bias
//
// x, residual, y, sum: [rows, hidden_size] of T; scale, bias: [hidden_size] of S. One row at a time
// in three passes, the last two of which find the row in the first-level cache: the mean (and the
// residual's sum), the centred squares, the product. Read once per row: x, residual, scale, bias;
// written: y, sum.
#include "layer_norm.h"

#include "scaled_norm.h"

namespace liger::cpu::LIGER_ISA {
namespace {

template <typename A, typename T, typename S, Rounding kRounding>
void Rows(const LigerLayerNormArgs& args, int64_t begin, int64_t end) {
  const int64_t size = args.hidden_size;
  if (size == 0) return;
  const bool large = size * args.rows >= kLargeBytes / static_cast<int64_t>(sizeof(T));
  for (int64_t row = begin; row < end; ++row) {
    const T* x = static_cast<const T*>(args.x) + row * size;
    T* y = static_cast<T*>(args.y) + row * size;
    T* prefetch = large ? y : nullptr;
    Moments<A> moments;
    if (args.residual != nullptr) {
      const T* residual = static_cast<const T*>(args.residual) + row * size;
      // Without a place of its own the sum waits in y, which has the same dtype.
      T* sum = args.sum != nullptr ? static_cast<T*>(args.sum) + row * size : y;
      moments =
          MomentsOf<A>(size, AddStep<A, T>{x, residual, sum, prefetch}, static_cast<const T*>(sum));
      x = sum;
    } else if (large && sizeof(T) == sizeof(A)) {
      moments = MomentsOf<A>(size, CopyStep<A, T>{x, y}, static_cast<const T*>(y));
      x = y;
    } else {
      moments = MomentsOf<A>(size, LoadStep<A, T>{x, prefetch}, x);
    }
    Normaliser<A, T, S, kRounding>(moments, args.epsilon)
        .Row(x, y, size, static_cast<const S*>(args.scale), static_cast<const S*>(args.bias));
  }
}

}  // namespace

void LayerNorm(const LigerLayerNormArgs& args, int64_t begin, int64_t end) {
  DispatchNorm(args, [&]<typename A, typename T, typename S, Rounding kRounding>() {
    Rows<A, T, S, kRounding>(args, begin, end);
  });
}

}  // namespace liger::cpu::LIGER_ISA
