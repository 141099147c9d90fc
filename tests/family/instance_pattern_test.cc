#include "family/instance_pattern.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace liger {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(MatchPattern, GivesThePrefix) {
  EXPECT_EQ(MatchPattern("layers.*.input_layernorm", "m.model.layers.10.input_layernorm"),
            "m.model");
  EXPECT_EQ(MatchPattern("layers.*.input_layernorm", "layers.0.input_layernorm"), "");
  EXPECT_EQ(MatchPattern("norm", "model.norm"), "model");
}

TEST(MatchPattern, ComparesWholeSegments) {
  EXPECT_EQ(MatchPattern("norm", "model.layers.0.q_norm"), std::nullopt);
  EXPECT_EQ(MatchPattern("layers.*.mlp", "model.layers.0.mlp.act_fn"), std::nullopt);
  EXPECT_EQ(MatchPattern("layers.*.mlp", "model.my_layers.0.mlp"), std::nullopt);
  EXPECT_EQ(MatchPattern("layers.*.mlp", "mlp"), std::nullopt);
  EXPECT_EQ(MatchPattern("layers.*.mlp", "model.layers.0.1.mlp"), std::nullopt);
  EXPECT_EQ(MatchPattern("layers.*.mlp", ""), std::nullopt);
}

TEST(MatchPattern, AStarIsANumber) {
  EXPECT_EQ(MatchPattern("experts.*", "m.experts.17"), "m");
  EXPECT_EQ(MatchPattern("experts.*", "m.experts.act_fn"), std::nullopt);
  EXPECT_EQ(MatchPattern("experts.*", "m.experts.1a"), std::nullopt);
  EXPECT_EQ(MatchPattern("experts.*", "m.experts."), std::nullopt);
}

TEST(MatchPatterns, PlainWordsNeedThePrefixOfTheLayers) {
  const std::vector<std::string> patterns = {"layers.*.ln", "norm"};
  const std::vector<std::string> paths = {"vision.norm", "model.layers.0.ln", "model.layers.1.ln",
                                          "model.norm", "model.layers.0.attn.norm"};
  EXPECT_THAT(MatchPatterns(patterns, paths),
              ElementsAre("model.layers.0.ln", "model.layers.1.ln", "model.norm"));
}

TEST(MatchPatterns, PlainWordsAloneMatchAnywhere) {
  const std::vector<std::string> paths = {"a.norm", "a.b"};
  EXPECT_THAT(MatchPatterns(std::vector<std::string>{"norm"}, paths), ElementsAre("a.norm"));
  EXPECT_THAT(MatchPatterns(std::vector<std::string>{}, paths), IsEmpty());
}

TEST(MatchPatterns, TakesAStarAtTheEnd) {
  const std::vector<std::string> paths = {"m.layers.0", "m.layers.1", "m.norm"};
  EXPECT_THAT(MatchPatterns(std::vector<std::string>{"layers.*"}, paths),
              ElementsAre("m.layers.0", "m.layers.1"));
}

TEST(MatchPatterns, NamesAPathOnceHoweverManyPatternsFit) {
  const std::vector<std::string> patterns = {"layers.*.attn", "*.attn", "attn"};
  const std::vector<std::string> paths = {"m.layers.0.attn"};
  EXPECT_THAT(MatchPatterns(patterns, paths), ElementsAre("m.layers.0.attn"));
}

}  // namespace
}  // namespace liger
