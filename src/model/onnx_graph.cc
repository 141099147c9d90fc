#include "model/onnx_graph.h"

#include <onnx/defs/parser.h>
#include <onnx/defs/schema.h>
#include <onnx/onnx_pb.h>
#include <onnx/shape_inference/implementation.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "model/edit.h"
#include "model/external_data.h"
#include "model/tensor_decode.h"
#include "model/type_inference.h"

namespace liger {
namespace {

// Attribute tensors with more elements are kept as dtype and dims only.
constexpr int64_t kMaxAttributeElements = 64;

std::string NormalDomain(const std::string& domain) { return domain == "ai.onnx" ? "" : domain; }

ValueType TypeOf(const onnx::TypeProto& type) {
  ValueType result;
  if (!type.has_tensor_type()) return result;
  result.dtype = static_cast<DType>(type.tensor_type().elem_type());
  if (type.tensor_type().has_shape()) {
    Shape shape;
    for (const auto& dim : type.tensor_type().shape().dim()) {
      Dim d;
      if (dim.has_dim_value()) d.value = dim.dim_value();
      if (dim.has_dim_param()) d.symbol = dim.dim_param();
      shape.push_back(std::move(d));
    }
    result.shape = std::move(shape);
  }
  return result;
}

ValueType TypeOf(const onnx::TensorProto& tensor) {
  ValueType result;
  result.dtype = static_cast<DType>(tensor.data_type());
  Shape shape;
  for (int64_t d : tensor.dims()) shape.push_back(Dim{d, ""});
  result.shape = std::move(shape);
  return result;
}

// Reads initializers and Constant nodes of the proto the graph was built from.
class OnnxConstantReader : public ConstantReader {
 public:
  explicit OnnxConstantReader(const ModelFolder& folder) : external_(folder) {}

  void Add(int graph, ValueId value, const onnx::TensorProto* tensor) {
    tensors_[Key(graph, value)] = tensor;
  }

  std::shared_ptr<const Tensor> Read(const Graph& graph, ValueId value,
                                     int64_t max_bytes) override {
    const auto found = tensors_.find(Key(graph.index, value));
    if (found == tensors_.end()) return nullptr;
    const onnx::TensorProto& proto = *found->second;
    const int64_t bytes = TensorBytes(proto);
    if (bytes < 0 || bytes > max_bytes) return nullptr;
    auto& cached = cache_[&proto];
    if (cached != nullptr) return cached;
    if (proto.data_location() == onnx::TensorProto::EXTERNAL) {
      cached = ReadExternal(proto);
    } else if (auto decoded = DecodeTensor(proto)) {
      cached = std::make_shared<Tensor>(*std::move(decoded));
    }
    return cached;
  }

  std::shared_ptr<const Tensor> ReadInline(const Graph& graph, ValueId value,
                                           int64_t max_bytes) override {
    const auto found = tensors_.find(Key(graph.index, value));
    const bool is_external =
        found == tensors_.end() || found->second->data_location() == onnx::TensorProto::EXTERNAL;
    return is_external ? nullptr : Read(graph, value, max_bytes);
  }

  const std::vector<WeightRead>& external_reads() const override { return external_.reads(); }

 private:
  static uint64_t Key(int graph, ValueId value) {
    return static_cast<uint64_t>(graph) << 32 | static_cast<uint32_t>(value);
  }

  std::shared_ptr<const Tensor> ReadExternal(const onnx::TensorProto& proto) {
    const auto raw = external_.Read(proto);
    if (!raw) return nullptr;
    auto decoded = DecodeRaw(static_cast<DType>(proto.data_type()),
                             {proto.dims().begin(), proto.dims().end()}, *raw);
    return decoded ? std::make_shared<Tensor>(*std::move(decoded)) : nullptr;
  }

  std::unordered_map<uint64_t, const onnx::TensorProto*> tensors_;
  std::unordered_map<const onnx::TensorProto*, std::shared_ptr<const Tensor>> cache_;
  ExternalReader external_;
};

// Turns one protobuf graph or function after the other into Graphs.
class GraphBuilder {
 public:
  GraphBuilder(std::vector<Graph>& graphs, OnnxConstantReader* constants)
      : graphs_(graphs), constants_(constants) {}

