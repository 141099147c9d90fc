// The kernels of one instruction set, and the choice between the sets.
//
//   const KernelTable& kernels = BestKernels();
//   kernels.rms_norm(args, 0, args.rows);
//
// The launch functions of kernels/include check their arguments and then call the best table; the
// tables themselves check nothing. Tests run every table the processor can execute.
#pragma once

#include <stdint.h>

#include "liger/geglu.h"
#include "liger/group_norm.h"
#include "liger/layer_norm.h"
#include "liger/rms_norm.h"
#include "liger/rope.h"
#include "liger/softmax.h"
#include "liger/swiglu.h"

namespace liger::cpu {

struct KernelTable {
  const char* name;
  void (*rms_norm)(const LigerRmsNormArgs& args, int64_t begin, int64_t end);
  void (*rope)(const LigerRopeArgs& args, int64_t begin, int64_t end);
  void (*swiglu)(const LigerSwiGluArgs& args, int64_t begin, int64_t end);
  void (*layer_norm)(const LigerLayerNormArgs& args, int64_t begin, int64_t end);
  void (*group_norm)(const LigerGroupNormArgs& args, int64_t begin, int64_t end);
  void (*geglu)(const LigerGeGluArgs& args, int64_t begin, int64_t end);
  void (*softmax)(const LigerSoftmaxArgs& args, int64_t begin, int64_t end);
  // The pieces that the kernels' accuracy rests on, exposed for their own tests; exp is for
  // x <= 0.
  void (*exp_f32)(const float* x, float* y, int64_t size);
  void (*exp_f64)(const double* x, double* y, int64_t size);
  void (*normal_cdf_f32)(const float* x, float* y, int64_t size);
  void (*normal_cdf_f64)(const double* x, double* y, int64_t size);
  void (*convert)(const void* x, int32_t from, void* y, int32_t to, int64_t size);
};

// The tables this processor can execute, slowest first; never empty.
struct KernelTables {
  const KernelTable* tables[3];
  int count;
};
const KernelTables& AvailableKernels();

inline const KernelTable& BestKernels() {
  const KernelTables& available = AvailableKernels();
  return *available.tables[available.count - 1];
}

}  // namespace liger::cpu
