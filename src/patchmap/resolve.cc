#include "patchmap/resolve.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "patchmap/modules.h"
#include "patchmap/nearest.h"

namespace liger {
namespace {

struct Request {
  bool is_list = false;                             // "these and no others"
  std::map<std::string, bool, std::less<>> wishes;  // module to on or off

  bool AsksFor(std::string_view module) const {
    const auto wish = wishes.find(module);
    return wish != wishes.end() && wish->second;
  }
};

Error UsageError(std::string message, std::string hint = "") {
  return Error{ErrorCode::kUsage, std::move(message), "", std::move(hint)};
}

std::string_view Trim(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return "";
  return text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

std::vector<std::string_view> SplitAtCommas(std::string_view text) {
  std::vector<std::string_view> parts;
  while (true) {
    const size_t comma = text.find(',');
    parts.push_back(Trim(text.substr(0, comma)));
    if (comma == std::string_view::npos) return parts;
    text.remove_prefix(comma + 1);
  }
}

Status CheckName(std::string_view name, std::string_view option, const FamilyMap& family) {
  const std::vector<std::string> known = KnownModules(family);
  if (std::find(known.begin(), known.end(), name) != known.end()) return Status();
  if (name.empty()) {
    return UsageError(std::string(option) + " holds an empty name",
                      "names are separated by single commas: rms_norm,rope");
  }
  const std::vector<std::string> nearest = NearestNames(name, known);
  return UsageError("unknown module '" + std::string(name) + "' in " + std::string(option),
                    nearest.empty() ? "known modules: " + JoinNames(known)
                                    : "did you mean " + JoinAlternatives(nearest) + "?");
}

Result<Request> ParseRequest(std::string_view modules, const FamilyMap& family) {
  Request request;
  if (Trim(modules) == "auto") return request;
  std::optional<bool> with_values;
  for (std::string_view part : SplitAtCommas(modules)) {
    const size_t equals = part.find('=');
    const bool has_value = equals != std::string_view::npos;
    const std::string_view name = Trim(part.substr(0, equals));
    if (name == "auto") {
      return UsageError("'auto' stands alone in --modules",
                        "write rms_norm=on,rope=off to change some and keep the family's defaults "
                        "for the rest");
    }
    if (Status status = CheckName(name, "--modules", family); !status)
      return std::move(status).error();
    if (with_values && *with_values != has_value) {
      return UsageError("--modules mixes names with and without a value",
                        "either rms_norm=on,rope=off (the rest as the family's defaults) or "
                        "rms_norm,rope (these and no others)");
    }
    with_values = has_value;
    bool on = true;
    if (has_value) {
      const std::string_view value = Trim(part.substr(equals + 1));
      if (value != "on" && value != "off") {
        return UsageError("module " + std::string(name) +
                          " in --modules has to be on or off, not '" + std::string(value) + "'");
      }
      on = value == "on";
    }
    if (!request.wishes.emplace(name, on).second) {
      return UsageError("module '" + std::string(name) + "' stands twice in --modules");
    }
  }
  request.is_list = !*with_values;
  return request;
}

Result<std::vector<std::string>> ParseExclude(std::string_view exclude, const FamilyMap& family) {
  std::vector<std::string> names;
  if (Trim(exclude) == "none") return names;
  for (std::string_view name : SplitAtCommas(exclude)) {
    if (name == "none") return UsageError("'none' stands alone in --exclude");
    if (Status status = CheckName(name, "--exclude", family); !status)
      return std::move(status).error();
    if (std::find(names.begin(), names.end(), name) != names.end()) {
      return UsageError("module '" + std::string(name) + "' stands twice in --exclude");
    }
    names.emplace_back(name);
  }
  return names;
}

// "family llama", "the structural route".
std::string Named(const FamilyMap& family) {
  if (family.structural) return "the structural route";
  std::string text = "family ";
  return text += family.name();
}

// Every family accepts it, on request only.
bool IsOnRequest(std::string_view name) {
  const ModuleKind* kind = FindModule(name);
  return kind != nullptr && kind->on_request;
}

// "on by default for family llama, a part of llava", "off by default for family glm4: <why>".
std::string ReasonOfDefault(const ModuleDefault& module, const FamilyMap& family) {
  std::string reason = module.on ? "on by default for " : "off by default for ";
  reason += module.part.empty() ? Named(family)
                                : "family " + module.part + ", a part of " + family.name();
  if (!module.refused.empty()) {
    reason += ": " + module.refused;
  } else if (!module.no_op.empty()) {
    reason += ": " + module.no_op;
  }
  return reason;
}

constexpr std::string_view kStages[] = {"pt", "sft", "rm", "ppo", "dpo", "kto", "inference"};

Status CheckStage(std::string_view stage) {
  if (stage.empty() ||
      std::find(std::begin(kStages), std::end(kStages), stage) != std::end(kStages)) {
    return {};
  }
  const std::vector<std::string> known(std::begin(kStages), std::end(kStages));
  const std::vector<std::string> nearest = NearestNames(stage, known);
  return UsageError("--stage: '" + std::string(stage) + "' is no stage",
                    (nearest.empty() ? "" : "did you mean " + JoinAlternatives(nearest) + "? ") +
                        "stages are " + JoinNames(known));
}

// The stages after supervised fine-tuning compare or score sequences by their logits.
bool NeedsLogits(std::string_view stage) {
  return stage == "rm" || stage == "ppo" || stage == "dpo" || stage == "kto";
}

// Applies the stage to what `modules` resolved to, before the exclusions.
void ApplyStage(std::string_view stage, const FamilyMap& family, ResolvedModules& resolved) {
  const std::string name = "stage " + std::string(stage);
  const auto turn = [&](std::string_view module, bool on, const std::string& why) {
    for (ResolvedModule& m : resolved.modules) {
      if (m.name != module || m.enabled == on) continue;
      m.enabled = on;
      m.reason = (on ? "on by --stage " : "off by --stage ") + std::string(stage);
      resolved.stage_changes.push_back(
          {m.name, std::string(on ? "turned on: " : "turned off: ") + why});
    }
  };
  if (stage == "inference") {
    for (const ResolvedModule& module : std::vector(resolved.modules)) {
      turn(module.name, false, "the trainer's rules patch nothing for inference");
    }
    resolved.stage_note =
        "stage inference patches NOTHING: the trainer applies its kernels only in training; leave "
        "--stage out to patch a model for inference";
    return;
  }
  const ModuleDefault* fused_loss = family.FindDefault("fused_linear_cross_entropy");
  const ModuleDefault* loss = family.FindDefault("cross_entropy");
  if (!NeedsLogits(stage)) {
    resolved.stage_note = name + " changes nothing: the family's own defaults hold";
    return;
  }
  if (fused_loss == nullptr) {
    resolved.stage_note =
        name + " needs the logits and changes nothing: " + Named(family) + " has no fused loss";
    return;
  }
  turn("fused_linear_cross_entropy", false, name + " needs the logits");
  if (loss != nullptr && loss->refused.empty()) {
    turn("cross_entropy", true, name + " needs the logits, and this loss keeps them");
  }
  resolved.stage_note = name + " needs the logits: fused_linear_cross_entropy is off";
}

// The modules that the family accepts, each as the request or the family's default says.
Result<ResolvedModules> ApplyRequest(const Request& request, const FamilyMap& family) {
  std::vector<std::string> accepted;
  for (const std::string& name : KnownModules(family)) {
    if (family.Accepts(name) || (IsOnRequest(name) && request.AsksFor(name))) {
      accepted.push_back(name);
    }
  }
  for (const auto& [name, on] : request.wishes) {
    if (!on) continue;
    if (std::find(accepted.begin(), accepted.end(), name) == accepted.end()) {
      return Error{ErrorCode::kFamily, Named(family) + " does not accept module '" + name + "'", "",
                   "it accepts " + JoinNames(accepted)};
    }
    const ModuleDefault* known = family.FindDefault(name);
    if (known != nullptr && !known->refused.empty()) {
      return Error{ErrorCode::kFamily,
                   Named(family) + " does not accept module '" + name + "': " + known->refused, "",
                   ""};
    }
  }
  ResolvedModules resolved;
  for (const std::string& name : accepted) {
    ResolvedModule& module = resolved.modules.emplace_back();
    module.name = name;
    const ModuleKind* kind = FindModule(name);
    module.is_loss = kind != nullptr && kind->is_loss;
    if (const auto wish = request.wishes.find(name); wish != request.wishes.end()) {
      module.enabled = wish->second;
      module.reason = module.enabled ? "on by --modules" : "off by --modules";
    } else if (request.is_list) {
      module.reason = "not among --modules";
    } else {
      const ModuleDefault& standard = *family.FindDefault(name);
      module.enabled = standard.on;
      module.reason = ReasonOfDefault(standard, family);
    }
  }
  return resolved;
}

void ApplyExclude(const Request& request, bool is_default, ResolvedModules& resolved) {
  for (ResolvedModule& module : resolved.modules) {
    const auto& excluded = resolved.excluded;
    const bool is_excluded =
        std::find(excluded.begin(), excluded.end(), module.name) != excluded.end();
    if (!module.enabled || !is_excluded) continue;
    module.enabled = false;
    module.excluded = true;
    module.reason =
        is_default ? "excluded by default; --exclude none lifts it" : "excluded by --exclude";
    if (!request.AsksFor(module.name)) continue;
    resolved.warnings.push_back(
        "module " + module.name + " is on by --modules, but " +
        (is_default ? "excluded by default; --exclude none lifts it" : "--exclude wins"));
  }
}

}  // namespace

std::vector<std::string> KnownModules(const FamilyMap& family) {
  std::vector<std::string> names;
  for (const ModuleKind& kind : ModuleVocabulary()) names.emplace_back(kind.name);
  names.insert(names.end(), family.adds.begin(), family.adds.end());
  return names;
}

const ResolvedModule* ResolvedModules::Find(std::string_view name) const {
  for (const ResolvedModule& module : modules) {
    if (module.name == name) return &module;
  }
  return nullptr;
}

bool ResolvedModules::IsEnabled(std::string_view name) const {
  const ResolvedModule* module = Find(name);
  return module != nullptr && module->enabled;
}

Result<ResolvedModules> ResolveModules(const FamilyMap& family, std::string_view modules,
                                       std::string_view exclude,
                                       std::span<const std::string> available,
                                       std::string_view stage) {
  if (Status status = CheckStage(stage); !status) return std::move(status).error();
  Result<Request> request = ParseRequest(modules, family);
  if (!request) return std::move(request).error();
  Result<std::vector<std::string>> excluded = ParseExclude(exclude, family);
  if (!excluded) return std::move(excluded).error();
  Result<ResolvedModules> resolved = ApplyRequest(*request, family);
  if (!resolved) return resolved;
  resolved->excluded = *std::move(excluded);
  if (!stage.empty()) ApplyStage(stage, family, *resolved);
  ApplyExclude(*request, exclude == kDefaultExclude, *resolved);

  const auto is_available = [&](const std::string& name) {
    return std::find(available.begin(), available.end(), name) != available.end();
  };
  for (const ResolvedModule& module : resolved->modules) {
    if (module.enabled && !is_available(module.name) && request->AsksFor(module.name)) {
      return UsageError("module " + module.name + " is not available in this version",
                        "available: " + JoinNames(available));
    }
  }
  if (resolved->IsEnabled("cross_entropy") && resolved->IsEnabled("fused_linear_cross_entropy")) {
    return UsageError("cross_entropy and fused_linear_cross_entropy are both on",
                      "a graph has one loss: turn one off with --modules or --exclude");
  }

  // What only a default turned on is turned off again where there is no kernel, and said so.
  for (ResolvedModule& module : resolved->modules) {
    if (!module.enabled || is_available(module.name)) continue;
    module.enabled = false;
    module.reason += FindModule(module.name) != nullptr ? ", but not available in this version"
                                                        : ", but no fused op computes it";
    resolved->warnings.push_back("module " + module.name + " is " + module.reason);
  }
  const bool any_loss =
      std::any_of(resolved->modules.begin(), resolved->modules.end(),
                  [](const ResolvedModule& module) { return module.is_loss && module.enabled; });
  if (NeedsLogits(stage) && !any_loss) resolved->stage_note += "; no loss is fused";
  return resolved;
}

}  // namespace liger
