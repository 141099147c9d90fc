#include "family/expected.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <set>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "family/instance_pattern.h"
#include "family/module_path.h"
#include "patchmap/modules.h"

namespace liger {
namespace {

// A sane bound on num_hidden_layers: beyond it the file is no model's configuration.
constexpr int64_t kMaxLayers = 100000;

// The number behind the last "layers" of a path; absent if there is none.
std::optional<size_t> LayerOf(std::string_view path) {
  constexpr std::string_view kLayers = "layers.";
  const size_t found = path.rfind(kLayers);
  if (found == std::string_view::npos || (found > 0 && path[found - 1] != '.')) return std::nullopt;
  const char* begin = path.data() + found + kLayers.size();
  size_t layer = 0;
  const auto [end, error] = std::from_chars(begin, path.data() + path.size(), layer);
  if (error != std::errc() || (end != path.data() + path.size() && *end != '.')) {
    return std::nullopt;
  }
  return layer;
}

bool HasSegment(std::string_view path, std::string_view word) {
  for (size_t at = path.find(word); at != std::string_view::npos; at = path.find(word, at + 1)) {
    const size_t end = at + word.size();
    if ((at == 0 || path[at - 1] == '.') && (end == path.size() || path[end] == '.')) return true;
  }
  return false;
}

// Which layers have an instance, from config.json.
struct LayerRule {
  bool is_known = true;
  std::vector<bool> has;  // layers beyond the end have one
  int64_t interval = 0;   // if positive, each n-th layer has none

  bool Has(size_t layer) const {
    if (interval > 0) return (static_cast<int64_t>(layer) + 1) % interval != 0;
    return layer >= has.size() || has[layer];
  }
};

LayerRule LayersWith(const ModuleEntry& entry, const ModelConfig& config) {
  LayerRule rule;
  if (!entry.layer_flags.empty()) {
    const auto flags = config.lists.find(entry.layer_flags);
    if (flags != config.lists.end() && !flags->second.empty()) {
      for (const int64_t flag : flags->second) rule.has.push_back(flag != 0);
      return rule;
    }
    rule.interval =
        entry.layer_interval.empty() ? 0 : config.Integer(entry.layer_interval).value_or(0);
    rule.is_known = rule.interval > 0;
  } else if (!entry.layer_types.empty()) {
    const bool is_there = !config.integers.empty();
    if (is_there && !entry.layer_types_if.empty() && !config.Integer(entry.layer_types_if)) {
      return rule;
    }
    for (const std::string& type : config.layer_types) {
      rule.has.push_back(std::find(entry.layer_types.begin(), entry.layer_types.end(), type) !=
                         entry.layer_types.end());
    }
    rule.is_known = !rule.has.empty();
  }
  return rule;
}

// Module paths of one graph, in the order of first appearance.
struct GraphPaths {
  std::vector<std::string> all;  // scopes of any node name, ancestors included
  std::unordered_set<std::string> seen;
  std::map<std::string, std::vector<std::string>, std::less<>> by_class;  // from metadata
  std::set<std::pair<std::string, std::string>> seen_in_class;
};

class Counter {
 public:
  Counter(const GraphModel& model, const FamilyMap& family, const ModelConfig& config)
      : model_(model), config_(config) {
    CollectClasses(family);
    paths_.resize(model.graphs.size());
    for (size_t g = 0; g < model.graphs.size(); ++g) CollectGraph(model.graphs[g], &paths_[g]);
    CollectParameters();
  }

  ExpectedModule Count(const ModuleMap& module) const {
    ExpectedModule expected;
    expected.module = module.name;
    if (const ModuleKind* kind = FindModule(module.name); kind != nullptr && kind->is_loss) {
      return expected;
    }
    const Tally by_class = Sum(module, &Counter::ByClass);
    const Tally by_node_name = Sum(module, &Counter::ByNodeName);
    const Tally by_weight = Sum(module, &Counter::ByWeight);
    const Tally by_config = Sum(module, &Counter::ByConfig);
    const std::pair<const char*, const Tally*> sources[] = {{"class_metadata", &by_class},
                                                            {"node_names", &by_node_name},
                                                            {"weight_names", &by_weight},
                                                            {"config", &by_config}};
    const Tally* chosen = nullptr;
    for (const auto& [source, tally] : sources) {
      // The layers of config.json may be those of another file: an embedding, a vision tower.
      if (tally == &by_config && has_metadata_) continue;
      if (tally->count == 0 || (chosen != nullptr && !KnowsMore(*tally, *chosen))) continue;
      chosen = tally;
      expected.source = source;
    }
    if (chosen == nullptr) return expected;
    if (!chosen->is_known) {
      expected.source.clear();
      return expected;
    }
    expected.count = chosen->count;
    expected.instances = chosen->instances;
    for (const auto& [source, tally] : sources) {
      if (tally->count == 0 || tally->count == chosen->count || !tally->is_known) continue;
      // Exporters transpose and fold weights, which then lose their names.
      if (tally == &by_weight && AreAmong(by_weight.instances, chosen->instances)) continue;
      expected.disagreements.push_back(std::string(source) + " says " +
                                       std::to_string(tally->count));
    }
    return expected;
  }

