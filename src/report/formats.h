// A report, or those of several models, in the formats that CI systems read.
//
//   std::optional<ReportFormat> format = FormatOfFile("report.sarif");   // kSarif
//   file << Render(*format, reports, {.explain = true});
//
//   text    for a terminal (report/report.h)
//   json    docs/report.schema.json; of several models an object with `summary` and `reports`
//   md      Markdown for a comment on a pull request: verdict, table of modules, what is missing
//   junit   JUnit XML: a suite for each model, a case for each module and expectation
//   sarif   SARIF 2.1.0: each miss, unmet expectation and diagnostic is a result with its node
//   github  workflow commands, one `::error` or `::warning` line each
//
// Every format shows the same facts: what failed is an error there, what was missed a warning.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "report/report.h"

namespace liger {

enum class ReportFormat { kText, kJson, kMarkdown, kJUnit, kSarif, kGitHub };

// "text", "json", "md", "junit", "sarif", "github".
std::optional<ReportFormat> ParseReportFormat(std::string_view name);
std::string_view ReportFormatName(ReportFormat format);

// By suffix: .txt, .json, .md, .xml, .sarif. Nothing if it is none of these.
std::optional<ReportFormat> FormatOfFile(std::string_view path);

// One or more reports. `many` asks for the form of several models (a summary in front), also for one.
struct RenderOptions {
  TextOptions text;
  bool many = false;
};
std::string Render(ReportFormat format, std::span<const Report> reports,
                   const RenderOptions& options);

// The largest exit code, and one line for people: "5 models: 3 patched, 1 nothing to do, 1 failed".
int WorstExitCode(std::span<const Report> reports);
std::string SummaryLine(std::span<const Report> reports);

}  // namespace liger
