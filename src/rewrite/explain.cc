#include "rewrite/explain.h"

#include <fnmatch.h>

#include <algorithm>
#include <cstdio>
#include <deque>
#include <set>

#include "family/module_glob.h"
#include "family/module_path.h"

namespace liger {
namespace {

// Lines of one place, at most.
constexpr size_t kMaxLines = 32;
// Places that one glob shows, at most.
constexpr size_t kMaxPlaces = 4;
// Steps from the root where nothing says what belongs together.
constexpr int kMaxSteps = 7;
// Constants up to this size are shown by value.
constexpr int64_t kShownBytes = 32;

std::string TypeText(const ValueType& type) {
  if (type.dtype == DType::kUndefined) return "?";
  return std::string(DTypeName(type.dtype)) + (type.shape ? ToString(type.shape) : "[?]");
}

std::string Number(double value) {
  char buffer[32];
  std::snprintf(buffer, sizeof(buffer), "%.9g", value);
  return buffer;
}

std::string Elements(const Tensor& tensor) {
  std::string text;
  for (const double value : tensor.floats) text += (text.empty() ? "" : ", ") + Number(value);
  for (const int64_t value : tensor.ints) {
    text += (text.empty() ? "" : ", ") + std::to_string(value);
  }
  return tensor.dims.empty() ? text : "[" + text + "]";
}

class Describer {
 public:
  Describer(const GraphModel& model, const Graph& graph) : model_(model), graph_(graph) {}

  std::string Line(NodeId id) const {
    const Node& node = graph_.nodes[id];
    std::string line = NameOf(node) + ": " + (node.domain.empty() ? "" : node.domain + ".") +
                       node.op_type + Attributes(node) + "(";
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      line += (i > 0 ? ", " : "") + Operand(node.inputs[i]);
    }
    line += ")";
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      if (node.outputs[i] == kNone) continue;
      line += (i == 0 ? " -> " : ", ") + TypeText(graph_.values[node.outputs[i]].type);
    }
    return line;
  }

 private:
  std::string NameOf(const Node& node) const {
    if (!node.name.empty() || node.outputs.empty() || node.outputs[0] == kNone) return node.name;
    return graph_.values[node.outputs[0]].name;
  }

  static std::string Attributes(const Node& node) {
    std::string text;
    for (const Attribute& attribute : node.attributes) {
      std::string value = AttributeText(attribute.value);
      if (std::holds_alternative<std::string>(attribute.value)) value = '"' + value + '"';
      if (const auto* t = std::get_if<Tensor>(&attribute.value)) {
        value = static_cast<size_t>(t->size()) == t->floats.size() + t->ints.size() ? Elements(*t)
                                                                                    : "tensor";
      }
      if (const auto* list = std::get_if<std::vector<int64_t>>(&attribute.value)) {
        value = Elements({DType::kI64, {static_cast<int64_t>(list->size())}, {}, *list});
      }
      if (value.empty()) continue;
      text += (text.empty() ? "" : ", ") + attribute.name + "=" + value;
    }
    return text.empty() ? "" : "<" + text + ">";
  }

  std::string Operand(ValueId value) const {
    if (value == kNone) return "-";
    const Value& v = graph_.values[value];
    const Node* producer = v.producer == kNone ? nullptr : &graph_.nodes[v.producer];
    if (v.is_constant_initializer() || (producer != nullptr && producer->op_type == "Constant")) {
      // What is stored outside of the file stays there.
      if (const auto tensor = model_.constants->ReadInline(graph_, value, kShownBytes)) {
        return Elements(*tensor) + ": " + std::string(DTypeName(tensor->dtype));
      }
      return v.name + ": " + TypeText(v.type);
    }
    if (v.is_input || v.is_initializer) return v.name + ": " + TypeText(v.type);
    return producer != nullptr ? NameOf(*producer) : v.name;
  }

  const GraphModel& model_;
  const Graph& graph_;
};

}  // namespace

std::vector<std::string> ChainOf(const GraphModel& model, const Graph& graph, ValueId root) {
  std::vector<std::string> lines;
  const Describer describe(model, graph);
  if (root == kNone || graph.values[root].producer == kNone) return lines;
  const std::string module = ModulePathOf(graph.nodes[graph.values[root].producer]);
  std::deque<std::pair<NodeId, int>> work = {{graph.values[root].producer, 0}};
  std::set<NodeId> seen = {graph.values[root].producer};
  std::vector<NodeId> nodes;
  while (!work.empty() && nodes.size() < kMaxLines) {
    const auto [id, steps] = work.front();
    work.pop_front();
    nodes.push_back(id);
    for (const ValueId input : graph.nodes[id].inputs) {
      const NodeId producer = input == kNone ? kNone : graph.values[input].producer;
      if (producer == kNone || graph.nodes[producer].op_type == "Constant") continue;
      const bool belongs = module.empty() ? steps + 1 < kMaxSteps
                                          : IsInModule(ModulePathOf(graph.nodes[producer]), module);
      if (belongs && seen.insert(producer).second) work.emplace_back(producer, steps + 1);
    }
  }
  std::sort(nodes.rbegin(), nodes.rend());
  for (const NodeId id : nodes) lines.push_back(describe.Line(id));
  return lines;
}

std::vector<std::string> NodesOfModule(const GraphModel& model, const Graph& graph,
                                       const std::string& path) {
  std::vector<std::string> lines;
  const Describer describe(model, graph);
  for (size_t i = graph.nodes.size(); i-- > 0;) {
    const Node& node = graph.nodes[i];
    if (node.op_type == "Constant" || !IsInModule(ModulePathOf(node), path)) continue;
    if (lines.size() == kMaxLines) {
      lines.emplace_back("... and more nodes in front of these");
      break;
    }
    lines.push_back(describe.Line(static_cast<NodeId>(i)));
  }
  return lines;
}

std::vector<DescribedPlace> DescribePlaces(const GraphModel& model, const std::string& glob) {
  std::vector<DescribedPlace> places;
  const auto add = [&](const std::string& place, std::vector<std::string> nodes) {
    if (places.size() < kMaxPlaces) places.push_back({place, std::move(nodes)});
  };
  const ModuleGlob modules(glob);
  for (const Graph& graph : model.graphs) {
    std::set<std::string> seen;
    for (const Node& node : graph.nodes) {
      for (const ModuleScope& scope : ModuleScopesOf(node).scopes) {
        if (!modules.Matches(scope.path)) continue;
        if (seen.insert(scope.path).second) {
          add(scope.path, NodesOfModule(model, graph, scope.path));
        }
        break;  // what lies inside is shown with it
      }
    }
  }
  if (!places.empty()) return places;
  for (const Graph& graph : model.graphs) {
    for (const Node& node : graph.nodes) {
      const bool named = !node.name.empty() && fnmatch(glob.c_str(), node.name.c_str(), 0) == 0;
      if (named && !node.outputs.empty()) add(node.name, ChainOf(model, graph, node.outputs[0]));
    }
  }
  return places;
}

bool ExplainFilter::Takes(const std::string& module, const std::string& path,
                          const std::string& node) const {
  return glob.empty() || glob == module || (!path.empty() && ModuleGlob(glob).Covers(path)) ||
         (!node.empty() && fnmatch(glob.c_str(), node.c_str(), 0) == 0);
}

}  // namespace liger
