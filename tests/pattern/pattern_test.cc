// Invariants of the patterns: every body that can be emitted means what the pattern means, at every
// opset.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <onnx/checker.h>
#include <onnx/onnx_pb.h>

#include <memory>

#include "model/function_body.h"
#include "model/onnx_graph.h"
#include "ops/embedded_patches.h"
#include "pattern/canonical.h"
#include "pattern/guard.h"
#include "pattern/lowering.h"
#include "pattern/op_pattern.h"

namespace liger {
namespace {

using testing::HasSubstr;

const std::vector<DType> kFloats = {DType::kF32, DType::kF16, DType::kBF16, DType::kF64};

class PatternTest : public testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    auto ops = OpPatternSet::Load(EmbeddedPatches());
    ASSERT_TRUE(ops) << ops.error().message << " at " << ops.error().location;
    ops_ = std::make_unique<OpPatternSet>(*std::move(ops));
    auto lowerings = LoweringSet::Load(EmbeddedPatches());
    ASSERT_TRUE(lowerings) << lowerings.error().message;
    lowerings_ = *std::move(lowerings);
    canonicalizer_ = std::make_unique<Canonicalizer>(terms_, &lowerings_, ops_.get());
  }

  std::vector<PatternInstance> Instances(int64_t opset) {
    OpPatternSet::Request request;
    request.opset = opset;
    request.dtypes = kFloats;
    return ops_->Instantiate(*canonicalizer_, request);
  }

  TermStore terms_;
  LoweringSet lowerings_;
  std::unique_ptr<OpPatternSet> ops_;
  std::unique_ptr<Canonicalizer> canonicalizer_;
};

TEST_P(PatternTest, TextsOfAllOpsetsGiveTheSameTerms) {
  // From opset 21 on GroupNorm is an operator, which is its own text.
  const auto is_group_norm = [](const PatternInstance& instance) {
    return instance.op->contract->module == "group_norm";
  };
  auto here = Instances(GetParam());
  auto newest = Instances(23);
  std::erase_if(here, is_group_norm);
  std::erase_if(newest, is_group_norm);
  ASSERT_EQ(here.size(), newest.size());
  for (size_t i = 0; i < here.size(); ++i) {
    EXPECT_EQ(here[i].op, newest[i].op);
    EXPECT_EQ(here[i].outputs, newest[i].outputs)
        << here[i].op->contract->op_type << " " << here[i].Form();
  }
}

// The specialised body, read back as a graph and evaluated, is the pattern's own term.
TEST_P(PatternTest, SpecialisedBodiesMeanTheirPattern) {
  for (const PatternInstance& instance : Instances(GetParam())) {
    // The op is that of the instance without Casts, or with the other sign.
    if (!instance.input_wraps.empty() || !instance.negated.empty()) continue;
    const OpPattern& op = *instance.op;
    FunctionSpec spec;
    spec.op_type = op.contract->op_type;
    spec.text = instance.text->source;
    spec.fixed = instance.attributes;
    spec.opsets = {{"", GetParam()}};
    for (const AttributeSpec& attribute : op.contract->attributes) {
      spec.attributes.emplace_back(attribute.name);
    }
    std::vector<TermId> inputs;
    for (size_t i = 0; i < op.contract->inputs.size(); ++i) {
      const std::string name(op.contract->inputs[i].name);
      if (instance.inputs[i] != kNone) {
        spec.inputs.push_back(name);
        spec.types[name] = terms_[instance.inputs[i]].dtype;
        inputs.push_back(instance.inputs[i]);
      } else if (op.absent.contains(name)) {
        spec.absent[name] = op.absent.at(name);
      }
    }
    const Graph& text = instance.text->function.graph;
    for (ValueId output : text.outputs) spec.outputs.push_back(text.values[output].name);
    for (const Node& node : text.nodes) {
      if (node.domain != kOpDomain) continue;
      std::vector<bool> given;
      for (const ValueId input : node.inputs) {
        given.push_back(!spec.absent.contains(text.values[input].name));
      }
      const auto call = ops_->ResolveCall(node, GetParam(), spec.fixed, given);
      ASSERT_NE(call.text, nullptr) << instance.Form();
      spec.callees[node.op_type] = call.text->source;
    }
    auto made = MakeFunction(spec);
    ASSERT_TRUE(made) << made.error().message;
    auto body = GraphOfFunction(*made);
    ASSERT_TRUE(body) << body.error().message;
    const auto terms = canonicalizer_->Evaluate(*body, inputs, {}, {{"", GetParam()}});
    ASSERT_EQ(terms.size(), instance.outputs.size());
    for (size_t i = 0; i < terms.size(); ++i) {
      EXPECT_EQ(terms[i], instance.outputs[i])
          << spec.op_type << " " << instance.Form() << " output " << i << ":\n  "
          << terms_.ToString(terms[i], 9) << "\n  " << terms_.ToString(instance.outputs[i], 9);
    }
    // No operation that changes nothing is left, and nothing newer than the model's opset.
    for (const auto& node : made->node()) {
      EXPECT_NE(node.op_type(), "CastLike");
      EXPECT_TRUE(node.domain().empty()) << "a body calls " << node.op_type();
    }
  }
}

