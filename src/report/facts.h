// What all formats say alike of a report: its verdict, what failed, what is missing.
//
// Inside src/report only.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "report/formats.h"
#include "report/report.h"

namespace liger {

// "3 modules", "1 module".
std::string CountOf(int64_t count, std::string_view what);

// The model's path; "-" for a model without one.
std::string ModelName(const Report& report);

// "patched", "nothing to do", "2 expectations not met", "failed with exit code 3".
std::string VerdictLine(const Report& report);

// "rms_norm 65 of 65, rope 60 of 64, softmax 2": the modules that are on. Empty if there are none.
std::string CountsLine(const Report& report);

std::vector<const ExpectationReport*> UnmetExpectations(const Report& report);

// Something went wrong other than that an expectation is not met.
bool RunFailed(const Report& report);

// Without the errors that repeat unmet expectations.
std::vector<const Diagnostic*> OwnDiagnostics(const Report& report);

// Not fused though expected: missed, degraded or unaccounted for.
int64_t NotFused(const ModuleReport& module);

// Fused now or before.
int64_t Fused(const ModuleReport& module);

// "model.layers.0.norm at node '/norm/Mul'", "node '/norm/Mul'"; never empty.
std::string PlaceOf(const MissReport& miss);

// "reason [guard]".
std::string WhyOf(const MissReport& miss);

// "file.yaml:3:5" as its parts; nothing if `location` does not end in a line and a column.
struct FilePlace {
  std::string file;
  int64_t line = 0;
  int64_t column = 0;
};
std::optional<FilePlace> ParseFilePlace(std::string_view location);

// One for each format; `many` asks for the form of several models.
std::string TextOf(std::span<const Report> reports, const RenderOptions& options, bool many);
std::string JsonOf(std::span<const Report> reports, bool many);
std::string MarkdownOf(std::span<const Report> reports, bool many);
std::string JUnitOf(std::span<const Report> reports);
std::string SarifOf(std::span<const Report> reports);
std::string GitHubOf(std::span<const Report> reports);

}  // namespace liger
