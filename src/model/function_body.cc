#include "model/function_body.h"

#include <onnx/defs/parser.h>
#include <onnx/onnx_pb.h>

#include <cmath>
#include <cstring>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include "ops/op_contract.h"

namespace liger {
namespace {

class BodyMaker {
 public:
  explicit BodyMaker(const FunctionSpec& spec) : spec_(spec) {}

  Result<onnx::FunctionProto> Make() {
    if (spec_.as_written) {
      onnx::FunctionProto text;
      if (Status status = Parse(spec_.text, text); !status) return std::move(status).error();
      function_.mutable_node()->Swap(text.mutable_node());
      RenameInner();
      Declare();
      return std::move(function_);
    }
    if (Status status = Instantiate(); !status) return std::move(status).error();
    Simplify();
    SettleOutputs();
    MoveOperands();
    RemoveDead();
    if (Status status = SpellForOpset(); !status) return std::move(status).error();
    RenameInner();
    Declare();
    return std::move(function_);
  }

 private:
  static Status Parse(const std::string& text, onnx::FunctionProto& function) {
    onnx::OnnxParser parser(text.c_str());
    const auto status = parser.Parse(function);
    if (status.IsOK()) return {};
    return Error{ErrorCode::kInternal,
                 "a function text cannot be parsed: " + status.ErrorMessage()};
  }

  // Renames what the node reads and writes; outputs that are not in `names` get `prefix`.
  static void Rename(onnx::NodeProto& node, const std::string& prefix,
                     std::map<std::string, std::string>& names) {
    for (auto& input : *node.mutable_input()) {
      if (const auto found = names.find(input); found != names.end()) input = found->second;
    }
    for (auto& output : *node.mutable_output()) {
      output = names.try_emplace(output, prefix + output).first->second;
    }
  }

  // The nodes of the text, twice if there is a second application.
  Status Instantiate() {
    onnx::FunctionProto text;
    if (Status status = Parse(spec_.text, text); !status) return status;
    if (Status status = AddNodes(text); !status) return status;
    if (spec_.second) {
      std::map<std::string, std::string> names = {
          {spec_.second->input, spec_.second->second_input},
          {spec_.second->output, spec_.second->second_output}};
      for (auto& node : *text.mutable_node()) Rename(node, "second_", names);
      if (Status status = AddNodes(text); !status) return status;
    }
    types_.insert(spec_.types.begin(), spec_.types.end());
    for (const auto& [name, value] : spec_.absent) {
      types_[name] = spec_.types.begin()->second;
      constants_[name] = value;
    }
    return {};
  }

  Status AddNodes(const onnx::FunctionProto& text) {
    for (const onnx::NodeProto& node : text.node()) {
      if (node.domain() != kOpDomain) {
        *function_.add_node() = node;
      } else if (Status status = AddCallee(node); !status) {
        return status;
      }
    }
    return {};
  }

  // The nodes of a called fused op, with the call's operands and attributes.
  Status AddCallee(const onnx::NodeProto& call) {
    onnx::FunctionProto callee;
    if (Status status = Parse(spec_.callees.at(call.op_type()), callee); !status) return status;
    std::map<std::string, std::string> names;
    for (int i = 0; i < callee.input_size(); ++i) names[callee.input(i)] = call.input(i);
    for (int i = 0; i < callee.output_size(); ++i) names[callee.output(i)] = call.output(i);
    for (onnx::NodeProto node : callee.node()) {
      Rename(node, call.output(0) + "_", names);
      for (auto& attribute : *node.mutable_attribute()) {
        if (attribute.ref_attr_name().empty()) continue;
        const onnx::AttributeProto* actual = Find(call, attribute.ref_attr_name());
        LIGER_CHECK(actual != nullptr);
        const std::string name = attribute.name();
        attribute = *actual;
        attribute.set_name(name);
      }
      *function_.add_node() = std::move(node);
    }
    return {};
  }

  const std::string& Resolved(const std::string& name) const {
    const auto found = alias_.find(name);
    return found != alias_.end() ? found->second : name;
  }

  void Simplify() {
    auto nodes = std::move(*function_.mutable_node());
    function_.clear_node();
    for (onnx::NodeProto& node : nodes) {
      for (auto& input : *node.mutable_input()) input = Resolved(input);
      PutAttributes(node);
      if (Dissolve(node)) continue;
      for (const auto& output : node.output()) types_[output] = OutputType(node);
      *function_.add_node() = std::move(node);
    }
  }

