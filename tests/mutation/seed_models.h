// Small models of every op in many spellings, for mutation: those that exports do not hold as well.
//
//   for (const SeedModel& seed : SeedModels()) Use(BuildSeed(seed, DType::kF16));
//
// Every node is named after its first output. Weights are initializers with fixed random numbers.
#pragma once

#include <onnx/onnx_pb.h>

#include <span>
#include <string>

#include "base/dtype.h"

namespace liger::test {

// `graph` is ONNX text, with $T for the dtype (float, float16), $N for its number, #0.5 for a scalar
// of it, ##0.5 for one in f32, #[-1] for integers. Inputs that begin with w_ are weights.
struct SeedModel {
  std::string name;
  int opset = 18;
  std::string graph;
};

std::span<const SeedModel> SeedModels();

onnx::ModelProto BuildSeed(const SeedModel& seed, DType dtype);

}  // namespace liger::test
