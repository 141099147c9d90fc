#include "api/graph_notes.h"

#include <onnx/onnx_pb.h>

#include <set>
#include <string_view>
#include <tuple>

#include "ops/op_contract.h"

namespace liger {
namespace {

// Operators between the two products of an attention and its Softmax, at most.
constexpr int kMaxSteps = 8;

// Operators through which scores and masks pass on their way to the Softmax and from it.
bool PassesScores(const Node& node) {
  static const std::set<std::string_view> ops = {
      "Add", "Sub",   "Mul",   "Div",  "Where",   "Cast",  "Reshape",   "Transpose", "Expand",
      "Max", "Slice", "Split", "Tanh", "Dropout", "IsNaN", "Unsqueeze", "Squeeze",   "Concat"};
  return node.domain.empty() && ops.contains(node.op_type);
}

const Node* ProducerOf(const Graph& graph, ValueId value) {
  if (value == kNone || graph.values[value].producer == kNone) return nullptr;
  return &graph.nodes[graph.values[value].producer];
}

bool ComesFromProduct(const Graph& graph, ValueId value, int steps) {
  const Node* node = ProducerOf(graph, value);
  if (node == nullptr || steps == 0) return false;
  if (node->op_type == "MatMul" || node->op_type == "Einsum") return true;
  if (!PassesScores(*node)) return false;
  for (const ValueId input : node->inputs) {
    if (ComesFromProduct(graph, input, steps - 1)) return true;
  }
  return false;
}

bool GoesToProduct(const Graph& graph, ValueId value, int steps) {
  if (value == kNone || steps == 0) return false;
  for (const NodeId user : graph.values[value].users) {
    const Node& node = graph.nodes[user];
    if (node.op_type == "MatMul" || node.op_type == "Einsum") return true;
    if (PassesScores(node) && !node.outputs.empty() &&
        GoesToProduct(graph, node.outputs[0], steps - 1)) {
      return true;
    }
  }
  return false;
}

}  // namespace

int64_t CountDecomposedAttentions(const GraphModel& model) {
  int64_t count = 0;
  for (const Graph& graph : model.graphs) {
    for (const Node& node : graph.nodes) {
      if (node.op_type != "Softmax" || node.inputs.empty() || node.outputs.empty()) continue;
      const bool between = ComesFromProduct(graph, node.inputs[0], kMaxSteps) &&
                           GoesToProduct(graph, node.outputs[0], kMaxSteps);
      count += between ? 1 : 0;
    }
  }
  return count;
}

std::vector<std::string> FindOpsWithoutBody(const onnx::ModelProto& proto,
                                            const GraphModel& model) {
  std::set<std::tuple<std::string, std::string, std::string>> bodies;
  for (const onnx::FunctionProto& function : proto.functions()) {
    bodies.emplace(function.domain(), function.name(), function.overload());
  }
  std::set<std::string> missing;
  for (const Graph& graph : model.graphs) {
    for (const Node& node : graph.nodes) {
      if (node.domain != kOpDomain || FindContract(node.op_type) == nullptr) continue;
      if (!bodies.contains({node.domain, node.op_type, node.overload})) {
        missing.insert(node.op_type);
      }
    }
  }
  return {missing.begin(), missing.end()};
}

}  // namespace liger
