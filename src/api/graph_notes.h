// What a report says about a model beyond the fused ops: losses, attention, calls without a body.
//
//   for (const LossOpReport& loss : FindLosses(model)) report.loss_ops.push_back(loss);
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/graph.h"
#include "report/report.h"

namespace onnx {
class ModelProto;
}

namespace liger {

// Operators that compute a loss from logits, and losses written out: the log-probability of each
// target is picked from a LogSoftmax.
std::vector<LossOpReport> FindLosses(const GraphModel& model);

// Attentions that still are products with a Softmax between them.
int64_t CountDecomposedAttentions(const GraphModel& model);

// Types of fused ops that nodes of the model call and for which it holds no function: such a model
// runs only where our library is registered.
std::vector<std::string> FindOpsWithoutBody(const onnx::ModelProto& proto, const GraphModel& model);

}  // namespace liger
