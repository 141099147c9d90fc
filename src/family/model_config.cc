#include "family/model_config.h"

#include <cctype>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string_view>
#include <system_error>
#include <utility>

namespace liger {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr uintmax_t kMaxFileSize = 16 << 20;

Error ConfigError(std::string file, std::string message) {
  return Error{ErrorCode::kInvalidModel, std::move(message), std::move(file), ""};
}

// Python's json module writes NaN, Infinity and -Infinity, which JSON does not have (Mamba configs
// hold "time_step_limit": [0.0, Infinity]). They become null; nothing here reads such numbers.
std::string WithoutPythonNumbers(std::string_view text) {
  std::string clean;
  clean.reserve(text.size());
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (in_string) {
      clean += text[i];
      if (text[i] == '\\' && i + 1 < text.size()) {
        clean += text[++i];
      } else if (text[i] == '"') {
        in_string = false;
      }
      continue;
    }
    bool replaced = false;
    for (const std::string_view word : {"NaN", "-Infinity", "Infinity"}) {
      if (text.substr(i).starts_with(word)) {
        clean += "null";
        i += word.size() - 1;
        replaced = true;
        break;
      }
    }
    if (replaced) continue;
    in_string = text[i] == '"';
    clean += text[i];
  }
  return clean;
}

Result<json> ParseObject(std::string_view text, const std::string& file) {
  try {
    json object = json::parse(WithoutPythonNumbers(text));
    if (!object.is_object()) return ConfigError(file, "is JSON, but no object");
    return object;
  } catch (const json::exception& exception) {
    return ConfigError(file, std::string("is not valid JSON: ") + exception.what());
  }
}

std::string StringAt(const json& object, const char* key) {
  const auto it = object.find(key);
  return it != object.end() && it->is_string() ? it->get<std::string>() : std::string();
}

// Adds the integers, integer lists and layer types that `config` does not have yet.
void TakeNumbers(const json& object, ModelConfig* config) {
  if (const auto it = object.find("layer_types");
      it != object.end() && it->is_array() && config->layer_types.empty()) {
    for (const json& item : *it) {
      config->layer_types.push_back(item.is_string() ? item.get<std::string>() : "");
    }
  }
  for (const auto& [key, value] : object.items()) {
    if (value.is_number_integer()) {
      config->integers.emplace(key, value.get<int64_t>());
    } else if (value.is_array()) {
      std::vector<int64_t> numbers;
      for (const json& item : value) {
        if (item.is_boolean()) {
          numbers.push_back(item.get<bool>() ? 1 : 0);
        } else if (item.is_number_integer()) {
          numbers.push_back(item.get<int64_t>());
        } else {
          break;
        }
      }
      if (numbers.size() == value.size()) config->lists.emplace(key, std::move(numbers));
    }
  }
}

Result<std::string> ReadTextFile(const fs::path& path) {
  std::error_code code;
  if (!fs::is_regular_file(path, code)) return ConfigError(path.string(), "is not a file");
  const uintmax_t size = fs::file_size(path, code);
  if (code) return ConfigError(path.string(), "cannot be read: " + code.message());
  if (size > kMaxFileSize) return ConfigError(path.string(), "is larger than 16 MB");
  std::ifstream stream(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
  if (!stream) return ConfigError(path.string(), "cannot be read");
  return text;
}

}  // namespace

std::optional<int64_t> ModelConfig::Integer(const std::string& key) const {
  const auto it = integers.find(key);
  if (it == integers.end()) return std::nullopt;
  return it->second;
}

Result<ModelConfig> ParseConfigJson(std::string_view text, std::string file) {
  Result<json> object = ParseObject(text, file);
  if (!object) return std::move(object).error();
  ModelConfig config;
  config.file = std::move(file);
  config.model_type = StringAt(*object, "model_type");
  if (const auto it = object->find("architectures"); it != object->end() && it->is_array()) {
    for (const json& item : *it) {
      if (item.is_string()) config.architectures.push_back(item.get<std::string>());
    }
  }
  TakeNumbers(*object, &config);
  // The part that describes the text, by the names that it has in use.
  const auto part_of = [](const json& whole, const char* name) -> const json* {
    const auto it = whole.find(name);
    return it != whole.end() && it->is_object() ? &*it : nullptr;
  };
  const json* thinker = part_of(*object, "thinker_config");
  for (const json* part : {part_of(*object, "text_config"), part_of(*object, "language_config"),
                           part_of(*object, "llm_config"),
                           thinker != nullptr ? part_of(*thinker, "text_config") : nullptr}) {
    if (part == nullptr) continue;
    config.text_model_type = StringAt(*part, "model_type");
    TakeNumbers(*part, &config);
    break;
  }
  if (const auto it = object->find("vision_config"); it != object->end() && it->is_object()) {
    config.vision_model_type = StringAt(*it, "model_type");
  }
  return config;
}

Result<ModelConfig> ParseGenaiConfig(std::string_view text, std::string file) {
  Result<json> object = ParseObject(text, file);
  if (!object) return std::move(object).error();
  ModelConfig config;
  config.file = std::move(file);
  const auto model = object->find("model");
  if (model == object->end() || !model->is_object()) return config;
  config.model_type = StringAt(*model, "type");
  if (const auto it = model->find("decoder"); it != model->end() && it->is_object()) {
    TakeNumbers(*it, &config);
  }
  return config;
}

Result<ModelConfig> ReadConfigJson(const fs::path& file) {
  Result<std::string> text = ReadTextFile(file);
  if (!text) return std::move(text).error();
  return ParseConfigJson(*text, file.string());
}

Result<ModelConfig> ReadGenaiConfig(const fs::path& file) {
  Result<std::string> text = ReadTextFile(file);
  if (!text) return std::move(text).error();
  return ParseGenaiConfig(*text, file.string());
}

}  // namespace liger
