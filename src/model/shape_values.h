// What ONNX's data propagation lacks: the values of small integer tensors that a graph computes
// from shapes, so that the shapes made from them are known.
//
//   const onnx::OpSchema* schema = WithShapeValues(*registry->GetSchema("Where", 17, ""));
//
// TorchScript writes `expand` as Where(Equal(shape, -1 * ConstantOfShape(..)), .., shape), slice
// bounds as arithmetic on shapes, and so on. Values are numbers, or the symbol of a dimension where
// that is what the element holds: both run through. Only integers and truth values of at most one
// axis are followed, and what is not known stays unknown.
#pragma once

namespace onnx {
class OpSchema;
}

namespace liger {

// The schema with our rules in place of ONNX's data propagation, or the schema itself where there
// are none. Rules replace ONNX's own where those take a value of several axes for a list, or 7 / 2
// for 3.5. The result lives as long as the program. Safe in several threads.
const onnx::OpSchema* WithShapeValues(const onnx::OpSchema& schema);

}  // namespace liger
