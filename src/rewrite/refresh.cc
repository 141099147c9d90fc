#include "rewrite/refresh.h"

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>

#include "pattern/guard.h"

namespace liger {
namespace {

constexpr std::array kFloatTypes = {DType::kF32, DType::kF16, DType::kBF16, DType::kF64};
constexpr std::string_view kRemedy =
    "--revert the patched model as it was before that change, convert what it gives, and patch "
    "again";

// A call of an op whose contract is known.
struct Call {
  const OpPattern* op = nullptr;
  const Graph* graph = nullptr;
  const Node* node = nullptr;
  std::vector<ValueId> inputs;         // by position in the contract
  std::vector<ValueId> outputs;        // likewise
  std::vector<bool> given;             // inputs
  std::map<std::string, DType> types;  // of type symbols, as the inputs bind them
  AttributeEnv attributes;
  bool paired = false;

  DType TypeOf(size_t input) const {
    return given[input] ? graph->values[inputs[input]].type.dtype : DType::kUndefined;
  }
};

std::string NameOf(const Graph& graph, const Node& node) {
  if (!node.name.empty() || node.outputs.empty() || node.outputs[0] == kNone) return node.name;
  return graph.values[node.outputs[0]].name;
}

std::string OpName(const Node& node) { return node.domain + "." + node.op_type; }

std::string ValueText(const AttributeSpec& spec, const Attribute::Value& value) {
  const auto* number = std::get_if<int64_t>(&value);
  if (spec.kind == AttributeKind::kDType && number != nullptr) {
    return std::string(DTypeName(static_cast<DType>(*number)));
  }
  return AttributeText(value);
}

// A value of another kind than the contract's would be written as it is and mean nothing.
bool HasKind(const AttributeSpec& spec, const Attribute::Value& value) {
  switch (spec.kind) {
    case AttributeKind::kFloat:
      return std::holds_alternative<float>(value);
    case AttributeKind::kString:
      return std::holds_alternative<std::string>(value);
    case AttributeKind::kInt:
    case AttributeKind::kDType:
      return std::holds_alternative<int64_t>(value);
  }
  return false;
}

// Whether the instance is about a call with these inputs and dtypes.
bool HasInputs(const PatternInstance& instance, const Call& call) {
  for (size_t i = 0; i < call.given.size(); ++i) {
    // The text of an op that takes a second operand for the first has no name for it.
    const bool is_second =
        call.op->pair && call.op->contract->inputs[i].name == call.op->pair->second_input;
    if (!is_second && (instance.inputs[i] != kNone) != call.given[i]) return false;
  }
  return true;
}

bool HasTypes(const PatternInstance& instance, const Call& call) {
  return std::all_of(call.types.begin(), call.types.end(), [&](const auto& bound) {
    return std::any_of(instance.types.begin(), instance.types.end(), [&](const TypeBinding& b) {
      return b.symbol == bound.first && b.dtype == bound.second;
    });
  });
}

class RefreshPlanner {
 public:
  RefreshPlanner(const GraphModel& model, const FunctionBodies& bodies, const OpPatternSet& ops,
                 const LoweringSet& lowerings, const OwnOpNames& own)
      : model_(model),
        bodies_(bodies),
        ops_(ops),
        own_(own),
        canonicalizer_(terms_, &lowerings, &ops),
        instances_(std::make_shared<std::vector<PatternInstance>>()) {}

  Result<RefreshPlan> Run() {
    MakeInstances();
    for (const Graph& graph : model_.graphs) {
      std::vector<OrderedNode> order;
      const size_t before = result_.plan.nodes.size();
      for (size_t n = 0; n < graph.nodes.size(); ++n) {
        const Node& node = graph.nodes[n];
        const bool planned = IsOurs(node) && Look(graph, static_cast<NodeId>(n));
        order.push_back({planned, planned ? static_cast<int>(result_.plan.nodes.size()) - 1
                                          : static_cast<int>(n)});
      }
      if (result_.plan.nodes.size() > before) {
        result_.plan.order.emplace_back(graph.index, std::move(order));
      }
    }
    if (!faults_.empty()) {
      Error error = std::move(faults_.front());
      error.others.assign(faults_.begin() + 1, faults_.end());
      return error;
    }
    for (const auto& [id, body] : bodies_.all()) {
      if (!used_.contains(id)) result_.unused.insert(id);
    }
    result_.plan.instances = instances_;
    return std::move(result_);
  }

