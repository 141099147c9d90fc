#include "family/expected.h"

#include <algorithm>
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
      if (tally->count == 0 || (chosen != nullptr && !KnowsMore(*tally, *chosen))) continue;
      chosen = tally;
      expected.source = source;
    }
    if (chosen == nullptr) return expected;
    expected.count = chosen->count;
    expected.instances = chosen->instances;
    expected.per_instance = module.entries.front().per_instance;
    for (const auto& [source, tally] : sources) {
      if (tally->count == 0 || tally->count == chosen->count) continue;
      expected.disagreements.push_back(std::string(source) + " says " +
                                       std::to_string(tally->count));
    }
    return expected;
  }

 private:
  struct Tally {
    int64_t count = 0;
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

  Tally Sum(const ModuleMap& module, Method method) const {
    Tally total;
    for (const ModuleEntry& entry : module.entries) {
      Tally part = (this->*method)(entry);
      total.count += part.count;
      total.instances.insert(total.instances.end(), std::make_move_iterator(part.instances.begin()),
                             std::make_move_iterator(part.instances.end()));
    }
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
    RemoveUnflagged(entry, &tally.instances);
    tally.count = entry.per_instance * static_cast<int64_t>(tally.instances.size());
    return tally;
  }

  // One number a layer in config.json, nought where the layer lacks the module; nullptr without it.
  const std::vector<int64_t>* LayerFlags(const ModuleEntry& entry) const {
    if (entry.layer_flags.empty()) return nullptr;
    const auto it = config_.lists.find(entry.layer_flags);
    return it == config_.lists.end() ? nullptr : &it->second;
  }

  void RemoveUnflagged(const ModuleEntry& entry, std::vector<std::string>* instances) const {
    const std::vector<int64_t>* flags = LayerFlags(entry);
    if (flags == nullptr) return;
    std::erase_if(*instances, [&](const std::string& path) {
      for (size_t layer = 0; layer < flags->size(); ++layer) {
        if ((*flags)[layer] == 0 && MatchPattern("layers." + std::to_string(layer) + ".*", path)) {
          return true;
        }
      }
      return false;
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

  Tally ByNodeName(const ModuleEntry& entry) const {
    std::vector<std::vector<std::string>> paths(paths_.size());
    for (size_t g = 0; g < paths_.size(); ++g)
      paths[g] = MatchPatterns(entry.scopes, paths_[g].all);
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
    tally.count = entry.per_instance * static_cast<int64_t>(tally.instances.size());
    return tally;
  }

  Tally ByConfig(const ModuleEntry& entry) const {
    Tally tally;
    const std::optional<int64_t> layers = config_.Integer("num_hidden_layers");
    if (!entry.count || !layers || *layers <= 0 || *layers > kMaxLayers) return tally;
    int64_t counted = *layers;
    if (const std::vector<int64_t>* flags = LayerFlags(entry)) {
      counted -= std::count(flags->begin(), flags->end(), 0);
    }
    tally.count = entry.count->per_layer * std::max<int64_t>(counted, 0) + entry.count->fixed;
    return tally;
  }

  const GraphModel& model_;
  const ModelConfig& config_;
  std::unordered_set<std::string> wanted_classes_;
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
      expected.modules.push_back({accepted.name, std::nullopt, "", {}, 1, {}});
    }
  }
  return expected;
}

}  // namespace liger
