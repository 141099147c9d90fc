#include "api/user_maps.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <set>

#include "family/module_path.h"
#include "ops/op_contract.h"
#include "patchmap/nearest.h"
#include "patchmap/op_names.h"

namespace liger {
namespace {

namespace fs = std::filesystem;

// A map is a page of text; more is another file that was named by mistake.
constexpr uintmax_t kMaxMapBytes = 4 << 20;

// Gathers errors of one kind into one.
class Errors {
 public:
  void Add(Error error) { errors_.push_back(std::move(error)); }
  Status Take() {
    if (errors_.empty()) return {};
    Error first = std::move(errors_.front());
    first.others.insert(first.others.end(), std::make_move_iterator(errors_.begin() + 1),
                        std::make_move_iterator(errors_.end()));
    return first;
  }

 private:
  std::vector<Error> errors_;
};

Result<std::string> ReadText(const fs::path& file) {
  const auto fail = [&](const std::string& why) {
    return Error{ErrorCode::kUsage, "the patch map '" + file.string() + "' " + why, file.string(),
                 "--patches wants a YAML file; docs/patch-maps.md shows what stands in it"};
  };
  std::error_code ec;
  if (!fs::exists(file, ec)) return fail("does not exist");
  if (!fs::is_regular_file(file, ec) && !fs::is_character_file(file, ec) &&
      !fs::is_fifo(file, ec)) {
    return fail("is no file");
  }
  if (fs::is_regular_file(file, ec) && fs::file_size(file, ec) > kMaxMapBytes) {
    return fail("is too large for a patch map");
  }
  std::ifstream stream(file, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
  if (!stream) return fail("cannot be read");
  return text;
}

std::string FullName(const UserEntry& entry) { return entry.domain + "." + entry.op; }

// "class 'pkg.Norm'", "the pattern SoftCap".
std::string Shown(const UserEntry& entry) {
  if (entry.kind == UserEntry::Kind::kMatch) return "the pattern " + entry.symbol;
  return std::string(UserEntryKindName(entry.kind)) + " '" + entry.symbol + "'";
}

// Under which its matches stand in the selection.
std::string OpModule(const UserEntry& entry) {
  if (entry.kind == UserEntry::Kind::kMatch) return FullName(entry);
  return std::string(FindContract(entry.op)->module);
}

Error AbsentSymbol(const UserEntry& entry, const SymbolIndex& index) {
  Error error{ErrorCode::kUsage, Shown(entry) + " is not in the model", entry.place, ""};
  const std::vector<std::string> nearest = index.Nearest(entry);
  if (!nearest.empty()) {
    error.hint = "the model has " + JoinNames(nearest) + "; ";
  } else if (!index.HasAny(entry.kind)) {
    switch (entry.kind) {
      case UserEntry::Kind::kClass:
        error.hint =
            "no node of this model has class names in its metadata (exports by TorchScript have "
            "none): name module paths with `scope:`; ";
        break;
      case UserEntry::Kind::kFunction:
        error.hint = "the model calls no local functions: name a `class:` or a `scope:`; ";
        break;
      default:
        error.hint =
            "no node of this model says what module it is of: describe the nodes with `match:`; ";
    }
  }
  error.hint += "`optional: true` lets the entry pass where the symbol is absent";
  return error;
}

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

}  // namespace

Result<UserMaps> UserMaps::Load(std::span<const fs::path> files) {
  UserMaps result;
  Errors errors;
  for (const fs::path& file : files) {
    auto text = ReadText(file);
    auto map = text ? ParseUserMap(file.string(), *text) : Result<UserMap>(text.error());
    if (!map) {
      Error error = std::move(map).error();
      std::vector<Error> others = std::move(error.others);
      error.others.clear();
      errors.Add(std::move(error));
      for (Error& other : others) errors.Add(std::move(other));
      continue;
    }
    if (!map->extends.empty() && !result.extends_.empty() && map->extends != result.extends_) {
      errors.Add({ErrorCode::kUsage,
                  "the patch maps extend two families, " + result.extends_ + " and " + map->extends,
                  file.string(), "one run has one family: give the maps to runs of their own"});
    }
    if (!map->extends.empty()) result.extends_ = map->extends;
    for (const UserModule& module : map->modules) {
      for (const UserEntry& entry : module.entries) result.entries_.push_back({module.name, entry});
    }
    result.maps_.push_back(*std::move(map));
  }
  if (Status status = errors.Take(); !status) return std::move(status).error();
  return result;
}

std::string UserMaps::Label() const {
  std::vector<std::string> labels;
  for (const UserMap& map : maps_) {
    if (std::find(labels.begin(), labels.end(), map.family) == labels.end()) {
      labels.push_back(map.family);
    }
  }
  return JoinNames(labels);
}

std::string UserMaps::Files() const {
  std::vector<std::string> files;
  for (const UserMap& map : maps_) files.push_back(map.file);
  return JoinNames(files);
}

std::vector<std::string> UserMaps::ModuleNames() const {
  std::vector<std::string> names;
  for (const Entry& e : entries_) {
    if (std::find(names.begin(), names.end(), e.module) == names.end()) names.push_back(e.module);
  }
  return names;
}

OwnOpNames UserMaps::OwnOps() const {
  OwnOpNames names;
  for (const Entry& e : entries_) {
    if (e.entry.kind == UserEntry::Kind::kMatch) names.emplace(e.entry.domain, e.entry.op);
  }
  return names;
}

Status UserMaps::AddOwnOps(const std::map<std::string, int64_t>& opsets, OpPatternSet& ops) const {
  Errors errors;
  for (const auto& [domain, op_type] : OwnOps()) {
    OwnOp own{domain, op_type, {}};
    bool is_optional = true;
    for (const Entry& e : entries_) {
      const UserEntry& entry = e.entry;
      if (entry.domain != domain || entry.op != op_type) continue;
      own.texts.push_back({entry.text, entry.min_opset, entry.max_opset, entry.types, entry.place});
      is_optional = is_optional && entry.optional;
    }
    const int64_t opset = OpsetOf(opsets, "");
    const bool covered = std::any_of(own.texts.begin(), own.texts.end(), [&](const auto& text) {
      return text.min_opset <= opset && opset <= text.max_opset;
    });
    if (!covered && is_optional) continue;
    if (Status status = ops.AddOwn(own, opsets); !status) errors.Add(std::move(status).error());
  }
  return errors.Take();
}

Status UserMaps::Bind(const SymbolIndex& index, std::span<const std::string> excluded,
                      Selection& selection) {
  Errors errors;
  const auto is_excluded = [&](const std::string& module) {
    return std::find(excluded.begin(), excluded.end(), module) != excluded.end();
  };
  std::map<std::string, int> own_targets;
  for (Entry& e : entries_) {
    const std::string op_module = OpModule(e.entry);
    e.excluded = is_excluded(e.module) || is_excluded(op_module);
    if (e.excluded) continue;
    UserTarget target{e.module, op_module, {}};
    if (e.entry.kind == UserEntry::Kind::kMatch) {
      // All texts of one op are one pattern.
      const auto [known, is_new] =
          own_targets.try_emplace(op_module, static_cast<int>(selection.targets.size()));
      e.target = known->second;
      if (!is_new) continue;
    } else {
      target.instances = index.Find(e.entry);
      if (target.instances.empty()) {
        if (!e.entry.optional) errors.Add(AbsentSymbol(e.entry, index));
        continue;
      }
      e.target = static_cast<int>(selection.targets.size());
    }
    selection.targets.push_back(std::move(target));
  }
  return errors.Take();
}

namespace {

// What a guard refused had the whole structure.
bool IsNearer(const NearMiss& a, const NearMiss& b) {
  return std::pair(!a.guard.empty(), a.score) > std::pair(!b.guard.empty(), b.score);
}

// What became of one target: how many matches lie in each of its instances.
class TargetCounts {
 public:
  TargetCounts(const GraphModel& model, const RewritePlan& plan, const Selection& selection,
               int target)
      : model_(model), instances_(selection.targets[target].instances), in_(instances_.size(), 0) {
    for (const PlannedNode& node : plan.nodes) {
      if (node.target != target) continue;
      patched += node.instances();
      for (size_t i = 0; i < node.roots.size(); ++i) {
        Take(node.graph, node.paths[i], NameOf(node.graph, node.roots[i]), 1);
      }
    }
    for (const AlreadyFused& fused : plan.already_fused) {
      if (fused.target != target) continue;
      already += fused.instances;
      Take(fused.graph, fused.path, fused.output, fused.instances);
    }
    for (const NearMiss& miss : plan.near_misses) {
      if (miss.target == target) misses.push_back(&miss);
    }
  }

