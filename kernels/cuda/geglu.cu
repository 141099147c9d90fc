// y = gelu(min(gate, limit)) * (clamp(up, -limit, limit) + up_offset)
//
// gelu(g) = g * p(g) in all three forms, with p between 0 and 1: a sigmoid, or the normal
// distribution function. (1 + tanh(z)) / 2 is sigmoid(2 z), hence for the tanh form
// p = sigmoid(g * (2 b + 2 a b g^2)). Loops: gated.cuh. The memory is what limits it: the tanh and
// erf of the instruction set's libraries would not keep up with it.
#include <limits>

#include "check.h"
#include "gated.cuh"
#include "scaled.cuh"

namespace liger::cuda {
namespace {

template <typename T, typename A>
struct TanhForm {
  A linear, cubic;
  explicit TanhForm(int32_t stash_type)
      : linear(static_cast<A>(2 * RoundedOnHost(0.7978845608028654, stash_type))),
        cubic(linear * static_cast<A>(RoundedOnHost(0.044715, stash_type))) {}
  __device__ __forceinline__ A operator()(A g) const {
    return g * Sigmoid<T>(g * (g * g * cubic + linear));
  }
};

// The normal distribution function at -|g|, for half types: exp(-g^2 / 2) times a polynomial in
// t = 1 / (1 + 0.42 z), z = |g| / sqrt(2). The polynomial is a minimax fit of
// exp(z^2) erfc(z) / (2 t) on [0, 9.6]; its relative error is below 2e-7 all the way down the tail.
__device__ __forceinline__ float NormalTail(float g) {
  float t;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(t) : "f"(fmaf(0.29698485f, fabsf(g), 1.0f)));
  float p = fmaf(0.03502010554075241f, t, -0.15972596406936646f);
  p = fmaf(p, t, 0.21963436901569366f);
  p = fmaf(p, t, -0.06460785865783691f);
  p = fmaf(p, t, 0.134019136428833f);
  p = fmaf(p, t, 0.09747165441513062f);
  p = fmaf(p, t, 0.11977517604827881f);
  p = fmaf(p, t, 0.1184132993221283f);
  return p * t * ExpOfTwo(g * g * -0.7213475204444817f);
}

template <typename T, typename A>
struct ExactForm {
  explicit ExactForm(int32_t) {}
  __device__ __forceinline__ A operator()(A g) const {
    if constexpr (sizeof(A) == 8) {
      return g * normcdf(g);
    } else if constexpr (sizeof(T) == 2) {
      const float tail = NormalTail(g);
      return g * (g < 0 ? tail : 1 - tail);
    } else {
      return g * normcdff(g);
    }
  }
};

template <typename T, typename A>
struct SigmoidForm {
  A alpha;
  explicit SigmoidForm(int32_t stash_type)
      : alpha(static_cast<A>(RoundedOnHost(1.702, stash_type))) {}
  __device__ __forceinline__ A operator()(A g) const { return g * Sigmoid<T>(g * alpha); }
};

// limit and up_offset are 0, as in nearly every model.
template <typename T, typename A, typename Form>
struct Plain {
  Form form;
  bool round_activation;

  __device__ __forceinline__ A operator()(A gate, A up) const {
    return RoundedIf<T>(round_activation, form(gate)) * up;
  }
};

template <typename T, typename A, typename Form>
struct General {
  Form form;
  A limit;  // infinity: none
  A up_offset;
  bool round_activation;

  __device__ __forceinline__ A operator()(A gate, A up) const {
    const A u = AtLeast(AtMost(up, limit), -limit);
    return RoundedIf<T>(round_activation, form(AtMost(gate, limit))) *
           RoundedIf<T>(round_activation, u + up_offset);
  }
};

template <typename T, typename A, typename Form>
General<T, A, Form> GeneralOf(const LigerGeGluArgs& args, bool round_activation) {
  const A limit = args.limit > 0 ? static_cast<A>(args.limit) : std::numeric_limits<A>::infinity();
  return {Form(args.stash_type), limit, static_cast<A>(args.up_offset), round_activation};
}

template <typename T, template <typename, typename> typename Form>
LigerStatus LaunchForm(const LigerGeGluArgs& args, LigerCudaStream stream) {
  if (sizeof(T) == 8 || args.stash_type == LIGER_F64) {
    return LaunchGatedElements<T, double>(args, GeneralOf<T, double, Form<T, double>>(args, false),
                                          stream);
  }
  if constexpr (sizeof(T) < 8) {
    using F = Form<T, float>;
    const bool round_activation = sizeof(T) == 2 && args.stash_type == LIGER_F32;
    if (args.limit == 0 && args.up_offset == 0) {
      return LaunchGated<T>(args, Plain<T, float, F>{F(args.stash_type), round_activation}, stream);
    }
    return LaunchGated<T>(args, GeneralOf<T, float, F>(args, round_activation), stream);
  }
  return LIGER_OK;
}

template <typename T>
LigerStatus LaunchOf(const LigerGeGluArgs& args, LigerCudaStream stream) {
  switch (args.form) {
    case LIGER_GELU_EXACT:
      return LaunchForm<T, ExactForm>(args, stream);
    case LIGER_GELU_SIGMOID:
      return LaunchForm<T, SigmoidForm>(args, stream);
    default:
      return LaunchForm<T, TanhForm>(args, stream);
  }
}

}  // namespace
}  // namespace liger::cuda

LigerStatus LigerCudaGeGlu(const LigerGeGluArgs* args, LigerCudaStream stream) {
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
