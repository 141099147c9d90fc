#include "pattern/own_match.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string_view>
#include <vector>

#include "pattern/op_pattern.h"

namespace liger {
namespace {

// Operands of these may stand in either order.
bool IsCommutative(const Node& node) {
  static const std::set<std::string_view> ops = {"Add", "Mul", "Max", "Min",  "And",
                                                 "Or",  "Xor", "Sum", "Equal"};
  return node.domain.empty() && node.inputs.size() == 2 && ops.contains(node.op_type);
}

class NodeMatcher {
 public:
  NodeMatcher(const GraphView& view, const PatternInstance& instance)
      : view_(view),
        graph_(view.graph()),
        terms_(view.terms()),
        instance_(instance),
        text_(instance.text->function.graph) {}

  std::optional<Binding> Run(ValueId root) {
    Goal goal{text_.outputs[0], root, nullptr};
    if (!Solve(&goal)) return std::nullopt;
    return std::move(result_);
  }

 private:
  // Pairs of a text's value and a graph's, still to be matched.
  struct Goal {
    ValueId text = kNone;
    ValueId graph = kNone;
    const Goal* next = nullptr;
  };

  // Depth is bounded by the size of the text.
  bool Solve(const Goal* goal) {
    if (goal == nullptr) return Finish();
    if ((goal->text == kNone) != (goal->graph == kNone)) return false;
    if (goal->text == kNone) return Solve(goal->next);
    const Value& text = text_.values[goal->text];
    if (const auto bound = bound_.find(goal->text); bound != bound_.end()) {
      return view_.term(bound->second) == view_.term(goal->graph) && Solve(goal->next);
    }
    if (text.producer == kNone) return SolveInput(*goal);
    const Node& node = text_.nodes[text.producer];
    if (IsNumber(goal->text)) return SolveNumber(*goal);
    if (node.op_type == "Identity" && node.domain.empty()) {
      const Goal inside{node.inputs[0], goal->graph, goal->next};
      return WithBound(*goal, [&] { return Solve(&inside); });
    }
    const ValueId graph = WithoutIdentity(goal->graph);
    const Value& value = graph_.values[graph];
    if (value.producer == kNone || value.output_index != text.output_index) return false;
    const Node& other = graph_.nodes[value.producer];
    if (other.op_type != node.op_type || other.domain != node.domain) return false;
    std::vector<ValueId> operands = other.inputs;
    operands.resize(std::max(operands.size(), node.inputs.size()), kNone);
    if (operands.size() > node.inputs.size()) return false;
    return WithBound(*goal, [&] {
      if (SolveOperands(node.inputs, operands, goal->next)) return true;
      if (!IsCommutative(node)) return false;
      std::swap(operands[0], operands[1]);
      return SolveOperands(node.inputs, operands, goal->next);
    });
  }

  bool SolveOperands(const std::vector<ValueId>& text, const std::vector<ValueId>& graph,
                     const Goal* next) {
    std::vector<Goal> goals(text.size());
    for (size_t i = text.size(); i-- > 0;) {
      goals[i] = {text[i], graph[i], next};
      next = &goals[i];
    }
    return Solve(next);
  }

  // A constant of the text, a capture, or a Cast of one: the graph has a number there.
  bool IsNumber(ValueId value) const {
    const NodeId producer = text_.values[value].producer;
    if (producer == kNone) return false;
    const Node& node = text_.nodes[producer];
    if (!node.domain.empty()) return false;
    if (node.op_type == "Constant") return true;
    return (node.op_type == "Cast" || node.op_type == "CastLike") && IsNumber(node.inputs[0]);
  }

  // The attribute that a number of the text captures; null if it is a constant.
  const std::string* CaptureOf(ValueId value) const {
    const Node* node = &text_.nodes[text_.values[value].producer];
    while (node->op_type != "Constant") {
      node = &text_.nodes[text_.values[node->inputs[0]].producer];
    }
    for (const Attribute& attribute : node->attributes) {
      if (const auto* ref = std::get_if<AttributeRef>(&attribute.value)) return &ref->name;
    }
    return nullptr;
  }

