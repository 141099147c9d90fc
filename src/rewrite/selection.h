// Which matches are wanted, and for which module each counts: the family's modules that are on,
// the classes, functions and scopes of a user's patch map, --scope and --skip.
//
//   Selection selection;
//   selection.modules = {"rms_norm"};
//   Verdict verdict = selection.Judge(contract, place);
//   if (!verdict.wanted()) Say(verdict.reason);
#pragma once

#include <set>
#include <string>
#include <vector>

#include "family/module_glob.h"
#include "family/user_instances.h"
#include "ops/op_contract.h"

namespace liger {

// An entry of a user's patch map with the instances that the model has.
struct UserTarget {
  std::string module;     // of the map, under which matches count
  std::string op_module;  // of the op: "rms_norm"; of an own op its name with domain
  std::vector<UserInstance> instances;
};

struct Verdict {
  std::string module;  // empty if the match is not wanted
  std::string reason;  // why not: "its module rope is off"
  int target = -1;     // index into Selection::targets; -1: none

  bool wanted() const { return !module.empty(); }
};

struct Selection {
  std::set<std::string> modules;    // of the family, that are on, and of own ops
  std::vector<UserTarget> targets;  // the first that holds a match has it, before `modules`
  ScopeFilter filter;

  // `root` is the name of the value that the match computes, `path` its module path.
  Verdict Judge(const OpContract& op, int graph, const std::string& path,
                const std::string& root) const;
  // Whether a match of the op could be wanted anywhere.
  bool Wants(const OpContract& op) const;
};

}  // namespace liger
