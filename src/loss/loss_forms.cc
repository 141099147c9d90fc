#include "loss/loss_forms.h"

#include <algorithm>
#include <set>

namespace liger {
namespace {

// Nodes between the softmax and the pick, or between labels and their use, at most.
constexpr int kMaxSteps = 16;
// Of a value that meets another one: its users, at most.
constexpr size_t kMaxUsers = 8;

bool IsOneOf(const Node& node, const std::set<std::string_view>& ops) {
  return node.domain.empty() && ops.contains(node.op_type);
}

// Layout without a choice of elements.
bool KeepsElements(const Node& node) {
  static const std::set<std::string_view> ops = {"Identity",  "Cast",      "CastLike",
                                                 "Reshape",   "Flatten",   "Squeeze",
                                                 "Unsqueeze", "Transpose", "Dropout"};
  return IsOneOf(node, ops);
}

}  // namespace

bool IsLayoutOp(const Node& node) {
  static const std::set<std::string_view> ops = {"Slice", "Split", "Expand", "Compress"};
  return KeepsElements(node) || IsOneOf(node, ops);
}

ValueRef LossForms::WithoutLayout(ValueRef value) const {
  for (int step = 0; step < kMaxSteps; ++step) {
    const NodeRef producer = graph_.Producer(value);
    if (!producer.exists() || !KeepsElements(graph_.node(producer))) break;
    const ValueRef above = graph_.Input(producer, 0);
    if (!above.exists()) break;
    value = above;
  }
  return value;
}

bool LossForms::SameScores(ValueRef a, ValueRef b) const {
  return a.exists() && b.exists() && (a == b || WithoutLayout(a) == WithoutLayout(b));
}

std::optional<int64_t> LossForms::NormalAxis(std::optional<int64_t> axis, ValueRef of) const {
  const std::optional<int64_t> rank = graph_.Rank(of);
  if (!axis || !rank || *axis >= 0) return axis;
  return *axis + *rank;
}

// max(p, eps), p + eps, clip(p, eps, 1): what keeps a logarithm finite.
ValueRef LossForms::WithoutGuards(ValueRef value) const {
  for (int step = 0; step < kMaxSteps; ++step) {
    const NodeRef producer = graph_.Producer(value);
    if (!producer.exists()) break;
    if (graph_.Is(producer, "Clip") || KeepsElements(graph_.node(producer))) {
      value = graph_.Input(producer, 0);
    } else if (graph_.Is(producer, "Add") || graph_.Is(producer, "Max")) {
      const size_t constant = graph_.Scalar(graph_.Input(producer, 1)) ? 1 : 0;
      if (!graph_.Scalar(graph_.Input(producer, constant))) break;
      value = graph_.Input(producer, 1 - constant);
    } else {
      break;
    }
    if (!value.exists()) break;
  }
  return value;
}

std::optional<ValueRef> LossForms::MatchLogSumExp(ValueRef value) const {
  value = WithoutLayout(value);
  const NodeRef node = graph_.Producer(value);
  if (graph_.Is(node, "ReduceLogSumExp")) return graph_.Input(node, 0);
  if (graph_.Is(node, "Log")) {
    const NodeRef sum = graph_.Producer(WithoutGuards(graph_.Input(node, 0)));
    if (!graph_.Is(sum, "ReduceSum")) return std::nullopt;
    const NodeRef exp = graph_.Producer(WithoutLayout(graph_.Input(sum, 0)));
    if (!graph_.Is(exp, "Exp")) return std::nullopt;
    return graph_.Input(exp, 0);
  }
  if (!graph_.Is(node, "Add")) return std::nullopt;
  // log(sum(exp(x - max))) + max
  for (const size_t side : {size_t{0}, size_t{1}}) {
    const NodeRef max = graph_.Producer(WithoutLayout(graph_.Input(node, 1 - side)));
    if (!graph_.Is(max, "ReduceMax")) continue;
    const ValueRef log = WithoutLayout(graph_.Input(node, side));
    if (!graph_.Is(graph_.Producer(log), "Log")) continue;
    const auto shifted = MatchLogSumExp(log);
    if (!shifted) continue;
    const NodeRef sub = graph_.Producer(*shifted);
    if (graph_.Is(sub, "Sub") && SameScores(graph_.Input(sub, 0), graph_.Input(max, 0))) {
      return graph_.Input(sub, 0);
    }
  }
  return std::nullopt;
}

std::optional<ValueRef> LossForms::MatchSoftmax(ValueRef value) const {
  const NodeRef node = graph_.Producer(value);
  if (graph_.Is(node, "Softmax")) return graph_.Input(node, 0);
  if (graph_.Is(node, "Exp")) {
    const auto log_probs = MatchLogProbs(WithoutLayout(graph_.Input(node, 0)));
    return log_probs ? std::optional(log_probs->scores) : std::nullopt;
  }
  if (!graph_.Is(node, "Div")) return std::nullopt;
  const ValueRef exp_value = WithoutLayout(graph_.Input(node, 0));
  const NodeRef exp = graph_.Producer(exp_value);
  const NodeRef sum = graph_.Producer(WithoutLayout(graph_.Input(node, 1)));
  if (!graph_.Is(exp, "Exp") || !graph_.Is(sum, "ReduceSum") ||
      !SameScores(graph_.Input(sum, 0), exp_value)) {
    return std::nullopt;
  }
  const ValueRef scores = graph_.Input(exp, 0);
  const NodeRef sub = graph_.Producer(scores);
  const bool is_shifted =
      graph_.Is(sub, "Sub") &&
      graph_.Is(graph_.Producer(WithoutLayout(graph_.Input(sub, 1))), "ReduceMax");
  return is_shifted ? graph_.Input(sub, 0) : scores;
}

std::optional<LogProbs> LossForms::MatchLogProbs(ValueRef value) const {
  const NodeRef node = graph_.Producer(value);
  if (graph_.Is(node, "LogSoftmax")) {
    const ValueRef scores = graph_.Input(node, 0);
    const int64_t axis = graph_.Int(node, "axis").value_or(graph_.opset() >= 13 ? -1 : 1);
    return LogProbs{value, scores, "LogSoftmax", NormalAxis(axis, scores)};
  }
  if (node.exists() && graph_.node(node).op_type == "SoftmaxCrossEntropyLoss" &&
      graph_.value(value).output_index == 1) {
    return LogProbs{value, graph_.Input(node, 0), "SoftmaxCrossEntropyLoss", 1};
  }
  if (graph_.Is(node, "Log")) {
    const ValueRef inner = WithoutGuards(graph_.Input(node, 0));
    const NodeRef softmax = graph_.Producer(inner);
    if (graph_.Is(softmax, "Exp")) return std::nullopt;
    const auto scores = MatchSoftmax(inner);
    if (!scores) return std::nullopt;
    std::optional<int64_t> axis;
    if (graph_.Is(softmax, "Softmax")) {
      axis = graph_.Int(softmax, "axis").value_or(graph_.opset() >= 13 ? -1 : 1);
    }
    return LogProbs{value, *scores, "Log(Softmax)", NormalAxis(axis, *scores)};
  }
  if (graph_.Is(node, "Sub")) {
    // x - logsumexp(x), where both may be shifted by max(x)
    const ValueRef left = graph_.Input(node, 0);
    const auto summed = MatchLogSumExp(graph_.Input(node, 1));
    if (!summed || !SameScores(left, *summed)) return std::nullopt;
    const NodeRef shift = graph_.Producer(WithoutLayout(left));
    const bool is_shifted =
        graph_.Is(shift, "Sub") &&
        graph_.Is(graph_.Producer(WithoutLayout(graph_.Input(shift, 1))), "ReduceMax");
    const bool is_op =
        graph_.Is(graph_.Producer(WithoutLayout(graph_.Input(node, 1))), "ReduceLogSumExp");
    return LogProbs{value, is_shifted ? graph_.Input(shift, 0) : left,
                    is_op ? "ReduceLogSumExp" : "Log(ReduceSum(Exp))", std::nullopt};
  }
  return std::nullopt;
}

ValueRef LossForms::PassedOn(NodeRef ref) const {
  if (!ref.exists()) return {};
  const Node& node = graph_.node(ref);
  if (IsLayoutOp(node) || graph_.Is(ref, "Neg")) return graph_.Input(ref, 0);
  if (graph_.Is(ref, "Where")) {
    const ValueRef yes = graph_.Input(ref, 1);
    return graph_.IsConstant(yes) ? graph_.Input(ref, 2) : yes;
  }
  if (graph_.Is(ref, "Mul") || graph_.Is(ref, "Div")) {
    if (graph_.Scalar(graph_.Input(ref, 1))) return graph_.Input(ref, 0);
    if (graph_.Is(ref, "Mul") && graph_.Scalar(graph_.Input(ref, 0))) return graph_.Input(ref, 1);
  }
  return {};
}

std::optional<int64_t> LossForms::AxisBelow(NodeRef ref, std::optional<int64_t> axis) const {
  if (!axis) return axis;
  const Node& node = graph_.node(ref);
  if (node.op_type == "Transpose") {
    const Attribute* attribute = node.FindAttribute("perm");
    const auto* perm =
        attribute != nullptr ? std::get_if<std::vector<int64_t>>(&attribute->value) : nullptr;
    if (perm == nullptr) return std::nullopt;
    const int64_t from = *axis < 0 ? *axis + static_cast<int64_t>(perm->size()) : *axis;
    const auto at = std::find(perm->begin(), perm->end(), from);
    return at != perm->end() ? std::optional<int64_t>(at - perm->begin()) : std::nullopt;
  }
  if (node.op_type == "Reshape") {
    // The last axis stays the last one if it keeps its length.
    const ValueRef from = graph_.Input(ref, 0);
    const ValueRef to = graph_.Output(ref, 0);
    const auto rank = graph_.Rank(from);
    if (!from.exists() || !to.exists()) return std::nullopt;
    if (*axis != -1 && (!rank || *axis != *rank - 1)) return std::nullopt;
    const auto& shape_from = graph_.value(from).type.shape;
    const auto& shape_to = graph_.value(to).type.shape;
    if (!shape_from || !shape_to || shape_from->empty() || shape_to->empty() ||
        !shape_from->back().SameAs(shape_to->back())) {
      return std::nullopt;
    }
    return NormalAxis(-1, to);
  }
  if (node.op_type == "Squeeze" || node.op_type == "Unsqueeze" || node.op_type == "Flatten") {
    return std::nullopt;
  }
  return axis;
}

std::optional<LogProbs> LossForms::LogProbsAbove(ValueRef value) const {
  std::vector<NodeRef> path;
  while (value.exists() && path.size() < kMaxSteps) {
    if (auto log_probs = MatchLogProbs(value)) {
      for (auto node = path.rbegin(); node != path.rend(); ++node) {
        log_probs->axis = AxisBelow(*node, log_probs->axis);
      }
      return log_probs;
    }
    path.push_back(graph_.Producer(value));
    value = PassedOn(path.back());
  }
  return std::nullopt;
}

std::optional<ValueRef> LossForms::SoftmaxAbove(ValueRef value) const {
  return MatchSoftmax(WithoutGuards(value));
}

ValueRef LossForms::TargetRoot(ValueRef indices) const {
  for (int step = 0; step < kMaxSteps; ++step) {
    const NodeRef producer = graph_.Producer(indices);
    if (!producer.exists()) break;
    const Node& node = graph_.node(producer);
    ValueRef above;
    if (IsLayoutOp(node) || graph_.Is(producer, "Pad") || graph_.Is(producer, "Clip")) {
      above = graph_.Input(producer, 0);
    } else if (graph_.Is(producer, "Where")) {
      above = graph_.Input(producer, graph_.IsConstant(graph_.Input(producer, 1)) ? 2 : 1);
    } else if (graph_.Is(producer, "Concat")) {
      // The rows' numbers stand in front of the class numbers: those come last.
      above = graph_.Input(producer, node.inputs.size() - 1);
    } else if (graph_.Is(producer, "Mul") || graph_.Is(producer, "Max")) {
      // class numbers times a mask, max(class, 0)
      const bool first = !graph_.IsConstant(graph_.Input(producer, 0)) &&
                         !graph_.Is(graph_.Producer(graph_.Input(producer, 0)), "Cast");
      above = graph_.Input(producer, first ? 0 : 1);
    }
    if (!above.exists()) break;
    indices = above;
  }
  return indices;
}

bool LossForms::IsTarget(ValueRef indices) const {
  const ValueRef root = TargetRoot(indices);
  if (!root.exists()) return false;
  const NodeRef producer = graph_.Producer(root);
  if (!producer.exists()) return !graph_.value(root).is_constant_initializer();
  static const std::set<std::string_view> chosen = {
      "TopK",    "ArgMax",          "ArgMin",   "Multinomial", "Range",
      "NonZero", "ConstantOfShape", "Constant", "Shape",       "Unique"};
  return !chosen.contains(graph_.node(producer).op_type);
}

std::optional<LossForms::OneHot> LossForms::MatchOneHot(ValueRef value) const {
  const NodeRef node = graph_.Producer(WithoutLayout(value));
  if (graph_.Is(node, "OneHot")) {
    OneHot result{graph_.Input(node, 0)};
    const ValueRef values = graph_.Input(node, 2);
    if (!graph_.IsConstant(values)) return std::nullopt;
    const auto& graph = graph_.model().graphs[values.graph];
    const auto tensor = graph_.model().constants != nullptr
                            ? graph_.model().constants->ReadInline(graph, values.id, 16)
                            : nullptr;
    if (tensor == nullptr || tensor->size() != 2) return std::nullopt;
    const bool floats = !tensor->floats.empty();
    const double off = floats ? tensor->floats[0] : static_cast<double>(tensor->ints[0]);
    const double on = floats ? tensor->floats[1] : static_cast<double>(tensor->ints[1]);
    result.smoothed = off != 0 || on != 1;
    return result;
  }
  if (graph_.Is(node, "Equal")) {
    // class numbers against 0, 1, 2, ...
    for (const size_t side : {size_t{0}, size_t{1}}) {
      const ValueRef classes = WithoutLayout(graph_.Input(node, 1 - side));
      const bool counts = graph_.Is(graph_.Producer(classes), "Range") ||
                          (graph_.IsConstant(classes) && !graph_.Scalar(classes));
      const ValueRef indices = graph_.Input(node, side);
      if (counts && IsTarget(indices)) return OneHot{indices};
    }
    return std::nullopt;
  }
  if (graph_.Is(node, "ScatterElements")) {
    const ValueRef ones = graph_.Input(node, 2);
    const bool is_one = graph_.IsConstant(ones);
    const ValueRef zeros = WithoutLayout(graph_.Input(node, 0));
    const NodeRef made = graph_.Producer(zeros);
    if (is_one && (graph_.Is(made, "ConstantOfShape") || graph_.Is(made, "Expand") ||
                   graph_.IsConstant(zeros))) {
      return OneHot{graph_.Input(node, 1)};
    }
  }
  return std::nullopt;
}

NodeRef LossForms::LogSumExpBelow(ValueRef picked, ValueRef scores) const {
  for (int step = 0; picked.exists() && step < kMaxSteps; ++step) {
    const std::vector<NodeRef> users = graph_.Users(picked, kMaxUsers);
    if (users.size() > kMaxUsers) return {};
    NodeRef next;
    for (const NodeRef user : users) {
      if (graph_.Is(user, "Sub") || graph_.Is(user, "Add")) {
        const bool first = graph_.Input(user, 0) == picked;
        const NodeRef sign = graph_.Producer(WithoutLayout(graph_.Input(user, first ? 1 : 0)));
        const ValueRef other =
            graph_.Is(sign, "Neg") ? graph_.Input(sign, 0) : graph_.Input(user, first ? 1 : 0);
        const auto summed = MatchLogSumExp(other);
        if (summed && SameScores(*summed, scores)) return user;
      }
      if (KeepsElements(graph_.node(user)) || graph_.Is(user, "Neg")) next = user;
    }
    picked = graph_.Output(next, 0);
  }
  return {};
}

NodeRef LossForms::LogBelow(ValueRef picked) const {
  for (int step = 0; picked.exists() && step < kMaxSteps; ++step) {
    const std::vector<NodeRef> users = graph_.Users(picked, kMaxUsers);
    NodeRef next;
    for (const NodeRef user : users) {
      if (graph_.Is(user, "Log")) return user;
      const bool guards =
          (graph_.Is(user, "Add") || graph_.Is(user, "Max")) &&
          (graph_.Scalar(graph_.Input(user, 0)) || graph_.Scalar(graph_.Input(user, 1)));
      if (guards || graph_.Is(user, "Clip") || KeepsElements(graph_.node(user))) next = user;
    }
    picked = graph_.Output(next, 0);
  }
  return {};
}

std::optional<ValueRef> LossForms::MatchLogSigmoid(ValueRef value) const {
  const NodeRef node = graph_.Producer(value);
  const auto unsigned_value = [&](ValueRef x) {
    for (int step = 0; step < kMaxSteps; ++step) {
      x = WithoutLayout(x);
      const NodeRef producer = graph_.Producer(x);
      if (!graph_.Is(producer, "Neg") && !graph_.Is(producer, "Abs")) break;
      x = graph_.Input(producer, 0);
    }
    return x;
  };
  if (graph_.Is(node, "Softplus")) return unsigned_value(graph_.Input(node, 0));
  if (!graph_.Is(node, "Log")) return std::nullopt;
  const NodeRef inner = graph_.Producer(WithoutGuards(graph_.Input(node, 0)));
  if (graph_.Is(inner, "Sigmoid")) return unsigned_value(graph_.Input(inner, 0));
  // log(1 + exp(-|x|)): the 1 has been taken for a guard
  if (graph_.Is(inner, "Exp")) return unsigned_value(graph_.Input(inner, 0));
  return std::nullopt;
}

}  // namespace liger