  // `proto` as it is in the file; `inferred` is the same graph with inferred types.
  Status AddGraph(const onnx::GraphProto& proto, const onnx::GraphProto& inferred, int parent,
                  NodeId parent_node) {
    const int index = NewGraph(parent, parent_node, proto.name());
    for (const auto& input : inferred.input()) {
      AddInput(index, input.name(), TypeOf(input.type()));
    }
    for (const auto& tensor : proto.initializer()) AddInitializer(index, tensor);
    for (const auto& sparse : proto.sparse_initializer()) {
      graphs_[index].values[Define(index, sparse.values().name())].is_initializer = true;
    }
    for (const auto& info : inferred.value_info()) types_[index][info.name()] = TypeOf(info.type());
    for (const auto& info : inferred.output()) types_[index][info.name()] = TypeOf(info.type());
    if (Status status = AddNodes(index, proto.node(), &inferred); !status) return status;
    for (const auto& output : proto.output()) {
      const ValueId value = Resolve(index, output.name());
      if (value == kNone) return Undefined(output.name(), "graph output");
      graphs_[index].values[value].is_output = true;
      graphs_[index].outputs.push_back(value);
    }
    return {};
  }

  Status AddFunction(const onnx::FunctionProto& proto) {
    const int index = NewGraph(kNone, kNone, proto.name());
    graphs_[index].is_function = true;
    for (const auto& name : proto.input()) AddInput(index, name, {});
    for (const auto& info : proto.value_info()) types_[index][info.name()] = TypeOf(info.type());
    if (Status status = AddNodes(index, proto.node(), nullptr); !status) return status;
    for (const auto& name : proto.output()) {
      const ValueId value = Resolve(index, name);
      if (value == kNone) return Undefined(name, "output of function '" + proto.name() + "'");
      graphs_[index].values[value].is_output = true;
      graphs_[index].outputs.push_back(value);
    }
    return {};
  }

  static std::optional<Attribute> ConvertAttribute(const onnx::AttributeProto& attribute) {
    Attribute result{attribute.name(), int64_t{0}};
    if (!attribute.ref_attr_name().empty()) {
      result.value = AttributeRef{attribute.ref_attr_name()};
      return result;
    }
    switch (attribute.type()) {
      case onnx::AttributeProto::INT:
        result.value = static_cast<int64_t>(attribute.i());
        return result;
      case onnx::AttributeProto::FLOAT:
        result.value = attribute.f();
        return result;
      case onnx::AttributeProto::STRING:
        result.value = attribute.s();
        return result;
      case onnx::AttributeProto::INTS:
        result.value = std::vector<int64_t>(attribute.ints().begin(), attribute.ints().end());
        return result;
      case onnx::AttributeProto::FLOATS:
        result.value = std::vector<float>(attribute.floats().begin(), attribute.floats().end());
        return result;
      case onnx::AttributeProto::STRINGS:
        result.value =
            std::vector<std::string>(attribute.strings().begin(), attribute.strings().end());
        return result;
      case onnx::AttributeProto::TENSOR: {
        Tensor tensor;
        if (ElementCount(attribute.t()) <= kMaxAttributeElements) {
          if (auto decoded = DecodeTensor(attribute.t())) tensor = *std::move(decoded);
        }
        tensor.dtype = static_cast<DType>(attribute.t().data_type());
        tensor.dims.assign(attribute.t().dims().begin(), attribute.t().dims().end());
        result.value = std::move(tensor);
        return result;
      }
      default:
        return std::nullopt;  // graphs are handled apart; sparse and type attributes are opaque
    }
  }

 private:
  int NewGraph(int parent, NodeId parent_node, const std::string& name) {
    const int index = static_cast<int>(graphs_.size());
    Graph& graph = graphs_.emplace_back();
    graph.index = index;
    graph.parent = parent;
    graph.parent_node = parent_node;
    graph.name = name;
    types_.emplace_back();
    return index;
  }

