// The parts of which losses are made: log-probabilities, logsumexps, picks of a class, as they are
// spelled node by node.
//
//   LossForms forms(graph);
//   if (const auto log_probs = forms.LogProbsAbove(value)) ...  // log_softmax(log_probs->scores)
//
// Every walk is bounded: an answer costs at most a constant number of nodes.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "loss/loss_graph.h"

namespace liger {

// log_softmax(scores) over an axis.
struct LogProbs {
  ValueRef value;
  ValueRef scores;
  std::string spelling;         // "LogSoftmax", "Log(Softmax)", "ReduceLogSumExp"
  std::optional<int64_t> axis;  // from the front where the rank is known, else as written
};

class LossForms {
 public:
  explicit LossForms(const LossGraph& graph) : graph_(graph) {}

  // `value` without Casts and operators that only change its shape.
  ValueRef WithoutLayout(ValueRef value) const;
  // Both are the same scores, up to dtype and shape.
  bool SameScores(ValueRef a, ValueRef b) const;

  std::optional<LogProbs> MatchLogProbs(ValueRef value) const;
  // The scores whose softmax `value` is.
  std::optional<ValueRef> MatchSoftmax(ValueRef value) const;
  // The scores whose logsumexp `value` is, up to its shape.
  std::optional<ValueRef> MatchLogSumExp(ValueRef value) const;

  // The log-probabilities from which `value` comes by signs, masks, factors and layout; `axis` is
  // that of the classes in `value` then, if it can be followed.
  std::optional<LogProbs> LogProbsAbove(ValueRef value) const;
  std::optional<ValueRef> SoftmaxAbove(ValueRef value) const;

  // Class numbers from which one is chosen per row: not what TopK, ArgMax or sampling gave.
  bool IsTarget(ValueRef indices) const;
  // Where the class numbers come from: the labels.
  ValueRef TargetRoot(ValueRef indices) const;

  // A one-hot form of class numbers. `indices` are these numbers, `smoothed` that its values are
  // constants other than 0 and 1.
  struct OneHot {
    ValueRef indices;
    bool smoothed = false;
  };
  std::optional<OneHot> MatchOneHot(ValueRef value) const;

  // The Sub or Add in which the picked score and the logsumexp of all scores meet; no node if they
  // do not.
  NodeRef LogSumExpBelow(ValueRef picked, ValueRef scores) const;
  // The Log of picked probabilities; no node if there is none.
  NodeRef LogBelow(ValueRef picked) const;

  // log(sigmoid(x)) or log(1 + exp(x)) in any spelling: x. Up to the sign of x.
  std::optional<ValueRef> MatchLogSigmoid(ValueRef value) const;

 private:
  // What `value` passes on: the operand that counts of layout, signs, masks and constant factors.
  ValueRef PassedOn(NodeRef node) const;
  ValueRef WithoutGuards(ValueRef value) const;
  std::optional<int64_t> AxisBelow(NodeRef node, std::optional<int64_t> axis) const;
  std::optional<int64_t> NormalAxis(std::optional<int64_t> axis, ValueRef of) const;

  const LossGraph& graph_;
};

// Casts and operators that change nothing but the shape, the order or the number of elements.
bool IsLayoutOp(const Node& node);

}  // namespace liger
