#include "api/rebuild_model.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "api/op_counts.h"
#include "api/open_model.h"
#include "api/outcome.h"
#include "api/patch_files.h"
#include "api/save_model.h"
#include "api/user_maps.h"
#include "family/infer.h"
#include "model/check.h"
#include "model/check_calls.h"
#include "model/each_node.h"
#include "model/edit.h"
#include "model/function_bodies.h"
#include "model/inline_functions.h"
#include "model/model_file.h"
#include "model/onnx_graph.h"
#include "model/own_ops.h"
#include "model/sort_nodes.h"
#include "patchmap/family_registry.h"
#include "patchmap/modules.h"
#include "pattern/lowering.h"
#include "pattern/op_pattern.h"
#include "report/facts.h"
#include "rewrite/apply.h"
#include "rewrite/refresh.h"

namespace liger {
namespace {

constexpr std::string_view kStampPrefix = "liger.";

// "9 LigerRMSNorm, 4 LigerRope"
std::string ListOf(const std::map<std::string, int64_t>& counts) {
  std::string text;
  for (const auto& [name, count] : counts) {
    text += (text.empty() ? "" : ", ") + std::to_string(count) + " " + name;
  }
  return text;
}

bool IsStamp(const onnx::StringStringEntryProto& entry) {
  return entry.key().starts_with(kStampPrefix);
}

// A run of either kind. Each stage fills its part of the report; the first Error ends the run.
class Rebuild {
 public:
  Rebuild(const RebuildOptions& options, std::string suffix, Report& report)
      : options_(options), suffix_(std::move(suffix)), report_(report) {
    report_.tool_version = ToolVersion();
    report_.input.path = options_.input.string();
  }

  Status Revert() {
    if (Status status = Load(); !status) return status;
    const bool has_stamps = std::any_of(file_.proto.metadata_props().begin(),
                                        file_.proto.metadata_props().end(), IsStamp);
    const bool has_functions = std::any_of(
        file_.proto.functions().begin(), file_.proto.functions().end(),
        [&](const auto& function) { return IsOurs(function.domain(), function.name()); });
    if (!has_stamps && !has_functions && !CallsOurs()) {
      return NothingToDo("the model holds nothing that patching made");
    }
    const OpCounts before = CountOps(file_.proto);
    auto refresh = Plan();
    if (!refresh) return std::move(refresh).error();
    if (!refresh->stale.empty()) {
      ReportStale(*refresh);
      if (Status status = Apply(*refresh, {}); !status) return status;
      report_.verification.clear();  // the result's own is to come
    }
    model_ = {};  // refers to the proto, which changes now
    const onnx::ModelProto original = CopyToVerify(file_.proto);
    if (Status status = Inline(); !status) return status;
    RemoveStamps();
    AddOpCounts(before, CountOps(file_.proto), report_);
    if (Status status = VerifyModel(original, file_.proto, report_); !status) return status;
    return Save();
  }

  Status Refresh() {
    if (Status status = Load(); !status) return status;
    if (!CallsOurs()) return NothingToDo("the model calls no fused op");
    auto refresh = Plan();
    if (!refresh) return std::move(refresh).error();
    for (const std::string& note : refresh->notes) Diagnose(Diagnostic::Severity::kWarning, note);
    const bool stamped =
        model_.metadata.contains("liger.version") && model_.metadata.contains("liger.modules");
    if (refresh->stale.empty() && stamped) {
      return NothingToDo("every call of a fused op has a body that fits it");
    }
    ReportStale(*refresh);
    if (!stamped) Diagnose(Diagnostic::Severity::kNote, "the stamps of patching are set again");
    auto stamps = Stamps(*refresh);
    if (!stamps) return std::move(stamps).error();
    if (Status status = Apply(*refresh, *std::move(stamps)); !status) return status;
    return Save();
  }

 private:
  void Diagnose(Diagnostic::Severity severity, std::string message) {
    report_.diagnostics.push_back({severity, std::move(message)});
  }

  Status Load() {
    auto maps = UserMaps::Load(options_.patches);
    if (!maps) return std::move(maps).error();
    maps_ = *std::move(maps);
    auto file = OpenModel(options_.input, options_.bytes);
    if (!file) return std::move(file).error();
    file_ = *std::move(file);
    report_.input.sha256 = file_.sha256;
    own_ = maps_.OwnOps();
    own_.merge(OwnOpsOf(file_.proto));
    auto external = FindExternalData(file_.proto, file_.folder);
    if (!external) return std::move(external).error();
    external_ = *std::move(external);
    auto moved = SortNodes(file_.proto);
    if (!moved) return std::move(moved).error();
    return {};
  }

