#include "family/user_instances.h"

#include <fnmatch.h>

#include <algorithm>

#include "family/module_glob.h"
#include "family/module_path.h"
#include "patchmap/nearest.h"

namespace liger {
namespace {

std::string_view LastPart(std::string_view name) {
  const size_t dot = name.find_last_of(".:");
  return dot == std::string_view::npos ? name : name.substr(dot + 1);
}

bool IsClass(const std::string& symbol, const std::string& class_name) {
  return class_name == symbol ||
         (symbol.find('.') == std::string::npos && LastPart(class_name) == symbol);
}

// "domain::Name" fits a glob for the whole or, if the glob has no domain, for the name.
bool IsFunction(const std::string& glob, const std::string& function) {
  const bool whole = glob.find("::") != std::string::npos;
  const std::string name(whole ? std::string_view(function) : LastPart(function));
  return fnmatch(glob.c_str(), name.c_str(), 0) == 0;
}

}  // namespace

bool UserInstance::Holds(int in_graph, std::string_view at, const std::string& name) const {
  if (!values.empty()) return values.contains(name);
  return in_graph == graph && !at.empty() && IsInModule(at, path);
}

SymbolIndex::SymbolIndex(const GraphModel& model, std::span<const InlinedCall> calls)
    : model_(model), calls_(calls), paths_(model.graphs.size()), of_class_(model.graphs.size()) {
  for (size_t g = 0; g < model.graphs.size(); ++g) {
    std::unordered_set<std::string> seen;
    std::set<std::pair<std::string, std::string>> seen_of_class;
    for (const Node& node : model.graphs[g].nodes) {
      // Constants of a module may survive it, under its name.
      if (node.op_type == "Constant") continue;
      for (const ModuleScope& scope : ModuleScopesOf(node).scopes) {
        if (!scope.path.empty() && seen.insert(scope.path).second) {
          paths_[g].push_back(scope.path);
          all_paths_.insert(scope.path);
        }
        if (scope.class_name.empty()) continue;
        all_classes_.insert(scope.class_name);
        if (seen_of_class.emplace(scope.class_name, scope.path).second) {
          of_class_[g][scope.class_name].push_back(scope.path);
        }
      }
    }
  }
}

// The paths of each graph less those that lie inside another one, of this graph or one around it.
std::vector<UserInstance> SymbolIndex::Outermost(const std::vector<Paths>& by_graph) const {
  std::vector<UserInstance> instances;
  for (size_t g = 0; g < by_graph.size(); ++g) {
    for (const std::string& path : by_graph[g]) {
      bool is_inner = false;
      for (int at = static_cast<int>(g); at != kNone; at = model_.graphs[at].parent) {
        for (const std::string& outer : by_graph[at]) {
          const bool same = outer == path && at == static_cast<int>(g);
          is_inner = is_inner || (!same && IsInModule(path, outer));
        }
      }
      if (!is_inner) instances.push_back({static_cast<int>(g), path, {}});
    }
  }
  return instances;
}

std::vector<UserInstance> SymbolIndex::Find(const UserEntry& entry) const {
  std::vector<Paths> by_graph(model_.graphs.size());
  switch (entry.kind) {
    case UserEntry::Kind::kClass:
      for (size_t g = 0; g < by_graph.size(); ++g) {
        for (const auto& [class_name, paths] : of_class_[g]) {
          if (!IsClass(entry.symbol, class_name)) continue;
          by_graph[g].insert(by_graph[g].end(), paths.begin(), paths.end());
        }
      }
      return Outermost(by_graph);
    case UserEntry::Kind::kScope: {
      const ModuleGlob glob(entry.symbol);
      for (size_t g = 0; g < by_graph.size(); ++g) {
        std::copy_if(paths_[g].begin(), paths_[g].end(), std::back_inserter(by_graph[g]),
                     [&](const std::string& path) { return glob.Matches(path); });
      }
      return Outermost(by_graph);
    }
    case UserEntry::Kind::kFunction: {
      std::vector<UserInstance> instances;
      for (const InlinedCall& call : calls_) {
        if (!IsFunction(entry.symbol, call.function)) continue;
        instances.push_back({0, call.node, {call.values.begin(), call.values.end()}});
      }
      return instances;
    }
    case UserEntry::Kind::kMatch:
      break;
  }
  return {};
}

std::vector<std::string> SymbolIndex::Nearest(const UserEntry& entry) const {
  std::vector<std::string> known;
  if (entry.kind == UserEntry::Kind::kClass) {
    known.assign(all_classes_.begin(), all_classes_.end());
  } else if (entry.kind == UserEntry::Kind::kScope) {
    known.assign(all_paths_.begin(), all_paths_.end());
  } else {
    std::set<std::string> functions;
    for (const InlinedCall& call : calls_) functions.insert(call.function);
    known.assign(functions.begin(), functions.end());
  }
  // A class that moved to another package keeps its name; one that was renamed may keep part of it.
  std::vector<std::string> nearest;
  const std::string last(LastPart(entry.symbol));
  for (const std::string& name : known) {
    if (LastPart(name) == last) nearest.push_back(name);
  }
  std::vector<std::string> parts;
  for (const std::string& name : known) parts.emplace_back(LastPart(name));
  const std::vector<std::string> alike = NearestNames(last, parts);
  for (const std::string& name : known) {
    const bool is_alike = std::find(alike.begin(), alike.end(), LastPart(name)) != alike.end() &&
                          std::find(nearest.begin(), nearest.end(), name) == nearest.end();
    if (is_alike) nearest.push_back(name);
  }
  for (const std::string& name : NearestNames(entry.symbol, known)) {
    if (std::find(nearest.begin(), nearest.end(), name) == nearest.end()) nearest.push_back(name);
  }
  constexpr size_t kShown = 3;
  if (nearest.size() > kShown) nearest.resize(kShown);
  return nearest;
}

bool SymbolIndex::HasAny(UserEntry::Kind kind) const {
  if (kind == UserEntry::Kind::kClass) return !all_classes_.empty();
  if (kind == UserEntry::Kind::kScope) return !all_paths_.empty();
  return !calls_.empty();
}

}  // namespace liger
