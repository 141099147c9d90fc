/* Rotary position embedding of one tensor, or of two (queries and keys) that share their tables.
 *
 * With R = rotary_dim and x' = x[..., rotary_offset : rotary_offset + R], for i < R / 2:
 *
 *   (a, b) = (x'[i], x'[i + R / 2])           interleaved == 0
 *   (a, b) = (x'[2 i], x'[2 i + 1])           interleaved == 1
 *   y at a = a * cos_i - b * sin_i
 *   y at b = b * cos_i + a * sin_i
 *
 * in f32 (f64 where dtype or stash_type is f64), rounded once. Other columns are copied.
 *
 * A table row is half as wide as the rotary part (full_table == 0: cos_i = cos[i]) or as wide as it
 * (full_table == 1): then each value stands twice, at i and i + R / 2, or at 2 i and 2 i + 1 with
 * interleaved, and the first of the two is read.
 */
#ifndef LIGER_ROPE_H_
#define LIGER_ROPE_H_

#include "liger/types.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
  LIGER_HEADS_FIRST = 0,    /* [batch, heads, sequence, head_dim] */
  LIGER_SEQUENCE_FIRST = 1, /* [batch, sequence, heads, head_dim] */
};

typedef struct LigerRopeArgs {
  const void* x;        /* [batch, heads, sequence, head_dim] or as layout says, of dtype */
  const void* second_x; /* as x with second_heads heads, or null */
  const void* cos;      /* rows of table values, of table_dtype */
  const void* sin;      /* as cos */
  void* y;              /* as x */
  void* second_y;       /* as second_x */
  int64_t batch;
  int64_t sequence;
  int64_t heads;
  int64_t second_heads; /* 0 without second_x */
  int64_t head_dim;
  int64_t rotary_dim; /* even, at least 0 */
  int64_t rotary_offset;
  /* Elements between the table rows of neighbours; 0 where one row serves all of them. */
  int64_t cos_batch_stride;
  int64_t cos_sequence_stride;
  int64_t sin_batch_stride;
  int64_t sin_sequence_stride;
  int32_t dtype;
  int32_t table_dtype; /* dtype or LIGER_F32 */
  int32_t stash_type;
  int32_t layout;
  int32_t interleaved;
  int32_t full_table;
} LigerRopeArgs;

/* Vectors of head_dim elements to rotate: those of x, then those of second_x. */
static inline int64_t LigerRopeRows(const LigerRopeArgs* args) {
  return args->batch * args->sequence * (args->heads + args->second_heads);
}

/* Rows [begin, end) of LigerRopeRows on the calling thread; ranges may run at the same time. */
LigerStatus LigerCpuRope(const LigerRopeArgs* args, int64_t begin, int64_t end);

/* All rows, on `stream` of the current device. */
LigerStatus LigerCudaRope(const LigerRopeArgs* args, LigerCudaStream stream);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* LIGER_ROPE_H_ */
