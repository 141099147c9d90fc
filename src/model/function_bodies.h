// The functions behind a model's fused ops, as far as one must know them to say whether what a call
// finds there still fits it.
//
//   auto bodies = FunctionBodies::Of(model, own_ops);
//   const FunctionBody* body = bodies->Find(node);
//   if (body == nullptr || !body->same_operators) ...
//   const std::string why = body->Misfit(operands, results);
//
// A view: the ModelProto must outlive it and must not change meanwhile.
#pragma once

#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "base/dtype.h"
#include "base/error.h"
#include "model/graph.h"
#include "model/own_ops.h"

namespace onnx {
class FunctionProto;
class ModelProto;
}  // namespace onnx

namespace liger {

// Domain, name, overload.
using FunctionId = std::tuple<std::string, std::string, std::string>;
FunctionId FunctionOf(const Node& call);

struct FunctionBody {
  const onnx::FunctionProto* function = nullptr;
  Graph graph;  // without types
  std::map<std::string, int64_t> opsets;
  bool same_operators = false;  // its operators mean the same at the versions the model imports

  // As BodyMisfit (model/dtype_drift.h).
  std::string Misfit(const std::vector<DType>& operands, const std::vector<DType>& results) const;
};

class FunctionBodies {
 public:
  // Of our own ops and of `own` ops of users' patch maps.
  static Result<FunctionBodies> Of(const onnx::ModelProto& model, const OwnOpNames& own);

  // Null if the model does not hold the function that the node calls.
  const FunctionBody* Find(const Node& call) const;

  const std::map<FunctionId, FunctionBody>& all() const { return bodies_; }

 private:
  std::map<FunctionId, FunctionBody> bodies_;
};

void RemoveFunctions(const std::set<FunctionId>& functions, onnx::ModelProto& model);

}  // namespace liger
