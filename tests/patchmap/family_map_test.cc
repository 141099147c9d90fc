#include "patchmap/family_map.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "patchmap/modules.h"

namespace liger {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr std::string_view kGood = R"(schema_version: 1
family: mymodel
model_types: [mymodel, mymodel_text]
aliases: [mine]
architectures: [MyForCausalLM]
package: pkg.modeling_my
layer_classes: [MyLayer]
parts:
  families: [llama, qwen2]
  outside: [encoder]
adds: [relu_squared]
structure:
  present: [layers.*.norm.weight]
  absent: []
defaults:
  rope: on
  rms_norm: off
  relu_squared: on
  geglu: off
  cross_entropy: off
no_op:
  geglu: "the kernel is of another kind: tanh"
refused:
  cross_entropy: logits are scaled
modules:
  rms_norm:
    - class: pkg.modeling_my.MyNorm
      op: LigerRMSNorm
      scopes: [layers.*.norm, norm]
      weights: [layers.*.norm.weight]
      count: {per_layer: 1, fixed: 1}
  rope:
    - function: pkg.modeling_my.rotate
      op: LigerRope
      callers: [pkg.modeling_my.MyAttention]
      per_instance: 2
      layer_flags: no_rope_layers
      layer_interval: no_rope_layer_interval
    - function: pkg.modeling_my.turn
      op: LigerRope
      child: proj
      outside: [vision]
      layer_types: [full_attention]
      layer_types_if: sliding_window
)";