  void PutAttributes(onnx::NodeProto& node) const {
    for (auto& attribute : *node.mutable_attribute()) {
      const auto fixed = spec_.fixed.find(attribute.ref_attr_name());
      if (attribute.ref_attr_name().empty() || fixed == spec_.fixed.end()) continue;
      attribute.clear_ref_attr_name();
      if (const auto* i = std::get_if<int64_t>(&fixed->second)) {
        attribute.set_type(onnx::AttributeProto::INT);
        attribute.set_i(*i);
      } else if (const auto* f = std::get_if<float>(&fixed->second)) {
        attribute.set_type(onnx::AttributeProto::FLOAT);
        attribute.set_f(*f);
      } else if (const auto* s = std::get_if<std::string>(&fixed->second)) {
        attribute.set_type(onnx::AttributeProto::STRING);
        attribute.set_s(*s);
      }
    }
  }

  static const onnx::AttributeProto* Find(const onnx::NodeProto& node, std::string_view name) {
    for (const auto& attribute : node.attribute()) {
      if (attribute.name() == name) return &attribute;
    }
    return nullptr;
  }

  // Replaces a node by something simpler; true if nothing of it is left.
  bool Dissolve(onnx::NodeProto& node) {
    const std::string& type = node.op_type();
    const std::string output = node.output_size() > 0 ? node.output(0) : "";
    if (type == "CastLike") {
      const auto to = types_.at(node.input(1));
      node.set_op_type("Cast");
      node.mutable_input()->RemoveLast();
      onnx::AttributeProto& attribute = *node.add_attribute();
      attribute.set_name("to");
      attribute.set_type(onnx::AttributeProto::INT);
      attribute.set_i(static_cast<int64_t>(to));
    }
    if (type == "Constant") {
      const auto* value = Find(node, "value_float");
      if (value != nullptr && value->ref_attr_name().empty()) {
        MakeConstant(node, DType::kF32, value->f());
      }
      const auto* tensor = Find(node, "value");
      if (tensor != nullptr && tensor->t().dims_size() == 0 &&
          tensor->t().double_data_size() == 1) {
        constants_[output] = tensor->t().double_data(0);
      }
      return false;
    }
    if (type == "Cast") {
      const auto to = static_cast<DType>(Find(node, "to")->i());
      if (const auto constant = constants_.find(node.input(0)); constant != constants_.end()) {
        MakeConstant(node, to, constant->second);
        return false;
      }
      if (types_.at(node.input(0)) == to) return Alias(output, node.input(0));
    }
    if (type == "Add" || type == "Mul") {
      const auto a = constants_.find(node.input(0));
      const auto b = constants_.find(node.input(1));
      if (a != constants_.end() && b != constants_.end()) {
        const double value = type == "Add" ? a->second + b->second : a->second * b->second;
        MakeConstant(node, types_.at(node.input(0)), value);
        return false;
      }
      const double neutral = type == "Add" ? 0.0 : 1.0;
      if (b != constants_.end() && b->second == neutral) return Alias(output, node.input(0));
      if (a != constants_.end() && a->second == neutral) return Alias(output, node.input(1));
    }
    return false;
  }

  bool Alias(const std::string& output, const std::string& input) {
    alias_[output] = input;
    return true;
  }

  // Turns the node into a scalar constant of that dtype.
  void MakeConstant(onnx::NodeProto& node, DType dtype, double value) {
    node.set_op_type("Constant");
    node.clear_input();
    node.clear_attribute();
    // A tensor, whatever the dtype: OnnxSlim turns a float attribute into a double.
    onnx::AttributeProto& attribute = *node.add_attribute();
    attribute.set_name("value");
    attribute.set_type(onnx::AttributeProto::TENSOR);
    FillScalar(*attribute.mutable_t(), dtype, value);
    constants_[node.output(0)] = value;
    types_[node.output(0)] = dtype;
  }

  static void FillScalar(onnx::TensorProto& tensor, DType dtype, double value) {
    tensor.set_data_type(static_cast<int32_t>(dtype));
    if (dtype == DType::kF64) {
      tensor.add_double_data(value);
      return;
    }
    if (dtype == DType::kF32) {
      tensor.add_float_data(static_cast<float>(value));
      return;
    }
    // Half types are stored as their bits. Both are the upper part of a wider format, once rounded.
    const double rounded = RoundTo(dtype, value);
    uint32_t bits = 0;
    const auto narrow = static_cast<float>(rounded);
    std::memcpy(&bits, &narrow, sizeof(bits));
    if (dtype == DType::kBF16) {
      tensor.add_int32_data(static_cast<int32_t>(bits >> 16));
      return;
    }
    const uint32_t sign = bits >> 31 << 15;
    const int exponent = static_cast<int>(bits >> 23 & 0xff) - 127;
    uint32_t half = 0;
    if (exponent >= -14) {
      half = static_cast<uint32_t>(exponent + 15) << 10 | (bits >> 13 & 0x3ff);
    } else if (rounded != 0) {
      half = static_cast<uint32_t>(std::abs(rounded) * 16777216.0);  // multiples of 2^-24
    }
    tensor.add_int32_data(static_cast<int32_t>(sign | half));
  }

