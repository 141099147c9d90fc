// The node list of a graph after some of its nodes have been replaced.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "model/graph.h"
#include "rewrite/liveness.h"

namespace liger {

// A node of the new list: an index into Graph::nodes, or, with `planned` set, into
// RewritePlan::nodes.
struct OrderedNode {
  bool planned = false;
  int index = 0;
};

// What remains of the graph, and a node for each replacement (numbered from `first_planned` on), in
// topological order; the file's order is kept wherever that is topological. Nodes that were dead
// before stay, unless they read what is gone. nullopt if the replacements close a cycle.
std::optional<std::vector<OrderedNode>> OrderNodes(const Graph& graph,
                                                   std::span<const Replacement> replacements,
                                                   int first_planned);

}  // namespace liger
