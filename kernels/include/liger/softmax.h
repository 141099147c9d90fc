/* Softmax over the last axis:
 *
 *   y = exp(x - max(x)) / sum(exp(x - max(x)))
 *
 * in f32 (f64 where dtype or stash_type is f64), rounded once; exponentials below the normal
 * numbers of that type are 0. A row that holds NaN or +inf, or
 * nothing but -inf, gives NaN throughout.
 */
#ifndef LIGER_SOFTMAX_H_
#define LIGER_SOFTMAX_H_

#include "liger/types.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct LigerSoftmaxArgs {
  const void* x; /* [rows, width] of dtype */
  void* y;       /* as x */
  int64_t rows;
  int64_t width;
  int32_t dtype;
  int32_t stash_type;
} LigerSoftmaxArgs;

/* Rows [begin, end) on the calling thread. Ranges that do not overlap may run at the same time. */
LigerStatus LigerCpuSoftmax(const LigerSoftmaxArgs* args, int64_t begin, int64_t end);

/* All rows, on `stream` of the current device. */
LigerStatus LigerCudaSoftmax(const LigerSoftmaxArgs* args, LigerCudaStream stream);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* LIGER_SOFTMAX_H_ */
