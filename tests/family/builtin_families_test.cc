// What every built-in family accepts and turns on, against Liger's helpers; and that the files agree
// with one another and with the documentation.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "family/instance_pattern.h"
#include "patchmap/modules.h"
#include "patchmap/resolve.h"
#include "registry_for_tests.h"

namespace liger {
namespace {

using testing::ElementsAreArray;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::UnorderedElementsAreArray;

// One helper of Liger: names separated by spaces.
struct Helper {
  const char* family;
  const char* model_types;
  const char* aliases;
  const char* on;   // flags that are true by default
  const char* off;  // flags that are false by default
};

constexpr Helper kHelpers[] = {
    {"deepseek_v4", "deepseek_v4", "", "rms_norm fused_linear_cross_entropy",
     "rope swiglu cross_entropy"},
    {"exaone4", "exaone4", "", "rope rms_norm swiglu fused_linear_cross_entropy", "cross_entropy"},
    {"falcon_h1", "falcon_h1", "", "rope rms_norm swiglu fused_linear_cross_entropy",
     "cross_entropy"},
    {"gemma", "gemma", "", "rope rms_norm geglu fused_linear_cross_entropy", "cross_entropy"},
    {"gemma2", "gemma2", "", "rope rms_norm geglu fused_linear_cross_entropy", "cross_entropy"},
    {"gemma3", "gemma3", "", "rope rms_norm layer_norm geglu fused_linear_cross_entropy",
     "cross_entropy"},
    {"gemma3_text", "gemma3_text", "", "rope rms_norm geglu fused_linear_cross_entropy",
     "cross_entropy"},
    {"gemma4", "gemma4", "", "rms_norm geglu fused_linear_cross_entropy",
     "rope layer_norm cross_entropy"},
    {"gemma4_text", "gemma4_text", "", "rms_norm geglu fused_linear_cross_entropy",
     "rope cross_entropy"},
    {"glm4", "glm4", "glm", "rms_norm swiglu fused_linear_cross_entropy", "rope cross_entropy"},
    {"glm4v", "glm4v", "glm4v_text", "rms_norm swiglu fused_linear_cross_entropy",
     "rope cross_entropy"},
    {"glm4v_moe", "glm4v_moe", "glm4v_moe_text", "rms_norm swiglu fused_linear_cross_entropy",
     "rope cross_entropy"},
    {"gpt_oss", "gpt_oss", "", "rope rms_norm fused_linear_cross_entropy", "swiglu cross_entropy"},
    {"granite", "granite", "", "rope rms_norm swiglu cross_entropy", "fused_linear_cross_entropy"},
    {"hunyuan_v1_dense", "hunyuan_v1_dense", "", "rope rms_norm swiglu fused_linear_cross_entropy",
     "cross_entropy"},
    {"hunyuan_v1_moe", "hunyuan_v1_moe", "", "rope rms_norm swiglu fused_linear_cross_entropy",
     "cross_entropy"},
    {"internvl", "internvl", "", "rms_norm layer_norm fused_linear_cross_entropy", "cross_entropy"},
    {"llama", "llama", "", "rope rms_norm swiglu fused_linear_cross_entropy", "cross_entropy"},
    {"llama4", "llama4 llama4_text", "",
     "rope rms_norm layer_norm swiglu fused_linear_cross_entropy", "cross_entropy"},
    {"llava", "llava", "", "fused_linear_cross_entropy", "cross_entropy"},
    {"ministral", "ministral", "", "rope rms_norm swiglu fused_linear_cross_entropy",
     "cross_entropy"},
    {"mistral", "mistral", "", "rope rms_norm swiglu fused_linear_cross_entropy", "cross_entropy"},
    {"mixtral", "mixtral", "", "rope rms_norm swiglu fused_linear_cross_entropy", "cross_entropy"},
    {"mllama", "mllama mllama_text_model", "",
     "rope rms_norm layer_norm swiglu fused_linear_cross_entropy", "cross_entropy"},
    {"nemotron", "nemotron", "", "relu_squared fused_linear_cross_entropy", "cross_entropy"},
    {"olmo2", "olmo2", "", "rope rms_norm swiglu fused_linear_cross_entropy", "cross_entropy"},
    {"olmo3", "olmo3", "", "rope rms_norm swiglu fused_linear_cross_entropy", "cross_entropy"},
    {"paligemma", "paligemma", "", "rope rms_norm layer_norm geglu fused_linear_cross_entropy",
     "cross_entropy"},
    {"phi3", "phi3", "", "rope rms_norm swiglu fused_linear_cross_entropy", "cross_entropy"},
    {"pixtral", "pixtral", "", "rope rms_norm swiglu", ""},
    {"qwen2", "qwen2", "qwen2_5 qwq", "rope rms_norm swiglu fused_linear_cross_entropy",
     "cross_entropy"},
    {"qwen2_5_vl", "qwen2_5_vl qwen2_5_vl_text", "",
     "rope rms_norm swiglu fused_linear_cross_entropy", "cross_entropy"},
    {"qwen2_vl", "qwen2_vl qwen2_vl_text", "qvq",
     "rope rms_norm layer_norm swiglu fused_linear_cross_entropy", "cross_entropy"},
    {"qwen3", "qwen3", "", "rope rms_norm swiglu fused_linear_cross_entropy", "cross_entropy"},
    {"qwen3_5", "qwen3_5 qwen3_5_text", "", "rms_norm swiglu fused_linear_cross_entropy",
     "rope cross_entropy"},
    {"qwen3_5_moe", "qwen3_5_moe qwen3_5_moe_text", "",
     "rms_norm swiglu fused_linear_cross_entropy", "rope cross_entropy"},
    {"qwen3_moe", "qwen3_moe", "", "rope rms_norm swiglu fused_linear_cross_entropy",
     "cross_entropy"},
    {"qwen3_next", "qwen3_next", "", "rms_norm swiglu fused_linear_cross_entropy",
     "rope cross_entropy"},
    {"qwen3_vl", "qwen3_vl qwen3_vl_text", "", "rope rms_norm fused_linear_cross_entropy",
     "swiglu cross_entropy"},
    {"qwen3_vl_moe", "qwen3_vl_moe qwen3_vl_moe_text", "",
     "rope rms_norm swiglu fused_linear_cross_entropy", "cross_entropy"},
    {"smollm3", "smollm3", "", "rope rms_norm swiglu fused_linear_cross_entropy", "cross_entropy"},
    {"smolvlm", "smolvlm", "", "rms_norm layer_norm fused_linear_cross_entropy", "cross_entropy"},
};

std::vector<std::string> Words(const std::string& text) {
  std::istringstream stream(text);
  return {std::istream_iterator<std::string>(stream), std::istream_iterator<std::string>()};
}

// The map without the modules of its parts.
FamilyMap OwnMap(const std::string& family) {
  const std::string name = "families/" + family + ".yaml";
  std::ifstream stream(std::string(LIGER_PATCHES_DIR) + "/" + name);
  Result<FamilyMap> map = ParseFamilyMap(
      name, std::string{std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()});
  if (!map) {
    ADD_FAILURE() << map.error().location << ": " << map.error().message;
    return {};
  }
  return *std::move(map);
}

class BuiltInFamily : public testing::TestWithParam<Helper> {
 protected:
  const Helper& helper() const { return GetParam(); }
};

TEST_P(BuiltInFamily, TakesTheNamesOfLigersHelper) {
  const FamilyRegistry registry = BuiltInFamilies();
  const FamilyHead* head = registry.Find(helper().family);
  ASSERT_NE(head, nullptr);
  EXPECT_THAT(head->model_types, UnorderedElementsAreArray(Words(helper().model_types)));
  EXPECT_THAT(head->aliases, UnorderedElementsAreArray(Words(helper().aliases)));
  for (const std::string& name :
       Words(std::string(helper().model_types) + " " + helper().aliases)) {
    ASSERT_NE(registry.Find(name), nullptr) << name;
    EXPECT_EQ(registry.Find(name)->family, helper().family) << name;
  }
  for (const std::string& name : head->architectures) {
    EXPECT_EQ(registry.FindArchitecture(name), head) << name;
  }
}

TEST_P(BuiltInFamily, HasTheDefaultsOfLigersHelper) {
  std::vector<std::string> on;
  std::vector<std::string> off;
  const FamilyMap map = OwnMap(helper().family);
  for (const ModuleDefault& module : map.defaults) (module.on ? on : off).push_back(module.name);
  EXPECT_THAT(on, ElementsAreArray(Words(helper().on)));
  EXPECT_THAT(off, ElementsAreArray(Words(helper().off)));
}

// What Liger leaves off although its helper has the flag is off for a reason that reports show.
TEST_P(BuiltInFamily, SaysWhyAModuleIsOff) {
  for (const ModuleDefault& module : OwnMap(helper().family).defaults) {
    const ModuleKind* kind = FindModule(module.name);
    if (module.on || (kind != nullptr && kind->is_loss)) continue;
    EXPECT_FALSE(module.no_op.empty()) << module.name;
  }
}

TEST_P(BuiltInFamily, KnowsTheInstancesOfWhatItTurnsOn) {
  const FamilyMap map = OwnMap(helper().family);
  for (const ModuleDefault& module : map.defaults) {
    const ModuleMap* entries = map.FindModuleMap(module.name);
    if (FindModule(module.name) == nullptr) {  // a module that no fused op computes
      EXPECT_EQ(entries, nullptr) << module.name;
      continue;
    }
    if (!module.on) continue;
    ASSERT_NE(entries, nullptr) << module.name;
    for (const ModuleEntry& entry : entries->entries) {
      EXPECT_TRUE(entry.op.starts_with("Liger")) << entry.symbol;
      const bool is_loss = FindModule(module.name)->is_loss;
      if (entry.kind == ModuleEntry::Kind::kFunction && !is_loss) {
        EXPECT_FALSE(entry.callers.empty()) << entry.symbol;
      }
    }
  }
}

TEST_P(BuiltInFamily, ResolvesByDefault) {
  const FamilyRegistry registry = BuiltInFamilies();
  const Result<FamilyMap> map = registry.LoadMap(helper().family);
  ASSERT_TRUE(map) << map.error().message;
  std::vector<std::string> all;
  for (const ModuleKind& kind : ModuleVocabulary()) all.emplace_back(kind.name);
  const Result<ResolvedModules> resolved = ResolveModules(*map, "auto", kDefaultExclude, all);
  ASSERT_TRUE(resolved) << resolved.error().message;
  for (const std::string& module : Words(helper().on)) {
    const ModuleKind* kind = FindModule(module);
    EXPECT_EQ(resolved->IsEnabled(module), kind != nullptr && !kind->is_loss) << module;
  }
}

// `pattern` as the name of something in layer 0 of a model.
std::string Instance(const std::string& pattern) {
  std::string text = "m." + pattern;
  std::replace(text.begin(), text.end(), '*', '0');
  return text;
}

bool IsOutside(const ModuleEntry& entry, const std::string& path) {
  return std::any_of(entry.outside.begin(), entry.outside.end(), [&](const std::string& word) {
    return ("." + path + ".").find("." + word + ".") != std::string::npos;
  });
}

// A class, a module path or a parameter belongs to one module of a family: to a norm of one kind.
TEST_P(BuiltInFamily, ModulesDoNotClash) {
  const FamilyMap map = OwnMap(helper().family);
  for (const ModuleMap& one : map.modules) {
    for (const ModuleMap& other : map.modules) {
      if (one.name == other.name) continue;
      for (const ModuleEntry& a : one.entries) {
        for (const ModuleEntry& b : other.entries) {
          if (a.kind == ModuleEntry::Kind::kClass && b.kind == a.kind) {
            EXPECT_NE(a.symbol, b.symbol) << one.name << ", " << other.name;
          }
          const std::pair<const std::vector<std::string>*, const std::vector<std::string>*>
              lists[] = {{&a.weights, &b.weights}, {&a.scopes, &b.scopes}};
          for (const auto& [patterns, names] : lists) {
            for (const std::string& pattern : *patterns) {
              if (pattern.find('*') == std::string::npos) continue;  // bound to its layers' prefix
              for (const std::string& name : *names) {
                const std::string instance = Instance(name);
                EXPECT_FALSE(MatchPattern(pattern, instance) && !IsOutside(a, instance))
                    << one.name << " " << pattern << " takes " << instance << " of " << other.name;
              }
            }
          }
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Helpers, BuiltInFamily, testing::ValuesIn(kHelpers),
                         [](const auto& helper) { return std::string(helper.param.family); });

TEST(BuiltInFamilies, AreThoseOfLiger) {
  std::vector<std::string> families;
  size_t model_types = 0;
  for (const Helper& helper : kHelpers) {
    families.emplace_back(helper.family);
    model_types += Words(helper.model_types).size();
  }
  EXPECT_THAT(BuiltInFamilies().names(), UnorderedElementsAreArray(families));
  EXPECT_EQ(families.size(), 42u);
  EXPECT_EQ(model_types, 50u);
}

// Two families share a class only where one of them holds the other's model.
TEST(BuiltInFamilies, ShareClassesOnlyWithTheirParts) {
  const std::set<std::pair<std::string, std::string>> together = {{"gemma", "paligemma"},
                                                                  {"gemma2", "paligemma"},
                                                                  {"gemma3", "gemma3_text"},
                                                                  {"gemma4", "gemma4_text"}};
  std::map<std::string, std::set<std::string>> families;  // by class
  for (const Helper& helper : kHelpers) {
    const FamilyMap map = OwnMap(helper.family);
    for (const ModuleMap& module : map.modules) {
      for (const ModuleEntry& entry : module.entries) {
        if (entry.symbol.starts_with("torch.")) continue;
        if (entry.kind == ModuleEntry::Kind::kClass) families[entry.symbol].insert(helper.family);
        for (const std::string& caller : entry.callers) families[caller].insert(helper.family);
      }
    }
  }
  for (const auto& [name, owners] : families) {
    if (owners.size() == 1) continue;
    ASSERT_EQ(owners.size(), 2u) << name;
    EXPECT_TRUE(together.contains({*owners.begin(), *owners.rbegin()})) << name;
  }
}

TEST(BuiltInFamilies, PartsAreFamilies) {
  const FamilyRegistry registry = BuiltInFamilies();
  std::vector<std::string> with_parts;
  for (const FamilyHead& head : registry.heads()) {
    if (!head.parts.empty()) with_parts.push_back(head.family);
    for (const std::string& part : head.parts) {
      ASSERT_NE(registry.Find(part), nullptr) << head.family << " " << part;
      EXPECT_TRUE(registry.Find(part)->parts.empty()) << part;
    }
  }
  EXPECT_THAT(with_parts, UnorderedElementsAreArray({"internvl", "llava", "smolvlm"}));
}

TEST(BuiltInFamilies, APartBringsItsModules) {
  const FamilyRegistry registry = BuiltInFamilies();
  const std::vector<std::string> parts = {"llama", "clip"};
  Result<FamilyMap> map = registry.LoadMap("llava", parts);
  ASSERT_TRUE(map);
  ASSERT_TRUE(map->Accepts("rms_norm"));
  EXPECT_EQ(map->FindDefault("rms_norm")->part, "llama");
  EXPECT_FALSE(map->Accepts("geglu"));
  EXPECT_FALSE(map->Accepts("layer_norm"));
  const ModuleEntry& rope = map->FindModuleMap("rope")->entries.front();
  EXPECT_FALSE(rope.scopes.empty());
  EXPECT_FALSE(rope.count.has_value());
  EXPECT_THAT(rope.outside, ElementsAreArray({"encoder"}));
  // Losses are the family's own.
  EXPECT_EQ(map->FindModuleMap("fused_linear_cross_entropy")->entries.size(), 1u);
  const std::vector<std::string> all = {"rms_norm", "rope", "swiglu"};
  EXPECT_EQ(ResolveModules(*map, "auto", kDefaultExclude, all)->Find("rope")->reason,
            "on by default for family llama, a part of llava");

  // What the family names itself stays its own.
  map = registry.LoadMap("internvl", std::vector<std::string>{"qwen2"});
  ASSERT_TRUE(map);
  EXPECT_EQ(map->FindDefault("rms_norm")->part, "");
  EXPECT_EQ(map->FindModuleMap("rms_norm")->entries.size(), 2u);
  EXPECT_EQ(map->FindDefault("swiglu")->part, "qwen2");
}

TEST(BuiltInFamilies, PartsThatAreNotKnownGoByClassAlone) {
  const FamilyRegistry registry = BuiltInFamilies();
  const Result<FamilyMap> map = registry.LoadMap("llava", std::vector<std::string>{"clip"});
  ASSERT_TRUE(map);
  EXPECT_TRUE(map->Accepts("swiglu"));
  EXPECT_TRUE(map->Accepts("geglu"));
  for (const ModuleMap& module : map->modules) {
    for (const ModuleEntry& entry : module.entries) {
      EXPECT_THAT(entry.scopes, IsEmpty()) << entry.symbol;
      EXPECT_THAT(entry.weights, IsEmpty()) << entry.symbol;
    }
  }
}

TEST(BuiltInFamilies, LetUsersTurnOnWhatLigerLeavesAlone) {
  const FamilyRegistry registry = BuiltInFamilies();
  const std::vector<std::string> available = {"rope", "rms_norm", "swiglu", "softmax",
                                              "fused_linear_cross_entropy"};
  const Result<FamilyMap> glm4 = registry.LoadMap("glm");
  ASSERT_TRUE(glm4);
  Result<ResolvedModules> resolved = ResolveModules(*glm4, "auto", kDefaultExclude, available);
  ASSERT_TRUE(resolved);
  EXPECT_THAT(resolved->Find("rope")->reason,
              HasSubstr("off by default for family glm4: Liger raises NotImplementedError"));
  resolved = ResolveModules(*glm4, "rope=on", kDefaultExclude, available);
  ASSERT_TRUE(resolved);
  EXPECT_TRUE(resolved->IsEnabled("rope"));

  const Result<FamilyMap> granite = registry.LoadMap("granite");
  ASSERT_TRUE(granite);
  resolved = ResolveModules(*granite, "fused_linear_cross_entropy=on", "none", available);
  ASSERT_FALSE(resolved);
  EXPECT_EQ(resolved.error().code, ErrorCode::kFamily);
  EXPECT_THAT(resolved.error().message, HasSubstr("logits_scaling"));

  const Result<FamilyMap> nemotron = registry.LoadMap("nemotron");
  ASSERT_TRUE(nemotron);
  resolved = ResolveModules(*nemotron, "auto", kDefaultExclude, available);
  ASSERT_TRUE(resolved);
  EXPECT_FALSE(resolved->IsEnabled("relu_squared"));
  EXPECT_THAT(resolved->Find("relu_squared")->reason, HasSubstr("no fused op computes it"));
}

// docs/families.md holds a row for each family, `| llama | ...`, behind "## Built-in families".
TEST(BuiltInFamilies, StandInTheDocumentation) {
  std::ifstream stream(std::string(LIGER_PATCHES_DIR) + "/../docs/families.md");
  std::map<std::string, std::string> rows;
  bool is_table = false;
  for (std::string line; std::getline(stream, line);) {
    if (line.starts_with("## ")) is_table = line == "## Built-in families";
    if (!is_table || !line.starts_with("| `")) continue;
    const size_t end = line.find('`', 3);
    rows[line.substr(3, end - 3)] = line;
  }
  std::vector<std::string> documented;
  for (const auto& [family, row] : rows) documented.push_back(family);
  EXPECT_THAT(documented, UnorderedElementsAreArray(BuiltInFamilies().names()));
  for (const Helper& helper : kHelpers) {
    std::string wanted = "| `" + std::string(helper.family) + "` |";
    std::vector<std::string> names = Words(helper.model_types);
    for (const std::string& alias : Words(helper.aliases)) names.push_back(alias);
    std::erase(names, helper.family);
    for (const std::string& name : names) {
      EXPECT_THAT(rows[helper.family], HasSubstr("`" + name + "`"));
    }
    EXPECT_TRUE(rows[helper.family].starts_with(wanted)) << rows[helper.family];
    const std::string accepted = rows[helper.family].substr(wanted.size());
    for (const ModuleDefault& module : OwnMap(helper.family).defaults) {
      const ModuleKind* kind = FindModule(module.name);
      if (kind != nullptr && kind->is_loss) continue;
      EXPECT_THAT(accepted, HasSubstr(module.on ? " " + module.name : "(" + module.name + ")"));
    }
  }
}

}  // namespace
}  // namespace liger
