#include "model/type_inference.h"

#include <onnx/checker.h>

#include <map>

#include "model/onnx_graph.h"
#include "model_testing.h"

namespace liger {
namespace {

// "float16[2, S, 32]" of each value that a node of the main graph computes.
std::map<std::string, std::string> Types(const onnx::ModelProto& model) {
  std::map<std::string, std::string> types;
  const auto graph = BuildGraphModel(model, {});
  if (!graph) ADD_FAILURE() << graph.error().message;
  if (!graph) return types;
  for (const Value& value : graph->main().values) {
    if (value.producer == kNone) continue;
    std::string shape = ToString(value.type.shape);
    for (const Dim& dim : value.type.shape.value_or(Shape())) {
      // Made-up names differ from one version of ONNX to the next.
      if (!dim.symbol.starts_with("unk__")) continue;
      shape.replace(shape.find(dim.symbol), dim.symbol.size(), "?");
    }
    types[value.name] = std::string(DTypeName(value.type.dtype)) + shape;
  }
  return types;
}

std::map<std::string, std::string> Types(const std::string& text) {
  return Types(ModelFromText(text));
}

struct Case {
  std::string inputs, nodes, value, type;
};

void PrintTo(const Case& test, std::ostream* stream) { *stream << test.nodes; }

std::string ModelText(const Case& test, int opset) {
  return "<ir_version: 8, opset_import: [\"\" : " + std::to_string(opset) +
         R"(, "com.microsoft" : 1, "liger" : 1]>
agraph ()" +
         test.inputs + ") => (float[A] zz) {\n" + test.nodes +
         "\n  zz = Constant <value_floats = [1.0]> ()\n}";
}

// --- Operators without an ONNX schema ------------------------------------------------------------

class ContribShapes : public ::testing::TestWithParam<Case> {};

TEST_P(ContribShapes, FollowTheContract) {
  const Case& test = GetParam();
  EXPECT_EQ(Types(ModelText(test, 17))[test.value], test.type);
}

const char kHidden[] = "float16[B, S, 32] x, float16[32] w, float[32] w32, float16[B, S, 32] r";
const char kHeads[] =
    "float16[2, S, 64] q, float16[2, L, 32] k, float16[2, L, 48] v, float16[2, S, 128] packed, "
    "float16[2, S, 4, 3, 16] qkv, float16[2, 4, L, 12] v4";

INSTANTIATE_TEST_SUITE_P(
    Operators, ContribShapes,
    ::testing::Values(
        // In the default domain, though ONNX has no such operator; the result has the scale's dtype.
        Case{kHidden, "y = SimplifiedLayerNormalization <axis = -1> (x, w)", "y", "f16[B, S, 32]"},
        Case{kHidden, "y = SimplifiedLayerNormalization <axis = -1> (x, w32)", "y",
             "f32[B, S, 32]"},
        Case{kHidden, "y, s = SimplifiedLayerNormalization <axis = 1> (x, w)", "s", "f32[B, 1, 1]"},
        Case{kHidden, "y = com.microsoft.SkipSimplifiedLayerNormalization (x, r, w)", "y",
             "f16[B, S, 32]"},
        Case{kHidden, "y, m, i, sum = com.microsoft.SkipSimplifiedLayerNormalization (x, r, w)",
             "sum", "f16[B, S, 32]"},
        Case{kHidden, "y, m, i, sum = com.microsoft.SkipLayerNormalization (x, r, w)", "i",
             "f32[B, S, 1]"},
        Case{kHidden, "y = com.microsoft.QuickGelu <alpha = 1.0> (x)", "y", "f16[B, S, 32]"},
        Case{kHidden, "y = com.microsoft.Gelu (x)", "y", "f16[B, S, 32]"},
        Case{kHidden, "y = com.microsoft.FastGelu (x, w)", "y", "f16[B, S, 32]"},
        Case{kHidden, "y = com.microsoft.BiasGelu (x, w)", "y", "f16[B, S, 32]"},
        Case{kHidden, "y = com.microsoft.BiasSplitGelu (x, w)", "y", "f16[B, S, 16]"},
        Case{"float16[B, 4, S, 8] x, int64[B, S] p, float16[M, 4] c, float16[M, 4] s",
             "y = com.microsoft.RotaryEmbedding (x, p, c, s)", "y", "f16[B, 4, S, 8]"},
        Case{"float16[1, S, 8] e, float16[B, 4, S, 8] q, float16[B, 2, S, 8] k",
             "a, b = com.microsoft.GemmaRotaryEmbedding (e, q, q, k, k)", "b", "f16[B, 2, S, 8]"},
        Case{"float[B, 3, 5] a, float[7, 5] b", "y = com.microsoft.FusedMatMul <transB = 1> (a, b)",
             "y", "f32[B, 3, 7]"},
        Case{"float[3, B, 5] a, float[B, 5, 7] b",
             "y = com.microsoft.FusedMatMul <transBatchA = 1> (a, b)", "y", "f32[B, 3, 7]"},
        Case{kHidden, "y = com.microsoft.MatMulNBits <K = 32, N = 96, bits = 4> (x, w, w)", "y",
             "f16[B, S, 96]"},
        Case{"uint8[1000, 16] d, int64[B, S] i, float16[1000, 1] s",
             "y = com.microsoft.GatherBlockQuantized <bits = 4> (d, i, s)", "y", "f16[B, S, 32]"},
        Case{"uint8[1000, 16] d, int64[B, S] i, float[1000, 1] s",
             "y = com.microsoft.GatherBlockQuantized <bits = 8> (d, i, s)", "y", "f32[B, S, 16]"},
        Case{"int8[4, 8] d, float16 s", "y = com.microsoft.DequantizeLinear (d, s)", "y",
             "f16[4, 8]"},
        Case{"float[4, 8] d, float s, int8 z", "y = com.microsoft.QuantizeLinear (d, s, z)", "y",
             "i8[4, 8]"},
        Case{"float[B, S, 8] x, float[8, 48] w",
             "y = com.microsoft.Attention <num_heads = 2> (x, w)", "y", "f32[B, S, 16]"},
        Case{kHeads, "y = com.microsoft.MultiHeadAttention <num_heads = 4> (q, k, v)", "y",
             "f16[2, S, 48]"},
        Case{kHeads, "y = com.microsoft.MultiHeadAttention <num_heads = 4> (q, k, v4)", "y",
             "f16[2, S, 48]"},
        Case{kHeads, "y = com.microsoft.MultiHeadAttention <num_heads = 4> (qkv)", "y",
             "f16[2, S, 64]"},
        Case{kHeads,
             "y, pk, pv = com.microsoft.GroupQueryAttention <num_heads = 4, kv_num_heads = 2> (q, "
             "k, k)",
             "pk", "f16[2, 2, ?, 16]"},
        Case{kHeads,
             "y = com.microsoft.GroupQueryAttention <num_heads = 4, kv_num_heads = 2> (packed)",
             "y", "f16[2, S, 64]"},
        // Fused ops whose functions were taken out of the file.
        Case{kHidden, "y, sum = liger.LigerAddRMSNorm (x, r, w)", "sum", "f16[B, S, 32]"},
        Case{kHidden, "y = liger.LigerSwiGLU <packed = \"gate_up\"> (x)", "y", "f16[B, S, 16]"},
        Case{"float[B, 4, S, 8] q, float[S, 8] c, float[B, 2, S, 8] k",
             "a, b = liger.LigerRope (q, c, c, k)", "b", "f32[B, 2, S, 8]"},
        // An operator without a rule; what follows it is unknown too.
        Case{kHidden, "y = com.microsoft.Inverse (x)\n  z = Neg (y)", "z",
             "undefinedunknown shape"}));

TEST(ContribShapes, CarryInferenceToTheNodesBehind) {
  auto types = Types(R"(
<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>
agraph (float[B, S, 32] x, float[32] w, float[32, 64] m) => (float[A, C, D] y)
{
  a, mean, inv, sum = com.microsoft.SkipSimplifiedLayerNormalization (x, x, w)
  b = MatMul (a, m)
  c = com.microsoft.QuickGelu <alpha = 1.0> (b)
  y = Mul (b, c)
})");
  EXPECT_EQ(types["b"], "f32[B, S, 64]");
  EXPECT_EQ(types["y"], "f32[B, S, 64]");
}

TEST(ContribShapes, YieldToTheFunctionOfThatName) {
  auto types = Types(R"(
<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>
agraph (float[B, 32] x) => (float[A, C] y)
{
  a = com.microsoft.Gelu (x)
  y = Neg (a)
}
<domain: "com.microsoft", opset_import: ["" : 17]>
Gelu (x) => (y) { y = Transpose <perm = [1, 0]> (x) })");
  EXPECT_EQ(types["a"], "f32[32, B]");
}

TEST(ContribShapes, AreNotForTheChecker) {
  // Two outputs where the contract has one: ONNX does not know the operator, and must not after
  // inference either.
  const onnx::ModelProto model = ModelFromText(R"(
<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>
agraph (float[2, 32] x) => (float[A, C] y) { y, z = com.microsoft.Gelu (x, x, x, x) })");
  Types(model);
  EXPECT_NO_THROW(onnx::checker::check_model(model));
}

// --- Shapes that the graph computes --------------------------------------------------------------

class ComputedShapes : public ::testing::TestWithParam<Case> {};

TEST_P(ComputedShapes, AreKnown) {
  const Case& test = GetParam();
  EXPECT_EQ(Types(ModelText(test, 17))[test.value], test.type);
}

// What TorchScript writes for x.expand(2, 3, -1): -1 leaves an axis as it is.
const char kExpand[] = R"(
  want = Constant <value_ints = [2, 3, -1]> ()
  rank = Constant <value_ints = [3]> ()
  ones = ConstantOfShape <value = int64[1] {1}> (rank)
  minus = Constant <value_int = -1> ()
  negative = Mul (ones, minus)
  is_kept = Equal (want, negative)
  target = Where (is_kept, ones, want)
  y = Expand (x, target))";

// The same with an axis that is known by name only.
const char kExpandSymbol[] = R"(
  shape = Shape (q)
  rank = Constant <value_ints = [3]> ()
  ones = ConstantOfShape <value = int64[1] {1}> (rank)
  minus = Constant <value_int = -1> ()
  negative = Mul (ones, minus)
  is_kept = Equal (shape, negative)
  target = Where (is_kept, ones, shape)
  y = Expand (x, target))";