  ValueId Define(int index, const std::string& name) {
    Graph& graph = graphs_[index];
    const auto id = static_cast<ValueId>(graph.values.size());
    Value& value = graph.values.emplace_back();
    value.name = name;
    graph.by_name[name] = id;
    if (const auto type = types_[index].find(name); type != types_[index].end()) {
      value.type = type->second;
    }
    return id;
  }

  void AddInput(int index, const std::string& name, ValueType type) {
    const ValueId id = Define(index, name);
    graphs_[index].values[id].type = std::move(type);
    graphs_[index].values[id].is_input = true;
    graphs_[index].inputs.push_back(id);
  }

  void AddInitializer(int index, const onnx::TensorProto& tensor) {
    const auto found = graphs_[index].by_name.find(tensor.name());
    const ValueId id =
        found != graphs_[index].by_name.end() ? found->second : Define(index, tensor.name());
    Value& value = graphs_[index].values[id];
    value.is_initializer = true;
    value.type = TypeOf(tensor);
    if (constants_ != nullptr && !value.is_input) constants_->Add(index, id, &tensor);
  }

  // The value of that name in the graph, captured from an outer graph if need be; kNone if
  // undefined.
  ValueId Resolve(int index, const std::string& name) {
    // Walk outwards to the graph that defines the name, then define captures on the way back in.
    std::vector<int> path;
    int at = index;
    while (at != kNone && !graphs_[at].by_name.contains(name)) {
      path.push_back(at);
      at = graphs_[at].parent;
    }
    if (at == kNone) return kNone;
    ValueId id = graphs_[at].by_name.at(name);
    for (auto inner = path.rbegin(); inner != path.rend(); ++inner) {
      const ValueId outer = id;
      const int outer_graph = graphs_[*inner].parent;
      const ValueType type = graphs_[outer_graph].values[outer].type;
      graphs_[outer_graph].nodes[graphs_[*inner].parent_node].captures.push_back(outer);
      id = Define(*inner, name);
      graphs_[*inner].values[id].outer = outer;
      graphs_[*inner].values[id].type = type;
    }
    return id;
  }

  static Error Undefined(const std::string& name, const std::string& what) {
    return {ErrorCode::kInvalidModel,
            "the " + what + " '" + name + "' is not defined before its use", name,
            "the model's nodes must be in topological order; re-export or re-sort the model"};
  }

  template <typename Nodes>
  Status AddNodes(int index, const Nodes& protos, const onnx::GraphProto* inferred) {
    for (const onnx::NodeProto& proto : protos) {
      const auto node_id = static_cast<NodeId>(graphs_[index].nodes.size());
      Node node;
      node.name = proto.name();
      node.op_type = proto.op_type();
      node.domain = NormalDomain(proto.domain());
      node.overload = proto.overload();
      for (const auto& entry : proto.metadata_props()) {
        node.metadata.emplace_back(entry.key(), entry.value());
      }
      for (const std::string& name : proto.input()) {
        ValueId value = kNone;
        if (!name.empty()) {
          value = Resolve(index, name);
          if (value == kNone) return Undefined(name, "input of node '" + node.name + "'");
        }
        node.inputs.push_back(value);
      }
      graphs_[index].nodes.push_back(std::move(node));
      for (const ValueId input : graphs_[index].nodes[node_id].inputs) {
        if (input != kNone) graphs_[index].values[input].users.push_back(node_id);
      }
      const onnx::NodeProto& typed = inferred != nullptr ? inferred->node(node_id) : proto;
      if (Status status = AddAttributes(index, node_id, proto, typed); !status) return status;
      for (int i = 0; i < proto.output_size(); ++i) {
        ValueId value = kNone;
        if (!proto.output(i).empty()) {
          if (graphs_[index].by_name.contains(proto.output(i))) {
            return Error{ErrorCode::kInvalidModel,
                         "the value '" + proto.output(i) + "' is defined twice", proto.name(),
                         "re-export the model: ONNX graphs are in single-assignment form"};
          }
          value = Define(index, proto.output(i));
          graphs_[index].values[value].producer = node_id;
          graphs_[index].values[value].output_index = i;
        }
        graphs_[index].nodes[node_id].outputs.push_back(value);
      }
      RegisterConstant(index, node_id, proto);
    }
    return {};
  }

