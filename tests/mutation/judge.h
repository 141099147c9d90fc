// Whether a patched model computes what the mutant computes, as far as roundings let it be told.
//
//   const Judgement judged = Judge(mutant.model, feeds, before, after, {.half = false, .limit = 1e-5}, seed);
//   EXPECT_NE(judged.verdict, Verdict::kWrong) << judged.amount << judged.structure;
//
// A difference beyond the limit is no fault if the mutant itself magnifies roundings without bound (a
// norm bypassed, a value near zero inverted): disturbed weights and inputs show that. In f16 the patched
// model may be nearer to the f32 form of the mutant than the mutant is.
#pragma once

#include <onnx/onnx_pb.h>

#include <cstdint>
#include <string>

#include "patch_and_run.h"

namespace liger::test {

struct Tolerance {
  bool half = false;  // f16: relative L2, else of the largest output
  double limit = 0;
};

enum class Verdict { kSame, kUnstable, kWrong };

struct Judgement {
  Verdict verdict = Verdict::kWrong;
  double amount = 0;
  std::string structure;
};

Judgement Judge(const onnx::ModelProto& mutant, const NamedTensors& feeds,
                const NamedTensors& before, const NamedTensors& after, const Tolerance& tolerance,
                uint64_t seed);

}  // namespace liger::test