  bool SolveNumber(const Goal& goal) {
    const Term& term = terms_[view_.term(goal.graph)];
    const std::string* capture = CaptureOf(goal.text);
    if (capture == nullptr) {
      const bool is_scalar =
          term.kind == TermKind::kScalar && (IsFloat(term.dtype) || HoldsInteger(term.scalar));
      const bool is_constant = is_scalar || term.kind == TermKind::kInts;
      return is_constant && WithBound(goal, [&] { return Solve(goal.next); });
    }
    if (term.kind != TermKind::kScalar || !std::isfinite(term.scalar)) return false;
    const AttributeSpec* spec = instance_.op->contract->FindAttribute(*capture);
    Attribute::Value number = static_cast<float>(term.scalar);
    if (spec->kind == AttributeKind::kInt) {
      if (!HoldsInteger(term.scalar)) return false;
      number = static_cast<int64_t>(term.scalar);
    } else if (static_cast<double>(static_cast<float>(term.scalar)) != term.scalar) {
      return false;
    }
    const auto [known, is_new] = captured_.try_emplace(*capture, number);
    if (!is_new && known->second != number) return false;
    if (WithBound(goal, [&] { return Solve(goal.next); })) return true;
    if (is_new) captured_.erase(*capture);
    return false;
  }

  bool SolveInput(const Goal& goal) {
    const std::string& name = text_.values[goal.text].name;
    const auto& ports = instance_.op->contract->inputs;
    const auto port =
        std::find_if(ports.begin(), ports.end(), [&](const Port& p) { return p.name == name; });
    for (const TypeBinding& binding : instance_.types) {
      const bool is_its = binding.symbol == port->type_symbol;
      if (is_its && binding.dtype != terms_[view_.term(goal.graph)].dtype) return false;
    }
    return WithBound(goal, [&] { return Solve(goal.next); });
  }

  ValueId WithoutIdentity(ValueId value) const {
    while (graph_.values[value].producer != kNone) {
      const Node& node = graph_.nodes[graph_.values[value].producer];
      if (node.op_type != "Identity" || !node.domain.empty() || node.inputs[0] == kNone) break;
      value = node.inputs[0];
    }
    return value;
  }

  template <typename Then>
  bool WithBound(const Goal& goal, Then then) {
    bound_[goal.text] = goal.graph;
    if (then()) return true;
    bound_.erase(goal.text);
    return false;
  }

  bool Finish() {
    Binding binding;
    for (const ValueId input : text_.inputs) binding.inputs.push_back(view_.term(bound_.at(input)));
    for (const ValueId output : text_.outputs) {
      const auto found = bound_.find(output);
      if (found == bound_.end()) return false;
      binding.outputs.push_back(view_.term(found->second));
    }
    for (const std::string& capture : instance_.captures) {
      const auto found = captured_.find(capture);
      if (found == captured_.end()) return false;
      binding.attributes[capture] = found->second;
    }
    const bool all_values =
        std::all_of(binding.inputs.begin(), binding.inputs.end(),
                    [&](TermId input) { return view_.FirstValue(input) != kNone; });
    if (!all_values || !IsBodyInPlace(view_, instance_, binding)) return false;
    binding.anchor = binding.outputs[0];
    result_ = std::move(binding);
    return true;
  }

  const GraphView& view_;
  const Graph& graph_;
  const TermStore& terms_;
  const PatternInstance& instance_;
  const Graph& text_;
  std::map<ValueId, ValueId> bound_;
  std::map<std::string, Attribute::Value> captured_;
  std::optional<Binding> result_;
};

}  // namespace

std::optional<Binding> MatchNodes(const GraphView& view, const PatternInstance& instance,
                                  ValueId root) {
  return NodeMatcher(view, instance).Run(root);
}

bool IsBodyInPlace(const GraphView& view, const PatternInstance& instance, const Binding& binding) {
  const std::vector<TermId> outputs =
      OpPatternSet::EvaluateInPlace(view.canonicalizer(), *instance.op->contract, *instance.text,
                                    binding.inputs, binding.attributes);
  return outputs == binding.outputs;
}

}  // namespace liger
