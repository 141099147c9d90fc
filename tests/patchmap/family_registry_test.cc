#include "patchmap/family_registry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace liger {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

// A small valid map; `extra` holds further lines for the head.
std::string MapText(const std::string& family, const std::string& extra = "",
                    const std::string& architecture = "") {
  const std::string class_name = architecture.empty() ? family + "_ForCausalLM" : architecture;
  return "schema_version: 1\nfamily: " + family + "\nmodel_types: [" + family + "]\n" + extra +
         "architectures: [" + class_name + "]\npackage: pkg." + family +
         "\ndefaults:\n  rms_norm: on\nmodules:\n  rms_norm:\n    - class: pkg." + family +
         ".Norm\n      op: LigerRMSNorm\n";
}

class FamilyRegistryTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("liger_registry_test_" + std::to_string(::getpid()));
    fs::create_directories(folder_ / "families");
  }
  void TearDown() override { fs::remove_all(folder_); }

  void Embed(const std::string& path, const std::string& text) {
    embedded_.emplace_back(path, text);
  }
  void Write(const std::string& name, const std::string& text) {
    std::ofstream(folder_ / "families" / name) << text;
  }
  Result<FamilyRegistry> Load(bool with_folder = false) {
    std::vector<EmbeddedFile> files;
    for (const auto& [path, text] : embedded_) files.push_back({path, text});
    return FamilyRegistry::Load(files,
                                with_folder ? std::optional<fs::path>(folder_) : std::nullopt);
  }

  fs::path folder_;
  std::vector<std::pair<std::string, std::string>> embedded_;
};

TEST_F(FamilyRegistryTest, FindsByEveryName) {
  Embed("families/beta.yaml", MapText("beta"));
  Embed("families/alpha.yaml", MapText("alpha", "aliases: [al]\ngenai_types: [alphaone]\n"));
  Embed("ops/rms_norm.yaml", "not a family");
  const Result<FamilyRegistry> registry = Load();
  ASSERT_TRUE(registry) << registry.error().message;
  EXPECT_THAT(registry->names(), ElementsAre("alpha", "beta"));
  ASSERT_NE(registry->Find("al"), nullptr);
  EXPECT_EQ(registry->Find("al")->family, "alpha");
  EXPECT_EQ(registry->Find("Alpha"), nullptr);  // spelling is taken verbatim
  ASSERT_NE(registry->FindGenaiType("alphaone"), nullptr);
  EXPECT_EQ(registry->FindGenaiType("alpha"), nullptr);
  EXPECT_EQ(registry->FindArchitecture("beta_ForCausalLM")->family, "beta");
}

TEST_F(FamilyRegistryTest, LoadsMapsByAlias) {
  Embed("families/alpha.yaml", MapText("alpha", "aliases: [al]\n"));
  const Result<FamilyRegistry> registry = Load();
  ASSERT_TRUE(registry);
  const Result<FamilyMap> map = registry->LoadMap("al");
  ASSERT_TRUE(map);
  EXPECT_EQ(map->name(), "alpha");
  const Result<FamilyMap> any = registry->LoadMap("any");
  ASSERT_TRUE(any);
  EXPECT_TRUE(any->structural);
}

TEST_F(FamilyRegistryTest, NamesTheNearestForAnUnknownFamily) {
  Embed("families/alpha.yaml", MapText("alpha", "aliases: [alfa]\n"));
  const Result<FamilyRegistry> registry = Load();
  ASSERT_TRUE(registry);
  EXPECT_THAT(registry->Nearest("alpha_text"), ElementsAre("alpha"));
  EXPECT_THAT(registry->Nearest("alfaa"), ElementsAre("alpha"));
  const Result<FamilyMap> map = registry->LoadMap("alpah");
  ASSERT_FALSE(map);
  EXPECT_EQ(map.error().code, ErrorCode::kFamily);
  EXPECT_EQ(map.error().message, "family 'alpah' is not known");
  EXPECT_THAT(map.error().hint, HasSubstr("did you mean alpha?"));
  EXPECT_THAT(map.error().hint, HasSubstr("--family any"));
}

TEST_F(FamilyRegistryTest, FolderReplacesAndExtends) {
  Embed("families/alpha.yaml", MapText("alpha", "aliases: [old]\n"));
  Write("alpha.yaml", MapText("alpha", "aliases: [new]\n"));
  Write("gamma.yaml", MapText("gamma"));
  Write(".alpha.yaml.swp", "an editor's file");
  const Result<FamilyRegistry> registry = Load(/*with_folder=*/true);
  ASSERT_TRUE(registry) << registry.error().message;
  EXPECT_THAT(registry->names(), ElementsAre("alpha", "gamma"));
  EXPECT_EQ(registry->Find("old"), nullptr);
  EXPECT_EQ(registry->Find("new")->file, (folder_ / "families" / "alpha.yaml").string());
}

TEST_F(FamilyRegistryTest, ValidatesFilesOfTheFolderInFull) {
  std::string text = MapText("gamma");
  text.replace(text.find("op:"), 3, "pp:");
  Embed("families/alpha.yaml", MapText("alpha"));
  Write("gamma.yaml", text);
  const Result<FamilyRegistry> registry = Load(/*with_folder=*/true);
  ASSERT_FALSE(registry);
  EXPECT_EQ(registry.error().code, ErrorCode::kUsage);
  EXPECT_EQ(registry.error().location, (folder_ / "families" / "gamma.yaml").string() + ":10:7");
}