 private:
  const OpPattern* PatternOf(const Node& node) const {
    return node.domain.empty() ? nullptr : ops_.Find(node.domain, node.op_type);
  }

  bool IsOurs(const Node& node) const {
    return PatternOf(node) != nullptr || own_.contains({node.domain, node.op_type});
  }

  // Every instance of the ops that the model calls, as calls have them: the Casts and signs around
  // a node that a match has made are nodes of the graph by now.
  void MakeInstances() {
    OpPatternSet::Request request;
    request.opset = OpsetOf(model_.opsets, "");
    request.equal_ones = true;
    std::set<DType> dtypes(kFloatTypes.begin(), kFloatTypes.end());
    std::set<std::string> types;
    for (const Graph& graph : model_.graphs) {
      for (const Value& value : graph.values) dtypes.insert(value.type.dtype);
      for (const Node& node : graph.nodes) {
        if (PatternOf(node) != nullptr) types.insert(node.op_type);
      }
    }
    if (types.empty()) return;
    dtypes.erase(DType::kUndefined);
    request.dtypes.assign(dtypes.begin(), dtypes.end());
    request.op_types.assign(types.begin(), types.end());
    *instances_ = ops_.Instantiate(canonicalizer_, request);
    for (PatternInstance& instance : *instances_) {
      instance.input_wraps.clear();
      instance.negated.clear();
      instance.output_wrap = DType::kUndefined;
    }
  }

  void Fault(const Graph& graph, const Node& node, const std::string& what, std::string hint) {
    faults_.push_back({ErrorCode::kInvalidModel,
                       "node '" + NameOf(graph, node) + "' (" + OpName(node) + ") " + what, "",
                       std::move(hint)});
  }

  // True if the call was planned anew.
  bool Look(const Graph& graph, NodeId id) {
    const Node& node = graph.nodes[id];
    ++result_.calls[OpName(node)];
    const FunctionBody* body = bodies_.Find(node);
    const auto keep = [&] {
      if (body != nullptr) used_.insert(FunctionOf(node));
      return false;
    };
    if (graph.is_function) {
      result_.notes.push_back("a local function calls " + OpName(node) + " (node '" +
                              NameOf(graph, node) + "'): without types it was not looked into");
      return keep();
    }
    const OpPattern* op = PatternOf(node);
    if (op == nullptr) {
      const std::string why = Misfit(graph, node, body);
      if (why.empty()) return keep();
      Fault(graph, node, "is an own op of a patch map, and " + why,
            "give the map with --patches, or patch the converted original again");
      return false;
    }
    const size_t faults = faults_.size();
    std::optional<Call> call = Read(graph, node, *op);
    if (!call) {
      const bool unknown = faults == faults_.size();
      if (unknown && body != nullptr && body->same_operators) {
        result_.notes.push_back("the dtypes at node '" + NameOf(graph, node) + "' (" +
                                OpName(node) + ") are not known: its body was not looked into");
        return keep();
      }
      if (unknown) {
        Fault(graph, node, "has lost its body, and the dtypes of its inputs are not known",
              "run shape inference on the model first");
      }
      return false;
    }
    const std::vector<const PatternInstance*> fitting = Fitting(*call);
    std::string why = Misfit(graph, node, body);
    if (why.empty() && !fitting.empty() && !op->contract->is_own()) {
      why = OtherMeaning(*call, *body, fitting);
    }
    if (why.empty() && !fitting.empty()) return keep();
    if (fitting.empty()) {
      NoForm(*call);
      return false;
    }
    Plan(*call, id, *fitting.front(), std::move(why));
    return true;
  }