// Opset 11 has bodies of another spelling (model/function_body.h); tests/model checks them.
INSTANTIATE_TEST_SUITE_P(Opsets, PatternTest, testing::Values(12, 13, 15, 17, 18, 20, 21, 23, 26),
                         [](const auto& opset) { return std::to_string(opset.param); });

TEST(PatternFiles, NameOnlyKnownGuards) {
  auto ops = OpPatternSet::Load(EmbeddedPatches());
  ASSERT_TRUE(ops);
  for (const OpPattern& op : ops->ops()) {
    for (const GuardSpec& guard : op.guards)
      EXPECT_TRUE(GuardEvaluator::IsKnown(guard.name)) << guard.name;
  }
}

struct BadFile {
  std::string from, to, message;

  friend void PrintTo(const BadFile& file, std::ostream* stream) { *stream << file.to; }
};

class BadOpFile : public testing::TestWithParam<BadFile> {};

// A change of one line of a good file gives an error that names the place.
TEST_P(BadOpFile, IsRefusedWithItsPlace) {
  std::string text;
  for (const EmbeddedFile& file : EmbeddedPatches()) {
    if (file.path == "ops/swiglu.yaml") text = file.contents;
  }
  const size_t at = text.find(GetParam().from);
  ASSERT_NE(at, std::string::npos);
  text.replace(at, GetParam().from.size(), GetParam().to);
  const EmbeddedFile files[] = {{"ops/swiglu.yaml", text}};
  const auto ops = OpPatternSet::Load(files);
  ASSERT_FALSE(ops);
  EXPECT_EQ(ops.error().code, ErrorCode::kUsage);
  EXPECT_THAT(ops.error().message, HasSubstr(GetParam().message));
  EXPECT_THAT(ops.error().location, HasSubstr("ops/swiglu.yaml"));
}

INSTANTIATE_TEST_SUITE_P(
    Files, BadOpFile,
    testing::Values(
        BadFile{"anchors:", "ancors:", "anchors"},
        BadFile{"{name: native, stash_type: T}", "{name: native, stash: T}",
                "no attribute 'stash'"},
        BadFile{"{name: native, stash_type: T}", "{name: native, stash_type: f31}", "'f31'"},
        BadFile{"opset: 11-17", "opset: 17-11", "no range of opsets"},
        BadFile{"opset: 11-17", "opset: old", "no range of opsets"},
        BadFile{"{same_shape: [gate, up]}", "{same_form: [gate, up]}", "no guard 'same_form'"},
        BadFile{"{same_shape: [gate, up]}", "{same_shape: [gate, down]}", "'down'"},
        BadFile{"sigmoid = Sigmoid (scaled)", "sigmoid = Sigmoid (scaled", "cannot be parsed"},
        BadFile{"= Mul (multiplied, sigmoid)", "= Mull (multiplied, sigmoid)",
                "'Mull', which is no ONNX operator"},
        BadFile{"(gate) => (y)", "(gates) => (y)", "'gate' is not defined"},
        BadFile{"op: LigerSwiGLU", "op: LigerSwishGLU", "no kernels"},
        BadFile{"priority: 35", "priority: 35\npriority: 36", "priority"}));

