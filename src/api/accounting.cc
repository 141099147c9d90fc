#include "api/accounting.h"

#include <algorithm>
#include <map>

namespace liger {
namespace {

std::string NodeName(const Graph& graph, NodeId id) {
  const Node& node = graph.nodes[id];
  if (!node.name.empty()) return node.name;
  for (ValueId output : node.outputs) {
    if (output != kNone) return graph.values[output].name;
  }
  return node.op_type;
}

// Whether something at `path` belongs to the instance at `instance`.
bool Belongs(const std::string& path, const std::string& instance) {
  return path == instance || (path.starts_with(instance) && path[instance.size()] == '.');
}

class Accountant {
 public:
  Accountant(const GraphModel& model, const RewritePlan& plan, const PlanOptions& options,
             Report& report)
      : model_(model),
        plan_(plan),
        filter_(options.selection.filter),
        explain_(options.explain),
        report_(report) {}

  void Describe() {
    for (const PlannedNode& node : plan_.nodes) {
      PatchedReport entry;
      entry.module = node.module;
      entry.op = node.instance->op->contract->shown();
      entry.node = node.name;
      entry.form = node.instance->Form();
      entry.precision = PrecisionName(node.precision);
      entry.paths = node.paths;
      entry.attributes = node.attributes;
      for (NodeId id : node.replaced) {
        entry.replaced.push_back(NodeName(model_.graphs[node.graph], id));
      }
      report_.patched.push_back(std::move(entry));
    }
    for (const AlreadyFused& fused : plan_.already_fused) {
      report_.already_fused.push_back(
          {fused.module, fused.op, fused.node, fused.path, fused.instances, fused.reason});
    }
  }

  void Count(const ResolvedModule& resolved, const ExpectedModule* expected) {
    ModuleReport module;
    module.name = resolved.name;
    module.enabled = resolved.enabled;
    module.reason = resolved.reason;
    if (expected != nullptr && expected->count) {
      module.expected = expected->count;
      module.expected_source = expected->source;
      for (const std::string& disagreement : expected->disagreements) {
        report_.diagnostics.push_back(
            {Diagnostic::Severity::kWarning, "expected " + resolved.name + ": " +
                                                 std::to_string(*expected->count) + " by " +
                                                 expected->source + ", but " + disagreement});
      }
    }
    for (const PlannedNode& node : plan_.nodes) {
      if (!IsOf(node, resolved.name)) continue;
      module.patched += node.instances();
      ++module.ops[std::string(node.instance->op->contract->op_type)];
    }
    for (const AlreadyFused& fused : plan_.already_fused) {
      if (IsOf(fused, resolved.name)) module.already_fused += fused.instances;
    }
    if (!resolved.enabled) {
      if (module.expected) module.excluded = *module.expected - module.already_fused;
      report_.modules.push_back(std::move(module));
      return;
    }
    Misses(module, expected);
    report_.modules.push_back(std::move(module));
  }

 private:
  // Of the family's part: what entries of a user's map have is counted with them.
  template <typename Place>
  static bool IsOf(const Place& place, const std::string& module) {
    return place.module == module && place.target < 0;
  }

