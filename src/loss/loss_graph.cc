#include "loss/loss_graph.h"

#include <algorithm>

namespace liger {
namespace {

// What a constant passes on its way to its user, at most.
constexpr int kMaxConstantSteps = 4;
constexpr int64_t kMaxIntsBytes = 128;

}  // namespace

LossGraph::LossGraph(const GraphModel& model) : model_(model) {
  const auto opset = model.opsets.find("");
  if (opset != model.opsets.end()) opset_ = opset->second;
  for (const Graph& graph : model.graphs) {
    for (size_t id = 0; graph.parent != kNone && id < graph.values.size(); ++id) {
      const Value& value = graph.values[id];
      if (value.outer == kNone) continue;
      captured_by_[{graph.parent, value.outer}].push_back({graph.index, static_cast<ValueId>(id)});
    }
  }
}

ValueRef LossGraph::Origin(int graph, ValueId id) const {
  ValueRef ref{graph, id};
  while (ref.exists() && value(ref).outer != kNone) {
    ref = {model_.graphs[ref.graph].parent, value(ref).outer};
  }
  return ref;
}

ValueRef LossGraph::Input(NodeRef ref, size_t position) const {
  if (!ref.exists() || position >= node(ref).inputs.size()) return {};
  const ValueId id = node(ref).inputs[position];
  return id == kNone ? ValueRef{} : Origin(ref.graph, id);
}

ValueRef LossGraph::Output(NodeRef ref, size_t position) const {
  if (!ref.exists() || position >= node(ref).outputs.size()) return {};
  const ValueId id = node(ref).outputs[position];
  return id == kNone ? ValueRef{} : ValueRef{ref.graph, id};
}

NodeRef LossGraph::Producer(ValueRef ref) const {
  if (!ref.exists() || value(ref).producer == kNone) return {};
  return {ref.graph, value(ref).producer};
}

std::vector<ValueRef> LossGraph::Captures(ValueRef ref) const {
  if (!ref.exists()) return {};
  std::vector<ValueRef> all = {ref};
  for (size_t i = 0; i < all.size(); ++i) {
    const auto found = captured_by_.find(all[i]);
    if (found != captured_by_.end()) {
      all.insert(all.end(), found->second.begin(), found->second.end());
    }
  }
  return all;
}

std::vector<NodeRef> LossGraph::Users(ValueRef ref, size_t limit) const {
  std::vector<NodeRef> users;
  for (const ValueRef at : Captures(ref)) {
    for (const NodeId user : value(at).users) {
      const NodeRef found{at.graph, user};
      if (std::find(users.begin(), users.end(), found) != users.end()) continue;
      users.push_back(found);
      if (users.size() > limit) return users;
    }
  }
  return users;
}

bool LossGraph::IsOutput(ValueRef ref) const {
  const std::vector<ValueRef> all = Captures(ref);
  return std::any_of(all.begin(), all.end(), [&](ValueRef at) { return value(at).is_output; });
}

bool LossGraph::IsConstant(ValueRef ref) const {
  for (int step = 0; ref.exists() && step <= kMaxConstantSteps; ++step) {
    if (value(ref).is_constant_initializer()) return true;
    const NodeRef producer = Producer(ref);
    if (Is(producer, "Constant")) return true;
    if (!Is(producer, "Cast") && !Is(producer, "Reshape") && !Is(producer, "Unsqueeze") &&
        !Is(producer, "Squeeze") && !Is(producer, "Identity") && !Is(producer, "CastLike") &&
        !Is(producer, "Expand") && !Is(producer, "ConstantOfShape")) {
      return false;
    }
    if (Is(producer, "ConstantOfShape")) return true;
    ref = Input(producer, 0);
  }
  return false;
}

std::optional<double> LossGraph::Scalar(ValueRef ref) const {
  for (int step = 0; ref.exists() && step <= kMaxConstantSteps; ++step) {
    const Value& at = value(ref);
    const NodeRef producer = Producer(ref);
    if (at.is_constant_initializer() || Is(producer, "Constant")) {
      if (producer.exists()) {
        if (const Attribute* a = node(producer).FindAttribute("value_float")) {
          if (const auto* f = std::get_if<float>(&a->value)) return *f;
        }
        if (const auto i = Int(producer, "value_int")) return static_cast<double>(*i);
      }
      int64_t elements = 1;
      if (at.type.shape) {
        for (const Dim& dim : *at.type.shape) elements *= dim.is_known() ? dim.value : 2;
      }
      if (elements != 1 || model_.constants == nullptr) return std::nullopt;
      const auto tensor =
          model_.constants->ReadInline(model_.graphs[ref.graph], ref.id, sizeof(double));
      if (tensor == nullptr || tensor->size() != 1) return std::nullopt;
      if (!tensor->floats.empty()) return tensor->floats[0];
      if (!tensor->ints.empty()) return static_cast<double>(tensor->ints[0]);
      return std::nullopt;
    }
    if (!Is(producer, "Cast") && !Is(producer, "CastLike") && !Is(producer, "Identity") &&
        !Is(producer, "Reshape") && !Is(producer, "Unsqueeze") && !Is(producer, "Squeeze")) {
      return std::nullopt;
    }
    ref = Input(producer, 0);
  }
  return std::nullopt;
}

bool LossGraph::IsScalar(ValueRef ref, double wanted) const {
  const std::optional<double> scalar = Scalar(ref);
  return scalar && *scalar == wanted;
}

std::optional<std::vector<int64_t>> LossGraph::Ints(ValueRef ref) const {
  if (!ref.exists()) return std::nullopt;
  const NodeRef producer = Producer(ref);
  if (Is(producer, "Constant")) {
    if (const Attribute* a = node(producer).FindAttribute("value_ints")) {
      if (const auto* ints = std::get_if<std::vector<int64_t>>(&a->value)) return *ints;
    }
    if (const auto i = Int(producer, "value_int")) return std::vector<int64_t>{*i};
  } else if (!value(ref).is_constant_initializer()) {
    return std::nullopt;
  }
  const DType dtype = value(ref).type.dtype;
  if ((dtype != DType::kI64 && dtype != DType::kI32) || model_.constants == nullptr) {
    return std::nullopt;
  }
  const auto tensor = model_.constants->ReadInline(model_.graphs[ref.graph], ref.id, kMaxIntsBytes);
  if (tensor == nullptr) return std::nullopt;
  return tensor->ints;
}

std::optional<int64_t> LossGraph::Int(NodeRef ref, std::string_view attribute) const {
  if (!ref.exists()) return std::nullopt;
  const Attribute* found = node(ref).FindAttribute(attribute);
  if (found == nullptr) return std::nullopt;
  const auto* value = std::get_if<int64_t>(&found->value);
  return value != nullptr ? std::optional(*value) : std::nullopt;
}

std::optional<int64_t> LossGraph::Rank(ValueRef ref) const {
  if (!ref.exists() || !value(ref).type.shape) return std::nullopt;
  return static_cast<int64_t>(value(ref).type.shape->size());
}

}  // namespace liger
