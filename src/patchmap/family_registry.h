// All families that this run knows: those embedded in the program, replaced and extended by a
// folder.
//
//   Result<FamilyRegistry> registry = FamilyRegistry::Load(EmbeddedPatches(), patches_dir);
//   const FamilyHead* head = registry->Find("qwq");          // the head of qwen2
//   Result<FamilyMap> map = registry->LoadMap(head->family);  // parsed here, not before
//
// Loading reads the heads only, so that its time does not grow with the size of the maps. A file of
// the folder, DIR/families/<family>.yaml, replaces the embedded file of the same name. Names are
// unique: two families that claim one model type or alias are an error.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "ops/embedded_patches.h"
#include "patchmap/family_map.h"

namespace liger {

class FamilyRegistry {
 public:
  static Result<FamilyRegistry> Load(std::span<const EmbeddedFile> embedded,
                                     const std::optional<std::filesystem::path>& patches_dir);

  // Sorted by family.
  const std::vector<FamilyHead>& heads() const { return heads_; }
  std::vector<std::string> names() const;

  // By family, model type or alias; nullptr if no family has that name.
  const FamilyHead* Find(std::string_view name) const;
  // By genai_config.json's model.type.
  const FamilyHead* FindGenaiType(std::string_view type) const;
  // By the class name in config.json's architectures.
  const FamilyHead* FindArchitecture(std::string_view class_name) const;

  // The families whose names resemble `name`, aliases and model types included, best first.
  std::vector<std::string> Nearest(std::string_view name, size_t limit = 3) const;

  // Parses and validates the family's file. "any" gives StructuralMap(). Unknown names are kFamily.
  // A family with parts (FamilyHead::parts) takes in the modules that these accept and it does not
  // name itself: of those among `parts`, what is known of this model's parts; of all of them if
  // that leaves none, and then names of nodes and parameters are no evidence for their instances,
  // since families share these.
  Result<FamilyMap> LoadMap(std::string_view name, std::span<const std::string> parts = {}) const;

 private:
  struct Text {
    std::string file;  // for messages
    std::string contents;
  };

  Result<FamilyMap> ParseMap(const FamilyHead& head) const;
  Status TakeIn(std::string_view part, bool is_known, FamilyMap* map) const;

  std::vector<FamilyHead> heads_;
  std::map<std::string, Text, std::less<>> texts_;  // by family
  std::map<std::string, size_t, std::less<>> by_name_;
  std::map<std::string, size_t, std::less<>> by_genai_type_;
  std::map<std::string, size_t, std::less<>> by_architecture_;
};

// The error for a family name that nobody knows: the nearest names, the known ones, how to go on.
Error UnknownFamilyError(std::string_view name, const FamilyRegistry& registry);

}  // namespace liger
