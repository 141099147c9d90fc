#include <onnx/checker.h>
#include <onnx/onnx_pb.h>

#include <set>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "model/check.h"
#include "model/lint_rules.h"
#include "model/sort_nodes.h"
#include "model/structure.h"

namespace liger {
namespace {

// --- Names of one graph or function, and how it hangs in the others -----------------------------

struct Scope {
  int outer = -1;
  int owner = -1;
  // Where a name is defined: the position of its node, -1 for inputs and initializers.
  std::unordered_map<std::string_view, int> defined;
};

class NameLint {
 public:
  NameLint(const onnx::ModelProto& model, LintFindings& findings)
      : model_(model), findings_(findings) {}

  void Run() {
    CollectUsedNames();
    ForEachNodeList(model_, [&](const NodeList& list) { Visit(list); });
    if (out_of_order_) CheckCycles();
  }

 private:
  void CollectUsedNames() {
    ForEachNodeList(model_, [&](const NodeList& list) {
      if (list.graph != nullptr) {
        for (const onnx::ValueInfoProto& output : list.graph->output()) used_.insert(output.name());
      }
      for (const onnx::NodeProto& node : *list.nodes) {
        used_.insert(node.input().begin(), node.input().end());
      }
    });
  }

  void Visit(const NodeList& list) {
    const auto index = static_cast<int>(scopes_.size());
    Scope& scope = scopes_.emplace_back();
    scope.outer = list.outer;
    scope.owner = list.owner;
    const std::string where = list.place.empty() ? "" : " in " + list.place;
    if (list.graph != nullptr) {
      DefineInputs(*list.graph, where, index);
    } else {
      for (const std::string& input : list.function->input()) {
        Define(input, -1, "input '" + input + "'" + where, index);
      }
    }
    DefineOutputs(list, where, index);
    CheckOrder(list, where, index);
    if (list.graph != nullptr) CheckValueInfo(*list.graph, where, index);
  }

  void Define(const std::string& name, int position, const std::string& place, int index) {
    if (name.empty()) return;
    if (!scopes_[index].defined.emplace(name, position).second) {
      findings_.Add("duplicate_value", place, "the value '" + name + "' is defined twice",
                    "rename one of the two, or save the model with the tool that made it again");
      return;
    }
    for (int outer = scopes_[index].outer; outer != -1; outer = scopes_[outer].outer) {
      if (!scopes_[outer].defined.contains(name)) continue;
      findings_.Add("shadowed_value", place,
                    "the value '" + name + "' has the name of a value around the body",
                    "rename it: ONNX does not allow it, and tools take the one for the other");
      return;
    }
  }

  void DefineInputs(const onnx::GraphProto& graph, const std::string& where, int index) {
    for (const onnx::ValueInfoProto& input : graph.input()) {
      Define(input.name(), -1, "graph input '" + input.name() + "'" + where, index);
    }
    std::unordered_set<std::string_view> inputs;
    for (const onnx::ValueInfoProto& input : graph.input()) inputs.insert(input.name());
    std::unordered_set<std::string_view> initializers;
    const auto add = [&](const std::string& name) {
      const std::string place = "initializer '" + name + "'" + where;
      if (!initializers.insert(name).second) {
        findings_.Add("duplicate_value", place, "the initializer '" + name + "' stands twice",
                      "remove one of the two");
      } else if (!inputs.contains(name)) {
        Define(name, -1, place, index);
      }
      if (!used_.contains(name)) {
        findings_.Add("unused_initializer", place, "nothing uses the initializer '" + name + "'",
                      "remove it: it is loaded for nothing");
      }
    };
    for (const onnx::TensorProto& tensor : graph.initializer()) add(tensor.name());
    for (const auto& sparse : graph.sparse_initializer()) add(sparse.values().name());
  }

  void DefineOutputs(const NodeList& list, const std::string& where, int index) {
    std::unordered_map<std::string_view, int> names;
    for (int n = 0; n < list.nodes->size(); ++n) {
      const onnx::NodeProto& node = list.nodes->Get(n);
      for (const std::string& output : node.output()) {
        Define(output, n, NodeText(node) + where, index);
      }
      if (!node.name().empty() && ++names[node.name()] == 2) {
        findings_.Add("duplicate_node_name", NodeText(node) + where,
                      "the name '" + node.name() + "' is that of an earlier node as well",
                      "give each node its own name: reports, profiles and quantisation lists go by "
                      "it");
      }
    }
  }