  const std::vector<UserInstance>& instances() const { return instances_; }
  int64_t In(size_t instance) const { return in_[instance]; }

  // The near miss that lies in the instance; null if there is none.
  const NearMiss* MissIn(size_t instance) const {
    const NearMiss* best = nullptr;
    for (const NearMiss* miss : misses) {
      const bool holds =
          instances_[instance].Holds(miss->graph, miss->path, NameOf(miss->graph, miss->root));
      if (holds && (best == nullptr || IsNearer(*miss, *best))) best = miss;
    }
    return best;
  }

  int64_t patched = 0;
  int64_t already = 0;
  std::vector<const NearMiss*> misses;

 private:
  std::string NameOf(int graph, ValueId value) const {
    return value == kNone ? "" : model_.graphs[graph].values[value].name;
  }
  void Take(int graph, const std::string& path, const std::string& root, int64_t count) {
    for (size_t i = 0; i < instances_.size(); ++i) {
      if (!instances_[i].Holds(graph, path, root)) continue;
      in_[i] += count;
      return;
    }
  }

  const GraphModel& model_;
  const std::vector<UserInstance>& instances_;
  std::vector<int64_t> in_;
};

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

}  // namespace

void UserMaps::RemoveFrom(ExpectedCounts& expected, const Selection& selection,
                          const RewritePlan& plan) const {
  for (size_t t = 0; t < selection.targets.size(); ++t) {
    const UserTarget& target = selection.targets[t];
    for (ExpectedModule& module : expected.modules) {
      if (module.module != target.op_module || !module.count) continue;
      if (module.instances.empty()) {
        // Only the number is known: what the map took is no longer the family's.
        for (const PlannedNode& node : plan.nodes) {
          if (node.target == static_cast<int>(t)) *module.count -= node.instances();
        }
        module.count = std::max<int64_t>(0, *module.count);
        continue;
      }
      std::erase_if(module.instances, [&](const std::string& path) {
        return std::any_of(
            target.instances.begin(), target.instances.end(), [&](const UserInstance& instance) {
              return instance.values.empty() && instance.Holds(instance.graph, path, "");
            });
      });
      module.count = static_cast<int64_t>(module.instances.size());
    }
  }
}

Status UserMaps::Account(const GraphModel& model, const RewritePlan& plan,
                         const PlanOptions& options, Report& report) const {
  const Selection& selection = options.selection;
  const std::optional<ExplainFilter>& explain = options.explain;
  Errors errors;
  std::set<int> counted;
  const auto module_of = [&](const std::string& name) -> ModuleReport& {
    for (ModuleReport& module : report.modules) {
      if (module.name == name) return module;
    }
    ModuleReport& module = report.modules.emplace_back();
    module.name = name;
    return module;
  };
  for (const Entry& e : entries_) {
    const UserEntry& entry = e.entry;
    SymbolReport symbol;
    symbol.module = e.module;
    symbol.kind = UserEntryKindName(entry.kind);
    symbol.symbol = entry.symbol;
    symbol.op = FullName(entry);
    symbol.place = entry.place;
    const bool is_new_module =
        std::none_of(report.modules.begin(), report.modules.end(),
                     [&](const ModuleReport& module) { return module.name == e.module; });
    ModuleReport& module = module_of(e.module);
    if (e.excluded) {
      symbol.notes.push_back("excluded by --exclude");
      if (is_new_module) module.reason = "excluded by --exclude";
      report.symbols.push_back(std::move(symbol));
      continue;
    }
    if (!module.enabled) {
      module.reason = is_new_module ? "on by the patch map"
                                    : module.reason + "; on by the patch map where it says so";
      module.enabled = true;
    }
    if (e.target < 0) {
      symbol.notes.push_back("optional, and absent");
      if (is_new_module) module.expected = 0, module.expected_source = "patch_map";
      report.symbols.push_back(std::move(symbol));
      continue;
    }
    const TargetCounts counts(model, plan, selection, e.target);
    symbol.patched = counts.patched;
    symbol.already_fused = counts.already;
    symbol.notes = Disagreements(entry, plan, e.target);
    const bool is_match = entry.kind == UserEntry::Kind::kMatch;
    int64_t expected = counts.patched + counts.already;
    int64_t missed = 0;
    int64_t excluded = 0;
    for (size_t i = 0; i < counts.instances().size(); ++i) {
      if (counts.In(i) > 0) continue;
      const UserInstance& instance = counts.instances()[i];
      ++expected;
      if (const std::string why = selection.filter.WhyOutside(instance.path); !why.empty()) {
        ++excluded;
        continue;
      }
      ++missed;
      const NearMiss* miss = counts.MissIn(i);
      MissReport entry_miss{e.module, instance.path, "", "nothing in it resembles the op", ""};
      if (miss != nullptr) {
        entry_miss = {e.module,    instance.path, miss->node,  miss->reason,
                      miss->guard, miss->closest, miss->chain, miss->values};
      } else if (explain && explain->Takes(e.module, instance.path, "")) {
        entry_miss.chain = NodesOfModule(model, model.graphs[instance.graph], instance.path);
      }
      const bool left_out = miss != nullptr && miss->guard == "only_first";
      if (!entry.optional && !left_out) {
        errors.Add({ErrorCode::kUsage,
                    "the instance '" + instance.path + "' of " + Shown(entry) +
                        " matches no form of " + entry.op + ": " + entry_miss.reason +
                        (entry_miss.guard.empty() ? "" : " [" + entry_miss.guard + "]"),
                    entry.place,
                    "--explain '" + instance.path +
                        "' shows its nodes; a spelling of its own is described with `match:`; "
                        "`optional: true` lets such instances be"});
      }
      report.missed.push_back(std::move(entry_miss));
    }
    symbol.instances = expected;
    if (is_match && symbol.instances == 0 && !entry.optional && !counted.contains(e.target)) {
      if (Status status = NeverMatched(entry, counts.misses, plan); !status) {
        errors.Add(std::move(status).error());
      }
    }
    if (entry.expect) {
      ExpectationReport wish{e.module, entry.expect->ToText(), entry.place,
                             counts.patched + counts.already, false};
      wish.met = entry.expect->Met(wish.found);
      report.expectations.push_back(std::move(wish));
    }
    report.symbols.push_back(std::move(symbol));
    if (!counted.insert(e.target).second) continue;

    const bool is_known = !is_match || (entry.expect && !entry.expect->at_least);
    if (is_match && is_known) expected = std::max(expected, entry.expect->count);
    if (is_new_module) {
      module.expected = 0;
      module.expected_source = "patch_map";
    }
    if (is_known && module.expected) {
      *module.expected += expected;
      module.unaccounted += is_match ? expected - counts.patched - counts.already : 0;
    } else {
      // What a pattern finds is all there is to know of it.
      module.expected.reset();
      module.expected_source.clear();
    }
    module.patched += counts.patched;
    module.already_fused += counts.already;
    module.missed += missed;
    module.excluded += excluded;
    for (const PlannedNode& node : plan.nodes) {
      if (node.target != e.target) continue;
      const OpContract& contract = *node.instance->op->contract;
      ++module.ops[std::string(contract.shown())];
    }
  }
  return errors.Take();
}

Status UserMaps::NeverMatched(const UserEntry& entry, const std::vector<const NearMiss*>& misses,
                              const RewritePlan& plan) {
  // Matches outside of --scope show that the pattern is right.
  const bool elsewhere = std::any_of(plan.off.begin(), plan.off.end(), [&](const OffMatch& off) {
    return off.module == FullName(entry);
  });
  if (elsewhere) return {};
  Error error{ErrorCode::kUsage, Shown(entry) + " (" + FullName(entry) + ") matches nowhere",
              entry.place, ""};
  const NearMiss* nearest = nullptr;
  for (const NearMiss* miss : misses) {
    if (nearest == nullptr || IsNearer(*miss, *nearest)) nearest = miss;
  }
  if (nearest != nullptr) {
    error.hint = "it comes closest at " + (nearest->path.empty() ? "" : nearest->path + ", node ") +
                 nearest->node + ": " + nearest->reason + "; --explain shows the nodes there; ";
  } else {
    error.hint =
        "nothing in the graph resembles it; --explain GLOB shows the nodes of a module as they "
        "stand; ";
  }
  error.hint += "`optional: true` lets a pattern without matches pass";
  return error;
}

}  // namespace liger
