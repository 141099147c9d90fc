// Patterns of users' maps: what can be one, and what its instances are.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pattern/canonical.h"
#include "pattern/op_pattern.h"

namespace liger {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

const std::map<std::string, int64_t> kOpsets = {{"", 20}, {"com.microsoft", 1}};

Status AddText(OpPatternSet& ops, const std::string& text, int64_t min_opset = 13,
               int64_t max_opset = 99, std::map<std::string, DType> types = {}) {
  OwnOp op{"my.domain", "Own", {}};
  op.texts.push_back({text, min_opset, max_opset, std::move(types), "mine.yaml:7:9"});
  return ops.AddOwn(op, kOpsets);
}

struct Refused {
  const char* text;
  const char* message;
};

class RefusedTextTest : public testing::TestWithParam<Refused> {};

TEST_P(RefusedTextTest, NamesTheFaultAndThePlace) {
  OpPatternSet ops;
  const Status status = AddText(ops, GetParam().text);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kUsage);
  EXPECT_THAT(status.error().message, HasSubstr(GetParam().message));
  EXPECT_EQ(status.error().location, "mine.yaml:7:9");
  EXPECT_THAT(ops.ops(), IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(
    Texts, RefusedTextTest,
    testing::Values(
        Refused{R"(<opset_import: ["": 13]> Own <slope> (x) => (y) {
                     y = LeakyRelu <alpha: float = @slope> (x) })",
                "attribute 'slope' stands at LeakyRelu"},
        Refused{R"(<opset_import: ["": 13]> Own <cap> (x) => (y) { y = Tanh (x) })",
                "attribute 'cap' is captured and never used"},
        Refused{R"(<opset_import: ["": 13]> Own (x) => (y) { y = Identity (x) })",
                "the text computes nothing"},
        Refused{R"(<opset_import: ["": 13]> Own (x, z) => (y) { y = Tanh (x) })",
                "input 'z' does not enter the first output"},
        Refused{R"(<opset_import: ["": 13]> Own (x, z) => (y, w) { y = Add (x, z)
                     w = Tanh (x) })",
                "output 'w' is not computed on the way to the first output"},
        Refused{R"(<opset_import: ["": 13]> Own (x) => (y) { r = RandomNormalLike (x)
                     y = Add (x, r) })",
                "the operator RandomNormalLike in the text cannot be matched"},
        Refused{R"(<opset_import: ["": 13, "other": 1]> Own (x) => (y) { y = other.Op (x) })",
                "the operator other.Op in the text cannot be matched"},
        Refused{R"(<opset_import: ["": 13]> Own (x) => (y) { c = Constant <value_int: int = 1> ()
                     y = Add (x, c) })",
                "the operators of the text do not fit together"}));

TEST(OwnOp, NeedsATextForTheModelsOpset) {
  OpPatternSet ops;
  const Status status =
      AddText(ops, "<opset_import: [\"\": 13]> Own (x) => (y) { y = Tanh (x) }", 13, 17);
  ASSERT_FALSE(status);
  EXPECT_THAT(status.error().message,
              HasSubstr("no text of my.domain.Own is for the model's opset 20, only for 13-17"));
}

std::vector<PatternInstance> Instances(const OpPatternSet& ops, Canonicalizer& canonicalizer) {
  OpPatternSet::Request request;
  request.opset = 20;
  request.dtypes = {DType::kF32, DType::kF16, DType::kI64, DType::kBool};
  return ops.Instantiate(canonicalizer, request);
}

TEST(OwnOp, HasAnInstancePerFloatTypeWithItsCaptures) {
  OpPatternSet ops;
  ASSERT_TRUE(AddText(ops, R"(<opset_import: ["": 13]> Own <cap> (x) => (y) {
    c = Constant <value_float: float = @cap> ()
    k = CastLike (c, x)
    d = Div (x, k)
    t = Tanh (d)
    y = Mul (t, k)
  })"));
  TermStore terms;
  Canonicalizer canonicalizer(terms, nullptr, &ops);
  const auto instances = Instances(ops, canonicalizer);
  ASSERT_THAT(instances, SizeIs(2));
  EXPECT_EQ(instances[0].op->contract->domain, "my.domain");
  EXPECT_TRUE(instances[0].op->contract->is_own());
  EXPECT_EQ(instances[0].captures, std::vector<std::string>{"cap"});
  EXPECT_EQ(terms[instances[0].root()].dtype, DType::kF32);
  EXPECT_EQ(terms[instances[1].root()].dtype, DType::kF16);
  EXPECT_EQ(instances[0].Form(), "text");
  EXPECT_EQ(ops.Find("Own"), nullptr);
  EXPECT_NE(ops.Find("my.domain", "Own"), nullptr);
}

TEST(OwnOp, KnowsTheDtypesOfWhatIsNoFloat) {
  OpPatternSet ops;
  ASSERT_TRUE(AddText(ops, R"(<opset_import: ["": 13]> Own (mask, x, z) => (y) {
    big = Greater (x, z)
    both = And (mask, big)
    y = Where (both, x, z)
  })",
                      13, 99, {{"mask", DType::kBool}}));
  TermStore terms;
  Canonicalizer canonicalizer(terms, nullptr, &ops);
  const auto instances = Instances(ops, canonicalizer);
  ASSERT_THAT(instances, SizeIs(2));
  const Term& root = terms[instances[0].root()];
  EXPECT_EQ(root.dtype, DType::kF32);
  EXPECT_EQ(terms[root.args[0]].dtype, DType::kBool);
  EXPECT_EQ(terms[instances[0].inputs[0]].dtype, DType::kBool);
}

}  // namespace
}  // namespace liger
