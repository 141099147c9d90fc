#include "model/check.h"

#include <onnx/shape_inference/implementation.h>

#include "model_testing.h"

namespace liger {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// RMS norm, once spelled out and once as a call of a local function.
constexpr char kOriginal[] = R"(
<ir_version: 8, opset_import: ["" : 18]>
agraph (float16[N, 4] x) => (float16[N, 4] y)
<float16[4] w = {1, 2, 3, 4}, float16 two = {16384}, float16 eps = {168}, int64[1] axes = {-1}>
{
  sq = Pow (x, two)
  mean = ReduceMean <keepdims = 1> (sq, axes)
  shifted = Add (mean, eps)
  root = Sqrt (shifted)
  n = Div (x, root)
  scaled = Mul (n, w)
  y = Neg (scaled)
})";

constexpr char kRewritten[] = R"(
<ir_version: 8, opset_import: ["" : 18, "liger" : 1]>
agraph (float16[N, 4] x) => (float16[N, 4] y)
<float16[4] w = {1, 2, 3, 4}, float16 two = {16384}, float16 eps = {168}, int64[1] axes = {-1}>
{
  [fused] scaled = liger.Norm <epsilon = 0.00001> (x, w)
  y = Neg (scaled)
}
<domain: "liger", opset_import: ["" : 18]>
Norm <epsilon> (x, w) => (y) {
  two = Constant <value = float16 {16384}> ()
  axes = Constant <value_ints = [-1]> ()
  eps32 = Constant <value_float: float = @epsilon> ()
  eps = CastLike (eps32, x)
  sq = Pow (x, two)
  mean = ReduceMean <keepdims = 1> (sq, axes)
  shifted = Add (mean, eps)
  root = Sqrt (shifted)
  n = Div (x, root)
  y = Mul (n, w)
})";

// CheckModel must say the same whether it is given the original or what StripWeights leaves of it.
Result<CheckReport> CheckBoth(const onnx::ModelProto& original, const onnx::ModelProto& rewritten,
                              const CheckOptions& options = {}) {
  auto whole = CheckModel(original, rewritten, options);
  const auto stripped = CheckModel(StripWeights(original, 0), rewritten, options);
  EXPECT_EQ(static_cast<bool>(whole), static_cast<bool>(stripped));
  if (!whole && !stripped) {
    EXPECT_EQ(whole.error().message, stripped.error().message);
  }
  if (whole && stripped) {
    EXPECT_EQ(whole->notes, stripped->notes);
  }
  return whole;
}

std::string Replaced(std::string text, const std::string& what, const std::string& by) {
  const size_t at = text.find(what);
  EXPECT_NE(at, std::string::npos) << what;
  return at == std::string::npos ? text : text.replace(at, what.size(), by);
}

// --- The copy without weights --------------------------------------------------------------------

TEST(StripWeights, IsACopyWhereEverythingIsKept) {
  onnx::ModelProto model = ModelFromText(kRewritten);
  auto* metadata = model.mutable_graph()->mutable_node(0)->add_metadata_props();
  metadata->set_key("scope");
  metadata->set_value("layers.0");
  model.mutable_graph()->mutable_initializer(0)->set_doc_string("doc");
  model.mutable_graph()->mutable_node(0)->mutable_unknown_fields()->AddVarint(1000, 5);
  EXPECT_EQ(StripWeights(model, 1 << 20).SerializeAsString(), model.SerializeAsString());
}

