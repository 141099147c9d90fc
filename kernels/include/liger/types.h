/* Types shared by every kernel launch: element types and status codes.
 *
 * The interface is C: argument structs that hold each pointer with its shape and dtype, and
 * functions that return a LigerStatus. A launch allocates nothing, keeps no pointer, and throws
 * nothing. Pointers need no alignment. An output may be the same buffer as an input of the same
 * shape and dtype; other overlap is not allowed.
 */
#ifndef LIGER_TYPES_H_
#define LIGER_TYPES_H_

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Element types. The numbers are those of ONNX's TensorProto.DataType. */
enum {
  LIGER_F32 = 1,
  LIGER_F16 = 10,
  LIGER_F64 = 11,
  LIGER_BF16 = 16,
};

typedef enum LigerStatus {
  LIGER_OK = 0,
  LIGER_BAD_DTYPE = 1,    /* a dtype that is none of the above, or a pair without a kernel */
  LIGER_BAD_SHAPE = 2,    /* a negative size, a range outside the work, widths that do not fit */
  LIGER_BAD_ARGUMENT = 3, /* another argument outside its range, or a missing pointer */
} LigerStatus;

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* LIGER_TYPES_H_ */
