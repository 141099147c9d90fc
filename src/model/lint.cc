#include "model/lint.h"

#include <onnx/onnx_pb.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "model/lint_rules.h"

namespace liger {
namespace {

using Severity = LintFinding::Severity;

// Findings of one rule that are named one by one.
constexpr int64_t kMaxOfARule = 50;

struct Rule {
  std::string_view name;
  Severity severity;
};

// Sorted by name.
constexpr Rule kRules[] = {
    {"attribute_reference", Severity::kError},
    {"call_signature", Severity::kError},
    {"contrib_op_in_default_domain", Severity::kError},
    {"cycle", Severity::kError},
    {"declared_type", Severity::kNote},
    {"duplicate_function", Severity::kError},
    {"duplicate_node_name", Severity::kWarning},
    {"duplicate_opset_import", Severity::kError},
    {"duplicate_value", Severity::kError},
    {"external_data", Severity::kError},
    {"fused_op_attribute", Severity::kError},
    {"fused_op_version", Severity::kWarning},
    {"fused_op_without_body", Severity::kWarning},
    {"function_opset", Severity::kError},
    {"function_types", Severity::kError},
    {"ir_version", Severity::kError},
    {"missing_opset_import", Severity::kError},
    {"node_order", Severity::kWarning},
    {"onnx_checker", Severity::kError},
    {"operator_attribute", Severity::kError},
    {"operator_not_in_opset", Severity::kError},
    {"operator_without_body", Severity::kNote},
    {"overlapping_data", Severity::kWarning},
    {"recursive_function", Severity::kError},
    {"shadowed_value", Severity::kWarning},
    {"stale_stamp", Severity::kNote},
    {"stale_value_info", Severity::kNote},
    {"type_inference", Severity::kWarning},
    {"unaligned_data", Severity::kNote},
    {"undefined_output", Severity::kError},
    {"undefined_value", Severity::kError},
    {"unknown_operator", Severity::kError},
    {"unknown_opset", Severity::kNote},
    {"unreferenced_data_file", Severity::kWarning},
    {"unused_function", Severity::kNote},
    {"unused_initializer", Severity::kNote},
};

}  // namespace

void LintFindings::Add(std::string_view rule, std::string place, std::string message,
                       std::string hint) {
  const auto* found = std::find_if(std::begin(kRules), std::end(kRules),
                                   [&](const Rule& known) { return known.name == rule; });
  LIGER_CHECK(found != std::end(kRules));
  Add(rule, found->severity, std::move(place), std::move(message), std::move(hint));
}

void LintFindings::Add(std::string_view rule, Severity severity, std::string place,
                       std::string message, std::string hint) {
  has_errors_ = has_errors_ || severity == Severity::kError;
  int64_t& count = counts_.try_emplace(std::string(rule), 0).first->second;
  if (++count > kMaxOfARule) return;
  findings_.push_back(
      {std::string(rule), severity, std::move(place), std::move(message), std::move(hint)});
}

std::vector<LintFinding> LintFindings::Take() {
  for (const auto& entry : counts_) {
    const std::string& rule = entry.first;
    const int64_t count = entry.second;
    if (count <= kMaxOfARule) continue;
    const auto last =
        std::find_if(findings_.rbegin(), findings_.rend(),
                     [&](const LintFinding& finding) { return finding.rule == rule; });
    findings_.insert(
        last.base(),
        {rule, last->severity, "",
         "and " + std::to_string(count - kMaxOfARule) + " more of this kind", last->hint});
  }
  std::stable_sort(
      findings_.begin(), findings_.end(),
      [](const LintFinding& a, const LintFinding& b) { return a.severity > b.severity; });
  return std::move(findings_);
}

std::vector<LintFinding> Lint(const onnx::ModelProto& model, const LintContext& context) {
  LintFindings findings;
  LintStructure(model, findings);
  LintOperators(model, findings);
  LintTypes(model, context, findings);
  LintExternalData(model, context, findings);
  return findings.Take();
}

std::vector<std::string_view> LintRules() {
  std::vector<std::string_view> names;
  for (const Rule& rule : kRules) names.push_back(rule.name);
  return names;
}

}  // namespace liger
