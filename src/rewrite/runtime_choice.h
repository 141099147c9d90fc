// What ONNX Runtime's CUDA provider makes of a place by itself, and better than with a fused node of
// ours in it: such a place is left to the runtime.
//
//   if (std::string reason = LeftToRuntime(graph, candidate); !reason.empty()) ...
//
// docs/onnxruntime.md lists the runtime's own fusions that this looks for.
#pragma once

#include <string>

#include "rewrite/candidate.h"

namespace liger {

// The reason; empty if the fused node is the better choice.
std::string LeftToRuntime(const Graph& graph, const Candidate& candidate);

}  // namespace liger
