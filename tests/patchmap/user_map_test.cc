#include "patchmap/user_map.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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

}  // namespace
}  // namespace liger
