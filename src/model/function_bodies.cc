#include "model/function_bodies.h"

#include <onnx/onnx_pb.h>

#include <algorithm>
#include <utility>

#include "model/dtype_drift.h"
#include "model/onnx_graph.h"
#include "model/operator_versions.h"
#include "model/structure.h"
#include "ops/op_contract.h"

namespace liger {

FunctionId FunctionOf(const Node& call) { return {call.domain, call.op_type, call.overload}; }

std::string FunctionBody::Misfit(const std::vector<DType>& operands,
                                 const std::vector<DType>& results) const {
  return BodyMisfit(*function, operands, results);
}

Result<FunctionBodies> FunctionBodies::Of(const onnx::ModelProto& model, const OwnOpNames& own) {
  const Versions versions = VersionsOf(model.opset_import());
  std::set<FunctionKey> functions;
  for (const onnx::FunctionProto& function : model.functions()) functions.insert(KeyOf(function));
  const auto is_call = [&](const onnx::NodeProto& node) {
    return functions.contains(KeyOfCall(node));
  };
  FunctionBodies result;
  for (const onnx::FunctionProto& function : model.functions()) {
    FunctionId id(KeyOf(function));
    const auto& [domain, name, overload] = id;
    const bool is_ours = domain == kOpDomain && FindContract(name) != nullptr;
    if (!is_ours && !own.contains({domain, name})) continue;
    auto graph = GraphOfFunction(function);
    if (!graph) return std::move(graph).error();
    FunctionBody body;
    body.function = &function;
    body.graph = *std::move(graph);
    for (const auto& [imported, version] : VersionsOf(function.opset_import())) {
      body.opsets[imported] = version;
    }
    body.same_operators = SameOperators(function, versions, is_call);
    result.bodies_.emplace(std::move(id), std::move(body));
  }
  return result;
}

const FunctionBody* FunctionBodies::Find(const Node& call) const {
  const auto found = bodies_.find(FunctionOf(call));
  return found != bodies_.end() ? &found->second : nullptr;
}

void RemoveFunctions(const std::set<FunctionId>& functions, onnx::ModelProto& model) {
  auto& all = *model.mutable_functions();
  all.erase(std::remove_if(all.begin(), all.end(),
                           [&](const onnx::FunctionProto& function) {
                             return functions.contains(FunctionId(KeyOf(function)));
                           }),
            all.end());
}

}  // namespace liger
