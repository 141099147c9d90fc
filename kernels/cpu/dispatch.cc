// Chooses the instruction set once, checks arguments, calls the kernels.
#include "kernel_table.h"

#define LIGER_ISA baseline
#include "table.h"
#undef LIGER_ISA

#if defined(LIGER_HAS_X86_TABLES)
namespace liger::cpu {
namespace avx2 {
extern const KernelTable kTable;
}
namespace avx512 {
extern const KernelTable kTable;
}
}  // namespace liger::cpu
#endif

namespace liger::cpu {
namespace {

KernelTables FindKernels() {
  KernelTables found = {{&baseline::kTable, nullptr, nullptr}, 1};
#if defined(LIGER_HAS_X86_TABLES)
  __builtin_cpu_init();
  // Each level needs the one below it and all features its files are compiled with
  // (CMakeLists.txt).
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") ||
      !__builtin_cpu_supports("f16c")) {
    return found;
  }
  found.tables[found.count++] = &avx2::kTable;
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) {
    found.tables[found.count++] = &avx512::kTable;
  }
#endif
  return found;
}

bool IsDType(int32_t dtype) {
  return dtype == LIGER_F32 || dtype == LIGER_F16 || dtype == LIGER_BF16 || dtype == LIGER_F64;
}

// A scale has the dtype of its tensor, or f32.
bool IsNormDTypes(int32_t dtype, int32_t scale_dtype, int32_t stash_type, int32_t scale_type) {
  return IsDType(dtype) && IsDType(stash_type) && IsDType(scale_type) &&
         (scale_dtype == dtype || scale_dtype == LIGER_F32);
}

bool IsFinite(float value) { return value - value == 0; }

LigerStatus CheckRange(int64_t begin, int64_t end, int64_t size) {
  return begin < 0 || begin > end || end > size ? LIGER_BAD_SHAPE : LIGER_OK;
}

// Empty tensors may have null data.
bool Missing(const void* pointer, int64_t size) { return pointer == nullptr && size > 0; }

// What the arguments of the gated activations have in common.
template <typename Args>
bool IsGated(const Args& args, int64_t size) {
  const bool packed = args.packed != LIGER_NOT_PACKED;
  return !Missing(args.gate, size) && !Missing(args.y, size) && args.packed >= LIGER_NOT_PACKED &&
         args.packed <= LIGER_INTERLEAVED &&
         (packed ? args.up == nullptr : !Missing(args.up, size)) && IsFinite(args.up_offset) &&
         IsFinite(args.limit) && args.limit >= 0;
}

}  // namespace

const KernelTables& AvailableKernels() {
  static const KernelTables tables = FindKernels();
  return tables;
}

}  // namespace liger::cpu

using liger::cpu::BestKernels;

LigerStatus LigerCpuRmsNorm(const LigerRmsNormArgs* args, int64_t begin, int64_t end) {
  using namespace liger::cpu;
  if (args->rows < 0 || args->hidden_size < 0) return LIGER_BAD_SHAPE;
  if (!IsNormDTypes(args->dtype, args->scale_dtype, args->stash_type, args->scale_type)) {
    return LIGER_BAD_DTYPE;
  }
  const int64_t size = args->rows > 0 ? args->hidden_size : 0;
  if (Missing(args->x, size) || Missing(args->y, size) || !(args->epsilon >= 0) ||
      !IsFinite(args->offset) || (args->scale == nullptr && size > 0 && args->offset != 0) ||
      (args->sum != nullptr && args->residual == nullptr)) {
    return LIGER_BAD_ARGUMENT;
  }
  if (const LigerStatus status = CheckRange(begin, end, args->rows)) return status;
  BestKernels().rms_norm(*args, begin, end);
  return LIGER_OK;
}

LigerStatus LigerCpuRope(const LigerRopeArgs* args, int64_t begin, int64_t end) {
  using namespace liger::cpu;
  if (args->batch < 0 || args->sequence < 0 || args->heads < 0 || args->second_heads < 0 ||
      args->head_dim < 0 || args->rotary_dim < 0 || args->rotary_dim % 2 != 0 ||
      args->rotary_offset < 0 || args->rotary_offset > args->head_dim ||
      args->rotary_dim > args->head_dim - args->rotary_offset) {
    return LIGER_BAD_SHAPE;
  }
  if (!IsDType(args->dtype) || !IsDType(args->stash_type) ||
      (args->table_dtype != args->dtype && args->table_dtype != LIGER_F32)) {
    return LIGER_BAD_DTYPE;
  }
  const int64_t positions = args->head_dim > 0 ? args->batch * args->sequence : 0;
  const int64_t first = positions * args->heads;
  const int64_t second = positions * args->second_heads;
  const int64_t rotated = args->rotary_dim > 0 ? first + second : 0;
  if (Missing(args->x, first) || Missing(args->y, first) || Missing(args->second_x, second) ||
      Missing(args->second_y, second) || Missing(args->cos, rotated) ||
      Missing(args->sin, rotated) ||
      (args->layout != LIGER_HEADS_FIRST && args->layout != LIGER_SEQUENCE_FIRST)) {
    return LIGER_BAD_ARGUMENT;
  }
  if (const LigerStatus status = CheckRange(begin, end, LigerRopeRows(args))) return status;
  BestKernels().rope(*args, begin, end);
  return LIGER_OK;
}

