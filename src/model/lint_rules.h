// The parts of Lint (model/lint.h): each looks for one kind of fault and adds what it finds.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "model/lint.h"

namespace liger {

class LintFindings {
 public:
  // `rule` must be one of LintRules(); it decides the severity.
  void Add(std::string_view rule, std::string place, std::string message, std::string hint);
  // The same with another severity.
  void Add(std::string_view rule, LintFinding::Severity severity, std::string place,
           std::string message, std::string hint);

  bool has_errors() const { return has_errors_; }
  bool Has(std::string_view rule) const { return counts_.contains(rule); }
  std::vector<LintFinding> Take();

 private:
  std::vector<LintFinding> findings_;
  std::map<std::string, int64_t, std::less<>> counts_;  // per rule
  bool has_errors_ = false;
};

// Operators, domains and versions; calls of fused ops against their contracts.
void LintOperators(const onnx::ModelProto& model, LintFindings& findings);
// Names, definitions, order; functions and their calls.
void LintStructure(const onnx::ModelProto& model, LintFindings& findings);
// Data files and what tensors say about them.
void LintExternalData(const onnx::ModelProto& model, const LintContext& context,
                      LintFindings& findings);
// Types: declared against inferred ones, bodies against their calls, ONNX's own verdicts.
void LintTypes(const onnx::ModelProto& model, const LintContext& context, LintFindings& findings);

}  // namespace liger