  void Misses(ModuleReport& module, const ExpectedModule* expected) {
    std::vector<const NearMiss*> open;
    for (const NearMiss& miss : plan_.near_misses) {
      if (!IsOf(miss, module.name)) continue;
      if (miss.degraded) {
        ++module.degraded;
        report_.degraded.push_back(AsReport(miss));
      } else {
        open.push_back(&miss);
      }
    }
    if (!module.expected) {
      // Nothing says how many there should be: what a guard refused had the op's structure.
      for (const NearMiss* miss : open) {
        const bool refused = !miss->guard.empty();
        module.missed += refused ? 1 : 0;
        (refused ? report_.missed : report_.near_misses).push_back(AsReport(*miss));
      }
      return;
    }
    if (expected->instances.empty()) CountOutside(module);
    int64_t shortfall = *module.expected - module.patched - module.already_fused - module.degraded -
                        module.excluded;
    if (!expected->instances.empty()) {
      Coverage coverage = Cover(module, *expected);
      module.excluded = coverage.RemoveOutside(filter_);
      shortfall = coverage.Shortfall();
      if (shortfall > 0) NameByPath(module, coverage, open, shortfall);
      const int64_t additional = coverage.Additional();
      SetAdditional(module, additional);
      if (additional > 0) {
        report_.diagnostics.push_back(
            {Diagnostic::Severity::kNote, "fused outside the modules that the family expects: " +
                                              std::to_string(additional) + " of " + module.name});
      }
    } else if (shortfall > 0) {
      NameByOrder(module, open, shortfall);
    } else if (shortfall < 0) {
      SetAdditional(module, -shortfall);
      report_.diagnostics.push_back(
          {Diagnostic::Severity::kWarning,
           "more " + module.name + " instances were fused than expected: " +
               std::to_string(*module.expected - shortfall) + " of " +
               std::to_string(*module.expected) + " (" + module.expected_source + ")"});
    }
    module.unaccounted = std::max<int64_t>(0, shortfall - module.missed);
    for (const NearMiss* miss : open) {
      if (miss != nullptr) report_.near_misses.push_back(AsReport(*miss));
    }
  }

  // Instances without paths that match outside of --scope are excluded, not missed.
  void CountOutside(ModuleReport& module) {
    if (filter_.IsEmpty()) return;
    int64_t room = *module.expected - module.patched - module.already_fused - module.degraded;
    for (const OffMatch& off : plan_.off) {
      const bool outside = off.module == module.name && !filter_.WhyOutside(off.path).empty();
      if (!outside || room <= 0) continue;
      ++module.excluded;
      --room;
    }
  }

  // What was fused beyond the expected instances is counted apart, so that the sum holds.
  static void SetAdditional(ModuleReport& module, int64_t count) {
    module.additional = std::min(count, module.patched + module.already_fused);
    const int64_t patched = std::min(module.additional, module.patched);
    module.patched -= patched;
    module.already_fused -= module.additional - patched;
  }

  // What is known of an instance in which nothing resembles the op that was looked for.
  std::string WhatStandsAt(const std::string& instance) const {
    for (const OffMatch& off : plan_.off) {
      if (Belongs(off.path, instance)) {
        return "what stands there is a " + off.op + ", and " + off.reason;
      }
    }
    for (const OffMatch& off : plan_.off) {
      if (!off.path.empty()) continue;
      return "nothing in this scope resembles the op; the graph has a " + off.op + " at " +
             off.node + ", and " + off.reason;
    }
    return "nothing in this scope resembles the op";
  }

  std::vector<std::string> NodesAt(const std::string& instance) const {
    std::vector<std::string> lines;
    for (const Graph& graph : model_.graphs) {
      if (lines.empty()) lines = NodesOfModule(model_, graph, instance);
    }
    return lines;
  }

  // Instances without paths: the near misses, refused ones first, stand for what is missing.
  void NameByOrder(ModuleReport& module, std::vector<const NearMiss*>& open, int64_t shortfall) {
    for (const bool refused : {true, false}) {
      for (const NearMiss*& miss : open) {
        if (miss == nullptr || module.missed >= shortfall || miss->guard.empty() == refused)
          continue;
        ++module.missed;
        report_.missed.push_back(AsReport(*miss));
        miss = nullptr;
      }
    }
  }

  // Which of the expected instances are covered by what was fused, patched now or before.
  struct Coverage {
    std::map<std::string, int64_t> missing;  // by instance
    int64_t outside = 0;                     // fused at paths of no expected instance
    int64_t unplaced = 0;                    // fused at unknown paths: may be any of `missing`

