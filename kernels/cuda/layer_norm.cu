// s = x + residual;  n = (s - mean) / sqrt(variance + epsilon);  y = n * scale + bias
//
// Kernels and the way of the data: row_norm.cuh.
#include "check.h"
#include "row_norm.cuh"

LigerStatus LigerCudaLayerNorm(const LigerLayerNormArgs* args, LigerCudaStream stream) {
  using namespace liger::cuda;
  if (const LigerStatus status = liger::Check(*args)) return status;
  RowNorm p = ToRowNorm(*args);
  p.bias = args->bias;
  return DispatchRowNorm<Norm::kLayer>(*args, p, stream);
}