TEST(StripWeights, KeepsTypesAndSmallTensorsAndDropsPayloads) {
  onnx::ModelProto model = ModelFromText(R"(
<ir_version: 8, opset_import: ["" : 18]>
agraph (float[4] x, bool c) => (float[4] y)
<float[4] small = {1, 2, 3, 4}, float[8] large = {1, 2, 3, 4, 5, 6, 7, 8},
 int64[8] shape = {1, 2, 3, 4, 5, 6, 7, 8}, float[4] outside = {0, 0, 0, 0}>
{
  k = Constant <value = float[8] {1, 2, 3, 4, 5, 6, 7, 8}> ()
  y = If (c) <
    then_branch = g1 () => (float[8] p) <float[8] inner = {1, 2, 3, 4, 5, 6, 7, 8}> { p = Neg (inner) },
    else_branch = g2 () => (float[8] q) { q = Neg (large) }
  >
})");
  onnx::GraphProto& graph = *model.mutable_graph();
  graph.mutable_initializer(1)->clear_float_data();
  graph.mutable_initializer(1)->set_raw_data(std::string(32, '\x3f'));
  MakeExternal(*graph.mutable_initializer(3), "w.bin", {4}, "0", "16");
  auto* sparse = graph.add_sparse_initializer();
  sparse->mutable_values()->set_name("sparse");
  sparse->mutable_values()->set_data_type(onnx::TensorProto::FLOAT);
  sparse->mutable_values()->add_dims(8);
  sparse->mutable_values()->set_raw_data(std::string(32, 'x'));
  sparse->mutable_indices()->set_data_type(onnx::TensorProto::INT64);
  sparse->mutable_indices()->add_dims(8);
  for (int i = 0; i < 8; ++i) sparse->mutable_indices()->add_int64_data(i);
  sparse->add_dims(100);
  const std::string before = model.SerializeAsString();

  const onnx::ModelProto stripped = StripWeights(model, 16);
  EXPECT_EQ(model.SerializeAsString(), before);
  const onnx::GraphProto& copy = stripped.graph();
  ASSERT_EQ(copy.initializer_size(), 4);
  EXPECT_EQ(copy.initializer(0).float_data_size(), 4);
  for (const int i : {1, 3}) {
    const onnx::TensorProto& tensor = copy.initializer(i);
    EXPECT_EQ(tensor.name(), graph.initializer(i).name());
    EXPECT_EQ(tensor.data_type(), onnx::TensorProto::FLOAT);
    EXPECT_EQ(tensor.dims(0), graph.initializer(i).dims(0));
    EXPECT_TRUE(tensor.raw_data().empty());
    EXPECT_FALSE(tensor.has_data_location());
    EXPECT_TRUE(tensor.external_data().empty());
  }
  EXPECT_EQ(copy.initializer(2).int64_data_size(), 8);  // 64 bytes, but integers
  EXPECT_EQ(copy.node(0).attribute(0).t().float_data_size(), 0);
  EXPECT_EQ(copy.node(0).attribute(0).t().dims(0), 8);
  EXPECT_EQ(copy.node(1).attribute(0).g().initializer(0).float_data_size(), 0);
  EXPECT_TRUE(copy.sparse_initializer(0).values().raw_data().empty());
  EXPECT_EQ(copy.sparse_initializer(0).dims(0), 100);
}

TEST(StripWeights, LeavesInferenceWhatItNeeds) {
  // The target shape of the first Reshape is at hand; that of the second is external, so that only
  // the rank is known. Inference would fail on an initializer without payload.
  onnx::ModelProto model = ModelFromText(R"(
<ir_version: 8, opset_import: ["" : 18]>
agraph (float16[2, 6] x) => (float16[A, B, C] y)
<int64[2] inside = {3, 4}, int64[3] outside = {2, 2, 3}>
{
  a = Reshape (x, inside)
  b = Reshape (a, outside)
  y = Neg (b)
})");
  onnx::TensorProto& outside = *model.mutable_graph()->mutable_initializer(1);
  outside.clear_int64_data();
  outside.set_data_location(onnx::TensorProto::EXTERNAL);
  SetEntry(outside, "location", "shapes.bin");

  onnx::ModelProto copy = StripWeights(model, 0);
  onnx::shape_inference::InferShapes(copy, onnx::OpSchemaRegistry::Instance(),
                                     onnx::ShapeInferenceOptions(true, 1, true));
  std::map<std::string, onnx::TypeProto> types;
  for (const auto& value : copy.graph().value_info()) types[value.name()] = value.type();
  ASSERT_TRUE(types.contains("a"));
  EXPECT_EQ(types["a"].tensor_type().shape().dim(0).dim_value(), 3);
  ASSERT_TRUE(types.contains("b"));
  EXPECT_EQ(types["b"].tensor_type().elem_type(), onnx::TensorProto::FLOAT16);
  EXPECT_EQ(types["b"].tensor_type().shape().dim_size(), 3);
}