// x[..., : size // 2]
const char kHalf[] = R"(
  shape = Shape (x)
  last = Constant <value_int = 2> ()
  size = Gather (shape, last)
  two = Constant <value_int = 2> ()
  half = Div (size, two)
  zero = Constant <value_ints = [0]> ()
  end = Unsqueeze (half, zero)
  axis = Constant <value_ints = [-1]> ()
  y = Slice (x, zero, end, axis))";

// x[:, :], and x[:, : x.shape[1]].
const char kWhole[] = R"(
  shape = Shape (x)
  at = Constant <value_ints = [1]> ()
  size = Gather (shape, at)
  zero = Constant <value_ints = [0]> ()
  all = Constant <value_ints = [9223372036854775807]> ()
  a = Slice (x, zero, all, at)
  y = Slice (a, zero, size, at))";

const char kSplitHeads[] = R"(
  shape = Shape (x)
  zero = Constant <value_int = 0> ()
  one = Constant <value_int = 1> ()
  at = Constant <value_ints = [0]> ()
  b = Gather (shape, zero)
  s = Gather (shape, one)
  b1 = Unsqueeze (b, at)
  s1 = Unsqueeze (s, at)
  rest = Constant <value_ints = [-1]> ()
  width = Constant <value_ints = [8]> ()
  target = Concat <axis = 0> (b1, s1, rest, width)
  y = Reshape (x, target))";

