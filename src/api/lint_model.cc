#include "api/lint_model.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "api/open_model.h"
#include "api/outcome.h"
#include "model/lint.h"
#include "report/facts.h"

namespace liger {
namespace {

Diagnostic::Severity SeverityOf(LintFinding::Severity severity) {
  switch (severity) {
    case LintFinding::Severity::kError:
      return Diagnostic::Severity::kError;
    case LintFinding::Severity::kWarning:
      return Diagnostic::Severity::kWarning;
    case LintFinding::Severity::kNote:
      break;
  }
  return Diagnostic::Severity::kNote;
}

// "1 error, 2 warnings, 3 notes"
std::string Summary(const std::vector<LintFinding>& findings) {
  std::string text;
  for (const auto& [severity, name] : {std::pair(LintFinding::Severity::kError, "error"),
                                       std::pair(LintFinding::Severity::kWarning, "warning"),
                                       std::pair(LintFinding::Severity::kNote, "note")}) {
    const auto count =
        std::count_if(findings.begin(), findings.end(),
                      [severity = severity](const auto& f) { return f.severity == severity; });
    if (count == 0) continue;
    text += (text.empty() ? "" : ", ") + CountOf(count, name);
  }
  return text.empty() ? "nothing found" : text;
}

}  // namespace

PatchOutcome LintModel(const LintModelOptions& options) {
  PatchOutcome outcome;
  Report& report = outcome.report;
  report.tool_version = ToolVersion();
  report.input.path = options.input.string();
  auto file = OpenModel(options.input, options.bytes);
  if (!file) {
    SetError(std::move(file).error(), outcome);
    return outcome;
  }
  report.input.sha256 = file->sha256;
  const std::vector<LintFinding> findings = Lint(file->proto, {file->folder, file->path});
  bool is_clean = true;
  for (const LintFinding& finding : findings) {
    is_clean = is_clean && finding.severity == LintFinding::Severity::kNote;
    report.diagnostics.push_back(
        {SeverityOf(finding.severity), finding.message + " [" + finding.rule + "]",
         finding.place.empty() ? report.input.path : finding.place, finding.hint});
  }
  report.verification.push_back("lint: " + Summary(findings));
  report.status = is_clean ? "checked" : "expectation_failed";
  report.exit_code = is_clean ? 0 : static_cast<int>(ErrorCode::kExpectation);
  return outcome;
}

}  // namespace liger