  // A node may use what stands in front of it; a body what stands in front of its node.
  void CheckOrder(const NodeList& list, const std::string& where, int index) {
    int64_t count = 0;
    std::string first;
    std::string value;
    for (int n = 0; n < list.nodes->size(); ++n) {
      const onnx::NodeProto& node = list.nodes->Get(n);
      for (const std::string& input : node.input()) {
        if (!IsBehind(input, n, index)) continue;
        if (count++ == 0) {
          first = NodeText(node) + where;
          value = input;
        }
        break;
      }
    }
    if (count == 0) return;
    out_of_order_ = true;
    findings_.Add("node_order", first,
                  "it uses '" + value + "', which is computed behind it" +
                      (count > 1 ? " (and " + std::to_string(count - 1) + " more such nodes)" : ""),
                  "sort the nodes: ONNX demands it, though some runtimes do it themselves");
  }

  bool IsBehind(const std::string& name, int position, int index) const {
    if (name.empty()) return false;
    while (index != -1) {
      const auto found = scopes_[index].defined.find(name);
      if (found != scopes_[index].defined.end()) return found->second >= position;
      position = scopes_[index].owner;
      index = scopes_[index].outer;
    }
    return false;
  }

  void CheckValueInfo(const onnx::GraphProto& graph, const std::string& where, int index) {
    int64_t count = 0;
    std::string first;
    for (const onnx::ValueInfoProto& value : graph.value_info()) {
      if (scopes_[index].defined.contains(value.name())) continue;
      if (count++ == 0) first = value.name();
    }
    if (count == 0) return;
    findings_.Add("stale_value_info", "value_info '" + first + "'" + where,
                  "it describes a value that does not exist" +
                      (count > 1 ? " (and " + std::to_string(count - 1) + " more such entries)"
                                 : std::string()),
                  "remove it: the tool that removed the value left it");
  }

  void CheckCycles() {
    onnx::ModelProto copy = StripWeights(model_, 0);
    const auto moved = SortNodes(copy);
    if (moved) return;
    findings_.Add("cycle", moved.error().location, moved.error().message, moved.error().hint);
  }

  const onnx::ModelProto& model_;
  LintFindings& findings_;
  std::vector<Scope> scopes_;
  std::unordered_set<std::string_view> used_;
  bool out_of_order_ = false;
};

// --- Faults of the whole --------------------------------------------------------------------------

std::string_view HintFor(std::string_view rule) {
  if (rule == "undefined_value" || rule == "undefined_output") {
    return "a tool has removed what computes it: go back to the model before that tool";
  }
  if (rule == "call_signature") {
    return "the function was changed after the call was made: patch or export the original again";
  }
  if (rule == "duplicate_function") return "remove one of the two, if they are the same";
  if (rule == "ir_version") return "raise ir_version when saving the model";
  return "set the attribute itself: only functions can pass theirs on";
}

void ReportFaults(const onnx::ModelProto& model, LintFindings& findings) {
  std::map<std::string, std::pair<std::string, int64_t>> imports;  // domain, first place, nodes
  for (const StructuralFault& fault : FindStructuralFaults(model)) {
    if (fault.rule != "missing_opset_import") {
      findings.Add(fault.rule, fault.place, fault.message, std::string(HintFor(fault.rule)));
      continue;
    }
    auto& [place, count] = imports[fault.domain];
    if (count++ == 0) place = fault.place;
  }
  for (const auto& [domain, where] : imports) {
    const auto& [place, count] = where;
    findings.Add("missing_opset_import", place,
                 (domain.empty() ? "the default operator set" : "domain '" + domain + "'") +
                     " is used (" + std::to_string(count) + (count == 1 ? " node" : " nodes") +
                     ") but not imported",
                 place.find(" in function ") != std::string::npos
                     ? "add it to the opset_import of the function"
                     : "add it to the opset_import of the model");
  }
}

void CheckFunctions(const onnx::ModelProto& model, LintFindings& findings) {
  std::set<FunctionKey> called;
  ForEachNodeList(model, [&](const NodeList& list) {
    for (const onnx::NodeProto& node : *list.nodes) called.insert(KeyOfCall(node));
  });
  for (const onnx::FunctionProto& function : model.functions()) {
    const FunctionKey key = KeyOf(function);
    if (called.contains(key)) continue;
    findings.Add("unused_function", "function " + NameOfFunction(key), "nothing calls the function",
                 "remove it");
  }
  try {
    onnx::checker::check_function_call_cycles(model);
  } catch (const std::exception& e) {
    findings.Add("recursive_function", "", e.what(), "a function cannot call itself");
  }
}

}  // namespace

void LintStructure(const onnx::ModelProto& model, LintFindings& findings) {
  ReportFaults(model, findings);
  NameLint(model, findings).Run();
  CheckFunctions(model, findings);
}

}  // namespace liger
