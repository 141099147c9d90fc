// Visits nodes and, through all depths, those in their bodies (If, Loop, Scan).
//
//   ForEachNode(graph.node(), [&](const onnx::NodeProto& node) { ... });
//   ForEachMutableNode(*graph.mutable_node(), [&](onnx::NodeProto& node) { ... });
//
// A node is visited before those in its bodies, and its attributes may be changed by the visit.
#pragma once

#include <onnx/onnx_pb.h>

namespace liger {

using NodeProtos = google::protobuf::RepeatedPtrField<onnx::NodeProto>;

template <typename Visit>
void ForEachNode(const NodeProtos& nodes, const Visit& visit) {
  for (const onnx::NodeProto& node : nodes) {
    visit(node);
    for (const onnx::AttributeProto& attribute : node.attribute()) {
      if (attribute.has_g()) ForEachNode(attribute.g().node(), visit);
      for (const onnx::GraphProto& graph : attribute.graphs()) ForEachNode(graph.node(), visit);
    }
  }
}

template <typename Visit>
void ForEachMutableNode(NodeProtos& nodes, const Visit& visit) {
  for (onnx::NodeProto& node : nodes) {
    visit(node);
    for (onnx::AttributeProto& attribute : *node.mutable_attribute()) {
      if (attribute.has_g()) ForEachMutableNode(*attribute.mutable_g()->mutable_node(), visit);
      for (onnx::GraphProto& graph : *attribute.mutable_graphs()) {
        ForEachMutableNode(*graph.mutable_node(), visit);
      }
    }
  }
}

}  // namespace liger
