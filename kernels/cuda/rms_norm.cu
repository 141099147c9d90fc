// s = x + residual;  n = s / sqrt(mean(s^2) + epsilon);  y = n * (offset + scale)
//
// Kernels and the way of the data: row_norm.cuh.
#include "check.h"
#include "row_norm.cuh"

LigerStatus LigerCudaRmsNorm(const LigerRmsNormArgs* args, LigerCudaStream stream) {
  using namespace liger::cuda;
  if (const LigerStatus status = liger::Check(*args)) return status;
  RowNorm p = ToRowNorm(*args);
  p.offset = RoundedOnHost(args->offset, args->scale_type);
  return DispatchRowNorm<Norm::kRms>(*args, p, stream);
}
