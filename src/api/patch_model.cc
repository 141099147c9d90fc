#include "api/patch_model.h"

#include <algorithm>
#include <set>

#include "api/accounting.h"
#include "api/graph_notes.h"
#include "api/patch_files.h"
#include "family/expected.h"
#include "family/infer.h"
#include "model/check.h"
#include "model/dtype_drift.h"
#include "model/edit.h"
#include "model/inline_functions.h"
#include "model/model_file.h"
#include "model/onnx_graph.h"
#include "model/sort_nodes.h"
#include "patchmap/family_registry.h"
#include "patchmap/modules.h"
#include "pattern/lowering.h"
#include "pattern/op_pattern.h"
#include "rewrite/apply.h"
#include "rewrite/plan.h"

namespace liger {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kFirstOpset = 11;
// Payloads up to this size stay in the copy of the original that the check compares with.
constexpr int64_t kCheckKeepBytes = 1024;

fs::path DefaultOutput(const fs::path& input) {
  return input.parent_path() / (input.stem().string() + ".liger.onnx");
}

// As a POSIX shell reads it as one word.
std::string Quoted(const std::string& word) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./,=+:@%";
  if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) return word;
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? "'\\''" : std::string(1, c);
  return quoted + "'";
}

std::map<std::string, int64_t> CountOps(const onnx::ModelProto& model) {
  std::map<std::string, int64_t> counts;
  for (const auto& node : model.graph().node()) {
    ++counts[(node.domain().empty() ? "" : node.domain() + ".") + node.op_type()];
  }
  return counts;
}

// One run. Each stage fills its part of the report; the first Error ends the run.
class Run {
 public:
  Run(const PatchOptions& options, Report& report) : options_(options), report_(report) {}

  Status Execute() {
    report_.tool_version = ToolVersion();
    report_.input.path = options_.input.string();
    for (auto stage :
         {&Run::Load, &Run::Identify, &Run::Resolve, &Run::Plan, &Run::Rewrite, &Run::Write}) {
      if (Status status = (this->*stage)(); !status) return status;
      if (done_) break;
    }
    return {};
  }

 private:
  void Diagnose(Diagnostic::Severity severity, std::string message) {
    report_.diagnostics.push_back({severity, std::move(message)});
  }

  Status Load() {
    auto file = options_.bytes ? ParseModelBytes(*options_.bytes, options_.input.parent_path())
                               : LoadModelFile(options_.input);
    if (!file) return std::move(file).error();
    file_ = *std::move(file);
    report_.input.sha256 = file_.sha256;
    if (Status status = CheckOutputFolder(); !status) return status;
    if (Status status = Prepare(); !status) return status;
    auto external = FindExternalData(file_.proto, file_.folder);
    if (!external) return std::move(external).error();
    external_ = *std::move(external);
    auto model = BuildGraphModel(file_.proto, file_.folder);
    if (!model) return std::move(model).error();
    model_ = *std::move(model);
    const auto opset = model_.opsets.find("");
    if (opset == model_.opsets.end() || opset->second < kFirstOpset) {
      return Error{ErrorCode::kInvalidModel,
                   opset == model_.opsets.end()
                       ? "the model imports no version of the default operator set"
                       : "the model uses opset " + std::to_string(opset->second) + "; opset " +
                             std::to_string(kFirstOpset) + " or later is needed",
                   options_.input.string(),
                   "export the model anew with a later opset, or convert it with "
                   "onnx.version_converter"};
    }
    for (const std::string& drift : FindDTypeDrift(file_.proto, model_)) {
      Diagnose(Diagnostic::Severity::kWarning,
               drift +
                   "; the model was converted after it was patched and does not load without "
                   "libliger_ort.so: convert the original first, then patch the result");
    }
    report_.loss_ops = FindLosses(model_);
    for (const std::string& op : FindOpsWithoutBody(file_.proto, model_)) {
      Diagnose(Diagnostic::Severity::kWarning,
               "nodes of " + op +
                   " have lost their function bodies, so that the model loads only where "
                   "libliger_ort.so is registered: patch the original again");
    }
    return {};
  }

  // Brings the model into the form that can be patched: own functions in place of their calls, nodes
  // in order. Nothing of it is written unless something is fused.
  Status Prepare() {
    const InlinedFunctions inlined = InlineFunctions(file_.proto);
    for (const std::string& note : inlined.notes) Diagnose(Diagnostic::Severity::kNote, note);
    if (inlined.calls > 0) {
      const auto count = [](int64_t n, const std::string& what) {
        return std::to_string(n) + " " + what + (n == 1 ? "" : "s");
      };
      Diagnose(Diagnostic::Severity::kNote,
               "the bodies of " + count(inlined.functions, "local function") +
                   " stand in place of " + count(inlined.calls, "call"));
    }
    auto moved = SortNodes(file_.proto);
    if (!moved) return std::move(moved).error();
    if (*moved > 0) {
      Diagnose(Diagnostic::Severity::kWarning,
               "the model's nodes were not in topological order; moved to the front of what needs "
               "them: " +
                   std::to_string(*moved));
    }
    return {};
  }

