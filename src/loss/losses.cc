#include "loss/losses.h"

#include <algorithm>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "family/module_path.h"
#include "loss/loss_forms.h"
#include "loss/loss_graph.h"

namespace liger {
namespace {

// Nodes of one loss, at most: a larger one is listed as far as that.
constexpr size_t kMaxNodes = 256;
// Of a side branch that is joined with the loss.
constexpr size_t kMaxBranch = 64;
// Nodes from the pick of a class to the loss value, and from the logits up to their product.
constexpr int kMaxSteps = 40;
constexpr size_t kMaxUsers = 8;

constexpr std::string_view kCrossEntropy = "cross_entropy";
constexpr std::string_view kFusedLinear = "fused_linear_cross_entropy";
constexpr std::string_view kOther = "other";

using Names = std::set<std::string_view>;

// Operators of which losses, masks and shifts of labels are made. What has another producer is an
// input of the loss.
bool IsLossPart(const Node& node) {
  static const Names ops = {"Abs",
                            "Add",
                            "And",
                            "Cast",
                            "CastLike",
                            "Clip",
                            "Compress",
                            "Concat",
                            "Div",
                            "Equal",
                            "Exp",
                            "Expand",
                            "Flatten",
                            "Gather",
                            "GatherElements",
                            "GatherND",
                            "Greater",
                            "GreaterOrEqual",
                            "Identity",
                            "IsNaN",
                            "Less",
                            "LessOrEqual",
                            "Log",
                            "LogSoftmax",
                            "Max",
                            "Mean",
                            "Min",
                            "Mul",
                            "Neg",
                            "Not",
                            "OneHot",
                            "Or",
                            "Pad",
                            "Pow",
                            "ReduceLogSumExp",
                            "ReduceMax",
                            "ReduceMean",
                            "ReduceSum",
                            "ReduceSumSquare",
                            "ReduceL1",
                            "Reshape",
                            "ScatterElements",
                            "Shape",
                            "Sigmoid",
                            "Size",
                            "Slice",
                            "Softmax",
                            "Softplus",
                            "Split",
                            "Sqrt",
                            "Squeeze",
                            "Sub",
                            "Sum",
                            "Tile",
                            "Transpose",
                            "Unsqueeze",
                            "Where",
                            "Xor",
                            "SoftmaxCrossEntropyLoss",
                            "NegativeLogLikelihoodLoss",
                            "Range",
                            "ConstantOfShape"};
  return node.domain.empty() && ops.contains(node.op_type);
}

// Operands that say how, not of what: shapes, axes, bounds.
size_t DataInputs(const Node& node) {
  static const Names none = {"Shape", "Size", "Range", "ConstantOfShape"};
  static const Names first = {
      "Reshape",   "Expand",     "Slice",           "Pad",       "Squeeze",        "Split",
      "Unsqueeze", "ReduceMean", "ReduceSum",       "ReduceMax", "Tile",           "CastLike",
      "Clip",      "OneHot",     "ReduceLogSumExp", "ReduceL1",  "ReduceSumSquare"};
  if (none.contains(node.op_type)) return 0;
  return first.contains(node.op_type) ? 1 : node.inputs.size();
}

bool IsReduce(const Node& node) {
  return node.op_type == "ReduceMean" || node.op_type == "ReduceSum";
}

// Where a loss was recognised: the value of it per target, before masks and reductions.
struct Anchor {
  NodeRef node;
  ValueRef result;
  ValueRef scores;  // what the softmax or the sigmoid is taken of
  ValueRef target;
  ValueRef weights;  // one per class
  std::string op;
  std::vector<std::string> facts;
  std::string other;  // why it is no cross-entropy; empty if it is one
};

// The way from the pick of a class to the loss value.
struct Tail {
  ValueRef value;
  std::vector<NodeRef> path;
  bool adds_terms = false;
};

std::string Joined(const std::vector<std::string>& facts) {
  std::string text;
  for (const std::string& fact : facts) text += (text.empty() ? "" : "; ") + fact;
  return text;
}

class LossFinder {
 public:
  explicit LossFinder(const GraphModel& model) : graph_(model), forms_(graph_), model_(model) {}

  std::vector<LossOpReport> Run() {
    // Operators first: what is written around them belongs to them.
    ForEachNode([&](NodeRef ref) { VisitLossOp(ref); });
    ForEachNode([&](NodeRef ref) { VisitPick(ref); });
    if (has_logarithm_) {
      ForEachNode([&](NodeRef ref) { VisitWeightedSum(ref); });
      ForEachNode([&](NodeRef ref) { VisitSigmoidLoss(ref); });
    }
    ForEachNode([&](NodeRef ref) { VisitSquare(ref); });
    return Sorted();
  }

