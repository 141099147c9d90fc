#include "model/dtype_drift.h"

#include <onnx/defs/schema.h>
#include <onnx/onnx_pb.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "ops/op_contract.h"

namespace liger {
namespace {

using Key = std::tuple<std::string, std::string>;  // name, overload

// The dtype of a type string such as "tensor(float16)"; nothing for a type variable.
std::optional<DType> FixedType(const std::string& text) {
  static const std::map<std::string, DType> types = {{"tensor(int64)", DType::kI64},
                                                     {"tensor(float)", DType::kF32},
                                                     {"tensor(bool)", DType::kBool}};
  const auto found = types.find(text);
  return found != types.end() ? std::optional(found->second) : std::nullopt;
}

// Follows dtypes through one body.
class Body {
 public:
  explicit Body(const onnx::FunctionProto& function) : function_(function) {
    for (const onnx::OperatorSetIdProto& import : function.opset_import()) {
      versions_[import.domain()] = static_cast<int>(import.version());
    }
  }

  // Why the body does not fit operands of these dtypes; empty if it does.
  std::string Misfit(const std::vector<DType>& operands, const std::vector<DType>& results) {
    types_.clear();
    for (int i = 0; i < function_.input_size() && i < static_cast<int>(operands.size()); ++i) {
      types_[function_.input(i)] = operands[static_cast<size_t>(i)];
    }
    for (const onnx::NodeProto& node : function_.node()) {
      if (std::string why = Follow(node); !why.empty()) return why;
    }
    for (int i = 0; i < function_.output_size() && i < static_cast<int>(results.size()); ++i) {
      const DType gives = TypeOf(function_.output(i));
      const DType wanted = results[static_cast<size_t>(i)];
      if (gives == DType::kUndefined || wanted == DType::kUndefined || gives == wanted) continue;
      return "gives " + std::string(DTypeName(gives)) + " for '" + function_.output(i) +
             "', where the graph has " + std::string(DTypeName(wanted));
    }
    return "";
  }

 private:
  DType TypeOf(const std::string& name) const {
    const auto found = types_.find(name);
    return found != types_.end() ? found->second : DType::kUndefined;
  }

  static const onnx::AttributeProto* Find(const onnx::NodeProto& node, const char* name) {
    for (const onnx::AttributeProto& attribute : node.attribute()) {
      if (attribute.name() == name) return &attribute;
    }
    return nullptr;
  }

  static DType ConstantType(const onnx::NodeProto& node) {
    if (const auto* tensor = Find(node, "value"))
      return static_cast<DType>(tensor->t().data_type());
    if (Find(node, "value_float") != nullptr || Find(node, "value_floats") != nullptr) {
      return DType::kF32;
    }
    return Find(node, "value_string") == nullptr && Find(node, "value_strings") == nullptr
               ? DType::kI64
               : DType::kUndefined;
  }

  void Set(const onnx::NodeProto& node, DType type) {
    for (const std::string& output : node.output()) types_[output] = type;
  }

  // Operands that share a type variable of the schema have one dtype.
  std::string Follow(const onnx::NodeProto& node) {
    if (node.op_type() == "Constant") return Set(node, ConstantType(node)), "";
    const onnx::AttributeProto* to = Find(node, "to");
    if (node.op_type() == "Cast" && to != nullptr && to->ref_attr_name().empty()) {
      return Set(node, static_cast<DType>(to->i())), "";
    }
    const auto version = versions_.find(node.domain());
    const auto* schema =
        version == versions_.end()
            ? nullptr
            : onnx::OpSchemaRegistry::Schema(node.op_type(), version->second, node.domain());
    if (schema == nullptr || schema->inputs().empty()) return "";
    std::map<std::string, DType> variables;
    for (int i = 0; i < node.input_size(); ++i) {
      const auto position = std::min(static_cast<size_t>(i), schema->inputs().size() - 1);
      const std::string& variable = schema->inputs()[position].GetTypeStr();
      const DType type = TypeOf(node.input(i));
      if (type == DType::kUndefined || FixedType(variable)) continue;
      const auto [known, is_new] = variables.emplace(variable, type);
      if (is_new || known->second == type) continue;
      return "computes in " + std::string(DTypeName(type)) + " where the operands give " +
             std::string(DTypeName(known->second)) + " (" + node.op_type() + ")";
    }
    for (size_t i = 0; i < static_cast<size_t>(node.output_size()); ++i) {
      if (schema->outputs().empty()) break;
      const auto position = std::min(i, schema->outputs().size() - 1);
      const std::string& variable = schema->outputs()[position].GetTypeStr();
      const auto bound = variables.find(variable);
      types_[node.output(static_cast<int>(i))] =
          bound != variables.end() ? bound->second
                                   : FixedType(variable).value_or(DType::kUndefined);
    }
    return "";
  }