  bool IsOurs(const std::string& domain, const std::string& name) const {
    return domain == kOpDomain || own_.contains({domain, name});
  }

  bool CallsOurs() const {
    bool calls = false;
    const auto look = [&](const onnx::NodeProto& node) {
      calls = calls || IsOurs(node.domain(), node.op_type());
    };
    ForEachNode(file_.proto.graph().node(), look);
    for (const auto& function : file_.proto.functions()) ForEachNode(function.node(), look);
    return calls;
  }

  // Where a pipe expects a model, the input goes through as it is.
  Status NothingToDo(const std::string& why) {
    report_.status = "nothing_to_do";
    Diagnose(Diagnostic::Severity::kNote, why + "; nothing was written");
    if (!options_.output_fd || options_.check || options_.dry_run) return {};
    return PassThrough(options_.input, options_.bytes, *options_.output_fd);
  }

  Result<RefreshPlan> Plan() {
    auto model = BuildGraphModel(file_.proto, file_.folder);
    if (!model) return std::move(model).error();
    model_ = *std::move(model);
    auto files = PatchFiles::Load(options_.patches_dir);
    if (!files) return std::move(files).error();
    files_ = *std::move(files);
    auto ops = OpPatternSet::Load(files_.files());
    if (!ops) return std::move(ops).error();
    ops_ = *std::move(ops);
    if (Status status = maps_.AddOwnOps(model_.opsets, ops_); !status) {
      return std::move(status).error();
    }
    auto lowerings = LoweringSet::Load(files_.files());
    if (!lowerings) return std::move(lowerings).error();
    lowerings_ = *std::move(lowerings);
    auto bodies = FunctionBodies::Of(file_.proto, own_);
    if (!bodies) return std::move(bodies).error();
    return PlanRefresh(model_, *bodies, ops_, lowerings_, own_);
  }

  // One note for each op and reason.
  void ReportStale(const RefreshPlan& refresh) {
    std::map<std::pair<std::string, std::string>, std::vector<std::string>> groups;
    for (const StaleCall& call : refresh.stale) groups[{call.op, call.why}].push_back(call.node);
    for (const auto& [group, nodes] : groups) {
      Diagnose(Diagnostic::Severity::kNote,
               CountOf(static_cast<int64_t>(nodes.size()), "call") + " of " + group.first +
                   " got a new body: " + group.second + " (node '" + nodes.front() + "')");
    }
  }

  // Writes the planned calls into the model, and checks what has become of it.
  Status Apply(const RefreshPlan& refresh, std::map<std::string, std::string> stamps) {
    auto edit = MakeEdit(model_, refresh.plan, ops_, lowerings_);
    if (!edit) return std::move(edit).error();
    edit->metadata = std::move(stamps);
    model_ = {};
    RemoveFunctions(refresh.unused, file_.proto);
    DeclareTypes(refresh.result_types, file_.proto);
    const onnx::ModelProto original = CopyToVerify(file_.proto);
    if (Status status = ApplyEdit(*edit, file_.proto); !status) return status;
    auto model = BuildGraphModel(file_.proto, file_.folder);
    if (!model) return std::move(model).error();
    if (const auto why = FindMisfitCall(file_.proto, *model, own_)) {
      return Error{ErrorCode::kInternal, "a new body does not fit its call: " + *why, "",
                   "please report this, with the model if you can"};
    }
    // Without bodies inference of the original stops at each call: what it finds behind them in the
    // result may be as old as the model.
    return VerifyModel(original, file_.proto, report_,
                       {.inference = CheckOptions::Inference::kReport});
  }

