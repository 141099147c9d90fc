// A part of a model as a model of its own: a few nodes and what surrounds them.
//
//   std::optional<onnx::ModelProto> part = CutWindow(WithTypes(model), {"/mlp/Mul"}, {.above = 3, .below = 1});
//
// What the part reads from outside becomes graph inputs, what is read outside graph outputs, so that
// the same values are live as in the whole. Inputs are floats: whatever computes indices and shapes
// comes along. Nodes keep names and metadata. Nothing if the part gets too large or a type is unknown.
#pragma once

#include <onnx/onnx_pb.h>

#include <optional>
#include <set>
#include <string>

namespace liger::test {

struct WindowSize {
  int above = 3;  // nodes on a way up
  int below = 1;  // nodes on a way down
  int max_nodes = 90;
};

// The model with all types that shape inference knows.
onnx::ModelProto WithTypes(onnx::ModelProto model);

std::optional<onnx::ModelProto> CutWindow(const onnx::ModelProto& typed,
                                          const std::set<std::string>& nodes,
                                          const WindowSize& size);

}  // namespace liger::test