  const onnx::FunctionProto& function_;
  std::unordered_map<std::string, int> versions_;
  std::unordered_map<std::string, DType> types_;
};

// What the file says about its values, whether true or not.
std::unordered_map<std::string, DType> DeclaredTypes(const onnx::GraphProto& graph) {
  std::unordered_map<std::string, DType> types;
  for (const auto* values : {&graph.value_info(), &graph.output()}) {
    for (const onnx::ValueInfoProto& value : *values) {
      types[value.name()] = static_cast<DType>(value.type().tensor_type().elem_type());
    }
  }
  return types;
}

std::string List(const std::vector<DType>& types) {
  std::string text;
  std::set<DType> seen;
  for (const DType type : types) {
    if (type == DType::kUndefined || !seen.insert(type).second) continue;
    text += (text.empty() ? "" : ", ") + std::string(DTypeName(type));
  }
  return text;
}

}  // namespace

std::string BodyMisfit(const onnx::FunctionProto& function, const std::vector<DType>& operands,
                       const std::vector<DType>& results) {
  return Body(function).Misfit(operands, results);
}

std::vector<std::string> FindDTypeDrift(const onnx::ModelProto& model, const GraphModel& graph) {
  std::map<Key, Body> bodies;
  for (const onnx::FunctionProto& function : model.functions()) {
    if (function.domain() != kOpDomain || FindContract(function.name()) == nullptr) continue;
    bodies.try_emplace(Key(function.name(), function.overload()), function);
  }
  std::vector<std::string> drifts;
  if (bodies.empty()) return drifts;
  const auto declared = DeclaredTypes(model.graph());
  using Call = std::tuple<Key, std::vector<DType>, std::vector<DType>>;
  std::set<Call> seen;
  for (const Graph& part : graph.graphs) {
    if (part.is_function) continue;
    for (const Node& node : part.nodes) {
      if (node.domain != kOpDomain) continue;
      const auto body = bodies.find(Key(node.op_type, node.overload));
      if (body == bodies.end()) continue;
      const auto type_of = [&](ValueId id) {
        return id == kNone ? DType::kUndefined : part.values[id].type.dtype;
      };
      const auto declared_type = [&](ValueId id) {
        if (id == kNone) return DType::kUndefined;
        const auto found = declared.find(part.values[id].name);
        return found != declared.end() ? found->second : DType::kUndefined;
      };
      Call call{body->first, {}, {}};
      for (const ValueId input : node.inputs) std::get<1>(call).push_back(type_of(input));
      for (const ValueId output : node.outputs) std::get<2>(call).push_back(declared_type(output));
      if (!seen.insert(call).second) continue;
      const std::string why = body->second.Misfit(std::get<1>(call), std::get<2>(call));
      if (why.empty()) continue;
      const std::string& overload = std::get<1>(body->first);
      drifts.push_back("the body of 'liger::" + node.op_type +
                       (overload.empty() ? "" : ":" + overload) + "' " + why + ": node '" +
                       node.name + "' calls it with " + List(std::get<1>(call)) + " inputs");
    }
  }
  return drifts;
}

}  // namespace liger