  // Why the function cannot stand for the call; empty if it can.
  std::string Misfit(const Graph& graph, const Node& node, const FunctionBody* body) const {
    if (body == nullptr) return "its function is gone";
    if (!model_.opsets.contains(node.domain)) return "its domain is not imported";
    if (!body->same_operators) {
      const auto version = body->opsets.find("");
      return "its body is written for opset " +
             (version != body->opsets.end() ? std::to_string(version->second) : "?") +
             ", where the model imports opset " + std::to_string(OpsetOf(model_.opsets, ""));
    }
    if (node.inputs.size() > body->graph.inputs.size() ||
        node.outputs.size() > body->graph.outputs.size()) {
      return "its body has fewer inputs or outputs";
    }
    std::vector<DType> operands;
    for (size_t i = 0; i < body->graph.inputs.size(); ++i) {
      const ValueId input = i < node.inputs.size() ? node.inputs[i] : kNone;
      operands.push_back(input == kNone ? DType::kUndefined : graph.values[input].type.dtype);
      if (input == kNone && !body->graph.values[body->graph.inputs[i]].users.empty()) {
        return "its body uses an input that the call leaves out";
      }
    }
    std::vector<DType> results;
    for (const ValueId output : node.outputs) {
      results.push_back(output == kNone ? DType::kUndefined : graph.values[output].type.dtype);
    }
    const std::string why = body->Misfit(operands, results);
    return why.empty() ? "" : "its body " + why;
  }

  // The call by its contract. Nothing, with a fault, if it does not keep to it, and without one if a
  // dtype is not known.
  std::optional<Call> Read(const Graph& graph, const Node& node, const OpPattern& op) {
    const OpContract& contract = *op.contract;
    Call call{&op, &graph, &node, node.inputs, node.outputs, {}, {}, {}};
    const auto fault = [&](const std::string& what) {
      Fault(graph, node, what, std::string(kRemedy));
      return std::nullopt;
    };
    if (node.inputs.size() > contract.inputs.size() ||
        node.outputs.size() > contract.outputs.size()) {
      return fault("has more inputs or outputs than the op");
    }
    call.inputs.resize(contract.inputs.size(), kNone);
    call.outputs.resize(contract.outputs.size(), kNone);
    for (size_t i = 0; i < contract.inputs.size(); ++i) {
      const Port& port = contract.inputs[i];
      call.given.push_back(call.inputs[i] != kNone);
      if (!call.given[i] && !port.optional) {
        return fault("lacks the input '" + std::string(port.name) + "'");
      }
      if (!call.given[i]) continue;
      const DType dtype = call.TypeOf(i);
      if (dtype == DType::kUndefined) return std::nullopt;
      const auto [bound, is_new] = call.types.emplace(port.type_symbol, dtype);
      if (!is_new && bound->second != dtype) {
        return fault("has inputs of the dtypes " + std::string(DTypeName(bound->second)) + " and " +
                     std::string(DTypeName(dtype)) + " ('" + std::string(port.name) +
                     "') where they have to have the same one");
      }
    }
    if (call.outputs.empty() || call.outputs[0] == kNone) return fault("gives no result");
    for (const Attribute& attribute : node.attributes) {
      const AttributeSpec* spec = contract.FindAttribute(attribute.name);
      if (spec == nullptr || !HasKind(*spec, attribute.value)) {
        return fault("has an attribute '" + attribute.name + "' that the op does not have so");
      }
      call.attributes[attribute.name] = attribute.value;
    }
    for (const AttributeSpec& spec : contract.attributes) {
      if (!call.attributes.contains(std::string(spec.name))) {
        return fault("lacks the attribute '" + std::string(spec.name) + "'");
      }
    }
    if (op.pair) {
      const auto second = static_cast<size_t>(
          std::find_if(contract.inputs.begin(), contract.inputs.end(),
                       [&](const Port& port) { return port.name == op.pair->second_input; }) -
          contract.inputs.begin());
      call.paired = call.given[second];
    }
    if (!TakeResultTypes(call)) return std::nullopt;
    return call;
  }

  // Notes what the model declares falsely about the results: their dtypes are those of the contract.
  bool TakeResultTypes(const Call& call) {
    for (size_t i = 0; i < call.outputs.size(); ++i) {
      if (call.outputs[i] == kNone) continue;
      const auto bound = call.types.find(std::string(call.op->contract->outputs[i].type_symbol));
      if (bound == call.types.end()) continue;
      const Value& value = call.graph->values[call.outputs[i]];
      if (value.is_output && value.type.dtype != DType::kUndefined &&
          value.type.dtype != bound->second) {
        Fault(*call.graph, *call.node,
              "gives " + std::string(DTypeName(bound->second)) + " for the graph output '" +
                  value.name + "', which is declared as " +
                  std::string(DTypeName(value.type.dtype)),
              std::string(kRemedy));
        return false;
      }
      result_types_[call.graph->index][value.name] = {bound->second, value.type.shape};
    }
    return true;
  }

