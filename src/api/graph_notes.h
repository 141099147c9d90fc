// What a report says about a model beyond fused ops and losses: attention, calls without a body.
//
//   if (CountDecomposedAttentions(model) > 0) ...
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/graph.h"

namespace onnx {
class ModelProto;
}

namespace liger {

// Attentions that still are products with a Softmax between them.
int64_t CountDecomposedAttentions(const GraphModel& model);

// Types of fused ops that nodes of the model call and for which it holds no function: such a model
// runs only where our library is registered.
std::vector<std::string> FindOpsWithoutBody(const onnx::ModelProto& proto, const GraphModel& model);

}  // namespace liger
