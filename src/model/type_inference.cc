#include "model/type_inference.h"

#include <onnx/defs/schema.h>
#include <onnx/onnx_pb.h>
#include <onnx/shape_inference/implementation.h>

#include <algorithm>
#include <deque>
#include <set>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "model/check.h"
#include "model/contrib_shapes.h"
#include "model/shape_values.h"
#include "ops/op_contract.h"

namespace liger {
namespace {

// Payloads up to this size stay in the copy that shape inference works on: they may be shapes or
// axes.
constexpr int64_t kInferenceKeepBytes = 1024;

// ONNX's schemas with what they lack. A function of the model comes before a rule of ours, but for
// our own ops: what they give follows from their contract, also where a tool has converted the model
// around a body that it left as it was.
class InferenceSchemas : public onnx::ISchemaRegistry {
 public:
  explicit InferenceSchemas(const onnx::ModelProto& model) {
    for (const onnx::FunctionProto& function : model.functions()) {
      functions_.emplace(function.domain(), function.name());
    }
  }

  const onnx::OpSchema* GetSchema(const std::string& op_type, int version,
                                  const std::string& domain) const override {
    const onnx::OpSchema* schema =
        onnx::OpSchemaRegistry::Instance()->GetSchema(op_type, version, domain);
    if (schema != nullptr) return WithShapeValues(*schema);
    if (domain != kOpDomain && functions_.contains({domain, op_type})) return nullptr;
    return FindContribSchema(domain == onnx::AI_ONNX_DOMAIN ? "" : domain, op_type);
  }

 private:
  std::set<std::pair<std::string, std::string>> functions_;
};

using TypeMap = std::unordered_map<std::string, onnx::TypeProto*>;

// A declared shape without axes is a scalar to ONNX, and anything to ONNX Runtime, which does not check
// it: nothing is concluded from it.
bool IsDeclaredScalar(const onnx::ValueInfoProto& info) {
  const auto& type = info.type().tensor_type();
  return info.type().has_tensor_type() && type.has_shape() && type.shape().dim_size() == 0;
}

void ForgetEmptyShapes(onnx::GraphProto& graph) {
  for (onnx::ValueInfoProto& input : *graph.mutable_input()) {
    if (IsDeclaredScalar(input)) input.mutable_type()->mutable_tensor_type()->clear_shape();
  }
}

// Runs `visit` on the graph and all graphs inside it, with the same graph of another copy of the model.
template <typename GraphA, typename GraphB, typename Visit>
void VisitGraphs(GraphA& a, GraphB& b, const Visit& visit) {
  visit(a, b);
  for (int n = 0; n < a.node_size(); ++n) {
    for (int i = 0; i < a.node(n).attribute_size(); ++i) {
      if (a.node(n).attribute(i).type() != onnx::AttributeProto::GRAPH) continue;
      VisitGraphs(*a.mutable_node(n)->mutable_attribute(i)->mutable_g(), b.node(n).attribute(i).g(),
                  visit);
    }
  }
}

// Takes out what the model says about the types of values that are computed.
void ForgetDeclared(onnx::GraphProto& graph, const onnx::GraphProto& original) {
  std::unordered_set<std::string> declared;
  for (const auto& info : original.value_info()) declared.insert(info.name());
  auto& infos = *graph.mutable_value_info();
  // Entries that the model does not have stand for initializers without payload.
  infos.erase(std::remove_if(infos.begin(), infos.end(),
                             [&](const auto& info) { return declared.contains(info.name()); }),
              infos.end());
  for (auto& output : *graph.mutable_output()) {
    if (output.type().has_tensor_type()) {
      output.mutable_type()->mutable_tensor_type()->clear_shape();
    }
  }
}

bool IsMadeUp(const std::string& symbol) { return symbol.empty() || symbol.starts_with("unk__"); }

// Fills what inference left open with what is declared, unless the two contradict each other. True if
// inference knew no shape at all.
bool Complete(const onnx::TypeProto& declared, onnx::TypeProto& inferred) {
  if (!declared.has_tensor_type()) return false;
  if (!inferred.has_tensor_type()) {
    inferred = declared;
    return true;
  }
  const auto& from = declared.tensor_type();
  auto& to = *inferred.mutable_tensor_type();
  if (to.elem_type() == 0) to.set_elem_type(from.elem_type());
  if (from.elem_type() != to.elem_type() || !from.has_shape()) return false;
  if (!to.has_shape()) {
    *to.mutable_shape() = from.shape();
    return true;
  }
  if (from.shape().dim_size() != to.shape().dim_size()) return false;
  for (int i = 0; i < from.shape().dim_size(); ++i) {
    const auto& known = to.shape().dim(i);
    if (known.has_dim_value() && from.shape().dim(i).has_dim_value() &&
        known.dim_value() != from.shape().dim(i).dim_value()) {
      return false;
    }
  }
  for (int i = 0; i < from.shape().dim_size(); ++i) {
    auto& dim = *to.mutable_shape()->mutable_dim(i);
    const auto& claim = from.shape().dim(i);
    if (dim.has_dim_value()) continue;
    if (claim.has_dim_value() || (!claim.dim_param().empty() && IsMadeUp(dim.dim_param()))) {
      dim = claim;
    }
  }
  return false;
}

// Completes the types of a graph by its declarations; true if another round of inference may find more.
bool UseDeclared(onnx::GraphProto& graph, const onnx::GraphProto& original) {
  TypeMap types;
  for (auto& info : *graph.mutable_value_info()) types[info.name()] = info.mutable_type();
  for (auto& info : *graph.mutable_output()) types[info.name()] = info.mutable_type();
  bool found_shape = false;
  std::vector<const onnx::ValueInfoProto*> missing;
  const auto use = [&](const onnx::ValueInfoProto& declared) {
    if (IsDeclaredScalar(declared)) return;
    const auto known = types.find(declared.name());
    if (known == types.end()) {
      missing.push_back(&declared);
    } else if (Complete(declared.type(), *known->second)) {
      found_shape = true;
    }
  };
  for (const auto& info : original.value_info()) use(info);
  for (const auto& info : original.output()) use(info);
  for (const auto* declared : missing) *graph.add_value_info() = *declared;
  return found_shape || !missing.empty();
}

// ONNX's inference looks for the value of a shape or an axis only in the graph of its node. While this
// lives, each body of If, Loop and Scan holds the constants of the graphs around it that it uses.
class LentConstants {
 public:
  explicit LentConstants(onnx::GraphProto& graph) { Lend(graph, {}); }
  LentConstants(const LentConstants&) = delete;
  LentConstants& operator=(const LentConstants&) = delete;
  ~LentConstants() {
    for (const auto& [graph, own] : lent_) {
      graph->mutable_initializer()->DeleteSubrange(own, graph->initializer_size() - own);
    }
  }

