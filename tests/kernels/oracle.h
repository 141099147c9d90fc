// The fused ops as plain loops in f64, with exactly the roundings that their definitions state.
//
//   RmsNormResult expected = OracleRmsNorm(x, {}, scale, {.epsilon = 1e-6});
//
// Results are doubles: values of the output dtype before nothing but that last rounding has been
// applied.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tensor.h"

namespace liger::test {

struct RmsNormOptions {
  float epsilon = 1e-6f;
  float offset = 0;
  DType scale_type = DType::kF32;
};

struct RmsNormResult {
  std::vector<double> y;
  std::vector<double> sum;
};

RmsNormResult OracleRmsNorm(const Tensor& x, const std::optional<Tensor>& residual,
                            const std::optional<Tensor>& scale, const RmsNormOptions& options);

struct LayerNormOptions {
  float epsilon = 1e-6f;
  DType scale_type = DType::kF32;
};

RmsNormResult OracleLayerNorm(const Tensor& x, const std::optional<Tensor>& residual,
                              const std::optional<Tensor>& scale, const std::optional<Tensor>& bias,
                              const LayerNormOptions& options);

// x: [batch, channels, ...]
std::vector<double> OracleGroupNorm(const Tensor& x, const Tensor& scale, const Tensor& bias,
                                    int64_t num_groups, const LayerNormOptions& options);

struct RopeOptions {
  bool interleaved = false;
  bool full_table = true;
  bool heads_first = true;
  int64_t rotary_dim = 0;
  int64_t rotary_offset = 0;
};

// x: [batch, heads, sequence, head_dim] or [batch, sequence, heads, head_dim];
// cos, sin: [1 or batch, 1 or sequence, width].
std::vector<double> OracleRope(const Tensor& x, const Tensor& cos, const Tensor& sin,
                               const RopeOptions& options);

enum class Packing { kNone, kGateUp, kUpGate, kInterleaved };

struct SwiGluOptions {
  float alpha = 1;
  float gate_multiplier = 1;
  float limit = 0;
  float up_offset = 0;
  Packing packing = Packing::kNone;
  bool round_activation = false;  // to the dtype, before the product
};

std::vector<double> OracleSwiGlu(const Tensor& gate, const Tensor& up,
                                 const SwiGluOptions& options);

enum class Gelu { kTanh, kExact, kSigmoid };

struct GeGluOptions {
  Gelu form = Gelu::kTanh;
  float limit = 0;
  float up_offset = 0;
  Packing packing = Packing::kNone;
  DType stash_type = DType::kF32;  // of the constants
  bool round_activation = false;   // and up + up_offset, to the dtype, before the product
};

std::vector<double> OracleGeGlu(const Tensor& gate, const Tensor& up, const GeGluOptions& options);

std::vector<double> OracleSoftmax(const Tensor& x);

}  // namespace liger::test
