// One OrtCustomOp: an op of the contract, for one provider and one dtype tuple.
//
//   CustomOp entry(contract, tuple, {"CPUExecutionProvider", CpuLaunchers()}, {MakeRope,
//   InferRope}); api.CustomOpDomain_Add(domain, &entry);
//
// The entry must outlive every session that uses it. No exception leaves its callbacks.
#pragma once

#include <onnxruntime_c_api.h>

#include "infer.h"
#include "kernel.h"
#include "ops/op_contract.h"

namespace liger::ort {

struct ProviderBinding {
  Provider provider;
  const char* name;  // as ONNX Runtime spells it
  const Launchers& launchers;
};

// OrtCustomOp::GetMayInplace: the runtime reuses the memory of an input that nobody reads later for
// the output, where both are of one size. The callback does not learn which op asks.
using MayInPlace = size_t(ORT_API_CALL*)(int** inputs, int** outputs);

struct InPlacePair {
  int input;
  int output;
};

// The callback for a list of pairs; the runtime hands the arrays back to ReleaseMayInplace.
template <InPlacePair... kPairs>
size_t ORT_API_CALL InPlace(int** inputs, int** outputs) {
  *inputs = new int[]{kPairs.input...};
  *outputs = new int[]{kPairs.output...};
  return sizeof...(kPairs);
}

struct OpBinding {
  std::string_view op_type;
  MakeKernel make;
  InferShapes infer;
  MayInPlace in_place;
};

struct CustomOp : OrtCustomOp {
  CustomOp(const OpContract& contract, const TypeTuple& types, const ProviderBinding& provider,
           const OpBinding& op);

  const OpContract& contract;
  const TypeTuple& types;
  const ProviderBinding& provider;
  const OpBinding& op;
  std::string name;  // with a terminating zero
};

}  // namespace liger::ort
