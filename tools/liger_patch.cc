// liger-patch: the command line to a job, outcomes to reports, diagnostics to stderr, an exit code.

#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <iterator>

#include "api/lint_model.h"
#include "api/patch_files.h"
#include "api/patch_many.h"
#include "api/patch_model.h"
#include "api/rebuild_model.h"
#include "cli.h"
#include "patchmap/family_registry.h"
#include "patchmap/modules.h"
#include "report/escape.h"
#include "report/report_folder.h"
#include "report_file.h"
#include "rewrite/explain.h"

namespace liger {
namespace {

// `model` tells errors of several models apart.
void PrintError(const Error& error, const std::string& model = "") {
  const std::string where = model.empty() ? "" : model + ": ";
  std::cerr << "liger-patch: " << Printable(where + error.message) << "\n";
  if (!error.location.empty()) std::cerr << "  at: " << Printable(error.location) << "\n";
  if (!error.hint.empty()) std::cerr << "  hint: " << Printable(error.hint) << "\n";
  for (const Error& other : error.others) PrintError(other, model);
}

int Fail(const Error& error) {
  PrintError(error);
  return static_cast<int>(error.code);
}

void PrintDiagnostics(const Report& report, bool many) {
  for (const Diagnostic& diagnostic : report.diagnostics) {
    if (diagnostic.severity == Diagnostic::Severity::kError) continue;
    const std::string where = many ? report.input.path + ": " : "";
    std::cerr << "liger-patch: "
              << (diagnostic.severity == Diagnostic::Severity::kWarning ? "warning: " : "")
              << Printable(where + diagnostic.message) << "\n";
  }
}

Status List(const CommandLine& line) {
  auto files = PatchFiles::Load(line.patch.patches_dir);
  if (!files) return std::move(files).error();
  if (line.list == "families") {
    auto registry = FamilyRegistry::Load(files->files(), std::nullopt);
    if (!registry) return std::move(registry).error();
    for (const FamilyHead& head : registry->heads()) {
      std::cout << head.family;
      std::string aliases;
      for (const std::string& alias : head.aliases) {
        aliases += (aliases.empty() ? "" : ", ") + alias;
      }
      if (!aliases.empty()) std::cout << "  (also " << aliases << ")";
      std::cout << "\n";
    }
  } else if (line.list == "modules") {
    const std::vector<std::string> available = AvailableModules();
    for (const ModuleKind& kind : ModuleVocabulary()) {
      const bool has_ops =
          std::find(available.begin(), available.end(), kind.name) != available.end();
      std::cout << kind.name << "  " << kind.description
                << (has_ops ? "" : " (no ops in this version)") << "\n";
    }
  } else {
    for (const OpContract& op : Contracts()) {
      std::cout << kOpDomain << "." << op.op_type << "  " << op.algebra << "\n";
    }
  }
  return {};
}

// The report of a run that ended before it began.
Report UsageReport(const CommandLine& line, const Error& error) {
  Report report;
  report.status = "error";
  report.exit_code = static_cast<int>(error.code);
  report.tool_version = ToolVersion();
  if (!line.inputs.empty()) report.input.path = line.inputs.front();
  report.diagnostics.push_back(
      {Diagnostic::Severity::kError, error.message, error.location, error.hint});
  return report;
}

// Standard input as it is.
std::vector<std::byte> ReadStdin() {
  const std::vector<char> text{std::istreambuf_iterator<char>(std::cin),
                               std::istreambuf_iterator<char>()};
  const auto* bytes = reinterpret_cast<const std::byte*>(text.data());
  return {bytes, bytes + text.size()};
}

RebuildOptions ForRebuild(const PatchOptions& options) {
  return {options.input,         options.bytes,   options.output,
          options.output_fd,     options.patches, options.patches_dir,
          options.external_data, options.dry_run, options.check};
}

// The job of the command line for one model.
PatchOutcome RunJob(Job job, const PatchOptions& options) {
  switch (job) {
    case Job::kLint:
      return LintModel({options.input, options.bytes});
    case Job::kRevert:
      return RevertModel(ForRebuild(options));
    case Job::kRefresh:
      return RefreshModel(ForRebuild(options));
    default:
      return PatchModel(options);
  }
}

// One model from a file or standard input, to a file or standard output; or several.
std::vector<PatchOutcome> RunJobs(const CommandLine& line, bool many) {
  PatchOptions options = line.patch;
  const auto job = [&](const PatchOptions& one) { return RunJob(line.job, one); };
  if (many) {
    ManyOptions run;
    run.patch = options;
    run.inputs.assign(line.inputs.begin(), line.inputs.end());
    if (!line.output.empty()) run.output = line.output;
    run.jobs = line.jobs;
    if (line.job == Job::kLint) run.own_suffix = "";
    if (line.job == Job::kRevert) run.own_suffix = ".reverted.onnx";
    if (line.job == Job::kRefresh) run.own_suffix = ".refreshed.onnx";
    return PatchMany(run, job);
  }
  options.input = line.inputs.front();
  std::vector<std::byte> bytes;
  if (line.inputs.front() == "-") {
    bytes = ReadStdin();
    options.bytes = bytes;
  }
  if (line.NamesStdout()) {
    options.output_fd = STDOUT_FILENO;
  } else if (!line.output.empty()) {
    options.output = line.output;
  }
  std::vector<PatchOutcome> outcomes;
  outcomes.push_back(job(options));
  return outcomes;
}

// Writes every report file that the command line names, and standard output.
Status WriteReports(const CommandLine& line, std::span<const Report> reports, bool many) {
  const auto format = ParseReportFormat(line.format);
  TextOptions text_options{.explain = line.patch.explain.has_value()};
  if (line.patch.explain) {
    text_options.shows = [filter = ExplainFilter{*line.patch.explain}](const auto&... place) {
      return filter.Takes(place...);
    };
  }
  std::optional<Error> failed;
  for (const std::string& path : line.reports) {
    const RenderOptions options{.text = text_options, .many = many};
    const Status status =
        many && IsReportFolder(path)
            ? WriteReportFolder(path, format.value_or(ReportFormat::kJson), reports, options)
            : WriteReportFile(path, Render(FormatOf(path, format), reports, options));
    if (!status && !failed) failed = status.error();
  }
  const bool taken = std::find(line.reports.begin(), line.reports.end(), "-") != line.reports.end();
  const bool says_something = std::any_of(reports.begin(), reports.end(), [](const Report& report) {
    return report.status != "error" || !report.modules.empty();
  });
  if (!taken && (says_something || format)) {
    text_options.color = isatty(STDOUT_FILENO) != 0 && !format;
    const RenderOptions options{
        .text = text_options,
        .many = many,
        .diagnostics = line.job == Job::kLint};  // its findings are the result
    const std::string text = Render(format.value_or(ReportFormat::kText), reports, options);
    (line.ModelToStdout() ? std::cerr : std::cout) << text;
  }
  if (failed) return *std::move(failed);
  return {};
}

int Run(const CommandLine& line) {
  const std::vector<std::filesystem::path> inputs(line.inputs.begin(), line.inputs.end());
  const bool many = AreMany(inputs);
  for (const std::string& path : line.reports) {
    if (many && IsReportFolder(path)) continue;
    if (IsReportFolder(path)) {
      return Fail({ErrorCode::kUsage, "'" + path + "' is a folder, and the report is one file", "",
                   "name a file in it: " + (std::filesystem::path(path) / "report.json").string()});
    }
    if (Status status = CheckReportPath(path, line.output); !status) return Fail(status.error());
  }
  const std::vector<PatchOutcome> outcomes = RunJobs(line, many);
  const bool several = outcomes.size() > 1;  // an error of a whole run stands alone
  for (const PatchOutcome& outcome : outcomes) {
    if (line.job != Job::kLint) PrintDiagnostics(outcome.report, several);
    if (outcome.error) PrintError(*outcome.error, several ? outcome.report.input.path : "");
  }
  const std::vector<Report> reports = ReportsOf(outcomes);
  int code = WorstExitCode(reports);
  if (Status status = WriteReports(line, reports, many); !status) {
    code = std::max(code, Fail(status.error()));
  }
  return code;
}

int Main(int argc, char** argv) {
  const ParsedCommandLine parsed = ParseCommandLine(argc, argv);
  if (parsed.answer) {
    std::cout << *parsed.answer;
    return 0;
  }
  if (parsed.error) {
    const Report report = UsageReport(parsed.line, *parsed.error);
    for (const std::string& path : parsed.line.reports) {
      if (path.empty() || path.ends_with(".onnx")) continue;
      const std::string text = Render(FormatOf(path, std::nullopt), {&report, 1}, {});
      if (Status status = WriteReportFile(path, text); !status) PrintError(status.error());
    }
    return Fail(*parsed.error);
  }
  if (parsed.line.job == Job::kList) {
    const Status status = List(parsed.line);
    return status ? 0 : Fail(status.error());
  }
  return Run(parsed.line);
}

}  // namespace
}  // namespace liger

int main(int argc, char** argv) {
  // A run makes and drops several copies of the graph, without weights: giving the pages back to the
  // system in between costs more than it saves.
  mallopt(M_TRIM_THRESHOLD, 256 << 20);
  mallopt(M_TOP_PAD, 16 << 20);
  try {
    const int code = liger::Main(argc, argv);
    std::cout.flush();
    if (std::cout) return code;
    std::cerr << "liger-patch: standard output cannot be written\n";
    return std::max(code, static_cast<int>(liger::ErrorCode::kWrite));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "liger-patch: internal error: %s\n", error.what());
    return static_cast<int>(liger::ErrorCode::kInternal);
  }
}
