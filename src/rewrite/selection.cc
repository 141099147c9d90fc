#include "rewrite/selection.h"

#include <algorithm>

namespace liger {

Verdict Selection::Judge(const OpContract& op, int graph, const std::string& path,
                         const std::string& root) const {
  Verdict verdict;
  const std::string module(op.module);
  for (size_t i = 0; i < targets.size() && verdict.module.empty(); ++i) {
    const UserTarget& target = targets[i];
    if (target.op_module != module) continue;
    if (op.is_own() || std::any_of(target.instances.begin(), target.instances.end(),
                                   [&](const UserInstance& instance) {
                                     return instance.Holds(graph, path, root);
                                   })) {
      verdict.module = target.module;
      verdict.target = static_cast<int>(i);
    }
  }
  if (verdict.module.empty() && modules.contains(module)) verdict.module = module;
  if (verdict.module.empty()) {
    verdict.reason = "its module " + module + " is off";
    return verdict;
  }
  verdict.reason = filter.WhyOutside(path);
  if (!verdict.reason.empty()) verdict.module.clear();
  return verdict;
}

bool Selection::Wants(const OpContract& op) const {
  return modules.contains(std::string(op.module)) ||
         std::any_of(targets.begin(), targets.end(),
                     [&](const UserTarget& target) { return target.op_module == op.module; });
}

}  // namespace liger
