// Rotary embedding: tables, halves, layouts and operand orders that only look right.
#include "model_case.h"

namespace liger::test {
namespace {

const char kRope[] = "LigerRope";

// q and k of two heads of 8 over 3 positions, tables made from angles f [1,1,3,4].
Case RopeCase(const std::string& body = Tables("f") + Rope("x", "cos", "sin", "y")) {
  Case c;
  c.inputs = "float[2,2,3,8] x, float[1,1,3,4] f";
  c.outputs = "float[2,2,3,8] y";
  c.body = body;
  return c;
}

Case WithTables(const std::string& x, const std::string& f) {
  Case c = RopeCase();
  c.inputs = "float[" + x + "] x, float[" + f + "] f";
  c.outputs = "float[" + x + "] y";
  return c;
}

TEST(RopeAdversarial, Plain) { Expect(RopeCase(), {kRope}); }

TEST(RopeAdversarial, TablesThatBroadcast) {
  for (const char* f :
       {"3,4", "1,3,4", "1,1,3,4", "2,1,3,4", "1,1,1,4", "1,4", "1,1,4", "2,1,1,4"}) {
    SCOPED_TRACE(f);
    Expect(WithTables("2,2,3,8", f), {kRope});
  }
}

TEST(RopeAdversarial, TablesThatVaryPerHead) {
  for (const char* f : {"1,2,3,4", "2,2,3,4", "2,3,4"}) {
    SCOPED_TRACE(f);
    Expect(WithTables("2,2,3,8", f), {}, "do not broadcast over the heads");
  }
}

TEST(RopeAdversarial, HeadsBehindPositions) {
  for (const char* f : {"1,3,1,4", "2,3,1,4", "3,1,4"}) {
    SCOPED_TRACE(f);
    Expect(WithTables("2,3,2,8", f), {kRope});
  }
  for (const char* x : {"2,3,3,8", "3,3,3,8"}) {
    SCOPED_TRACE(x);
    Expect(WithTables(x, "1,3,1,4"), {kRope});
    Expect(WithTables(x, "1,1,3,4"), {kRope});
  }
}

TEST(RopeAdversarial, ThreeAxes) {
  for (const char* f : {"3,1,4", "1,4", "1,1,4"}) {
    SCOPED_TRACE(f);
    Expect(WithTables("3,2,8", f), {kRope});
  }
  Expect(WithTables("2,3,8", "3,4"), {});
  Expect(WithTables("2,3,8", "1,3,4"), {});
}

TEST(RopeAdversarial, SmallSizes) {
  for (const char* x : {"1,1,1,8", "1,2,1,8", "2,1,3,8", "1,7,3,8", "3,5,3,8"}) {
    SCOPED_TRACE(x);
    Expect(WithTables(x, x[4] == '1' ? "1,1,1,4" : "1,1,3,4"), {kRope});
  }
}

// Where a length of x is known to be 1 a table of unknown length may enlarge the result.
TEST(RopeAdversarial, TablesThatMayEnlargeTheResult) {
  Case c = WithTables("1,2,3,8", "B,1,3,4");
  c.outputs = "float[C,2,3,8] y";
  c.dims = {{"B", 3}};
  Expect(c, {}, "do not broadcast over the heads");
  c = WithTables("2,2,1,8", "1,1,S,4");
  c.outputs = "float[2,2,C,8] y";
  c.dims = {{"S", 3}};
  Expect(c, {}, "do not broadcast over the heads");
}

TEST(RopeAdversarial, TablesOfUnknownLength) {
  Case c = WithTables("A,2,S,8", "B,1,T,4");
  c.outputs = "float[C,2,D,8] y";
  c.dims = {{"A", 2}, {"S", 3}, {"B", 1}, {"T", 3}};
  Expect(c, {kRope});
  c.dims = {{"A", 2}, {"S", 3}, {"B", 2}, {"T", 1}};
  Expect(c, {kRope});
  c = WithTables("A,2,S,8", "A,1,S,4");
  c.dims = {{"A", 2}, {"S", 3}};
  Expect(c, {kRope});
}

TEST(RopeAdversarial, CosAndSinSwappedIsAnotherRotationOfTheSameForm) {
  Expect(RopeCase(Tables("f") + Rope("x", "sin", "cos", "y")), {kRope});
  Expect(RopeCase(Tables("f") + Rope("x", "cos", "cos", "y")), {kRope});
}

TEST(RopeAdversarial, SinNegated) {
  const auto c = RopeCase(Tables("f") + "minus = Neg(sin)\n" + Rope("x", "cos", "minus", "y"));
  const auto patched = PatchBytes(Parse(c).SerializeAsString());
  ASSERT_TRUE(static_cast<bool>(patched));
  Expect(c, FusedOps(patched->report));
}

std::string Turned(const std::string& concat,
                   const std::string& rest = "a = Mul(x, cos) b = Mul(rot, sin) y = Add(a, b)\n") {
  return Tables("f") +
         "lo = Slice(x, zero, i4, m1) hi = Slice(x, i4, big, m1) nlo = Neg(lo) nhi = Neg(hi) rot "
         "= " +
         concat + "\n" + rest;
}

TEST(RopeAdversarial, WrongTurns) {
  for (const char* concat :
       {"Concat<axis=-1>(lo, nhi)", "Concat<axis=-1>(nlo, hi)", "Concat<axis=-1>(hi, lo)",
        "Concat<axis=-1>(nhi, nlo)", "Concat<axis=-1>(nlo, lo)", "Concat<axis=-1>(nhi, hi)",
        "Concat<axis=-1>(lo, hi)"}) {
    SCOPED_TRACE(concat);
    Expect(RopeCase(Turned(concat)), {});
  }
  // By the opposite angle: the op takes the negative of the sine.
  Expect(RopeCase(Turned("Concat<axis=-1>(hi, nlo)")), {kRope});
  Expect(RopeCase(Turned("Concat<axis=-1>(nhi, lo)",
                         "a = Mul(x, cos) b = Mul(rot, sin) y = Sub(a, b)\n")),
         {kRope});
  Expect(RopeCase(Turned("Concat<axis=-1>(nhi, lo)",
                         "a = Mul(x, cos) b = Mul(rot, sin) y = Sub(b, a)\n")),
         {});
  Expect(RopeCase(Turned("Concat<axis=-1>(nhi, lo)",
                         "a = Mul(rot, cos) b = Mul(x, sin) y = Add(a, b)\n")),
         {kRope});
}

TEST(RopeAdversarial, OtherValueInOneProduct) {
  Case c = RopeCase(
      Turned("Concat<axis=-1>(nhi, lo)", "a = Mul(x2, cos) b = Mul(rot, sin) y = Add(a, b)\n"));
  c.inputs += ", float[2,2,3,8] x2";
  Expect(c, {});
}

TEST(RopeAdversarial, SlicesNotAtTheHalf) {
  Case c = RopeCase(Tables("f") +
                    "lo = Slice(x, zero, i2, m1) hi = Slice(x, i2, big, m1) nhi = Neg(hi) rot = "
                    "Concat<axis=-1>(nhi, lo) a = Mul(x, cos) b = Mul(rot, sin) y = Add(a, b)\n");
  Expect(c, {});
}

TEST(RopeAdversarial, SliceOnAnotherAxis) {
  Case c;
  c.inputs = "float[2,8,8,8] x, float[1,1,8,4] f";
  c.outputs = "float[2,8,8,8] y";
  c.body = Tables("f") +
           "lo = Slice(x, zero, i4, i2) hi = Slice(x, i4, big, i2) nhi = Neg(hi) rot = "
           "Concat<axis=2>(nhi, lo) a = Mul(x, cos) b = Mul(rot, sin) y = Add(a, b)\n";
  Expect(c, {});
  c.body = Tables("f") +
           "lo = Slice(x, zero, i4, i2) hi = Slice(x, i4, big, i2) nhi = Neg(hi) rot0 = "
           "Concat<axis=2>(nhi, lo) rot = Transpose<perm=[0,1,3,2]>(rot0) a = Mul(x, cos) b = "
           "Mul(rot, sin) y = Add(a, b)\n";
  Expect(c, {});
}

TEST(RopeAdversarial, StepsInTheSlices) {
  Case c =
      RopeCase(Tables("f") +
               "lo = Slice(x, zero, big, m1, i2) hi = Slice(x, i1, big, m1, i2) nhi = Neg(hi) rot "
               "= Concat<axis=-1>(nhi, lo) a = Mul(x, cos) b = Mul(rot, sin) y = Add(a, b)\n");
  Expect(c, {});
}

TEST(RopeAdversarial, HalvesOfTheTableDiffer) {
  Case c = RopeCase("emb = Concat<axis = -1>(f, g) cos = Cos(emb) sin = Sin(emb)\n" +
                    Rope("x", "cos", "sin", "y"));
  c.inputs += ", float[1,1,3,4] g";
  Expect(c, {}, "the halves cannot be shown to be equal");
}

TEST(RopeAdversarial, OneTableOfUnknownOrigin) {
  Case c = RopeCase("emb = Concat<axis = -1>(f, f) cos = Cos(emb)\n" + Rope("x", "cos", "s", "y"));
  c.inputs += ", float[1,1,3,8] s";
  Expect(c, {}, "the table sin");
}

TEST(RopeAdversarial, TableInterleaved) {
  Case c = RopeCase(
      "u = Unsqueeze(f, m1) uu = Concat<axis = -1>(u, u) emb = Reshape(uu, sh) cos = Cos(emb) sin "
      "= Sin(emb)\n" +
      Rope("x", "cos", "sin", "y"));
  c.constants = "int64[4] sh = {1,1,3,8}";
  Expect(c, {});
}

TEST(RopeAdversarial, TablePaddedMaskedOrScaledPerElement) {
  Case c =
      RopeCase(Tables("f") + "c2 = Mul(cos, w) s2 = Mul(sin, w)\n" + Rope("x", "c2", "s2", "y"));
  Expect(c, {}, "halves");
  c = RopeCase(Tables("f") + "c2 = Mul(cos, half) s2 = Mul(sin, half)\n" +
               Rope("x", "c2", "s2", "y"));
  Expect(c, {kRope});
}

TEST(RopeAdversarial, TableReshapedAcrossRows) {
  // Rows of 16 with equal halves become rows of 8 whose halves differ.
  Case c = RopeCase(
      "emb0 = Concat<axis = -1>(f, f) emb = Reshape(emb0, sh) cos = Cos(emb) sin = Sin(emb)\n" +
      Rope("x", "cos", "sin", "y"));
  c.inputs = "float[2,2,4,8] x, float[1,1,2,8] f";
  c.outputs = "float[2,2,4,8] y";
  c.constants = "int64[4] sh = {1,1,4,8}";
  Expect(c, {});
}

TEST(RopeAdversarial, TableTransposed) {
  Case c = RopeCase(
      "emb0 = Concat<axis = -1>(f, f) emb = Transpose<perm = [0,1,3,2]>(emb0) cos = Cos(emb) sin = "
      "Sin(emb)\n" +
      Rope("x", "cos", "sin", "y"));
  c.inputs = "float[2,2,8,8] x, float[1,1,8,4] f";
  c.outputs = "float[2,2,8,8] y";
  Expect(c, {});
}

TEST(RopeAdversarial, TableGathered) {
  Case c = RopeCase("cos = Gather(tc, ids) sin = Gather(ts, ids)\n" + Rope("x", "cos", "sin", "y"));
  c.inputs = "float[1,2,3,8] x";
  c.outputs = "float[1,2,3,8] y";
  c.constants =
      "int64[1,1,3] ids = {1,0,1}, float[2,8] tc = "
      "{1,0.9,0.8,0.7,1,0.9,0.8,0.7,0.5,0.4,0.3,0.2,0.5,0.4,0.3,0.2}, float[2,8] ts = "
      "{0.1,0.2,0.3,0.4,0.1,0.2,0.3,0.4,0.5,0.6,0.7,0.8,0.5,0.6,0.7,0.8}";
  Expect(c, {kRope});
  c.constants =
      "int64[1,1,3] ids = {1,0,1}, float[2,8] tc = "
      "{1,0.9,0.8,0.7,1,0.9,0.8,0.7,0.5,0.4,0.3,0.2,0.5,0.4,0.3,0.1}, float[2,8] ts = "
      "{0.1,0.2,0.3,0.4,0.1,0.2,0.3,0.4,0.5,0.6,0.7,0.8,0.5,0.6,0.7,0.8}";
  Expect(c, {}, "the halves differ");
  // Columns instead of rows.
  c.body = "cos = Gather<axis = 1>(tc, cols) sin = Gather<axis = 1>(ts, cols)\n" +
           Rope("x", "cos", "sin", "y");
  c.inputs = "float[1,2,2,8] x";
  c.outputs = "float[1,2,2,8] y";
  c.constants =
      "int64[8] cols = {7,6,5,4,3,2,1,1}, float[2,8] tc = "
      "{1,0.9,0.8,0.7,1,0.9,0.8,0.7,0.5,0.4,0.3,0.2,0.5,0.4,0.3,0.2}, float[2,8] ts = "
      "{0.1,0.2,0.3,0.4,0.1,0.2,0.3,0.4,0.5,0.6,0.7,0.8,0.5,0.6,0.7,0.8}";
  Expect(c, {});
}

TEST(RopeAdversarial, StoredTableThatCanBeOverridden) {
  Case c = RopeCase(Rope("x", "cos", "sin", "y"));
  c.inputs = "float[1,2,2,8] x, float[2,8] cos";
  c.outputs = "float[1,2,2,8] y";
  c.constants =
      "float[2,8] cos = {1,0.9,0.8,0.7,1,0.9,0.8,0.7,0.5,0.4,0.3,0.2,0.5,0.4,0.3,0.2}, float[2,8] "
      "sin = "
      "{0.1,0.2,0.3,0.4,0.1,0.2,0.3,0.4,0.5,0.6,0.7,0.8,0.5,0.6,0.7,0.8}";
  c.feeds["cos"] =
      Tensor::FromDoubles(DType::kF32, {2, 8}, {1, 2, 3, 4, 5, 6, 7, 8, 8, 7, 6, 5, 4, 3, 2, 1});
  Expect(c, {}, "cos");
  c.inputs = "float[1,2,2,8] x";
  c.feeds.clear();
  Expect(c, {kRope});
  c.body =
      "cosc = Constant<value = float[2,8] "
      "{1,0.9,0.8,0.7,1,0.9,0.8,0.7,0.5,0.4,0.3,0.2,0.5,0.4,0.3,0.2}>()\n" +
      Rope("x", "cosc", "sin", "y");
  Expect(c, {kRope});
}

TEST(RopeAdversarial, TwoTerm) {
  const std::string body =
      "cos = Cos(f) sin = Sin(f) lo, hi = Split<axis = -1, num_outputs = 2>(x) a = Mul(lo, cos) b "
      "= Mul(hi, sin) c = Sub(a, b) d = Mul(hi, cos) e = Mul(lo, sin) g = Add(d, e) y = "
      "Concat<axis = -1>(c, g)\n";
  Expect(RopeCase(body), {kRope});
  for (const auto& [from, to] :
       std::map<std::string, std::string>{{"c = Sub(a, b)", "c = Sub(b, a)"},
                                          {"c = Sub(a, b)", "c = Add(a, b)"},
                                          {"g = Add(d, e)", "g = Sub(d, e)"},
                                          {"d = Mul(hi, cos)", "d = Mul(hi, sin)"},
                                          {"e = Mul(lo, sin)", "e = Mul(hi, sin)"},
                                          {"Concat<axis = -1>(c, g)", "Concat<axis = -1>(g, c)"}}) {
    std::string wrong = body;
    wrong.replace(wrong.find(from), from.size(), to);
    SCOPED_TRACE(to);
    Expect(RopeCase(wrong), {});
  }
}

TEST(RopeAdversarial, TwoTermOnFullTablesOfEqualHalves) {
  // Table as wide as x in a two-term form: shapes do not fit, so nothing matches.
  Case c = RopeCase(
      "cos = Cos(f) sin = Sin(f) lo, hi = Split<axis = -1, num_outputs = 2>(x) a = Mul(lo, cos) b "
      "= Mul(hi, sin) c = Sub(a, b) d = Mul(hi, cos) e = Mul(lo, sin) g = Add(d, e) y = "
      "Concat<axis = -1>(c, g)\n");
  c.inputs = "float[2,2,3,2] x, float[1,1,3,4] f";
  c.outputs = "float[2,2,3,8] y";
  Expect(c, {});
}

TEST(RopeAdversarial, OddHead) {
  Case c = RopeCase(Tables("f") +
                    "lo = Slice(x, zero, i4, m1) hi = Slice(x, i4, big, m1) nhi = Neg(hi) rot = "
                    "Concat<axis=-1>(nhi, lo) a = Mul(x, cos) b = Mul(rot, sin) y = Add(a, b)\n");
  c.inputs = "float[2,2,3,7] x, float[1,1,3,7] f2, float[1,1,3,4] f";
  c.body =
      "cos = Cos(f2) sin = Sin(f2) lo = Slice(x, zero, i4, m1) hi = Slice(x, i4, big, m1) nhi = "
      "Neg(hi) rot = Concat<axis=-1>(nhi, lo) a = Mul(x, cos) b = Mul(rot, sin) y = Add(a, b) "
      "unused = Neg(f)\n";
  c.outputs = "float[2,2,3,7] y";
  Expect(c, {});
}

TEST(RopeAdversarial, Partial) {
  Case c = RopeCase(Tables("f") + "x8 = Slice(xx, zero, i8, m1) rest = Slice(xx, i8, big, m1)\n" +
                    Rope("x8", "cos", "sin", "t") + "y = Concat<axis = -1>(t, rest)\n");
  c.inputs = "float[2,2,3,12] xx, float[1,1,3,4] f";
  c.outputs = "float[2,2,3,12] y";
  Expect(c, {kRope});
}

TEST(RopeAdversarial, PairOfQueryAndKey) {
  Case c = RopeCase(Tables("f") + Rope("x", "cos", "sin", "y") + Rope("k", "cos", "sin", "z"));
  c.inputs += ", float[2,1,3,8] k";
  c.outputs += ", float[2,1,3,8] z";
  Expect(c, {kRope});
  c.inputs = "float[2,2,3,8] x, float[1,1,3,4] f, float[1,1,3,8] k";  // another batch
  c.outputs = "float[2,2,3,8] y, float[1,1,3,8] z";
  Expect(c, {kRope, kRope});
}

TEST(RopeAdversarial, SecondDependsOnTheFirst) {
  Case c = RopeCase(Tables("f") + Rope("x", "cos", "sin", "y") + "k = Tanh(y)\n" +
                    Rope("k", "cos", "sin", "z"));
  c.outputs += ", float[2,2,3,8] z";
  Expect(c, {kRope, kRope});
}

TEST(RopeAdversarial, SecondRotatesTheFirst) {
  Case c = RopeCase(Tables("f") + Rope("x", "cos", "sin", "y") + Rope("y", "cos", "sin", "z"));
  c.outputs += ", float[2,2,3,8] z";
  Expect(c, {kRope, kRope});
}

TEST(RopeAdversarial, TablesOfTheSecondDependOnTheFirst) {
  Case c = RopeCase(Tables("f") + Rope("x", "cos", "sin", "y") +
                    "p = Slice(y, zero, i1, zero) q = Slice(p, zero, i1, i1) r = Slice(q, zero, "
                    "i4, m1) emb2 = Concat<axis=-1>(r, r) cos2 = Cos(emb2) sin2 = Sin(emb2)\n" +
                    Rope("x", "cos2", "sin2", "z"));
  c.outputs += ", float[2,2,3,8] z";
  Expect(c, {kRope, kRope});
}

TEST(RopeAdversarial, SameRotationTwice) {
  Case c = RopeCase(Tables("f") + Rope("x", "cos", "sin", "y") + Rope("x", "cos", "sin", "z"));
  c.outputs += ", float[2,2,3,8] z";
  const auto patched = PatchBytes(Parse(c).SerializeAsString());
  ASSERT_TRUE(static_cast<bool>(patched));
  EXPECT_FALSE(patched->report.patched.empty());
  Expect(c, FusedOps(patched->report));
}

TEST(RopeAdversarial, InnerValuesAsOutputs) {
  for (const char* value : {"y_rot", "y_a", "y_b", "y_neg", "y_lo"}) {
    Case c = RopeCase();
    c.outputs += std::string(", float[2,2,3,") +
                 (value == std::string("y_neg") || value == std::string("y_lo") ? "4" : "8") +
                 "] " + value;
    SCOPED_TRACE(value);
    Expect(c, {}, "graph output");
  }
}

TEST(RopeAdversarial, BoundsFromTheShape) {
  Case c = RopeCase(Tables("f") +
                    "sh = Shape(x) d = Gather(sh, three) h = Div(d, two64) lo = Slice(x, zero, h, "
                    "m1) hi = Slice(x, h, d, m1) nhi = Neg(hi) rot = Concat<axis=-1>(nhi, lo) a = "
                    "Mul(x, cos) b = Mul(rot, sin) y = Add(a, b)\n");
  c.constants = "int64[1] three = {3}, int64[1] two64 = {2}";
  Expect(c, {kRope});
  c.constants = "int64[1] three = {3}, int64[1] two64 = {4}";
  Expect(c, {});
}

TEST(RopeAdversarial, SplitOfEveryKind) {
  const std::string rest =
      " nhi = Neg(hi) rot = Concat<axis=-1>(nhi, lo) a = Mul(x, cos) b = Mul(rot, sin) y = Add(a, "
      "b)\n";
  Expect(RopeCase(Tables("f") + "lo, hi = Split<axis = 3, num_outputs = 2>(x)" + rest), {kRope});
  Case c = RopeCase(Tables("f") + "lo, hi = Split<axis = 3>(x, sizes)" + rest);
  c.constants = "int64[2] sizes = {4, 4}";
  Expect(c, {kRope});
  c.constants = "int64[2] sizes = {2, 6}";
  Expect(c, {});
}

TEST(RopeAdversarial, InAnIfBodyWithOuterTables) {
  Case c =
      RopeCase(Tables("f") + "y = If(q) <then_branch = t () => (float[2,2,3,8] t1) {" +
               Rope("x", "cos", "sin", "t1") + "}, else_branch = e () => (float[2,2,3,8] e1) {" +
               Rope("x", "sin", "cos", "e1") + "}>\n");
  c.inputs += ", bool q";
  for (double q : {0.0, 1.0}) {
    c.feeds["q"] = Tensor::FromDoubles(DType::kBool, {}, {q});
    const auto patched = PatchBytes(Parse(c).SerializeAsString());
    ASSERT_TRUE(static_cast<bool>(patched));
    Expect(c, FusedOps(patched->report));
  }
}

}  // namespace
}  // namespace liger::test
