// From --modules and --exclude to the set of modules that are patched.
//
//   Result<ResolvedModules> modules = ResolveModules(map, "rms_norm=on,rope=off", kDefaultExclude,
//   {"rms_norm"}); modules->IsEnabled("rope")   // false, with the reason "off by --modules"
//
// `modules` is one of
//   auto                   each module as the family's default says
//   rms_norm=on,rope=off   the named ones so, the others as the family's default says
//   rms_norm,rope          these and no others
// and a mixture of the last two is an error. `exclude` is a comma-separated list that wins over
// `modules`, or "none". Unknown names, and both losses on at once, are kUsage; enabling what the
// family does not accept is kFamily. A module that this version has no kernel for is an error if it
// was asked for by name; if only a default turns it on, it is off, its reason says so, and there is
// a warning. Modules that run on request only (ModuleKind::on_request) are accepted by every family
// and stand in the result if they were asked for.
//
// `stage` is what the model is trained for, with LLaMA-Factory's rules; it is stronger than
// `modules` and weaker than `exclude`:
//   pt, sft              nothing changes
//   rm, ppo, dpo, kto    the logits are needed: fused_linear_cross_entropy is off and cross_entropy
//                        on, in families that accept them
//   inference            nothing is patched
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "patchmap/family_map.h"

namespace liger {

inline constexpr std::string_view kDefaultExclude = "cross_entropy,fused_linear_cross_entropy";

struct StageChange {
  std::string module;
  std::string change;  // "turned off: stage dpo needs the logits"
};

struct ResolvedModule {
  std::string name;
  bool enabled = false;
  bool excluded = false;  // would be on if --exclude did not name it
  bool is_loss = false;
  std::string reason;  // "on by default for llama", "excluded by default", ...
};

struct ResolvedModules {
  std::vector<ResolvedModule> modules;  // every module that the family accepts, in vocabulary order
  std::vector<std::string> excluded;    // what --exclude names, in its order
  std::vector<std::string> warnings;
  std::vector<StageChange> stage_changes;
  std::string stage_note;  // one sentence on what the stage came to; empty without a stage

  const ResolvedModule* Find(std::string_view name) const;
  bool IsEnabled(std::string_view name) const;
};

// `available` are the modules for which this version has ops.
Result<ResolvedModules> ResolveModules(const FamilyMap& family, std::string_view modules,
                                       std::string_view exclude,
                                       std::span<const std::string> available,
                                       std::string_view stage = "");

// The names that --exclude and --modules may hold for a family: the vocabulary and what it adds.
std::vector<std::string> KnownModules(const FamilyMap& family);

}  // namespace liger