// So are files of a folder that stand in for embedded ones already.
TEST_F(FamilyRegistryTest, ValidatesFilesThatReplacedEmbeddedOnesInFull) {
  std::string text = MapText("gamma");
  text.replace(text.find("op:"), 3, "pp:");
  const EmbeddedFile built_in[] = {{"families/gamma.yaml", text}};
  EXPECT_TRUE(FamilyRegistry::Load(built_in, std::nullopt));
  const EmbeddedFile replaced[] = {{"families/gamma.yaml", text, "/my/families/gamma.yaml"}};
  const Result<FamilyRegistry> registry = FamilyRegistry::Load(replaced, std::nullopt);
  ASSERT_FALSE(registry);
  EXPECT_EQ(registry.error().location, "/my/families/gamma.yaml:10:7");
}

TEST_F(FamilyRegistryTest, TakesInTheModulesOfParts) {
  Embed("families/alpha.yaml", MapText("alpha"));
  Embed("families/beta.yaml", MapText("beta"));
  Embed("families/whole.yaml",
        "schema_version: 1\nfamily: whole\nmodel_types: [whole]\narchitectures: [Whole]\n"
        "package: pkg.whole\nparts:\n  families: [beta, alpha]\ndefaults:\n  cross_entropy: "
        "off\nmodules:\n  cross_entropy:\n    - class: pkg.Loss\n      op: LigerCrossEntropy\n");
  const Result<FamilyRegistry> registry = Load();
  ASSERT_TRUE(registry);
  EXPECT_THAT(registry->Find("whole")->parts, ElementsAre("beta", "alpha"));
  const std::vector<std::string> parts = {"gamma", "alpha"};
  Result<FamilyMap> map = registry->LoadMap("whole", parts);
  ASSERT_TRUE(map);
  ASSERT_EQ(map->FindModuleMap("rms_norm")->entries.size(), 1u);
  EXPECT_EQ(map->FindModuleMap("rms_norm")->entries[0].symbol, "pkg.alpha.Norm");
  EXPECT_EQ(map->FindDefault("rms_norm")->part, "alpha");
  // Without knowledge of the parts: all of them, the first one's defaults.
  map = registry->LoadMap("whole");
  ASSERT_TRUE(map);
  EXPECT_EQ(map->FindModuleMap("rms_norm")->entries.size(), 2u);
  EXPECT_EQ(map->FindDefault("rms_norm")->part, "beta");
}

TEST_F(FamilyRegistryTest, RefusesPartsThatNobodyKnows) {
  Embed("families/alpha.yaml", MapText("alpha", "parts:\n  families: [beta]\n"));
  const Result<FamilyRegistry> registry = Load();
  ASSERT_TRUE(registry);
  const Result<FamilyMap> map = registry->LoadMap("alpha");
  ASSERT_FALSE(map);
  EXPECT_EQ(map.error().code, ErrorCode::kUsage);
  EXPECT_EQ(map.error().message, "part 'beta' of family alpha is not known");
  EXPECT_EQ(map.error().location, "families/alpha.yaml");
}

TEST_F(FamilyRegistryTest, RefusesFamiliesThatClaimOneName) {
  Embed("families/alpha.yaml", MapText("alpha", "aliases: [beta]\n"));
  Embed("families/beta.yaml", MapText("beta"));
  const Result<FamilyRegistry> registry = Load();
  ASSERT_FALSE(registry);
  EXPECT_EQ(registry.error().message,
            "the name 'beta' is claimed by two families, 'alpha' and 'beta'");
  EXPECT_THAT(registry.error().hint, HasSubstr("families/alpha.yaml"));
}

TEST_F(FamilyRegistryTest, RefusesFamiliesThatClaimOneArchitecture) {
  Embed("families/alpha.yaml", MapText("alpha", "", "Shared"));
  Embed("families/beta.yaml", MapText("beta", "", "Shared"));
  const Result<FamilyRegistry> registry = Load();
  ASSERT_FALSE(registry);
  EXPECT_THAT(registry.error().message, HasSubstr("architecture 'Shared'"));
}

TEST_F(FamilyRegistryTest, RefusesFoldersThatAreNone) {
  fs::remove_all(folder_);
  Result<FamilyRegistry> registry = Load(/*with_folder=*/true);
  ASSERT_FALSE(registry);
  EXPECT_THAT(registry.error().message, HasSubstr("is not a folder"));

  fs::create_directories(folder_ / "else");
  registry = Load(/*with_folder=*/true);
  ASSERT_FALSE(registry);
  EXPECT_THAT(registry.error().hint, HasSubstr("families/<family>.yaml"));

  fs::create_directories(folder_ / "ops");
  EXPECT_TRUE(Load(/*with_folder=*/true));
}

TEST_F(FamilyRegistryTest, RefusesFilesOfAnotherKind) {
  Write("gamma.yml", MapText("gamma"));
  const Result<FamilyRegistry> registry = Load(/*with_folder=*/true);
  ASSERT_FALSE(registry);
  EXPECT_THAT(registry.error().message, HasSubstr("not .yaml"));
}

TEST_F(FamilyRegistryTest, RefusesFoldersNamedLikeFiles) {
  fs::create_directories(folder_ / "families" / "gamma.yaml");
  const Result<FamilyRegistry> registry = Load(/*with_folder=*/true);
  ASSERT_FALSE(registry);
  EXPECT_THAT(registry.error().message, HasSubstr("cannot be read"));
}

}  // namespace
}  // namespace liger
