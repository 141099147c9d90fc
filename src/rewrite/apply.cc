#include "rewrite/apply.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

namespace liger {
namespace {

constexpr int64_t kSqueezeTakesAxes = 13;  // as an input; before that as an attribute
// Before that a body cannot hold a constant that an attribute of its call gives, if it is an integer.
constexpr int64_t kConstantTakesInteger = 12;

// One function of the edit: an op with everything that specialises its body.
struct VariantKey {
  const OpPattern* op = nullptr;
  const OpText* text = nullptr;
  std::vector<DType> types;  // of the inputs that are given
  std::vector<bool> given;   // inputs, by contract position
  std::string fixed;         // attribute values put in place, as text
  bool paired = false;

  auto operator<=>(const VariantKey&) const = default;
};

std::string ToText(const Attribute::Value& value) {
  if (const auto* i = std::get_if<int64_t>(&value)) return std::to_string(*i);
  if (const auto* f = std::get_if<float>(&value)) return std::to_string(*f);
  if (const auto* s = std::get_if<std::string>(&value)) return *s;
  return "";
}

class EditMaker {
 public:
  EditMaker(const GraphModel& model, const OpPatternSet& ops, const LoweringSet& lowerings)
      : model_(model), ops_(ops), canonicalizer_(terms_, &lowerings, &ops) {
    opset_ = OpsetOf(model.opsets, "");
    value_suffix_ = FreeSuffix(model);
  }

  Result<ModelEdit> Make(const RewritePlan& plan) {
    for (const PlannedNode& planned : plan.nodes) {
      if (Status status = AddNode(planned); !status) return std::move(status).error();
    }
    for (const auto& [graph, order] : plan.order) {
      GraphEdit change{graph, {}};
      for (const OrderedNode& node : order) {
        if (!node.planned) change.nodes.push_back({false, node.index});
        if (!node.planned) continue;
        for (int index : new_nodes_[node.index]) change.nodes.push_back({true, index});
      }
      edit_.graphs.push_back(std::move(change));
    }
    return std::move(edit_);
  }

 private:
  // Empty, unless the model holds values of bodies that ONNX Runtime has inlined.
  static std::string FreeSuffix(const GraphModel& model) {
    std::set<std::string> endings;
    for (const Graph& graph : model.graphs) {
      for (const Value& value : graph.values) {
        if (!value.name.starts_with("_inlfunc_")) continue;
        const size_t at = value.name.rfind("_again");
        endings.insert(at == std::string::npos ? "" : value.name.substr(at));
      }
    }
    std::string suffix;
    for (int n = 1; endings.contains(suffix); ++n) suffix = "_again" + std::to_string(n);
    return suffix;
  }

  Status AddNode(const PlannedNode& planned) {
    const PatternInstance& instance = *planned.instance;
    const OpContract& contract = *instance.op->contract;
    const Graph& graph = model_.graphs[planned.graph];
    NewNode node;
    node.op_type = contract.op_type;
    node.domain = contract.domain;
    node.name = planned.name;
    const auto name = [&](ValueId value) { return value == kNone ? "" : graph.values[value].name; };
    for (ValueId input : planned.inputs) node.inputs.push_back(name(input));
    for (size_t i = 0; i < planned.outputs.size(); ++i) {
      const ValueId output = planned.outputs[i];
      // An output that the op always gives needs a name, also where the graph has no use for it.
      const bool unused = output == kNone && !contract.outputs[i].optional;
      node.outputs.push_back(unused ? planned.name + "/" + std::string(contract.outputs[i].name)
                                    : name(output));
      node.output_types.push_back(output == kNone ? ValueType{} : graph.values[output].type);
    }
    while (!node.inputs.empty() && node.inputs.back().empty()) node.inputs.pop_back();
    while (!node.outputs.empty() && node.outputs.back().empty()) {
      node.outputs.pop_back();
      node.output_types.pop_back();
    }
    for (const AttributeSpec& spec : contract.attributes) {
      const auto value = planned.attributes.find(std::string(spec.name));
      if (value == planned.attributes.end()) {
        return Error{ErrorCode::kInternal, "the attribute '" + std::string(spec.name) + "' of " +
                                               node.op_type + " has no value"};
      }
      node.attributes.push_back({std::string(spec.name), value->second});
    }
    node.metadata = planned.metadata;
    AttributeEnv fixed = instance.attributes;
    for (const std::string& capture : instance.captures) {
      const Attribute::Value& value = planned.attributes.at(capture);
      if (opset_ < kConstantTakesInteger && std::holds_alternative<int64_t>(value)) {
        fixed[capture] = value;
      }
    }
    auto function =
        Function(*instance.op, instance, fixed, Given(planned), planned.roots.size() > 1);
    if (!function) return std::move(function).error();
    node.function = *function;
    AddWithHelpers(planned, std::move(node));
    return {};
  }

