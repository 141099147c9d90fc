// n = (x - mean) / sqrt(variance + epsilon), y = n * scale[c] + bias[c], with the statistics of
// each group of channels
//
// x, y: [batch, channels, spatial] of T, in which a group is one piece; scale, bias: [channels] of
// S. One group at a time in three passes: the mean, the centred squares, the product, channel by
// channel. Read three times, mostly from cache: x; written: y.
#include "group_norm.h"

#include "scaled_norm.h"

namespace liger::cpu::LIGER_ISA {
namespace {

template <typename A, typename T, typename S, Rounding kRounding>
void Groups(const LigerGroupNormArgs& args, int64_t begin, int64_t end) {
  const int64_t channels = args.channels / args.num_groups;  // of one group
  const int64_t spatial = args.spatial;
  const int64_t size = channels * spatial;
  if (size == 0) return;
  for (int64_t group = begin; group < end; ++group) {
    const T* x = static_cast<const T*>(args.x) + group * size;
    T* y = static_cast<T*>(args.y) + group * size;
    const int64_t first = group % args.num_groups * channels;
    const S* scale = static_cast<const S*>(args.scale) + first;
    const S* bias = static_cast<const S*>(args.bias) + first;
    const Normaliser<A, T, S, kRounding> normaliser(
        MomentsOf<A>(size, LoadStep<A, T>{x, nullptr}, x), args.epsilon);
    if (spatial == 1) {
      normaliser.Row(x, y, size, scale, bias);
      continue;
    }
    for (int64_t c = 0; c < channels; ++c) {
      normaliser.Channel(x + c * spatial, y + c * spatial, spatial, scale + c, bias + c);
    }
  }
}

}  // namespace

void GroupNorm(const LigerGroupNormArgs& args, int64_t begin, int64_t end) {
  DispatchNorm(args, [&]<typename A, typename T, typename S, Rounding kRounding>() {
    Groups<A, T, S, kRounding>(args, begin, end);
  });
}

}  // namespace liger::cpu::LIGER_ISA
