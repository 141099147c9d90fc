/* GroupNorm: each group of neighbouring channels of each batch item is normalised as a whole.
 *
 *   n = (x - mean) / sqrt(mean((x - mean)^2) + epsilon), rounded to scale_type; the means are over
 *       the channels / num_groups * spatial elements of a group
 *   y = n * scale[c] + bias[c], product and sum formed in scale_type, then rounded to dtype
 *
 * Statistics are accumulated in f32, or in f64 where dtype, stash_type or scale_type is f64.
 */
#ifndef LIGER_GROUP_NORM_H_
#define LIGER_GROUP_NORM_H_

#include "liger/types.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct LigerGroupNormArgs {
  const void* x;     /* [batch, channels, spatial] of dtype */
  const void* scale; /* [channels] of scale_dtype */
  const void* bias;  /* as scale */
  void* y;           /* as x */
  int64_t batch;
  int64_t channels;
  int64_t spatial; /* the product of all dimensions behind the channels */
  int64_t num_groups;
  int32_t dtype;
  int32_t scale_dtype; /* dtype or LIGER_F32 */
  int32_t stash_type;
  int32_t scale_type;
  float epsilon;
} LigerGroupNormArgs;

/* Groups [begin, end) of batch * num_groups on the calling thread; ranges may run at the same
 * time. */
LigerStatus LigerCpuGroupNorm(const LigerGroupNormArgs* args, int64_t begin, int64_t end);

/* All groups, on `stream` of the current device. */
LigerStatus LigerCudaGroupNorm(const LigerGroupNormArgs* args, LigerCudaStream stream);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* LIGER_GROUP_NORM_H_ */
