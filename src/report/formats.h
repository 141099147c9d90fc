// A report, or those of several models, in the formats that CI systems read.
//
//   std::optional<ReportFormat> format = FormatOfFile("report.sarif");   // kSarif
//   file << Render(*format, reports, {.text = {.explain = true}});
//
//   text    for a terminal (report/report.h)
//   json    docs/report.schema.json; of several models an object with `summary` and `reports`
//   md      Markdown for a comment on a pull request: verdict, table of modules, what is missing
//   junit   JUnit XML: a suite for each model, a case for each module and expectation
//   sarif   SARIF 2.1.0: each miss, unmet expectation and diagnostic is a result with its node
//   github  workflow commands, `::error`, `::warning` and `::notice` lines
//
// Every format shows the same facts: what failed is an error there, what was missed a warning. The
// same reports always give the same bytes. Names from a model may hold anything (report/escape.h).
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

// The suffix of files of a format: ".md". GitHub's commands are text.
std::string_view ReportSuffix(ReportFormat format);

// Whether a file with these first bytes (kReportStart of them, or all) is such a report or is empty:
// a report takes the place of an older one and of nothing else.
inline constexpr size_t kReportStart = 512;
bool MayBeReport(std::string_view first_bytes);

struct RenderOptions {
  TextOptions text{};
  bool many = false;        // the form of several models, with a summary, also for one
  bool diagnostics = true;  // of kText: warnings and errors as well; a terminal has them on stderr
};

// One or more reports; several always have the form of several models.
std::string Render(ReportFormat format, std::span<const Report> reports,
                   const RenderOptions& options);

// The largest exit code, and one line for people: "5 models: 3 patched, 1 nothing to do, 1 failed".
int WorstExitCode(std::span<const Report> reports);
std::string SummaryLine(std::span<const Report> reports);

}  // namespace liger
