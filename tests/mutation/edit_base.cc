#include "edit_base.h"

#include <algorithm>
#include <cstring>

#include "tensor.h"

namespace liger::test {

using onnx::AttributeProto;
using onnx::GraphProto;
using onnx::NodeProto;
using onnx::TensorProto;

EditBase::EditBase(const EditContext& context)
    : mutant_(context.mutant),
      graph_(*context.mutant.model.mutable_graph()),
      preferred_(context.preferred),
      types_(context.types),
      random_(context.random) {
  for (const auto& import : mutant_.model.opset_import()) {
    if (import.domain().empty()) opset_ = import.version();
  }
}

NodeProto EditBase::Node(const std::string& op, std::vector<std::string> inputs,
                         std::vector<std::string> outputs) {
  NodeProto node;
  node.set_op_type(op);
  for (auto& input : inputs) node.add_input(std::move(input));
  for (auto& output : outputs) node.add_output(std::move(output));
  return node;
}

NodeProto EditBase::With(NodeProto node, const std::string& second_input) {
  node.add_input(second_input);
  return node;
}

AttributeProto& EditBase::FreshAttribute(NodeProto& node, const std::string& name,
                                         AttributeProto::AttributeType type) {
  RemoveAttribute(node, name);
  AttributeProto& attribute = *node.add_attribute();
  attribute.set_name(name);
  attribute.set_type(type);
  return attribute;
}

void EditBase::RemoveAttribute(NodeProto& node, const std::string& name) {
  for (int i = 0; i < node.attribute_size(); ++i) {
    if (node.attribute(i).name() == name) {
      node.mutable_attribute()->DeleteSubrange(i, 1);
      return;
    }
  }
}

void EditBase::IntAttribute(NodeProto& node, const std::string& name, int64_t value) {
  FreshAttribute(node, name, AttributeProto::INT).set_i(value);
}

void EditBase::FloatAttribute(NodeProto& node, const std::string& name, float value) {
  FreshAttribute(node, name, AttributeProto::FLOAT).set_f(value);
}

void EditBase::IntsAttribute(NodeProto& node, const std::string& name,
                             const std::vector<int64_t>& values) {
  AttributeProto& attribute = FreshAttribute(node, name, AttributeProto::INTS);
  for (int64_t v : values) attribute.add_ints(v);
}

void EditBase::AddBody(NodeProto& node, const std::string& name, const GraphProto& body) {
  *FreshAttribute(node, name, AttributeProto::GRAPH).mutable_g() = body;
}

std::string EditBase::Fresh(const std::string& base) {
  return "mutant_" + base + "_" + std::to_string(mutant_.names++);
}

bool EditBase::Note(const NodeProto& node, const std::string& what) {
  mutant_.note =
      (node.name().empty() ? node.output(0) : node.name()) + " (" + node.op_type() + "): " + what;
  return true;
}

int EditBase::Pick(std::initializer_list<const char*> types,
                   const std::function<bool(const NodeProto&)>& likes) {
  std::vector<int> all;
  std::vector<int> liked;
  for (int i = 0; i < graph_.node_size(); ++i) {
    const NodeProto& node = graph_.node(i);
    if (node.output_size() == 0) continue;
    const bool typed =
        types.size() == 0 || std::find(types.begin(), types.end(), node.op_type()) != types.end();
    if (!typed || (likes && !likes(node))) continue;
    all.push_back(i);
    if (preferred_.contains(node.name())) liked.push_back(i);
  }
  if (all.empty()) return -1;
  const std::vector<int>& from = !liked.empty() && Below(4) != 0 ? liked : all;
  return from[Below(static_cast<int>(from.size()))];
}

int EditBase::PickFloatOutput() {
  return Pick({}, [&](const NodeProto& node) {
    return node.output_size() == 1 && node.attribute_size() < 8 && IsFloat(node.output(0));
  });
}

int EditBase::PickScalarUse(std::initializer_list<const char*> types, int* slot,
                            const std::function<bool(const NodeProto&)>& likes) {
  const auto find = [&](const NodeProto& node) {
    for (int i = 0; i < node.input_size(); ++i) {
      const TensorProto* constant = Constant(node.input(i));
      if (constant != nullptr && ScalarOf(*constant)) return i;
    }
    return -1;
  };
  const int n = Pick(types, [&](const NodeProto& node) { return find(node) >= 0 && likes(node); });
  if (n >= 0) *slot = find(graph_.node(n));
  return n;
}

bool EditBase::ReplaceScalar(int n, int slot, const std::function<double(double)>& change) {
  NodeProto& node = *graph_.mutable_node(n);
  const TensorProto& old = *Constant(node.input(slot));
  const double value = *ScalarOf(old);
  const double changed = change(value);
  std::vector<int64_t> dims(old.dims().begin(), old.dims().end());
  node.set_input(slot, AddConstant(old.data_type(), dims, {changed}));
  return Note(node, std::to_string(value) + " -> " + std::to_string(changed));
}

bool EditBase::OnEdge(const std::function<bool(int, int)>& edit) {
  const auto slots = [&](const NodeProto& node) {
    std::vector<int> found;
    for (int i = 0; i < node.input_size(); ++i) {
      if (IsFloat(node.input(i))) found.push_back(i);
    }
    return found;
  };
  const int n = Pick({}, [&](const NodeProto& node) { return !slots(node).empty(); });
  if (n < 0) return false;
  const std::vector<int> found = slots(graph_.node(n));
  return edit(n, found[Below(static_cast<int>(found.size()))]);
}

bool EditBase::Between(int n, int slot, std::vector<NodeProto> chain, const std::string& note) {
  Note(graph_.node(n), note + " in front of input " + std::to_string(slot));
  std::string value = graph_.node(n).input(slot);
  const std::string first = Fresh("edge");
  std::string last = first;
  for (size_t i = 0; i < chain.size(); ++i) {
    NodeProto& node = chain[i];
    NodeProto full = node;
    full.clear_input();
    full.add_input(value);
    for (const std::string& input : node.input()) full.add_input(input);
    last = i == 0 ? first : Fresh("edge");
    full.add_output(last);
    value = last;
    node = full;
  }
  graph_.mutable_node(n)->set_input(slot, last);
  for (size_t i = 0; i < chain.size(); ++i) Insert(n + static_cast<int>(i), chain[i]);
  return true;
}

bool EditBase::Precede(const NodeProto& node, int n) const {
  const auto producer = Producers();
  return std::all_of(node.input().begin(), node.input().end(), [&](const std::string& input) {
    const auto found = producer.find(input);
    return found == producer.end() || found->second < n;
  });
}

std::map<std::string, int> EditBase::Producers() const {
  std::map<std::string, int> producer;
  for (int i = 0; i < graph_.node_size(); ++i) {
    for (const std::string& output : graph_.node(i).output()) producer[output] = i;
  }
  return producer;
}

const MutantType* EditBase::TypeOf(const std::string& value) const {
  const auto found = types_.find(value);
  return found != types_.end() ? &found->second : nullptr;
}

bool EditBase::IsFloat(const std::string& value) const {
  const MutantType* type = TypeOf(value);
  return type != nullptr &&
         (type->dtype == TensorProto::FLOAT || type->dtype == TensorProto::FLOAT16);
}

int EditBase::SameTypeInput(const NodeProto& node) const {
  const MutantType* type = TypeOf(node.output(0));
  for (int i = 0; type != nullptr && i < node.input_size(); ++i) {
    const MutantType* in = TypeOf(node.input(i));
    if (in != nullptr && *in == *type) return i;
  }
  return -1;
}

int EditBase::RowSlot(const NodeProto& node) const {
  for (int i = 0; i < node.input_size(); ++i) {
    const TensorProto* constant = Constant(node.input(i));
    if (constant != nullptr && constant->dims_size() == 1 && constant->dims(0) > 1) return i;
  }
  return -1;
}

const TensorProto* EditBase::Constant(const std::string& value) const {
  for (const TensorProto& initializer : graph_.initializer()) {
    if (initializer.name() == value) return &initializer;
  }
  for (const NodeProto& node : graph_.node()) {
    if (node.op_type() != "Constant" || node.output(0) != value) continue;
    for (const AttributeProto& attribute : node.attribute()) {
      if (attribute.name() == "value") return &attribute.t();
    }
  }
  return nullptr;
}

std::optional<double> EditBase::ScalarOf(const TensorProto& tensor) {
  int64_t count = 1;
  for (int64_t d : tensor.dims()) count *= d;
  const auto dtype = static_cast<DType>(tensor.data_type());
  if (count != 1 || (dtype != DType::kF32 && dtype != DType::kF16)) return std::nullopt;
  if (!tensor.raw_data().empty()) {
    return DecodeElement(dtype, reinterpret_cast<const std::byte*>(tensor.raw_data().data()));
  }
  if (tensor.float_data_size() == 1) return tensor.float_data(0);
  if (tensor.int32_data_size() == 1) {
    const auto bits = static_cast<uint16_t>(tensor.int32_data(0));
    std::byte bytes[2];
    std::memcpy(bytes, &bits, 2);
    return DecodeElement(dtype, bytes);
  }
  return std::nullopt;
}

std::string EditBase::AddConstant(int32_t dtype, const std::vector<int64_t>& dims,
                                  const std::vector<double>& values) {
  TensorProto& tensor = *graph_.add_initializer();
  tensor.set_name(Fresh("constant"));
  tensor.set_data_type(dtype);
  for (int64_t d : dims) tensor.add_dims(d);
  const Tensor encoded = Tensor::FromDoubles(static_cast<DType>(dtype), dims, values);
  tensor.set_raw_data(
      std::string(reinterpret_cast<const char*>(encoded.bytes.data()), encoded.bytes.size()));
  return tensor.name();
}

std::string EditBase::AddInts(const std::vector<int64_t>& values) {
  TensorProto& tensor = *graph_.add_initializer();
  tensor.set_name(Fresh("ints"));
  tensor.set_data_type(TensorProto::INT64);
  tensor.add_dims(static_cast<int64_t>(values.size()));
  for (int64_t v : values) tensor.add_int64_data(v);
  return tensor.name();
}

std::string EditBase::AddBool(bool value) {
  TensorProto& tensor = *graph_.add_initializer();
  tensor.set_name(Fresh("condition"));
  tensor.set_data_type(TensorProto::BOOL);
  tensor.add_int32_data(value ? 1 : 0);
  return tensor.name();
}

void EditBase::Insert(int position, const NodeProto& node) {
  *graph_.add_node() = node;
  for (int i = graph_.node_size() - 1; i > position; --i) {
    graph_.mutable_node()->SwapElements(i, i - 1);
  }
}

void EditBase::AddValueInfo(onnx::ValueInfoProto& info, const std::string& name,
                            const MutantType& type) {
  info.set_name(name);
  auto& tensor = *info.mutable_type()->mutable_tensor_type();
  tensor.set_elem_type(type.dtype);
  tensor.mutable_shape();
  for (const std::string& dim : type.dims) {
    auto& d = *tensor.mutable_shape()->add_dim();
    if (!dim.empty() && dim.find_first_not_of("0123456789") == std::string::npos) {
      d.set_dim_value(std::stoll(dim));
    } else if (!dim.starts_with("?")) {
      d.set_dim_param(dim);
    }
  }
}

bool EditBase::AddOutput(const std::string& value) { return AddOutput(value, value); }

bool EditBase::AddOutput(const std::string& value, const std::string& typed_like) {
  const MutantType* type = TypeOf(typed_like);
  if (type == nullptr) return false;
  for (const auto& output : graph_.output()) {
    if (output.name() == value) return false;
  }
  AddValueInfo(*graph_.add_output(), value, *type);
  return true;
}

}  // namespace liger::test
