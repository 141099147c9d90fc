// Whether a function's operators are those of the model that it stands in.
//
//   const Versions model_versions = VersionsOf(model.opset_import());
//   if (SameOperators(function, model_versions, is_call)) ...   // may stand in the model's graph
//
// A function imports operator sets of its own. One at another version than the model's does no harm
// as long as each operator that the function uses is the same at both.
#pragma once

#include <functional>
#include <map>
#include <string>

namespace google::protobuf {
template <typename T>
class RepeatedPtrField;
}
namespace onnx {
class FunctionProto;
class NodeProto;
class OperatorSetIdProto;
}  // namespace onnx

namespace liger {

using Versions = std::map<std::string, int>;  // by domain, "" for ONNX's own

Versions VersionsOf(const google::protobuf::RepeatedPtrField<onnx::OperatorSetIdProto>& imports);

// Nodes for which `is_call` holds call other functions and are no operators. A domain that `there`
// does not have speaks for nothing; one that the function itself does not import is a fault.
bool SameOperators(const onnx::FunctionProto& function, const Versions& there,
                   const std::function<bool(const onnx::NodeProto&)>& is_call);

}  // namespace liger
