// Calls of fused ops whose operands no longer have the dtypes that the function body was made for.
//
//   for (const std::string& drift : FindDTypeDrift(file.proto, model)) warn(drift);
//
// Bodies are specialised: their constants and Casts name dtypes. A tool that converts a patched
// model to another precision changes what stands around the calls and leaves the bodies, and a
// runtime without our kernels then refuses the file or computes something else. Dtypes are followed
// through each body by ONNX's own schemas; operands of unknown dtype are taken to fit.
#pragma once

#include <string>
#include <vector>

#include "model/graph.h"

namespace onnx {
class FunctionProto;
class ModelProto;
}  // namespace onnx

namespace liger {

// Why a body does not fit operands and results of these dtypes (kUndefined fits everything), as in
// "gives f32 for 'y', where the graph has f16"; empty if it does.
std::string BodyMisfit(const onnx::FunctionProto& function, const std::vector<DType>& operands,
                       const std::vector<DType>& results);

// One sentence for each function and set of operand dtypes, naming the first call. `graph` is what
// BuildGraphModel made of `model`.
std::vector<std::string> FindDTypeDrift(const onnx::ModelProto& model, const GraphModel& graph);

}  // namespace liger
