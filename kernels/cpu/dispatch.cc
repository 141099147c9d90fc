// Chooses the instruction set once, checks arguments, calls the kernels.
#include "check.h"
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

LigerStatus CheckRange(int64_t begin, int64_t end, int64_t size) {
  return begin < 0 || begin > end || end > size ? LIGER_BAD_SHAPE : LIGER_OK;
}

}  // namespace

const KernelTables& AvailableKernels() {
  static const KernelTables tables = FindKernels();
  return tables;
}

}  // namespace liger::cpu

using liger::Check;
using liger::cpu::BestKernels;
using liger::cpu::CheckRange;

LigerStatus LigerCpuRmsNorm(const LigerRmsNormArgs* args, int64_t begin, int64_t end) {
  if (const LigerStatus status = Check(*args)) return status;
  if (const LigerStatus status = CheckRange(begin, end, args->rows)) return status;
  BestKernels().rms_norm(*args, begin, end);
  return LIGER_OK;
}

LigerStatus LigerCpuRope(const LigerRopeArgs* args, int64_t begin, int64_t end) {
  if (const LigerStatus status = Check(*args)) return status;
  if (const LigerStatus status = CheckRange(begin, end, LigerRopeRows(args))) return status;
  BestKernels().rope(*args, begin, end);
  return LIGER_OK;
}

LigerStatus LigerCpuSwiGlu(const LigerSwiGluArgs* args, int64_t begin, int64_t end) {
  if (const LigerStatus status = Check(*args)) return status;
  if (const LigerStatus status = CheckRange(begin, end, args->rows * args->width)) return status;
  BestKernels().swiglu(*args, begin, end);
  return LIGER_OK;
}

LigerStatus LigerCpuGeGlu(const LigerGeGluArgs* args, int64_t begin, int64_t end) {
  if (const LigerStatus status = Check(*args)) return status;
  if (const LigerStatus status = CheckRange(begin, end, args->rows * args->width)) return status;
  BestKernels().geglu(*args, begin, end);
  return LIGER_OK;
}

LigerStatus LigerCpuLayerNorm(const LigerLayerNormArgs* args, int64_t begin, int64_t end) {
  if (const LigerStatus status = Check(*args)) return status;
  if (const LigerStatus status = CheckRange(begin, end, args->rows)) return status;
  BestKernels().layer_norm(*args, begin, end);
  return LIGER_OK;
}

LigerStatus LigerCpuGroupNorm(const LigerGroupNormArgs* args, int64_t begin, int64_t end) {
  if (const LigerStatus status = Check(*args)) return status;
  const int64_t groups = args->batch * args->num_groups;
  if (const LigerStatus status = CheckRange(begin, end, groups)) return status;
  BestKernels().group_norm(*args, begin, end);
  return LIGER_OK;
}

LigerStatus LigerCpuSoftmax(const LigerSoftmaxArgs* args, int64_t begin, int64_t end) {
  if (const LigerStatus status = Check(*args)) return status;
  if (const LigerStatus status = CheckRange(begin, end, args->rows)) return status;
  BestKernels().softmax(*args, begin, end);
  return LIGER_OK;
}