 private:
  struct Tally {
    int64_t count = 0;
    bool is_known = true;  // false if config.json does not say which layers have an instance
    std::vector<std::string> instances;
  };
  using Method = Tally (Counter::*)(const ModuleEntry&) const;

  // Nodes that a rewrite made may have lost their metadata, and then the better source sees too few
  // instances. One that sees all of these and others is the better one.
  static bool KnowsMore(const Tally& tally, const Tally& than) {
    if (tally.count <= than.count || tally.instances.empty()) return false;
    const std::unordered_set<std::string_view> known(tally.instances.begin(),
                                                     tally.instances.end());
    return std::all_of(than.instances.begin(), than.instances.end(),
                       [&](const std::string& path) { return known.contains(path); });
  }

  // Whether each path is one of `known`, which may leave out the names of the outermost modules.
  static bool AreAmong(const std::vector<std::string>& paths,
                       const std::vector<std::string>& known) {
    return std::all_of(paths.begin(), paths.end(), [&](const std::string& path) {
      return std::any_of(known.begin(), known.end(), [&](const std::string& other) {
        return path == other ||
               (path.ends_with(other) && path[path.size() - other.size() - 1] == '.');
      });
    });
  }

  // Entries may stand for one another (classes of two releases), or know the same path by name.
  Tally Sum(const ModuleMap& module, Method method) const {
    Tally total;
    std::unordered_set<std::string> known;
    for (const ModuleEntry& entry : module.entries) {
      Tally part = (this->*method)(entry);
      if (part.instances.empty()) {
        total.count += part.count;
        if (part.count > 0) total.is_known &= part.is_known;
        continue;
      }
      std::erase_if(part.instances, [&](const std::string& path) { return known.contains(path); });
      if (part.instances.empty()) continue;
      known.insert(part.instances.begin(), part.instances.end());
      for (std::string& path : part.instances) {
        total.instances.insert(total.instances.end(), static_cast<size_t>(entry.per_instance),
                               path);
      }
      total.is_known &= part.is_known;
    }
    if (!total.instances.empty()) total.count = static_cast<int64_t>(total.instances.size());
    return total;
  }

  void CollectClasses(const FamilyMap& family) {
    for (const ModuleMap& module : family.modules) {
      for (const ModuleEntry& entry : module.entries) {
        if (entry.kind == ModuleEntry::Kind::kClass) wanted_classes_.insert(entry.symbol);
        wanted_classes_.insert(entry.callers.begin(), entry.callers.end());
      }
    }
  }

  void CollectGraph(const Graph& graph, GraphPaths* paths) {
    for (const Node& node : graph.nodes) {
      // Constants of a module may survive it, under its name.
      if (node.op_type == "Constant") continue;
      const ModuleScopes scopes = ModuleScopesOf(node);
      if (scopes.source == ScopeSource::kMetadata) {
        has_metadata_ = true;
        for (const ModuleScope& scope : scopes.scopes) {
          if (!wanted_classes_.contains(scope.class_name)) continue;
          if (paths->seen_in_class.emplace(scope.class_name, scope.path).second) {
            paths->by_class[scope.class_name].push_back(scope.path);
          }
        }
      } else if (scopes.source == ScopeSource::kNodeName) {
        for (const ModuleScope& scope : scopes.scopes) {
          if (paths->seen.insert(scope.path).second) paths->all.push_back(scope.path);
        }
      }
    }
  }

  void CollectParameters() {
    // A body uses an outer value by its name: the body holds a value of its own for it.
    std::unordered_set<std::string_view> used;
    for (const Graph& graph : model_.graphs) {
      for (const Value& value : graph.values) {
        if (!value.users.empty()) used.insert(value.name);
      }
    }
    for (const Graph& graph : model_.graphs) {
      for (const Value& value : graph.values) {
        if (value.is_initializer && used.erase(value.name) > 0) parameters_.push_back(value.name);
      }
    }
  }

  // `paths[g]` less those that a graph around g has as well: a body inside a module is part of it.
  Tally PerGraph(const ModuleEntry& entry,
                 const std::vector<std::vector<std::string>>& paths) const {
    Tally tally;
    for (size_t g = 0; g < paths.size(); ++g) {
      for (const std::string& path : paths[g]) {
        bool inherited = false;
        for (int parent = model_.graphs[g].parent; parent != kNone;
             parent = model_.graphs[static_cast<size_t>(parent)].parent) {
          const std::vector<std::string>& outer = paths[static_cast<size_t>(parent)];
          inherited |= std::find(outer.begin(), outer.end(), path) != outer.end();
        }
        if (!inherited) tally.instances.push_back(path);
      }
    }
    RemoveLayersWithout(entry, &tally);
    return tally;
  }