  // The node, and what stands beside it. In front: a Squeeze or Reshape for an input that the graph
  // has with other axes, a Neg for one of the opposite sign, a Cast for one in a narrower dtype than the op's.
  // Behind: a Cast where the graph's result is narrower; the op's result then holds only values of
  // that dtype, so the Casts are exact.
  void AddWithHelpers(const PlannedNode& planned, NewNode node) {
    const PatternInstance& instance = *planned.instance;
    std::vector<int>& added = new_nodes_.emplace_back();
    const auto add = [&](NewNode one) {
      added.push_back(static_cast<int>(edit_.new_nodes.size()));
      edit_.new_nodes.push_back(std::move(one));
    };
    const auto port = [&](size_t position) {
      return node.name + "/" + std::string(instance.op->contract->inputs[position].name);
    };
    for (const auto& [position, made] : planned.views) {
      const bool squeezes = made.kind == InputView::Kind::kSqueeze;
      const std::string type = squeezes ? "Squeeze" : "Reshape";
      NewNode shaped = Helper(type, port(position) + "/" + type, node.inputs[position]);
      if (squeezes && opset_ < kSqueezeTakesAxes) {
        shaped.attributes = {{"axes", made.axes}};
      } else {
        std::vector<int64_t> numbers = made.axes;
        // 0 keeps an axis, -1 takes what is left.
        if (!squeezes) numbers.assign(made.axes.size(), 0), numbers.push_back(-1);
        NewNode constant = Helper("Constant", port(position) + "/axes", "");
        constant.inputs.clear();
        const Tensor tensor{DType::kI64, {static_cast<int64_t>(numbers.size())}, {}, numbers};
        constant.attributes = {{"value", tensor}};
        shaped.inputs.push_back(constant.outputs[0]);
        add(std::move(constant));
      }
      node.inputs[position] = shaped.outputs[0];
      add(std::move(shaped));
    }
    for (const size_t position : instance.negated) {
      NewNode negative = Helper("Neg", port(position) + "/Neg", node.inputs[position]);
      node.inputs[position] = negative.outputs[0];
      add(std::move(negative));
    }
    for (const auto& [position, dtype] : instance.input_wraps) {
      const DType wide = TypeOf(*instance.op, position, instance.types);
      const std::string name =
          node.name + "/" + std::string(instance.op->contract->inputs[position].name);
      add(MakeCast(name, node.inputs[position], name, {wide, std::nullopt}));
      node.inputs[position] = name;
    }
    if (instance.output_wrap == DType::kUndefined) return add(std::move(node));
    const std::string name = node.name + "/" + std::string(instance.op->contract->outputs[0].name);
    const ValueType narrow = node.output_types[0];
    NewNode cast = MakeCast(name, name, node.outputs[0], narrow);
    node.outputs[0] = name;
    node.output_types[0].dtype = TypeOf(*instance.op, 0, instance.types);
    add(std::move(node));
    add(std::move(cast));
  }

  // A node of the default domain whose only output bears its name.
  static NewNode Helper(const std::string& op_type, const std::string& name,
                        const std::string& input) {
    NewNode node;
    node.op_type = op_type;
    node.name = name;
    node.inputs = {input};
    node.outputs = {name};
    node.output_types = {ValueType{}};
    return node;
  }

