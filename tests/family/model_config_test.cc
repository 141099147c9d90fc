#include "family/model_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace liger {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(ParseConfigJson, ReadsWhatCountsNeed) {
  const Result<ModelConfig> config = ParseConfigJson(
      R"({"model_type": "llama", "architectures": ["LlamaForCausalLM"], "num_hidden_layers": 2,
          "rms_norm_eps": 1e-6, "tie": false, "no_rope_layers": [1, 0], "flags": [true, false],
          "words": ["a"], "mixed": [1, "a"]})",
      "config.json");
  ASSERT_TRUE(config);
  EXPECT_EQ(config->file, "config.json");
  EXPECT_EQ(config->model_type, "llama");
  EXPECT_THAT(config->architectures, ElementsAre("LlamaForCausalLM"));
  EXPECT_EQ(config->Integer("num_hidden_layers"), 2);
  EXPECT_EQ(config->Integer("tie"), std::nullopt);
  EXPECT_EQ(config->Integer("rms_norm_eps"), std::nullopt);
  EXPECT_THAT(config->lists.at("no_rope_layers"), ElementsAre(1, 0));
  EXPECT_THAT(config->lists.at("flags"), ElementsAre(1, 0));
  EXPECT_EQ(config->lists.count("words"), 0u);
  EXPECT_EQ(config->lists.count("mixed"), 0u);
}

TEST(ParseConfigJson, ReadsTheNestedTextConfig) {
  const Result<ModelConfig> config = ParseConfigJson(
      R"({"model_type": "llava", "hidden_size": 1,
          "text_config": {"model_type": "llama", "num_hidden_layers": 3, "hidden_size": 2}})",
      "config.json");
  ASSERT_TRUE(config);
  EXPECT_EQ(config->model_type, "llava");
  EXPECT_EQ(config->text_model_type, "llama");
  EXPECT_EQ(config->Integer("num_hidden_layers"), 3);
  EXPECT_EQ(config->Integer("hidden_size"), 1);  // the outer one stands first
}

TEST(ParseConfigJson, ReadsLayerTypesAndTheVisionConfig) {
  const Result<ModelConfig> config = ParseConfigJson(
      R"({"model_type": "llava", "text_config": {"model_type": "exaone4",
          "layer_types": ["full_attention", "sliding_attention"], "sliding_window": null},
          "vision_config": {"model_type": "pixtral", "num_hidden_layers": 7}})",
      "config.json");
  ASSERT_TRUE(config);
  EXPECT_THAT(config->layer_types, testing::ElementsAre("full_attention", "sliding_attention"));
  EXPECT_EQ(config->vision_model_type, "pixtral");
  EXPECT_EQ(config->Integer("sliding_window"), std::nullopt);
  EXPECT_EQ(config->Integer("num_hidden_layers"), std::nullopt);  // layers are the text model's
}

TEST(ParseConfigJson, TakesThePythonNumbers) {
  const Result<ModelConfig> config = ParseConfigJson(
      R"({"limit": [0.0, Infinity], "low": -Infinity, "x": NaN, "model_type": "NaN \" Infinity"})",
      "config.json");
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->model_type, "NaN \" Infinity");
}

TEST(ParseConfigJson, SaysWhatIsWrong) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "not valid JSON"},
      {"{\"model_type\": \"llama\"", "not valid JSON"},
      {"[1, 2]", "no object"},
      {"\"llama\"", "no object"},
      {"{'model_type': 'llama'}", "not valid JSON"},
      {"{\"model_type\": \"\xff\"}", "not valid JSON"},
  };
  for (const auto& [text, message] : cases) {
    const Result<ModelConfig> config = ParseConfigJson(text, "config.json");
    ASSERT_FALSE(config) << text;
    EXPECT_THAT(config.error().message, HasSubstr(message)) << text;
    EXPECT_EQ(config.error().location, "config.json");
  }
}

TEST(ParseConfigJson, TakesKeysOfOtherKindsForAbsent) {
  const Result<ModelConfig> config = ParseConfigJson(
      R"({"model_type": 3, "architectures": "A", "text_config": [], "num_hidden_layers": "2"})",
      "config.json");
  ASSERT_TRUE(config);
  EXPECT_EQ(config->model_type, "");
  EXPECT_THAT(config->architectures, IsEmpty());
  EXPECT_EQ(config->Integer("num_hidden_layers"), std::nullopt);
}

TEST(ParseConfigJson, StandsDeepNesting) {
  EXPECT_FALSE(ParseConfigJson(std::string(200000, '['), "config.json"));
  EXPECT_FALSE(ParseConfigJson(std::string(200000, '[') + std::string(200000, ']'), "config.json"));
}

TEST(ParseGenaiConfig, ReadsTypeAndDecoder) {
  const Result<ModelConfig> config = ParseGenaiConfig(
      R"({"model": {"type": "qwen2", "decoder": {"num_hidden_layers": 28, "filename": "m.onnx"}}})",
      "genai_config.json");
  ASSERT_TRUE(config);
  EXPECT_EQ(config->model_type, "qwen2");
  EXPECT_EQ(config->Integer("num_hidden_layers"), 28);
  EXPECT_EQ(ParseGenaiConfig("{}", "g")->model_type, "");
  EXPECT_EQ(ParseGenaiConfig(R"({"model": 3})", "g")->model_type, "");
}

TEST(ReadConfigJson, RefusesWhatIsNoFile) {
  EXPECT_FALSE(ReadConfigJson(testing::TempDir()));
  EXPECT_FALSE(ReadConfigJson(testing::TempDir() + "/no_such_config.json"));
}

}  // namespace
}  // namespace liger
