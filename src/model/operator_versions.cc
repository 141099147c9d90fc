#include "model/operator_versions.h"

#include <onnx/defs/schema.h>
#include <onnx/onnx_pb.h>

#include "model/each_node.h"
#include "model/structure.h"

namespace liger {

Versions VersionsOf(const google::protobuf::RepeatedPtrField<onnx::OperatorSetIdProto>& imports) {
  Versions versions;
  for (const onnx::OperatorSetIdProto& import : imports) {
    versions[std::string(NormalDomain(import.domain()))] = static_cast<int>(import.version());
  }
  return versions;
}

bool SameOperators(const onnx::FunctionProto& function, const Versions& there,
                   const std::function<bool(const onnx::NodeProto&)>& is_call) {
  const Versions own = VersionsOf(function.opset_import());
  bool same = true;
  ForEachNode(function.node(), [&](const onnx::NodeProto& node) {
    if (!same || is_call(node)) return;
    const std::string domain(NormalDomain(node.domain()));
    const auto here = own.find(domain);
    const auto other = there.find(domain);
    if (here == own.end()) {
      same = false;
      return;
    }
    if (other == there.end() || here->second == other->second) return;
    const auto* a = onnx::OpSchemaRegistry::Schema(node.op_type(), here->second, domain);
    const auto* b = onnx::OpSchemaRegistry::Schema(node.op_type(), other->second, domain);
    same = a != nullptr && a == b;
  });
  return same;
}

}  // namespace liger