  Status AddAttributes(int index, NodeId node_id, const onnx::NodeProto& proto,
                       const onnx::NodeProto& typed) {
    for (int i = 0; i < proto.attribute_size(); ++i) {
      const onnx::AttributeProto& attribute = proto.attribute(i);
      if (attribute.type() == onnx::AttributeProto::GRAPH) {
        const int body = static_cast<int>(graphs_.size());
        if (Status status = AddGraph(attribute.g(), typed.attribute(i).g(), index, node_id);
            !status) {
          return status;
        }
        graphs_[index].nodes[node_id].bodies.push_back(body);
        continue;
      }
      if (auto converted = ConvertAttribute(attribute)) {
        graphs_[index].nodes[node_id].attributes.push_back(*std::move(converted));
      } else {
        graphs_[index].nodes[node_id].has_other_attributes = true;
      }
    }
    return {};
  }

  // A Constant node with a tensor is a constant like an initializer, also when it is large.
  void RegisterConstant(int index, NodeId node_id, const onnx::NodeProto& proto) {
    const Node& node = graphs_[index].nodes[node_id];
    if (node.op_type != "Constant" || !node.domain.empty() || node.outputs.empty()) return;
    const ValueId output = node.outputs[0];
    if (output == kNone) return;
    for (const onnx::AttributeProto& attribute : proto.attribute()) {
      if (attribute.type() == onnx::AttributeProto::TENSOR && attribute.ref_attr_name().empty()) {
        graphs_[index].values[output].type = TypeOf(attribute.t());
        if (constants_ != nullptr) constants_->Add(index, output, &attribute.t());
      }
    }
  }