 private:
  template <typename Visit>
  void ForEachNode(const Visit& visit) {
    for (const Graph& graph : model_.graphs) {
      for (size_t id = 0; id < graph.nodes.size(); ++id) {
        visit(NodeRef{graph.index, static_cast<NodeId>(id)});
      }
    }
  }

  std::vector<LossOpReport> Sorted() {
    std::stable_sort(losses_.begin(), losses_.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    std::vector<LossOpReport> reports;
    for (auto& [at, report] : losses_) reports.push_back(std::move(report));
    return reports;
  }

  // --- Where losses start -----------------------------------------------------------------------

  void VisitLossOp(NodeRef ref) {
    const Node& node = graph_.node(ref);
    static const Names logarithms = {"Log", "LogSoftmax", "ReduceLogSumExp", "Softplus"};
    if (node.domain.empty() && logarithms.contains(node.op_type)) has_logarithm_ = true;
    if (!node.domain.empty() && node.domain != "com.microsoft") return;
    Anchor anchor;
    anchor.node = ref;
    anchor.result = graph_.Output(ref, 0);
    anchor.scores = graph_.Input(ref, 0);
    anchor.target = graph_.Input(ref, 1);
    anchor.weights = graph_.Input(ref, 2);
    anchor.op = node.op_type;
    if (node.op_type == "SoftmaxCrossEntropyLoss" ||
        node.op_type == "SoftmaxCrossEntropyLossInternal") {
      has_logarithm_ = true;
      AddAttributes(ref, anchor);
      const ValueRef log_probs = graph_.Output(ref, 1);
      if (log_probs.exists() &&
          (graph_.IsOutput(log_probs) || !graph_.Users(log_probs, 1).empty())) {
        anchor.facts.push_back("its log-probabilities are used as well");
      }
    } else if (node.op_type == "SparseSoftmaxCrossEntropy") {
      AddAttributes(ref, anchor);
    } else if (node.op_type == "SoftmaxCrossEntropy" && !node.domain.empty()) {
      AddAttributes(ref, anchor);
      UseDenseTarget(anchor);
    } else if (node.op_type.starts_with("NegativeLogLikelihoodLoss") &&
               !node.op_type.ends_with("Grad")) {
      AddAttributes(ref, anchor);
      UseLogProbs(anchor);
    } else if (IsGradient(node)) {
      anchor.result = anchor.scores = anchor.target = anchor.weights = {};
      anchor.other = "the gradient of a loss, not a loss";
    } else {
      return;
    }
    Record(std::move(anchor));
  }

  static bool IsGradient(const Node& node) {
    static const Names ops = {"SoftmaxCrossEntropyGrad", "SoftmaxCrossEntropyLossGrad",
                              "SoftmaxCrossEntropyLossInternalGrad",
                              "SparseSoftmaxCrossEntropyGrad"};
    return ops.contains(node.op_type);
  }

  void AddAttributes(NodeRef ref, Anchor& anchor) const {
    const Node& node = graph_.node(ref);
    std::string reduction = "mean";
    if (const Attribute* attribute = node.FindAttribute("reduction")) {
      if (const auto* text = std::get_if<std::string>(&attribute->value)) reduction = *text;
    }
    std::string fact =
        reduction == "none" ? "one value per target" : reduction + " over the targets";
    if (const auto ignored = graph_.Int(ref, "ignore_index")) {
      fact += " other than " + std::to_string(*ignored);
    } else if (const ValueRef input = graph_.Input(ref, 3); input.exists()) {
      const auto value = graph_.Scalar(input);
      fact += value ? " other than " + std::to_string(static_cast<int64_t>(*value))
                    : " other than an ignored one that is not constant";
    }
    anchor.facts.push_back(fact);
    if (anchor.weights.exists()) anchor.facts.push_back("with class weights");
    if (const auto rank = graph_.Rank(anchor.scores); rank && *rank > 2) {
      anchor.facts.push_back("classes on axis 1 of " + std::to_string(*rank));
    }
  }

  // One probability per class in place of a class number.
  void UseDenseTarget(Anchor& anchor) const {
    const auto one_hot = forms_.MatchOneHot(anchor.target);
    if (!one_hot) {
      anchor.other = "its target is a distribution over the classes, not a class";
      return;
    }
    anchor.op += " + OneHot";
    if (one_hot->smoothed) anchor.facts.push_back("one-hot targets are smoothed");
  }

  void UseLogProbs(Anchor& anchor) const {
    if (const auto log_probs = forms_.LogProbsAbove(anchor.scores)) {
      if (log_probs->axis && *log_probs->axis != 1) {
        const auto rank = graph_.Rank(anchor.scores);
        if (*log_probs->axis >= 0 || (rank && *rank + *log_probs->axis != 1)) {
          anchor.other = "the softmax runs over axis " + std::to_string(*log_probs->axis) +
                         ", the classes are on axis 1";
        }
      }
      anchor.op = log_probs->spelling + " + " + anchor.op;
      anchor.scores = log_probs->scores;
      return;
    }
    if (const auto scores = forms_.SoftmaxAbove(forms_.WithoutLayout(anchor.scores))) {
      anchor.scores = *scores;
      anchor.op = "Softmax + " + anchor.op;
      anchor.other = "it is given probabilities: there is no logarithm between softmax and loss";
    } else {
      anchor.other =
          "it is given values that no softmax of this graph makes: they may be "
          "log-probabilities already, or none";
    }
  }

  // A gather of one class per row.
  void VisitPick(NodeRef ref) {
    if (!graph_.Is(ref, "GatherElements") && !graph_.Is(ref, "GatherND")) return;
    if (claimed_.contains(ref)) return;
    const ValueRef data = graph_.Input(ref, 0);
    const ValueRef indices = graph_.Input(ref, 1);
    if (!data.exists() || !forms_.IsTarget(indices)) return;
    Anchor anchor;
    anchor.node = ref;
    anchor.result = graph_.Output(ref, 0);
    anchor.target = forms_.TargetRoot(indices);
    const std::string& pick = graph_.node(ref).op_type;
    if (const auto log_probs = forms_.LogProbsAbove(data)) {
      anchor.scores = log_probs->scores;
      anchor.op = log_probs->spelling + " + " + pick;
      if (const auto axis = PickAxis(ref); axis && log_probs->axis &&
                                           (*axis < 0) == (*log_probs->axis < 0) &&
                                           *axis != *log_probs->axis) {
        anchor.other = "the softmax runs over axis " + std::to_string(*log_probs->axis) +
                       ", the class is picked on axis " + std::to_string(*axis);
      }
    } else if (const NodeRef sum = forms_.LogSumExpBelow(anchor.result, data); sum.exists()) {
      anchor.scores = data;
      anchor.result = graph_.Output(sum, 0);
      anchor.op = "ReduceLogSumExp + " + pick;
    } else if (const auto scores = forms_.SoftmaxAbove(forms_.WithoutLayout(data))) {
      anchor.scores = *scores;
      const NodeRef log = forms_.LogBelow(anchor.result);
      anchor.op = (log.exists() ? "Log(Softmax) + " : "Softmax + ") + pick;
      if (log.exists()) {
        anchor.result = graph_.Output(log, 0);
      } else if (IsNegativeMean(anchor.result)) {
        anchor.other = "it sums probabilities: there is no logarithm";
      } else {
        return;
      }
    } else {
      return;
    }
    Record(std::move(anchor));
  }

  std::optional<int64_t> PickAxis(NodeRef pick) const {
    if (!graph_.Is(pick, "GatherElements")) return std::nullopt;
    const int64_t axis = graph_.Int(pick, "axis").value_or(0);
    const auto rank = graph_.Rank(graph_.Input(pick, 0));
    return axis < 0 && rank ? axis + *rank : axis;
  }

  // Negated and reduced, in either order: what is done to a loss and not to a routing weight.
  bool IsNegativeMean(ValueRef value) const {
    const Tail tail = Follow(value, {});
    bool negated = false;
    bool reduced = false;
    for (const NodeRef node : tail.path) {
      negated = negated || graph_.Is(node, "Neg");
      reduced = reduced || IsReduce(graph_.node(node));
    }
    return negated && reduced;
  }

  // sum(target * log_probs): a one-hot target is a class, another one a distribution.
  void VisitWeightedSum(NodeRef ref) {
    if (!graph_.Is(ref, "ReduceSum") && !graph_.Is(ref, "ReduceMean")) return;
    if (claimed_.contains(ref)) return;
    Anchor anchor;
    anchor.node = ref;
    anchor.result = graph_.Output(ref, 0);
    // Products among the terms that are summed.
    std::vector<ValueRef> pending = {graph_.Input(ref, 0)};
    for (size_t i = 0; i < pending.size() && i < kMaxUsers; ++i) {
      const NodeRef node = graph_.Producer(pending[i]);
      if (!node.exists() || claimed_.contains(node)) continue;
      if (graph_.Is(node, "Mul") && UseProduct(node, anchor)) {
        Record(std::move(anchor));
        return;
      }
      const bool passes = IsLayoutOp(graph_.node(node)) || graph_.Is(node, "Neg");
      const bool joins = graph_.Is(node, "Add") || graph_.Is(node, "Sub") ||
                         graph_.Is(node, "Mul") || graph_.Is(node, "Where");
      if (passes) pending.push_back(graph_.Input(node, 0));
      if (!joins) continue;
      for (size_t k = graph_.Is(node, "Where") ? 1 : 0; k < graph_.node(node).inputs.size(); ++k) {
        pending.push_back(graph_.Input(node, k));
      }
    }
  }

  bool UseProduct(NodeRef product, Anchor& anchor) const {
    for (const size_t side : {size_t{0}, size_t{1}}) {
      const ValueRef factor = graph_.Input(product, side);
      const ValueRef target = graph_.Input(product, 1 - side);
      if (!factor.exists() || !target.exists()) return false;
      const auto one_hot = forms_.MatchOneHot(target);
      if (const auto log_probs = LogProbsInDifference(factor)) {
        if (!one_hot && graph_.IsConstant(target)) continue;
        anchor.scores = log_probs->scores;
        anchor.op = log_probs->spelling + (one_hot ? " + OneHot" : " + ReduceSum");
        if (one_hot) {
          anchor.target = forms_.TargetRoot(one_hot->indices);
          if (one_hot->smoothed) anchor.facts.push_back("one-hot targets are smoothed");
          return true;
        }
        const auto own = forms_.MatchSoftmax(forms_.WithoutLayout(target));
        const bool is_difference = graph_.Is(graph_.Producer(factor), "Sub");
        // The entropy of a distribution is compared with nothing.
        if (own && forms_.SameScores(*own, log_probs->scores) && !is_difference) continue;
        anchor.target = target;
        anchor.other = "its target is a distribution over the classes, not a class";
        return true;
      }
      if (one_hot) {
        const NodeRef sum = forms_.LogSumExpBelow(anchor.result, factor);
        if (!sum.exists()) continue;
        anchor.scores = factor;
        anchor.target = forms_.TargetRoot(one_hot->indices);
        anchor.result = graph_.Output(sum, 0);
        anchor.op = "ReduceLogSumExp + OneHot";
        return true;
      }
    }
    return false;
  }

  // Log-probabilities, or a difference of two of which one is.
  std::optional<LogProbs> LogProbsInDifference(ValueRef value) const {
    if (auto log_probs = forms_.LogProbsAbove(value)) return log_probs;
    const NodeRef node = graph_.Producer(value);
    if (!graph_.Is(node, "Sub")) return std::nullopt;
    for (const size_t side : {size_t{1}, size_t{0}}) {
      if (auto log_probs = forms_.LogProbsAbove(graph_.Input(node, side))) return log_probs;
    }
    return std::nullopt;
  }

  // t * log(sigmoid(x)) + (1 - t) * log(1 - sigmoid(x)), also as a softplus and t * x.
  void VisitSigmoidLoss(NodeRef ref) {
    if (!graph_.Is(ref, "Log") && !graph_.Is(ref, "Softplus")) return;
    if (claimed_.contains(ref)) return;
    const ValueRef value = graph_.Output(ref, 0);
    const auto x = forms_.MatchLogSigmoid(value);
    if (!x || !x->exists()) return;
    ValueRef at = value;
    for (int step = 0; at.exists() && step < 8; ++step) {
      const std::vector<NodeRef> users = graph_.Users(at, kMaxUsers);
      if (users.size() != 1) return;
      const NodeRef user = users[0];
      const bool first = graph_.Input(user, 0) == at;
      const bool joins = graph_.Is(user, "Add") || graph_.Is(user, "Sub");
      if (joins) {
        if (const ValueRef target = LogitTimesTarget(graph_.Input(user, first ? 1 : 0), *x);
            target.exists()) {
          Anchor anchor;
          anchor.node = ref;
          anchor.result = graph_.Output(user, 0);
          anchor.scores = *x;
          anchor.target = target;
          anchor.op = "Sigmoid + Log";
          anchor.other = "a sigmoid for each class by itself (binary cross-entropy), no softmax";
          Record(std::move(anchor));
          return;
        }
      } else if (!graph_.Is(user, "Neg") && !graph_.Is(user, "Mul") &&
                 !IsLayoutOp(graph_.node(user))) {
        return;
      }
      at = graph_.Output(user, 0);
    }
  }

  // The target t of a term t * x or t * log(1 - sigmoid(x)) in a sum.
  ValueRef LogitTimesTarget(ValueRef term, ValueRef x) const {
    std::vector<ValueRef> pending = {term};
    for (size_t i = 0; i < pending.size() && i < kMaxUsers; ++i) {
      const NodeRef node = graph_.Producer(forms_.WithoutLayout(pending[i]));
      if (graph_.Is(node, "Neg")) pending.push_back(graph_.Input(node, 0));
      if (graph_.Is(node, "Add") || graph_.Is(node, "Sub")) {
        pending.push_back(graph_.Input(node, 0));
        pending.push_back(graph_.Input(node, 1));
      }
      if (!graph_.Is(node, "Mul")) continue;
      for (const size_t side : {size_t{0}, size_t{1}}) {
        const ValueRef target = graph_.Input(node, 1 - side);
        if (graph_.IsConstant(target)) continue;
        ValueRef factor = forms_.WithoutLayout(graph_.Input(node, side));
        if (graph_.Is(graph_.Producer(factor), "Neg")) {
          factor = forms_.WithoutLayout(graph_.Input(graph_.Producer(factor), 0));
        }
        if (factor == x || IsLogOfRest(factor, x)) return RootOfMask(target);
      }
    }
    return {};
  }

  // log(1 - sigmoid(x)), perhaps clipped.
  bool IsLogOfRest(ValueRef value, ValueRef x) const {
    NodeRef node = graph_.Producer(value);
    for (int step = 0; node.exists() && step < 8; ++step) {
      if (graph_.Is(node, "Sigmoid")) {
        return forms_.SameScores(graph_.Input(node, 0), x);
      }
      if (graph_.Is(node, "Sub")) {
        node = graph_.Producer(graph_.Input(node, 1));
        continue;
      }
      if (!graph_.Is(node, "Log") && !graph_.Is(node, "Clip") && !graph_.Is(node, "Max") &&
          !graph_.Is(node, "Add") && !IsLayoutOp(graph_.node(node))) {
        return false;
      }
      const bool second = graph_.Scalar(graph_.Input(node, 0)).has_value();
      node = graph_.Producer(graph_.Input(node, second ? 1 : 0));
    }
    return false;
  }

  // t of t, Cast(t), 1 - t.
  ValueRef RootOfMask(ValueRef target) const {
    target = forms_.WithoutLayout(target);
    const NodeRef node = graph_.Producer(target);
    if (graph_.Is(node, "Sub") && graph_.IsScalar(graph_.Input(node, 0), 1)) {
      return forms_.WithoutLayout(graph_.Input(node, 1));
    }
    return target;
  }

  // mean((a - b)^2) over everything, where b is given to the graph: a squared error. A variance is
  // a mean over some axes of what is computed.
  void VisitSquare(NodeRef ref) {
    if (!IsReduce(graph_.node(ref)) || !graph_.node(ref).domain.empty()) return;
    const ValueRef result = graph_.Output(ref, 0);
    if (!result.exists() || claimed_.contains(ref) || !ReducesAll(ref)) return;
    const NodeRef square = graph_.Producer(graph_.Input(ref, 0));
    const bool is_square =
        (graph_.Is(square, "Mul") && graph_.Input(square, 0) == graph_.Input(square, 1)) ||
        (graph_.Is(square, "Pow") && graph_.IsScalar(graph_.Input(square, 1), 2));
    if (!is_square && !graph_.Is(square, "Abs")) return;
    const NodeRef difference = graph_.Producer(graph_.Input(square, 0));
    if (!graph_.Is(difference, "Sub")) return;
    for (const size_t side : {size_t{1}, size_t{0}}) {
      const ValueRef target = forms_.WithoutLayout(graph_.Input(difference, side));
      if (!target.exists() || graph_.Producer(target).exists() || !graph_.value(target).is_input ||
          graph_.model().graphs[target.graph].is_function) {
        continue;
      }
      const NodeRef other = graph_.Producer(graph_.Input(difference, 1 - side));
      if (other.exists() && IsReduce(graph_.node(other))) continue;  // a variance
      if (!graph_.IsOutput(Follow(result, {}).value)) return;
      Anchor anchor;
      anchor.node = ref;
      anchor.result = result;
      anchor.scores = graph_.Input(difference, 1 - side);
      anchor.target = target;
      anchor.op = is_square ? "Sub + Pow" : "Sub + Abs";
      anchor.other =
          is_square ? "a squared error, no cross-entropy" : "an absolute error, no cross-entropy";
      Record(std::move(anchor));
      return;
    }
  }

  bool ReducesAll(NodeRef reduce) const {
    if (const auto rank = graph_.Rank(graph_.Output(reduce, 0)); rank && *rank == 0) return true;
    const Attribute* axes = graph_.node(reduce).FindAttribute("axes");
    const bool none = axes == nullptr && !graph_.Input(reduce, 1).exists();
    return none && graph_.Int(reduce, "noop_with_empty_axes").value_or(0) == 0;
  }

  // --- From the pick to the loss value ----------------------------------------------------------

  // What a side branch is computed from.
  struct Branch {
    bool is_part = true;       // of the loss: no other operators, no more than some nodes
    bool of_scores = false;    // reaches the scores
    bool is_constant = false;  // nothing but constants
  };

  Branch Explore(ValueRef from, ValueRef scores) const {
    Branch branch;
    branch.is_constant = true;
    std::set<ValueRef> seen = {from};
    std::vector<ValueRef> pending = {from};
    while (!pending.empty()) {
      const ValueRef value = pending.back();
      pending.pop_back();
      if (scores.exists() && value == scores) {
        branch.of_scores = true;
        branch.is_constant = false;
        continue;
      }
      const NodeRef node = graph_.Producer(value);
      if (graph_.IsConstant(value)) continue;
      branch.is_constant = false;
      if (!node.exists()) continue;
      if (!IsLossPart(graph_.node(node)) || seen.size() > kMaxBranch) {
        branch.is_part = false;
        return branch;
      }
      for (size_t i = 0; i < DataInputs(graph_.node(node)); ++i) {
        const ValueRef input = graph_.Input(node, i);
        if (input.exists() && seen.insert(input).second) pending.push_back(input);
      }
    }
    return branch;
  }

  Tail Follow(ValueRef value, ValueRef scores) const {
    Tail tail{value, {}};
    while (tail.path.size() < kMaxSteps && !graph_.IsOutput(tail.value)) {
      const std::vector<NodeRef> users = graph_.Users(tail.value, 1);
      if (users.size() != 1 || !Continues(users[0], tail, scores)) break;
      const ValueRef next = graph_.Output(users[0], 0);
      if (!next.exists()) break;
      tail.path.push_back(users[0]);
      tail.value = next;
    }
    return tail;
  }

  // Whether `user` still belongs to the loss.
  bool Continues(NodeRef user, Tail& tail, ValueRef scores) const {
    const Node& node = graph_.node(user);
    if (!node.domain.empty()) return false;
    static const Names unary = {"Squeeze",   "Unsqueeze",  "Reshape",  "Flatten",
                                "Neg",       "Cast",       "Identity", "CastLike",
                                "Transpose", "ReduceMean", "ReduceSum"};
    const bool first = graph_.Input(user, 0) == tail.value;
    if (unary.contains(node.op_type)) return first;
    if (node.op_type == "Div" && !first) return false;
    const bool masks = node.op_type == "Where" || node.op_type == "Mul" || node.op_type == "Div";
    const bool adds = node.op_type == "Add" || node.op_type == "Sub" || node.op_type == "Sum";
    if (!masks && !adds) return false;
    bool others = false;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const ValueRef input = graph_.Input(user, i);
      if (!input.exists() || input == tail.value) continue;
      const Branch branch = Explore(input, scores);
      if (!branch.is_part) return false;
      if (adds && !branch.of_scores && !branch.is_constant) return false;
      others = others || branch.of_scores;
    }
    // A factor of the scores themselves (focal loss) is a term of its own as well.
    tail.adds_terms = tail.adds_terms || others;
    return true;
  }

