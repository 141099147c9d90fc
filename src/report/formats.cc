#include "report/formats.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <utility>

#include "report/facts.h"

namespace liger {
namespace {

struct FormatFacts {
  ReportFormat format;
  std::string_view name;
  std::string_view suffix;
};

// In the order in which a suffix is looked up: .txt is text.
constexpr std::array kFormats = {
    FormatFacts{ReportFormat::kText, "text", ".txt"},
    FormatFacts{ReportFormat::kJson, "json", ".json"},
    FormatFacts{ReportFormat::kMarkdown, "md", ".md"},
    FormatFacts{ReportFormat::kJUnit, "junit", ".xml"},
    FormatFacts{ReportFormat::kSarif, "sarif", ".sarif"},
    FormatFacts{ReportFormat::kGitHub, "github", ".txt"},
};

// A status and its words for people, in the order of a summary. A report without a route is that of
// another job than patching: it writes models, but patches none.
struct StatusWords {
  std::string_view status;
  std::string_view words;
  std::string_view of_another_job;
};
constexpr std::array kStatuses = {
    StatusWords{"ok", "patched", "written"},
    StatusWords{"checked", "checked", "checked"},
    StatusWords{"dry_run", "would be patched", "would be written"},
    StatusWords{"nothing_to_do", "nothing to do", "nothing to do"},
    StatusWords{"expectation_failed", "not as expected", "not as expected"},
    StatusWords{"error", "failed", "failed"},
};

std::string WordsOf(const StatusWords& status, const Report& report) {
  return std::string(report.route.empty() ? status.of_another_job : status.words);
}

// How texts and workflow commands start.
constexpr std::array<std::string_view, 13> kTextStarts = {
    "family   ", "STAGE    ", "modules\n", "excluded ", "loss ops left", "nothing was written\n",
    "== ",       "error    ", "warning  ", "remark   ", "::error ",      "::warning ",
    "::notice "};

}  // namespace

std::string CountOf(int64_t count, std::string_view what) {
  return std::to_string(count) + " " + std::string(what) + (count == 1 ? "" : "s");
}

std::string ModelName(const Report& report) {
  return report.input.path.empty() ? "-" : report.input.path;
}

std::string VerdictLine(const Report& report) {
  if (report.status == "error") {
    return "failed with exit code " + std::to_string(report.exit_code);
  }
  const size_t unmet = UnmetExpectations(report).size();
  if (unmet > 0) return CountOf(static_cast<int64_t>(unmet), "expectation") + " not met";
  for (const StatusWords& status : kStatuses) {
    if (status.status == report.status) return WordsOf(status, report);
  }
  return report.status;
}

std::string CountsLine(const Report& report) {
  std::string line;
  for (const ModuleReport& module : report.modules) {
    if (!module.enabled) continue;
    line += (line.empty() ? "" : ", ") + module.name + " " + std::to_string(Fused(module)) +
            (module.expected ? " of " + std::to_string(*module.expected) : "");
  }
  return line;
}

std::vector<const ExpectationReport*> UnmetExpectations(const Report& report) {
  std::vector<const ExpectationReport*> unmet;
  for (const ExpectationReport& expectation : report.expectations) {
    if (!expectation.met) unmet.push_back(&expectation);
  }
  return unmet;
}

bool RunFailed(const Report& report) {
  if (report.status == "error") return true;
  return report.exit_code != 0 && UnmetExpectations(report).empty();
}

std::vector<const Diagnostic*> OwnDiagnostics(const Report& report) {
  std::vector<const Diagnostic*> own;
  const bool failed = RunFailed(report);
  for (const Diagnostic& diagnostic : report.diagnostics) {
    if (diagnostic.severity != Diagnostic::Severity::kError || failed) own.push_back(&diagnostic);
  }
  return own;
}

int64_t NotFused(const ModuleReport& module) {
  return module.missed + module.degraded + module.unaccounted;
}

int64_t Fused(const ModuleReport& module) { return module.patched + module.already_fused; }

std::string PlaceOf(const MissReport& miss) {
  if (miss.path.empty() && miss.node.empty()) return "somewhere";
  if (miss.node.empty()) return miss.path;
  return (miss.path.empty() ? "" : miss.path + " at ") + "node '" + miss.node + "'";
}

std::string WhyOf(const MissReport& miss) {
  return miss.reason + (miss.guard.empty() ? "" : " [" + miss.guard + "]");
}

std::optional<FilePlace> ParseFilePlace(std::string_view location) {
  const auto take_number = [&]() -> std::optional<int64_t> {
    const size_t colon = location.rfind(':');
    if (colon == std::string_view::npos || colon + 1 == location.size()) return std::nullopt;
    const std::string_view digits = location.substr(colon + 1);
    int64_t number = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
    const bool is_number = error == std::errc() && end == digits.data() + digits.size();
    if (!is_number || number < 1) return std::nullopt;
    location = location.substr(0, colon);
    return number;
  };
  const auto column = take_number();
  const auto line = column ? take_number() : std::nullopt;
  if (!line || location.empty()) return std::nullopt;
  return FilePlace{std::string(location), *line, *column};
}

std::optional<ReportFormat> ParseReportFormat(std::string_view name) {
  for (const FormatFacts& facts : kFormats) {
    if (facts.name == name) return facts.format;
  }
  return std::nullopt;
}

std::string_view ReportFormatName(ReportFormat format) {
  for (const FormatFacts& facts : kFormats) {
    if (facts.format == format) return facts.name;
  }
  return "";
}

std::optional<ReportFormat> FormatOfFile(std::string_view path) {
  for (const FormatFacts& facts : kFormats) {
    if (path.ends_with(facts.suffix)) return facts.format;
  }
  return std::nullopt;
}

std::string_view ReportSuffix(ReportFormat format) {
  for (const FormatFacts& facts : kFormats) {
    if (facts.format == format) return facts.suffix;
  }
  return "";
}

bool MayBeReport(std::string_view first_bytes) {
  const std::string_view start = first_bytes.substr(0, kReportStart);
  if (start.empty()) return true;
  if (start.starts_with("{\n  \"schema_version\":")) return true;
  if (start.starts_with("<!-- liger-patch -->\n")) return true;
  if (start.starts_with("<?xml "))
    return start.find("<testsuites name=\"liger-patch\"") != start.npos;
  if (start.starts_with("{\n  \"$schema\":")) {
    return start.find("\"name\": \"liger-patch\"") != start.npos;
  }
  return std::any_of(kTextStarts.begin(), kTextStarts.end(),
                     [&](std::string_view text) { return start.starts_with(text); });
}

std::string Render(ReportFormat format, std::span<const Report> reports,
                   const RenderOptions& options) {
  const bool many = options.many || reports.size() != 1;
  switch (format) {
    case ReportFormat::kText:
      return TextOf(reports, options, many);
    case ReportFormat::kJson:
      return JsonOf(reports, many);
    case ReportFormat::kMarkdown:
      return MarkdownOf(reports, many);
    case ReportFormat::kJUnit:
      return JUnitOf(reports);
    case ReportFormat::kSarif:
      return SarifOf(reports);
    case ReportFormat::kGitHub:
      return GitHubOf(reports);
  }
  return "";
}

int WorstExitCode(std::span<const Report> reports) {
  int worst = 0;
  for (const Report& report : reports) worst = std::max(worst, report.exit_code);
  return worst;
}

std::string SummaryLine(std::span<const Report> reports) {
  std::string line = CountOf(static_cast<int64_t>(reports.size()), "model");
  const char* separator = ": ";
  for (const StatusWords& status : kStatuses) {
    std::map<std::string, int64_t> counts;
    for (const Report& report : reports) {
      if (report.status == status.status) ++counts[WordsOf(status, report)];
    }
    for (const auto& [words, count] : counts) {
      line += separator + std::to_string(count) + " " + words;
      separator = ", ";
    }
  }
  return line;
}

}  // namespace liger
