#include "api/patch_model.h"

#include <algorithm>
#include <set>
#include <tuple>

#include "api/accounting.h"
#include "api/expectations.h"
#include "api/graph_notes.h"
#include "api/op_counts.h"
#include "api/open_model.h"
#include "api/outcome.h"
#include "api/patch_files.h"
#include "api/runtime_gaps.h"
#include "api/save_model.h"
#include "api/user_maps.h"
#include "family/expected.h"
#include "family/infer.h"
#include "loss/losses.h"
#include "model/dtype_drift.h"
#include "model/edit.h"
#include "model/inline_functions.h"
#include "model/model_file.h"
#include "model/onnx_graph.h"
#include "model/own_ops.h"
#include "model/sort_nodes.h"
#include "patchmap/family_registry.h"
#include "patchmap/modules.h"
#include "patchmap/nearest.h"
#include "pattern/lowering.h"
#include "pattern/op_pattern.h"
#include "report/facts.h"
#include "rewrite/apply.h"
#include "rewrite/plan.h"

namespace liger {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kFirstOpset = 11;

fs::path DefaultOutput(const fs::path& input) {
  return input.parent_path() / (input.stem().string() + ".liger.onnx");
}

Error UnmatchedGlob(const ScopeReport& scope, const std::set<std::string>& paths) {
  Error error{ErrorCode::kUsage,
              scope.option + " '" + scope.glob + "' takes in no module of the model", "", ""};
  if (paths.empty()) {
    error.hint = "no node of this model says what module it is of";
    return error;
  }
  const std::vector<std::string> known(paths.begin(), paths.end());
  const std::vector<std::string> nearest = NearestNames(scope.glob, known);
  error.hint = (nearest.empty() ? "the model has, for instance, " + known[known.size() / 2]
                                : "the model has " + JoinNames(nearest)) +
               "; a glob speaks of whole paths, and '**.' in front stands for any outer modules";
  return error;
}

// One run. Each stage fills its part of the report; the first Error ends the run.
class Run {
 public:
  Run(const PatchOptions& options, Report& report) : options_(options), report_(report) {}

  Status Execute() {
    report_.tool_version = ToolVersion();
    report_.input.path = options_.input.string();
    for (auto stage : {&Run::ReadMaps, &Run::Load, &Run::Identify, &Run::Resolve, &Run::Plan,
                       &Run::Expect, &Run::Rewrite, &Run::Write}) {
      if (Status status = (this->*stage)(); !status) return status;
      if (done_) break;
    }
    return {};
  }

 private:
  void Diagnose(Diagnostic::Severity severity, std::string message) {
    report_.diagnostics.push_back({severity, std::move(message)});
  }

  Status ReadMaps() {
    auto maps = UserMaps::Load(options_.patches);
    if (!maps) return std::move(maps).error();
    maps_ = *std::move(maps);
    if (!options_.family.empty() && !maps_.extends().empty() &&
        options_.family != maps_.extends()) {
      return Error{
          ErrorCode::kUsage,
          "--family says " + options_.family + ", and the patch map extends " + maps_.extends(),
          maps_.Files(), "leave --family out, or take `extends:` out of the map"};
    }
    return {};
  }