LigerStatus LigerCpuSwiGlu(const LigerSwiGluArgs* args, int64_t begin, int64_t end) {
  using namespace liger::cpu;
  if (args->rows < 0 || args->width < 0) return LIGER_BAD_SHAPE;
  if (!IsDType(args->dtype) || !IsDType(args->stash_type)) return LIGER_BAD_DTYPE;
  const int64_t size = args->rows * args->width;
  if (!IsGated(*args, size) || !IsFinite(args->alpha) || !IsFinite(args->gate_multiplier)) {
    return LIGER_BAD_ARGUMENT;
  }
  if (const LigerStatus status = CheckRange(begin, end, size)) return status;
  BestKernels().swiglu(*args, begin, end);
  return LIGER_OK;
}

LigerStatus LigerCpuGeGlu(const LigerGeGluArgs* args, int64_t begin, int64_t end) {
  using namespace liger::cpu;
  if (args->rows < 0 || args->width < 0) return LIGER_BAD_SHAPE;
  if (!IsDType(args->dtype) || !IsDType(args->stash_type)) return LIGER_BAD_DTYPE;
  const int64_t size = args->rows * args->width;
  if (!IsGated(*args, size) || args->form < LIGER_GELU_TANH || args->form > LIGER_GELU_SIGMOID) {
    return LIGER_BAD_ARGUMENT;
  }
  if (const LigerStatus status = CheckRange(begin, end, size)) return status;
  BestKernels().geglu(*args, begin, end);
  return LIGER_OK;
}

LigerStatus LigerCpuLayerNorm(const LigerLayerNormArgs* args, int64_t begin, int64_t end) {
  using namespace liger::cpu;
  if (args->rows < 0 || args->hidden_size < 0) return LIGER_BAD_SHAPE;
  if (!IsNormDTypes(args->dtype, args->scale_dtype, args->stash_type, args->scale_type)) {
    return LIGER_BAD_DTYPE;
  }
  const int64_t size = args->rows > 0 ? args->hidden_size : 0;
  if (Missing(args->x, size) || Missing(args->y, size) || !(args->epsilon >= 0) ||
      (args->sum != nullptr && args->residual == nullptr)) {
    return LIGER_BAD_ARGUMENT;
  }
  if (const LigerStatus status = CheckRange(begin, end, args->rows)) return status;
  BestKernels().layer_norm(*args, begin, end);
  return LIGER_OK;
}

LigerStatus LigerCpuGroupNorm(const LigerGroupNormArgs* args, int64_t begin, int64_t end) {
  using namespace liger::cpu;
  if (args->batch < 0 || args->channels < 0 || args->spatial < 0 || args->num_groups < 1 ||
      args->channels % args->num_groups != 0) {
    return LIGER_BAD_SHAPE;
  }
  if (!IsNormDTypes(args->dtype, args->scale_dtype, args->stash_type, args->scale_type)) {
    return LIGER_BAD_DTYPE;
  }
  const int64_t size = args->batch > 0 && args->spatial > 0 ? args->channels : 0;
  if (Missing(args->x, size) || Missing(args->y, size) || Missing(args->scale, size) ||
      Missing(args->bias, size) || !(args->epsilon >= 0)) {
    return LIGER_BAD_ARGUMENT;
  }
  const int64_t groups = args->batch * args->num_groups;
  if (const LigerStatus status = CheckRange(begin, end, groups)) return status;
  BestKernels().group_norm(*args, begin, end);
  return LIGER_OK;
}

LigerStatus LigerCpuSoftmax(const LigerSoftmaxArgs* args, int64_t begin, int64_t end) {
  using namespace liger::cpu;
  if (args->rows < 0 || args->width < 0) return LIGER_BAD_SHAPE;
  if (!IsDType(args->dtype) || !IsDType(args->stash_type)) return LIGER_BAD_DTYPE;
  const int64_t size = args->rows > 0 ? args->width : 0;
  if (Missing(args->x, size) || Missing(args->y, size)) return LIGER_BAD_ARGUMENT;
  if (const LigerStatus status = CheckRange(begin, end, args->rows)) return status;
  BestKernels().softmax(*args, begin, end);
  return LIGER_OK;
}
