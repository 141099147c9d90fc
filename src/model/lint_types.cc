#include <onnx/onnx_pb.h>

#include <unordered_map>

#include "model/check.h"
#include "model/dtype_drift.h"
#include "model/lint_rules.h"
#include "model/onnx_graph.h"
#include "model/type_inference.h"

namespace liger {
namespace {

using Severity = LintFinding::Severity;

// Payloads up to this size stay in the copy whose types are inferred: they may be shapes or axes.
constexpr int64_t kKeepBytes = 1024;

bool HasOtherDType(const onnx::TypeProto& a, const onnx::TypeProto& b) {
  return a.has_tensor_type() && b.has_tensor_type() &&
         a.tensor_type().elem_type() != b.tensor_type().elem_type();
}

// Declarations of computed values of the main graph that cannot be true.
void CompareDeclared(const onnx::ModelProto& model, LintFindings& findings) {
  onnx::ModelProto without_outputs = StripWeights(model, kKeepBytes);
  for (onnx::ValueInfoProto& output : *without_outputs.mutable_graph()->mutable_output()) {
    output.clear_type();
  }
  const onnx::ModelProto inferred = InferTypes(without_outputs);
  std::unordered_map<std::string_view, const onnx::TypeProto*> types;
  for (const auto* values : {&inferred.graph().value_info(), &inferred.graph().output()}) {
    for (const onnx::ValueInfoProto& value : *values) types[value.name()] = &value.type();
  }
  const auto compare = [&](const onnx::ValueInfoProto& value, bool is_output) {
    const auto found = types.find(value.name());
    if (found == types.end() || !Contradicts(value.type(), *found->second)) return;
    // ONNX Runtime corrects a false shape with a warning; a false dtype it refuses.
    const bool fatal = is_output && HasOtherDType(value.type(), *found->second);
    findings.Add("declared_type", fatal ? Severity::kWarning : Severity::kNote,
                 (is_output ? "graph output '" : "value '") + value.name() + "'",
                 "it is declared as " + TypeText(value.type()) + ", but computed as " +
                     TypeText(*found->second),
                 "correct or remove the declaration");
  };
  for (const onnx::ValueInfoProto& value : model.graph().value_info()) compare(value, false);
  for (const onnx::ValueInfoProto& value : model.graph().output()) compare(value, true);
}

}  // namespace

void LintTypes(const onnx::ModelProto& model, const LintContext& context, LintFindings& findings) {
  // What inference and the checker say of a model that is broken says nothing new.
  if (findings.has_errors()) return;
  const bool is_explained = findings.Has("contrib_op_in_default_domain") ||
                            findings.Has("node_order") || findings.Has("shadowed_value") ||
                            findings.Has("duplicate_opset_import");
  if (!is_explained) {
    if (const auto verdict = CheckerVerdict(model)) {
      findings.Add("onnx_checker", "", "ONNX's checker refuses the model: " + *verdict,
                   "export or save the model again");
      return;
    }
  }
  const auto graph = BuildGraphModel(model, context.folder);
  if (graph) {
    for (const std::string& drift : FindDTypeDrift(model, *graph)) {
      findings.Add("function_types", "", drift,
                   "the model was converted after it was patched: liger-patch --refresh builds its "
                   "bodies anew; or convert the original first, then "
                   "patch the result");
    }
  }
  if (findings.Has("function_types") || findings.Has("node_order")) return;
  if (const auto verdict = InferenceVerdict(model)) {
    findings.Add("type_inference", "", "strict shape inference refuses the model: " + *verdict,
                 "look at the operands of that node: their types or shapes do not fit");
    return;
  }
  CompareDeclared(model, findings);
}

}  // namespace liger