  Status Load() {
    auto file = OpenModel(options_.input, options_.bytes);
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
                   "libliger_ort.so: --refresh builds its bodies anew, or convert the original "
                   "first and patch the result");
    }
    report_.loss_ops = FindLosses(model_);
    for (const std::string& op : FindOpsWithoutBody(file_.proto, model_)) {
      Diagnose(Diagnostic::Severity::kWarning,
               "nodes of " + op +
                   " have lost their function bodies, so that the model loads only where "
                   "libliger_ort.so is registered: --refresh builds them anew");
    }
    return {};
  }

  // Brings the model into the form that can be patched: own functions in place of their calls, nodes
  // in order. Nothing of it is written unless something is fused.
  Status Prepare() {
    inlined_ = InlineFunctions(file_.proto, KeptOps());
    for (const std::string& note : inlined_.notes) Diagnose(Diagnostic::Severity::kNote, note);
    if (inlined_.calls > 0) {
      Diagnose(Diagnostic::Severity::kNote,
               "the bodies of " + CountOf(inlined_.functions, "local function") +
                   " stand in place of " + CountOf(inlined_.calls, "call"));
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

  // Own ops of this run's maps and of earlier ones.
  OwnOpNames KeptOps() const {
    OwnOpNames kept = OwnOpsOf(file_.proto);
    kept.merge(maps_.OwnOps());
    return kept;
  }

  fs::path Output() const { return options_.output.value_or(DefaultOutput(options_.input)); }

  // Found out before the work is done, not after.
  Status CheckOutputFolder() const {
    std::error_code ec;
    const fs::path output = Output();
    const fs::path folder = output.has_parent_path() ? output.parent_path() : fs::path(".");
    if (options_.check || options_.output_fd) return {};
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
    const std::string family = maps_.extends().empty() ? options_.family : maps_.extends();
    if (!maps_.IsEmpty() && family.empty()) return TakeMapsAlone();
    if (!maps_.extends().empty() && registry->Find(family) == nullptr && family != "any") {
      Error unknown = UnknownFamilyError(family, *registry);
      return Error{ErrorCode::kUsage, "the patch map extends a family that is not known: " + family,
                   maps_.ExtendsPlace(), std::move(unknown.hint)};
    }
    FamilyInfo info = InferFamily(model_, options_.input, *registry);
    if (!family.empty()) {
      auto chosen = ChooseFamily(family, info, *registry);
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
    if (!maps_.IsEmpty()) {
      report_.route = "composite";
      report_.helper += " + " + maps_.Files();
      if (!maps_.extends().empty()) report_.family_decided_by = "extends of the patch map";
    }
    return {};
  }

  // The custom route: no family is looked for, nothing but the maps' entries is patched.
  Status TakeMapsAlone() {
    if (options_.modules != PatchOptions().modules) {
      return Error{
          ErrorCode::kUsage,
          "--modules chooses among a family's modules, and this run has no family", "",
          "the patch map's own modules are on; --exclude takes some out; `extends:` in the "
          "map or --family adds a family's"};
    }
    report_.route = "custom";
    report_.helper = maps_.Files();
    report_.family = maps_.Label();
    report_.family_decided_by = "the patch map";
    map_.head.family = maps_.Label();
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
    for (const std::string& name : maps_.ModuleNames()) {
      const std::vector<std::string> known = KnownModules(map_);
      if (std::find(known.begin(), known.end(), name) == known.end()) map_.adds.push_back(name);
    }
    auto resolved =
        ResolveModules(map_, options_.modules, options_.exclude, available, options_.stage);
    if (!resolved) return std::move(resolved).error();
    resolved_ = *std::move(resolved);
    auto wanted = ParseExpect(options_.expect, KnownModules(map_));
    if (!wanted) return std::move(wanted).error();
    wanted_ = *std::move(wanted);
    report_.stage.name = options_.stage;
    report_.stage.note = resolved_.stage_note;
    for (const StageChange& change : resolved_.stage_changes) {
      report_.stage.changes.push_back({change.module, change.change});
    }
    if (options_.stage == "inference") {
      Diagnose(Diagnostic::Severity::kWarning, resolved_.stage_note);
    }
    // The structural route turns everything on: what this version lacks stands in the table.
    for (const std::string& warning : resolved_.warnings) {
      if (!map_.structural) Diagnose(Diagnostic::Severity::kWarning, warning);
    }
    report_.excluded_modules = resolved_.excluded;
    for (LossOpReport& loss : report_.loss_ops) loss.reason = WhyLeft(loss) + loss.reason;
    return {};
  }

  // Why a loss stays, in front of what the graph says of it.
  std::string WhyLeft(const LossOpReport& loss) const {
    if (FindModule(loss.module) == nullptr) return "";
    const auto& excluded = resolved_.excluded;
    if (std::find(excluded.begin(), excluded.end(), loss.module) != excluded.end()) {
      return options_.exclude == kDefaultExclude ? "excluded by default; "
                                                 : "excluded by --exclude; ";
    }
    return "this version has no op for it; ";
  }

  Status Plan() {
    auto ops = OpPatternSet::Load(files_.files());
    if (!ops) return std::move(ops).error();
    ops_.emplace(*std::move(ops));
    auto lowerings = LoweringSet::Load(files_.files());
    if (!lowerings) return std::move(lowerings).error();
    lowerings_ = *std::move(lowerings);
    PlanOptions plan_options;
    if (Status status = Select(plan_options.selection); !status) return status;
    plan_options.providers = options_.providers;
    plan_options.exact = options_.exact;
    plan_options.only_first = options_.only_first;
    if (options_.explain) plan_options.explain = ExplainFilter{*options_.explain};
    auto plan = MakePlan(model_, *ops_, lowerings_, plan_options);
    if (!plan) return std::move(plan).error();
    plan_ = *std::move(plan);
    const Selection& selection = plan_options.selection;
    ExpectedCounts expected = ComputeExpected(model_, map_, config_);
    maps_.RemoveFrom(expected, selection, plan_);
    AccountForModules(model_, plan_, expected, resolved_, plan_options, report_);
    if (options_.stage == "inference") {
      for (const std::string& name : maps_.ModuleNames()) {
        ModuleReport& module = report_.modules.emplace_back();
        module.name = name;
        module.reason = "off by --stage inference";
      }
    } else {
      if (Status status = maps_.Account(model_, plan_, plan_options, report_); !status)
        return status;
    }
    if (options_.explain && !options_.explain->empty()) {
      for (DescribedPlace& place : DescribePlaces(model_, *options_.explain)) {
        report_.explained.push_back({std::move(place.place), std::move(place.nodes)});
      }
      const bool is_module =
          std::any_of(report_.modules.begin(), report_.modules.end(),
                      [&](const ModuleReport& m) { return m.name == *options_.explain; });
      if (report_.explained.empty() && !is_module) {
        const Error unmatched = UnmatchedGlob({"--explain", *options_.explain, 0}, paths_);
        Diagnose(Diagnostic::Severity::kWarning, unmatched.message + ": " + unmatched.hint);
      }
    }
    report_.weights_read = model_.constants->external_reads();
    for (std::string& gap : RuntimeGaps(report_, options_.providers, installation_.library)) {
      report_.runtime_gaps.push_back(std::move(gap));
    }
    if (const int64_t attentions = CountDecomposedAttentions(model_); attentions > 0) {
      report_.runtime_gaps.push_back(
          "attention is not fused (" + std::to_string(attentions) +
          " places): a tool that fuses it (ONNX Runtime's transformer optimiser, or an export at "
          "opset 23) should run first");
    }
    return {};
  }

  // What the run wants of the model's matches.
  Status Select(Selection& selection) {
    for (const ResolvedModule& module : resolved_.modules) {
      if (module.enabled) selection.modules.insert(module.name);
    }
    const bool explains_a_place = options_.explain && !options_.explain->empty();
    if (maps_.IsEmpty() && options_.scopes.empty() && options_.skips.empty() && !explains_a_place) {
      return {};
    }
    const SymbolIndex index(model_, inlined_.places);
    paths_ = index.paths();
    for (const auto& [option, globs, filter] :
         {std::tuple("--scope", &options_.scopes, &selection.filter.scopes),
          std::tuple("--skip", &options_.skips, &selection.filter.skips)}) {
      for (const std::string& text : *globs) {
        const ModuleGlob& glob = filter->emplace_back(text);
        const auto paths =
            std::count_if(index.paths().begin(), index.paths().end(),
                          [&](const std::string& path) { return glob.Covers(path); });
        report_.scopes.push_back({option, text, paths});
        if (paths == 0 && options_.globs_must_match) {
          return UnmatchedGlob(report_.scopes.back(), index.paths());
        }
      }
    }
    if (options_.stage == "inference") return {};
    if (Status status = maps_.AddOwnOps(model_.opsets, *ops_); !status) return status;
    return maps_.Bind(index, resolved_.excluded, selection);
  }

  Status Expect() {
    AddExpectations(wanted_, options_.strict, report_);
    if (Status status = CheckExpectations(report_); !status) return status;
    if (plan_.nodes.empty()) {
      report_.status = "nothing_to_do";
      const bool passes = options_.output_fd && !options_.check && !options_.dry_run;
      const bool is_patched = std::any_of(plan_.already_fused.begin(), plan_.already_fused.end(),
                                          [&](const AlreadyFused& f) { return f.reason.empty(); });
      Diagnose(Diagnostic::Severity::kNote,
               std::string(is_patched ? "the model is patched already" : "nothing was fused") +
                   (passes       ? "; it is passed through as it is"
                    : is_patched ? "; nothing was written"
                                 : ", so no file was written"));
      done_ = true;
      if (passes) {
        return PassThrough(options_.input, options_.bytes, *options_.output_fd);
      }
    }
    return {};
  }

  Status Rewrite() {
    auto edit = MakeEdit(model_, plan_, *ops_, lowerings_);
    if (!edit) return std::move(edit).error();
    const bool has_family = !map_.structural && report_.route != "custom";
    if (has_family) edit->metadata["liger.family"] = report_.family;
    edit->metadata["liger.version"] = report_.tool_version;
    edit->metadata["liger.modules"] = FusedModules();
    if (const std::string own_ops = OwnOps(); !own_ops.empty()) {
      edit->metadata[std::string(kOwnOpsKey)] = own_ops;
    }
    const OpCounts before = CountOps(file_.proto);
    const onnx::ModelProto original = CopyToVerify(file_.proto);
    model_ = {};  // refers to the proto, which changes now
    if (Status status = ApplyEdit(*edit, file_.proto); !status) return status;
    AddOpCounts(before, CountOps(file_.proto), report_);
    return VerifyModel(original, file_.proto, report_);
  }

  // The modules of this run and of those before, whose nodes are still in the model.
  std::string FusedModules() const {
    const auto stamped = model_.metadata.find("liger.modules");
    std::string modules = stamped != model_.metadata.end() ? stamped->second : "";
    for (const ModuleReport& module : report_.modules) {
      const bool is_new = ("," + modules + ",").find("," + module.name + ",") == std::string::npos;
      const bool is_fused = module.enabled || module.already_fused > 0;
      if (is_new && is_fused) modules += (modules.empty() ? "" : ",") + module.name;
    }
    return modules;
  }

  // Domain and name of each own op that the result calls, those of earlier runs included.
  std::string OwnOps() const {
    OwnOpNames names = OwnOpsOf(file_.proto);
    for (const PlannedNode& node : plan_.nodes) {
      const OpContract& contract = *node.instance->op->contract;
      if (contract.is_own()) names.emplace(contract.domain, contract.op_type);
    }
    return ToText(names);
  }

  Status Write() {
    const fs::path output = Output();
    const bool replaced = SameFile(options_.input, output);
    const SaveTarget target{output, options_.output_fd, options_.external_data, options_.dry_run,
                            options_.check};
    if (Status status = SaveModel(file_.proto, external_, target, report_); !status) return status;
    if (!report_.output || options_.output_fd) return {};
    report_.validation_commands =
        ValidationCommands({options_.input, output, Choices(), replaced}, installation_);
    return {};
  }

  // The options that decide what is fused, where they are not the defaults.
  std::string Choices() const {
    const PatchOptions defaults;
    std::string text;
    const auto add = [&](const std::string& flag, const std::string& value) {
      text += " " + flag + " " + ShellWord(value);
    };
    for (const fs::path& file : options_.patches) add("--patches", file.string());
    for (const std::string& glob : options_.scopes) add("--scope", glob);
    for (const std::string& glob : options_.skips) add("--skip", glob);
    if (!options_.stage.empty()) add("--stage", options_.stage);
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
  const Installation installation_ = FindInstallation();
  UserMaps maps_;
  InlinedFunctions inlined_;
  std::set<std::string> paths_;  // module paths, where a glob is to be compared with them
  std::vector<WantedCount> wanted_;
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
  if (Status status = Run(options, outcome.report).Execute(); !status) {
    SetError(std::move(status).error(), outcome);
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