const char kPositions[] = R"(
  shape = Shape (x)
  one = Constant <value_int = 1> ()
  zero = Constant <value_int = 0> ()
  length = Gather (shape, one)
  positions = Range (zero, length, one)
  at = Constant <value_ints = [0]> ()
  y = Unsqueeze (positions, at))";

// Pads as TorchScript writes them: from the last axis on, filled up with zeros, turned round.
const char kPad[] = R"(
  last = Constant <value_ints = [0, 3]> ()
  more = Constant <value_ints = [4]> ()
  zeros = ConstantOfShape <value = int64[1] {0}> (more)
  all = Concat <axis = 0> (last, zeros)
  pair = Constant <value_ints = [-1, 2]> ()
  table = Reshape (all, pair)
  from = Constant <value_ints = [-1]> ()
  to = Constant <value_ints = [-9223372036854775807]> ()
  axis = Constant <value_ints = [0]> ()
  turned = Slice (table, from, to, axis, from)
  columns = Transpose <perm = [1, 0]> (turned)
  list = Reshape (columns, from)
  pads = Cast <to = 7> (list)
  y = Pad (x, pads))";

std::string With(const char* op) {
  return std::string(R"(
  a = Constant <value_ints = [7, 6]> ()
  b = Constant <value_ints = [2, 4]> ()
  t = )") +
         op + R"( (a, b)
  y = ConstantOfShape (t))";
}

std::string Truth(const char* op) {
  return std::string(R"(
  a = Constant <value_ints = [7, 6]> ()
  b = Constant <value_ints = [2, 6]> ()
  c = )") +
         op + R"( (a, b)
  t = Cast <to = 7> (c)
  y = ConstantOfShape (t))";
}

