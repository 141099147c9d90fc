#include "patchmap/nearest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace liger {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

const std::vector<std::string> kFamilies = {"llama", "mistral", "qwen2", "qwen3"};

TEST(NearestNames, FindsSlipsOfTheKeyboard) {
  EXPECT_THAT(NearestNames("mistrl", kFamilies), ElementsAre("mistral"));
  EXPECT_THAT(NearestNames("lamma", kFamilies), ElementsAre("llama"));
}

TEST(NearestNames, PrefersNamesThatBeginAlike) {
  EXPECT_THAT(NearestNames("qwen3_moe", kFamilies), ElementsAre("qwen3"));
  EXPECT_THAT(NearestNames("qwen", kFamilies), ElementsAre("qwen2", "qwen3"));
}

TEST(NearestNames, ResemblesNothing) {
  EXPECT_THAT(NearestNames("gemma3", kFamilies), IsEmpty());
  EXPECT_THAT(NearestNames("", kFamilies), IsEmpty());
  EXPECT_THAT(NearestNames("llama", std::vector<std::string>{}), IsEmpty());
}

TEST(NearestNames, KeepsTheLimit) {
  EXPECT_THAT(NearestNames("qwen", kFamilies, 1), ElementsAre("qwen2"));
}

TEST(NearestNames, TakesNamesOfAnyLength) {
  EXPECT_THAT(NearestNames(std::string(100000, 'q'), kFamilies), IsEmpty());
}

TEST(JoinNames, SeparatesWithCommas) {
  EXPECT_EQ(JoinNames(std::vector<std::string>{}), "");
  EXPECT_EQ(JoinNames(std::vector<std::string>{"a", "b", "c"}), "a, b, c");
  EXPECT_EQ(JoinAlternatives(std::vector<std::string>{"a"}), "a");
  EXPECT_EQ(JoinAlternatives(std::vector<std::string>{"a", "b", "c"}), "a, b or c");
}

}  // namespace
}  // namespace liger
