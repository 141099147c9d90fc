// Whether a rewritten model is still a valid model with the interface it had, and the copy without
// weights on which that is found out.
//
//   Result<CheckReport> checked = CheckModel(original, rewritten);
//   if (!checked) return checked.error();          // kInternal: the rewrite is at fault
//   for (const std::string& note : checked->notes) ...
//
// No payload is copied, no data file is looked at. Faults the original has as well (models
// optimised by ONNX Runtime do not pass ONNX's checker, for instance) are notes, never errors.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"

namespace onnx {
class ModelProto;
class TypeProto;
}  // namespace onnx

namespace liger {

// Integer tensors up to this size are kept by StripWeights whatever its limit: shapes, axes,
// indices and slice bounds, whose values shape inference reads.
inline constexpr int64_t kKeepIntegerBytes = 4096;

// A copy in which each inline tensor of more than `keep_bytes` bytes, and each external one, has
// lost its payload: name, dtype and dims remain. What is dropped is never copied on the way. An
// integer initializer that lost its payload becomes a value_info, since inference would take it for
// a constant and fail on reading it. Everything else is as in `model`.
onnx::ModelProto StripWeights(const onnx::ModelProto& model, int64_t keep_bytes);

struct CheckOptions {
  enum class Inference {
    kOff,
    kReport,   // what strict shape inference finds is a note
    kRequire,  // is an Error, if the original has no such fault
  };
  Inference inference = Inference::kRequire;
  bool data_propagation = true;
};

struct CheckReport {
  std::vector<std::string> notes;
};

// Checks `rewritten`. `original` may be a copy by StripWeights, so that it can be kept while the
// model itself is changed in place:
// - graph inputs and outputs have the names, order, dtypes and shapes of `original`;
// - every value that is used is defined, every domain that is used is imported (functions
//   included), calls of local functions fit their signatures, the IR version allows functions and
//   overloads;
// - ONNX's checker accepts it;
// - shape inference, strict and through local functions, accepts it, and values that both models
//   have do not change their dtype or contradict their shape.
// An Error (kInternal) names the first fault.
Result<CheckReport> CheckModel(const onnx::ModelProto& original, const onnx::ModelProto& rewritten,
                               const CheckOptions& options = {});

// What ONNX's checker, and its strict shape inference, say against a model, on one line; nothing if
// they accept it. On copies without weights, as above; inference is not told what the main graph
// declares about computed values.
std::optional<std::string> CheckerVerdict(const onnx::ModelProto& model);
std::optional<std::string> InferenceVerdict(const onnx::ModelProto& model);

// "FLOAT16[N,4,?]"
std::string TypeText(const onnx::TypeProto& type);
// No value can have both types.
bool Contradicts(const onnx::TypeProto& a, const onnx::TypeProto& b);

// The first of the checks of CheckModel alone.
Status CheckInterfaceUnchanged(const onnx::ModelProto& original, const onnx::ModelProto& rewritten);

}  // namespace liger
