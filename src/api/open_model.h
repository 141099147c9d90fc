// The model of a run: a file, or bytes that a program or a pipe gives.
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <span>

#include "base/error.h"
#include "model/model_file.h"

namespace liger {

// `bytes` are the model instead of the file at `input`, whose folder is then where external data is;
// an `input` of "-" names them standard input in messages.
Result<ModelFile> OpenModel(const std::filesystem::path& input,
                            const std::optional<std::span<const std::byte>>& bytes);

}  // namespace liger