  DType OutputType(const onnx::NodeProto& node) const {
    if (node.op_type() == "Constant") {
      if (Find(node, "value_ints") != nullptr || Find(node, "value_int") != nullptr) {
        return DType::kI64;
      }
      if (const auto* value = Find(node, "value"); value != nullptr) {
        return static_cast<DType>(value->t().data_type());
      }
      const auto known = types_.find(node.output(0));
      return known != types_.end() ? known->second : DType::kF32;
    }
    if (node.op_type() == "Shape") return DType::kI64;
    if (node.op_type() == "Cast") return static_cast<DType>(Find(node, "to")->i());
    return types_.at(node.input(0));
  }

  // An output that has become another name for a value takes that value's place.
  void SettleOutputs() {
    for (const std::string& output : spec_.outputs) {
      const auto found = alias_.find(output);
      if (found == alias_.end()) continue;
      const std::string source = found->second;
      bool produced = false;
      for (auto& node : *function_.mutable_node()) {
        for (auto& name : *node.mutable_output()) {
          if (name == source) name = output, produced = true;
        }
      }
      if (!produced) {
        onnx::NodeProto& identity = *function_.add_node();
        identity.set_op_type("Identity");
        identity.add_input(source);
        identity.add_output(output);
        continue;
      }
      for (auto& node : *function_.mutable_node()) {
        for (auto& name : *node.mutable_input()) {
          if (name == source) name = output;
        }
      }
      for (auto& [name, target] : alias_) {
        if (target == source && name != output) target = output;
      }
    }
  }

  void RemoveDead() {
    std::unordered_set<std::string> used(spec_.outputs.begin(), spec_.outputs.end());
    std::vector<onnx::NodeProto> kept;
    for (int i = function_.node_size() - 1; i >= 0; --i) {
      onnx::NodeProto& node = *function_.mutable_node(i);
      bool needed = false;
      for (const auto& output : node.output()) needed = needed || used.contains(output);
      if (!needed) continue;
      for (const auto& input : node.input()) used.insert(input);
      kept.push_back(std::move(node));
    }
    function_.clear_node();
    for (auto it = kept.rbegin(); it != kept.rend(); ++it) *function_.add_node() = std::move(*it);
  }

  bool IsBefore(int64_t version) const {
    const auto opset = spec_.opsets.find("");
    return opset != spec_.opsets.end() && opset->second < version;
  }

  // Before opset 13 axes and the like are attributes, not operands.
  void MoveOperands() {
    if (!IsBefore(13)) return;
    static const std::map<std::string, std::string> attributes = {
        {"ReduceSum", "axes"}, {"Split", "split"}, {"Squeeze", "axes"}, {"Unsqueeze", "axes"}};
    std::unordered_map<std::string, std::vector<int64_t>> lists;
    for (onnx::NodeProto& node : *function_.mutable_node()) {
      if (node.op_type() == "Constant") {
        if (const auto* ints = Find(node, "value_ints")) {
          lists[node.output(0)] = {ints->ints().begin(), ints->ints().end()};
        } else if (const auto* value = Find(node, "value")) {
          lists[node.output(0)] = {value->t().int64_data().begin(), value->t().int64_data().end()};
        }
        continue;
      }
      const auto name = attributes.find(node.op_type());
      if (name == attributes.end() || node.input_size() != 2) continue;
      const auto list = lists.find(node.input(1));
      if (list == lists.end()) continue;
      node.mutable_input()->RemoveLast();
      onnx::AttributeProto& attribute = *node.add_attribute();
      attribute.set_name(name->second);
      attribute.set_type(onnx::AttributeProto::INTS);
      for (const int64_t value : list->second) attribute.add_ints(value);
    }
  }

  // Before opset 12 a Constant holds a tensor and nothing else.
  Status SpellForOpset() {
    if (!IsBefore(12)) return {};
    auto nodes = std::move(*function_.mutable_node());
    function_.clear_node();
    for (onnx::NodeProto& node : nodes) {
      if (node.op_type() != "Constant" || Find(node, "value") != nullptr) {
        *function_.add_node() = std::move(node);
      } else if (Status status = SpellConstant(node); !status) {
        return status;
      }
    }
    return {};
  }

