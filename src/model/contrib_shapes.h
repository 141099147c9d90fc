// Types and shapes of operators that ONNX has no schema for: those of ONNX Runtime and our own.
//
//   const onnx::OpSchema* schema = FindContribSchema("com.microsoft", "SkipLayerNormalization");
//   if (schema != nullptr) schema->GetTypeAndShapeInferenceFunction()(context);
//
// The schemas hold nothing but the rule. They are in no registry, so that ONNX's checker judges
// models as it always does; inference is handed them (model/type_inference.h). A rule says only
// what follows from the operator's contract: a dimension that does not follow stays open.
#pragma once

#include <string_view>

namespace onnx {
class OpSchema;
}

namespace liger {

// Null if there is no rule. `domain` is "" for the default domain, in which ONNX Runtime keeps some
// of its own operators. The schema lives as long as the program.
const onnx::OpSchema* FindContribSchema(std::string_view domain, std::string_view op_type);

}  // namespace liger
