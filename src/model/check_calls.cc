#include "model/check_calls.h"

#include <onnx/onnx_pb.h>

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "model/check.h"
#include "model/edit.h"
#include "model/structure.h"
#include "ops/op_contract.h"

namespace liger {
namespace {

// The nodes of all graphs in the order of GraphModel::graphs.
void CollectNodes(const onnx::GraphProto& graph,
                  std::vector<const google::protobuf::RepeatedPtrField<onnx::NodeProto>*>& nodes) {
  nodes.push_back(&graph.node());
  for (const onnx::NodeProto& node : graph.node()) {
    for (const onnx::AttributeProto& attribute : node.attribute()) {
      if (attribute.type() == onnx::AttributeProto::GRAPH) CollectNodes(attribute.g(), nodes);
    }
  }
}

// A model of the call alone. Values are named by their positions, so that equal calls give equal
// models.
onnx::ModelProto ModelOf(const onnx::NodeProto& call, const onnx::FunctionProto& function,
                         const onnx::ModelProto& model, const Graph& graph, const Node& node) {
  onnx::ModelProto alone;
  alone.set_ir_version(model.ir_version());
  *alone.mutable_opset_import() = model.opset_import();
  *alone.add_functions() = function;
  onnx::GraphProto& main = *alone.mutable_graph();
  main.set_name("call");
  onnx::NodeProto& copy = *main.add_node();
  copy = call;
  copy.clear_name();
  copy.clear_metadata_props();
  const auto add = [&](onnx::ValueInfoProto& info, std::string& name, std::string as,
                       ValueId value) {
    name = std::move(as);
    info.set_name(name);
    *info.mutable_type() = TypeProtoOf(graph.values[value].type);
  };
  for (int i = 0; i < copy.input_size(); ++i) {
    const ValueId value = node.inputs[static_cast<size_t>(i)];
    if (value == kNone) continue;
    add(*main.add_input(), *copy.mutable_input(i), "in" + std::to_string(i), value);
  }
  for (int i = 0; i < copy.output_size(); ++i) {
    const ValueId value = node.outputs[static_cast<size_t>(i)];
    if (value == kNone) continue;
    add(*main.add_output(), *copy.mutable_output(i), "out" + std::to_string(i), value);
  }
  return alone;
}

}  // namespace

std::optional<std::string> FindMisfitCall(const onnx::ModelProto& model, const GraphModel& graph,
                                          const OwnOpNames& own) {
  std::vector<const google::protobuf::RepeatedPtrField<onnx::NodeProto>*> nodes;
  CollectNodes(model.graph(), nodes);
  std::set<std::string> seen;
  for (size_t g = 0; g < nodes.size(); ++g) {
    for (int n = 0; n < nodes[g]->size(); ++n) {
      const onnx::NodeProto& call = (*nodes[g])[n];
      if (call.domain() != kOpDomain && !own.contains({call.domain(), call.op_type()})) continue;
      const auto function = std::find_if(
          model.functions().begin(), model.functions().end(),
          [&](const onnx::FunctionProto& one) { return KeyOf(one) == KeyOfCall(call); });
      if (function == model.functions().end()) return NodeText(call) + ": its function is missing";
      const Graph& part = graph.graphs[g];
      const Node& node = part.nodes[static_cast<size_t>(n)];
      const onnx::ModelProto alone = ModelOf(call, *function, model, part, node);
      if (!seen.insert(alone.SerializeAsString()).second) continue;
      if (auto why = CheckerVerdict(alone)) return NodeText(call) + ": " + *why;
      if (auto why = InferenceVerdict(alone)) return NodeText(call) + ": " + *why;
    }
  }
  return std::nullopt;
}

}  // namespace liger
