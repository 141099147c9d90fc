// Which instances of a module were fused, and of which it is known why not.
#pragma once

#include "family/expected.h"
#include "patchmap/resolve.h"
#include "report/report.h"
#include "rewrite/plan.h"

namespace liger {

// The same facts, without what only the planner needs.
MissReport AsReport(const NearMiss& miss);

// Fills `modules`, `patched`, `already_fused`, `degraded`, `missed` and `near_misses` of the
// report, for the family's part of a run. Expected counts are compared with what the plan does,
// instance by instance where paths are known; instances that the plan's --scope and --skip leave
// out are excluded.
void AccountForModules(const GraphModel& model, const RewritePlan& plan,
                       const ExpectedCounts& expected, const ResolvedModules& resolved,
                       const PlanOptions& options, Report& report);

}  // namespace liger
