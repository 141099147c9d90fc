#include "model/structure.h"

#include <onnx/onnx_pb.h>

#include <map>
#include <unordered_set>
#include <utility>

namespace liger {
namespace {

using Imports = std::set<std::string_view>;

template <typename OpsetImports>
Imports ImportedDomains(const OpsetImports& opsets) {
  Imports domains;
  for (const onnx::OperatorSetIdProto& opset : opsets) domains.insert(NormalDomain(opset.domain()));
  return domains;
}

class StructureCheck {
 public:
  explicit StructureCheck(const onnx::ModelProto& model) : model_(model) {}

  std::vector<StructuralFault> Run() {
    CheckFunctionTable();
    const Imports imports = ImportedDomains(model_.opset_import());
    CheckGraph(model_.graph(), imports, nullptr);
    for (const onnx::FunctionProto& function : model_.functions()) CheckFunction(function);
    return std::move(faults_);
  }

 private:
  struct Scope {
    std::unordered_set<std::string_view> names;
    const Scope* outer = nullptr;

    bool Has(std::string_view name) const {
      for (const Scope* scope = this; scope != nullptr; scope = scope->outer) {
        if (scope->names.contains(name)) return true;
      }
      return false;
    }
  };

  void Fault(std::string rule, std::string place, std::string text) {
    faults_.push_back({std::move(rule), std::move(place), "", std::move(text)});
  }

  void CheckFunctionTable() {
    for (const onnx::FunctionProto& function : model_.functions()) {
      if (!functions_.emplace(KeyOf(function), &function).second) {
        Fault("duplicate_function", "function " + NameOfFunction(KeyOf(function)),
              "function " + function.domain() + "." + function.name() + ":" + function.overload() +
                  " is defined more than once");
      }
      if (!function.overload().empty() && model_.ir_version() < 10) {
        Fault("ir_version", "function " + NameOfFunction(KeyOf(function)),
              "function overloads need IR version 10");
      }
    }
    if (!model_.functions().empty() && model_.ir_version() < 8) {
      Fault("ir_version", "", "local functions need IR version 8");
    }
  }

  template <typename Nodes>
  static void AddOutputs(const Nodes& nodes, Scope& scope) {
    for (const onnx::NodeProto& node : nodes) {
      for (const std::string& output : node.output()) scope.names.insert(output);
    }
  }

  // Values may stand in any order here: the order of nodes is the checker's business.
  void CheckGraph(const onnx::GraphProto& graph, const Imports& imports, const Scope* outer) {
    Scope scope;
    scope.outer = outer;
    for (const onnx::ValueInfoProto& input : graph.input()) scope.names.insert(input.name());
    for (const onnx::TensorProto& tensor : graph.initializer()) scope.names.insert(tensor.name());
    for (const onnx::SparseTensorProto& sparse : graph.sparse_initializer()) {
      scope.names.insert(sparse.values().name());
    }
    AddOutputs(graph.node(), scope);
    CheckNodes(graph.node(), imports, scope);
    for (const onnx::ValueInfoProto& output : graph.output()) {
      if (!scope.Has(output.name())) {
        Fault("undefined_output", "graph output '" + output.name() + "'",
              "graph output '" + output.name() + "' is not defined");
      }
    }
  }

  void CheckFunction(const onnx::FunctionProto& function) {
    function_ = &function;
    Scope scope;
    for (const std::string& input : function.input()) scope.names.insert(input);
    AddOutputs(function.node(), scope);
    CheckNodes(function.node(), ImportedDomains(function.opset_import()), scope);
    for (const std::string& output : function.output()) {
      if (!scope.Has(output)) {
        Fault("undefined_output", "function " + NameOfFunction(KeyOf(function)),
              "output '" + output + "' of function " + function.domain() + "." + function.name() +
                  " is not defined");
      }
    }
    function_ = nullptr;
  }

  template <typename Nodes>
  void CheckNodes(const Nodes& nodes, const Imports& imports, const Scope& scope) {
    for (const onnx::NodeProto& node : nodes) {
      const auto place = [&] {
        return NodeText(node) +
               (function_ != nullptr ? " in function " + NameOfFunction(KeyOf(*function_)) : "");
      };
      for (const std::string& input : node.input()) {
        if (!input.empty() && !scope.Has(input)) {
          Fault("undefined_value", place(),
                NodeText(node) + " uses '" + input + "', which is not defined");
        }
      }
      if (!imports.contains(NormalDomain(node.domain()))) {
        Fault("missing_opset_import", place(),
              "domain '" + node.domain() + "' is used (" + NodeText(node) + ") but not imported");
        faults_.back().domain = node.domain();
      }
      CheckCall(node, place);
      for (const onnx::AttributeProto& attribute : node.attribute()) {
        CheckReference(node, attribute, place);
        if (attribute.has_g()) CheckGraph(attribute.g(), imports, &scope);
        for (const onnx::GraphProto& graph : attribute.graphs()) {
          CheckGraph(graph, imports, &scope);
        }
      }
    }
  }

