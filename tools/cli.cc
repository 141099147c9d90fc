#include "cli.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <set>

#include "patchmap/nearest.h"

namespace liger {
namespace {

constexpr const char* kExamples = R"(Examples:
  liger-patch model.onnx --modules auto
      Writes model.liger.onnx beside the input.
  liger-patch model.onnx -o out/model.onnx --external-data hardlink --report report.json
      Another folder; the weights get a second name there instead of a copy.
  liger-patch model.onnx --modules rms_norm,swiglu
      These modules and no others.
  liger-patch model.onnx --modules rope=off --skip '**.layers.0'
      The family's defaults, but no rope, and nothing inside the first layer.
  liger-patch model.onnx --patches mine.yaml
      Classes, scopes and patterns of your own (docs/patch-maps.md).
  liger-patch model.onnx --check --strict --format github --report fused.sarif
      A step of CI: writes no model, fails where a fusion is gone.
  liger-patch export/ -o patched/ -j 4 --report patched.md
      Every model of a folder; everything else in it is carried over.
  liger-patch model.onnx --family qwen3 --dry-run --explain 'model.layers.0'
      Says what stands there and why it is not fused; writes nothing.
  liger-patch model.liger.onnx --revert
      The model without our ops again.
  liger-patch --list families

Exit codes: 0 done; 1 expectation not met or verification failed; 2 wrong usage or patch map;
  3 unreadable or invalid model; 4 family unknown or module not accepted; 5 output could not be written;
  70 a fault of this program. Of several models the largest.)";

std::string WholeNumber(const std::string& text) {
  const bool is_count = !text.empty() && text.size() < 10 &&
                        text.find_first_not_of("0123456789") == std::string::npos;
  return is_count ? "" : "wants a whole number, 0 or more, not '" + text + "'";
}

// What CLI11 fills, before it is given its types.
struct RawOptions {
  std::string providers = "cpu,cuda";
  std::string external_data = "auto";
  std::string patches_dir;
  std::vector<std::string> patches;
  std::string explain;
  bool lint = false;
  bool revert = false;
  bool refresh = false;
};

void AddOptions(CLI::App& app, CommandLine& line, RawOptions& raw) {
  PatchOptions& patch = line.patch;
  app.add_option("MODEL", line.inputs,
                 ".onnx files, or folders with such files; '-' for standard input");
  app.add_option("-o,--output", line.output,
                 "Default: <stem>.liger.onnx beside the input; of several models a folder; '-' for "
                 "standard output");

  const std::string what = "What is patched";
  app.add_option("--modules", patch.modules, "auto, a list (rms_norm,rope), or switches (rope=off)")
      ->capture_default_str()
      ->group(what);
  app.add_option("--exclude", patch.exclude, "Modules never patched; 'none' for no module")
      ->capture_default_str()
      ->group(what);
  app.add_option("--family", patch.family,
                 "Model family; default: inferred. 'any' looks for every form without expectations")
      ->group(what);
  app.add_option("--patches", raw.patches, "A patch map of your own; can be given several times")
      ->allow_extra_args(false)
      ->group(what);
  app.add_option("--scope", patch.scopes,
                 "Only these module paths, a glob; can be given several times")
      ->allow_extra_args(false)
      ->group(what);
  app.add_option("--skip", patch.skips, "Not these module paths; wins over --scope")
      ->allow_extra_args(false)
      ->group(what);
  app.add_option("--stage", patch.stage,
                 "Trainer's rules for the losses: pt, sft, rm, ppo, dpo, kto or inference")
      ->group(what);
  app.add_option("--providers", raw.providers,
                 "Execution providers that must have a kernel: cpu, cuda")
      ->capture_default_str()
      ->group(what);
  app.add_flag("--exact", patch.exact,
               "Refuse matches that raise precision or re-associate products")
      ->group(what);
  app.add_option("--only-first", patch.only_first,
                 "Replace only the first so many matches, for bisecting")
      ->check(WholeNumber)
      ->group(what);
  app.add_option("--patches-dir", raw.patches_dir,
                 "Folder whose ops/, lowerings/, families/ replace and extend the built-in files")
      ->group(what);

  const std::string checks = "Checks";
  app.add_flag("--check", patch.check, "Do everything and write no model: the step of CI")
      ->group(checks);
  app.add_flag("--strict", patch.strict, "Exit 1 unless every expected instance is fused")
      ->group(checks);
  app.add_option("--expect", patch.expect,
                 "Exit 1 unless so many are fused: rms_norm=65 or 'rope>=64'")
      ->allow_extra_args(false)
      ->group(checks);
  app.add_flag("--dry-run", patch.dry_run, "Do everything but write the model")->group(checks);
  app.add_option("--explain", raw.explain,
                 "Show evidence, every match and, for each miss, the nodes as they stand; of a "
                 "module path, node or module where one is given")
      ->expected(0, 1)
      ->group(checks);

  const std::string output = "Output";
  app.add_option("--report", line.reports,
                 "Write the report; .json, .md, .xml (JUnit), .sarif or .txt; '-' for stdout")
      ->allow_extra_args(false)
      ->group(output);
  app.add_option("--format", line.format,
                 "Of standard output: text, json, md, junit, sarif or github")
      ->group(output);
  app.add_option("--external-data", raw.external_data,
                 "How weights reach another folder: auto, copy or hardlink")
      ->capture_default_str()
      ->group(output);
  app.add_option("-j,--jobs", line.jobs, "Models at a time; 0 for one per core")
      ->check(WholeNumber)
      ->capture_default_str()
      ->group(output);

  const std::string others = "Other things than patching";
  app.add_flag("--revert", raw.revert, "Write the model without fused ops")->group(others);
  app.add_flag("--refresh", raw.refresh,
               "Rebuild function bodies after another tool changed dtypes or opset")
      ->group(others);
  app.add_flag("--lint", raw.lint, "Say what is wrong with a model file")->group(others);
  app.add_option("--list", line.list, "List families, modules or ops")
      ->check(CLI::IsMember({"families", "modules", "ops"}))
      ->group(others);
}

Error UsageError(std::string message, std::string hint) {
  return {ErrorCode::kUsage, std::move(message), "", std::move(hint)};
}

Result<std::vector<Provider>> ParseProviders(const std::string& text) {
  std::vector<Provider> providers;
  for (const std::string& part : CLI::detail::split(text, ',')) {
    const std::string name = CLI::detail::trim_copy(part);
    const auto provider = ParseProvider(name);
    if (!provider) {
      return UsageError("--providers: '" + name + "' is no provider", "known are cpu and cuda");
    }
    providers.push_back(*provider);
  }
  return providers;
}

// What each job other than patching takes; the rest says something about patching and would be lost.
Status CheckOptionsOfJob(const CLI::App& app, const CommandLine& line) {
  static const std::set<std::string> lint = {"MODEL", "--lint", "--report", "--format", "--jobs"};
  static const std::set<std::string> list = {"--list", "--patches-dir"};
  static const std::set<std::string> rebuild = {
      "MODEL",         "--revert", "--refresh", "--output", "--external-data", "--patches",
      "--patches-dir", "--check",  "--dry-run", "--report", "--format",        "--jobs"};
  if (line.job == Job::kPatch) return {};
  const std::set<std::string>& taken = line.job == Job::kLint   ? lint
                                       : line.job == Job::kList ? list
                                                                : rebuild;
  const char* job = line.job == Job::kLint     ? "--lint"
                    : line.job == Job::kList   ? "--list"
                    : line.job == Job::kRevert ? "--revert"
                                               : "--refresh";
  for (const CLI::Option* option : app.get_options()) {
    const std::string name = option->get_name(false, true);
    const std::string last =
        name.substr(name.rfind(',') == std::string::npos ? 0 : name.rfind(',') + 1);
    if (option->count() == 0 || taken.contains(last)) continue;
    return UsageError(last + " has no meaning with " + job, "leave one of them out");
  }
  return {};
}

// Options that say the same thing twice, or things that do not go together.
Status CheckTogether(const CLI::App& app, const CommandLine& line, const RawOptions& raw) {
  const int jobs = static_cast<int>(raw.lint) + static_cast<int>(raw.revert) +
                   static_cast<int>(raw.refresh) + static_cast<int>(!line.list.empty());
  if (jobs > 1) {
    return UsageError("--lint, --revert, --refresh and --list are different jobs",
                      "give one of them");
  }
  for (const CLI::Option* option : app.get_options()) {
    const std::vector<std::string>& values = option->results();
    if (option->get_name() == "--explain" ||
        std::find(values.begin(), values.end(), "") == values.end()) {
      continue;
    }
    return UsageError(option->get_name(true, true) + ": the value is empty",
                      "give it one, or leave it out");
  }
  if (line.list.empty() && line.inputs.empty()) {
    return UsageError("MODEL is required", "liger-patch --help lists the options");
  }
  const auto is_stdin = [](const std::string& input) { return input == "-"; };
  if (line.inputs.size() > 1 && std::any_of(line.inputs.begin(), line.inputs.end(), is_stdin)) {
    return UsageError("standard input is one model, and others are named beside it",
                      "give '-' alone");
  }
  if (line.ModelToStdout() && line.ReportsToStdout()) {
    return UsageError("model and report would both go to standard output",
                      "give -o or --report a file name");
  }
  const bool is_folder = std::any_of(line.inputs.begin(), line.inputs.end(), [](const auto& input) {
    std::error_code ec;
    return std::filesystem::is_directory(input, ec);
  });
  if (line.output == "-" && (line.inputs.size() > 1 || is_folder)) {
    return UsageError("several models cannot go to standard output",
                      "-o names a folder for them, or give one model");
  }
  for (const std::string& report : line.reports) {
    if (report.ends_with(".onnx")) {
      return UsageError("the report '" + report + "' has the name of a model",
                        "reports are .json, .md, .xml, .sarif or .txt files");
    }
  }
  if (raw.lint && !line.output.empty()) {
    return UsageError("--lint writes no model, and -o names one", "leave -o out");
  }
  if (app.count("--format") > 0 && !ParseReportFormat(line.format)) {
    return UsageError("--format: '" + line.format + "' is no format",
                      "formats are text, json, md, junit, sarif and github");
  }
  return {};
}

Status TakeTypes(const RawOptions& raw, const CLI::App& app, CommandLine& line) {
  if (raw.lint) line.job = Job::kLint;
  if (raw.revert) line.job = Job::kRevert;
  if (raw.refresh) line.job = Job::kRefresh;
  if (!line.list.empty()) line.job = Job::kList;
  if (app.count("--explain") > 0) {
    // `--explain model.onnx`: what is there on the disk is a model, no glob.
    std::error_code ec;
    const bool is_model = raw.explain == "-" || std::filesystem::exists(raw.explain, ec);
    if (is_model) line.inputs.insert(line.inputs.begin(), raw.explain);
    line.patch.explain = is_model ? "" : raw.explain;
  }
  line.patch.patches.assign(raw.patches.begin(), raw.patches.end());
  if (!raw.patches_dir.empty()) line.patch.patches_dir = raw.patches_dir;
  const auto mode = ParseExternalDataMode(raw.external_data);
  if (!mode) {
    return UsageError("--external-data: '" + raw.external_data + "' is no mode",
                      "known are auto, copy and hardlink");
  }
  line.patch.external_data = *mode;
  auto providers = ParseProviders(raw.providers);
  if (!providers) return std::move(providers).error();
  line.patch.providers = *std::move(providers);
  if (Status status = CheckTogether(app, line, raw); !status) return status;
  return CheckOptionsOfJob(app, line);
}

}  // namespace

