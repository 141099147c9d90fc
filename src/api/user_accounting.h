// What became of the entries of users' patch maps: symbols, module counts, misses and expectations
// of the report, and an Error for each entry that did not keep what it says.
//
//   UserAccountant accountant(model, plan, options, report);
//   for (const AccountedEntry& entry : entries) accountant.Count(entry);
//   return accountant.Finish();
#pragma once

#include <set>
#include <string>
#include <vector>

#include "base/error.h"
#include "model/graph.h"
#include "patchmap/user_map.h"
#include "report/report.h"
#include "rewrite/plan.h"

namespace liger {

struct AccountedEntry {
  std::string module;
  const UserEntry* entry = nullptr;
  int target = -1;  // in the selection; -1: optional and absent, or excluded
  bool excluded = false;
};

// "liger.LigerRMSNorm", "my.domain.SoftCap".
std::string OpOf(const UserEntry& entry);
// "class 'pkg.Norm'", "the pattern SoftCap".
std::string Shown(const UserEntry& entry);

class UserAccountant {
 public:
  UserAccountant(const GraphModel& model, const RewritePlan& plan, const PlanOptions& options,
                 Report& report)
      : model_(model), plan_(plan), options_(options), report_(report) {}

  void Count(const AccountedEntry& entry);
  // After the last entry: the errors, all in one.
  Status Finish();

 private:
  // An entry's numbers. expected = patched + already_fused + missed + excluded, of a pattern that is
  // to match so often also what is left of it.
  struct Counts {
    int64_t patched = 0;
    int64_t already_fused = 0;
    int64_t missed = 0;
    int64_t excluded = 0;  // by --scope and --skip
    int64_t found = 0;     // fused in its instances, also by other entries
    int64_t Expected() const { return patched + already_fused + missed + excluded; }
  };

  ModuleReport& ModuleOf(const AccountedEntry& entry);
  Counts CountTarget(const AccountedEntry& entry);
  void AddMiss(const AccountedEntry& entry, const UserInstance& instance);
  void AddToModule(const AccountedEntry& entry, const Counts& counts, ModuleReport& module);
  void CheckMatched(const AccountedEntry& entry);
  // The near miss of the target that got furthest, inside `instance` if there is one.
  const NearMiss* NearestMiss(int target, const UserInstance* instance) const;
  const std::string& NameOf(int graph, ValueId value) const;

  const GraphModel& model_;
  const RewritePlan& plan_;
  const PlanOptions& options_;
  Report& report_;
  std::set<std::string> new_modules_;      // that no family's part has
  std::set<std::string> known_modules_;    // of which some number is known
  std::set<std::string> unknown_modules_;  // that have a pattern without one
  std::set<int> counted_;                  // targets: texts of one op share theirs
  ErrorList errors_;
};

}  // namespace liger
