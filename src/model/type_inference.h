// Types and shapes of all values of a model, as far as they follow from it.
//
//   const onnx::ModelProto typed = InferTypes(model);   // see value_info of its graphs
//
// ONNX's own inference, which is handed what it lacks: rules for operators that it does not know
// (model/contrib_shapes.h) and the values of shapes that a graph computes (model/shape_values.h).
#pragma once

namespace onnx {
class ModelProto;
}

namespace liger {

// A copy of the model without weights whose values have types; graphs, nodes and attributes stand
// as in `model`. What the model itself declares about computed values may be false: it is used only
// where inference does not know, and not where it contradicts what inference knows.
onnx::ModelProto InferTypes(const onnx::ModelProto& model);

}  // namespace liger
