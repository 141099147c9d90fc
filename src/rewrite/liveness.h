// Which values of a graph are still needed once some of its nodes are replaced.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "model/graph.h"

namespace liger {

// A replacement in thought: `outputs` are computed from `inputs`, by no node of the graph.
struct Replacement {
  std::vector<ValueId> inputs;   // entries may be kNone
  std::vector<ValueId> outputs;  // entries may be kNone
};

// True for each value that a graph output, or a body inside a node that is needed, depends on.
std::vector<bool> LiveValues(const Graph& graph, std::span<const Replacement> replacements);

}  // namespace liger
