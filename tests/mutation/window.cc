#include "window.h"

#include <onnx/defs/schema.h>
#include <onnx/shape_inference/implementation.h>

#include <algorithm>
#include <deque>
#include <map>
#include <vector>

namespace liger::test {
namespace {

using onnx::GraphProto;
using onnx::NodeProto;
using onnx::TensorProto;

// Everything that a node reads, with what its bodies may capture.
std::set<std::string> ReadBy(const NodeProto& node) {
  std::set<std::string> names;
  std::deque<const NodeProto*> open = {&node};
  while (!open.empty()) {
    const NodeProto& next = *open.front();
    open.pop_front();
    names.insert(next.input().begin(), next.input().end());
    for (const auto& attribute : next.attribute()) {
      if (!attribute.has_g()) continue;
      for (const auto& inner : attribute.g().node()) open.push_back(&inner);
      for (const auto& output : attribute.g().output()) names.insert(output.name());
    }
  }
  names.erase("");
  return names;
}

class Window {
 public:
  explicit Window(const onnx::ModelProto& typed) : model_(typed), graph_(typed.graph()) {
    for (int i = 0; i < graph_.node_size(); ++i) {
      reads_.push_back(ReadBy(graph_.node(i)));
      for (const std::string& output : graph_.node(i).output()) {
        if (!output.empty()) producer_[output] = i;
      }
      for (const std::string& input : reads_.back()) users_[input].push_back(i);
    }
    for (const auto* infos : {&graph_.value_info(), &graph_.input(), &graph_.output()}) {
      for (const auto& info : *infos) types_[info.name()] = &info;
    }
  }

  std::optional<onnx::ModelProto> Cut(const std::set<std::string>& nodes, const WindowSize& size) {
    std::set<int> core;
    for (int i = 0; i < graph_.node_size(); ++i) {
      if (nodes.contains(graph_.node(i).name())) core.insert(i);
    }
    if (core.empty()) return std::nullopt;
    kept_ = core;
    Grow(core, size.below, /*down=*/true);
    Grow(core, size.above, /*down=*/false);
    if (!Close(size.max_nodes)) return std::nullopt;
    return Build();
  }

 private:
  void Grow(std::set<int> front, int steps, bool down) {
    for (int step = 0; step < steps; ++step) {
      std::set<int> next;
      for (int i : front) {
        if (down) {
          for (const std::string& output : graph_.node(i).output()) {
            const auto found = users_.find(output);
            if (found != users_.end()) next.insert(found->second.begin(), found->second.end());
          }
        } else {
          for (const std::string& input : reads_[i]) {
            const auto found = producer_.find(input);
            if (found != producer_.end()) next.insert(found->second);
          }
        }
      }
      kept_.insert(next.begin(), next.end());
      front = std::move(next);
    }
  }

  // Whether a value may become a graph input.
  bool CanBeInput(const std::string& value) const {
    const auto found = types_.find(value);
    if (found == types_.end() || !found->second->type().has_tensor_type()) return false;
    const auto& type = found->second->type().tensor_type();
    const int32_t dtype = type.elem_type();
    return type.has_shape() && type.shape().dim_size() > 0 &&
           (dtype == TensorProto::FLOAT || dtype == TensorProto::FLOAT16);
  }

  bool Close(int max_nodes) {
    std::deque<int> open(kept_.begin(), kept_.end());
    while (!open.empty()) {
      const int i = open.front();
      open.pop_front();
      for (const std::string& input : reads_[i]) {
        const auto found = producer_.find(input);
        if (found == producer_.end() || kept_.contains(found->second)) continue;
        const bool constant = graph_.node(found->second).op_type() == "Constant";
        if (!constant && CanBeInput(input)) continue;
        kept_.insert(found->second);
        open.push_back(found->second);
      }
      if (static_cast<int>(kept_.size()) > max_nodes) return false;
    }
    return true;
  }

  std::optional<onnx::ModelProto> Build() const {
    onnx::ModelProto part = model_;
    GraphProto& graph = *part.mutable_graph();
    for (auto* infos :
         {graph.mutable_input(), graph.mutable_output(), graph.mutable_value_info()}) {
      infos->Clear();
    }
    graph.clear_node();
    graph.clear_initializer();
    std::set<std::string> made;
    std::set<std::string> read;
    for (int i : kept_) {
      *graph.add_node() = graph_.node(i);
      read.insert(reads_[i].begin(), reads_[i].end());
      made.insert(graph_.node(i).output().begin(), graph_.node(i).output().end());
    }
    std::set<std::string> constants;
    for (const auto& initializer : graph_.initializer()) {
      if (!read.contains(initializer.name())) continue;
      *graph.add_initializer() = initializer;
      constants.insert(initializer.name());
    }
    std::set<std::string> declared;
    for (const auto& output : graph_.output()) declared.insert(output.name());
    for (int i : kept_) {
      for (const std::string& input : reads_[i]) {
        const auto found = types_.find(input);
        if (made.contains(input) || constants.contains(input) || found == types_.end()) continue;
        if (!made.insert(input).second) continue;
        *graph.add_input() = *found->second;
      }
      for (const std::string& output : graph_.node(i).output()) {
        if (output.empty()) continue;
        const auto type = types_.find(output);
        const auto found = users_.find(output);
        const bool unread = found == users_.end();
        const bool outside =
            !unread && std::any_of(found->second.begin(), found->second.end(),
                                   [&](int user) { return !kept_.contains(user); });
        const bool constant = graph_.node(i).op_type() == "Constant";
        if (type == types_.end()) {
          if (outside && !constant) return std::nullopt;
          continue;
        }
        const bool result = declared.contains(output) || (!constant && (unread || outside));
        *(result ? graph.add_output() : graph.add_value_info()) = *type->second;
      }
    }
    if (graph.output_size() == 0) return std::nullopt;
    return part;
  }

  const onnx::ModelProto& model_;
  const GraphProto& graph_;
  std::vector<std::set<std::string>> reads_;
  std::map<std::string, int> producer_;
  std::map<std::string, std::vector<int>> users_;
  std::map<std::string, const onnx::ValueInfoProto*> types_;
  std::set<int> kept_;
};

}  // namespace

onnx::ModelProto WithTypes(onnx::ModelProto model) {
  try {
    onnx::shape_inference::InferShapes(model, onnx::OpSchemaRegistry::Instance(),
                                       onnx::ShapeInferenceOptions(false, 0, true));
  } catch (const std::exception&) {
    // What was declared is all that is known.
  }
  return model;
}

std::optional<onnx::ModelProto> CutWindow(const onnx::ModelProto& typed,
                                          const std::set<std::string>& nodes,
                                          const WindowSize& size) {
  return Window(typed).Cut(nodes, size);
}

}  // namespace liger::test
