#include "rewrite/order.h"

#include <algorithm>
#include <functional>
#include <queue>
#include <unordered_set>
#include <utility>

namespace liger {

std::optional<std::vector<OrderedNode>> OrderNodes(const Graph& graph,
                                                   std::span<const Replacement> replacements,
                                                   int first_planned) {
  const std::vector<bool> live = LiveValues(graph, replacements);
  const std::vector<bool> live_before = LiveValues(graph, {});
  std::vector<int> made_by(graph.values.size(), kNone);  // unit that makes the value
  struct Unit {
    OrderedNode node;
    int position = 0;
    int missing = 0;
    std::vector<int> users;
  };
  std::vector<Unit> units;
  std::vector<std::vector<ValueId>> needs;
  std::unordered_set<ValueId> replaced;
  for (size_t i = 0; i < replacements.size(); ++i) {
    Unit unit;
    unit.node = {true, first_planned + static_cast<int>(i)};
    for (ValueId output : replacements[i].outputs) {
      if (output == kNone) continue;
      replaced.insert(output);
      made_by[output] = static_cast<int>(units.size());
      unit.position = std::max(unit.position, graph.values[output].producer);
    }
    needs.push_back(replacements[i].inputs);
    units.push_back(std::move(unit));
  }
  std::unordered_set<ValueId> gone;  // values that nothing makes any more
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node& node = graph.nodes[n];
    const bool is_live = std::any_of(node.outputs.begin(), node.outputs.end(), [&](ValueId v) {
      return v != kNone && live[v] && !replaced.contains(v);
    });
    const bool was_dead = std::none_of(node.outputs.begin(), node.outputs.end(),
                                       [&](ValueId v) { return v != kNone && live_before[v]; });
    const auto lost = [&](ValueId v) { return v != kNone && gone.contains(v); };
    const bool keeps =
        is_live || (was_dead && std::none_of(node.inputs.begin(), node.inputs.end(), lost) &&
                    std::none_of(node.captures.begin(), node.captures.end(), lost));
    if (!keeps) {
      for (ValueId output : node.outputs) {
        if (output != kNone && !replaced.contains(output)) gone.insert(output);
      }
      continue;
    }
    Unit unit;
    unit.node = {false, static_cast<int>(n)};
    unit.position = static_cast<int>(n);
    for (ValueId output : node.outputs) {
      if (output != kNone) made_by[output] = static_cast<int>(units.size());
    }
    needs.push_back(node.inputs);
    needs.back().insert(needs.back().end(), node.captures.begin(), node.captures.end());
    units.push_back(std::move(unit));
  }
  for (size_t u = 0; u < units.size(); ++u) {
    for (ValueId need : needs[u]) {
      if (need == kNone || made_by[need] == kNone) continue;
      units[made_by[need]].users.push_back(static_cast<int>(u));
      ++units[u].missing;
    }
  }
  using Ready = std::pair<int, int>;
  std::priority_queue<Ready, std::vector<Ready>, std::greater<>> ready;
  for (size_t u = 0; u < units.size(); ++u) {
    if (units[u].missing == 0) ready.push({units[u].position, static_cast<int>(u)});
  }
  std::vector<OrderedNode> order;
  while (!ready.empty()) {
    const int u = ready.top().second;
    ready.pop();
    order.push_back(units[u].node);
    for (int user : units[u].users) {
      if (--units[user].missing == 0) ready.push({units[user].position, user});
    }
  }
  if (order.size() != units.size()) return std::nullopt;
  return order;
}

}  // namespace liger
