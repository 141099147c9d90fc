// Facts from config.json and genai_config.json that stand beside a model.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"

namespace liger {

struct ModelConfig {
  std::string file;               // empty if there was none
  std::string model_type;         // empty if the file does not say
  std::string text_model_type;    // text_config.model_type
  std::string vision_model_type;  // vision_config.model_type
  std::vector<std::string> architectures;
  std::map<std::string, int64_t> integers;  // top level, then text_config, then model.decoder
  std::map<std::string, std::vector<int64_t>> lists;  // lists of integers or booleans, likewise
  std::vector<std::string> layer_types;               // likewise; "full_attention", one a layer

  std::optional<int64_t> Integer(const std::string& key) const;
};

// Reads Hugging Face's config.json. Accepts NaN and Infinity, which Python writes. The error says
// what is wrong with the file.
Result<ModelConfig> ReadConfigJson(const std::filesystem::path& file);

// Reads genai_config.json: model.type as model_type, model.decoder as integers.
Result<ModelConfig> ReadGenaiConfig(const std::filesystem::path& file);

// The same from text, for tests and models in memory.
Result<ModelConfig> ParseConfigJson(std::string_view text, std::string file);
Result<ModelConfig> ParseGenaiConfig(std::string_view text, std::string file);

}  // namespace liger
