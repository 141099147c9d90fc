// Shape inference of the ops: the callbacks behind OrtCustomOp::InferOutputShapeFn.
//
// ONNX Runtime calls the function of the first registered entry for every dtype, and setting a
// shape also sets the element type. So the functions look at no dtype of their own: they pass on
// the description of an input, or one made from it, symbolic dimensions included. Only outputs that
// a node surely has are set: the runtime does not check the index it is given.
#pragma once

#include <onnxruntime_c_api.h>

#include "base/error.h"

namespace liger::ort {

using InferShapes = Status (*)(OrtShapeInferContext* context);

// One output, or two, described like the first input.
Status InferLikeFirst(OrtShapeInferContext* context);
Status InferTwoLikeFirst(OrtShapeInferContext* context);

Status InferRope(OrtShapeInferContext* context);

// The gated activations: like the first input, or half as wide where it is packed.
Status InferGated(OrtShapeInferContext* context);

}  // namespace liger::ort