  // --- The loss as a whole ----------------------------------------------------------------------

  struct Parts {
    std::set<NodeRef> nodes;
    std::vector<ValueRef> inputs;
  };

  // Everything from which `value` is computed, down to the scores and to what is no part of a loss.
  Parts Collect(ValueRef value, ValueRef scores) const {
    Parts parts;
    std::set<ValueRef> seen = {value};
    std::vector<ValueRef> pending = {value};
    while (!pending.empty()) {
      const ValueRef at = pending.back();
      pending.pop_back();
      if (at == scores || graph_.IsConstant(at)) {
        const auto rank = graph_.Rank(at);
        const bool is_weight = at != scores && rank && *rank == 1 && !graph_.Scalar(at) &&
                               IsFloat(graph_.value(at).type.dtype) &&
                               graph_.value(at).is_initializer;
        if (is_weight) parts.inputs.push_back(at);
        continue;
      }
      const NodeRef node = graph_.Producer(at);
      const bool is_op = node.exists() && (IsLossPart(graph_.node(node)) || IsLossOp(node));
      if (!is_op || parts.nodes.size() >= kMaxNodes) {
        parts.inputs.push_back(at);
        continue;
      }
      parts.nodes.insert(node);
      const size_t data = DataInputs(graph_.node(node));
      for (size_t i = data; i-- > 0;) {
        const ValueRef input = graph_.Input(node, i);
        if (input.exists() && seen.insert(input).second) pending.push_back(input);
      }
    }
    return parts;
  }

