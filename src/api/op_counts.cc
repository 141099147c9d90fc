#include "api/op_counts.h"

#include <onnx/onnx_pb.h>

namespace liger {

OpCounts CountOps(const onnx::ModelProto& model) {
  OpCounts counts;
  for (const onnx::NodeProto& node : model.graph().node()) {
    ++counts[(node.domain().empty() ? "" : node.domain() + ".") + node.op_type()];
  }
  return counts;
}

void AddOpCounts(const OpCounts& before, const OpCounts& after, Report& report) {
  for (const auto& [op, count] : after) {
    const auto found = before.find(op);
    const int64_t old = found != before.end() ? found->second : 0;
    if (old != count) report.op_counts[op] = {old, count};
  }
  for (const auto& [op, count] : before) {
    if (!after.contains(op)) report.op_counts[op] = {count, 0};
  }
}

}  // namespace liger