  Status SpellConstant(const onnx::NodeProto& node) {
    LIGER_CHECK(node.attribute_size() == 1 && node.output_size() == 1);
    const onnx::AttributeProto& attribute = node.attribute(0);
    const std::string& output = node.output(0);
    if (!attribute.ref_attr_name().empty()) {
      if (attribute.name() == "value_float")
        return AddFloat(output, attribute.ref_attr_name()), Status();
    }
    onnx::TensorProto tensor;
    tensor.set_data_type(onnx::TensorProto::INT64);
    if (attribute.name() == "value_float" || attribute.name() == "value_floats") {
      tensor.set_data_type(onnx::TensorProto::FLOAT);
    }
    if (!attribute.ref_attr_name().empty()) {
      return Error{ErrorCode::kInternal, "no Constant takes the attribute '" +
                                             attribute.ref_attr_name() + "' at this opset"};
    }
    if (attribute.name() == "value_float") {
      tensor.add_float_data(attribute.f());
    } else if (attribute.name() == "value_int") {
      tensor.add_int64_data(attribute.i());
    } else if (attribute.name() == "value_floats") {
      tensor.add_dims(attribute.floats_size());
      for (const float value : attribute.floats()) tensor.add_float_data(value);
    } else if (attribute.name() == "value_ints") {
      tensor.add_dims(attribute.ints_size());
      for (const int64_t value : attribute.ints()) tensor.add_int64_data(value);
    } else {
      return Error{ErrorCode::kInternal,
                   "a Constant with '" + attribute.name() + "' cannot be spelt at this opset"};
    }
    AddTensor(output, tensor);
    return {};
  }

  onnx::NodeProto& AddNode(const std::string& op_type, const std::vector<std::string>& inputs,
                           const std::string& output) {
    onnx::NodeProto& node = *function_.add_node();
    node.set_op_type(op_type);
    for (const std::string& input : inputs) node.add_input(input);
    node.add_output(output);
    return node;
  }

  void AddTensor(const std::string& output, const onnx::TensorProto& tensor) {
    onnx::AttributeProto& value = *AddNode("Constant", {}, output).add_attribute();
    value.set_name("value");
    value.set_type(onnx::AttributeProto::TENSOR);
    *value.mutable_t() = tensor;
  }

  static void SetReference(onnx::NodeProto& node, const std::string& name, const std::string& from,
                           onnx::AttributeProto::AttributeType type) {
    onnx::AttributeProto& attribute = *node.add_attribute();
    attribute.set_name(name);
    attribute.set_ref_attr_name(from);
    attribute.set_type(type);
  }

  void AddCast(const std::string& input, const std::string& output, DType to) {
    onnx::AttributeProto& attribute = *AddNode("Cast", {input}, output).add_attribute();
    attribute.set_name("to");
    attribute.set_type(onnx::AttributeProto::INT);
    attribute.set_i(static_cast<int64_t>(to));
  }

  // A float attribute of the function as a scalar: LeakyRelu gives alpha * x for x = -1, exactly.
  void AddFloat(const std::string& output, const std::string& from) {
    onnx::TensorProto minus;
    minus.set_data_type(onnx::TensorProto::FLOAT);
    minus.add_float_data(-1.0F);
    AddTensor(output + "/minus_one", minus);
    SetReference(AddNode("LeakyRelu", {output + "/minus_one"}, output + "/negative"), "alpha", from,
                 onnx::AttributeProto::FLOAT);
    AddNode("Neg", {output + "/negative"}, output);
  }

  // Adds the suffix to the names of all values but inputs and outputs.
  void RenameInner() {
    if (spec_.value_suffix.empty()) return;
    std::unordered_set<std::string> formal(spec_.inputs.begin(), spec_.inputs.end());
    formal.insert(spec_.outputs.begin(), spec_.outputs.end());
    const auto rename = [&](std::string& name) {
      if (!name.empty() && !formal.contains(name)) name += spec_.value_suffix;
    };
    for (onnx::NodeProto& node : *function_.mutable_node()) {
      for (std::string& input : *node.mutable_input()) rename(input);
      for (std::string& output : *node.mutable_output()) rename(output);
    }
  }

  void Declare() {
    function_.set_domain(spec_.domain);
    function_.set_name(spec_.op_type);
    for (const std::string& input : spec_.inputs) function_.add_input(input);
    for (const std::string& output : spec_.outputs) function_.add_output(output);
    for (const std::string& attribute : spec_.attributes) function_.add_attribute(attribute);
    std::set<std::string> domains;
    for (const auto& node : function_.node()) domains.insert(node.domain());
    for (const std::string& domain : domains) {
      onnx::OperatorSetIdProto& import = *function_.add_opset_import();
      import.set_domain(domain);
      const auto version = spec_.opsets.find(domain);
      import.set_version(version != spec_.opsets.end() ? version->second : kOpDomainVersion);
    }
  }

  const FunctionSpec& spec_;
  onnx::FunctionProto function_;
  std::unordered_map<std::string, DType> types_;
  std::unordered_map<std::string, double> constants_;
  std::unordered_map<std::string, std::string> alias_;
};

}  // namespace

Result<onnx::FunctionProto> MakeFunction(const FunctionSpec& spec) {
  return BodyMaker(spec).Make();
}

}  // namespace liger
