#include "api/outcome.h"

#include <utility>

namespace liger {

void SetError(Error error, PatchOutcome& outcome) {
  const bool unmet = error.code == ErrorCode::kExpectation;
  outcome.report.status = unmet ? "expectation_failed" : "error";
  outcome.report.exit_code = static_cast<int>(error.code);
  const auto add = [&](const Error& one) {
    outcome.report.diagnostics.push_back(
        {Diagnostic::Severity::kError, one.message, one.location, one.hint});
  };
  add(error);
  for (const Error& other : error.others) add(other);
  outcome.error = std::move(error);
}

}  // namespace liger