  // The instances that stand for the call, those with the fewest captures first.
  std::vector<const PatternInstance*> Fitting(const Call& call) const {
    std::vector<std::optional<Shape>> shapes;
    for (const ValueId input : call.inputs) {
      shapes.push_back(input == kNone ? std::nullopt : call.graph->values[input].type.shape);
    }
    std::vector<const PatternInstance*> fitting;
    for (const PatternInstance& instance : *instances_) {
      if (instance.op != call.op || !HasInputs(instance, call) || !HasTypes(instance, call)) {
        continue;
      }
      const bool same =
          std::all_of(instance.attributes.begin(), instance.attributes.end(), [&](const auto& a) {
            const auto given = call.attributes.find(a.first);
            return given != call.attributes.end() && given->second == a.second;
          });
      if (same && GuardEvaluator::DerivesTheSame(instance, shapes, call.attributes)) {
        fitting.push_back(&instance);
      }
    }
    std::stable_sort(fitting.begin(), fitting.end(), [](const auto* a, const auto* b) {
      return a->captures.size() < b->captures.size();
    });
    return fitting;
  }

  // Why the body computes something else than all these instances; empty if it is that of one.
  std::string OtherMeaning(const Call& call, const FunctionBody& body,
                           const std::vector<const PatternInstance*>& fitting) {
    for (const PatternInstance* instance : fitting) {
      // With captures as what they are, and with their numbers: a body may hold a number itself.
      for (const AttributeEnv& env : {instance->attributes, call.attributes}) {
        if (BodyTerms(call, body, env) == TextTerms(call, *instance, env)) return "";
      }
    }
    return "its body computes something else than the op with these dtypes and attributes";
  }

  std::vector<TermId> Variables(const Call& call) {
    std::vector<TermId> variables;
    for (size_t i = 0; i < call.given.size(); ++i) {
      variables.push_back(call.given[i] ? terms_.Variable(static_cast<int>(i), call.TypeOf(i))
                                        : kNone);
    }
    return variables;
  }

  // The terms of the results that the call takes, by position; kNone elsewhere.
  std::vector<TermId> Taken(const Call& call, std::vector<TermId> terms) const {
    terms.resize(call.outputs.size(), kNone);
    for (size_t i = 0; i < terms.size(); ++i) {
      if (call.outputs[i] == kNone) terms[i] = kNone;
    }
    return terms;
  }

  std::vector<TermId> BodyTerms(const Call& call, const FunctionBody& body,
                                const AttributeEnv& env) {
    std::vector<TermId> variables = Variables(call);
    variables.resize(body.graph.inputs.size(), kNone);
    return Taken(call, canonicalizer_.Evaluate(body.graph, variables, env, body.opsets));
  }

  std::vector<TermId> TextTerms(const Call& call, const PatternInstance& instance,
                                const AttributeEnv& env) {
    const OpPattern& op = *call.op;
    std::vector<TermId> variables = Variables(call);
    std::vector<TermId> terms = ops_.Evaluate(canonicalizer_, op, *instance.text, variables, env);
    terms.resize(call.outputs.size(), kNone);
    if (call.paired) {
      const auto position = [](const auto& ports, const std::string& name) {
        return static_cast<size_t>(
            std::find_if(ports.begin(), ports.end(),
                         [&](const Port& port) { return port.name == name; }) -
            ports.begin());
      };
      const size_t first = position(op.contract->inputs, op.pair->input);
      variables[first] = variables[position(op.contract->inputs, op.pair->second_input)];
      terms[position(op.contract->outputs, op.pair->second_output)] =
          ops_.Evaluate(canonicalizer_, op, *instance.text, variables, env)[0];
    }
    return Taken(call, std::move(terms));
  }