  // The metadata that patching leaves: what is there stays, what is missing is told from the calls.
  Result<std::map<std::string, std::string>> Stamps(const RefreshPlan& refresh) {
    std::map<std::string, std::string> stamps;
    bool any = false;
    for (const auto& [key, value] : model_.metadata) {
      if (!key.starts_with(kStampPrefix)) continue;
      stamps[key] = value;
      any = true;
    }
    if (!any) {
      auto registry = FamilyRegistry::Load(files_.files(), std::nullopt);
      if (!registry) return std::move(registry).error();
      const FamilyInfo info = InferFamily(model_, options_.input, *registry);
      if (info.known()) stamps["liger.family"] = info.family;
    }
    std::set<std::string> called;
    OwnOpNames own_ops = ParseOwnOps(stamps[std::string(kOwnOpsKey)]);
    for (const auto& [domain, op_type] : own_) {
      if (refresh.calls.contains(domain + "." + op_type)) own_ops.emplace(domain, op_type);
    }
    for (const OpContract& op : Contracts()) {
      if (refresh.calls.contains(std::string(kOpDomain) + "." + std::string(op.op_type))) {
        called.emplace(op.module);
      }
    }
    std::string& modules = stamps["liger.modules"];
    for (const ModuleKind& kind : ModuleVocabulary()) {
      const std::string name(kind.name);
      const bool listed = ("," + modules + ",").find("," + name + ",") != std::string::npos;
      if (called.contains(name) && !listed) modules += (modules.empty() ? "" : ",") + name;
    }
    stamps["liger.version"] = report_.tool_version;
    stamps[std::string(kOwnOpsKey)] = ToText(own_ops);
    if (own_ops.empty()) stamps.erase(std::string(kOwnOpsKey));
    return stamps;
  }

  Status Inline() {
    const InlinedFunctions inlined = InlineFusedOps(file_.proto, own_);
    std::map<std::string, int64_t> counts;
    for (const InlinedCall& call : inlined.places) {
      const size_t colons = call.function.rfind("::");
      const std::string domain = call.function.substr(0, colons);
      const std::string name = call.function.substr(colons + 2);
      ++counts[domain == kOpDomain ? name : domain + "." + name];
    }
    if (inlined.calls > 0) {
      Diagnose(Diagnostic::Severity::kNote, "the bodies of " + CountOf(inlined.calls, "call") +
                                                " stand in their place: " + ListOf(counts));
    }
    std::map<std::string, int64_t> left;
    const auto look = [&](const onnx::NodeProto& node) {
      if (IsOurs(node.domain(), node.op_type())) ++left[node.domain() + "." + node.op_type()];
    };
    ForEachNode(file_.proto.graph().node(), look);
    for (const auto& function : file_.proto.functions()) ForEachNode(function.node(), look);
    if (left.empty()) return {};
    std::string why;
    for (const std::string& note : inlined.notes) why += (why.empty() ? "" : "; ") + note;
    return Error{ErrorCode::kInvalidModel,
                 "calls cannot be replaced by what they compute: " + ListOf(left), why,
                 "this version knows no body for them: take the version that patched the model, or "
                 "the original"};
  }

  void RemoveStamps() {
    int64_t ir_version = file_.proto.ir_version();
    auto& entries = *file_.proto.mutable_metadata_props();
    for (const auto& entry : entries) {
      if (entry.key() != kIrVersionKey) continue;
      const std::string& text = entry.value();
      std::from_chars(text.data(), text.data() + text.size(), ir_version);
    }
    entries.erase(std::remove_if(entries.begin(), entries.end(), IsStamp), entries.end());
    for (const auto& function : file_.proto.functions()) {
      ir_version =
          std::max(ir_version, function.overload().empty() ? kIrWithFunctions : kIrWithOverloads);
    }
    // Any other version is that of a tool that came after.
    const int64_t now = file_.proto.ir_version();
    if (ir_version > 0 && ir_version < now &&
        (now == kIrWithFunctions || now == kIrWithOverloads)) {
      file_.proto.set_ir_version(ir_version);
    }
  }

  Status Save() {
    SaveTarget target;
    target.output = options_.output.value_or(options_.input.parent_path() /
                                             (options_.input.stem().string() + suffix_));
    target.output_fd = options_.output_fd;
    target.external_data = options_.external_data;
    target.dry_run = options_.dry_run;
    target.check = options_.check;
    return SaveModel(file_.proto, external_, target, report_);
  }

  const RebuildOptions& options_;
  const std::string suffix_;
  Report& report_;
  UserMaps maps_;
  ModelFile file_;
  ExternalData external_;
  OwnOpNames own_;  // that the model or a map names
  GraphModel model_;
  PatchFiles files_;
  OpPatternSet ops_;
  LoweringSet lowerings_;
};

}  // namespace

PatchOutcome RevertModel(const RebuildOptions& options) {
  PatchOutcome outcome;
  Status status = Rebuild(options, ".reverted.onnx", outcome.report).Revert();
  if (!status) SetError(std::move(status).error(), outcome);
  return outcome;
}

PatchOutcome RefreshModel(const RebuildOptions& options) {
  PatchOutcome outcome;
  Status status = Rebuild(options, ".refreshed.onnx", outcome.report).Refresh();
  if (!status) SetError(std::move(status).error(), outcome);
  return outcome;
}

}  // namespace liger
