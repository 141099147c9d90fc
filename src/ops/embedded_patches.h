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
};

std::span<const EmbeddedFile> EmbeddedPatches();

}  // namespace liger
