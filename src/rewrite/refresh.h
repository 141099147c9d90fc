// Which calls of fused ops need their function bodies made anew, and the plan that does it: after
// another tool has changed dtypes or operator set versions around them, or has dropped the bodies.
//
//   auto bodies = FunctionBodies::Of(proto, own_ops);
//   Result<RefreshPlan> refresh = PlanRefresh(model, *bodies, ops, lowerings, own_ops);
//   if (!refresh) return refresh.error();         // every call that no text of its op stands for
//   if (refresh->stale.empty()) ...               // nothing to do
//   auto edit = MakeEdit(model, refresh->plan, ops, lowerings);
//
// A call fits if its function is there, is written for operators that mean the same at the model's
// versions, and computes for the call's dtypes and attributes what a text of the op computes. Any
// other call is planned anew: same name, operands, results and attributes, with the body that the
// op's text gives at the model's versions and dtypes. Nothing is guessed: a call whose dtypes and
// attributes are those of no text is an Error that names it and the nearest form.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/error.h"
#include "model/function_bodies.h"
#include "model/graph.h"
#include "model/own_ops.h"
#include "pattern/lowering.h"
#include "pattern/op_pattern.h"
#include "rewrite/plan.h"

namespace liger {

struct StaleCall {
  std::string op;    // "liger.LigerRMSNorm"
  std::string node;  // its name, or that of its first output
  std::string why;
};

struct RefreshPlan {
  RewritePlan plan;  // a node for each of `stale`, in its place
  std::vector<StaleCall> stale;
  std::vector<std::string> notes;        // calls that could not be judged
  std::map<std::string, int64_t> calls;  // of each op, stale or not
  std::set<FunctionId> unused;           // functions that no other call needs
  // By graph: the results of `stale` with the dtypes that the ops' contracts give them, whatever
  // the model declares.
  std::map<int, std::map<std::string, ValueType>> result_types;
};

// `bodies` are those of the ops of `ops` and of `own` ops, whose texts `ops` may lack.
Result<RefreshPlan> PlanRefresh(const GraphModel& model, const FunctionBodies& bodies,
                                const OpPatternSet& ops, const LoweringSet& lowerings,
                                const OwnOpNames& own);

}  // namespace liger
