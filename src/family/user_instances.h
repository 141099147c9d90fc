// Where a model has what an entry of a user's patch map names: the class, the function, the scope.
//
//   const SymbolIndex index(model, inlined.calls);
//   std::vector<UserInstance> instances = index.Find(entry);
//   if (instances.empty()) Say(index.Nearest(entry));
//
// A class has an instance per module path and graph, a scope per outermost path that its glob
// matches, a function per call. A body of If or Loop inside a module makes no further instance.
#pragma once

#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "model/graph.h"
#include "model/inline_functions.h"
#include "patchmap/user_map.h"

namespace liger {

struct UserInstance {
  int graph = 0;
  std::string path;  // module path; of a function the name of its call
  // Of a function: names of the values that its body computes.
  std::unordered_set<std::string> values;

  // Whether something that computes the value `name` at module path `at` is part of it.
  bool Holds(int in_graph, std::string_view at, const std::string& name) const;
};

class SymbolIndex {
 public:
  SymbolIndex(const GraphModel& model, std::span<const InlinedCall> calls);

  std::vector<UserInstance> Find(const UserEntry& entry) const;

  // Symbols of the entry's kind that resemble it, best first.
  std::vector<std::string> Nearest(const UserEntry& entry) const;
  // Whether the model has any symbols of this kind.
  bool HasAny(UserEntry::Kind kind) const;

  // Module paths of all nodes, with those of the modules around them.
  const std::set<std::string>& paths() const { return all_paths_; }

 private:
  using Paths = std::vector<std::string>;

  std::vector<UserInstance> Outermost(const std::vector<Paths>& by_graph) const;

  const GraphModel& model_;
  std::span<const InlinedCall> calls_;
  std::vector<Paths> paths_;                                         // by graph, distinct
  std::vector<std::map<std::string, Paths, std::less<>>> of_class_;  // by graph, distinct
  std::set<std::string> all_paths_;
  std::set<std::string> all_classes_;
};

}  // namespace liger