  bool IsLossOp(NodeRef ref) const {
    const std::string& op = graph_.node(ref).op_type;
    return op.starts_with("SoftmaxCrossEntropy") || op.starts_with("SparseSoftmaxCrossEntropy") ||
           op.starts_with("NegativeLogLikelihoodLoss");
  }

  // Up through layout to the scores as the model makes them.
  ValueRef TopOfLayout(ValueRef scores) const {
    for (int step = 0; scores.exists() && step < kMaxSteps; ++step) {
      const NodeRef node = graph_.Producer(scores);
      if (!node.exists() || graph_.IsOutput(scores) || !IsLayoutOp(graph_.node(node))) break;
      const ValueRef above = graph_.Input(node, 0);
      if (!above.exists()) break;
      scores = above;
    }
    return scores;
  }

  // Why something else needs `value`; empty if only `nodes` do.
  std::string OtherUse(ValueRef value, const std::set<NodeRef>& nodes) const {
    const std::string name = "'" + graph_.value(value).name + "'";
    if (graph_.IsOutput(value)) return name + " is an output of the graph as well";
    for (const NodeRef user : graph_.Users(value, kMaxNodes)) {
      if (nodes.contains(user)) continue;
      return name + " is used elsewhere as well (" + graph_.node(user).op_type + " node '" +
             graph_.node(user).name + "')";
    }
    return "";
  }