  template <typename Place>
  void CheckCall(const onnx::NodeProto& node, const Place& place) {
    const auto found = functions_.find(KeyOfCall(node));
    if (found == functions_.end()) return;
    const onnx::FunctionProto& function = *found->second;
    if (node.input_size() > function.input_size() || node.output_size() > function.output_size()) {
      Fault("call_signature", place(),
            NodeText(node) + " has more inputs or outputs than the function it calls");
    }
    std::unordered_set<std::string_view> allowed;
    for (const std::string& name : function.attribute()) allowed.insert(name);
    for (const auto& attribute : function.attribute_proto()) allowed.insert(attribute.name());
    std::unordered_set<std::string_view> given;
    for (const onnx::AttributeProto& attribute : node.attribute()) {
      given.insert(attribute.name());
      if (!allowed.contains(attribute.name())) {
        Fault("call_signature", place(),
              NodeText(node) + " sets attribute '" + attribute.name() +
                  "', which the function it calls does not have");
      }
    }
    for (const std::string& name : function.attribute()) {
      if (!given.contains(name)) {
        Fault("call_signature", place(),
              NodeText(node) + " does not set attribute '" + name + "' of the function it calls");
      }
    }
  }

  // `attribute = @name` has a meaning in the body of a function that declares `name`.
  template <typename Place>
  void CheckReference(const onnx::NodeProto& node, const onnx::AttributeProto& attribute,
                      const Place& place) {
    const std::string& name = attribute.ref_attr_name();
    if (name.empty()) return;
    bool declared = false;
    if (function_ != nullptr) {
      for (const std::string& known : function_->attribute()) declared |= known == name;
      for (const auto& known : function_->attribute_proto()) declared |= known.name() == name;
    }
    if (declared) return;
    Fault("attribute_reference", place(),
          NodeText(node) + " takes '" + attribute.name() + "' from the attribute '" + name +
              "', which no function around it has");
  }

  const onnx::ModelProto& model_;
  const onnx::FunctionProto* function_ = nullptr;  // in whose body the walk is
  std::map<FunctionKey, const onnx::FunctionProto*> functions_;
  std::vector<StructuralFault> faults_;
};

}  // namespace

std::string_view NormalDomain(std::string_view domain) {
  return domain == "ai.onnx" ? std::string_view() : domain;
}

FunctionKey KeyOf(const onnx::FunctionProto& function) {
  return {NormalDomain(function.domain()), function.name(), function.overload()};
}

FunctionKey KeyOfCall(const onnx::NodeProto& node) {
  return {NormalDomain(node.domain()), node.op_type(), node.overload()};
}

std::string NodeText(const onnx::NodeProto& node) {
  std::string text = node.op_type() + " node '";
  text += !node.name().empty() || node.output().empty() ? node.name() : node.output(0);
  return text + "'";
}

std::string NameOfFunction(const FunctionKey& key) {
  const auto& [domain, name, overload] = key;
  return std::string(domain) + "." + std::string(name) +
         (overload.empty() ? "" : ":" + std::string(overload));
}

void ForEachNodeList(const onnx::ModelProto& model,
                     const std::function<void(const NodeList&)>& visit) {
  std::vector<NodeList> pending;
  NodeList& main = pending.emplace_back();
  main.nodes = &model.graph().node();
  main.graph = &model.graph();
  for (const onnx::FunctionProto& function : model.functions()) {
    NodeList& list = pending.emplace_back();
    list.nodes = &function.node();
    list.function = &function;
    list.place = "function " + NameOfFunction(KeyOf(function));
  }
  for (size_t i = 0; i < pending.size(); ++i) {
    const NodeList list = pending[i];
    visit(list);
    for (int n = 0; n < list.nodes->size(); ++n) {
      const onnx::NodeProto& node = list.nodes->Get(n);
      for (const onnx::AttributeProto& attribute : node.attribute()) {
        const auto add = [&](const onnx::GraphProto& graph) {
          NodeList& body = pending.emplace_back();
          body.nodes = &graph.node();
          body.graph = &graph;
          body.function = list.function;
          body.outer = static_cast<int>(i);
          body.owner = n;
          body.place = attribute.name() + " of " + NodeText(node) +
                       (list.place.empty() ? "" : " in " + list.place);
        };
        if (attribute.has_g()) add(attribute.g());
        for (const onnx::GraphProto& graph : attribute.graphs()) add(graph);
      }
    }
  }
}

std::vector<StructuralFault> FindStructuralFaults(const onnx::ModelProto& model) {
  return StructureCheck(model).Run();
}

}  // namespace liger