// --- Valid rewrites ------------------------------------------------------------------------------

TEST(CheckModel, AcceptsAValidRewrite) {
  const onnx::ModelProto original = ModelFromText(kOriginal);
  const onnx::ModelProto rewritten = ModelFromText(kRewritten);
  for (const auto inference : {CheckOptions::Inference::kOff, CheckOptions::Inference::kReport,
                               CheckOptions::Inference::kRequire}) {
    const auto report = CheckBoth(original, rewritten, {.inference = inference});
    ASSERT_OK(report);
    EXPECT_THAT(report->notes, IsEmpty());
  }
  ASSERT_OK(CheckBoth(original, original));
}

TEST(CheckModel, NeedsNoWeights) {
  onnx::ModelProto original = ModelFromText(kOriginal);
  onnx::ModelProto rewritten = ModelFromText(kRewritten);
  for (onnx::ModelProto* model : {&original, &rewritten}) {
    onnx::TensorProto& w = *model->mutable_graph()->mutable_initializer(0);
    MakeExternal(w, "no/such/file", {4});
    w.set_data_type(onnx::TensorProto::FLOAT16);
  }
  const auto report = CheckBoth(original, rewritten);
  ASSERT_OK(report);
  EXPECT_THAT(report->notes, IsEmpty());
}

TEST(CheckModel, KnowsInitializersThatStripWeightsHides) {
  onnx::ModelProto original = ModelFromText(R"(
<ir_version: 8, opset_import: ["" : 18]>
agraph (float[2, 6] x) => (float[A, B] y)
<int64[2] target = {3, 4}>
{
  a = Reshape (x, target)
  y = Neg (a)
})");
  onnx::TensorProto& target = *original.mutable_graph()->mutable_initializer(0);
  target.clear_int64_data();
  target.set_data_location(onnx::TensorProto::EXTERNAL);
  SetEntry(target, "location", "shapes.bin");
  const auto report = CheckBoth(original, original);
  ASSERT_OK(report);
  EXPECT_THAT(report->notes, IsEmpty());

  onnx::ModelProto rewritten = original;
  rewritten.mutable_graph()->clear_initializer();
  EXPECT_ERROR(CheckBoth(original, rewritten), ErrorCode::kInternal,
               HasSubstr("uses 'target', which is not defined"));
}

// --- Faults of a rewrite -------------------------------------------------------------------------