  struct Projection {
    ValueRef logits;               // as far up as nothing else uses them
    std::vector<NodeRef> nodes;    // between them and the scores, the product included
    std::vector<ValueRef> inputs;  // hidden state, weight, bias; empty if there is no product
    std::vector<std::string> facts;
    bool has_factor = false;
    std::string obstacle;  // why the product cannot be part of the loss
  };

  // Factors, soft caps and layout in front of the scores, then the product with lm_head's weight.
  Projection FindProjection(ValueRef scores, std::set<NodeRef> inside) const {
    Projection found;
    found.logits = scores;
    if (!scores.exists()) {
      found.obstacle = "the logits are left out";
      return found;
    }
    for (int step = 0; step < kMaxSteps; ++step) {
      // All that the loss reads of these logits must be known before the product goes.
      found.obstacle = OtherUse(found.logits, inside);
      if (!found.obstacle.empty()) return found;
      const NodeRef node = graph_.Producer(found.logits);
      if (!node.exists()) {
        found.obstacle = "the logits are given to the graph";
        return found;
      }
      if (node.graph != scores.graph) break;
      if (UseProduct(node, found)) return found;
      ValueRef above;
      if (IsLayoutOp(graph_.node(node))) above = graph_.Input(node, 0);
      if (graph_.Is(node, "Tanh")) above = graph_.Input(node, 0);
      if (graph_.Is(node, "Mul") || graph_.Is(node, "Div")) {
        if (graph_.Scalar(graph_.Input(node, 1))) above = graph_.Input(node, 0);
        if (graph_.Is(node, "Mul") && graph_.Scalar(graph_.Input(node, 0))) {
          above = graph_.Input(node, 1);
        }
      }
      if (!above.exists()) break;
      if (graph_.Is(node, "Tanh")) found.facts.push_back("the logits are capped by tanh");
      if (graph_.Is(node, "Mul") || graph_.Is(node, "Div")) {
        found.has_factor = true;
      }
      found.nodes.push_back(node);
      inside.insert(node);
      found.logits = above;
    }
    found.obstacle = "the logits are no product with a weight";
    return found;
  }

