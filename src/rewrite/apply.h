// From a plan to the edit that carries it out: names, overloads, function bodies. No decision is
// taken here.
#pragma once

#include "base/error.h"
#include "model/edit.h"
#include "model/graph.h"
#include "pattern/lowering.h"
#include "pattern/op_pattern.h"
#include "rewrite/plan.h"

namespace liger {

// An error (kInternal) if no body of the op, at the model's opset, means what the plan's pattern
// means.
Result<ModelEdit> MakeEdit(const GraphModel& model, const RewritePlan& plan,
                           const OpPatternSet& ops, const LoweringSet& lowerings);

}  // namespace liger
