// The names that --modules, --exclude and family maps use for kinds of modules.
//
//   FindModule("rms_norm")->is_loss   // false
//
// A family may add names of its own (`adds:` in its map); they stand in its FamilyMap.
#pragma once

#include <span>
#include <string_view>

namespace liger {

struct ModuleKind {
  std::string_view name;
  bool is_loss = false;
  std::string_view description;  // one line for --list modules
  // No helper of Liger's takes it: every family accepts it, and it is off unless --modules asks.
  bool on_request = false;
};

// In the order in which reports list them.
std::span<const ModuleKind> ModuleVocabulary();

// nullptr if the vocabulary has no such name.
const ModuleKind* FindModule(std::string_view name);

}  // namespace liger
