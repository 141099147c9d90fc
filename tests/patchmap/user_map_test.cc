#include "patchmap/user_map.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "ops/op_contract.h"

namespace liger {
namespace {

TEST(ParseUserMap, ReadsEveryKindOfEntry) {
  const Result<UserMap> map = ParseUserMap("mine.yaml", R"(schema_version: 1
family: mymodel
extends: qwen3
modules:
  rms_norm:
    - class: my_pkg.modeling.MyRMSNorm
      op: LigerRMSNormForGemma
      expect: 65
    - function: my_domain::MyRMSNorm*
      op: liger.LigerRMSNorm
      expect: ">=3"
      optional: true
    - scope: "model.layers.*.norm"
      op: LigerRMSNorm
  soft_cap:
    - match: |
        SoftCap <cap> (x, mask) => (y) {
          c = Constant <value_float: float = @cap> ()
          d = Div (x, c)
          t = Tanh (d)
          s = Mul (t, c)
          y = Where (mask, s, x)
        }
      opset: 13-
      op: my.domain.SoftCap
      types: {mask: bool}
)");
  ASSERT_TRUE(map) << map.error().location << ": " << map.error().message;
  EXPECT_EQ(map->file, "mine.yaml");
  EXPECT_EQ(map->family, "mymodel");
  EXPECT_EQ(map->extends, "qwen3");
  EXPECT_EQ(map->extends_place, "mine.yaml:3:10");
  ASSERT_EQ(map->modules.size(), 2u);
  const UserModule& norms = map->modules[0];
  EXPECT_EQ(norms.name, "rms_norm");
  ASSERT_EQ(norms.entries.size(), 3u);
  const UserEntry& gemma = norms.entries[0];
  EXPECT_EQ(gemma.kind, UserEntry::Kind::kClass);
  EXPECT_EQ(gemma.symbol, "my_pkg.modeling.MyRMSNorm");
  EXPECT_EQ(gemma.domain, "liger");
  EXPECT_EQ(gemma.op, "LigerRMSNorm");
  EXPECT_EQ(gemma.alias, "LigerRMSNormForGemma");
  EXPECT_EQ(gemma.expect->ToText(), "65");
  EXPECT_FALSE(gemma.optional);
  EXPECT_EQ(gemma.place, "mine.yaml:6:7");
  const UserEntry& function = norms.entries[1];
  EXPECT_EQ(function.kind, UserEntry::Kind::kFunction);
  EXPECT_EQ(function.symbol, "my_domain::MyRMSNorm*");
  EXPECT_EQ(function.alias, "");
  EXPECT_EQ(function.expect->ToText(), ">=3");
  EXPECT_TRUE(function.optional);
  EXPECT_EQ(norms.entries[2].kind, UserEntry::Kind::kScope);
  EXPECT_EQ(norms.entries[2].symbol, "model.layers.*.norm");
  ASSERT_EQ(map->modules[1].entries.size(), 1u);
  const UserEntry& cap = map->modules[1].entries[0];
  EXPECT_EQ(cap.kind, UserEntry::Kind::kMatch);
  EXPECT_EQ(cap.symbol, "SoftCap");
  EXPECT_EQ(cap.domain, "my.domain");
  EXPECT_EQ(cap.op, "SoftCap");
  EXPECT_EQ(cap.min_opset, 13);
  EXPECT_EQ(cap.max_opset, std::numeric_limits<int64_t>::max());
  EXPECT_EQ(cap.types.at("mask"), DType::kBool);
  EXPECT_TRUE(cap.text.starts_with("SoftCap <cap>"));
}

// The one entry of a map.
UserEntry EntryOf(const std::string& entry) {
  const Result<UserMap> map = ParseUserMap(
      "mine.yaml", "schema_version: 1\nfamily: mine\nmodules:\n  any-name.2:\n    - " + entry);
  EXPECT_TRUE(map) << entry << "\n" << map.error().location << ": " << map.error().message;
  return map ? map->modules.at(0).entries.at(0) : UserEntry();
}

TEST(ParseUserMap, TakesSymbolsAsExportersWriteThem) {
  for (const char* name :
       {"Norm", "pkg.Norm", "__main__.Norm", "test.make.<locals>.Norm", "pkg.\xc3\x84hnlich"}) {
    EXPECT_EQ(EntryOf("{op: LigerRope, class: " + std::string(name) + "}").symbol, name);
  }
  for (const char* name : {"norm", "dom::norm", "pkg.my-dom.v2::Norm*", "*", "pkg_models_Norm_1"}) {
    EXPECT_EQ(EntryOf("{op: LigerRope, function: \"" + std::string(name) + "\"}").symbol, name);
  }
  for (const char* name :
       {"norm", "**", "**.norm", "model.layers.[0-3].*_norm", "model.layers.*"}) {
    EXPECT_EQ(EntryOf("{op: LigerRope, scope: \"" + std::string(name) + "\"}").symbol, name);
  }
}

TEST(ParseUserMap, ResolvesNamesOfOps) {
  const struct {
    const char* written;
    const char* op;
    const char* alias;
  } cases[] = {
      {"LigerRMSNorm", "LigerRMSNorm", ""},
      {"liger.LigerRMSNorm", "LigerRMSNorm", ""},
      {"LigerAddRMSNorm", "LigerAddRMSNorm", ""},
      {"LigerFusedAddRMSNorm", "LigerAddRMSNorm", "LigerFusedAddRMSNorm"},
      {"LigerRMSNormForOlmo2", "LigerRMSNorm", "LigerRMSNormForOlmo2"},
      {"liger.LigerRMSNormForGemma3", "LigerRMSNorm", "LigerRMSNormForGemma3"},
      {"LigerLayerNorm", "LigerLayerNorm", ""},
      {"liger_rotary_pos_emb", "LigerRope", "liger_rotary_pos_emb"},
      {"liger_llama4_text_rotary_pos_emb", "LigerRope", "liger_llama4_text_rotary_pos_emb"},
      {"LigerSwiGLUMLP", "LigerSwiGLU", "LigerSwiGLUMLP"},
      {"LigerPhi3SwiGLUMLP", "LigerSwiGLU", "LigerPhi3SwiGLUMLP"},
      {"LigerTiledSwiGLUMLP", "LigerSwiGLU", "LigerTiledSwiGLUMLP"},
      {"LigerGEGLUMLP", "LigerGeGLU", "LigerGEGLUMLP"},
      {"LigerSoftmax", "LigerSoftmax", ""},
      {"liger_group_norm", "LigerGroupNorm", "liger_group_norm"},
  };
  for (const auto& c : cases) {
    const UserEntry entry = EntryOf("{class: A, op: " + std::string(c.written) + "}");
    EXPECT_EQ(entry.domain, "liger") << c.written;
    EXPECT_EQ(entry.op, c.op) << c.written;
    EXPECT_EQ(entry.alias, c.alias) << c.written;
  }
}

TEST(ParseUserMap, LeavesDefaultsWhereNothingIsSaid) {
  const UserEntry entry = EntryOf("{class: A, op: LigerRope}");
  EXPECT_FALSE(entry.expect.has_value());
  EXPECT_FALSE(entry.optional);
  EXPECT_EQ(entry.min_opset, 1);
  EXPECT_EQ(entry.max_opset, std::numeric_limits<int64_t>::max());
  EXPECT_TRUE(entry.types.empty());
  EXPECT_TRUE(entry.text.empty());
  EXPECT_EQ(entry.place, "mine.yaml:5:7");
  EXPECT_FALSE(EntryOf("{class: A, op: LigerRope, optional: false}").optional);
}

TEST(ParseUserMap, ReadsRangesOfOpsets) {
  const struct {
    const char* written;
    int64_t min;
    int64_t max;
  } cases[] = {{"13-17", 13, 17},
               {"13-", 13, std::numeric_limits<int64_t>::max()},
               {"17", 17, 17},
               {"\"18-\"", 18, std::numeric_limits<int64_t>::max()},
               {"13-99", 13, 99}};
  for (const auto& c : cases) {
    const UserEntry entry = EntryOf("{match: 'F (x) => (y) { y = Tanh (x) }', op: my.F, opset: " +
                                    std::string(c.written) + "}");
    EXPECT_EQ(entry.min_opset, c.min) << c.written;
    EXPECT_EQ(entry.max_opset, c.max) << c.written;
  }
}

// Spellings of one op, attributes behind the inputs, omitted inputs, comments, quoted names.
TEST(ParseUserMap, TakesTextsOfManyForms) {
  const Result<UserMap> map = ParseUserMap("mine.yaml", R"(schema_version: 1
family: mine
modules:
  pooling:
    - match: |
        # the mean over a range of axes
        Pool <count> (x, "mask 1") => (y, "total")
        {
          n = Constant <value_int: int = @count> ()   # how many
          wide = Cast <to = 1> (n)
          kept = Where ("mask 1", x, wide)
          "total" = ReduceSum <axes = [-1], keepdims = 1> (kept)
          y = Div ("total", wide)
        }
      opset: 12
      op: my.ops.Pool
      types: {"mask 1": bool}
    - match: |
        <opset_import: ["" : 18], domain: "my.ops">
        Pool <count> (x, "mask 1") => (y, "total") {
          axes = Constant <value_ints = [-1]> ()
          n = Constant <value_int: int = @count> ()
          wide = Cast <to = 1> (n)
          soft = Softmax <axis = -1> (wide)
          kept = Where ("mask 1", x, soft)
          [the_sum] "total" = ReduceSum (kept, axes) <keepdims = 1>
          first, second = Split <num_outputs = 2> ("total")
          clipped = Clip (first, , wide)
          y = Div (clipped, wide)
        }
      opset: 18-
      op: my.ops.Pool
      types: {"mask 1": bool}
)");
  ASSERT_TRUE(map) << map.error().location << ": " << map.error().message;
  ASSERT_EQ(map->modules.at(0).entries.size(), 2u);
  EXPECT_EQ(map->modules[0].entries[0].symbol, "Pool");
  EXPECT_EQ(map->modules[0].entries[1].place, "mine.yaml:18:7");
}

// Without a range a text has to be right at one opset.
TEST(ParseUserMap, TakesTextsOfOneOpsetWhereNoRangeIsGiven) {
  EntryOf("{match: 'F (x) => (y) { y = ReduceMean <axes = [-1]> (x) }', op: my.F}");
  EntryOf("{match: 'F (x, a) => (y) { y = ReduceMean (x, a) }', op: my.F, types: {a: i64}}");
  EntryOf("{match: 'F (x) => (y) { y = Upsample <scales = [2.0]> (x) }', op: my.F}");
  EXPECT_FALSE(ParseUserMap("m.yaml",
                            "schema_version: 1\nfamily: mine\nmodules: {m: [{op: my.F, "
                            "match: 'F (x, a) => (y) { z = ReduceMean (x, a) "
                            "y = ReduceMax <axes = [-1]> (z) w = Gelu (y)}'}]}\n"));
}

TEST(ParseCountWish, ReadsNumbersAndBounds) {
  EXPECT_EQ(ParseCountWish("65")->ToText(), "65");
  EXPECT_EQ(ParseCountWish("=65")->ToText(), "65");
  EXPECT_EQ(ParseCountWish(">=65")->ToText(), ">=65");
  EXPECT_EQ(ParseCountWish("0")->count, 0);
  for (const char* text : {"", "=", ">=", ">65", "<=65", "-1", "+1", "6 5", " 65", "65 ", "6.5",
                           "65x", ">==65", "99999999999999999999"}) {
    EXPECT_FALSE(ParseCountWish(text).has_value()) << text;
  }
  EXPECT_TRUE(ParseCountWish("3")->Met(3));
  EXPECT_FALSE(ParseCountWish("3")->Met(4));
  EXPECT_TRUE(ParseCountWish(">=3")->Met(4));
  EXPECT_FALSE(ParseCountWish(">=3")->Met(2));
}

TEST(OpNames, NameEveryOpAndWhatTheyImply) {
  EXPECT_TRUE(std::is_sorted(OpNames().begin(), OpNames().end(),
                             [](const OpName& a, const OpName& b) { return a.name < b.name; }));
  for (const OpContract& contract : Contracts()) {
    const OpName* name = FindOpName(contract.op_type);
    ASSERT_NE(name, nullptr) << contract.op_type;
    EXPECT_EQ(name->op, contract.op_type);
    EXPECT_TRUE(name->implies.empty());
  }
  for (const OpName& name : OpNames()) {
    EXPECT_EQ(FindOpName(name.name), &name);
    EXPECT_NE(name.op.empty(), name.refused.empty()) << name.name;
    if (name.op.empty()) continue;
    const OpContract* contract = FindContract(name.op);
    ASSERT_NE(contract, nullptr) << name.name;
    for (const ImpliedAttribute& implied : name.implies) {
      EXPECT_NE(contract->FindAttribute(implied.name), nullptr) << name.name;
    }
  }
  EXPECT_EQ(FindOpName("LigerRMSNormForGemma")->implies[0].name, "offset");
  EXPECT_EQ(FindOpName("LigerRMSNormForGemma")->implies[0].value, "1");
  EXPECT_EQ(FindOpName("LigerGEGLUMLP")->implies[0].value, "tanh");
  EXPECT_EQ(FindOpName("LigerRMSNormForNobody"), nullptr);
  EXPECT_EQ(FindOpName(""), nullptr);
  EXPECT_TRUE(std::ranges::any_of(OpNames(), [](const OpName& name) {
    return name.name == "LigerCrossEntropyLoss" && !name.refused.empty();
  }));
}

}  // namespace
}  // namespace liger
