// What is wrong with a model file, as a report: `--lint`.
//
//   PatchOutcome outcome = LintModel({.input = "model.onnx"});
//   std::cout << Render(ReportFormat::kText, {&outcome.report, 1}, {});
//
// Findings are the report's diagnostics: the place is their location, the rule stands in brackets at
// the end of the message. Nothing is changed and no weight is read. `status` and `exit_code`:
//   checked, 0             nothing was found, or notes only
//   expectation_failed, 1  there is an error or a warning
//   error, 3               the file cannot be read; `error` is set
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <span>

#include "api/patch_model.h"

namespace liger {

struct LintModelOptions {
  std::filesystem::path input;
  // The model itself, instead of the file at `input`, whose folder is where external data is.
  std::optional<std::span<const std::byte>> bytes;
};

PatchOutcome LintModel(const LintModelOptions& options);

}  // namespace liger
