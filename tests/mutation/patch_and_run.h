// A model through the patcher and through ONNX Runtime: what the tests of the whole way share.
//
//   Result<PatchedModel> patched = PatchBytes(bytes);
//   Result<NamedTensors> before = RunModel(bytes, feeds, "");
//   Result<NamedTensors> after = RunModel(patched->bytes, feeds, LigerLibraryPath());
//   Difference d = Compare(*before, *after);
//
// Sessions run without graph optimisation on one thread, so that a model is computed as it stands.
#pragma once

#include <onnx/onnx_pb.h>

#include <cstdint>
#include <random>
#include <string>

#include "api/patch_model.h"
#include "base/error.h"
#include "ort_session.h"
#include "tensor.h"

namespace liger::test {

struct PatchedModel {
  Report report;
  std::string bytes;  // those of the input if nothing was fused
};

// Family "any", every module. An Error of the tool is the Error.
Result<PatchedModel> PatchBytes(const std::string& bytes, const PatchOptions& base = {});

Result<NamedTensors> RunModel(const std::string& bytes, const NamedTensors& feeds,
                              const std::string& library);

// Feeds for the decoders of tests/models: token ids, a mask with padding in one row, a cache.
// Symbolic batch and sequence become 2 and 5, the past 3 long.
NamedTensors DecoderFeeds(const onnx::ModelProto& model, std::mt19937_64& random);

// Numbers in [-1, 1) of a type and shape.
Tensor RandomTensor(DType dtype, std::vector<int64_t> shape, std::mt19937_64& random);

struct Difference {
  double largest = 0;      // largest |a - b|, relative to the largest |a| of the output
  double relative_l2 = 0;  // |a - b| / |a| of an output, the worst of them
  std::string structure;   // not empty: outputs, shapes, NaN or infinite places differ
};
Difference Compare(const NamedTensors& a, const NamedTensors& b);

}  // namespace liger::test
