/* The gated activation of an MLP:
 *
 *   g = gate * gate_multiplier;  u = up
 *   if limit > 0: g = min(g, limit), u = min(max(u, -limit), limit)
 *   a = g * sigmoid(alpha * g)
 *   y = a * (u + up_offset)
 *
 * in f32 (f64 where dtype or stash_type is f64). a is rounded to dtype before the product where
 * stash_type is f32 and dtype a half type; otherwise there is one rounding, at the end. NaN passes
 * through min and max; gate = -inf gives NaN, as g * sigmoid(g) does.
 */
#ifndef LIGER_SWIGLU_H_
#define LIGER_SWIGLU_H_

#include "liger/packing.h"
#include "liger/types.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct LigerSwiGluArgs {
  const void* gate; /* [rows, width] of dtype; packed: [rows, 2 * width] */
  const void* up;   /* [rows, width]; null when packed */
  void* y;          /* [rows, width]; no alias of a packed gate */
  int64_t rows;
  int64_t width;
  int32_t dtype;
  int32_t stash_type;
  int32_t packed;
  float alpha;
  float gate_multiplier;
  float limit; /* 0: no clamping */
  float up_offset;
} LigerSwiGluArgs;

/* Elements [begin, end) of y, counted over rows * width, on the calling thread; ranges may run at
 * the same time. */
LigerStatus LigerCpuSwiGlu(const LigerSwiGluArgs* args, int64_t begin, int64_t end);

/* All elements, on `stream` of the current device. */
LigerStatus LigerCudaSwiGlu(const LigerSwiGluArgs* args, LigerCudaStream stream);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* LIGER_SWIGLU_H_ */
