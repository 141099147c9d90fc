// RMSNorm and add+norm: what looks like one and is not, and what is one in an odd place.
#include "model_case.h"

namespace liger::test {
namespace {

const char kNorm[] = "LigerRMSNorm";
const char kAdd[] = "LigerAddRMSNorm";

Case NormCase() {
  Case c;
  c.body = Norm("x", "w", "eps", "y");
  return c;
}

Case With(const std::string& body) {
  Case c;
  c.body = body;
  return c;
}

TEST(NormAdversarial, Plain) { Expect(NormCase(), {kNorm}); }

TEST(NormAdversarial, EpsilonIsAnInput) {
  Case c = With(Norm("x", "w", "e", "y"));
  c.inputs += ", float e";
  c.feeds["e"] = Scalar(1);
  Expect(c, {}, "epsilon is not a constant");
}

TEST(NormAdversarial, EpsilonIsAnOverridableInitializer) {
  Case c = NormCase();
  c.inputs += ", float eps";
  c.feeds["eps"] = Scalar(1);
  Expect(c, {}, "epsilon is not a constant: 'eps' (overridable initializer)");
}

TEST(NormAdversarial, ExponentIsAnOverridableInitializer) {
  Case c = With(
      "sq = Pow(x, two) m = ReduceMean(sq, m1) v = Add(m, eps) r = Sqrt(v) n = Div(x, r) y = "
      "Mul(n, w)");
  c.inputs += ", float two";
  c.feeds["two"] = Scalar(4);
  Expect(c, {});
}

TEST(NormAdversarial, AxesAreAnOverridableInitializer) {
  Case c = NormCase();
  c.inputs += ", int64[1] m1";
  c.feeds["m1"] = Tensor::FromDoubles(DType::kI64, {1}, {1});
  Expect(c, {});
}

TEST(NormAdversarial, ScaleIsAnOverridableInitializer) {
  Case c = NormCase();
  c.inputs += ", float[8] w";
  c.feeds["w"] = Tensor::FromDoubles(DType::kF32, {8}, {1, 2, 3, 4, 5, 6, 7, 8});
  Expect(c, {kNorm});
}

TEST(NormAdversarial, EpsilonOutsideTheRoot) {
  Expect(With("sq = Mul(x, x) m = ReduceMean(sq, m1) r = Sqrt(m) v = Add(r, eps) n = Div(x, v) y = "
              "Mul(n, w)"),
         {});
}

TEST(NormAdversarial, EpsilonByMax) {
  Expect(With("sq = Mul(x, x) m = ReduceMean(sq, m1) v = Max(m, eps) r = Sqrt(v) n = Div(x, r) y = "
              "Mul(n, w)"),
         {});
}

TEST(NormAdversarial, EpsilonSubtracted) {
  Expect(With("sq = Mul(x, x) m = ReduceMean(sq, m1) v = Sub(m, eps) r = Sqrt(v) n = Div(x, r) y = "
              "Mul(n, w)"),
         {}, "epsilon is negative");
}

TEST(NormAdversarial, MeanSubtractedFromEpsilon) {
  Case c = With(
      "sq = Mul(x, x) m = ReduceMean(sq, m1) v = Sub(eps, m) a = Abs(v) r = Sqrt(a) n = Div(x, r) "
      "y = Mul(n, w)");
  Expect(c, {});
}

TEST(NormAdversarial, EpsilonVectorOfEqualElements) {
  Case c = With(Norm("x", "w", "e", "y"));
  c.constants = "float[8] e = {1,1,1,1,1,1,1,1}";
  Expect(c, {});
}

TEST(NormAdversarial, EpsilonOfHigherRank) {
  Case c = With(Norm("x", "w", "e", "y"));
  c.constants = "float[1,1,1,1] e = {1}";
  c.outputs = "float[1,2,4,8] y";
  Expect(c, {});
}

TEST(NormAdversarial, EpsilonOfRankThree) {
  Case c = With(Norm("x", "w", "e", "y"));
  c.constants = "float[1,1,1] e = {1}";
  Expect(c, {kNorm});
}

TEST(NormAdversarial, EpsilonInfinite) {
  Case c = NormCase();
  c.edit = [](onnx::ModelProto& model) {
    for (auto& t : *model.mutable_graph()->mutable_initializer()) {
      if (t.name() == "eps") t.set_float_data(0, std::numeric_limits<float>::infinity());
    }
  };
  Expect(c, {}, "epsilon is not finite");
}

TEST(NormAdversarial, EpsilonNaN) {
  Case c = NormCase();
  c.edit = [](onnx::ModelProto& model) {
    for (auto& t : *model.mutable_graph()->mutable_initializer()) {
      if (t.name() == "eps") t.set_float_data(0, std::numeric_limits<float>::quiet_NaN());
    }
  };
  Expect(c, {}, "epsilon is not finite");
}

TEST(NormAdversarial, SpecialRows) {
  for (double value : {1e-3, 600.0, 1e10, 3e38, 1e-20, 1e-30}) {
    Case c = NormCase();
    std::vector<double> values(64, value);
    values[3] = -value;
    values[17] = std::numeric_limits<double>::infinity();
    values[26] = std::numeric_limits<double>::quiet_NaN();
    for (int i = 40; i < 48; ++i) values[i] = 0;
    c.feeds["x"] = Tensor::FromDoubles(DType::kF32, {2, 4, 8}, values);
    SCOPED_TRACE(value);
    Expect(c, {kNorm});
  }
}

TEST(NormAdversarial, OtherValueNormalised) {
  Case c = With(
      "sq = Mul(x, x) m = ReduceMean(sq, m1) v = Add(m, eps) r = Sqrt(v) n = Div(x2, r) y = Mul(n, "
      "w)");
  c.inputs += ", float[2,4,8] x2";
  Expect(c, {});
}

TEST(NormAdversarial, SquareOfTwoValues) {
  Case c = With(
      "sq = Mul(x, x2) m = ReduceMean(sq, m1) v0 = Add(m, eps) v = Abs(v0) r = Sqrt(v) n = Div(x, "
      "r) y = Mul(n, w)");
  c.inputs += ", float[2,4,8] x2";
  Expect(c, {});
}

TEST(NormAdversarial, KeepDimsZeroOnSquareShapes) {
  Case c = With(
      "sq = Mul(x, x) m = ReduceMean<keepdims = 0>(sq, m1) v = Add(m, eps) r = Sqrt(v) n = Div(x, "
      "r) y = Mul(n, w)");
  c.inputs = "float[8,8] x";
  c.outputs = "float[8,8] y";
  Expect(c, {});
}

TEST(NormAdversarial, AxesAbsentEmptyOtherOrSeveral) {
  for (const char* reduce :
       {"ReduceMean(sq)", "ReduceMean(sq, none)", "ReduceMean<noop_with_empty_axes = 1>(sq)",
        "ReduceMean<noop_with_empty_axes = 1>(sq, none)", "ReduceMean(sq, i1)",
        "ReduceMean(sq, both)"}) {
    Case c = With(std::string("sq = Mul(x, x) m = ") + reduce +
                  " v = Add(m, eps) r = Sqrt(v) n = Div(x, r) y = Mul(n, w)");
    c.constants = "int64[0] none = {}, int64[2] both = {-1, -2}";
    SCOPED_TRACE(reduce);
    Expect(c, {});
  }
}

TEST(NormAdversarial, OtherReductions) {
  for (const char* reduce : {"ReduceSum", "ReduceMax", "ReduceL2", "ReduceSumSquare", "ReduceL1"}) {
    Case c = With(std::string("sq = Mul(x, x) m = ") + reduce +
                  "(sq, m1) v = Add(m, eps) r = Sqrt(v) n = Div(x, r) y = Mul(n, w)");
    SCOPED_TRACE(reduce);
    Expect(c, {});
  }
}

TEST(NormAdversarial, MeanAsSumByLength) {
  Case c = With(
      "sq = Mul(x, x) s = ReduceSum(sq, m1) m = Div(s, len) v = Add(m, eps) r = Sqrt(v) n = Div(x, "
      "r) y = Mul(n, w)");
  c.constants = "float len = {8}";
  Expect(c, {kNorm});
  c.constants = "float len = {4}";
  Expect(c, {});
}

TEST(NormAdversarial, ExponentThreeOrAbsolute) {
  Case c = With(
      "sq = Pow(x, three) a = Abs(sq) m = ReduceMean(a, m1) v = Add(m, eps) r = Sqrt(v) n = Div(x, "
      "r) y = Mul(n, w)");
  c.constants = "float three = {3}";
  Expect(c, {});
  Expect(With("a = Abs(x) m = ReduceMean(a, m1) v = Add(m, eps) r = Sqrt(v) n = Div(x, r) y = "
              "Mul(n, w)"),
         {});
}

TEST(NormAdversarial, ExponentIntegerOrOneElement) {
  for (const char* two :
       {"int64 e = {2}", "int32[1] e = {2}", "float[1] e = {2}", "double e = {2}"}) {
    Case c = With(
        "sq = Pow(x, e) m = ReduceMean(sq, m1) v = Add(m, eps) r = Sqrt(v) n = Div(x, r) y = "
        "Mul(n, w)");
    c.constants = two;
    SCOPED_TRACE(two);
    Expect(c, {kNorm});
  }
}

TEST(NormAdversarial, ScaleOfOtherShapes) {
  for (const char* scale : {"float[4,8] s", "float[8,1] s", "float[2,1,8] s", "float[1,8] s",
                            "float[1,1,8] s", "float[4,1] s", "float[1] s", "float s"}) {
    Case c = With(
        "sq = Mul(x, x) m = ReduceMean(sq, m1) v = Add(m, eps) r = Sqrt(v) n = Div(x, r) y = "
        "Mul(n, s)");
    c.inputs = std::string("float[2,8,8] x, ") + scale;
    if (std::string(scale) == "float[4,8] s" || std::string(scale) == "float[4,1] s")
      c.inputs = std::string("float[2,4,8] x, ") + scale;
    c.outputs = "float[2,A,8] y";
    SCOPED_TRACE(scale);
    const onnx::ModelProto model = Parse(c);
    const auto patched = PatchBytes(model.SerializeAsString());
    ASSERT_TRUE(static_cast<bool>(patched));
    for (const auto& p : patched->report.patched) {
      EXPECT_FALSE(p.op == kNorm && p.form.find("no_scale") == std::string::npos &&
                   p.replaced.size() > 6)
          << p.form;
    }
    std::vector<std::string> ops = FusedOps(patched->report);
    Expect(c, ops);
  }
}

TEST(NormAdversarial, ScaleOfBatchLength) {
  Case c = With(
      "sq = Mul(x, x) m = ReduceMean(sq, m1) v = Add(m, eps) r = Sqrt(v) n = Div(x, r) y = Mul(n, "
      "s)");
  c.inputs = "float[8,1,8] x, float[8,1,1] s";
  c.outputs = "float[8,1,8] y";
  const auto patched = PatchBytes(Parse(c).SerializeAsString());
  ASSERT_TRUE(static_cast<bool>(patched));
  Expect(c, FusedOps(patched->report));
  for (const auto& p : patched->report.patched) EXPECT_EQ(p.attributes.count("scale"), 0u);
}

TEST(NormAdversarial, LastAxisOfLengthOne) {
  Case c = With(
      "sq = Mul(x, x) m = ReduceMean(sq, m1) v = Add(m, eps) r = Sqrt(v) n = Div(x, r) y = Mul(n, "
      "s)");
  c.inputs = "float[3,1] x";
  c.outputs = "float[3,2] y";
  c.constants = "float[2] s = {1, 2}";
  const auto patched = PatchBytes(Parse(c).SerializeAsString());
  ASSERT_TRUE(static_cast<bool>(patched));
  Expect(c, FusedOps(patched->report));
  c.outputs = "float[3,1] y";
  c.constants = "float[1] s = {3}";
  const auto one = PatchBytes(Parse(c).SerializeAsString());
  ASSERT_TRUE(static_cast<bool>(one));
  Expect(c, FusedOps(one->report));
}

TEST(NormAdversarial, RankOneScaleFirst) {
  Case c = With(
      "sq = Mul(x, x) m = ReduceMean(sq, m1) v = Add(m, eps) r = Sqrt(v) n = Div(x, r) y = Mul(w, "
      "n)");
  c.inputs = "float[8] x";
  c.outputs = "float[8] y";
  Expect(c, {kNorm});
}

TEST(NormAdversarial, EmptyBatch) {
  Case c = NormCase();
  c.inputs = "float[B,4,8] x";
  c.outputs = "float[B,4,8] y";
  c.dims["B"] = 0;
  Expect(c, {kNorm});
}

TEST(NormAdversarial, ScaleIsTheSymbolicWidth) {
  Case c = With(
      "sq = Mul(x, x) m = ReduceMean(sq, m1) v = Add(m, eps) r = Sqrt(v) n = Div(x, r) y = Mul(n, "
      "s)");
  c.inputs = "float[B,H] x, float[H] s";
  c.outputs = "float[B,H] y";
  c.dims = {{"B", 3}, {"H", 5}};
  Expect(c, {kNorm});
  c.inputs = "float[B,H] x, float[K] s";
  c.outputs = "float[B,M] y";
  c.dims = {{"B", 3}, {"H", 1}, {"K", 5}};
  const auto patched = PatchBytes(Parse(c).SerializeAsString());
  ASSERT_TRUE(static_cast<bool>(patched));
  Expect(c, FusedOps(patched->report));
}

TEST(NormAdversarial, InnerValuesAsOutputs) {
  const std::map<std::string, std::string> shapes = {
      {"y_sq", "2,4,8"}, {"y_m", "2,4,1"}, {"y_v", "2,4,1"}, {"y_r", "2,4,1"}, {"y_n", "2,4,8"}};
  for (const auto& [value, shape] : shapes) {
    Case c = NormCase();
    c.outputs += ", float[" + shape + "] " + value;
    SCOPED_TRACE(value);
    Expect(c, value == "y_n" ? std::vector<std::string>{} : std::vector<std::string>{},
           "graph output");
  }
}

TEST(NormAdversarial, InnerValueReadOutside) {
  Case c = With(Norm("x", "w", "eps", "y") + "z = Exp(y_r)\n");
  c.outputs += ", float[2,4,1] z";
  Expect(c, {}, "'y_r' is also read by");
}

TEST(NormAdversarial, InnerValueCapturedByIf) {
  Case c = With(Norm("x", "w", "eps", "y") +
                "z = If(q) <then_branch = t () => (float[2,4,1] t1) { t1 = Neg(y_r) }, else_branch "
                "= e () => (float[2,4,1] e1) { e1 = Abs(y_r) }>\n");
  c.constants = "bool q = {1}";
  c.outputs += ", float[2,4,1] z";
  Expect(c, {}, "captured by a body");
}

TEST(NormAdversarial, InnerValueCapturedByNestedIf) {
  Case c = With(
      Norm("x", "w", "eps", "y") +
      "z = If(q) <then_branch = t () => (float[2,4,1] t1) { t1 = If(q) <then_branch = tt () => "
      "(float[2,4,1] tt1) { tt1 = Neg(y_r) }, else_branch = te () => (float[2,4,1] te1) { te1 = "
      "Abs(y_r) }> }, else_branch = e () => (float[2,4,1] e1) { e1 = Identity(half3) }>\n");
  c.constants = "bool q = {1}, float[2,4,1] half3 = {1,2,3,4,5,6,7,8}";
  c.outputs += ", float[2,4,1] z";
  Expect(c, {}, "captured by a body");
}

TEST(NormAdversarial, ShadowedNameInABodyIsNoUse) {
  Case c = With(Norm("x", "w", "eps", "y") +
                "z = If(q) <then_branch = t () => (float[2,4,1] t1) { y_r2 = Identity(half3) t1 = "
                "Neg(y_r2) }, else_branch = e () => (float[2,4,1] e1) { e1 = Identity(half3) }>\n");
  c.constants = "bool q = {1}, float[2,4,1] half3 = {1,2,3,4,5,6,7,8}";
  c.outputs += ", float[2,4,1] z";
  Expect(c, {kNorm});
}

TEST(NormAdversarial, InBothBranchesOfAnIf) {
  Case c =
      With("y = If(q) <then_branch = t () => (float[2,4,8] t1) {" + Norm("x", "w", "eps", "t1") +
           "}, else_branch = e () => (float[2,4,8] e1) {" + Norm("x", "w2", "eps", "e1") + "}>\n");
  c.inputs += ", bool q";
  for (double q : {0.0, 1.0}) {
    c.feeds["q"] = Tensor::FromDoubles(DType::kBool, {}, {q});
    Expect(c, {kNorm, kNorm});
  }
}

TEST(NormAdversarial, InALoopBody) {
  Case c = With(
      "n3, y = Loop(trip, cond, x) <body = b (int64 i, bool c0, float[2,4,8] s) => (bool c1, "
      "float[2,4,8] o) { c1 = Identity(c0) " +
      Norm("s", "w", "eps", "o") + " }>\n");
  c.body =
      "y = Loop(trip, cond, x) <body = b1 (int64 i, bool c0, float[2,4,8] s) => (bool c1, "
      "float[2,4,8] o) { c1 = Identity(c0) \n" +
      Norm("s", "w", "eps", "o") + " }>\n";
  c.constants = "int64 trip = {3}, bool cond = {1}";
  Expect(c, {kNorm});
}

TEST(NormAdversarial, StatisticsCapturedFromOutside) {
  Case c = With(Statistics("x", "eps", "y") +
                "y = If(q) <then_branch = t () => (float[2,4,8] t1) { n = Div(x, y_r) t1 = Mul(n, "
                "w) }, else_branch = e () => (float[2,4,8] e1) { e1 = Mul(x, y_r) }>\n");
  c.constants = "bool q = {1}";
  Expect(c, {});
}

TEST(NormAdversarial, TwoScalesOnOneStatistics) {
  Case c = With(Norm("x", "w", "eps", "y") + "z = Mul(y_n, w2)\n");
  c.outputs += ", float[2,4,8] z";
  Expect(c, {kNorm, kNorm});
}

TEST(NormAdversarial, TwoScalesOfWhichOneIsNoRow) {
  Case c = With(Norm("x", "w", "eps", "y") + "z = Mul(y_n, s)\n");
  c.inputs += ", float[4,8] s";
  c.outputs += ", float[2,4,8] z";
  const auto patched = PatchBytes(Parse(c).SerializeAsString());
  ASSERT_TRUE(static_cast<bool>(patched));
  Expect(c, FusedOps(patched->report));
}

TEST(NormAdversarial, ScaleSharedByTwoNorms) {
  Case c = With(Norm("x", "w", "eps", "y") + Norm("x2", "w", "eps", "z"));
  c.inputs += ", float[2,4,8] x2";
  c.outputs += ", float[2,4,8] z";
  Expect(c, {kNorm, kNorm});
}

TEST(NormAdversarial, ScaleIsTheInputItself) {
  Case c = With(Norm("x", "x", "eps", "y"));
  c.inputs = "float[8] x";
  c.outputs = "float[8] y";
  Expect(c, {kNorm});
}

TEST(NormAdversarial, ScaleComputedFromTheStatistics) {
  Case c = With(Statistics("x", "eps", "y") +
                "y_n = Div(x, y_r) s0 = Reshape(y_r, m1) s = Concat<axis=0>(s0, s0, s0, s0, s0, "
                "s0, s0, s0) y = Mul(y_n, s)\n");
  c.inputs = "float[1,8] x";
  c.outputs = "float[1,8] y";
  const auto patched = PatchBytes(Parse(c).SerializeAsString());
  ASSERT_TRUE(static_cast<bool>(patched));
  Expect(c, FusedOps(patched->report));
}

TEST(NormAdversarial, UnitOffset) {
  Case c = With("wo = Add(one, w)\n" + Norm("x", "wo", "eps", "y"));
  Expect(c, {kNorm});
  c.constants = "float[1,1,1] o = {1}";
  c.body = "wo = Add(o, w)\n" + Norm("x", "wo", "eps", "y");
  const auto patched = PatchBytes(Parse(c).SerializeAsString());
  ASSERT_TRUE(static_cast<bool>(patched));
  Expect(c, FusedOps(patched->report));
}

TEST(NormAdversarial, OffsetFromOneMinusScale) {
  Expect(With("wo = Sub(one, w)\n" + Norm("x", "wo", "eps", "y")), {kNorm});
  Expect(With("wo = Sub(w, one)\n" + Norm("x", "wo", "eps", "y")), {kNorm});
}

TEST(NormAdversarial, LayerNormIsNoRmsNorm) {
  Case c = With("mu = ReduceMean(x, m1) d = Sub(x, mu)\n" + Norm("d", "w", "eps", "y"));
  const auto patched = PatchBytes(Parse(c).SerializeAsString());
  ASSERT_TRUE(static_cast<bool>(patched));
  Expect(c, FusedOps(patched->report));
}

// The normalised value comes back through two nodes that undo one another: the norm without a scale
// inside the norm fits too, and is no longer needed.
TEST(NormAdversarial, DetourInsideTheNorm) {
  Case c = With(Statistics("x", "eps", "y") +
                "n = Div(x, y_r) u = Unsqueeze(n, zero) q = Squeeze(u, zero) y = Mul(q, w)\n");
  Expect(c, {kNorm});
  c.body = "xx = Cast<to = 1>(x)\n" + Statistics("xx", "eps", "y") +
           "n = Div(xx, y_r) u = Unsqueeze(n, zero) q = Squeeze(u, zero) h = Cast<to = 10>(q) "
           "w16 = Cast<to = 10>(w) y = Mul(h, w16)\n";
  c.inputs = "float16[2,4,8] x";
  c.outputs = "float16[2,4,8] y";
  c.limit = 4e-3;
  Expect(c, {kNorm});
}

// --- add + norm

Case AddCase(const std::string& more = "") {
  Case c = With("s = Add(x, r)\n" + Norm("s", "w", "eps", "y") + more);
  c.inputs += ", float[2,4,8] r";
  return c;
}

TEST(AddNormAdversarial, Plain) {
  Expect(AddCase(), {kAdd});
  Case c = AddCase("z = Neg(s)\n");
  c.outputs += ", float[2,4,8] z";
  Expect(c, {kAdd});
}

TEST(AddNormAdversarial, SumIsAGraphOutput) {
  Case c = AddCase();
  c.outputs += ", float[2,4,8] s";
  Expect(c, {kAdd});
}

TEST(AddNormAdversarial, SumTwiceAsOutputThroughIdentity) {
  Case c = AddCase("s2 = Identity(s) s3 = Cast<to = 1>(s)\n");
  c.outputs += ", float[2,4,8] s, float[2,4,8] s2, float[2,4,8] s3";
  Expect(c, {kAdd});
}

TEST(AddNormAdversarial, SumComputedTwice) {
  Case c = With("s = Add(x, r) t = Add(r, x)\n" + Norm("s", "w", "eps", "y") + "z = Neg(t)\n");
  c.inputs += ", float[2,4,8] r";
  c.outputs += ", float[2,4,8] z";
  Expect(c, {kAdd});
}

TEST(AddNormAdversarial, StatisticsOfOneSumScaleOfItsTwin) {
  Case c = With(
      "s = Add(x, r) t = Add(r, x) sq = Mul(s, t) m = ReduceMean(sq, m1) v = Add(m, eps) q = "
      "Sqrt(v) n = Div(t, q) y = Mul(n, w) z = Neg(t)\n");
  c.inputs += ", float[2,4,8] r";
  c.outputs += ", float[2,4,8] z, float[2,4,8] s";
  Expect(c, {kAdd});
}

TEST(AddNormAdversarial, TwoNormsOnOneSum) {
  Case c = AddCase(Norm("s", "w2", "eps", "z"));
  c.outputs += ", float[2,4,8] z, float[2,4,8] s";
  Expect(c, {kAdd, kNorm});
}

TEST(AddNormAdversarial, SumOfAValueAndItself) {
  Case c = With("s = Add(x, x)\n" + Norm("s", "w", "eps", "y"));
  c.outputs += ", float[2,4,8] s";
  Expect(c, {kAdd});
}

TEST(AddNormAdversarial, BroadcastingSum) {
  for (const char* r :
       {"float[1,4,8] r", "float[8] r", "float[4,8] r", "float r", "float[2,4,1] r"}) {
    Case c = AddCase();
    c.inputs = std::string("float[2,4,8] x, ") + r;
    c.outputs += ", float[2,4,8] s";
    SCOPED_TRACE(r);
    Expect(c, {kNorm});
  }
}

TEST(AddNormAdversarial, SymbolsThatMayDiffer) {
  Case c = AddCase();
  c.inputs = "float[B,4,8] x, float[C,4,8] r";
  c.outputs = "float[D,4,8] y";
  c.dims = {{"B", 1}, {"C", 3}};
  const auto patched = PatchBytes(Parse(c).SerializeAsString());
  ASSERT_TRUE(static_cast<bool>(patched));
  Expect(c, FusedOps(patched->report));
}

TEST(AddNormAdversarial, ScaleComputedFromTheSum) {
  Case c =
      With("s = Add(x, r) f = ReduceMax<keepdims = 0>(s, first)\n" + Norm("s", "f", "eps", "y") +
           Norm("y", "w", "eps", "z") + Norm("z", "w2", "eps", "u"));
  c.inputs += ", float[2,4,8] r";
  c.constants = "int64[2] first = {0, 1}";
  c.outputs += ", float[2,4,8] u";
  Expect(c, {kNorm, kNorm, kNorm});
}

TEST(AddNormAdversarial, UserOfTheSumStandsBeforeTheNorm) {
  Case c = With("s = Add(x, r) z = Neg(s) k = Exp(z)\n" + Norm("s", "w", "eps", "y") +
                "u = Add(k, y)\n");
  c.inputs += ", float[2,4,8] r";
  c.outputs += ", float[2,4,8] u";
  Expect(c, {kAdd});
}

TEST(AddNormAdversarial, ScaleFromAnotherUserOfTheSum) {
  Case c = With("s = Add(x, r) z = Neg(s) f = ReduceMax<keepdims = 0>(z, first)\n" +
                Norm("s", "f", "eps", "y"));
  c.inputs += ", float[2,4,8] r";
  c.constants = "int64[2] first = {0, 1}";
  Expect(c, {kNorm});
}

TEST(AddNormAdversarial, SumCapturedByABody) {
  Case c = AddCase(
      "z = If(q) <then_branch = t () => (float[2,4,8] t1) { t1 = Neg(s) }, else_branch = e () => "
      "(float[2,4,8] e1) { e1 = Abs(s) }>\n");
  c.constants = "bool q = {1}";
  c.outputs += ", float[2,4,8] z";
  Expect(c, {kAdd});
}

TEST(AddNormAdversarial, ChainOfSums) {
  Case c = With("s = Add(x, r)\n" + Norm("s", "w", "eps", "y") + "t = Add(s, y)\n" +
                Norm("t", "w2", "eps", "z"));
  c.inputs += ", float[2,4,8] r";
  c.outputs += ", float[2,4,8] z";
  Expect(c, {kAdd, kAdd});
}

// --- half precision, operators

TEST(NormAdversarial, HalfOverflow) {
  Case c = With(
      "w16 = Cast<to = 10>(w) e16 = Cast<to = 10>(eps) sq = Mul(x, x) m = ReduceMean(sq, m1) v = "
      "Add(m, e16) r = Sqrt(v) n = Div(x, r) y = Mul(n, w16)");
  c.inputs = "float16[2,4,8] x";
  c.outputs = "float16[2,4,8] y";
  c.limit = 4e-3;
  Expect(c, {kNorm});
}

TEST(NormAdversarial, CastToHalfBetween) {
  // The graph rounds inside the statistics: no form of the op.
  Case c = With(
      "h = Cast<to = 10>(x) xx = Cast<to = 1>(h) sq = Mul(xx, xx) m = ReduceMean(sq, m1) v = "
      "Add(m, eps) r = Sqrt(v) n = Div(x, r) y = Mul(n, w)");
  Expect(c, {});
}

TEST(NormAdversarial, RootRoundedToHalf) {
  Case c = With(
      "sq = Mul(x, x) m = ReduceMean(sq, m1) v = Add(m, eps) r = Sqrt(v) r16 = Cast<to = 10>(r) "
      "r32 = Cast<to = 1>(r16) n = Div(x, r32) y = Mul(n, w)");
  Expect(c, {});
}

TEST(NormAdversarial, NormalisedRoundedToHalf) {
  Case c = With(
      "sq = Mul(x, x) m = ReduceMean(sq, m1) v = Add(m, eps) r = Sqrt(v) n = Div(x, r) n16 = "
      "Cast<to = 10>(n) n32 = Cast<to = 1>(n16) y = Mul(n32, w)");
  const auto patched = PatchBytes(Parse(c).SerializeAsString());
  ASSERT_TRUE(static_cast<bool>(patched));
  Expect(c, FusedOps(patched->report));
}

TEST(NormAdversarial, SimplifiedLayerNormalization) {
  Case c =
      With("y = SimplifiedLayerNormalization<axis = -1, epsilon = 0.001, stash_type = 1>(x, w)");
  Expect(c, {kNorm});
  c.body = "y = SimplifiedLayerNormalization<axis = 1, epsilon = 0.001>(x, s)";
  c.inputs = "float[2,4,8] x, float[4,8] s";
  Expect(c, {});
  c.inputs = "float[2,4,8] x";
  c.body = "y = SimplifiedLayerNormalization<axis = 2>(x, w)";
  Expect(c, {kNorm});
}

TEST(NormAdversarial, SimplifiedLayerNormalizationWithSecondOutput) {
  Case c = With("y, inv = SimplifiedLayerNormalization<axis = -1, epsilon = 0.001>(x, w)");
  c.outputs += ", float[2,4,1] inv";
  Expect(c, {}, "its node also gives 'inv'");
  c.outputs = "float[2,4,8] y";
  Expect(c, {kNorm});
}

TEST(NormAdversarial, OfANegatedInputIsNamed) {
  Case c = With("h = Neg(x)\n" + Norm("h", "w", "eps", "y"));
  Expect(c, {}, "one of its inputs is negated");
}

TEST(NormAdversarial, RmsNormalizationOfOpset23) {
  Case c = With("y = RMSNormalization<axis = -1, epsilon = 0.001>(x, w)");
  c.opset = 23;
  Expect(c, {kNorm});
  c.body = "y = RMSNormalization<axis = -2>(x, s)";
  c.inputs += ", float[4,8] s";
  Expect(c, {});
  c.body = "y = RMSNormalization(x, s)";
  Expect(c, {}, "scale is not one row");
  c.body = "y = RMSNormalization(x, one1)";
  c.constants = "float[1] one1 = {3}";
  const auto patched = PatchBytes(Parse(c).SerializeAsString());
  ASSERT_TRUE(static_cast<bool>(patched));
  Expect(c, FusedOps(patched->report));
}

TEST(NormAdversarial, SkipForm) {
  Case c = With("s = Add(x, r) y = SimplifiedLayerNormalization(s, w)");
  c.inputs += ", float[2,4,8] r";
  c.outputs += ", float[2,4,8] s";
  Expect(c, {kAdd});
}

TEST(NormAdversarial, EveryOpset) {
  for (int opset : {13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23}) {
    Case c = NormCase();
    c.opset = opset;
    if (opset < 18) {
      c.body =
          "sq = Pow(x, two) m = ReduceMean<axes = [2]>(sq) v = Add(m, eps) r = Sqrt(v) n = "
          "Div(one, r) k = Mul(x, n) y = Mul(w, k)";
    }
    SCOPED_TRACE(opset);
    Expect(c, {kNorm});
  }
}

}  // namespace
}  // namespace liger::test
