/* Types shared by every kernel launch: element types and status codes.
 *
 * The interface is C: argument structs that hold each pointer with its shape and dtype, and
 * functions that return a LigerStatus. A launch allocates nothing, keeps no pointer, and throws
 * nothing. An output may be the same buffer as an input of the same shape and dtype; other overlap
 * is not allowed.
 *
 * LigerCpu... functions work on the calling thread; pointers need no alignment.
 *
 * LigerCuda... functions launch on a stream of the current device and return without waiting; they
 * may be captured into a CUDA graph. Pointers are device memory, aligned to their dtype; at
 * multiples of 16 bytes, with rows of such multiples, kernels are fastest. Sizes are free, offsets
 * are 64 bits wide. The first launch of a kernel loads its code onto the device: launch once before
 * a capture. No forward kernel needs a workspace.
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
  /* From here on the CUDA runtime refused: status - LIGER_CUDA_ERROR is its cudaError_t. */
  LIGER_CUDA_ERROR = 1024,
  LIGER_LAST_STATUS = 2047,
} LigerStatus;

/* A cudaStream_t; null is the legacy default stream. */
typedef struct CUstream_st* LigerCudaStream;

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* LIGER_TYPES_H_ */