  bool UseProduct(NodeRef node, Projection& found) const {
    const std::string& op = graph_.node(node).op_type;
    NodeRef product = node;
    ValueRef bias;
    if (graph_.Is(node, "Add")) {
      for (const size_t side : {size_t{0}, size_t{1}}) {
        const NodeRef inner = graph_.Producer(graph_.Input(node, side));
        const ValueRef other = graph_.Input(node, 1 - side);
        if (!IsWeight(other) || !graph_.Is(inner, "MatMul")) continue;
        if (!OtherUse(graph_.Output(inner, 0), {node}).empty()) return false;
        product = inner;
        bias = other;
      }
      if (product == node) return false;
    } else if (op != "MatMul" && op != "Gemm" && op != "MatMulNBits" && op != "FusedMatMul") {
      return false;
    }
    if (!IsWeight(graph_.Input(product, 1))) return false;
    if (op == "Gemm") bias = graph_.Input(product, 2);
    found.inputs = {graph_.Input(product, 0), WeightRoot(graph_.Input(product, 1))};
    if (bias.exists()) found.inputs.push_back(WeightRoot(bias));
    found.nodes.push_back(node);
    if (product != node) found.nodes.push_back(product);
    return true;
  }

  // The initializer behind Transpose, Cast or DequantizeLinear.
  ValueRef WeightRoot(ValueRef value) const {
    for (int step = 0; step < 4; ++step) {
      const NodeRef node = graph_.Producer(value);
      if (!node.exists() ||
          (!IsLayoutOp(graph_.node(node)) && !graph_.Is(node, "DequantizeLinear"))) {
        break;
      }
      value = graph_.Input(node, 0);
      if (!value.exists()) break;
    }
    return value;
  }