INSTANTIATE_TEST_SUITE_P(
    Chains, ComputedShapes,
    ::testing::Values(Case{"float[1, 1, 8] x", kExpand, "y", "f32[2, 3, 8]"},
                      Case{"float[1, 1, 8] x, float[B, S, 8] q", kExpandSymbol, "y",
                           "f32[B, S, 8]"},
                      Case{"float[2, S, 10] x", kHalf, "y", "f32[2, S, 5]"},
                      Case{"float[2, S, N] x", kWhole, "y", "f32[2, S, N]"},
                      Case{"float[B, S, 32] x", kSplitHeads, "y", "f32[B, S, 4, 8]"},
                      Case{"float[B, S, 32] x", kPositions, "y", "i64[1, S]"},
                      Case{"float[2, 5, 32] x", kPositions, "y", "i64[1, 5]"},
                      Case{"float[2, 5, 7] x", kPad, "y", "f32[2, 5, 10]"},
                      Case{"float x", With("Add"), "y", "f32[9, 10]"},
                      Case{"float x", With("Sub"), "y", "f32[5, 2]"},
                      Case{"float x", With("Mul"), "y", "f32[14, 24]"},
                      Case{"float x", With("Div"), "y", "f32[3, 1]"},
                      Case{"float x", With("Mod"), "y", "f32[1, 2]"},
                      Case{"float x", With("Max"), "y", "f32[7, 6]"},
                      Case{"float x", With("Min"), "y", "f32[2, 4]"},
                      Case{"float x", Truth("Equal"), "y", "f32[0, 1]"},
                      Case{"float x", Truth("Less"), "y", "f32[0, 0]"},
                      Case{"float x", Truth("LessOrEqual"), "y", "f32[0, 1]"},
                      Case{"float x", Truth("Greater"), "y", "f32[1, 0]"},
                      Case{"float x", Truth("GreaterOrEqual"), "y", "f32[1, 1]"}));

INSTANTIATE_TEST_SUITE_P(StayUnknown, ComputedShapes,
                         ::testing::Values(
                             // A length that the input decides.
                             Case{"float[1, 1, 8] x, int64[3] shape", R"(
  minus = Constant <value_int = -1> ()
  is_kept = Equal (shape, minus)
  one = Constant <value_int = 1> ()
  target = Where (is_kept, one, shape)
  y = Expand (x, target))",
                                  "y", "f32[?, ?, 8]"},
                             // Half of a length that is known by name only.
                             Case{"float[2, S, N] x", kHalf, "y", "f32[2, S, ?]"},
                             // [B, S, 30] has no -1 with 8 behind it.
                             Case{"float[B, S, 30] x", kSplitHeads, "y", "f32[B, S, ?, 8]"},
                             Case{"float[B, S, N] x", kSplitHeads, "y", "f32[B, S, ?, 8]"},
                             // Division rounds one way or the other.
                             Case{"float x", R"(
  a = Constant <value_ints = [-7]> ()
  b = Constant <value_ints = [2]> ()
  q = Div (a, b)
  t = Neg (q)
  y = ConstantOfShape (t))",
                                  "y", "f32[?]"},
                             // 7 / 2 = 3.5 in floating point.
                             Case{"float x", R"(
  a = Constant <value_ints = [7]> ()
  b = Constant <value_ints = [2]> ()
  fa = Cast <to = 1> (a)
  fb = Cast <to = 1> (b)
  f = Div (fa, fb)
  twice = Add (f, f)
  t = Cast <to = 7> (twice)
  y = ConstantOfShape (t))",
                                  "y", "f32[?]"},
                             // Past the end of 32 bits.
                             Case{"float x", R"(
  a = Constant <value = int32[1] {2147483647}> ()
  b = Add (a, a)
  t = Cast <to = 7> (b)
  y = ConstantOfShape (t))",
                                  "y", "f32[?]"}));

TEST(ComputedShapes, AreTakenByReshapeBeforeOpset14) {
  const Case same{"float[B, S, 2, 4] x, float[B, S, 8] q", R"(
  target = Shape (q)
  y = Reshape (x, target))",
                  "y", ""};
  const Case copied{"float[B, S, 8] x, int64[1] unknown", R"(
  zero = Constant <value_ints = [0, -1, 4]> ()
  target = Concat <axis = 0> (zero, unknown)
  y = Reshape (x, target))",
                    "y", ""};
  const Case split{"float[B, S, 8] x", R"(
  target = Constant <value_ints = [0, 0, -1, 4]> ()
  y = Reshape (x, target))",
                   "y", ""};
  for (const int opset : {13, 14}) {
    EXPECT_EQ(Types(ModelText(same, opset))["y"], "f32[B, S, 8]") << opset;
    EXPECT_EQ(Types(ModelText(split, opset))["y"], "f32[B, S, 2, 4]") << opset;
  }
  EXPECT_EQ(Types(ModelText(copied, 13))["y"], "f32[B, ?, 4, ?]");
}