  fs::path Output() const { return options_.output.value_or(DefaultOutput(options_.input)); }

  // Found out before the work is done, not after.
  Status CheckOutputFolder() const {
    std::error_code ec;
    const fs::path output = Output();
    const fs::path folder = output.has_parent_path() ? output.parent_path() : fs::path(".");
    if (fs::is_directory(folder, ec) || fs::exists(folder, ec)) return {};
    return Error{ErrorCode::kWrite,
                 "cannot write '" + output.string() + "': the folder '" + folder.string() +
                     "' does not exist",
                 output.string(), "create the folder, or choose another output with -o"};
  }

  Status Identify() {
    auto files = PatchFiles::Load(options_.patches_dir);
    if (!files) return std::move(files).error();
    files_ = *std::move(files);
    auto registry = FamilyRegistry::Load(files_.files(), std::nullopt);
    if (!registry) return std::move(registry).error();
    FamilyInfo info = InferFamily(model_, options_.input, *registry);
    if (!options_.family.empty()) {
      auto chosen = ChooseFamily(options_.family, info, *registry);
      if (!chosen) {
        ReportEvidence(info);
        return std::move(chosen).error();
      }
      info = *std::move(chosen);
    }
    ReportEvidence(info);
    if (!info.known()) return UndecidedFamilyError(info, *registry);
    for (const std::string& disagreement : info.disagreements) {
      Diagnose(Diagnostic::Severity::kWarning, disagreement);
    }
    auto map = registry->LoadMap(info.family, info.parts);
    if (!map) return std::move(map).error();
    map_ = *std::move(map);
    config_ = info.config;
    report_.family = info.family;
    report_.family_decided_by = info.decided_by;
    report_.route = map_.structural ? "structural" : "official";
    report_.helper = map_.structural ? "none (every form)" : map_.name();
    return {};
  }

  void ReportEvidence(const FamilyInfo& info) {
    report_.evidence.clear();
    for (const Evidence& e : info.evidence) {
      report_.evidence.push_back({e.source, e.place, e.key, e.value, e.family, e.note, e.decided});
    }
  }

  Status Resolve() {
    const std::vector<std::string> available = AvailableModules();
    auto resolved = ResolveModules(map_, options_.modules, options_.exclude, available);
    if (!resolved) return std::move(resolved).error();
    resolved_ = *std::move(resolved);
    // The structural route turns everything on: what this version lacks stands in the table.
    for (const std::string& warning : resolved_.warnings) {
      if (!map_.structural) Diagnose(Diagnostic::Severity::kWarning, warning);
    }
    report_.excluded_modules = resolved_.excluded;
    return {};
  }

  Status Plan() {
    auto ops = OpPatternSet::Load(files_.files());
    if (!ops) return std::move(ops).error();
    ops_.emplace(*std::move(ops));
    auto lowerings = LoweringSet::Load(files_.files());
    if (!lowerings) return std::move(lowerings).error();
    lowerings_ = *std::move(lowerings);
    PlanOptions plan_options;
    for (const ResolvedModule& module : resolved_.modules) {
      if (module.enabled) plan_options.selection.modules.insert(module.name);
    }
    plan_options.providers = options_.providers;
    plan_options.exact = options_.exact;
    plan_options.only_first = options_.only_first;
    auto plan = MakePlan(model_, *ops_, lowerings_, plan_options);
    if (!plan) return std::move(plan).error();
    plan_ = *std::move(plan);
    AccountForModules(model_, plan_, ComputeExpected(model_, map_, config_), resolved_, report_);
    report_.weights_read = model_.constants->external_reads();
    if (const int64_t attentions = CountDecomposedAttentions(model_); attentions > 0) {
      report_.runtime_gaps.push_back(
          "attention is not fused (" + std::to_string(attentions) +
          " places): a tool that fuses it (ONNX Runtime's transformer optimiser, or an export at "
          "opset 23) should run first");
    }
    if (plan_.nodes.empty()) {
      report_.status = "nothing_to_do";
      const bool is_patched =
          std::any_of(plan_.already_fused.begin(), plan_.already_fused.end(),
                      [](const AlreadyFused& f) { return FindContract(f.op) != nullptr; });
      Diagnose(Diagnostic::Severity::kNote,
               is_patched ? "the model is patched already; nothing was written"
                          : "nothing was fused, so no file was written");
      done_ = true;
    }
    return {};
  }