TEST(Terms, EqualSpellingsAreOneTerm) {
  TermStore t;
  const TermId x = t.Variable(0, DType::kF32);
  const TermId y = t.Variable(1, DType::kF32);
  EXPECT_EQ(t.Mul(x, y), t.Mul(y, x));
  EXPECT_EQ(t.Add(x, y), t.Add(y, x));
  EXPECT_EQ(t.Pow(x, t.Scalar(2, DType::kF32)), t.Mul(x, x));
  EXPECT_EQ(t.Pow(x, t.Scalar(-0.5, DType::kF32)), t.Recip(t.Sqrt(x)));
  EXPECT_EQ(t.Mul(x, t.Scalar(1, DType::kF32)), x);
  EXPECT_EQ(t.Mul(x, t.Scalar(-1, DType::kF32)), t.Neg(x));
  EXPECT_EQ(t.Add(x, t.Scalar(0, DType::kF32)), x);
  EXPECT_EQ(t.Neg(t.Neg(x)), x);
  EXPECT_EQ(t.Recip(t.Recip(x)), x);
  EXPECT_EQ(t.Mul(t.Neg(x), y), t.Neg(t.Mul(x, y)));
  EXPECT_EQ(t.Part(t.Neg(x), -1, 1, 2), t.Neg(t.Part(x, -1, 1, 2)));
  EXPECT_EQ(t.Concat({t.Part(x, -1, 0, 2), t.Part(x, -1, 1, 2)}, -1), x);
  EXPECT_EQ(t.Cast(x, DType::kF32), x);
  const TermId sum = t.Sum(x, 32);
  EXPECT_EQ(t.Mul(sum, t.Scalar(1.0 / 32, DType::kF32)), t.Mean(x));
  EXPECT_EQ(t.Recip(t.Add(t.Scalar(1, DType::kF32), t.Exp(t.Neg(x)))), t.Sigmoid(x));
}

TEST(Terms, DifferentFunctionsAreDifferentTerms) {
  TermStore t;
  const TermId x = t.Variable(0, DType::kF16);
  const TermId y = t.Variable(1, DType::kF16);
  // A Cast does not move across a product, and narrowing is not undone by widening.
  const TermId wide = t.Cast(x, DType::kF32);
  EXPECT_NE(t.Cast(t.Mul(wide, t.Cast(y, DType::kF32)), DType::kF16), t.Mul(x, y));
  EXPECT_EQ(t.Cast(wide, DType::kF16), x);
  const TermId f32 = t.Variable(0, DType::kF32);
  EXPECT_NE(t.Cast(t.Cast(f32, DType::kF16), DType::kF32), f32);
  EXPECT_NE(t.Cast(t.Cast(f32, DType::kI32), DType::kF32), f32);
  // A scalar of another rank may give a result of another rank.
  EXPECT_NE(t.Scalar(2, DType::kI64, 0), t.Scalar(2, DType::kI64, 1));
  EXPECT_NE(t.Concat({t.Part(x, -1, 1, 2), t.Part(x, -1, 0, 2)}, -1), x);
  EXPECT_NE(t.Mul(t.Sum(x, 32), t.Scalar(1.0 / 16, DType::kF16)), t.Mean(x));
}

}  // namespace
}  // namespace liger