bool CommandLine::NamesStdout() const {
  const bool is_stdin = inputs.size() == 1 && inputs[0] == "-";
  return output == "-" || (is_stdin && output.empty());
}

bool CommandLine::ModelToStdout() const {
  const bool writes = job != Job::kLint && job != Job::kList && !patch.check && !patch.dry_run;
  return writes && NamesStdout();
}

bool CommandLine::ReportsToStdout() const {
  return std::find(reports.begin(), reports.end(), "-") != reports.end() || !format.empty();
}

ParsedCommandLine ParseCommandLine(int argc, char** argv) {
  ParsedCommandLine parsed;
  RawOptions raw;
  CLI::App app{
      "Rewrites norm, rotary embedding and gated MLP subgraphs of an exported language model into "
      "fused nodes.",
      "liger-patch"};
  app.footer(kExamples);
  app.get_formatter()->column_width(34);
  AddOptions(app, parsed.line, raw);
  app.set_version_flag("--version", std::string("liger-patch ") + std::string(ToolVersion()));
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    parsed.answer = app.help();
    return parsed;
  } catch (const CLI::CallForVersion& version) {
    parsed.answer = std::string(version.what()) + "\n";
    return parsed;
  } catch (const CLI::ParseError& error) {
    std::string hint = "liger-patch --help lists the options";
    std::vector<std::string> options;
    for (const CLI::Option* option : app.get_options()) {
      for (const std::string& name : option->get_lnames()) options.push_back("--" + name);
    }
    for (const std::string& word : app.remaining()) {
      const std::vector<std::string> nearest =
          NearestNames(word.substr(0, word.find('=')), options);
      if (word.starts_with("--") && !nearest.empty()) {
        hint = "did you mean " + JoinAlternatives(nearest) + "? " + hint;
      }
    }
    for (int i = 1; i < argc; ++i) {
      std::error_code ec;
      const std::string word = argv[i];
      if (word.size() > 1 && word[0] == '-' && std::filesystem::exists(word, ec)) {
        hint = "a file whose name begins with a dash is given as ./" + word;
      }
    }
    parsed.error = UsageError(error.what(), std::move(hint));
    parsed.line.reports = app.get_option("--report")->results();  // read, and not yet assigned
    return parsed;
  }
  if (Status status = TakeTypes(raw, app, parsed.line); !status) parsed.error = status.error();
  return parsed;
}

}  // namespace liger
