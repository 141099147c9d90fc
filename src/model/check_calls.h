// Whether functions fit the calls of fused ops, each call for itself: whatever is wrong with the
// rest of a model has no part in it.
//
//   if (auto why = FindMisfitCall(proto, graph, own_ops)) ...   // "node 'n': ..."
#pragma once

#include <optional>
#include <string>

#include "model/graph.h"
#include "model/own_ops.h"

namespace onnx {
class ModelProto;
}

namespace liger {

// The first call of one of our ops, or of `own` ops, that ONNX's checker or its strict shape
// inference do not accept with the function it finds, and what they say. `graph` is what
// BuildGraphModel made of `model`; operands have the types that it knows.
std::optional<std::string> FindMisfitCall(const onnx::ModelProto& model, const GraphModel& graph,
                                          const OwnOpNames& own);

}  // namespace liger