TEST(ComputedShapes, HaveOtherBoundsInEachBody) {
  auto model = ModelFromText(R"(
<ir_version: 8, opset_import: ["" : 17]>
agraph (float[2, 10] x, bool c) => (float[A, B] y)
{
  y = If (c) <
    then_branch = g1 () => (float[D, E] p) {
      shape = Shape (x)
      at = Constant <value_ints = [1]> ()
      two = Constant <value_ints = [2]> ()
      zero = Constant <value_ints = [0]> ()
      size = Gather (shape, at)
      half = Div (size, two)
      p = Slice (x, zero, half, at)
    },
    else_branch = g2 () => (float[F, G] q) { q = Neg (x) }
  >
})");
  const auto graph = BuildGraphModel(model, {});
  ASSERT_OK(graph);
  ASSERT_EQ(graph->graphs.size(), 3U);
  const Graph& body = graph->graphs[1];
  EXPECT_EQ(ToString(body.values[body.by_name.at("p")].type.shape), "[2, 5]");
}

// A decoder merged of two has their shared constants in the graph around its If.
constexpr char kMerged[] = R"(
<ir_version: 8, opset_import: ["" : 18]>
agraph (float[2, 6, 32] x, bool c) => (float[A, B, C, D] y)
<int64[4] target = {2, 6, 4, 8}, int64[1] axis = {-1}, int64[1] hidden = {1}>
{
  end = Constant <value_ints = [4]> ()
  zero = Constant <value = int64[1] {0}> ()
  three = Constant <value_int = 3> ()
  y = If (c) <
    then_branch = g1 () => (float[E, F, G, H] p) {
      mean = ReduceMean (x, axis)
      heads = Reshape (x, target)
      half = Slice (heads, zero, end, three)
      inner = If (c) <
        then_branch = g2 () => (float[I, J, K, L] r) { r = Reshape (x, target) },
        else_branch = g3 () => (float[M, N, O, P] s) {
          hidden = Constant <value_ints = [0, 0, 8, 4]> ()
          s = Reshape (x, hidden)
        }
      >
      wide = Add (half, mean)
      p = Identity (inner)
    },
    else_branch = g4 () => (float[Q, R, S, T] q) { q = Reshape (x, target) }
  >
})";

TEST(InferTypes, KnowsTheConstantsAroundABody) {
  const onnx::ModelProto model = ModelFromText(kMerged);
  const auto graph = BuildGraphModel(model, {});
  ASSERT_OK(graph);
  std::map<std::string, std::string> shapes;
  for (const Graph& body : graph->graphs) {
    for (const Value& value : body.values) {
      if (value.producer != kNone) shapes[value.name] = ToString(value.type.shape);
    }
  }
  EXPECT_EQ(shapes["mean"], "[2, 6, 1]");
  EXPECT_EQ(shapes["heads"], "[2, 6, 4, 8]");
  EXPECT_EQ(shapes["half"], "[2, 6, 4, 4]");
  EXPECT_EQ(shapes["r"], "[2, 6, 4, 8]");
  // A body may not name its values like those around it; one that does has its own constant.
  EXPECT_NE(shapes["s"], "[1]");
  EXPECT_EQ(shapes["q"], "[2, 6, 4, 8]");
}

TEST(InferTypes, LendsConstantsOnlyWhileItWorks) {
  const onnx::ModelProto typed = InferTypes(ModelFromText(kMerged));
  EXPECT_EQ(typed.graph().initializer_size(), 3);
  for (const onnx::NodeProto& node : typed.graph().node()) {
    for (const onnx::AttributeProto& attribute : node.attribute()) {
      EXPECT_EQ(attribute.g().initializer_size(), 0);
    }
  }
}

TEST(InferTypes, LeavesNodesAndAttributesAsTheyAre) {
  const onnx::ModelProto model =
      ModelFromText(ModelText({"float[1, 1, 8] x", kExpand, "", ""}, 17));
  const onnx::ModelProto typed = InferTypes(model);
  ASSERT_EQ(typed.graph().node_size(), model.graph().node_size());
  for (int i = 0; i < model.graph().node_size(); ++i) {
    EXPECT_EQ(typed.graph().node(i).SerializeAsString(), model.graph().node(i).SerializeAsString());
  }
}

}  // namespace
}  // namespace liger
