// What holds a model together, found by a walk through all its graphs and functions: names that are
// used and defined, domains that are imported, calls that fit the functions they call.
//
//   for (const StructuralFault& fault : FindStructuralFaults(model)) ...
//
// Names are compared, nothing else is read: no payloads, no types. Each rule has one sentence for
// each fault, which is the same in two models where the fault is the same.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

namespace google::protobuf {
template <typename T>
class RepeatedPtrField;
}
namespace onnx {
class FunctionProto;
class GraphProto;
class ModelProto;
class NodeProto;
class OperatorSetIdProto;
}  // namespace onnx

namespace liger {

// "" for "ai.onnx": both name ONNX's own domain.
std::string_view NormalDomain(std::string_view domain);

// Domain (normal), name, overload. The strings are those of the model.
using FunctionKey = std::tuple<std::string_view, std::string_view, std::string_view>;
FunctionKey KeyOf(const onnx::FunctionProto& function);
FunctionKey KeyOfCall(const onnx::NodeProto& node);

// "MatMul node 'n'"; a node without a name goes by its first output.
std::string NodeText(const onnx::NodeProto& node);
// "liger.LigerRMSNorm:f16"
std::string NameOfFunction(const FunctionKey& key);

// A graph or the body of a function.
struct NodeList {
  const google::protobuf::RepeatedPtrField<onnx::NodeProto>* nodes = nullptr;
  const onnx::GraphProto* graph = nullptr;        // null in a function's body itself
  const onnx::FunctionProto* function = nullptr;  // that it belongs to; null outside of functions
  int outer = -1;     // of a body: which list holds its node, in the order of the visits
  int owner = -1;     // of a body: the node's position in that list
  std::string place;  // "" for the main graph; "then_branch of If node 'n'", "function f"
};

// The main graph, functions, and all bodies in them.
void ForEachNodeList(const onnx::ModelProto& model,
                     const std::function<void(const NodeList&)>& visit);

struct StructuralFault {
  // undefined_value, undefined_output, missing_opset_import, call_signature, duplicate_function,
  // ir_version
  std::string rule;
  std::string place;   // node or function; empty for the model
  std::string domain;  // of missing_opset_import
  std::string message;
};

std::vector<StructuralFault> FindStructuralFaults(const onnx::ModelProto& model);

}  // namespace liger