TEST(CheckModel, NamesTheFaultOfARewrite) {
  const struct {
    const char* what;
    const char* by;
    const char* message;
  } kCases[] = {
      // The interface.
      {"(float16[N, 4] x) =>", "(float16[N, 4] z) =>", "graph input 0 is 'z' instead of 'x'"},
      {"(float16[N, 4] x) =>", "(float[N, 4] x) =>", "'x' is FLOAT[N,4] instead of FLOAT16[N,4]"},
      {"(float16[N, 4] x) =>", "(float16[M, 4] x) =>", "'x' is FLOAT16[M,4] instead of"},
      {"(float16[N, 4] x) =>", "(float16 x) =>", "'x' is FLOAT16[] instead of"},
      {"(float16[N, 4] x) =>", "(float16[N, 4] x, float[1] more) =>",
       "2 graph inputs instead of 1"},
      {"=> (float16[N, 4] y)", "=> (float16[N, 4] scaled)", "graph output 0 is 'scaled'"},
      {"=> (float16[N, 4] y)", "=> (float16[2, 4] y)", "graph output 'y' is FLOAT16[2,4]"},
      // Names, domains, calls.
      {"y = Neg (scaled)", "y = Neg (n)", "Neg node 'y' uses 'n', which is not defined"},
      {"y = Neg (scaled)", "z = Neg (scaled)", "graph output 'y' is not defined"},
      {"\"\" : 18, \"liger\" : 1", "\"\" : 18",
       "domain 'liger' is used (Norm node 'fused') but not"},
      {"liger.Norm <epsilon = 0.00001>", "liger.Norm", "does not set attribute 'epsilon'"},
      {"liger.Norm <epsilon = 0.00001>", "liger.Norm <epsilon = 0.00001, eps = 1.0>",
       "sets attribute 'eps', which the function"},
      {"> (x, w)", "> (x, w, w)", "more inputs or outputs than the function"},
      {"n = Div (x, root)", "n = Div (x, rot)", "Div node 'n' uses 'rot', which is not defined"},
      {"y = Mul (n, w)", "z = Mul (n, w)", "output 'y' of function liger.Norm is not defined"},
      {"domain: \"liger\", opset_import: [\"\" : 18]",
       "domain: \"liger\", opset_import: [\"a\" : 1]", "domain '' is used"},
      {"ir_version: 8", "ir_version: 7", "local functions need IR version 8"},
      // ONNX's checker.
      {"y = Neg (scaled)", "y = Neg (scaled) z = NoSuchOp (x)", "No Op registered for NoSuchOp"},
      {"y = Neg (scaled)", "y = Neg <alpha = 1.0> (scaled)", "Unrecognized attribute: alpha"},
      {"[fused] scaled", "y = Neg (scaled) [fused] scaled", "topologically sorted"},
      {"[fused] scaled", "x = Neg (w) [fused] scaled", "used as output names multiple times"},
      // Shape inference, through the function: two is float32 where x is float16.
      {"two = Constant <value = float16 {16384}> ()",
       "two = Constant <value = float {2.0}> () "
       "mixed = Add (x, two)",
       "shape inference"},
      {"y = Neg (scaled)", "y = Cast <to = 1> (scaled)", "shape inference"},
  };
  const onnx::ModelProto original = ModelFromText(kOriginal);
  for (const auto& c : kCases) {
    SCOPED_TRACE(c.by);
    const onnx::ModelProto rewritten = ModelFromText(Replaced(kRewritten, c.what, c.by));
    const auto report = CheckBoth(original, rewritten);
    EXPECT_ERROR(report, ErrorCode::kInternal, HasSubstr(c.message));
    EXPECT_THAT(report.error().hint, HasSubstr("report this"));
  }
}

TEST(CheckModel, NamesAValueWhoseTypeChanged) {
  // Nothing contradicts itself here; only the comparison shows that `t` is another thing now.
  const char* text = R"(
<ir_version: 8, opset_import: ["" : 18]>
agraph (float[2, 4] x) => (float[2, 4] y)
{
  t = Mul (x, x)
  y = Neg (t)
})";
  const onnx::ModelProto original = ModelFromText(text);
  EXPECT_ERROR(
      CheckBoth(original, ModelFromText(Replaced(
                              text, "t = Mul (x, x)\n  y = Neg (t)",
                              "t = Cast <to = 10> (x)\n  u = Cast <to = 1> (t) y = Neg (u)"))),
      ErrorCode::kInternal, HasSubstr("value 't' was FLOAT[2,4] and is now FLOAT16[2,4]"));
  EXPECT_ERROR(
      CheckBoth(original, ModelFromText(Replaced(text, "t = Mul (x, x)\n  y = Neg (t)",
                                                 "t = Transpose (x)\n  y = Transpose (t)"))),
      ErrorCode::kInternal, HasSubstr("value 't' was FLOAT[2,4] and is now FLOAT[4,2]"));
}

