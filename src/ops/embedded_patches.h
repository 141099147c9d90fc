// The YAML files of patches/ops, patches/lowerings and patches/families as they were when the
// program was built, so that the program needs no data files.
//
//   for (const EmbeddedFile& file : EmbeddedPatches()) {
//     if (file.path.starts_with("families/")) Parse(file.contents);
//   }
//
// Sorted by path; paths are relative to patches/. The views live as long as the program.
#pragma once

#include <span>
#include <string_view>

namespace liger {

struct EmbeddedFile {
  std::string_view path;      // "ops/rms_norm.yaml"
  std::string_view contents;  // byte for byte
  std::string_view origin{};  // the file on disk that replaced it; empty if it is built in

  // For messages.
  std::string_view shown() const { return origin.empty() ? path : origin; }
};

std::span<const EmbeddedFile> EmbeddedPatches();

}  // namespace liger
