// The patch maps that a user gives for one run (--patches), from their files to the report.
//
//   Result<UserMaps> maps = UserMaps::Load(files);
//   maps->AddOwnOps(ops, opsets);                      // patterns of their own
//   maps->Bind(index, excluded, selection);            // classes, functions, scopes of this model
//   ... MakePlan(model, ops, lowerings, {selection}) ...
//   maps->Account(model, plan, options, report);       // symbols, counts; errors for what did not match
//
// What an entry names has to be there, every instance has to match a form of its op, and a pattern
// has to match somewhere: anything else is an Error (kUsage) with the entry's place, unless the
// entry says `optional: true`. All such errors of a run are in one Error.
#pragma once

#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "family/expected.h"
#include "family/user_instances.h"
#include "model/own_ops.h"
#include "patchmap/user_map.h"
#include "pattern/op_pattern.h"
#include "report/report.h"
#include "rewrite/plan.h"

namespace liger {

class UserMaps {
 public:
  static Result<UserMaps> Load(std::span<const std::filesystem::path> files);

  bool IsEmpty() const { return maps_.empty(); }
  // The built-in family that the maps extend; empty if none does.
  const std::string& extends() const { return extends_; }
  const std::string& ExtendsPlace() const { return extends_place_; }
  // "mymodel", for the report.
  std::string Label() const;
  // "mine.yaml, more.yaml".
  std::string Files() const;
  std::vector<std::string> ModuleNames() const;
  OwnOpNames OwnOps() const;

  Status AddOwnOps(const std::map<std::string, int64_t>& opsets, OpPatternSet& ops) const;

  // Adds a target to the selection for each entry that is not excluded: by its module's name, or by
  // that of its op's module.
  Status Bind(const SymbolIndex& index, std::span<const std::string> excluded,
              Selection& selection);

  // Takes what the entries' instances cover out of what the family's part expects.
  void RemoveFrom(ExpectedCounts& expected, const Selection& selection,
                  const RewritePlan& plan) const;

  // Adds symbols, module counts, misses and the maps' expectations to the report.
  Status Account(const GraphModel& model, const RewritePlan& plan, const PlanOptions& options,
                 Report& report) const;

 private:
  // An entry with its target in the selection; -1 if it has none.
  struct Entry {
    std::string module;
    UserEntry entry;
    int target = -1;
    bool excluded = false;
  };

  std::vector<UserMap> maps_;
  std::string extends_;
  std::string extends_place_;  // "mine.yaml:3:10"
  std::vector<Entry> entries_;
};

}  // namespace liger
