// A kernel as ONNX Runtime holds it: made from a node's attributes, then computed any number of
// times, by several threads at once.
//
// A binding (rms_norm_op.cc, rope_op.cc, ...) checks attributes when the kernel is made
// and shapes when it runs, fills the argument struct of kernels/include and hands it to the
// launchers of its provider. It does no maths.
#pragma once

#include <onnxruntime_c_api.h>

#include <memory>
#include <string>
#include <string_view>

#include "base/dtype.h"
#include "base/error.h"
#include "liger/geglu.h"
#include "liger/group_norm.h"
#include "liger/layer_norm.h"
#include "liger/rms_norm.h"
#include "liger/rope.h"
#include "liger/softmax.h"
#include "liger/swiglu.h"
#include "ops/op_contract.h"

namespace liger::ort {

// How a provider runs the kernels.
struct Launchers {
  Status (*rms_norm)(OrtKernelContext* context, const LigerRmsNormArgs& args);
  Status (*rope)(OrtKernelContext* context, const LigerRopeArgs& args);
  Status (*swiglu)(OrtKernelContext* context, const LigerSwiGluArgs& args);
  Status (*layer_norm)(OrtKernelContext* context, const LigerLayerNormArgs& args);
  Status (*group_norm)(OrtKernelContext* context, const LigerGroupNormArgs& args);
  Status (*geglu)(OrtKernelContext* context, const LigerGeGluArgs& args);
  Status (*softmax)(OrtKernelContext* context, const LigerSoftmaxArgs& args);
};

// On ONNX Runtime's own intra-op threads.
const Launchers& CpuLaunchers();

// On the compute stream of the session. Only in builds with CUDA.
const Launchers& CudaLaunchers();

class Kernel {
 public:
  virtual ~Kernel() = default;
  virtual Status Compute(OrtKernelContext* context) const = 0;
};

// What a kernel is made from.
class NodeInfo {
 public:
  NodeInfo(const OpContract& contract, const TypeTuple& types, const Launchers& launchers,
           const OrtKernelInfo* info);

  const Launchers& launchers() const { return launchers_; }
  size_t input_count() const { return input_count_; }
  size_t output_count() const { return output_count_; }
  DType Find(std::string_view symbol) const { return types_.Find(symbol); }

  // "LigerRope (node 'n1')": the place of every error.
  const std::string& label() const { return label_; }

  // Attributes of the contract: a missing one, one of another type, and a value outside the
  // contract are errors.
  Result<float> Float(const char* name) const;  // finite
  Result<int64_t> Int(const char* name) const;
  Result<std::string> String(const char* name) const;  // one of the values that the contract lists
  Result<DType> FloatType(const char* name) const;     // f32, f16, bf16 or f64

  Error Invalid(std::string message) const {
    return {ErrorCode::kUsage, std::move(message), label_, ""};
  }

 private:
  Error BadAttribute(const char* name, std::string_view wanted) const;

  const OpContract& contract_;
  const TypeTuple& types_;
  const Launchers& launchers_;
  const OrtKernelInfo* info_;
  std::string label_;
  size_t input_count_ = 0;
  size_t output_count_ = 0;
};

using MakeKernel = Result<std::unique_ptr<Kernel>> (*)(const NodeInfo& node);

Result<std::unique_ptr<Kernel>> MakeRmsNorm(const NodeInfo& node);
Result<std::unique_ptr<Kernel>> MakeAddRmsNorm(const NodeInfo& node);
Result<std::unique_ptr<Kernel>> MakeRope(const NodeInfo& node);
Result<std::unique_ptr<Kernel>> MakeSwiGlu(const NodeInfo& node);
Result<std::unique_ptr<Kernel>> MakeLayerNorm(const NodeInfo& node);
Result<std::unique_ptr<Kernel>> MakeAddLayerNorm(const NodeInfo& node);
Result<std::unique_ptr<Kernel>> MakeGroupNorm(const NodeInfo& node);
Result<std::unique_ptr<Kernel>> MakeGeGlu(const NodeInfo& node);
Result<std::unique_ptr<Kernel>> MakeSoftmax(const NodeInfo& node);

}  // namespace liger::ort
