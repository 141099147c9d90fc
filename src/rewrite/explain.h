// The nodes of a graph as people read them, for --explain.
//
//   for (const std::string& line : ChainOf(graph, root)) ...
//   // /model/norm/Mul_1: Mul(norm.weight: f32[64], /model/norm/Mul) -> f32[batch, seq, 64]
//
// One line per node, result first: its name (or that of its first output), operator, operands
// (constants by value where the file holds them, other operands by name), result.
#pragma once

#include <string>
#include <vector>

#include "model/graph.h"

namespace liger {

// The nodes that compute `root`, nearest first: those of the root's own module where the nodes say
// what module they are of, else those a few steps away.
std::vector<std::string> ChainOf(const GraphModel& model, const Graph& graph, ValueId root);

// The nodes of a module, and of the modules inside it, last first.
std::vector<std::string> NodesOfModule(const GraphModel& model, const Graph& graph,
                                       const std::string& path);

// The nodes at each place that a glob names: of outermost module paths that it matches, else around
// nodes whose names it matches. A few places at most.
struct DescribedPlace {
  std::string place;  // module path or node name
  std::vector<std::string> nodes;
};
std::vector<DescribedPlace> DescribePlaces(const GraphModel& model, const std::string& glob);

// What --explain GLOB asks for: a module path and all inside it, a node's name, or a module's.
struct ExplainFilter {
  std::string glob;  // empty: everything

  bool Takes(const std::string& module, const std::string& path, const std::string& node) const;
};

}  // namespace liger
