// Gated activations: plain gates, other activations, broadcasting, packed halves.
#include "model_case.h"

namespace liger::test {
namespace {

const char kSwiGlu[] = "LigerSwiGLU";

Case Gated(const std::string& body = SwiGlu("x", "u", "y")) {
  Case c;
  c.inputs = "float[2,4,8] x, float[2,4,8] u";
  c.body = body;
  return c;
}

// The fused ops that the patcher itself finds, whatever they are, compute the same.
void ExpectSame(const Case& c) {
  const auto patched = PatchBytes(Parse(c).SerializeAsString());
  ASSERT_TRUE(static_cast<bool>(patched)) << patched.error().message;
  Expect(c, FusedOps(patched->report));
}

TEST(SwiGluAdversarial, Plain) { Expect(Gated(), {kSwiGlu}); }

TEST(SwiGluAdversarial, EveryOrderOfTheProduct) {
  for (const char* product :
       {"a = Mul(x, s) y = Mul(a, u)", "a = Mul(s, x) y = Mul(u, a)", "a = Mul(s, u) y = Mul(x, a)",
        "a = Mul(x, u) y = Mul(a, s)", "a = Mul(u, s) y = Mul(a, x)"}) {
    SCOPED_TRACE(product);
    Expect(Gated(std::string("s = Sigmoid(x) ") + product), {kSwiGlu});
  }
}

TEST(SwiGluAdversarial, UpIsTheGate) {
  ExpectSame(Gated("s = Sigmoid(x) a = Mul(x, s) y = Mul(a, x) z = Neg(u)"));
  ExpectSame(Gated("s = Sigmoid(x) a = Mul(x, x) y = Mul(a, s) z = Neg(u)"));
}

TEST(SwiGluAdversarial, UpIsTheSigmoidOrTheActivation) {
  ExpectSame(Gated("s = Sigmoid(x) a = Mul(x, s) y = Mul(a, s) z = Neg(u)"));
  ExpectSame(Gated("s = Sigmoid(x) a = Mul(x, s) y = Mul(a, a) z = Neg(u)"));
}

TEST(SwiGluAdversarial, BothAreActivated) {
  ExpectSame(Gated("s = Sigmoid(x) a = Mul(x, s) t = Sigmoid(u) b = Mul(u, t) y = Mul(a, b)"));
}

TEST(SwiGluAdversarial, GluIsNoSwiGlu) {
  Expect(Gated("s = Sigmoid(x) y = Mul(u, s)"), {});
  Expect(Gated("a = Sigmoid(x) b = Sigmoid(u) c = Mul(a, b) y = Mul(c, x)"), {kSwiGlu});
}

TEST(SwiGluAdversarial, OtherActivations) {
  for (const char* op :
       {"Tanh", "HardSigmoid", "Relu", "Softplus", "Erf", "Softsign", "HardSwish", "Mish"}) {
    SCOPED_TRACE(op);
    Expect(Gated(std::string("s = ") + op + "(x) a = Mul(x, s) y = Mul(a, u)"), {});
  }
}

TEST(SwiGluAdversarial, SlopeOtherThanOne) {
  Case c = Gated("k = Mul(x, slope) s = Sigmoid(k) a = Mul(x, s) y = Mul(a, u)");
  c.constants = "float slope = {1.702}";
  Expect(c, {"LigerGeGLU"});
  c.constants = "float slope = {1.5}";
  Expect(c, {kSwiGlu});
  c.constants = "float slope = {1}";
  Expect(c, {kSwiGlu});
  // The sigmoid of the negative: another function, and no sign that an attribute holds.
  c.constants = "float slope = {-1}";
  Expect(c, {});
}

TEST(SwiGluAdversarial, OpenSigmoid) {
  Expect(
      Gated("m = Neg(x) e = Exp(m) p = Add(one, e) s = Reciprocal(p) a = Mul(x, s) y = Mul(a, u)"),
      {kSwiGlu});
  Expect(Gated("m = Neg(x) e = Exp(m) p = Add(e, one) a = Div(x, p) y = Mul(a, u)"), {kSwiGlu});
  Expect(Gated("e = Exp(x) p = Add(e, one) a = Div(x, p) y = Mul(a, u)"), {});
  Expect(Gated("m = Neg(x) e = Exp(m) p = Add(e, two) a = Div(x, p) y = Mul(a, u)"), {});
  Case c = Gated("m = Neg(x) e = Exp(m) p = Add(e, one) a = Div(x, p) y = Mul(a, u)");
  std::vector<double> large;
  for (int i = 0; i < 64; ++i) large.push_back((i - 32) * 8.0);
  c.feeds["x"] = Tensor::FromDoubles(DType::kF32, {2, 4, 8}, large);
  Expect(c, {kSwiGlu});
}

TEST(SwiGluAdversarial, BroadcastingUp) {
  for (const char* u :
       {"float[8] u", "float[1,4,8] u", "float[2,4,1] u", "float u", "float[1,1,1] u"}) {
    Case c = Gated();
    c.inputs = std::string("float[2,4,8] x, ") + u;
    SCOPED_TRACE(u);
    Expect(c, {}, "cannot be shown to have the same shape");
  }
}

TEST(SwiGluAdversarial, BroadcastingGate) {
  Case c = Gated();
  c.inputs = "float[2,4,1] x, float[2,4,8] u";
  Expect(c, {});
  c.inputs = "float x, float[2,4,8] u";
  Expect(c, {});
}

TEST(SwiGluAdversarial, SymbolsThatMayDiffer) {
  Case c = Gated();
  c.inputs = "float[A,4,8] x, float[B,4,8] u";
  c.outputs = "float[C,4,8] y";
  c.dims = {{"A", 1}, {"B", 3}};
  Expect(c, {});
  c.inputs = "float[A,4,8] x, float[A,4,8] u";
  Expect(c, {kSwiGlu});
}

TEST(SwiGluAdversarial, RanksZeroAndOneAndEmpty) {
  Case c = Gated();
  c.inputs = "float x, float u";
  c.outputs = "float y";
  Expect(c, {}, "unknown shape");  // ONNX Runtime takes any shape for such a declaration
  c.inputs = "float[5] x, float[5] u";
  c.outputs = "float[5] y";
  Expect(c, {kSwiGlu});
  c.inputs = "float[N,5] x, float[N,5] u";
  c.outputs = "float[N,5] y";
  c.dims["N"] = 0;
  Expect(c, {kSwiGlu});
}

Case Packed(const std::string& body) {
  Case c;
  c.inputs = "float[2,4,16] x";
  c.body = body;
  return c;
}

TEST(SwiGluAdversarial, PackedBySplit) {
  Expect(Packed("g, u = Split<axis = -1, num_outputs = 2>(x)\n" + SwiGlu("g", "u", "y")),
         {kSwiGlu});
  Expect(Packed("u, g = Split<axis = 2, num_outputs = 2>(x)\n" + SwiGlu("g", "u", "y")), {kSwiGlu});
  Case c = Packed("g, u = Split<axis = -1>(x, sizes)\n" + SwiGlu("g", "u", "y"));
  c.constants = "int64[2] sizes = {8, 8}";
  Expect(c, {kSwiGlu});
}

TEST(SwiGluAdversarial, PackedUnevenly) {
  Case c = Packed("g, u, rest = Split<axis = -1>(x, sizes)\n" + SwiGlu("g", "u", "y"));
  c.constants = "int64[3] sizes = {6, 6, 4}";
  c.outputs = "float[2,4,6] y";
  Expect(c, {kSwiGlu});
  // The last part of an odd length is shorter, and here broadcasts.
  c = Packed("g, u = Split<axis = -1, num_outputs = 2>(x)\n" + SwiGlu("g", "u", "y"));
  c.inputs = "float[2,4,3] x";
  c.outputs = "float[2,4,2] y";
  Expect(c, {});
}

TEST(SwiGluAdversarial, PackedOnAnotherAxis) {
  Case c = Packed("g, u = Split<axis = 1, num_outputs = 2>(x)\n" + SwiGlu("g", "u", "y"));
  c.outputs = "float[2,2,16] y";
  Expect(c, {kSwiGlu});
}

TEST(SwiGluAdversarial, PackedOfFour) {
  Case c = Packed("g, u, v, t = Split<axis = -1, num_outputs = 4>(x)\n" + SwiGlu("g", "u", "y"));
  c.outputs = "float[2,4,4] y";
  Expect(c, {kSwiGlu});
}

TEST(SwiGluAdversarial, PackedInterleaved) {
  Case c = Packed("g = Slice(x, zero, big, m1, i2) u = Slice(x, i1, big, m1, i2)\n" +
                  SwiGlu("g", "u", "y"));
  Expect(c, {kSwiGlu});
}

TEST(SwiGluAdversarial, PackedSlicesThatOverlap) {
  Case c =
      Packed("g = Slice(x, zero, i8, m1) u = Slice(x, i4, twelve, m1)\n" + SwiGlu("g", "u", "y"));
  c.constants = "int64[1] twelve = {12}";
  Expect(c, {kSwiGlu});
}

TEST(SwiGluAdversarial, HalfOfThePackedIsAlsoRead) {
  Case c = Packed("g, u = Split<axis = -1, num_outputs = 2>(x)\n" + SwiGlu("g", "u", "y") +
                  "z = Neg(g)\n");
  c.outputs += ", float[2,4,8] z";
  ExpectSame(c);
  c.outputs = "float[2,4,8] y, float[2,4,8] g";
  ExpectSame(c);
}

TEST(SwiGluAdversarial, InnerValuesAsOutputsOrRead) {
  for (const char* value : {"y_s", "y_a"}) {
    Case c = Gated();
    c.outputs += std::string(", float[2,4,8] ") + value;
    SCOPED_TRACE(value);
    Expect(c, {}, "graph output");
  }
}

TEST(SwiGluAdversarial, UpIsAlsoReadAsAShape) {
  Case c = Gated(SwiGlu("x", "u", "y") + "sh = Shape(u) z = Reshape(x, sh)\n");
  c.outputs += ", float[2,4,8] z";
  Expect(c, {kSwiGlu});
}

TEST(SwiGluAdversarial, TwoUpsOnOneGate) {
  Case c = Gated(SwiGlu("x", "u", "y") + "z = Mul(y_a, v)\n");
  c.inputs += ", float[2,4,8] v";
  c.outputs += ", float[2,4,8] z";
  Expect(c, {kSwiGlu, kSwiGlu});
}

TEST(SwiGluAdversarial, QuickGeluAndSwish) {
  Case c = Gated("a = com.microsoft.QuickGelu<alpha = 1.0>(x) y = Mul(a, u)");
  c.imports = ", \"com.microsoft\" : 1";
  Expect(c, {kSwiGlu});
  c.body = "a = com.microsoft.QuickGelu(x) y = Mul(a, u)";
  Expect(c, {"LigerGeGLU"});
}

TEST(SwiGluAdversarial, LongProduct) {
  // A product of many factors: any cut may be tried, none may take long.
  std::string body = "s = Sigmoid(x) p0 = Mul(x, s)\n";
  for (int i = 0; i < 60; ++i) {
    body += "p" + std::to_string(i + 1) + " = Mul(p" + std::to_string(i) + ", " +
            (i % 2 == 0 ? "u" : "x") + ")\n";
  }
  ExpectSame(Gated(body + "y = Identity(p60)\n"));
}

TEST(SwiGluAdversarial, BalancedProduct) {
  std::string body = "s = Sigmoid(x)\n";
  for (int i = 0; i < 64; ++i)
    body += "l0_" + std::to_string(i) + " = " +
            (i % 5 == 0   ? "Tanh(u)"
             : i % 3 == 0 ? "Sigmoid(x)"
                          : "Cos(x)") +
            "\n";
  int width = 64;
  for (int level = 0; width > 1; ++level, width /= 2) {
    for (int i = 0; i < width / 2; ++i) {
      const std::string p = "l" + std::to_string(level) + "_";
      body += "l" + std::to_string(level + 1) + "_" + std::to_string(i) + " = Mul(" + p +
              std::to_string(2 * i) + ", " + p + std::to_string(2 * i + 1) + ")\n";
    }
  }
  ExpectSame(Gated(body + "y = Identity(l6_0)\n"));
}

TEST(SwiGluAdversarial, EveryOpset) {
  for (int opset = 13; opset <= 23; ++opset) {
    Case c = Gated();
    c.opset = opset;
    SCOPED_TRACE(opset);
    Expect(c, {kSwiGlu});
  }
}

TEST(SwiGluAdversarial, RepeatedSplitsOfUnknownRank) {
  // Before opset 18 the number of outputs alone says how long the parts of a Split are.
  Case c;
  c.opset = 13;
  c.inputs = "float[12] z, int64[2] shape";
  c.feeds["shape"] = Tensor::FromDoubles(DType::kI64, {2}, {2, 6});
  c.outputs = "float[2,3] y";
  c.body =
      "t = Reshape(z, shape) g, k = Split<axis = 1>(t) a1, a2, a3, a4, a5, a6 = Split<axis = "
      "1>(t)\n"
      "s = Sigmoid(a1) a = Mul(g, s) y = Mul(a, k)\n";
  Expect(c, {});
}

}  // namespace
}  // namespace liger::test
