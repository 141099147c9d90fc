// The command line: flags to PatchOptions, a report to stdout, diagnostics to stderr, an exit code.

#include <malloc.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <fstream>
#include <iostream>

#include "api/patch_files.h"
#include "api/patch_model.h"
#include "patchmap/family_registry.h"
#include "patchmap/modules.h"

namespace liger {
namespace {

constexpr const char* kExamples = R"(Examples:
  liger-patch model.onnx --modules auto
      Writes model.liger.onnx beside the input.
  liger-patch model.onnx -o out/model.onnx --external-data hardlink --report report.json
      Another folder; the weights get a second name there instead of a copy.
  liger-patch model.onnx --modules rms_norm,swiglu
      These modules and no others.
  liger-patch model.onnx --modules rope=off
      The family's defaults, but no rope.
  liger-patch model.onnx --family qwen3 --dry-run --explain
      Says what would be done and what resembles an op but is none; writes nothing.
  liger-patch --list families

Exit codes: 0 done; 1 expectation not met or verification failed; 2 wrong usage or patch map;
  3 unreadable or invalid model; 4 family unknown or module not accepted; 5 output could not be written;
  70 a fault of this program.)";

struct Arguments {
  PatchOptions patch;
  std::string input;
  std::string output;
  std::string report;
  std::string list;
  std::string providers = "cpu";
  std::string external_data = "auto";
  std::string patches_dir;
  bool explain = false;
};

void PrintError(const Error& error) {
  std::cerr << "liger-patch: " << error.message << "\n";
  if (!error.location.empty()) std::cerr << "  at: " << error.location << "\n";
  if (!error.hint.empty()) std::cerr << "  hint: " << error.hint << "\n";
}

void PrintDiagnostics(const Report& report) {
  for (const Diagnostic& diagnostic : report.diagnostics) {
    if (diagnostic.severity == Diagnostic::Severity::kError) continue;
    std::cerr << "liger-patch: "
              << (diagnostic.severity == Diagnostic::Severity::kWarning ? "warning: " : "")
              << diagnostic.message << "\n";
  }
}

Result<std::vector<Provider>> ParseProviders(const std::string& text) {
  std::vector<Provider> providers;
  for (const std::string& part : CLI::detail::split(text, ',')) {
    const std::string name = CLI::detail::trim_copy(part);
    const auto provider = ParseProvider(name);
    if (!provider) {
      return Error{ErrorCode::kUsage, "--providers: '" + name + "' is no provider", "",
                   "known are cpu and cuda"};
    }
    providers.push_back(*provider);
  }
  return providers;
}

Status List(const Arguments& arguments) {
  if (arguments.list == "families") {
    std::optional<std::filesystem::path> dir;
    if (!arguments.patches_dir.empty()) dir = arguments.patches_dir;
    auto files = PatchFiles::Load(dir);
    if (!files) return std::move(files).error();
    auto registry = FamilyRegistry::Load(files->files(), std::nullopt);
    if (!registry) return std::move(registry).error();
    for (const FamilyHead& head : registry->heads()) {
      std::cout << head.family;
      std::string aliases;
      for (const std::string& alias : head.aliases)
        aliases += (aliases.empty() ? "" : ", ") + alias;
      if (!aliases.empty()) std::cout << "  (also " << aliases << ")";
      std::cout << "\n";
    }
  } else if (arguments.list == "modules") {
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

// How every JSON report starts.
constexpr std::string_view kReportStart = "{\n  \"schema_version\":";

// A report takes the place of an older report or of nothing: a slip of the hand must not cost a
// model, its weights or its config.json.
Status CheckReportPath(const std::string& path, const std::string& output) {
  namespace fs = std::filesystem;
  if (path.empty() || path == "-") return {};
  std::error_code ignored;
  const auto normal = [](const std::string& p) { return fs::absolute(p).lexically_normal(); };
  if (!output.empty() &&
      (normal(path) == normal(output) || fs::equivalent(path, output, ignored))) {
    return Error{ErrorCode::kUsage, "'" + path + "' is named as the output and as the report", "",
                 "give --report another path"};
  }
  if (!fs::is_regular_file(path, ignored)) return {};
  std::ifstream file(path, std::ios::binary);
  std::string start(kReportStart.size(), '\0');
  file.read(start.data(), static_cast<std::streamsize>(start.size()));
  if (file.gcount() == 0 || start == kReportStart) return {};
  return Error{ErrorCode::kUsage,
               "the report would overwrite '" + path + "', which is no report of this program", "",
               "give --report another path, or remove that file first"};
}

Status WriteReport(const std::string& path, const Report& report) {
  if (path == "-") {
    std::cout << ToJson(report);
    return {};
  }
  if (Status status = CheckReportPath(path, ""); !status) return status;
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << ToJson(report);
  file.close();
  if (!file) {
    return Error{ErrorCode::kWrite, "the report '" + path + "' cannot be written", path,
                 "check that its folder exists and can be written"};
  }
  return {};
}

// The report of a run that ended before it began.
Report UsageReport(const Arguments& arguments, const Error& error) {
  Report report;
  report.status = "error";
  report.tool_version = ToolVersion();
  report.input.path = arguments.input;
  report.diagnostics.push_back(
      {Diagnostic::Severity::kError, error.message, error.location, error.hint});
  return report;
}

int Patch(Arguments& arguments) {
  if (Status status = CheckReportPath(arguments.report, arguments.output); !status) {
    PrintError(status.error());
    return static_cast<int>(status.error().code);
  }
  arguments.patch.input = arguments.input;
  if (!arguments.output.empty()) arguments.patch.output = arguments.output;
  if (!arguments.patches_dir.empty()) arguments.patch.patches_dir = arguments.patches_dir;
  const auto mode = ParseExternalDataMode(arguments.external_data);
  auto providers = ParseProviders(arguments.providers);
  PatchOutcome outcome;
  if (!mode || !providers || arguments.output == "-") {
    Error error{ErrorCode::kUsage, "a model is not written to stdout", "", "-o wants a file name"};
    if (!mode) {
      error = {ErrorCode::kUsage, "--external-data: '" + arguments.external_data + "' is no mode",
               "", "known are auto, copy and hardlink"};
    }
    if (!providers) error = providers.error();
    outcome.report = UsageReport(arguments, error);
    outcome.error = error;
  } else {
    arguments.patch.external_data = *mode;
    arguments.patch.providers = *providers;
    outcome = PatchModel(arguments.patch);
  }
  int code = outcome.error ? static_cast<int>(outcome.error->code) : 0;
  PrintDiagnostics(outcome.report);
  if (outcome.error) PrintError(*outcome.error);
  if (!arguments.report.empty()) {
    if (Status status = WriteReport(arguments.report, outcome.report); !status) {
      PrintError(status.error());
      code = std::max(code, static_cast<int>(status.error().code));
    }
  }
  if (arguments.report != "-" && (!outcome.error || !outcome.report.modules.empty())) {
    std::cout << ToText(outcome.report,
                        {.explain = arguments.explain, .color = isatty(STDOUT_FILENO) != 0});
  }
  return code;
}

int Main(int argc, char** argv) {
  CLI::App app{
      "Rewrites norm, rotary embedding and gated MLP subgraphs of an exported language model into "
      "fused nodes.",
      "liger-patch"};
  app.footer(kExamples);
  app.get_formatter()->column_width(34);
  Arguments arguments;
  app.add_option("MODEL", arguments.input, "The .onnx file");
  app.add_option("--modules", arguments.patch.modules,
                 "auto, a list (rms_norm,rope), or switches (rope=off)")
      ->capture_default_str();
  app.add_option(
      "--family", arguments.patch.family,
      "Model family; default: inferred. 'any' looks for every form without expectations");
  app.add_option("--exclude", arguments.patch.exclude,
                 "Modules never patched; 'none' for no module")
      ->capture_default_str();
  app.add_option("-o,--output", arguments.output, "Default: <stem>.liger.onnx beside the input");
  app.add_option("--report", arguments.report, "Write the report as JSON; '-' for stdout");
  app.add_option("--external-data", arguments.external_data,
                 "How weights reach another folder: auto, copy or hardlink")
      ->capture_default_str();
  app.add_option("--providers", arguments.providers,
                 "Execution providers that must have a kernel: cpu, cuda")
      ->capture_default_str();
  app.add_option("--patches-dir", arguments.patches_dir,
                 "Folder whose ops/, lowerings/, families/ replace and extend the built-in files");
  app.add_option("--only-first", arguments.patch.only_first,
                 "Replace only the first so many matches, for bisecting")
      ->check([](const std::string& text) {
        const bool is_count = !text.empty() && text.size() < 10 &&
                              text.find_first_not_of("0123456789") == std::string::npos;
        return is_count ? std::string() : "wants a whole number, 0 or more, not '" + text + "'";
      });
  app.add_flag("--exact", arguments.patch.exact,
               "Refuse matches that raise precision or re-associate products");
  app.add_flag("--dry-run", arguments.patch.dry_run, "Do everything but write the model");
  app.add_flag("--explain", arguments.explain, "Show evidence, every match and every near miss");
  app.add_option("--list", arguments.list, "List families, modules or ops")
      ->check(CLI::IsMember({"families", "modules", "ops"}));
  app.set_version_flag("--version", std::string("liger-patch ") + std::string(ToolVersion()));

  try {
    app.parse(argc, argv);
    if (arguments.list.empty() && arguments.input.empty()) {
      throw CLI::RequiredError("MODEL");
    }
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
    const Error usage{ErrorCode::kUsage, error.what(), "", "liger-patch --help lists the options"};
    PrintError(usage);
    if (!arguments.report.empty()) {
      if (Status status = WriteReport(arguments.report, UsageReport(arguments, usage)); !status) {
        PrintError(status.error());
      }
    }
    return static_cast<int>(usage.code);
  }
  if (!arguments.list.empty()) {
    if (Status status = List(arguments); !status) {
      PrintError(status.error());
      return static_cast<int>(status.error().code);
    }
    return 0;
  }
  return Patch(arguments);
}

}  // namespace
}  // namespace liger

int main(int argc, char** argv) {
  // A run makes and drops several copies of the graph, without weights: giving the pages back to the
  // system in between costs more than it saves.
  mallopt(M_TRIM_THRESHOLD, 256 << 20);
  mallopt(M_TOP_PAD, 16 << 20);
  try {
    return liger::Main(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "liger-patch: internal error: %s\n", error.what());
    return static_cast<int>(liger::ErrorCode::kInternal);
  }
}
