#include "family/module_glob.h"

#include <gtest/gtest.h>

namespace liger {
namespace {

struct Case {
  const char* glob;
  const char* path;
  bool matches;
  bool covers;
};

class ModuleGlobTest : public testing::TestWithParam<Case> {};

TEST_P(ModuleGlobTest, MatchesWholePathsAndCoversWhatIsInside) {
  const ModuleGlob glob(GetParam().glob);
  EXPECT_EQ(glob.Matches(GetParam().path), GetParam().matches);
  EXPECT_EQ(glob.Covers(GetParam().path), GetParam().covers);
}

INSTANTIATE_TEST_SUITE_P(
    Globs, ModuleGlobTest,
    testing::Values(Case{"norm", "norm", true, true}, Case{"norm", "model.norm", false, false},
                    Case{"**.norm", "model.norm", true, true}, Case{"**.norm", "norm", true, true},
                    Case{"model", "model.norm", false, true},
                    Case{"model.layers.*", "model.layers.12", true, true},
                    Case{"model.layers.*", "model.layers.12.mlp", false, true},
                    Case{"model.layers.*", "model.layers", false, false},
                    Case{"model.layers.1?", "model.layers.12", true, true},
                    Case{"model.layers.1?", "model.layers.2", false, false},
                    Case{"model.layers.[0-3].mlp", "model.layers.2.mlp", true, true},
                    Case{"model.layers.[0-3].mlp", "model.layers.4.mlp", false, false},
                    Case{"model.**.norm", "model.a.b.norm", true, true},
                    Case{"model.**.norm", "model.norm", true, true},
                    Case{"model.**.norm", "model.a.norms", false, false},
                    Case{"**", "anything.at.all", true, true}, Case{"**", "", true, true},
                    Case{"a*", "", false, false}, Case{"*", "a", true, true},
                    Case{"*", "a.b", false, true}, Case{"*_proj", "q_proj", true, true}));

TEST(ScopeFilter, SkipWinsAndAnUnknownPathIsOnlyLeftOutByScope) {
  ScopeFilter filter;
  EXPECT_TRUE(filter.IsEmpty());
  EXPECT_EQ(filter.WhyOutside("a.b"), "");
  filter.skips.emplace_back("a.b");
  EXPECT_EQ(filter.WhyOutside("a.b.c"), "skipped by --skip 'a.b'");
  EXPECT_EQ(filter.WhyOutside("a.c"), "");
  EXPECT_EQ(filter.WhyOutside(""), "");
  filter.scopes.emplace_back("a");
  EXPECT_EQ(filter.WhyOutside("a.c"), "");
  EXPECT_EQ(filter.WhyOutside("a.b"), "skipped by --skip 'a.b'");
  EXPECT_EQ(filter.WhyOutside("d"), "outside of --scope 'a'");
  filter.scopes.emplace_back("d.*");
  EXPECT_EQ(filter.WhyOutside("e"), "outside of --scope 'a', 'd.*'");
  EXPECT_EQ(filter.WhyOutside(""), "its module path is not known, and --scope is 'a', 'd.*'");
}

}  // namespace
}  // namespace liger
