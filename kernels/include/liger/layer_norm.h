/* LayerNorm over the last axis, alone or behind a residual addition:
 *
 *   s = x + residual, rounded to dtype          (s = x without a residual)
 *   n = (s - mean(s)) / sqrt(mean((s - mean(s))^2) + epsilon), rounded to scale_type
 *   y = n * scale + bias, product and sum formed in scale_type, then rounded to dtype
 *
 * Statistics are accumulated in f32, or in f64 where dtype, stash_type or scale_type is f64; the
 * mean is taken off before squaring, so that a large common offset costs no precision.
 *
 *   LigerLayerNormArgs args = {...};
 *   LigerStatus status = LigerCpuLayerNorm(&args, 0, args.rows);
 */
#ifndef LIGER_LAYER_NORM_H_
#define LIGER_LAYER_NORM_H_

#include "liger/types.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct LigerLayerNormArgs {
  const void* x;        /* [rows, hidden_size] of dtype */
  const void* residual; /* as x, or null */
  const void* scale;    /* [hidden_size] of scale_dtype, or null: n itself */
  const void* bias;     /* as scale, or null: nothing is added */
  void* y;              /* [rows, hidden_size] of dtype */
  void* sum;            /* as y, receives s; null where it is not wanted or there is no residual */
  int64_t rows;
  int64_t hidden_size;
  int32_t dtype;
  int32_t scale_dtype; /* dtype or LIGER_F32 */
  int32_t stash_type;
  int32_t scale_type;
  float epsilon;
} LigerLayerNormArgs;

/* Rows [begin, end) on the calling thread. Ranges that do not overlap may run at the same time. */
LigerStatus LigerCpuLayerNorm(const LigerLayerNormArgs* args, int64_t begin, int64_t end);

/* All rows, on `stream` of the current device. */
LigerStatus LigerCudaLayerNorm(const LigerLayerNormArgs* args, LigerCudaStream stream);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* LIGER_LAYER_NORM_H_ */
