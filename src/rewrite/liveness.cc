#include "rewrite/liveness.h"

namespace liger {

std::vector<bool> LiveValues(const Graph& graph, std::span<const Replacement> replacements) {
  std::vector<int> replaced_by(graph.values.size(), kNone);
  for (size_t i = 0; i < replacements.size(); ++i) {
    for (ValueId output : replacements[i].outputs) {
      if (output != kNone) replaced_by[output] = static_cast<int>(i);
    }
  }
  std::vector<bool> live(graph.values.size(), false);
  std::vector<ValueId> work;
  const auto need = [&](ValueId value) {
    if (value == kNone || live[value]) return;
    live[value] = true;
    work.push_back(value);
  };
  for (ValueId output : graph.outputs) need(output);
  while (!work.empty()) {
    const ValueId value = work.back();
    work.pop_back();
    if (replaced_by[value] != kNone) {
      for (ValueId input : replacements[replaced_by[value]].inputs) need(input);
      continue;
    }
    const NodeId producer = graph.values[value].producer;
    if (producer == kNone) continue;
    for (ValueId input : graph.nodes[producer].inputs) need(input);
    for (ValueId input : graph.nodes[producer].captures) need(input);
  }
  return live;
}

}  // namespace liger
