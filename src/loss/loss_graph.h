// The graphs of a model as one: values captured by bodies are the values they capture.
//
//   LossGraph graph(model);
//   const NodeRef node = graph.Producer(graph.Input(user, 0));
//   if (graph.Is(node, "LogSoftmax")) ...
//
// Lookups take constant time; nothing is changed. Only scalars and short integer lists are read.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <string_view>
#include <vector>

#include "model/graph.h"

namespace liger {

struct ValueRef {
  int graph = kNone;
  ValueId id = kNone;
  bool exists() const { return id != kNone; }
  auto operator<=>(const ValueRef&) const = default;
};

struct NodeRef {
  int graph = kNone;
  NodeId id = kNone;
  bool exists() const { return id != kNone; }
  auto operator<=>(const NodeRef&) const = default;
};

class LossGraph {
 public:
  explicit LossGraph(const GraphModel& model);

  const GraphModel& model() const { return model_; }
  const Node& node(NodeRef ref) const { return model_.graphs[ref.graph].nodes[ref.id]; }
  const Value& value(ValueRef ref) const { return model_.graphs[ref.graph].values[ref.id]; }

  // An operator of the default domain; false for no node.
  bool Is(NodeRef ref, std::string_view op) const {
    return ref.exists() && node(ref).domain.empty() && node(ref).op_type == op;
  }

  // No value where an input is left out; no node for inputs and initializers.
  ValueRef Input(NodeRef ref, size_t position) const;
  ValueRef Output(NodeRef ref, size_t position) const;
  NodeRef Producer(ValueRef ref) const;

  // Nodes that use the value, those of bodies included, each once. More than `limit` are cut off at
  // limit + 1.
  std::vector<NodeRef> Users(ValueRef ref, size_t limit) const;
  // An output of its graph, or of a body that captures it.
  bool IsOutput(ValueRef ref) const;

  // Initializers, Constant nodes, and what is computed from one of them by a Cast or another shape.
  bool IsConstant(ValueRef ref) const;
  // The only element of a constant.
  std::optional<double> Scalar(ValueRef ref) const;
  bool IsScalar(ValueRef ref, double wanted) const;
  // The elements of a short integer constant.
  std::optional<std::vector<int64_t>> Ints(ValueRef ref) const;

  std::optional<int64_t> Int(NodeRef ref, std::string_view attribute) const;
  std::optional<int64_t> Rank(ValueRef ref) const;
  int64_t opset() const { return opset_; }

 private:
  ValueRef Origin(int graph, ValueId id) const;
  std::vector<ValueRef> Captures(ValueRef ref) const;

  const GraphModel& model_;
  int64_t opset_ = 0;
  std::map<ValueRef, std::vector<ValueRef>> captured_by_;
};

}  // namespace liger
