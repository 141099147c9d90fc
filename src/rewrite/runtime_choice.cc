#include "rewrite/runtime_choice.h"

#include <algorithm>
#include <string_view>
#include <unordered_set>
#include <vector>

namespace liger {
namespace {

const Node* ProducerOf(const Graph& graph, ValueId value) {
  const NodeId producer = value == kNone ? kNone : graph.values[value].producer;
  return producer == kNone ? nullptr : &graph.nodes[producer];
}

bool IsView(const Node& node) {
  for (const std::string_view type : {"Reshape", "Transpose", "Identity", "Squeeze", "Unsqueeze"}) {
    if (node.domain.empty() && node.op_type == type) return true;
  }
  return false;
}

// Whether `value` is a query or a key of a GroupQueryAttention, at most reshaped and rotated on the
// way.
bool FeedsGroupQueryAttention(const Graph& graph, ValueId value) {
  std::vector<ValueId> work = {value};
  std::unordered_set<ValueId> seen;
  while (!work.empty()) {
    const ValueId at = work.back();
    work.pop_back();
    if (at == kNone || !seen.insert(at).second) continue;
    for (const NodeId user : graph.values[at].users) {
      const Node& node = graph.nodes[user];
      const auto reads = [&](size_t input) {
        return input < node.inputs.size() && node.inputs[input] == at;
      };
      if (node.op_type == "GroupQueryAttention" && (reads(0) || reads(1))) return true;
      const bool passes_on = IsView(node) || node.op_type == "RotaryEmbedding";
      if (passes_on && reads(0) && !node.outputs.empty()) work.push_back(node.outputs[0]);
    }
  }
  return false;
}

// An Add of two tensors of one shape, used once: what becomes a SkipLayerNormalization.
bool IsLoneResidual(const Graph& graph, ValueId value) {
  const Node* add = ProducerOf(graph, value);
  if (add == nullptr || !add->domain.empty() || add->op_type != "Add") return false;
  const Value& sum = graph.values[value];
  if (sum.users.size() != 1 || sum.is_output) return false;
  return std::none_of(add->inputs.begin(), add->inputs.end(), [&](ValueId input) {
    return input == kNone || graph.values[input].is_initializer;
  });
}

}  // namespace

std::string LeftToRuntime(const Graph& graph, const Candidate& candidate) {
  const std::string_view op = candidate.instance->op->contract->op_type;
  if (op == "LigerRope") {
    const Node* root = ProducerOf(graph, candidate.root);
    if (root != nullptr && root->op_type == "RotaryEmbedding" &&
        FeedsGroupQueryAttention(graph, candidate.root)) {
      return "it feeds a GroupQueryAttention, into which ONNX Runtime's CUDA provider takes a "
             "RotaryEmbedding";
    }
  }
  if (op == "LigerRMSNorm" && FeedsGroupQueryAttention(graph, candidate.root)) {
    return "it normalises queries or keys of a GroupQueryAttention, into which ONNX Runtime's CUDA "
           "provider takes such a norm";
  }
  if (op == "LigerLayerNorm" && IsLoneResidual(graph, candidate.inputs[0])) {
    return "it follows an addition that nothing else reads: ONNX Runtime makes one "
           "SkipLayerNormalization of the two";
  }
  return "";
}

}  // namespace liger