    int64_t Missing() const {
      int64_t sum = 0;
      for (const auto& [instance, count] : missing) sum += count;
      return sum;
    }
    // Takes out what is missing and stands outside of --scope; how many.
    int64_t RemoveOutside(const ScopeFilter& filter) {
      int64_t count = 0;
      for (auto& [instance, open] : missing) {
        if (filter.WhyOutside(instance).empty()) continue;
        count += open;
        open = 0;
      }
      return count;
    }
    int64_t Shortfall() const { return std::max<int64_t>(Missing() - unplaced, 0); }
    int64_t Additional() const { return outside + std::max<int64_t>(unplaced - Missing(), 0); }

    void Take(const std::string& path, int64_t count) {
      if (path.empty()) {
        unplaced += count;
        return;
      }
      // An instance around the path, the innermost first; else one inside it, since a node that
      // takes in a residual sum may stand at the path of the layer; else one that is named by its
      // parameter, whose path holds modules around the exported one.
      using Fits = bool (*)(const std::string&, const std::string&);
      const Fits kinds[] = {
          [](const std::string& p, const std::string& instance) { return Belongs(p, instance); },
          [](const std::string& p, const std::string& instance) { return Belongs(instance, p); },
          [](const std::string& p, const std::string& instance) {
            return instance.ends_with("." + p) && p.find('.') != std::string::npos;
          }};
      for (const Fits fits : kinds) {
        for (auto it = missing.rbegin(); it != missing.rend() && count > 0; ++it) {
          if (!fits(path, it->first)) continue;
          const int64_t taken = std::min(count, it->second);
          it->second -= taken;
          count -= taken;
        }
      }
      outside += count;
    }
  };

  Coverage Cover(const ModuleReport& module, const ExpectedModule& expected) const {
    Coverage coverage;
    for (const std::string& instance : expected.instances) ++coverage.missing[instance];
    for (const PlannedNode& node : plan_.nodes) {
      if (!IsOf(node, module.name)) continue;
      for (const std::string& path : node.paths) coverage.Take(path, 1);
    }
    for (const AlreadyFused& fused : plan_.already_fused) {
      if (IsOf(fused, module.name)) coverage.Take(fused.path, fused.instances);
    }
    for (const MissReport& miss : report_.degraded) {
      if (miss.module == module.name) coverage.Take(miss.path, 1);
    }
    return coverage;
  }

  void NameByPath(ModuleReport& module, const Coverage& coverage,
                  std::vector<const NearMiss*>& open, int64_t shortfall) {
    for (const auto& [instance, missing] : coverage.missing) {
      for (int64_t i = 0; i < missing && module.missed < shortfall; ++i) {
        ++module.missed;
        MissReport entry{module.name, instance, "", WhatStandsAt(instance), ""};
        for (const NearMiss*& miss : open) {
          if (miss == nullptr || !Belongs(miss->path, instance)) continue;
          entry = AsReport(*miss);
          entry.path = instance;
          miss = nullptr;
          break;
        }
        if (entry.node.empty() && explain_ && explain_->Takes(module.name, instance, "")) {
          entry.chain = NodesAt(instance);
        }
        report_.missed.push_back(std::move(entry));
      }
    }
  }

  const GraphModel& model_;
  const RewritePlan& plan_;
  const ScopeFilter& filter_;
  const std::optional<ExplainFilter>& explain_;
  Report& report_;
};

}  // namespace

MissReport AsReport(const NearMiss& miss) {
  return {miss.module, miss.path,    miss.node,  miss.reason,
          miss.guard,  miss.closest, miss.chain, miss.values};
}

void AccountForModules(const GraphModel& model, const RewritePlan& plan,
                       const ExpectedCounts& expected, const ResolvedModules& resolved,
                       const PlanOptions& options, Report& report) {
  Accountant accountant(model, plan, options, report);
  accountant.Describe();
  for (const ResolvedModule& module : resolved.modules) {
    accountant.Count(module, expected.Find(module.name));
  }
}

}  // namespace liger
