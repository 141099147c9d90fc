// Losses in a graph: operators that compute one, and losses written out node by node.
//
//   for (const LossOpReport& loss : FindLosses(model)) report.loss_ops.push_back(loss);
//
// Each is named with all its nodes from the logits to the loss value, its inputs (logits, target,
// then class weights and masks; hidden state and lm_head weight in place of logits that nothing
// else uses), the module that it belongs to and what sets it apart:
//   cross_entropy               softmax and negative log-likelihood of one class per target
//   fused_linear_cross_entropy  the same with the product that makes the logits, which only the
//                               loss uses
//   other                       never a cross-entropy of logits: sigmoid losses, distributions as
//                               targets, probabilities in place of logits, squared differences
//
// Spellings: the operators of ONNX and ONNX Runtime; LogSoftmax with a gather or a product with a
// one-hot form; Log of Softmax; logsumexp less the picked logit; each with masks, smoothing, z-loss,
// shifts and any reduction around it, also across the border of If, Loop and Scan bodies.
// Log-probabilities that are only an output, or of which TopK or ArgMax choose, are no loss. Local
// functions should be inlined first: each is looked at for itself. The time is linear in the size of
// the graph: walks start at rare operators and are bounded. Of constants, scalars and short lists in
// the model's own file are read; no data file is opened.
#pragma once

#include <vector>

#include "model/graph.h"
#include "report/report.h"

namespace liger {

// In the order of graphs and nodes.
std::vector<LossOpReport> FindLosses(const GraphModel& model);

}  // namespace liger
