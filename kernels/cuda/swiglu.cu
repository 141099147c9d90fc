// y = a * (u + up_offset), a = g * sigmoid(alpha * g), g = min(gate * gate_multiplier, limit),
// u = clamp(up, -limit, limit)
//
// Loops: gated.cuh. The memory is what limits it.
#include <limits>

#include "check.h"
#include "gated.cuh"

namespace liger::cuda {
namespace {

// alpha and gate_multiplier are 1, limit and up_offset 0, as in nearly every model.
template <typename T, typename A>
struct Plain {
  bool round_activation;

  __device__ __forceinline__ A operator()(A gate, A up) const {
    return RoundedIf<T>(round_activation, gate * Sigmoid<T>(gate)) * up;
  }
};

template <typename T, typename A>
struct General {
  A alpha;
  A gate_multiplier;
  A limit;  // infinity: none
  A up_offset;
  bool round_activation;

  __device__ __forceinline__ A operator()(A gate, A up) const {
    const A g = AtMost(gate * gate_multiplier, limit);
    const A u = AtLeast(AtMost(up, limit), -limit);
    return RoundedIf<T>(round_activation, g * Sigmoid<T>(g * alpha)) * (u + up_offset);
  }
};

template <typename T, typename A>
General<T, A> GeneralOf(const LigerSwiGluArgs& args, bool round_activation) {
  const A limit = args.limit > 0 ? static_cast<A>(args.limit) : std::numeric_limits<A>::infinity();
  return {static_cast<A>(args.alpha), static_cast<A>(args.gate_multiplier), limit,
          static_cast<A>(args.up_offset), round_activation};
}

template <typename T>
LigerStatus LaunchOf(const LigerSwiGluArgs& args, LigerCudaStream stream) {
  if (sizeof(T) == 8 || args.stash_type == LIGER_F64) {
    return LaunchGatedElements<T, double>(args, GeneralOf<T, double>(args, false), stream);
  }
  if constexpr (sizeof(T) < 8) {
    const bool round_activation = sizeof(T) == 2 && args.stash_type == LIGER_F32;
    const bool is_plain =
        args.alpha == 1 && args.gate_multiplier == 1 && args.limit == 0 && args.up_offset == 0;
    if (is_plain) return LaunchGated<T>(args, Plain<T, float>{round_activation}, stream);
    return LaunchGated<T>(args, GeneralOf<T, float>(args, round_activation), stream);
  }
  return LIGER_OK;
}

}  // namespace
}  // namespace liger::cuda

LigerStatus LigerCudaSwiGlu(const LigerSwiGluArgs* args, LigerCudaStream stream) {
  using namespace liger::cuda;
  if (const LigerStatus status = liger::Check(*args)) return status;
  if (args->rows == 0 || args->width == 0) return LIGER_OK;
  switch (args->dtype) {
    case LIGER_F16:
      return LaunchOf<F16>(*args, stream);
    case LIGER_BF16:
      return LaunchOf<BF16>(*args, stream);
    case LIGER_F64:
      return LaunchOf<F64>(*args, stream);
    default:
      return LaunchOf<F32>(*args, stream);
  }
}
