#include "pattern/view.h"

#include <algorithm>
#include <set>
#include <string_view>

namespace liger {
namespace {

// Constants are looked at by value only if they are scalars or short lists of integers.
constexpr int64_t kMaxScalarBytes = 8;
constexpr int64_t kMaxIntListBytes = 128;

}  // namespace

GraphView::GraphView(const GraphModel& model, int graph, Canonicalizer& canonicalizer)
    : model_(model), graph_(model.graphs[graph]), canonicalizer_(canonicalizer) {
  terms_of_.assign(graph_.values.size(), kNone);
  alias_of_.assign(graph_.values.size(), kNone);
  const auto define = [&](ValueId id, TermId term) {
    terms_of_[id] = term;
    canonicalizer_.SetShape(term, graph_.values[id].type.shape);
    if (alias_of_[id] == kNone) first_value_.emplace(term, id);
  };
  for (size_t i = 0; i < graph_.values.size(); ++i) {
    const auto id = static_cast<ValueId>(i);
    if (graph_.values[i].producer == kNone) define(id, TermOfSource(graph_.values[i], id));
  }
  for (const Node& node : graph_.nodes) {
    std::vector<TermId> args;
    for (ValueId input : node.inputs) args.push_back(input == kNone ? kNone : terms_of_[input]);
    NodeContext context;
    context.node = &node;
    context.opset = OpsetOf(model_.opsets, node.domain);
    context.default_opset = OpsetOf(model_.opsets, "");
    context.args = args;
    for (ValueId output : node.outputs) {
      context.output_types.push_back(output == kNone ? ValueType{} : graph_.values[output].type);
    }
    const std::vector<TermId> outputs = canonicalizer_.Canonicalize(context);
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      const ValueId id = node.outputs[i];
      if (id == kNone) continue;
      TermId term = i < outputs.size() ? outputs[i] : kNone;
      if (term == kNone) term = TermOfSource(graph_.values[id], id);
      alias_of_[id] = FindAlias(node, term);
      define(id, term);
    }
  }
}

ValueId GraphView::FindAlias(const Node& node, TermId term) const {
  for (ValueId input : node.inputs) {
    if (input != kNone && terms_of_[input] == term) return input;
  }
  // A conversion that undoes another one gives an earlier value back: its term is no application of
  // the operator to its input.
  static const std::set<std::string_view> conversions = {
      "Cast", "CastLike", "Reshape", "Squeeze", "Expand", "Transpose", "Unsqueeze", "Identity"};
  if (!node.domain.empty() || !conversions.contains(node.op_type) || node.inputs.empty()) {
    return kNone;
  }
  const std::vector<TermId>& args = terms()[term].args;
  if (node.inputs[0] == kNone) return kNone;
  const bool applied = std::find(args.begin(), args.end(), terms_of_[node.inputs[0]]) != args.end();
  return applied ? kNone : FirstValue(term);
}

TermId GraphView::TermOfSource(const Value& value, ValueId id) {
  TermStore& terms = canonicalizer_.terms();
  const bool is_constant = value.is_constant_initializer() || value.producer != kNone;
  // A constant of an outer graph is the same constant here.
  const Graph* graph = &graph_;
  ValueId at = id;
  while (graph->values[at].outer != kNone) {
    at = graph->values[at].outer;
    graph = &model_.graphs[graph->parent];
  }
  const Value& source = graph->values[at];
  if (is_constant || source.is_constant_initializer() || source.producer != kNone) {
    int64_t count = 1;
    bool known = source.type.shape.has_value();
    if (known) {
      for (const Dim& dim : *source.type.shape) {
        known = known && dim.is_known();
        count *= dim.value;
      }
    }
    const bool scalar = known && count == 1;
    const bool ints = known && !IsFloat(source.type.dtype) && source.type.shape->size() == 1;
    if ((scalar || ints) && model_.constants != nullptr) {
      const int64_t limit = scalar ? kMaxScalarBytes : kMaxIntListBytes;
      if (const auto tensor = model_.constants->Read(*graph, at, limit)) {
        if (const auto term = ConstantTerm(terms, *tensor)) return *term;
      }
    }
  }
  return terms.Leaf(graph_.index, id, value.type.dtype);
}

ValueId GraphView::Origin(ValueId value) const {
  while (alias_of_[value] != kNone) value = alias_of_[value];
  return value;
}

ValueId GraphView::FirstValue(TermId term) const {
  const auto found = first_value_.find(term);
  return found != first_value_.end() ? found->second : kNone;
}

std::string GraphView::Describe(TermId term) const {
  const Term& t = terms()[term];
  std::string what = t.kind == TermKind::kOp ? t.text : "";
  if (what.starts_with("::")) what = what.substr(2);
  if (t.kind == TermKind::kScalar || t.kind == TermKind::kInts) {
    what = "constant " + terms().ToString(term);
  }
  const ValueId value = FirstValue(term);
  if (value == kNone) return what.empty() ? terms().ToString(term) : what;
  const Value& v = graph_.values[value];
  if (what.empty()) {
    what = v.is_input ? "graph input" : v.is_initializer ? "initializer" : "value";
    if (v.is_input && v.is_initializer) what = "overridable initializer";
    if (v.producer != kNone) what = graph_.nodes[v.producer].op_type;
  }
  return "'" + v.name + "' (" + what + ")";
}

}  // namespace liger
