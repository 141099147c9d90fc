#include "rewrite/candidate.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "rewrite/scope_metadata.h"

namespace liger {
namespace {

bool IsHalf(DType dtype) { return dtype == DType::kF16 || dtype == DType::kBF16; }

bool Contains(const std::vector<TermId>& terms, TermId term) {
  return std::find(terms.begin(), terms.end(), term) != terms.end();
}

// Notes `value` as a declared output if it is one; the first in the graph's order stands for it.
void TakeOutput(const GraphView& view, Candidate& candidate, ValueId value) {
  const std::vector<TermId>& outputs = candidate.binding.outputs;
  for (size_t i = 1; i < outputs.size(); ++i) {
    if (view.term(value) != outputs[i] || view.alias_of(value) != kNone) continue;
    ValueId& output = candidate.outputs[i];
    if (output == kNone || value < output) output = value;
  }
}

// Whether an input of the op is a view (Binding::views) of the value that `term` stands for.
bool IsSeenThrough(const GraphView& view, const Candidate& candidate, TermId term) {
  for (const auto& [position, made] : candidate.binding.views) {
    const TermId input = candidate.binding.inputs[position];
    if (view.FirstValue(input) == kNone && view.terms()[input].args[0] == term) return true;
  }
  return false;
}

}  // namespace

bool IsOutputTerm(const Candidate& candidate, TermId term) {
  return Contains(candidate.binding.outputs, term);
}

bool Locate(const GraphView& view, Candidate& candidate) {
  const TermStore& terms = view.terms();
  const Graph& graph = view.graph();
  const Binding& binding = candidate.binding;
  candidate.outputs.assign(candidate.instance->op->contract->outputs.size(), kNone);
  candidate.outputs[0] = candidate.root;

  std::unordered_map<TermId, ValueId> leaves;  // the first value of each that the walk meets
  std::unordered_set<ValueId> seen = {candidate.root};
  std::unordered_set<NodeId> nodes;
  std::vector<ValueId> work = {candidate.root};
  while (!work.empty()) {
    const NodeId producer = graph.values[work.back()].producer;
    work.pop_back();
    if (producer == kNone) continue;
    nodes.insert(producer);
    // A declared output may be another output of the root's own node.
    for (const ValueId sibling : graph.nodes[producer].outputs) {
      if (sibling != kNone) TakeOutput(view, candidate, sibling);
    }
    for (ValueId input : graph.nodes[producer].inputs) {
      if (input == kNone) continue;
      const TermId term = view.term(input);
      const TermKind kind = terms[term].kind;
      if (IsSeenThrough(view, candidate, term)) continue;
      if (Contains(binding.inputs, term)) {
        const ValueId origin = view.Origin(input);
        const auto [leaf, is_new] = leaves.try_emplace(term, origin);
        leaf->second = std::min(leaf->second, origin);
        continue;
      }
      if (kind == TermKind::kScalar || kind == TermKind::kInts) continue;
      // Lengths and indices only say where elements go.
      if (!IsFloat(graph.values[input].type.dtype) || !seen.insert(input).second) continue;
      if (graph.values[input].producer == kNone) continue;
      work.push_back(input);
      if (!IsOutputTerm(candidate, term)) candidate.inner.push_back(input);
      TakeOutput(view, candidate, input);
    }
  }
  candidate.nodes.assign(nodes.begin(), nodes.end());
  std::sort(candidate.nodes.begin(), candidate.nodes.end());

  for (TermId input : binding.inputs) {
    ValueId value = kNone;
    if (input != kNone) {
      const auto leaf = leaves.find(input);
      value = leaf != leaves.end() ? leaf->second : view.FirstValue(input);
      const size_t position = candidate.inputs.size();
      if (value == kNone && binding.views.contains(position)) {
        value = view.FirstValue(terms[input].args[0]);
      }
      const bool precedes =
          value != kNone && graph.values[value].producer < graph.values[candidate.root].producer;
      if (!precedes) return false;
    }
    candidate.inputs.push_back(value);
  }
  return true;
}

Precision PrecisionOf(const PatternInstance& instance, const Binding& binding) {
  if (binding.reassociated) return Precision::kReassociated;
  const auto stash = binding.attributes.find("stash_type");
  if (stash == binding.attributes.end()) return Precision::kExact;
  const auto* code = std::get_if<int64_t>(&stash->second);
  if (code == nullptr) return Precision::kExact;
  const auto dtype = static_cast<DType>(*code);
  const DType activation = instance.types.front().dtype;
  const bool wider = IsHalf(dtype) || (activation == DType::kF64 && dtype == DType::kF32);
  return wider ? Precision::kRaised : Precision::kExact;
}

std::string PlacementConflict(const Graph& graph, const Candidate& candidate) {
  const std::string* seen = nullptr;
  for (NodeId id : candidate.nodes) {
    for (const auto& [key, value] : graph.nodes[id].metadata) {
      if (key != kPlacementKey) continue;
      if (seen != nullptr && *seen != value) return *seen + " and " + value;
      seen = &value;
    }
  }
  return "";
}

}  // namespace liger
