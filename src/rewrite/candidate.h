// A match with the graph's own values: what it reads, what it gives, what lies between.
//
//   Candidate candidate;
//   candidate.instance = &instance; candidate.root = root; candidate.binding = binding;
//   if (!Locate(view, candidate)) ...   // an input has no value in front of the root
#pragma once

#include <string>
#include <vector>

#include "pattern/matcher.h"
#include "rewrite/plan.h"

namespace liger {

struct Candidate {
  const PatternInstance* instance = nullptr;
  int rank = 0;  // position of the instance: lower is preferred
  Binding binding;
  ValueId root = kNone;
  std::vector<ValueId> inputs;   // by contract position
  std::vector<ValueId> outputs;  // by contract position; [0] is the root
  std::vector<ValueId> inner;    // must be dead after the rewrite
  std::vector<NodeId> nodes;     // that compute root and inner values, sorted
  Precision precision = Precision::kExact;
  std::string path;  // module path, where known
  Verdict verdict;   // whether it is wanted, and for which module
};

// Fills inputs, outputs, inner and nodes by a walk from the root to the leaves. Values that only
// lead to constants or shapes are not part of the match: they stay if something else needs them.
// A declared output that has no value in the graph stays kNone. False if an input has no value of
// its own in front of the root.
bool Locate(const GraphView& view, Candidate& candidate);

// Kernels accumulate in f32 at least: a preset that computes in a half type is computed wider.
Precision PrecisionOf(const PatternInstance& instance, const Binding& binding);

// The two placements for which the nodes are annotated; empty if they agree.
std::string PlacementConflict(const Graph& graph, const Candidate& candidate);

// Whether `term` is one of the fused op's outputs.
bool IsOutputTerm(const Candidate& candidate, TermId term);

}  // namespace liger