  void RemoveLayersWithout(const ModuleEntry& entry, Tally* tally) const {
    if (!entry.LayersDiffer()) return;
    const LayerRule rule = LayersWith(entry, config_);
    tally->is_known = rule.is_known;
    std::erase_if(tally->instances, [&](const std::string& path) {
      const std::optional<size_t> layer = LayerOf(path);
      return layer && !rule.Has(*layer);
    });
  }

  static void RemoveOutside(const ModuleEntry& entry, std::vector<std::string>* paths) {
    std::erase_if(*paths, [&](const std::string& path) {
      return std::any_of(entry.outside.begin(), entry.outside.end(),
                         [&](const std::string& word) { return HasSegment(path, word); });
    });
  }

  Tally ByClass(const ModuleEntry& entry) const {
    std::vector<std::string> classes = entry.callers;
    if (entry.kind == ModuleEntry::Kind::kClass) classes.push_back(entry.symbol);
    std::vector<std::vector<std::string>> paths(paths_.size());
    for (size_t g = 0; g < paths_.size(); ++g) {
      for (const std::string& name : classes) {
        const auto it = paths_[g].by_class.find(name);
        if (it == paths_[g].by_class.end()) continue;
        paths[g].insert(paths[g].end(), it->second.begin(), it->second.end());
      }
    }
    return PerGraph(entry, paths);
  }

  // The paths with a module `child` inside, once for each call of it: torch's TorchScript exporter
  // numbers the calls, "experts.act_fn", "experts.act_fn_1", one for each expert that was used.
  static std::vector<std::string> WithChild(const GraphPaths& graph, const std::string& child,
                                            const std::vector<std::string>& paths) {
    std::vector<std::string> kept;
    for (const std::string& path : paths) {
      const std::string inside = path + "." + child;
      std::string call = inside;
      for (int number = 1; graph.seen.contains(call); ++number) {
        kept.push_back(path);
        call = inside + "_" + std::to_string(number);
      }
    }
    return kept;
  }

  Tally ByNodeName(const ModuleEntry& entry) const {
    std::vector<std::vector<std::string>> paths(paths_.size());
    for (size_t g = 0; g < paths_.size(); ++g) {
      paths[g] = MatchPatterns(entry.scopes, paths_[g].all);
      RemoveOutside(entry, &paths[g]);
      if (!entry.child.empty()) paths[g] = WithChild(paths_[g], entry.child, paths[g]);
    }
    return PerGraph(entry, paths);
  }

  // The module that owns a parameter: the innermost scope of the entry around it, as
  // "model.layers.0.mlp" for "model.layers.0.mlp.gate_proj.weight", else all before the last dot.
  static std::string ModuleOf(const ModuleEntry& entry, std::string_view parameter) {
    const std::string_view owner = parameter.substr(0, parameter.find_last_of('.'));
    for (std::string_view path = owner;; path = path.substr(0, path.find_last_of('.'))) {
      for (const std::string& scope : entry.scopes) {
        if (MatchPattern(scope, path)) return std::string(path);
      }
      if (path.find('.') == std::string_view::npos) return std::string(owner);
    }
  }

  Tally ByWeight(const ModuleEntry& entry) const {
    Tally tally;
    std::set<std::string> seen;
    for (const std::string& name : MatchPatterns(entry.weights, parameters_)) {
      std::string path = ModuleOf(entry, name);
      if (seen.insert(path).second) tally.instances.push_back(std::move(path));
    }
    RemoveOutside(entry, &tally.instances);
    RemoveLayersWithout(entry, &tally);
    return tally;
  }

  Tally ByConfig(const ModuleEntry& entry) const {
    Tally tally;
    const std::optional<int64_t> layers = config_.Integer("num_hidden_layers");
    if (!entry.count || !layers || *layers <= 0 || *layers > kMaxLayers) return tally;
    const LayerRule rule = LayersWith(entry, config_);
    tally.is_known = rule.is_known;
    int64_t counted = 0;
    for (int64_t layer = 0; layer < *layers; ++layer) {
      counted += rule.Has(static_cast<size_t>(layer)) ? 1 : 0;
    }
    tally.count = entry.count->per_layer * counted + entry.count->fixed;
    return tally;
  }

  const GraphModel& model_;
  const ModelConfig& config_;
  std::unordered_set<std::string> wanted_classes_;
  bool has_metadata_ = false;
  std::vector<GraphPaths> paths_;        // by graph
  std::vector<std::string> parameters_;  // distinct names of initializers
};

}  // namespace

const ExpectedModule* ExpectedCounts::Find(std::string_view module) const {
  for (const ExpectedModule& m : modules) {
    if (m.module == module) return &m;
  }
  return nullptr;
}

ExpectedCounts ComputeExpected(const GraphModel& model, const FamilyMap& family,
                               const ModelConfig& config) {
  ExpectedCounts expected;
  const Counter counter(model, family, config);
  for (const ModuleDefault& accepted : family.defaults) {
    if (const ModuleMap* module = family.FindModuleMap(accepted.name)) {
      expected.modules.push_back(counter.Count(*module));
    } else {
      expected.modules.push_back({accepted.name, std::nullopt, "", {}, {}});
    }
  }
  return expected;
}

}  // namespace liger
