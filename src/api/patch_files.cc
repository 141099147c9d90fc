#include "api/patch_files.h"

#include <algorithm>
#include <fstream>
#include <iterator>

namespace liger {

namespace fs = std::filesystem;

Result<PatchFiles> PatchFiles::Load(const std::optional<fs::path>& folder) {
  PatchFiles result;
  const auto embedded = EmbeddedPatches();
  result.files_.assign(embedded.begin(), embedded.end());
  if (!folder) return result;
  std::error_code ec;
  if (!fs::is_directory(*folder, ec)) {
    return Error{ErrorCode::kUsage, "the patches folder '" + folder->string() + "' is no folder",
                 folder->string(), "give a folder with ops/, lowerings/ or families/ in it"};
  }
  constexpr const char* kKinds[] = {"ops", "lowerings", "families"};
  if (std::none_of(std::begin(kKinds), std::end(kKinds),
                   [&](const char* kind) { return fs::is_directory(*folder / kind, ec); })) {
    return Error{
        ErrorCode::kUsage,
        "the patches folder '" + folder->string() + "' has no folder ops, lowerings or families",
        folder->string(), "DIR/families/llama.yaml replaces the map of llama, for instance"};
  }
  for (const char* kind : kKinds) {
    std::vector<fs::path> paths;
    for (fs::directory_iterator it(*folder / kind, ec), end; !ec && it != end; it.increment(ec)) {
      if (it->path().extension() == ".yaml") paths.push_back(it->path());
    }
    std::sort(paths.begin(), paths.end());
    for (const fs::path& path : paths) {
      std::ifstream stream(path, std::ios::binary);
      std::string& text = result.owned_.emplace_back(std::istreambuf_iterator<char>(stream),
                                                     std::istreambuf_iterator<char>());
      if (!stream) {
        return Error{ErrorCode::kUsage, "the patch file '" + path.string() + "' cannot be read",
                     path.string()};
      }
      std::string& name =
          result.owned_.emplace_back(std::string(kind) + "/" + path.filename().string());
      const std::string& shown = result.owned_.emplace_back(path.string());
      const auto same = std::find_if(result.files_.begin(), result.files_.end(),
                                     [&](const EmbeddedFile& file) { return file.path == name; });
      if (same != result.files_.end()) {
        *same = {same->path, text, shown};
      } else {
        result.files_.push_back({name, text, shown});
      }
    }
  }
  std::sort(result.files_.begin(), result.files_.end(),
            [](const EmbeddedFile& a, const EmbeddedFile& b) { return a.path < b.path; });
  return result;
}

}  // namespace liger
