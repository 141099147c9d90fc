// The built-in families, read from the source tree.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "patchmap/family_registry.h"

namespace liger {

inline FamilyRegistry BuiltInFamilies() {
  std::vector<std::pair<std::string, std::string>> texts;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::string(LIGER_PATCHES_DIR) + "/families")) {
    std::ifstream stream(entry.path());
    texts.emplace_back(
        "families/" + entry.path().filename().string(),
        std::string{std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()});
  }
  std::vector<EmbeddedFile> files;
  for (const auto& [path, text] : texts) files.push_back({path, text});
  Result<FamilyRegistry> registry = FamilyRegistry::Load(files, std::nullopt);
  if (!registry) {
    ADD_FAILURE() << registry.error().location << ": " << registry.error().message;
    return FamilyRegistry();
  }
  return *std::move(registry);
}

}  // namespace liger
