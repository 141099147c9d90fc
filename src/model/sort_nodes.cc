#include "model/sort_nodes.h"

#include <onnx/onnx_pb.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

namespace liger {
namespace {

using NodeList = google::protobuf::RepeatedPtrField<onnx::NodeProto>;
using Names = std::unordered_set<std::string_view>;

std::string NodeText(const onnx::NodeProto& node) {
  const bool unnamed = node.name().empty() && node.output_size() > 0;
  return node.op_type() + " node '" + (unnamed ? node.output(0) : node.name()) + "'";
}

// What the graph reads and does not define.
void CollectFreeNames(const onnx::GraphProto& graph, std::vector<std::string_view>& free) {
  Names own;
  for (const auto& input : graph.input()) own.insert(input.name());
  for (const auto& tensor : graph.initializer()) own.insert(tensor.name());
  for (const auto& sparse : graph.sparse_initializer()) own.insert(sparse.values().name());
  for (const auto& node : graph.node()) own.insert(node.output().begin(), node.output().end());
  std::vector<std::string_view> reads;
  for (const auto& output : graph.output()) reads.emplace_back(output.name());
  for (const auto& node : graph.node()) {
    reads.insert(reads.end(), node.input().begin(), node.input().end());
    for (const auto& attribute : node.attribute()) {
      if (attribute.has_g()) CollectFreeNames(attribute.g(), reads);
      for (const auto& body : attribute.graphs()) CollectFreeNames(body, reads);
    }
  }
  for (const std::string_view name : reads) {
    if (!own.contains(name)) free.push_back(name);
  }
}

std::vector<std::string_view> Reads(const onnx::NodeProto& node) {
  std::vector<std::string_view> reads(node.input().begin(), node.input().end());
  for (const auto& attribute : node.attribute()) {
    if (attribute.has_g()) CollectFreeNames(attribute.g(), reads);
    for (const auto& body : attribute.graphs()) CollectFreeNames(body, reads);
  }
  return reads;
}

// One list of nodes.
class Sorter {
 public:
  explicit Sorter(NodeList& nodes) : nodes_(nodes) {
    for (int i = 0; i < nodes.size(); ++i) {
      for (const std::string& output : nodes[i].output()) {
        if (!output.empty()) producers_.try_emplace(output, i);
      }
    }
  }

  Result<int64_t> Sort() {
    if (IsInOrder()) return int64_t{0};
    state_.assign(static_cast<size_t>(nodes_.size()), State::kOpen);
    for (int i = 0; i < nodes_.size(); ++i) {
      if (Status status = Emit(i); !status) return std::move(status).error();
    }
    return Reorder();
  }

 private:
  enum class State { kOpen, kEntered, kDone };

  bool IsInOrder() const {
    for (int i = 0; i < nodes_.size(); ++i) {
      for (const std::string_view name : Reads(nodes_[i])) {
        const auto producer = producers_.find(name);
        if (producer != producers_.end() && producer->second >= i) return false;
      }
    }
    return true;
  }

  std::vector<int> Producers(int node) const {
    std::vector<int> result;
    for (const std::string_view name : Reads(nodes_[node])) {
      const auto producer = producers_.find(name);
      if (producer != producers_.end()) result.push_back(producer->second);
    }
    return result;
  }

  // Puts the node into the order, what it needs first.
  Status Emit(int first) {
    struct Entry {
      int node;
      std::vector<int> producers;
      size_t next = 0;
    };
    if (StateOf(first) == State::kDone) return {};
    std::vector<Entry> stack;
    const auto enter = [&](int node) {
      StateOf(node) = State::kEntered;
      stack.push_back({node, Producers(node)});
    };
    enter(first);
    while (!stack.empty()) {
      Entry& top = stack.back();
      if (top.next == top.producers.size()) {
        StateOf(top.node) = State::kDone;
        order_.push_back(top.node);
        stack.pop_back();
        continue;
      }
      const int needed = top.producers[top.next++];
      if (StateOf(needed) == State::kEntered) {
        return Error{ErrorCode::kInvalidModel,
                     "the model's nodes form a cycle: the " + NodeText(nodes_[needed]) +
                         " needs its own result",
                     nodes_[needed].name(), "re-export the model"};
      }
      if (StateOf(needed) == State::kOpen) enter(needed);
    }
    return {};
  }

  int64_t Reorder() {
    std::vector<onnx::NodeProto*> old(static_cast<size_t>(nodes_.size()));
    nodes_.ExtractSubrange(0, nodes_.size(), old.data());
    for (const int index : order_) nodes_.AddAllocated(old[static_cast<size_t>(index)]);
    return CountPulled();
  }

  // Nodes that come before one that stood in front of them.
  int64_t CountPulled() const {
    int64_t pulled = 0;
    int least = static_cast<int>(order_.size());
    for (auto index = order_.rbegin(); index != order_.rend(); ++index) {
      if (*index > least) ++pulled;
      least = std::min(least, *index);
    }
    return pulled;
  }

  State& StateOf(int node) { return state_[static_cast<size_t>(node)]; }

  NodeList& nodes_;
  std::unordered_map<std::string_view, int> producers_;
  std::vector<State> state_;
  std::vector<int> order_;
};

Result<int64_t> SortList(NodeList& nodes) {
  int64_t moved = 0;
  for (onnx::NodeProto& node : nodes) {
    for (onnx::AttributeProto& attribute : *node.mutable_attribute()) {
      std::vector<onnx::GraphProto*> bodies;
      if (attribute.has_g()) bodies.push_back(attribute.mutable_g());
      for (onnx::GraphProto& body : *attribute.mutable_graphs()) bodies.push_back(&body);
      for (onnx::GraphProto* body : bodies) {
        auto inner = SortList(*body->mutable_node());
        if (!inner) return inner;
        moved += *inner;
      }
    }
  }
  auto own = Sorter(nodes).Sort();
  if (!own) return own;
  return moved + *own;
}

}  // namespace

Result<int64_t> SortNodes(onnx::ModelProto& model) {
  auto moved = SortList(*model.mutable_graph()->mutable_node());
  if (!moved) return moved;
  int64_t total = *moved;
  for (onnx::FunctionProto& function : *model.mutable_functions()) {
    auto inner = SortList(*function.mutable_node());
    if (!inner) return inner;
    total += *inner;
  }
  return total;
}

}  // namespace liger