  bool IsWeight(ValueRef value) const {
    if (!value.exists()) return false;
    const ValueRef root = WeightRoot(value);
    if (!root.exists()) return false;
    const bool is_parameter =
        graph_.value(root).is_input && graph_.model().graphs[root.graph].is_function;
    return graph_.value(root).is_initializer || is_parameter ||
           graph_.Is(graph_.Producer(root), "Constant");
  }

  void AddReductionFacts(const Tail& tail, Anchor& anchor) const {
    int means = 0;
    int sums = 0;
    bool masked = false;
    bool divided = false;
    for (const NodeRef node : tail.path) {
      means += graph_.Is(node, "ReduceMean") ? 1 : 0;
      sums += graph_.Is(node, "ReduceSum") ? 1 : 0;
      const bool by_mask = graph_.Is(node, "Where") ||
                           (graph_.Is(node, "Mul") && !graph_.Scalar(graph_.Input(node, 0)) &&
                            !graph_.Scalar(graph_.Input(node, 1)));
      if (by_mask && means + sums == 0) masked = true;
      divided = divided || (graph_.Is(node, "Div") && !graph_.Scalar(graph_.Input(node, 1)));
    }
    const bool is_op = IsLossOp(anchor.node);
    if (IsReduce(graph_.node(anchor.node)) && ReducesAll(anchor.node)) ++sums;
    if (means > 1 || (means == 1 && divided)) {
      anchor.facts.push_back("a mean of means, which weighs short sequences more");
    } else if (means == 1 && masked) {
      anchor.facts.push_back("its mean counts masked targets, unlike ignore_index");
    } else if (means == 1) {
      anchor.facts.push_back("mean over the targets");
    } else if (divided && sums > 0) {
      anchor.facts.push_back("sum divided by " +
                             std::string(masked ? "the kept targets" : "a count"));
    } else if (divided && is_op) {
      anchor.facts.push_back("divided by a count that the graph has");
    } else if (sums > 0) {
      anchor.facts.push_back(masked ? "sum over the kept targets" : "sum over the targets");
    } else if (!is_op) {
      anchor.facts.push_back("one value per target");
    }
    if (tail.adds_terms) {
      anchor.facts.push_back("further terms of the logits are added (label smoothing or z-loss)");
    }
  }

