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

struct OpBinding {
  std::string_view op_type;
  MakeKernel make;
  InferShapes infer;
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
