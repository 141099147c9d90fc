// How often each operator stands in a model's main graph, before and after a change.
//
//   const OpCounts before = CountOps(model);
//   ...
//   AddOpCounts(before, CountOps(model), report);
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "report/report.h"

namespace onnx {
class ModelProto;
}

namespace liger {

using OpCounts = std::map<std::string, int64_t>;  // "Mul", "liger.LigerRope"

OpCounts CountOps(const onnx::ModelProto& model);

// Those that differ.
void AddOpCounts(const OpCounts& before, const OpCounts& after, Report& report);

}  // namespace liger
