#include "patchmap/resolve.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "patchmap/modules.h"

namespace liger {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

const std::vector<std::string> kAvailable = {"rms_norm", "rope", "swiglu"};

// Defaults as Liger's helper for llama declares them.
FamilyMap Llama() {
  FamilyMap map;
  map.head.family = "llama";
  map.defaults = {{"rope", true, {}},
                  {"rms_norm", true, {}},
                  {"swiglu", true, {}},
                  {"cross_entropy", false, {}},
                  {"fused_linear_cross_entropy", true, {}}};
  return map;
}

std::vector<std::string> Enabled(const ResolvedModules& resolved) {
  std::vector<std::string> names;
  for (const ResolvedModule& m : resolved.modules) {
    if (m.enabled) names.push_back(m.name);
  }
  return names;
}

Result<ResolvedModules> Resolve(std::string_view modules,
                                std::string_view exclude = kDefaultExclude) {
  return ResolveModules(Llama(), modules, exclude, kAvailable);
}

TEST(ResolveModules, AutoTakesTheDefaults) {
  const Result<ResolvedModules> resolved = Resolve("auto");
  ASSERT_TRUE(resolved);
  EXPECT_THAT(Enabled(*resolved), ElementsAre("rope", "rms_norm", "swiglu"));
  EXPECT_THAT(resolved->excluded, ElementsAre("cross_entropy", "fused_linear_cross_entropy"));
  EXPECT_THAT(resolved->warnings, IsEmpty());
  EXPECT_EQ(resolved->Find("rope")->reason, "on by default for family llama");
  EXPECT_EQ(resolved->Find("cross_entropy")->reason, "off by default for family llama");
  EXPECT_FALSE(resolved->Find("cross_entropy")->excluded);
  EXPECT_EQ(resolved->Find("fused_linear_cross_entropy")->reason,
            "excluded by default; --exclude none lifts it");
  EXPECT_TRUE(resolved->Find("fused_linear_cross_entropy")->excluded);
}

TEST(ResolveModules, ValuesOverrideSomeDefaults) {
  const Result<ResolvedModules> resolved = Resolve("rms_norm=on, rope = off");
  ASSERT_TRUE(resolved);
  EXPECT_THAT(Enabled(*resolved), ElementsAre("rms_norm", "swiglu"));
  EXPECT_EQ(resolved->Find("rope")->reason, "off by --modules");
  EXPECT_EQ(resolved->Find("rms_norm")->reason, "on by --modules");
}

TEST(ResolveModules, AListMeansTheseAndNoOthers) {
  const Result<ResolvedModules> resolved = Resolve("rms_norm,rope");
  ASSERT_TRUE(resolved);
  EXPECT_THAT(Enabled(*resolved), ElementsAre("rope", "rms_norm"));
  EXPECT_EQ(resolved->Find("swiglu")->reason, "not among --modules");
}

TEST(ResolveModules, TurningOffWhatIsNotAcceptedIsHarmless) {
  const Result<ResolvedModules> resolved = Resolve("geglu=off");
  ASSERT_TRUE(resolved);
  EXPECT_EQ(resolved->Find("geglu"), nullptr);
}

TEST(ResolveModules, ExcludeWins) {
  const Result<ResolvedModules> resolved =
      Resolve("rope=on", "rope,cross_entropy,fused_linear_cross_entropy");
  ASSERT_TRUE(resolved);
  EXPECT_THAT(Enabled(*resolved), ElementsAre("rms_norm", "swiglu"));
  EXPECT_EQ(resolved->Find("rope")->reason, "excluded by --exclude");
  EXPECT_THAT(resolved->warnings,
              ElementsAre("module rope is on by --modules, but --exclude wins"));
}

TEST(ResolveModules, DefaultExcludeWinsOverLosses) {
  const Result<ResolvedModules> resolved = Resolve("cross_entropy=on");
  ASSERT_TRUE(resolved);
  EXPECT_FALSE(resolved->IsEnabled("cross_entropy"));
  EXPECT_THAT(resolved->warnings, ElementsAre(HasSubstr("--exclude none lifts it")));
}

// The default turned a loss on that has no kernel: off, but never silently.
TEST(ResolveModules, SaysWhatADefaultCannotTurnOn) {
  const Result<ResolvedModules> resolved = Resolve("auto", "none");
  ASSERT_TRUE(resolved);
  EXPECT_THAT(Enabled(*resolved), ElementsAre("rope", "rms_norm", "swiglu"));
  EXPECT_EQ(resolved->Find("fused_linear_cross_entropy")->reason,
            "on by default for family llama, but not available in this version");
  EXPECT_THAT(
      resolved->warnings,
      ElementsAre("module fused_linear_cross_entropy is on by default for family llama, but "
                  "not available in this version"));
}

TEST(ResolveModules, EnablesLossesOnceTheyAreAvailable) {
  std::vector<std::string> available = kAvailable;
  available.push_back("fused_linear_cross_entropy");
  const Result<ResolvedModules> resolved = ResolveModules(Llama(), "auto", "none", available);
  ASSERT_TRUE(resolved);
  EXPECT_TRUE(resolved->IsEnabled("fused_linear_cross_entropy"));
  EXPECT_THAT(resolved->warnings, IsEmpty());
}

struct BadCase {
  const char* modules;
  const char* exclude;
  ErrorCode code;
  const char* message;
  const char* hint;
};

class ResolveModulesRefuses : public testing::TestWithParam<BadCase> {};

TEST_P(ResolveModulesRefuses, WithReason) {
  const Result<ResolvedModules> resolved = Resolve(GetParam().modules, GetParam().exclude);
  ASSERT_FALSE(resolved);
  EXPECT_EQ(resolved.error().code, GetParam().code);
  EXPECT_THAT(resolved.error().message, HasSubstr(GetParam().message));
  EXPECT_THAT(resolved.error().hint, HasSubstr(GetParam().hint));
}

constexpr const char* kDefault = "cross_entropy,fused_linear_cross_entropy";

INSTANTIATE_TEST_SUITE_P(
    Cases, ResolveModulesRefuses,
    testing::Values(
        BadCase{"rms_norm=on,rope", kDefault, ErrorCode::kUsage, "mixes names with and without",
                "either"},
        BadCase{"rms_norm,rope=on", kDefault, ErrorCode::kUsage, "mixes names with and without",
                "either"},
        BadCase{"rmsnorm", kDefault, ErrorCode::kUsage, "unknown module 'rmsnorm' in --modules",
                "did you mean rms_norm?"},
        BadCase{"xyz", kDefault, ErrorCode::kUsage, "unknown module 'xyz'",
                "known modules: rope, "},
        BadCase{"auto,rope", kDefault, ErrorCode::kUsage, "'auto' stands alone", "rope=off"},
        BadCase{"", kDefault, ErrorCode::kUsage, "empty name", "commas"},
        BadCase{"rope,,rms_norm", kDefault, ErrorCode::kUsage, "empty name", "commas"},
        BadCase{"rope=yes", kDefault, ErrorCode::kUsage, "has to be on or off, not 'yes'", ""},
        BadCase{"rope=on=off", kDefault, ErrorCode::kUsage, "has to be on or off", ""},
        BadCase{"rope,rope", kDefault, ErrorCode::kUsage, "'rope' stands twice in --modules", ""},
        BadCase{"geglu", kDefault, ErrorCode::kFamily,
                "family llama does not accept module 'geglu'", "it accepts rope, rms_norm, swiglu"},
        BadCase{"layer_norm=on", kDefault, ErrorCode::kFamily, "does not accept", ""},
        BadCase{"auto", "rope,none", ErrorCode::kUsage, "'none' stands alone in --exclude", ""},
        BadCase{"auto", "ropes", ErrorCode::kUsage, "unknown module 'ropes' in --exclude", "rope?"},
        BadCase{"auto", "rope,rope", ErrorCode::kUsage, "'rope' stands twice in --exclude", ""},
        BadCase{"auto", "", ErrorCode::kUsage, "--exclude holds an empty name", ""},
        BadCase{"cross_entropy,rope", "none", ErrorCode::kUsage,
                "module cross_entropy is not available in this version",
                "rms_norm, rope, swiglu"}));

TEST(ResolveModules, RefusesBothLosses) {
  std::vector<std::string> available = kAvailable;
  available.push_back("cross_entropy");
  available.push_back("fused_linear_cross_entropy");
  // One by name, the other by the family's default.
  const Result<ResolvedModules> resolved =
      ResolveModules(Llama(), "cross_entropy=on", "none", available);
  ASSERT_FALSE(resolved);
  EXPECT_EQ(resolved.error().code, ErrorCode::kUsage);
  EXPECT_THAT(resolved.error().message, HasSubstr("both on"));
  EXPECT_TRUE(ResolveModules(Llama(), "cross_entropy=on,fused_linear_cross_entropy=off", "none",
                             available));
  EXPECT_TRUE(ResolveModules(Llama(), "cross_entropy=on", "fused_linear_cross_entropy", available));
}

TEST(ResolveModules, TakesModulesThatAFamilyAdds) {
  FamilyMap map = Llama();
  map.adds = {"relu_squared"};
  map.defaults.push_back({"relu_squared", true, {}});
  const std::vector<std::string> available = {"relu_squared"};
  const Result<ResolvedModules> resolved =
      ResolveModules(map, "relu_squared", kDefaultExclude, available);
  ASSERT_TRUE(resolved);
  EXPECT_THAT(Enabled(*resolved), ElementsAre("relu_squared"));
  EXPECT_FALSE(Resolve("relu_squared"));
}

TEST(ResolveModules, SaysWhyLigerLeavesAModuleAlone) {
  FamilyMap map = Llama();
  map.defaults[0].on = false;
  map.defaults[0].no_op = "its kernel rotates halves";
  Result<ResolvedModules> resolved = ResolveModules(map, "auto", kDefaultExclude, kAvailable);
  ASSERT_TRUE(resolved);
  EXPECT_EQ(resolved->Find("rope")->reason,
            "off by default for family llama: its kernel rotates halves");
  resolved = ResolveModules(map, "rope=on", kDefaultExclude, kAvailable);
  ASSERT_TRUE(resolved);
  EXPECT_TRUE(resolved->IsEnabled("rope"));

  map.defaults[0].refused = "no op expresses it";
  resolved = ResolveModules(map, "rope=on", kDefaultExclude, kAvailable);
  ASSERT_FALSE(resolved);
  EXPECT_EQ(resolved.error().code, ErrorCode::kFamily);
  EXPECT_EQ(resolved.error().message,
            "family llama does not accept module 'rope': no op expresses it");
  EXPECT_TRUE(ResolveModules(map, "rope=off", kDefaultExclude, kAvailable));
}

// softmax and group_norm: no helper of Liger's takes them, every family does on request.
TEST(ResolveModules, SomeModulesRunOnRequestOnly) {
  std::vector<std::string> available = kAvailable;
  available.push_back("softmax");
  for (const FamilyMap& map : {Llama(), StructuralMap()}) {
    Result<ResolvedModules> resolved = ResolveModules(map, "auto", kDefaultExclude, available);
    ASSERT_TRUE(resolved);
    EXPECT_EQ(resolved->Find("softmax"), nullptr);
    EXPECT_EQ(resolved->Find("group_norm"), nullptr);
    resolved = ResolveModules(map, "softmax=on", kDefaultExclude, available);
    ASSERT_TRUE(resolved);
    EXPECT_THAT(Enabled(*resolved), ElementsAre("rope", "rms_norm", "swiglu", "softmax"));
    EXPECT_EQ(resolved->Find("softmax")->reason, "on by --modules");
    resolved = ResolveModules(map, "softmax", kDefaultExclude, available);
    ASSERT_TRUE(resolved);
    EXPECT_THAT(Enabled(*resolved), ElementsAre("softmax"));
    EXPECT_FALSE(ResolveModules(map, "softmax=on", "softmax", available)->IsEnabled("softmax"));
    resolved = ResolveModules(map, "group_norm=on", kDefaultExclude, available);
    ASSERT_FALSE(resolved);
    EXPECT_EQ(resolved.error().message, "module group_norm is not available in this version");
  }
}

TEST(ResolveModules, StructuralRouteTakesWhatIsAvailable) {
  const Result<ResolvedModules> resolved =
      ResolveModules(StructuralMap(), "auto", kDefaultExclude, kAvailable);
  ASSERT_TRUE(resolved);
  EXPECT_THAT(Enabled(*resolved), ElementsAre("rope", "rms_norm", "swiglu"));
  EXPECT_EQ(resolved->Find("rope")->reason, "on by default for the structural route");
  EXPECT_THAT(resolved->Find("geglu")->reason, HasSubstr("not available in this version"));
  EXPECT_FALSE(ResolveModules(StructuralMap(), "geglu", kDefaultExclude, kAvailable));
}

struct StageCase {
  const char* stage;
  const char* exclude;
  bool fused_loss, loss;  // whether they are on once they are available
  std::vector<const char*> changes;
  const char* note;
};

class StageTest : public testing::TestWithParam<StageCase> {};

TEST_P(StageTest, AppliesTheTrainersRules) {
  const std::vector<std::string> all = {"rms_norm", "rope", "swiglu", "cross_entropy",
                                        "fused_linear_cross_entropy"};
  const StageCase& c = GetParam();
  const auto resolved = ResolveModules(Llama(), "auto", c.exclude, all, c.stage);
  ASSERT_TRUE(resolved);
  EXPECT_EQ(resolved->IsEnabled("fused_linear_cross_entropy"), c.fused_loss);
  EXPECT_EQ(resolved->IsEnabled("cross_entropy"), c.loss);
  ASSERT_EQ(resolved->stage_changes.size(), c.changes.size());
  for (size_t i = 0; i < c.changes.size(); ++i) {
    EXPECT_EQ(resolved->stage_changes[i].module + ": " + resolved->stage_changes[i].change,
              c.changes[i]);
  }
  EXPECT_EQ(resolved->stage_note, c.note);
  EXPECT_EQ(resolved->IsEnabled("rms_norm"), std::string_view(c.stage) != "inference");
}

const char* const kDpoOff = "fused_linear_cross_entropy: turned off: stage dpo needs the logits";
const char* const kDpoOn =
    "cross_entropy: turned on: stage dpo needs the logits, and this loss keeps them";

INSTANTIATE_TEST_SUITE_P(
    Stages, StageTest,
    testing::Values(
        StageCase{"", "none", true, false, {}, ""},
        StageCase{"pt",
                  "none",
                  true,
                  false,
                  {},
                  "stage pt changes nothing: the family's own defaults hold"},
        StageCase{"sft",
                  "none",
                  true,
                  false,
                  {},
                  "stage sft changes nothing: the family's own defaults hold"},
        StageCase{"dpo",
                  "none",
                  false,
                  true,
                  {kDpoOff, kDpoOn},
                  "stage dpo needs the logits: fused_linear_cross_entropy is off"},
        StageCase{"dpo",
                  kDefaultExclude.data(),
                  false,
                  false,
                  {kDpoOff, kDpoOn},
                  "stage dpo needs the logits: fused_linear_cross_entropy is off; no loss is "
                  "fused"},
        StageCase{"inference",
                  "none",
                  false,
                  false,
                  {"rope: turned off: the trainer's rules patch nothing for inference",
                   "rms_norm: turned off: the trainer's rules patch nothing for inference",
                   "swiglu: turned off: the trainer's rules patch nothing for inference",
                   "fused_linear_cross_entropy: turned off: the trainer's rules patch nothing for "
                   "inference"},
                  "stage inference patches NOTHING: the trainer applies its kernels only in "
                  "training; leave --stage out to patch a model for inference"}));

TEST(ResolveModules, AStageIsStrongerThanModules) {
  const std::vector<std::string> all = {"cross_entropy", "fused_linear_cross_entropy"};
  for (const char* stage : {"rm", "ppo", "dpo", "kto"}) {
    const auto resolved =
        ResolveModules(Llama(), "fused_linear_cross_entropy=on", "none", all, stage);
    ASSERT_TRUE(resolved);
    EXPECT_FALSE(resolved->IsEnabled("fused_linear_cross_entropy"));
    EXPECT_TRUE(resolved->IsEnabled("cross_entropy"));
  }
}

TEST(ResolveModules, AStageWithoutAFusedLossLeavesTheLossOff) {
  FamilyMap map = Llama();
  std::erase_if(map.defaults, [](const ModuleDefault& module) {
    return module.name == "fused_linear_cross_entropy";
  });
  const auto resolved = ResolveModules(map, "auto", "none", kAvailable, "kto");
  ASSERT_TRUE(resolved);
  EXPECT_FALSE(resolved->IsEnabled("cross_entropy"));
  EXPECT_THAT(resolved->stage_changes, IsEmpty());
  EXPECT_EQ(resolved->stage_note,
            "stage kto needs the logits and changes nothing: family llama has no fused loss; no "
            "loss is fused");
}

TEST(ResolveModules, RefusesAnUnknownStage) {
  const auto resolved = ResolveModules(Llama(), "auto", "none", kAvailable, "inferance");
  ASSERT_FALSE(resolved);
  EXPECT_EQ(resolved.error().code, ErrorCode::kUsage);
  EXPECT_EQ(resolved.error().message, "--stage: 'inferance' is no stage");
  EXPECT_THAT(resolved.error().hint, HasSubstr("did you mean inference?"));
}

TEST(ModuleVocabulary, NamesTheLosses) {
  std::vector<std::string_view> losses;
  for (const ModuleKind& kind : ModuleVocabulary()) {
    if (kind.is_loss) losses.push_back(kind.name);
  }
  EXPECT_THAT(losses, ElementsAre("cross_entropy", "fused_linear_cross_entropy"));
  EXPECT_EQ(FindModule("ropes"), nullptr);
}

}  // namespace
}  // namespace liger