  static NewNode MakeCast(const std::string& node_name, const std::string& input,
                          const std::string& output, ValueType type) {
    NewNode cast;
    cast.op_type = "Cast";
    cast.name = node_name + "/Cast";
    cast.inputs = {input};
    cast.outputs = {output};
    cast.attributes = {{"to", static_cast<int64_t>(type.dtype)}};
    cast.output_types = {std::move(type)};
    return cast;
  }

  static std::vector<bool> Given(const PlannedNode& planned) {
    std::vector<bool> given;
    for (ValueId input : planned.inputs) given.push_back(input != kNone);
    return given;
  }

  // The index of the function for this variant, made on first use.
  Result<int> Function(const OpPattern& op, const PatternInstance& instance,
                       const AttributeEnv& fixed, const std::vector<bool>& given, bool paired) {
    VariantKey key{&op, instance.text, {}, given, "", paired};
    std::vector<TypeBinding> types(instance.types.begin(), instance.types.end());
    const bool is_own = op.contract->is_own();  // one body for all dtypes
    for (size_t i = 0; i < op.contract->inputs.size() && !is_own; ++i) {
      if (given[i]) key.types.push_back(TypeOf(op, i, types));
    }
    for (const auto& [name, value] : fixed) key.fixed += name + "=" + ToText(value) + ";";
    if (const auto found = variants_.find(key); found != variants_.end()) return found->second;

    const int index = static_cast<int>(edit_.functions.size());
    edit_.functions.emplace_back();
    variants_[key] = index;
    FunctionSpec spec;
    spec.domain = op.contract->domain;
    spec.op_type = op.contract->op_type;
    spec.as_written = is_own;
    spec.fixed = fixed;
    spec.opsets = model_.opsets;
    for (const AttributeSpec& attribute : op.contract->attributes) {
      spec.attributes.emplace_back(attribute.name);
    }
    const OpText& body =
        is_own ? *instance.text : FindBody(op, *instance.text, types, fixed, given);
    spec.text = body.source;
    for (const auto& [name, value] : body.attributes) spec.fixed[name] = value;
    const auto last = std::find(given.rbegin(), given.rend(), true);
    const auto formals = static_cast<size_t>(given.rend() - last);
    for (size_t i = 0; i < op.contract->inputs.size(); ++i) {
      const std::string name(op.contract->inputs[i].name);
      // Positions count: one that is left out in front of a given one still has its name.
      if (i < formals) spec.inputs.push_back(name);
      if (given[i]) {
        spec.types[name] = TypeOf(op, i, types);
      } else if (const auto constant = op.absent.find(name); constant != op.absent.end()) {
        spec.absent[name] = constant->second;
      }
    }
    const Graph& graph = body.function.graph;
    for (ValueId output : graph.outputs) spec.outputs.push_back(graph.values[output].name);
    if (paired) {
      spec.second = {op.pair->input, op.pair->second_input, op.pair->output,
                     op.pair->second_output};
      spec.outputs.push_back(op.pair->second_output);
    }
    for (const Node& node : graph.nodes) {
      if (node.domain != kOpDomain) continue;
      const OpText* callee = FindCallee(node, body, spec, types);
      if (callee == nullptr) {
        return Error{ErrorCode::kInternal,
                     "no body of " + node.op_type + " for a call by " + spec.op_type};
      }
      spec.callees[node.op_type] = callee->source;
    }
    spec.tag = Tag(op, instance, given, paired);
    spec.value_suffix = value_suffix_;
    edit_.functions[index] = std::move(spec);
    return index;
  }

  // The body of a fused op that `caller` calls, with the caller's dtypes. What the caller's caller
  // leaves out is left out of the call as well.
  const OpText* FindCallee(const Node& node, const OpText& caller, const FunctionSpec& spec,
                           const std::vector<TypeBinding>& types) {
    std::vector<bool> given;
    for (const ValueId input : node.inputs) {
      given.push_back(input != kNone &&
                      !spec.absent.contains(caller.function.graph.values[input].name));
    }
    OpPatternSet::Call call = ops_.ResolveCall(node, opset_, spec.fixed, given);
    if (call.text == nullptr) return nullptr;
    std::erase_if(call.attributes,
                  [](const auto& a) { return std::holds_alternative<AttributeRef>(a.second); });
    return &FindBody(*call.op, *call.text, types, call.attributes, call.given);
  }