 private:
  using Constants = std::unordered_map<std::string, const onnx::TensorProto*>;

  void Lend(onnx::GraphProto& graph, const Constants& around) {
    Constants constants = around;
    // What the graph defines itself hides what is around it.
    for (const auto& input : graph.input()) constants.erase(input.name());
    for (const auto& initializer : graph.initializer()) constants.erase(initializer.name());
    for (const onnx::NodeProto& node : graph.node()) {
      for (const std::string& output : node.output()) constants.erase(output);
    }
    const int own = graph.initializer_size();
    std::unordered_set<std::string> used;
    for (const onnx::NodeProto& node : graph.node()) {
      for (const std::string& input : node.input()) {
        const auto found = constants.find(input);
        if (found == constants.end() || !used.insert(input).second) continue;
        onnx::TensorProto& tensor = *graph.add_initializer();
        tensor = *found->second;
        tensor.set_name(input);
      }
    }
    if (graph.initializer_size() > own) lent_.emplace_back(&graph, own);

    bool has_bodies = false;
    for (onnx::NodeProto& node : *graph.mutable_node()) {
      for (onnx::AttributeProto& attribute : *node.mutable_attribute()) {
        if (attribute.type() != onnx::AttributeProto::GRAPH) continue;
        if (!std::exchange(has_bodies, true)) AddOwn(graph, own, constants);
        Lend(*attribute.mutable_g(), constants);
      }
    }
  }

  void AddOwn(const onnx::GraphProto& graph, int own, Constants& constants) {
    for (int i = 0; i < own; ++i) {
      constants[graph.initializer(i).name()] = &graph.initializer(i);
    }
    for (const onnx::NodeProto& node : graph.node()) {
      if (node.op_type() != "Constant" || node.output_size() != 1) continue;
      for (const onnx::AttributeProto& attribute : node.attribute()) {
        if (const onnx::TensorProto* value = ValueOf(attribute)) constants[node.output(0)] = value;
      }
    }
  }

  // The tensor that an attribute of a Constant gives; null if it is none of integers or a tensor.
  const onnx::TensorProto* ValueOf(const onnx::AttributeProto& attribute) {
    if (attribute.name() == "value" && attribute.has_t()) return &attribute.t();
    const bool is_list = attribute.name() == "value_ints";
    if (!is_list && attribute.name() != "value_int") return nullptr;
    onnx::TensorProto& tensor = made_.emplace_back();
    tensor.set_data_type(onnx::TensorProto::INT64);
    if (is_list) {
      tensor.add_dims(attribute.ints_size());
      for (const int64_t value : attribute.ints()) tensor.add_int64_data(value);
    } else {
      tensor.add_int64_data(attribute.i());
    }
    return &tensor;
  }

  std::deque<onnx::TensorProto> made_;
  std::vector<std::pair<onnx::GraphProto*, int>> lent_;  // with the number of its own initializers
};

}  // namespace

onnx::ModelProto InferTypes(const onnx::ModelProto& model) {
  onnx::ModelProto copy = StripWeights(model, kInferenceKeepBytes);
  VisitGraphs(*copy.mutable_graph(), model.graph(), ForgetDeclared);
  ForgetEmptyShapes(*copy.mutable_graph());
  const InferenceSchemas registry(model);
  const auto infer = [&] {
    try {
      onnx::shape_inference::InferShapes(
          copy, &registry,
          onnx::ShapeInferenceOptions(/*check_type=*/false, /*error_mode=*/0, /*data_prop=*/true));
    } catch (const std::exception&) {
      // It gives up on a graph that contradicts itself; what it found until then remains.
    }
  };
  bool again = false;
  const auto use_declared = [&](onnx::GraphProto& graph, const onnx::GraphProto& original) {
    again = UseDeclared(graph, original) || again;
  };
  {
    const LentConstants lent(*copy.mutable_graph());
    infer();
    VisitGraphs(*copy.mutable_graph(), model.graph(), use_declared);
    if (again) {
      infer();
      VisitGraphs(*copy.mutable_graph(), model.graph(), use_declared);
    }
  }
  return copy;
}

}  // namespace liger