  std::vector<Graph>& graphs_;
  std::vector<std::unordered_map<std::string, ValueType>> types_;
  OnnxConstantReader* constants_;
};

}  // namespace

Result<GraphModel> BuildGraphModel(const onnx::ModelProto& model, const ModelFolder& folder) {
  const onnx::ModelProto inferred = InferTypes(model);

  GraphModel result;
  auto constants = std::make_shared<OnnxConstantReader>(folder);
  GraphBuilder builder(result.graphs, constants.get());
  if (Status status = builder.AddGraph(model.graph(), inferred.graph(), kNone, kNone); !status) {
    return std::move(status).error();
  }
  for (const onnx::FunctionProto& function : model.functions()) {
    if (Status status = builder.AddFunction(function); !status) return std::move(status).error();
  }
  result.constants = std::move(constants);
  for (const auto& import : model.opset_import()) {
    result.opsets[NormalDomain(import.domain())] = import.version();
  }
  for (const auto& entry : model.metadata_props()) result.metadata[entry.key()] = entry.value();
  for (const auto& entry : model.graph().metadata_props()) {
    result.graph_metadata[entry.key()] = entry.value();
  }
  result.producer = model.producer_name() + " " + model.producer_version();
  result.ir_version = model.ir_version();
  return result;
}

Result<Graph> GraphOfFunction(const onnx::FunctionProto& function) {
  std::vector<Graph> graphs;
  GraphBuilder builder(graphs, nullptr);
  if (Status added = builder.AddFunction(function); !added) return std::move(added).error();
  return std::move(graphs.front());
}

Result<FunctionText> ParseFunctionText(std::string_view text) {
  onnx::FunctionProto proto;
  const std::string owned(text);
  onnx::OnnxParser parser(owned.c_str());
  const auto status = parser.Parse(proto);
  if (!status.IsOK()) {
    std::string why = status.ErrorMessage();
    std::replace(why.begin(), why.end(), '\n', ' ');  // a message is one line
    while (!why.empty() && why.back() == ' ') why.pop_back();
    return Error{ErrorCode::kUsage, "the function text cannot be parsed: " + why, "",
                 "the syntax is that of onnx.parser.parse_function"};
  }
  for (const onnx::NodeProto& node : proto.node()) {
    if (NormalDomain(node.domain()).empty() &&
        onnx::OpSchemaRegistry::Schema(node.op_type(), onnx::ONNX_DOMAIN) == nullptr) {
      return Error{ErrorCode::kUsage,
                   "the function text uses '" + node.op_type() + "', which is no ONNX operator", "",
                   "operators of other domains need their domain in front"};
    }
  }
  FunctionText result;
  result.domain = NormalDomain(proto.domain());
  result.name = proto.name();
  result.attributes.assign(proto.attribute().begin(), proto.attribute().end());
  for (const auto& import : proto.opset_import()) {
    result.opsets[NormalDomain(import.domain())] = import.version();
  }
  auto graph = GraphOfFunction(proto);
  if (!graph) return std::move(graph).error();
  result.graph = *std::move(graph);
  for (const auto& attribute : proto.attribute_proto()) {
    if (auto converted = GraphBuilder::ConvertAttribute(attribute)) {
      result.defaults.push_back(*std::move(converted));
    }
  }
  return result;
}

namespace {

// The attribute's value; where none is known, one that no type depends on.
void PutReference(const std::map<std::string, Attribute::Value>& attributes,
                  onnx::AttributeProto& attribute) {
  const auto value = attributes.find(attribute.ref_attr_name());
  attribute.clear_ref_attr_name();
  attribute.set_i(1);
  attribute.set_f(1);
  if (value == attributes.end()) return;
  if (const auto* i = std::get_if<int64_t>(&value->second)) attribute.set_i(*i);
  if (const auto* f = std::get_if<float>(&value->second)) attribute.set_f(*f);
}

}  // namespace

Status InferTextTypes(const std::string& source, const std::map<std::string, ValueType>& inputs,
                      const std::map<std::string, Attribute::Value>& attributes,
                      const std::map<std::string, int64_t>& opsets, FunctionText& text) {
  onnx::FunctionProto function;
  LIGER_CHECK(onnx::OnnxParser(source.c_str()).Parse(function).IsOK());
  onnx::ModelProto model;
  model.set_ir_version(onnx::IR_VERSION);
  for (const auto& [domain, version] : opsets) {
    onnx::OperatorSetIdProto& import = *model.add_opset_import();
    import.set_domain(domain);
    import.set_version(version);
  }
  onnx::GraphProto& graph = *model.mutable_graph();
  for (const std::string& name : function.input()) {
    onnx::ValueInfoProto& input = *graph.add_input();
    input.set_name(name);
    *input.mutable_type() = TypeProtoOf(inputs.at(name));
  }
  graph.mutable_node()->Swap(function.mutable_node());
  for (onnx::NodeProto& node : *graph.mutable_node()) {
    for (onnx::AttributeProto& attribute : *node.mutable_attribute()) {
      if (!attribute.ref_attr_name().empty()) PutReference(attributes, attribute);
    }
  }
  try {
    const onnx::ShapeInferenceOptions options{/*check_type=*/true, /*strict_mode=*/1,
                                              /*data_prop=*/true};
    onnx::shape_inference::InferShapes(model, onnx::OpSchemaRegistry::Instance(), options);
  } catch (const std::exception& error) {
    return Error{ErrorCode::kUsage,
                 std::string("the operators of the text do not fit together: ") + error.what()};
  }
  for (const onnx::ValueInfoProto& info : graph.value_info()) {
    const auto value = text.graph.by_name.find(info.name());
    if (value == text.graph.by_name.end()) continue;
    text.graph.values[value->second].type = TypeOf(info.type());
  }
  return {};
}

std::string AttributeText(const Attribute::Value& value) {
  if (const auto* i = std::get_if<int64_t>(&value)) return std::to_string(*i);
  if (const auto* s = std::get_if<std::string>(&value)) return *s;
  if (const auto* f = std::get_if<float>(&value)) {
    char buffer[32];
    std::snprintf(buffer, sizeof(buffer), "%.9g", static_cast<double>(*f));
    return buffer;
  }
  return "";
}

std::string ToString(const std::optional<Shape>& shape) {
  if (!shape) return "unknown shape";
  std::string text = "[";
  for (const Dim& dim : *shape) {
    if (text.size() > 1) text += ", ";
    text += dim.is_known() ? std::to_string(dim.value) : dim.symbol.empty() ? "?" : dim.symbol;
  }
  return text + "]";
}

}  // namespace liger