  static DType TypeOf(const OpPattern& op, size_t input, const std::vector<TypeBinding>& types) {
    for (const TypeBinding& binding : types) {
      if (binding.symbol == op.contract->inputs[input].type_symbol) return binding.dtype;
    }
    return DType::kUndefined;
  }

  // The first body at the model's opset that means what `text` means, preferred ones first.
  const OpText& FindBody(const OpPattern& op, const OpText& text,
                         const std::vector<TypeBinding>& types, const AttributeEnv& fixed,
                         const std::vector<bool>& given) {
    std::vector<TermId> variables;
    for (size_t i = 0; i < op.contract->inputs.size(); ++i) {
      variables.push_back(given[i] ? terms_.Variable(static_cast<int>(i), TypeOf(op, i, types))
                                   : kNone);
    }
    const auto meaning = ops_.Evaluate(canonicalizer_, op, text, variables, fixed);
    for (const OpText& body : op.bodies) {
      const bool signature_fits =
          body.function.graph.inputs.size() ==
              static_cast<size_t>(std::count(given.begin(), given.end(), true)) &&
          std::all_of(body.attributes.begin(), body.attributes.end(), [&](const auto& a) {
            const auto value = fixed.find(a.first);
            return value != fixed.end() && value->second == a.second;
          });
      if (body.Covers(opset_) && signature_fits &&
          ops_.Evaluate(canonicalizer_, op, body, variables, fixed) == meaning) {
        return body;
      }
    }
    return text;
  }

  // "f16_gemma", "f32_gate_up", ...: what tells this variant from others of the op.
  static std::string Tag(const OpPattern& op, const PatternInstance& instance,
                         const std::vector<bool>& given, bool paired) {
    std::string tag;
    if (op.contract->is_own()) return instance.text->name;
    DType previous = DType::kUndefined;
    for (const TypeBinding& binding : instance.types) {
      if (binding.dtype == previous) continue;
      tag += (tag.empty() ? "" : "_") + std::string(DTypeName(binding.dtype));
      previous = binding.dtype;
    }
    if (instance.preset != "any") tag += "_" + instance.preset;
    if (op.texts.size() > 1 && instance.op == &op) tag += "_" + instance.text->name;
    for (const std::string& capture : instance.captures) {
      const auto names_it = [&](const auto& choice) { return choice.first == capture; };
      const auto& own = instance.text->choices;
      if (std::any_of(op.choices.begin(), op.choices.end(), names_it) ||
          std::any_of(own.begin(), own.end(), names_it)) {
        tag += "_" + capture;
      }
    }
    for (const auto& [name, values] : instance.text->choices) {
      const auto value = instance.attributes.find(name);
      if (value != instance.attributes.end()) tag += "_" + name + "_" + ToText(value->second);
    }
    for (size_t i = 0; i < given.size(); ++i) {
      const std::string name(op.contract->inputs[i].name);
      if (!given[i] && op.absent.contains(name)) tag += "_no_" + name;
    }
    return paired ? tag + "_pair" : tag;
  }

  const GraphModel& model_;
  const OpPatternSet& ops_;
  TermStore terms_;
  Canonicalizer canonicalizer_;
  int64_t opset_ = 1;
  std::string value_suffix_;
  ModelEdit edit_;
  std::vector<std::vector<int>> new_nodes_;  // of each planned node, in order
  std::map<VariantKey, int> variants_;
};

}  // namespace

Result<ModelEdit> MakeEdit(const GraphModel& model, const RewritePlan& plan,
                           const OpPatternSet& ops, const LoweringSet& lowerings) {
  return EditMaker(model, ops, lowerings).Make(plan);
}

}  // namespace liger