TEST(CheckModel, ReportsInferenceWhereAskedTo) {
  const onnx::ModelProto original = ModelFromText(kOriginal);
  const onnx::ModelProto rewritten =
      ModelFromText(Replaced(kRewritten, "y = Neg (scaled)", "y = Cast <to = 1> (scaled)"));
  const auto report =
      CheckBoth(original, rewritten, {.inference = CheckOptions::Inference::kReport});
  ASSERT_OK(report);
  EXPECT_THAT(report->notes, ElementsAre(HasSubstr("shape inference: ")));
  const auto off = CheckBoth(original, rewritten, {.inference = CheckOptions::Inference::kOff});
  ASSERT_OK(off);
  EXPECT_THAT(off->notes, IsEmpty());
}

// --- Faults the original has already -------------------------------------------------------------

// As ONNX Runtime saves optimised models: its own op in the default domain, in every layer.
std::string Optimised(const char* text) {
  return Replaced(text, "y = Neg (scaled)",
                  "r = SimplifiedLayerNormalization (x, w) y = Neg (scaled)");
}

TEST(CheckModel, NotesWhatTheCheckerHasAgainstTheOriginal) {
  const onnx::ModelProto original = ModelFromText(Optimised(kOriginal));
  const auto report = CheckBoth(original, ModelFromText(Optimised(kRewritten)));
  ASSERT_OK(report);
  ASSERT_FALSE(report->notes.empty());
  EXPECT_THAT(report->notes[0], HasSubstr("ONNX's checker refuses the input as well: "
                                          "No Op registered for SimplifiedLayerNormalization"));
}

TEST(CheckModel, StillFindsTheFaultOfARewriteOfSuchAModel) {
  const onnx::ModelProto original = ModelFromText(Optimised(kOriginal));
  const std::string rewritten = Optimised(kRewritten);
  const struct {
    const char* what;
    const char* by;
    const char* message;
  } kCases[] = {
      {"y = Neg (scaled)", "y = Neg <alpha = 1.0> (scaled)", "Unrecognized attribute: alpha"},
      {"n = Div (x, root)", "n = NoSuchOp (x, root)", "No Op registered for NoSuchOp"},
      {"root = Sqrt (shifted)\n  n = Div (x, root)", "n = Div (x, root)\n  root = Sqrt (shifted)",
       "topologically sorted"},
      {"y = Neg (scaled)", "y = Neg (gone)", "'gone', which is not defined"},
  };
  for (const auto& c : kCases) {
    SCOPED_TRACE(c.by);
    EXPECT_ERROR(CheckBoth(original, ModelFromText(Replaced(rewritten, c.what, c.by))),
                 ErrorCode::kInternal, HasSubstr(c.message));
  }
}

TEST(CheckModel, AcceptsModelsWhoseNodesAreInAnotherOrder) {
  onnx::ModelProto original = ModelFromText(kOriginal);
  onnx::ModelProto rewritten = ModelFromText(kRewritten);
  for (onnx::ModelProto* model : {&original, &rewritten}) {
    auto& nodes = *model->mutable_graph()->mutable_node();
    std::reverse(nodes.pointer_begin(), nodes.pointer_end());
  }
  const auto report = CheckBoth(original, rewritten);
  ASSERT_OK(report);
  ASSERT_FALSE(report->notes.empty());
  EXPECT_THAT(report->notes[0], HasSubstr("topologically sorted"));
}

TEST(CheckModel, NotesWhatInferenceHasAgainstTheOriginal) {
  const std::string wrong = ", float[7] never = {1, 2, 3, 4, 5, 6, 7}>\n{\n  bad = Add (x, never)";
  const auto with_fault = [&](const char* text) {
    return ModelFromText(Replaced(text, ">\n{", wrong));
  };
  const onnx::ModelProto original = with_fault(kOriginal);
  const auto report = CheckBoth(original, with_fault(kRewritten));
  ASSERT_OK(report);
  EXPECT_THAT(report->notes, ElementsAre(HasSubstr("shape inference fails on the input as well")));
}

}  // namespace
}  // namespace liger
