#include "api/user_accounting.h"

#include <algorithm>
#include <cstdlib>
#include <map>

#include "api/accounting.h"
#include "ops/op_contract.h"
#include "patchmap/op_names.h"

namespace liger {
namespace {

bool IsNumber(const std::string& text, double* number) {
  char* end = nullptr;
  *number = std::strtod(text.c_str(), &end);
  return !text.empty() && *end == '\0';
}

bool SameValue(const std::string& a, const std::string& b) {
  double x = 0;
  double y = 0;
  return a == b || (IsNumber(a, &x) && IsNumber(b, &y) && x == y);
}

// What an alias implies and the graph does not say.
std::vector<std::string> Disagreements(const UserEntry& entry, const RewritePlan& plan,
                                       int target) {
  std::vector<std::string> notes;
  const OpName* name = entry.alias.empty() ? nullptr : FindOpName(entry.alias);
  if (name == nullptr) return notes;
  for (const ImpliedAttribute& implied : name->implies) {
    std::map<std::string, int64_t> found;
    for (const PlannedNode& node : plan.nodes) {
      const auto value = node.attributes.find(std::string(implied.name));
      if (node.target != target || value == node.attributes.end()) continue;
      const std::string text = AttributeText(value->second);
      if (!SameValue(text, std::string(implied.value))) found[text] += node.instances();
    }
    for (const auto& [text, count] : found) {
      notes.push_back(entry.alias + " stands for " + std::string(implied.name) + " = " +
                      std::string(implied.value) + ", but the graph has " + text + " (" +
                      std::to_string(count) + (count == 1 ? " instance" : " instances") +
                      "): the graph's number was taken");
    }
  }
  return notes;
}

// What a guard refused had the whole structure.
bool IsNearer(const NearMiss& a, const NearMiss& b) {
  return std::pair(!a.guard.empty(), a.score) > std::pair(!b.guard.empty(), b.score);
}

bool IsPattern(const UserEntry& entry) { return entry.kind == UserEntry::Kind::kMatch; }

}  // namespace

std::string OpOf(const UserEntry& entry) { return entry.domain + "." + entry.op; }

std::string Shown(const UserEntry& entry) {
  if (IsPattern(entry)) return "the pattern " + entry.symbol;
  return std::string(UserEntryKindName(entry.kind)) + " '" + entry.symbol + "'";
}

void UserAccountant::Count(const AccountedEntry& e) {
  const UserEntry& entry = *e.entry;
  ModuleReport& module = ModuleOf(e);
  SymbolReport symbol;
  symbol.module = e.module;
  symbol.kind = UserEntryKindName(entry.kind);
  symbol.symbol = entry.symbol;
  symbol.op = OpOf(entry);
  symbol.place = entry.place;
  if (e.excluded) {
    symbol.notes.push_back("excluded by --exclude");
  } else if (e.target < 0) {
    symbol.notes.push_back("optional, and absent");
  } else {
    const Counts counts = CountTarget(e);
    symbol.patched = counts.patched;
    symbol.already_fused = counts.already_fused;
    symbol.instances = counts.Expected();
    symbol.notes = Disagreements(entry, plan_, e.target);
    if (entry.expect) {
      report_.expectations.push_back({e.module, entry.expect->ToText(), entry.place, counts.found,
                                      entry.expect->Met(counts.found), entry.expect->count});
    }
    if (counted_.insert(e.target).second) {
      if (IsPattern(entry) && counts.found == 0) CheckMatched(e);
      for (const NearMiss& miss : plan_.near_misses) {
        if (IsPattern(entry) && miss.target == e.target) {
          report_.near_misses.push_back(AsReport(miss));
        }
      }
      AddToModule(e, counts, module);
    }
  }
  report_.symbols.push_back(std::move(symbol));
}

ModuleReport& UserAccountant::ModuleOf(const AccountedEntry& e) {
  auto module = std::find_if(report_.modules.begin(), report_.modules.end(),
                             [&](const ModuleReport& m) { return m.name == e.module; });
  if (module == report_.modules.end()) {
    module = report_.modules.insert(module, ModuleReport());
    module->name = e.module;
    module->expected = 0;
    module->expected_source = "patch_map";
    new_modules_.insert(e.module);
  }
  if (e.excluded) {
    if (module->reason.empty()) module->reason = "excluded by --exclude";
  } else if (!module->enabled) {
    module->enabled = true;
    module->reason = new_modules_.contains(e.module)
                         ? "on by the patch map"
                         : module->reason + "; on by the patch map where it says so";
  }
  return *module;
}

UserAccountant::Counts UserAccountant::CountTarget(const AccountedEntry& e) {
  const UserTarget& target = options_.selection.targets[e.target];
  Counts counts;
  std::vector<int64_t> in(target.instances.size(), 0);
  const auto take = [&](int graph, const std::string& path, const std::string& root,
                        int64_t count) {
    for (size_t i = 0; i < in.size(); ++i) {
      if (!target.instances[i].Holds(graph, path, root)) continue;
      in[i] += count;
      counts.found += count;
      return;
    }
  };
  for (const PlannedNode& node : plan_.nodes) {
    if (node.target == e.target) counts.patched += node.instances();
    if (node.instance->op->contract->module != target.op_module) continue;
    for (size_t i = 0; i < node.roots.size(); ++i) {
      take(node.graph, node.paths[i], NameOf(node.graph, node.roots[i]), 1);
    }
  }
  for (const AlreadyFused& fused : plan_.already_fused) {
    if (fused.target == e.target) counts.already_fused += fused.instances;
    const OpContract* contract = FindContract(fused.op);
    const bool is_op =
        fused.target == e.target || (contract != nullptr && contract->module == target.op_module);
    if (is_op) take(fused.graph, fused.path, fused.output, fused.instances);
  }
  if (IsPattern(*e.entry)) counts.found = counts.patched + counts.already_fused;
  for (size_t i = 0; i < in.size(); ++i) {
    if (in[i] > 0) continue;
    const UserInstance& instance = target.instances[i];
    if (!options_.selection.filter.WhyOutside(instance.path).empty()) {
      ++counts.excluded;
    } else {
      ++counts.missed;
      AddMiss(e, instance);
    }
  }
  return counts;
}

void UserAccountant::AddMiss(const AccountedEntry& e, const UserInstance& instance) {
  const UserEntry& entry = *e.entry;
  const NearMiss* nearest = NearestMiss(e.target, &instance);
  MissReport miss{e.module, instance.path, "", "nothing in it resembles the op", ""};
  if (nearest != nullptr) {
    miss = AsReport(*nearest);
    miss.path = instance.path;
  } else if (options_.explain && options_.explain->Takes(e.module, instance.path, "")) {
    miss.chain = NodesOfModule(model_, model_.graphs[instance.graph], instance.path);
  }
  // Bisecting leaves out what would match.
  if (!entry.optional && miss.guard != "only_first") {
    errors_.Add({ErrorCode::kUsage,
                 "the instance '" + instance.path + "' of " + Shown(entry) +
                     " matches no form of " + entry.op + ": " + miss.reason +
                     (miss.guard.empty() ? "" : " [" + miss.guard + "]"),
                 entry.place,
                 "--explain '" + instance.path +
                     "' shows its nodes; a spelling of its own is described with `match:`; "
                     "`optional: true` lets such instances be"});
  }
  report_.missed.push_back(std::move(miss));
}

void UserAccountant::AddToModule(const AccountedEntry& e, const Counts& counts,
                                 ModuleReport& module) {
  module.patched += counts.patched;
  module.already_fused += counts.already_fused;
  module.missed += counts.missed;
  module.excluded += counts.excluded;
  for (const PlannedNode& node : plan_.nodes) {
    if (node.target != e.target) continue;
    ++module.ops[std::string(node.instance->op->contract->shown())];
  }
  const std::optional<CountWish>& wish = e.entry->expect;
  const bool is_known = !IsPattern(*e.entry) || (wish && !wish->at_least);
  (is_known || !new_modules_.contains(e.module) ? known_modules_ : unknown_modules_)
      .insert(e.module);
  if (!module.expected) return;
  const int64_t short_of_wish =
      IsPattern(*e.entry) && is_known ? std::max<int64_t>(0, wish->count - counts.Expected()) : 0;
  *module.expected += counts.Expected() + short_of_wish;
  module.unaccounted += short_of_wish;
}

Status UserAccountant::Finish() {
  for (ModuleReport& module : report_.modules) {
    if (!unknown_modules_.contains(module.name) || known_modules_.contains(module.name)) continue;
    // What a pattern finds is all there is to know of it.
    module.expected.reset();
    module.expected_source.clear();
  }
  return errors_.Take();
}

void UserAccountant::CheckMatched(const AccountedEntry& e) {
  const UserEntry& entry = *e.entry;
  // Matches outside of --scope show that the pattern is right.
  const bool elsewhere = std::any_of(plan_.off.begin(), plan_.off.end(), [&](const OffMatch& off) {
    return off.module == OpOf(entry);
  });
  const NearMiss* nearest = NearestMiss(e.target, nullptr);
  const bool left_out = nearest != nullptr && nearest->guard == "only_first";
  if (entry.optional || elsewhere || left_out) return;
  Error error{ErrorCode::kUsage, Shown(entry) + " (" + OpOf(entry) + ") matches nowhere",
              entry.place, ""};
  if (nearest != nullptr) {
    error.hint = "it comes closest at " + (nearest->path.empty() ? "" : nearest->path + ", node ") +
                 nearest->node + ": " + nearest->reason + "; --explain shows the nodes there; ";
  } else {
    error.hint =
        "nothing in the graph resembles it; --explain GLOB shows the nodes of a module as they "
        "stand; ";
  }
  error.hint += "`optional: true` lets a pattern without matches pass";
  errors_.Add(std::move(error));
}

const NearMiss* UserAccountant::NearestMiss(int target, const UserInstance* instance) const {
  const NearMiss* best = nullptr;
  for (const NearMiss& miss : plan_.near_misses) {
    const bool fits = miss.target == target &&
                      (instance == nullptr ||
                       instance->Holds(miss.graph, miss.path, NameOf(miss.graph, miss.root)));
    if (fits && (best == nullptr || IsNearer(miss, *best))) best = &miss;
  }
  return best;
}

const std::string& UserAccountant::NameOf(int graph, ValueId value) const {
  static const std::string none;
  return value == kNone ? none : model_.graphs[graph].values[value].name;
}

}  // namespace liger
