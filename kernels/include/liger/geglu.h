/* The gated activation of an MLP with a GELU:
 *
 *   g = gate;  u = up
 *   if limit > 0: g = min(g, limit), u = min(max(u, -limit), limit)
 *   a = 0.5 * g * (1 + tanh(0.7978845608028654 * (g + 0.044715 * g^3)))    LIGER_GELU_TANH
 *   a = 0.5 * g * (1 + erf(g / sqrt(2)))                                   LIGER_GELU_EXACT
 *   a = g * sigmoid(1.702 * g)                                             LIGER_GELU_SIGMOID
 *   y = a * (u + up_offset)
 *
 * in f32 (f64 where dtype or stash_type is f64), with the constants of the tanh and the sigmoid
 * form rounded to stash_type. a and u + up_offset are rounded to dtype before the product where
 * stash_type is f32 and dtype a half type; otherwise there is one rounding, at the end.
 *
 * The factor of g is formed without the cancellation of 1 + tanh and 1 + erf, so that a keeps its
 * relative precision where it is tiny. NaN passes through min and max; gate = -inf gives NaN, as
 * the formulas do.
 */
#ifndef LIGER_GEGLU_H_
#define LIGER_GEGLU_H_

#include "liger/packing.h"
#include "liger/types.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
  LIGER_GELU_TANH = 0,
  LIGER_GELU_EXACT = 1,
  LIGER_GELU_SIGMOID = 2,
};

typedef struct LigerGeGluArgs {
  const void* gate; /* [rows, width] of dtype; packed: [rows, 2 * width] */
  const void* up;   /* [rows, width]; null when packed */
  void* y;          /* [rows, width]; no alias of a packed gate */
  int64_t rows;
  int64_t width;
  int32_t dtype;
  int32_t stash_type;
  int32_t packed;
  int32_t form;
  float limit; /* 0: no clamping */
  float up_offset;
} LigerGeGluArgs;

/* Elements [begin, end) of y, counted over rows * width, on the calling thread; ranges may run at
 * the same time. */
LigerStatus LigerCpuGeGlu(const LigerGeGluArgs* args, int64_t begin, int64_t end);

/* All elements, on `stream` of the current device. */
LigerStatus LigerCudaGeGlu(const LigerGeGluArgs* args, LigerCudaStream stream);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* LIGER_GEGLU_H_ */
