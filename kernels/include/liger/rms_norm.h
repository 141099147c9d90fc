/* RMSNorm over the last axis, alone or behind a residual addition:
 *
 *   s = x + residual, rounded to dtype          (s = x without a residual)
 *   n = s / sqrt(mean(s^2) + epsilon), rounded to scale_type
 *   y = n * (offset + scale), formed in scale_type, then rounded to dtype
 *
 * Statistics are accumulated in f32, or in f64 where dtype, stash_type or scale_type is f64.
 *
 *   LigerRmsNormArgs args = {...};
 *   LigerStatus status = LigerCpuRmsNorm(&args, 0, args.rows);
 */
#ifndef LIGER_RMS_NORM_H_
#define LIGER_RMS_NORM_H_

#include "liger/types.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct LigerRmsNormArgs {
  const void* x;        /* [rows, hidden_size] of dtype */
  const void* residual; /* as x, or null */
  const void* scale;    /* [hidden_size] of scale_dtype, or null: y = n, and offset must be 0 */
  void* y;              /* [rows, hidden_size] of dtype */
  void* sum;            /* as y, receives s; null where it is not wanted or there is no residual */
  int64_t rows;
  int64_t hidden_size;
  int32_t dtype;
  int32_t scale_dtype; /* dtype or LIGER_F32 */
  int32_t stash_type;
  int32_t scale_type;
  float epsilon;
  float offset;
} LigerRmsNormArgs;

/* Rows [begin, end) on the calling thread. Ranges that do not overlap may run at the same time. */
LigerStatus LigerCpuRmsNorm(const LigerRmsNormArgs* args, int64_t begin, int64_t end);

/* All rows, on `stream` of the current device. */
LigerStatus LigerCudaRmsNorm(const LigerRmsNormArgs* args, LigerCudaStream stream);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* LIGER_RMS_NORM_H_ */
