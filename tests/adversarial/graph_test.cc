// Odd graphs: names, domains, bodies, functions, order, types that nothing knows.
#include "model_case.h"

namespace liger::test {
namespace {

const char kNorm[] = "LigerRMSNorm";
const char kSwiGlu[] = "LigerSwiGLU";

Case NormCase() {
  Case c;
  c.body = Norm("x", "w", "eps", "y");
  return c;
}

void ExpectSame(const Case& c) {
  const auto patched = PatchBytes(Parse(c).SerializeAsString());
  ASSERT_TRUE(static_cast<bool>(patched)) << patched.error().message;
  Expect(c, FusedOps(patched->report));
}

// The tool gives an Error or a model; it neither crashes nor hangs.
void ExpectSurvives(const onnx::ModelProto& model) {
  const auto patched = PatchBytes(model.SerializeAsString());
  EXPECT_TRUE(patched || !patched.error().message.empty());
}

TEST(GraphAdversarial, OpOfAnotherDomain) {
  for (const char* op : {"Sigmoid", "Cast", "Identity"}) {
    Case c;
    c.imports = ", \"my\" : 1";
    c.runs = false;
    c.inputs += ", float[2,4,8] u";
    c.body = op == std::string("Sigmoid")
                 ? "s = my.Sigmoid(x) a = Mul(x, s) y = Mul(a, u)"
                 : std::string("g = my.") + op +
                       "<to = 1>(x) s = Sigmoid(g) a = Mul(x, s) y = Mul(a, u)";
    SCOPED_TRACE(op);
    Expect(c, {});
  }
}

TEST(GraphAdversarial, LocalFunctionNamedLikeAnOp) {
  Case c;
  c.imports = ", \"com.microsoft\" : 1";
  c.inputs += ", float[2,4,8] u";
  c.body = "a = com.microsoft.QuickGelu<alpha = 1.0>(x) y = Mul(a, u)";
  c.functions =
      "<domain: \"com.microsoft\", opset_import: [\"\" : 18]> QuickGelu <alpha> (v) => (r) { r = "
      "Tanh(v) }";
  ExpectSame(c);
}

TEST(GraphAdversarial, LocalFunctionInTheDefaultDomain) {
  Case c;
  c.inputs += ", float[2,4,8] u";
  c.body = SwiGlu("x", "u", "y");
  c.functions = "<domain: \"\", opset_import: [\"\" : 18]> Sigmoid (v) => (r) { r = Tanh(v) }";
  ExpectSame(c);
}

TEST(GraphAdversarial, NormInALocalFunction) {
  Case c;
  c.imports = ", \"my\" : 1";
  c.body = "y = my.Norm(x, w)";
  c.functions =
      "<domain: \"my\", opset_import: [\"\" : 18]> Norm (v, k) => (r) { e = Constant<value = float "
      "{0.00001}>() ax = Constant<value_ints = [-1]>() sq = Mul(v, v) m = ReduceMean(sq, ax) ve = "
      "Add(m, e) q = Sqrt(ve) n = Div(v, q) r = Mul(n, k) }";
  Expect(c, {"LigerRMSNorm"});
}

// Attributes of a function have the call's values, or their defaults, also through another function.
TEST(GraphAdversarial, AttributesOfALocalFunction) {
  for (const char* call : {"my.Outer(x)", "my.Outer<slope = 0.25>(x)", "my.Inner(x)"}) {
    SCOPED_TRACE(call);
    Case c = NormCase();
    c.imports = ", \"my\" : 1";
    c.body = "h = " + std::string(call) + "\n" + Norm("h", "w", "eps", "y");
    c.functions =
        "<domain: \"my\", opset_import: [\"\" : 18]> Inner <alpha: float = 0.5> (v) => (r) { r = "
        "LeakyRelu<alpha: float = @alpha>(v) }\n"
        "<domain: \"my\", opset_import: [\"\" : 18, \"my\" : 1]> Outer <slope: float = 0.75> (v) "
        "=> "
        "(r) { r = my.Inner<alpha: float = @slope>(v) }";
    Expect(c, {kNorm});
  }
}

TEST(GraphAdversarial, FactorThatIsNotFinite) {
  Case c;
  c.inputs += ", float[2,4,8] u";
  c.body = "zero_f = Constant<value = float {0.0}>() inf = Reciprocal(zero_f) g = Mul(x, inf)\n" +
           SwiGlu("g", "u", "y");
  const auto patched = PatchBytes(Parse(c).SerializeAsString());
  ASSERT_TRUE(static_cast<bool>(patched)) << patched.error().message;
  for (const auto& fused : patched->report.patched) {
    EXPECT_EQ(fused.attributes.at("gate_multiplier"), Attribute::Value(1.0F));
  }
}

TEST(GraphAdversarial, FunctionOfOurNameWithAnotherBody) {
  Case c = NormCase();
  c.imports = ", \"liger\" : 1";
  c.body =
      Norm("x", "w", "eps", "y") +
      "z = liger.LigerRMSNorm<epsilon = 0.5, offset = 0.0, stash_type = 1, scale_type = 1>(x, w)\n";
  c.outputs += ", float[2,4,8] z";
  c.functions =
      "<domain: \"liger\", opset_import: [\"\" : 18]> LigerRMSNorm <epsilon, offset, stash_type, "
      "scale_type> (v, k) => (r) { r = Mul(v, k) }";
  const onnx::ModelProto model = Parse(c);
  const auto patched = PatchBytes(model.SerializeAsString());
  ASSERT_TRUE(static_cast<bool>(patched)) << patched.error().message;
  EXPECT_THAT(FusedOps(patched->report), ::testing::ElementsAre(kNorm));
  // Without the library the foreign body counts, before and after.
  const NamedTensors feeds = Feeds(c, model);
  const auto before = RunModel(model.SerializeAsString(), feeds, "");
  const auto after = RunModel(patched->bytes, feeds, "");
  ASSERT_TRUE(static_cast<bool>(before)) << before.error().message;
  ASSERT_TRUE(static_cast<bool>(after)) << after.error().message;
  const Difference difference = Compare(*before, *after);
  EXPECT_EQ(difference.structure, "");
  EXPECT_LE(difference.largest, c.limit);
}

TEST(GraphAdversarial, LigerDomainOfAnotherVersion) {
  Case c = NormCase();
  c.imports = ", \"liger\" : 2";
  Expect(c, {kNorm});
}

TEST(GraphAdversarial, FunctionsOfOtherNamesInOurDomain) {
  Case c = NormCase();
  c.imports = ", \"liger\" : 1";
  c.body = Norm("x", "w", "eps", "t") + "y = liger.Other(t)\n";
  c.functions = "<domain: \"liger\", opset_import: [\"\" : 18]> Other (v) => (r) { r = Tanh(v) }";
  Expect(c, {kNorm});
}

TEST(GraphAdversarial, NamesThatCollide) {
  Case c = NormCase();
  c.body = "LigerRMSNorm = Neg(x) y_LigerRMSNorm = Tanh(LigerRMSNorm)\n" +
           Norm("y_LigerRMSNorm", "w", "eps", "y");
  c.edit = [](onnx::ModelProto& model) {
    model.mutable_graph()->mutable_node(0)->set_name("y_LigerRMSNorm");
  };
  Expect(c, {kNorm});
}

TEST(GraphAdversarial, AllNodesHaveOneName) {
  Case c = NormCase();
  c.runs = false;  // the runtime refuses such names
  c.body = Norm("x", "w", "eps", "t") + Norm("t", "w2", "eps", "y");
  c.edit = [](onnx::ModelProto& model) {
    for (auto& node : *model.mutable_graph()->mutable_node()) node.set_name("n");
  };
  Expect(c, {kNorm, kNorm});
}

TEST(GraphAdversarial, DeadNodesReadInnerValues) {
  Case c = NormCase();
  c.body += "d1 = Neg(y_r) d2 = Exp(d1)\n";
  Expect(c, {kNorm});
  c.body = Norm("x", "w", "eps", "y") + Norm("x", "w2", "eps", "dead");
  Expect(c, {kNorm});
  c.body = "y = Neg(x)\n" + Norm("x", "w2", "eps", "dead");
  Expect(c, {}, "nothing uses the result");
}

TEST(GraphAdversarial, OutputsAreAliases) {
  Case c = NormCase();
  c.body = Norm("x", "w", "eps", "t") +
           "y = Identity(t) y2 = Cast<to = 1>(t) y3 = Identity(y2) y4 = Reshape(t, sh)\n";
  c.constants = "int64[3] sh = {2,4,8}";
  c.outputs += ", float[2,4,8] y2, float[2,4,8] y3, float[2,4,8] t, float[2,4,8] y4";
  Expect(c, {kNorm});
}

TEST(GraphAdversarial, InputIsAnOutputThroughANoOp) {
  Case c;
  c.body = "i = Identity(x)\n" + Norm("i", "w", "eps", "y") + "z = Identity(i)\n";
  c.outputs += ", float[2,4,8] z, float[2,4,8] i";
  Expect(c, {kNorm});
}

TEST(GraphAdversarial, ConstantsInEveryPlace) {
  Case c;
  c.body =
      "e0 = Constant<value_float = 0.00001>() e = Identity(e0) p = Constant<value = int64[1] "
      "{2}>() p0 = Squeeze(p) ax = Constant<value_ints = [-1]>() sq = Pow(x, p0) m = "
      "ReduceMean(sq, ax) v = Add(m, e) r = Sqrt(v) n = Div(x, r) y = Mul(n, w)\n";
  Expect(c, {kNorm});
}

TEST(GraphAdversarial, SparseConstantsAreNotOneValue) {
  Case c;
  c.inputs = "float[8] x";
  c.outputs = "float[8] y";
  c.body = "g = Constant() k = Constant() s = Sigmoid(k) a = Mul(g, s) y = Mul(a, x)\n";
  c.edit = [](onnx::ModelProto& model) {
    for (int n : {0, 1}) {
      auto& attribute = *model.mutable_graph()->mutable_node(n)->add_attribute();
      attribute.set_name("sparse_value");
      attribute.set_type(onnx::AttributeProto::SPARSE_TENSOR);
      auto& sparse = *attribute.mutable_sparse_tensor();
      sparse.add_dims(8);
      sparse.mutable_values()->set_data_type(onnx::TensorProto::FLOAT);
      sparse.mutable_values()->add_dims(1);
      sparse.mutable_values()->add_float_data(static_cast<float>(n + 1));
      sparse.mutable_indices()->set_data_type(onnx::TensorProto::INT64);
      sparse.mutable_indices()->add_dims(1);
      sparse.mutable_indices()->add_int64_data(n + 3);
    }
  };
  Expect(c, {});
}

TEST(GraphAdversarial, RandomValuesAreNotOneValue) {
  Case c;
  c.inputs = "float[8] x";
  c.outputs = "float[8] y";
  c.body =
      "g = RandomNormalLike(x) k = RandomNormalLike(x) s = Sigmoid(k) a = Mul(g, s) y = Mul(a, "
      "x)\n";
  c.runs = false;
  Expect(c, {});
}

TEST(GraphAdversarial, DropoutInTrainingIsNotItsInput) {
  Case c;
  c.body = "g = Dropout(x, half, on) s = Sigmoid(g) a = Mul(x, s) y = Mul(a, w)\n";
  c.constants = "bool on = {1}";
  c.runs = false;
  Expect(c, {});
  c = NormCase();
  c.body = "g = Dropout(x)\n" + Norm("g", "w", "eps", "t") + "y = Dropout(t)\n";
  Expect(c, {kNorm});
}

TEST(GraphAdversarial, ScanBody) {
  Case c;
  c.inputs = "float[3,4,8] x, float[4,8] s0";
  c.outputs = "float[4,8] s1, float[3,4,8] y";
  c.body =
      "s1, y = Scan<num_scan_inputs = 1, body = b (float[4,8] s, float[4,8] e) => (float[4,8] t, "
      "float[4,8] o) { t = Add(s, e)\n" +
      Norm("t", "w", "eps", "o") + "}>(s0, x)\n";
  Expect(c, {"LigerAddRMSNorm"});
}

TEST(GraphAdversarial, BodyWhoseOutputIsAnOuterValue) {
  Case c = NormCase();
  c.body = Norm("x", "w", "eps", "y") +
           "z = If(q) <then_branch = t () => (float[2,4,8] t1) { t1 = Identity(y_n) }, else_branch "
           "= e () => (float[2,4,8] e1) { e1 = Identity(x) }>\n";
  c.constants = "bool q = {1}";
  c.outputs += ", float[2,4,8] z";
  Expect(c, {});
}

TEST(GraphAdversarial, NameOfTheBodyShadowsAConstant) {
  // Inside, eps is a value of the body.
  Case c;
  c.body =
      "y = If(q) <then_branch = t () => (float[2,4,8] t1) { eps2 = ReduceMax<keepdims = 0>(x)\n ep "
      "= Abs(eps2)\n" +
      Norm("x", "w", "ep", "t1") + "}, else_branch = e () => (float[2,4,8] e1) {" +
      Norm("x", "w", "eps", "e1") + "}>\n";
  c.constants = "bool q = {1}";
  Expect(c, {kNorm});
}

TEST(GraphAdversarial, OuterConstantUsedInABody) {
  Case c;
  c.body = "e2 = Mul(eps, two)\ny = If(q) <then_branch = t () => (float[2,4,8] t1) {" +
           Norm("x", "w", "e2", "t1") +
           "}, else_branch = e () => (float[2,4,8] e1) { e1 = Identity(x) }>\n";
  c.constants = "bool q = {1}";
  ExpectSame(c);
}

TEST(GraphAdversarial, LoopVariableAsEpsilon) {
  Case c;
  c.body =
      "y, z = Loop(trip, cond, x, eps) <body = b1 (int64 i, bool c0, float[2,4,8] s, float e) => "
      "(bool c1, float[2,4,8] o, float e2) { c1 = Identity(c0) e2 = Mul(e, two)\n" +
      Norm("s", "w", "e", "o") + " }>\n";
  c.constants = "int64 trip = {3}, bool cond = {1}";
  Expect(c, {});
}

TEST(GraphAdversarial, UnknownRank) {
  Case c;
  c.inputs = "float[64] z, int64[3] shape";
  c.feeds["shape"] = Tensor::FromDoubles(DType::kI64, {3}, {2, 4, 8});
  c.body = "x = Reshape(z, shape)\n" + Norm("x", "w", "eps", "y");
  Expect(c, {});
  c.body =
      "x = Reshape(z, shape) sq = Mul(x, x) m = ReduceMean(sq, i2) v = Add(m, eps) r = Sqrt(v) n = "
      "Div(x, r) y = Mul(n, w)";
  Expect(c, {});
}

TEST(GraphAdversarial, InferenceFails) {
  // A custom op and a contradiction elsewhere in the file.
  Case c = NormCase();
  c.imports = ", \"my\" : 1";
  c.inputs += ", float[3] k3, float[4] k4";
  c.body += "bad = Add(k3, k4) cust = my.Op(k3)\n";
  c.outputs += ", float[3] cust";
  c.runs = false;
  Expect(c, {kNorm});
}

TEST(GraphAdversarial, OtherTypes) {
  for (const char* type : {"double", "float16", "bfloat16"}) {
    Case c;
    c.inputs = std::string(type) + "[2,4,8] x, " + type + "[8] k, " + type + "[2,4,8] u";
    c.outputs = std::string(type) + "[2,4,8] y";
    c.body = SwiGlu("x", "u", "y");
    c.limit = type == std::string("double") ? 1e-13 : 4e-3;
    c.runs = type != std::string("bfloat16");
    SCOPED_TRACE(type);
    Expect(c, {kSwiGlu});
  }
}

TEST(GraphAdversarial, DoubleNormWithFloatEpsilon) {
  Case c;
  c.inputs = "double[2,4,8] x";
  c.outputs = "double[2,4,8] y";
  c.body =
      "wd = Cast<to = 11>(w) ed = Cast<to = 11>(eps) sq = Mul(x, x) m = ReduceMean(sq, m1) v = "
      "Add(m, ed) r = Sqrt(v) n = Div(x, r) y = Mul(n, wd)\n";
  c.limit = 1e-13;
  Expect(c, {kNorm});
  c.body =
      "wd = Cast<to = 11>(w) sq = Mul(x, x) m = ReduceMean(sq, m1) v = Add(m, ed) r = Sqrt(v) n = "
      "Div(x, r) y = Mul(n, wd)\n";
  c.constants = "double ed = {0.00001}";
  Expect(c, {}, "not representable");
}

TEST(GraphAdversarial, ReversedNodes) {
  Case c = NormCase();
  c.edit = [](onnx::ModelProto& model) {
    auto& nodes = *model.mutable_graph()->mutable_node();
    for (int i = 0, j = nodes.size() - 1; i < j; ++i, --j) nodes.SwapElements(i, j);
  };
  Expect(c, {"LigerRMSNorm"});
}

// A value of unknown rank has more axes than a row that it is multiplied by: axis 0 is not its last.
TEST(GraphAdversarial, AxisOfAValueOfUnknownRank) {
  const auto unknown = [](const std::string& body) {
    Case c;
    c.inputs = "float[2,4,8] x";
    c.outputs = "float[2,4,8] y";
    c.body = "a = Mul(x, w)\n" + body;
    c.edit = [](onnx::ModelProto& model) {
      model.mutable_graph()->mutable_input(0)->mutable_type()->mutable_tensor_type()->clear_shape();
      model.mutable_graph()
          ->mutable_output(0)
          ->mutable_type()
          ->mutable_tensor_type()
          ->clear_shape();
    };
    c.runs = false;  // the random input needs the shape
    return c;
  };
  Expect(unknown("s = Mul(a, a) m = ReduceMean(s, zero) v = Add(m, eps) r = Sqrt(v) y = Div(a, r)"),
         {});
  Expect(unknown("g, u = Split<axis = 0, num_outputs = 2>(a) s = Sigmoid(g) t = Mul(g, s) "
                 "y = Mul(t, u)"),
         {});
  Expect(unknown("s = Mul(a, a) m = ReduceMean(s, m1) v = Add(m, eps) r = Sqrt(v) y = Div(a, r)"),
         {kNorm});
}

// Arithmetic of constants follows the dtype's own rules, or is left to the runtime.
TEST(GraphAdversarial, EpsilonOfIntegerArithmetic) {
  for (const char* epsilon :
       {"b = Cast<to = 9>(half) e = Cast<to = 1>(b)",
        "c = Constant<value = float {300.5}>() b = Cast<to = 2>(c) e = Cast<to = 1>(b)",
        "c = Constant<value = float {200.0}>() b = Cast<to = 3>(c) e = Cast<to = 1>(b)",
        "b = Constant<value = int64 {4294967297}>() c = Cast<to = 6>(b) e = Cast<to = 1>(c)",
        "b = Constant<value = int32 {65536}>() d = Mul(b, b) e = Cast<to = 1>(d)",
        "b = Constant<value = int32 {2147483647}>() d = Add(b, b) e = Cast<to = 1>(d)",
        "b = Constant<value = int8 {-128}>() d = Neg(b) e = Cast<to = 1>(d)",
        "b = Constant<value = int64 {9007199254740993}>() c = Constant<value = int64 "
        "{9007199254740992}>() d = Sub(b, c) e = Cast<to = 1>(d)",
        "b = Constant<value = int64 {-7}>() c = Constant<value = int64 {2}>() d = Div(b, c) "
        "f = Cast<to = 1>(d) e = Abs(f)"}) {
    SCOPED_TRACE(epsilon);
    Case c;
    c.body = std::string(epsilon) + "\n" + Norm("x", "w", "e", "y");
    ExpectSame(c);
  }
}

TEST(GraphAdversarial, MalformedNodes) {
  const auto broken = [](const std::function<void(onnx::GraphProto&)>& edit) {
    Case c = NormCase();
    c.body +=
        "d = RMSNormalization(x, w) e = Swish(x) t = Sigmoid(x) a = Mul(x, t) g = Mul(a, d) h = "
        "Cast<to = 1>(y_n) k = Dropout(h) l = Concat<axis = -1>(h, k) o, p = Split<axis = -1>(l)\n";
    c.opset = 24;
    onnx::ModelProto model = Parse(c);
    edit(*model.mutable_graph());
    ExpectSurvives(model);
  };
  const int count = Parse(NormCase()).graph().node_size() + 9;
  for (int n = 0; n < count; ++n) {
    SCOPED_TRACE(n);
    broken([&](onnx::GraphProto& g) {
      if (n < g.node_size()) g.mutable_node(n)->clear_input();
    });
    broken([&](onnx::GraphProto& g) {
      if (n < g.node_size()) g.mutable_node(n)->clear_output();
    });
    broken([&](onnx::GraphProto& g) {
      if (n < g.node_size()) g.mutable_node(n)->clear_attribute();
    });
    broken([&](onnx::GraphProto& g) {
      if (n < g.node_size()) g.mutable_node(n)->set_output(0, "");
    });
    broken([&](onnx::GraphProto& g) {
      if (n < g.node_size()) g.mutable_node(n)->set_input(0, "");
    });
    broken([&](onnx::GraphProto& g) {
      if (n < g.node_size() && g.node(n).input_size() > 1)
        g.mutable_node(n)->mutable_input()->RemoveLast();
    });
    broken([&](onnx::GraphProto& g) {
      if (n < g.node_size()) g.mutable_node(n)->add_input("x");
    });
    broken([&](onnx::GraphProto& g) {
      if (n < g.node_size()) g.mutable_node(n)->add_output("extra");
    });
    for (const char* op :
         {"Cast", "Mul", "Slice", "Split", "Concat", "ReduceMean", "RMSNormalization", "If", "Loop",
          "Constant", "Gather", "Squeeze", "Transpose", "Shape", "CastLike", "Reshape"}) {
      broken([&](onnx::GraphProto& g) {
        if (n < g.node_size()) g.mutable_node(n)->set_op_type(op);
      });
    }
  }
}

TEST(GraphAdversarial, DamagedBytes) {
  Case c;
  c.inputs = "float[2,2,3,8] x, float[1,1,3,4] f, float[2,2,3,8] u";
  c.outputs = "float[2,2,3,8] y";
  c.body = Tables("f") + Rope("x", "cos", "sin", "r") + Norm("r", "w", "eps", "n") +
           SwiGlu("n", "u", "y");
  const std::string bytes = Parse(c).SerializeAsString();
  std::mt19937_64 random(7);
  for (int i = 0; i < 1500; ++i) {
    std::string damaged = bytes;
    const int edits = 1 + static_cast<int>(random() % 3);
    for (int e = 0; e < edits; ++e)
      damaged[random() % damaged.size()] = static_cast<char>(random());
    const auto patched = PatchBytes(damaged);
    EXPECT_TRUE(patched || !patched.error().message.empty());
  }
}

}  // namespace
}  // namespace liger::test