  Status Rewrite() {
    auto edit = MakeEdit(model_, plan_, *ops_, lowerings_);
    if (!edit) return std::move(edit).error();
    if (!map_.structural) edit->metadata["liger.family"] = report_.family;
    edit->metadata["liger.version"] = report_.tool_version;
    std::string modules;
    for (const ResolvedModule& module : resolved_.modules) {
      // A module of an earlier run is still in the model.
      if (module.enabled || plan_.Already(module.name) > 0) {
        modules += (modules.empty() ? "" : ",") + module.name;
      }
    }
    edit->metadata["liger.modules"] = modules;
    const std::map<std::string, int64_t> before = CountOps(file_.proto);
    const onnx::ModelProto original = StripWeights(file_.proto, kCheckKeepBytes);
    model_ = {};  // refers to the proto, which changes now
    if (Status status = ApplyEdit(*edit, file_.proto); !status) return status;
    const std::map<std::string, int64_t> after = CountOps(file_.proto);
    for (const auto& [op, count] : after) {
      const auto found = before.find(op);
      const int64_t old = found != before.end() ? found->second : 0;
      if (old != count) report_.op_counts[op] = {old, count};
    }
    for (const auto& [op, count] : before) {
      if (!after.contains(op)) report_.op_counts[op] = {count, 0};
    }
    auto checked = CheckModel(original, file_.proto);
    if (!checked) return std::move(checked).error();
    report_.verification.push_back(
        checked->notes.empty()
            ? "ONNX checker and shape inference accept the result; inputs and outputs are unchanged"
            : "inputs and outputs are unchanged; what the checks say of the input as well:");
    for (const std::string& note : checked->notes) report_.verification.push_back(note);
    return {};
  }

  Status Write() {
    const fs::path output = Output();
    auto placement = PlanExternalData(external_, output, options_.external_data);
    if (!placement) return std::move(placement).error();
    for (const std::string& note : placement->notes) {
      Diagnose(Diagnostic::Severity::kWarning, note);
    }
    if (options_.dry_run) {
      report_.status = "dry_run";
      Diagnose(Diagnostic::Severity::kNote, "dry run: '" + output.string() + "' was not written");
      return {};
    }
    auto files = ApplyExternalData(*placement);
    if (!files) return std::move(files).error();
    auto saved = SaveModelFile(file_.proto, output);
    if (!saved) {
      RemoveCreated(*files);
      return std::move(saved).error();
    }
    report_.output = FileReport{saved->path.string(), saved->sha256};
    report_.runtime_gaps.push_back(
        "with libliger_ort.so registered ONNX Runtime uses the fused kernels; without it the same "
        "file runs from the function bodies");
    const std::string path = output.string();
    report_.validation_commands.push_back("liger-patch " +
                                          Quoted(path.starts_with("-") ? "./" + path : path) +
                                          Choices() + " --dry-run   # finds nothing left to do");
    return {};
  }

  // The options that decide what is fused, where they are not the defaults.
  std::string Choices() const {
    const PatchOptions defaults;
    std::string text;
    const auto add = [&](const std::string& flag, const std::string& value) {
      text += " " + flag + " " + Quoted(value);
    };
    if (!options_.family.empty()) add("--family", options_.family);
    if (options_.modules != defaults.modules) add("--modules", options_.modules);
    if (options_.exclude != defaults.exclude) add("--exclude", options_.exclude);
    if (options_.providers != defaults.providers) {
      std::string names;
      for (const Provider provider : options_.providers) {
        names += (names.empty() ? "" : ",") + std::string(ProviderName(provider));
      }
      add("--providers", names);
    }
    if (options_.patches_dir) add("--patches-dir", options_.patches_dir->string());
    // Stops at what the first run left out as well.
    if (options_.only_first >= 0) add("--only-first", "0");
    if (options_.exact) text += " --exact";
    return text;
  }

  const PatchOptions& options_;
  Report& report_;
  bool done_ = false;
  ModelFile file_;
  ExternalData external_;
  GraphModel model_;
  PatchFiles files_;
  FamilyMap map_;
  ModelConfig config_;
  ResolvedModules resolved_;
  std::optional<OpPatternSet> ops_;
  LoweringSet lowerings_;
  RewritePlan plan_;
};

}  // namespace

PatchOutcome PatchModel(const PatchOptions& options) {
  PatchOutcome outcome;
  Status status = Run(options, outcome.report).Execute();
  if (!status) {
    outcome.report.status = "error";
    const Error& error = status.error();
    outcome.report.diagnostics.push_back(
        {Diagnostic::Severity::kError, error.message, error.location, error.hint});
    outcome.error = error;
  }
  return outcome;
}

std::string_view ToolVersion() { return LIGER_VERSION; }

std::vector<std::string> AvailableModules() {
  std::vector<std::string> modules;
  for (const ModuleKind& kind : ModuleVocabulary()) {
    const auto contracts = Contracts();
    if (std::any_of(contracts.begin(), contracts.end(),
                    [&](const OpContract& op) { return op.module == kind.name; })) {
      modules.emplace_back(kind.name);
    }
  }
  return modules;
}

}  // namespace liger
