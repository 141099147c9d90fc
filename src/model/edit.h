// Changes to a model, and their application. Mechanical: everything was decided before
// (rewrite/plan.h).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "model/function_body.h"
#include "model/graph.h"

namespace onnx {
class ModelProto;
class TypeProto;
}  // namespace onnx

namespace liger {

// A call of a fused op, or a Cast beside it.
struct NewNode {
  std::string op_type;
  std::string domain;
  std::string name;
  std::vector<std::string> inputs;  // "" where left out
  std::vector<std::string> outputs;
  std::vector<ValueType> output_types;
  std::vector<Attribute> attributes;
  std::vector<std::pair<std::string, std::string>> metadata;
  int function = kNone;  // index into ModelEdit::functions, of a fused op
};

// An entry of a graph's new node list: a node of the file, or a new one.
struct EditedNode {
  bool is_new = false;
  int index = 0;
};

struct GraphEdit {
  int graph = 0;  // index as in GraphModel::graphs
  std::vector<EditedNode> nodes;
};

struct ModelEdit {
  std::vector<NewNode> new_nodes;
  std::vector<GraphEdit> graphs;
  std::vector<FunctionSpec> functions;
  std::map<std::string, std::string> metadata;  // set in the model's metadata_props
};

// IR versions that a model needs at least.
inline constexpr int64_t kIrWithFunctions = 8;
inline constexpr int64_t kIrWithOverloads = 10;

// The model's metadata entry that holds the IR version it had before functions raised it.
inline constexpr std::string_view kIrVersionKey = "liger.ir_version";

// Applies the edit: nodes, functions (an equal one that is there is used), opset import, IR version
// (8 for functions, 10 for overloads; kIrVersionKey keeps the old one), typed value_info of the new
// values. Initializers that only removed nodes used are removed; no other initializer is touched.
Status ApplyEdit(const ModelEdit& edit, onnx::ModelProto& model);

onnx::TypeProto TypeProtoOf(const ValueType& type);

// Makes the model declare these types, by graph (as in GraphModel). A shape that it declares stays.
void DeclareTypes(const std::map<int, std::map<std::string, ValueType>>& values,
                  onnx::ModelProto& model);

}  // namespace liger