  // The error for a call that no instance stands for.
  void NoForm(const Call& call) {
    const OpContract& contract = *call.op->contract;
    std::string shown;
    for (size_t i = 0; i < call.given.size(); ++i) {
      if (!call.given[i]) continue;
      shown += (shown.empty() ? "" : ", ") + std::string(contract.inputs[i].name) + ": " +
               std::string(DTypeName(call.TypeOf(i)));
    }
    shown += contract.attributes.empty() ? "" : "; ";
    for (size_t i = 0; i < contract.attributes.size(); ++i) {
      const AttributeSpec& spec = contract.attributes[i];
      shown += (i > 0 ? ", " : "") + std::string(spec.name) + " = " +
               ValueText(spec, call.attributes.at(std::string(spec.name)));
    }
    std::string hint;
    if (const auto [nearest, differences] = Nearest(call); nearest != nullptr) {
      hint = "the nearest form is " + nearest->Form() + ", with " + differences + "; ";
    }
    Fault(*call.graph, *call.node, "fits no form of the op: " + shown, hint + std::string(kRemedy));
  }

  // The instance with the fewest differences, and those.
  std::pair<const PatternInstance*, std::string> Nearest(const Call& call) const {
    std::pair<const PatternInstance*, std::string> best = {nullptr, ""};
    int fewest = 0;
    for (const PatternInstance& instance : *instances_) {
      if (instance.op != call.op || !HasInputs(instance, call)) continue;
      std::string differences;
      int count = 0;
      const auto differ = [&](const std::string& name, const std::string& has,
                              const std::string& instead) {
        ++count;
        differences +=
            (differences.empty() ? "" : ", ") + name + " " + has + " instead of " + instead;
      };
      for (const TypeBinding& bound : instance.types) {
        const auto given = call.types.find(std::string(bound.symbol));
        if (given == call.types.end() || given->second == bound.dtype) continue;
        for (size_t i = 0; i < call.given.size(); ++i) {
          const Port& port = call.op->contract->inputs[i];
          if (!call.given[i] || port.type_symbol != bound.symbol) continue;
          differ(std::string(port.name), std::string(DTypeName(bound.dtype)),
                 std::string(DTypeName(given->second)));
          break;
        }
      }
      for (const auto& [name, value] : instance.attributes) {
        const Attribute::Value& given = call.attributes.at(name);
        const AttributeSpec& spec = *call.op->contract->FindAttribute(name);
        if (given != value) differ(name, ValueText(spec, value), ValueText(spec, given));
      }
      if (best.first != nullptr && count >= fewest) continue;
      best = {&instance, differences};
      fewest = count;
    }
    return best;
  }

  void Plan(const Call& call, NodeId id, const PatternInstance& instance, std::string why) {
    PlannedNode planned;
    planned.graph = call.graph->index;
    planned.instance = &instance;
    planned.module = std::string(call.op->contract->module);
    planned.name = NameOf(*call.graph, *call.node);
    planned.inputs = call.inputs;
    planned.outputs = call.outputs;
    planned.attributes = call.attributes;
    planned.roots = {call.outputs[0]};
    if (call.paired) planned.roots.push_back(call.outputs.back());
    planned.replaced = {id};
    planned.metadata = call.node->metadata;
    result_.plan.nodes.push_back(std::move(planned));
    result_.stale.push_back({OpName(*call.node), NameOf(*call.graph, *call.node), std::move(why)});
    for (const ValueId output : call.outputs) {
      if (output == kNone) continue;
      const std::string& name = call.graph->values[output].name;
      result_.result_types[call.graph->index][name] = result_types_[call.graph->index][name];
    }
  }

  const GraphModel& model_;
  const FunctionBodies& bodies_;
  const OpPatternSet& ops_;
  const OwnOpNames& own_;
  TermStore terms_;
  Canonicalizer canonicalizer_;
  std::shared_ptr<std::vector<PatternInstance>> instances_;
  std::set<FunctionId> used_;  // by calls that stay
  std::map<int, std::map<std::string, ValueType>> result_types_;
  std::vector<Error> faults_;
  RefreshPlan result_;
};

}  // namespace

Result<RefreshPlan> PlanRefresh(const GraphModel& model, const FunctionBodies& bodies,
                                const OpPatternSet& ops, const LoweringSet& lowerings,
                                const OwnOpNames& own) {
  return RefreshPlanner(model, bodies, ops, lowerings, own).Run();
}

}  // namespace liger
