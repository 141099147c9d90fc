#include "check.h"

namespace liger {
namespace {

bool IsDType(int32_t dtype) {
  return dtype == LIGER_F32 || dtype == LIGER_F16 || dtype == LIGER_BF16 || dtype == LIGER_F64;
}

// A scale has the dtype of its tensor, or f32.
template <typename Args>
bool IsNormDTypes(const Args& args) {
  return IsDType(args.dtype) && IsDType(args.stash_type) && IsDType(args.scale_type) &&
         (args.scale_dtype == args.dtype || args.scale_dtype == LIGER_F32);
}

bool IsFinite(float value) { return value - value == 0; }

// Empty tensors may have null data.
bool Missing(const void* pointer, int64_t size) { return pointer == nullptr && size > 0; }

// What the norms over rows have in common.
template <typename Args>
LigerStatus CheckRowNorm(const Args& args) {
  if (args.rows < 0 || args.hidden_size < 0) return LIGER_BAD_SHAPE;
  if (!IsNormDTypes(args)) return LIGER_BAD_DTYPE;
  const int64_t size = args.rows > 0 ? args.hidden_size : 0;
  if (Missing(args.x, size) || Missing(args.y, size) || !(args.epsilon >= 0) ||
      (args.sum != nullptr && args.residual == nullptr)) {
    return LIGER_BAD_ARGUMENT;
  }
  return LIGER_OK;
}

// What the gated activations have in common.
template <typename Args>
LigerStatus CheckGated(const Args& args) {
  if (args.rows < 0 || args.width < 0) return LIGER_BAD_SHAPE;
  if (!IsDType(args.dtype) || !IsDType(args.stash_type)) return LIGER_BAD_DTYPE;
  const int64_t size = args.rows * args.width;
  const bool packed = args.packed != LIGER_NOT_PACKED;
  const bool fits = !Missing(args.gate, size) && !Missing(args.y, size) &&
                    args.packed >= LIGER_NOT_PACKED && args.packed <= LIGER_INTERLEAVED &&
                    (packed ? args.up == nullptr : !Missing(args.up, size)) &&
                    IsFinite(args.up_offset) && IsFinite(args.limit) && args.limit >= 0;
  return fits ? LIGER_OK : LIGER_BAD_ARGUMENT;
}

}  // namespace

LigerStatus Check(const LigerRmsNormArgs& args) {
  if (const LigerStatus status = CheckRowNorm(args)) return status;
  const bool empty = args.rows == 0 || args.hidden_size == 0;
  const bool fits = IsFinite(args.offset) && (args.scale != nullptr || args.offset == 0 || empty);
  return fits ? LIGER_OK : LIGER_BAD_ARGUMENT;
}

LigerStatus Check(const LigerLayerNormArgs& args) { return CheckRowNorm(args); }

LigerStatus Check(const LigerGroupNormArgs& args) {
  if (args.batch < 0 || args.channels < 0 || args.spatial < 0 || args.num_groups < 1 ||
      args.channels % args.num_groups != 0) {
    return LIGER_BAD_SHAPE;
  }
  if (!IsNormDTypes(args)) return LIGER_BAD_DTYPE;
  const int64_t size = args.batch > 0 && args.spatial > 0 ? args.channels : 0;
  const bool fits = !Missing(args.x, size) && !Missing(args.y, size) &&
                    !Missing(args.scale, size) && !Missing(args.bias, size) && args.epsilon >= 0;
  return fits ? LIGER_OK : LIGER_BAD_ARGUMENT;
}

LigerStatus Check(const LigerRopeArgs& args) {
  if (args.batch < 0 || args.sequence < 0 || args.heads < 0 || args.second_heads < 0 ||
      args.head_dim < 0 || args.rotary_dim < 0 || args.rotary_dim % 2 != 0 ||
      args.rotary_offset < 0 || args.rotary_offset > args.head_dim ||
      args.rotary_dim > args.head_dim - args.rotary_offset) {
    return LIGER_BAD_SHAPE;
  }
  if (!IsDType(args.dtype) || !IsDType(args.stash_type) ||
      (args.table_dtype != args.dtype && args.table_dtype != LIGER_F32)) {
    return LIGER_BAD_DTYPE;
  }
  const int64_t positions = args.head_dim > 0 ? args.batch * args.sequence : 0;
  const int64_t first = positions * args.heads;
  const int64_t second = positions * args.second_heads;
  const int64_t rotated = args.rotary_dim > 0 ? first + second : 0;
  const bool fits = !Missing(args.x, first) && !Missing(args.y, first) &&
                    !Missing(args.second_x, second) && !Missing(args.second_y, second) &&
                    !Missing(args.cos, rotated) && !Missing(args.sin, rotated) &&
                    (args.layout == LIGER_HEADS_FIRST || args.layout == LIGER_SEQUENCE_FIRST);
  return fits ? LIGER_OK : LIGER_BAD_ARGUMENT;
}

LigerStatus Check(const LigerSwiGluArgs& args) {
  if (const LigerStatus status = CheckGated(args)) return status;
  return IsFinite(args.alpha) && IsFinite(args.gate_multiplier) ? LIGER_OK : LIGER_BAD_ARGUMENT;
}

LigerStatus Check(const LigerGeGluArgs& args) {
  if (const LigerStatus status = CheckGated(args)) return status;
  return args.form >= LIGER_GELU_TANH && args.form <= LIGER_GELU_SIGMOID ? LIGER_OK
                                                                         : LIGER_BAD_ARGUMENT;
}

LigerStatus Check(const LigerSoftmaxArgs& args) {
  if (args.rows < 0 || args.width < 0) return LIGER_BAD_SHAPE;
  if (!IsDType(args.dtype) || !IsDType(args.stash_type)) return LIGER_BAD_DTYPE;
  const int64_t size = args.rows > 0 ? args.width : 0;
  return Missing(args.x, size) || Missing(args.y, size) ? LIGER_BAD_ARGUMENT : LIGER_OK;
}

}  // namespace liger