std::string Replaced(std::string_view from, std::string_view to) {
  std::string text(kGood);
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(ParseFamilyMap, ReadsEveryKey) {
  const Result<FamilyMap> map = ParseFamilyMap("families/mymodel.yaml", kGood);
  ASSERT_TRUE(map) << map.error().message;
  EXPECT_EQ(map->name(), "mymodel");
  EXPECT_THAT(map->head.model_types, ElementsAre("mymodel", "mymodel_text"));
  EXPECT_THAT(map->head.aliases, ElementsAre("mine"));
  EXPECT_THAT(map->head.genai_types, ElementsAre("mymodel", "mymodel_text"));
  EXPECT_THAT(map->head.structure_present, ElementsAre("layers.*.norm.weight"));
  EXPECT_THAT(map->head.structure_absent, IsEmpty());
  EXPECT_THAT(map->adds, ElementsAre("relu_squared"));
  EXPECT_TRUE(map->Accepts("relu_squared"));
  EXPECT_FALSE(map->Accepts("swiglu"));
  EXPECT_FALSE(map->FindDefault("rms_norm")->on);
  EXPECT_EQ(map->FindDefault("rms_norm")->position.line, 17);
  EXPECT_THAT(map->head.parts, ElementsAre("llama", "qwen2"));
  EXPECT_THAT(map->head.parts_outside, ElementsAre("encoder"));
  EXPECT_EQ(map->FindDefault("geglu")->no_op, "the kernel is of another kind: tanh");
  EXPECT_EQ(map->FindDefault("cross_entropy")->refused, "logits are scaled");
  EXPECT_EQ(map->FindDefault("rope")->no_op, "");

  const ModuleMap* norms = map->FindModuleMap("rms_norm");
  ASSERT_NE(norms, nullptr);
  EXPECT_EQ(norms->position.line, 26);
  ASSERT_EQ(norms->entries.size(), 1u);
  EXPECT_EQ(norms->entries[0].kind, ModuleEntry::Kind::kClass);
  EXPECT_EQ(norms->entries[0].symbol, "pkg.modeling_my.MyNorm");
  EXPECT_EQ(norms->entries[0].op, "LigerRMSNorm");
  EXPECT_THAT(norms->entries[0].scopes, ElementsAre("layers.*.norm", "norm"));
  EXPECT_EQ(norms->entries[0].count->per_layer, 1);
  EXPECT_EQ(norms->entries[0].count->fixed, 1);
  EXPECT_EQ(norms->entries[0].per_instance, 1);

  const ModuleMap* rope = map->FindModuleMap("rope");
  ASSERT_NE(rope, nullptr);
  EXPECT_EQ(rope->entries[0].kind, ModuleEntry::Kind::kFunction);
  EXPECT_EQ(rope->entries[0].per_instance, 2);
  EXPECT_EQ(rope->entries[0].layer_flags, "no_rope_layers");
  EXPECT_EQ(rope->entries[0].layer_interval, "no_rope_layer_interval");
  EXPECT_FALSE(rope->entries[0].count.has_value());
  EXPECT_THAT(rope->entries[0].layer_types, IsEmpty());
  EXPECT_TRUE(rope->entries[0].LayersDiffer());
  EXPECT_THAT(rope->entries[1].layer_types, ElementsAre("full_attention"));
  EXPECT_EQ(rope->entries[1].layer_types_if, "sliding_window");
  EXPECT_EQ(rope->entries[1].child, "proj");
  EXPECT_THAT(rope->entries[1].outside, ElementsAre("vision"));
  EXPECT_FALSE(norms->entries[0].LayersDiffer());
}

struct BadCase {
  const char* from;
  const char* to;
  const char* location;
  const char* message;
};

class ParseFamilyMapRefuses : public testing::TestWithParam<BadCase> {};

TEST_P(ParseFamilyMapRefuses, WithPlaceAndReason) {
  const Result<FamilyMap> map =
      ParseFamilyMap("families/mymodel.yaml", Replaced(GetParam().from, GetParam().to));
  ASSERT_FALSE(map);
  EXPECT_EQ(map.error().code, ErrorCode::kUsage);
  EXPECT_EQ(map.error().location, std::string("families/mymodel.yaml:") + GetParam().location);
  EXPECT_THAT(map.error().message, HasSubstr(GetParam().message));
}

INSTANTIATE_TEST_SUITE_P(
    Cases, ParseFamilyMapRefuses,
    testing::Values(
        BadCase{"schema_version: 1", "schema_version: 2", "1:17", "schema_version is 2"},
        BadCase{"schema_version: 1\n", "", "1:1", "lacks the key 'schema_version'"},
        BadCase{"family: mymodel", "family: MyModel", "2:9", "lower-case"},
        BadCase{"family: mymodel", "family: any", "2:9", "not the word any"},
        BadCase{"family: mymodel", "family: other", "2:9", "stands in a file of another name"},
        BadCase{"model_types: [mymodel, mymodel_text]", "model_types: []", "3:14", "list of words"},
        BadCase{"aliases: [mine]", "aliases: [mine, mine]", "4:17", "stands twice"},
        BadCase{"aliases: [mine]", "alias: [mine]", "4:1", "unknown key 'alias'"},
        BadCase{"[MyForCausalLM]", "[My-ForCausalLM]", "5:17", "has to be a dotted name"},
        BadCase{"package: pkg.modeling_my", "package: pkg..my", "6:10", "not a dotted module name"},
        BadCase{"adds: [relu_squared]", "adds: [rope]", "11:8", "in the vocabulary already"},
        BadCase{"adds: [relu_squared]", "adds: [relu_squared, spare]", "16:3", "has no default"},
        BadCase{"  absent: []", "  missing: []", "14:3", "unknown key 'missing' in structure"},
        BadCase{"  rope: on", "  ropes: on", "16:3", "unknown module 'ropes' in defaults"},
        BadCase{"  rope: on", "  rope: yes", "16:9", "on or off"},
        BadCase{"  rope: on", "  rope: on\n  rope: off", "17:3", "'rope' stands twice"},
        BadCase{"  rms_norm:\n", "  layer_norm:\n", "26:3", "'layer_norm' is not in defaults"},
        BadCase{"op: LigerRMSNorm", "op:", "28:7", "op has to be a word"},
        BadCase{"      op: LigerRMSNorm\n", "", "27:7", "lacks the key 'op'"},
        BadCase{"op: LigerRMSNorm", "function: f\n      op: LigerRMSNorm", "27:7",
                "one class or one function"},
        BadCase{"- class: pkg.modeling_my.MyNorm\n      op", "- op", "27:7",
                "one class or one function"},
        BadCase{"op: LigerRMSNorm", "op: LigerRMSNorm\n      callers: [a.B]", "27:7",
                "callers belong to a function"},
        BadCase{"scopes: [layers.*.norm, norm]", "scopes: [layers.*x.norm]", "29:16",
                "* for one of them"},
        BadCase{"scopes: [layers.*.norm, norm]", "scopes: [layers..norm]", "29:16", "dotted words"},
        BadCase{"{per_layer: 1, fixed: 1}", "{per_layer: 0, fixed: 0}", "31:14", "count is nought"},
        BadCase{"{per_layer: 1, fixed: 1}", "{per_layer: -1}", "31:26", "between 0 and"},
        BadCase{"{per_layer: 1, fixed: 1}", "{layers: 1}", "31:15",
                "unknown key 'layers' in count"},
        BadCase{"per_instance: 2", "per_instance: 0", "36:21", "per_instance is nought"},
        BadCase{"  families: [llama, qwen2]\n", "", "9:3", "lacks the key 'families'"},
        BadCase{"  outside: [encoder]", "  inside: [encoder]", "10:3", "unknown key 'inside'"},
        BadCase{"  geglu: \"the", "  rope: \"the", "22:3", "of no_op has to be off in defaults"},
        BadCase{"  geglu: \"the", "  swiglu: \"the", "22:3", "of no_op has to be off"},
        BadCase{"  cross_entropy: logits", "  rope: logits", "24:3", "of refused has to be off"},
        BadCase{"refused:\n  cross_entropy: logits are scaled",
                "refused:\n  cross_entropy: [logits]", "24:18", "has to be a word"},
        BadCase{"      layer_flags: no_rope_layers\n", "", "37:23", "belongs to layer_flags"},
        BadCase{"      layer_types: [full_attention]\n", "", "43:23", "belongs to layer_types"},
        BadCase{"      layer_types: [full", "      layer_flags: f\n      layer_types: [full",
                "44:20", "not both"},
        BadCase{"outside: [vision]", "outside: [vision.*]", "42:17", "dotted name"},
        BadCase{"child: proj", "child: a-b", "41:14", "not a dotted name"}));

TEST(ParseFamilyMap, ReportsAllFaultsOfAFile) {
  std::string text = Replaced("family: mymodel", "family: MyModel");
  for (const auto& [from, to] :
       {std::pair("  rope: on", "  ropes: on"), std::pair("op: LigerRMSNorm", "op:"),
        std::pair("per_instance: 2", "per_instance: 0"), std::pair("child: proj", "child: a-b")}) {
    text.replace(text.find(from), std::string_view(from).size(), to);
  }
  const Result<FamilyMap> map = ParseFamilyMap("families/mymodel.yaml", text);
  ASSERT_FALSE(map);
  std::vector<std::string> places = {map.error().location};
  for (const Error& other : map.error().others) places.push_back(other.location);
  // `rope` in `modules` is no fault of its own: what the defaults meant is not known.
  EXPECT_THAT(places, ElementsAre("families/mymodel.yaml:2:9", "families/mymodel.yaml:16:3",
                                  "families/mymodel.yaml:28:7", "families/mymodel.yaml:36:21",
                                  "families/mymodel.yaml:41:14"));
}

TEST(ReadFamilyHead, ReadsPlainHeadsLikeTheFullParser) {
  const Result<FamilyMap> map = ParseFamilyMap("families/mymodel.yaml", kGood);
  const Result<FamilyHead> head = ReadFamilyHead("families/mymodel.yaml", kGood);
  ASSERT_TRUE(map && head);
  EXPECT_EQ(*head, map->head);
}

TEST(ReadFamilyHead, DoesNotReadPlainModules) {
  const std::string text = Replaced("  rms_norm:\n    - class", "  rms_norm: [\n    - class");
  EXPECT_FALSE(ParseFamilyMap("families/mymodel.yaml", text));
  EXPECT_TRUE(ReadFamilyHead("families/mymodel.yaml", text));
}

// Spellings that the quick reader does not know are left to the YAML parser.
TEST(ReadFamilyHead, ReadsEverySpelling) {
  const Result<FamilyHead> plain = ReadFamilyHead("families/mymodel.yaml", kGood);
  ASSERT_TRUE(plain);
  const std::pair<const char*, const char*> edits[] = {
      {"family: mymodel", "family: \"mymodel\""},
      {"family: mymodel", "family:   mymodel   # a name"},
      {"aliases: [mine]", "aliases:\n  - mine"},
      {"aliases: [mine]", "aliases: ['mine']"},
      {"aliases: [mine]", "aliases: [\n  mine ]"},
      {"aliases: [mine]", "\"aliases\": [mine]"},
      {"[mymodel, mymodel_text]", "[mymodel,mymodel_text]"},
      {"  present: [layers.*.norm.weight]\n  absent: []",
       "    present: [layers.*.norm.weight]\n    absent: []"},
      {"structure:\n  present: [layers.*.norm.weight]\n  absent: []",
       "structure: {present: [layers.*.norm.weight], absent: []}"},
  };
  for (const auto& [from, to] : edits) {
    const Result<FamilyHead> head = ReadFamilyHead("families/mymodel.yaml", Replaced(from, to));
    ASSERT_TRUE(head) << to << ": " << head.error().message;
    EXPECT_EQ(*head, *plain) << to;
  }
}

TEST(ReadFamilyHead, ReadsKeysBehindTheModules) {
  const std::string text = Replaced("aliases: [mine]\n", "") + "aliases: [mine]\n";
  const Result<FamilyHead> head = ReadFamilyHead("families/mymodel.yaml", text);
  ASSERT_TRUE(head);
  EXPECT_THAT(head->aliases, ElementsAre("mine"));
}

TEST(ReadFamilyHead, RefusesWhatTheFullParserRefuses) {
  const std::pair<const char*, const char*> edits[] = {
      {"family: mymodel", "family: other"},
      {"model_types: [mymodel, mymodel_text]", "model_types: [mymodel, mymodel]"},
      {"aliases: [mine]", "aliases: [mine]\naliases: [mine]"},
      {"schema_version: 1", "schema_version: 2"},
      {"package: pkg.modeling_my\n", ""},
      {"package: pkg.modeling_my", "package: pkg..my"},
  };
  for (const auto& [from, to] : edits) {
    EXPECT_FALSE(ReadFamilyHead("families/mymodel.yaml", Replaced(from, to))) << to;
  }
}

TEST(StructuralMap, AcceptsEverythingAndExpectsNothing) {
  const FamilyMap map = StructuralMap();
  EXPECT_TRUE(map.structural);
  EXPECT_TRUE(map.modules.empty());
  EXPECT_TRUE(map.FindDefault("geglu")->on);
  EXPECT_FALSE(map.FindDefault("cross_entropy")->on);
  EXPECT_FALSE(map.Accepts("softmax"));  // on request only
  EXPECT_FALSE(map.FindDefault("fused_linear_cross_entropy")->on);
}

// The files that are embedded in the program are read lazily, so their faults show here.
TEST(BuiltInFamilies, AreValidAndReadAlikeByBothReaders) {
  int files = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::string(LIGER_PATCHES_DIR) + "/families")) {
    ++files;
    std::ifstream stream(entry.path());
    const std::string text{std::istreambuf_iterator<char>(stream),
                           std::istreambuf_iterator<char>()};
    const std::string name = "families/" + entry.path().filename().string();
    const Result<FamilyMap> map = ParseFamilyMap(name, text);
    ASSERT_TRUE(map) << map.error().location << ": " << map.error().message;
    const Result<FamilyHead> head = ReadFamilyHead(name, text);
    ASSERT_TRUE(head);
    EXPECT_EQ(*head, map->head) << name;
    // A broken rest is noticed by the full parser only: the head came from the quick reader.
    EXPECT_TRUE(ReadFamilyHead(name, text.substr(0, text.find("\nmodules:") + 9) + "\n  ["));
    EXPECT_FALSE(map->modules.empty());
    for (const ModuleMap& module : map->modules) {
      const ModuleKind* kind = FindModule(module.name);
      if (kind != nullptr && kind->is_loss) continue;
      // What a child tells apart has scopes to tell apart.
      for (const ModuleEntry& e : module.entries) {
        EXPECT_TRUE(e.child.empty() || !e.scopes.empty()) << name << " " << module.name;
      }
    }
  }
  EXPECT_EQ(files, 42);
}

}  // namespace
}  // namespace liger