  void Record(Anchor anchor) {
    if (claimed_.contains(anchor.node)) return;
    const bool is_cross_entropy = anchor.other.empty();
    const ValueRef scores = TopOfLayout(anchor.scores);
    const Tail tail = anchor.result.exists() ? Follow(anchor.result, scores) : Tail{};
    Parts parts = anchor.result.exists() ? Collect(tail.value, scores) : Parts{};
    parts.nodes.insert(anchor.node);
    LossOpReport report;
    report.op = anchor.op;
    report.path = ModulePathOf(graph_.node(anchor.node));
    std::vector<ValueRef> inputs;
    if (is_cross_entropy) {
      AddReductionFacts(tail, anchor);
      const Projection projection = FindProjection(scores, parts.nodes);
      parts.nodes.insert(projection.nodes.begin(), projection.nodes.end());
      anchor.facts.insert(anchor.facts.end(), projection.facts.begin(), projection.facts.end());
      if (projection.has_factor && projection.facts.empty()) {
        anchor.facts.push_back("the logits are multiplied by a factor");
      }
      if (projection.inputs.empty()) {
        report.module = kCrossEntropy;
        inputs.push_back(projection.logits);
        anchor.facts.push_back("the product with lm_head cannot be part of it: " +
                               projection.obstacle);
      } else {
        report.module = kFusedLinear;
        inputs = projection.inputs;
        anchor.facts.push_back("nothing but the loss uses the logits");
      }
      report.reason = "cross-entropy: " + Joined(anchor.facts);
    } else {
      report.module = kOther;
      if (scores.exists()) inputs.push_back(scores);
      report.reason = "not a cross-entropy of logits: " + anchor.other;
    }
    if (anchor.target.exists()) inputs.push_back(forms_.TargetRoot(anchor.target));
    if (anchor.weights.exists()) inputs.push_back(anchor.weights);
    inputs.insert(inputs.end(), parts.inputs.begin(), parts.inputs.end());
    for (const ValueRef input : inputs) {
      // Left out, or computed by the loss itself.
      if (!input.exists() || parts.nodes.contains(graph_.Producer(input))) continue;
      const std::string& name = graph_.value(input).name;
      if (std::find(report.inputs.begin(), report.inputs.end(), name) == report.inputs.end()) {
        report.inputs.push_back(name);
      }
    }
    for (const NodeRef node : parts.nodes) {
      claimed_.insert(node);
      report.nodes.push_back(NameOf(node));
    }
    report.node = report.nodes.front();
    losses_.emplace_back(anchor.node, std::move(report));
  }

  // A node without a name goes by its first result.
  std::string NameOf(NodeRef ref) const {
    const Node& node = graph_.node(ref);
    if (!node.name.empty()) return node.name;
    const ValueRef output = graph_.Output(ref, 0);
    return output.exists() ? graph_.value(output).name : node.op_type;
  }

  LossGraph graph_;
  LossForms forms_;
  const GraphModel& model_;
  bool has_logarithm_ = false;
  std::set<NodeRef> claimed_;
  std::vector<std::pair<NodeRef, LossOpReport>> losses_;
};

}  // namespace

std::vector<LossOpReport> FindLosses(const GraphModel& model) { return LossFinder(model).Run(); }

}  // namespace liger
