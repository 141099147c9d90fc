#include "api/open_model.h"

namespace liger {

Result<ModelFile> OpenModel(const std::filesystem::path& input,
                            const std::optional<std::span<const std::byte>>& bytes) {
  if (!bytes) return LoadModelFile(input);
  return ParseModelBytes(*bytes, input.parent_path(),
                         input == "-" ? "standard input" : "the model in memory");
}

}  // namespace liger
