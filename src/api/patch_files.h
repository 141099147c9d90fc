// The patch files of a run: those built into the program, replaced and extended by a folder.
//
//   Result<PatchFiles> files = PatchFiles::Load(options.patches_dir);
//   OpPatternSet::Load(files->files());
//
// A file DIR/ops/*.yaml, DIR/lowerings/*.yaml or DIR/families/*.yaml replaces the built-in file of
// the same name.
#pragma once

#include <filesystem>
#include <list>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "ops/embedded_patches.h"

namespace liger {

class PatchFiles {
 public:
  static Result<PatchFiles> Load(const std::optional<std::filesystem::path>& folder);

  const std::vector<EmbeddedFile>& files() const { return files_; }

 private:
  std::vector<EmbeddedFile> files_;
  std::list<std::string> owned_;  // what files_ points into
};

}  // namespace liger
