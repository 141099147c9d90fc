// Bringing a model into the form that can be patched: functions inlined, nodes in order; and what a
// conversion after patching leaves behind.
#include <onnx/checker.h>

#include <map>

#include "model/dtype_drift.h"
#include "model/inline_functions.h"
#include "model/onnx_graph.h"
#include "model/sort_nodes.h"
#include "model_testing.h"

namespace liger {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

std::vector<std::string> OpTypes(const onnx::GraphProto& graph) {
  std::vector<std::string> types;
  for (const auto& node : graph.node()) types.push_back(node.op_type());
  return types;
}

void SetMetadata(onnx::NodeProto& node, const std::string& key, const std::string& value) {
  auto& entry = *node.add_metadata_props();
  entry.set_key(key);
  entry.set_value(value);
}

std::map<std::string, std::string> Metadata(const onnx::NodeProto& node) {
  std::map<std::string, std::string> metadata;
  for (const auto& entry : node.metadata_props()) metadata[entry.key()] = entry.value();
  return metadata;
}

// --- Functions -----------------------------------------------------------------------------------

// One function per module, one of them calling another, as modules exported as functions are.
constexpr char kModules[] = R"(
<ir_version: 10, opset_import: ["" : 17, "pkg.llama" : 1, "pkg.torch" : 1]>
agraph (float[2, 4] x) => (float[2, 4] y)
<float[4] w = {1, 2, 3, 4}>
{
  [first] a = pkg.llama.LlamaRMSNorm <epsilon = 0.5> (x, w)
  [second] y = pkg.llama.LlamaRMSNorm <epsilon = 0.25> (a, w)
}
<domain: "pkg.llama", opset_import: ["" : 17, "pkg.torch" : 1]>
LlamaRMSNorm <epsilon> (x, w) => (y) {
  [mean] m = pkg.torch.mean_of_squares (x)
  e = Constant <value_float: float = @epsilon> ()
  s = Add (m, e)
  r = Sqrt (s)
  n = Div (x, r)
  [scale] y = Mul (n, w)
}
<domain: "pkg.torch", opset_import: ["" : 17]>
mean_of_squares (x) => (y) {
  two = Constant <value_float = 2.0> ()
  q = Pow (x, two)
  y = ReduceMean <axes = [-1], keepdims = 1> (q)
})";

TEST(InlineFunctions, PutsNestedFunctionsInPlaceOfTheirCalls) {
  onnx::ModelProto model = ModelFromText(kModules);
  const InlinedFunctions inlined = InlineFunctions(model);
  EXPECT_EQ(inlined.functions, 2);
  EXPECT_EQ(inlined.calls, 4);
  EXPECT_THAT(inlined.notes, IsEmpty());
  EXPECT_EQ(model.functions_size(), 0);
  EXPECT_THAT(
      OpTypes(model.graph()),
      ElementsAre("Constant", "Pow", "ReduceMean", "Constant", "Add", "Sqrt", "Div", "Mul",
                  "Constant", "Pow", "ReduceMean", "Constant", "Add", "Sqrt", "Div", "Mul"));
  EXPECT_EQ(model.graph().node(3).attribute(0).f(), 0.5F);
  EXPECT_EQ(model.graph().node(11).attribute(0).f(), 0.25F);
  // Of the imports only those of domains in use are left; weights are where they were.
  ASSERT_EQ(model.opset_import_size(), 1);
  EXPECT_EQ(model.opset_import(0).domain(), "");
  EXPECT_EQ(model.graph().initializer(0).float_data_size(), 4);
  EXPECT_NO_THROW(onnx::checker::check_model(model));
}

TEST(InlineFunctions, GivesNodesTheNameAndTheMetadataOfTheCall) {
  onnx::ModelProto model = ModelFromText(kModules);
  SetMetadata(*model.mutable_graph()->mutable_node(0), "scope", "model.norm");
  SetMetadata(*model.mutable_graph()->mutable_node(0), "class", "LlamaRMSNorm");
  SetMetadata(*model.mutable_functions(0)->mutable_node(5), "scope", "inner");
  ASSERT_EQ(InlineFunctions(model).calls, 4);
  std::set<std::string> names;
  for (const auto& node : model.graph().node()) {
    EXPECT_TRUE(names.insert(node.name()).second) << node.name();
  }
  EXPECT_THAT(model.graph().node(1).name(), StartsWith("first/mean/Pow"));
  EXPECT_THAT(model.graph().node(7).name(), StartsWith("first/scale"));
  EXPECT_THAT(model.graph().node(15).name(), StartsWith("second/scale"));
  EXPECT_EQ(Metadata(model.graph().node(1))["scope"], "model.norm");
  EXPECT_EQ(Metadata(model.graph().node(7))["scope"], "inner");
  EXPECT_EQ(Metadata(model.graph().node(7))["class"], "LlamaRMSNorm");
  EXPECT_EQ(model.graph().node(9).metadata_props_size(), 0);
}

TEST(InlineFunctions, LeavesFusedOpsAsCalls) {
  const std::string text = R"(
<ir_version: 10, opset_import: ["" : 17, "liger" : 1, "own" : 1]>
agraph (float[2, 4] x, float[4] w) => (float[2, 4] y)
{
  a = own.Twice (x)
  y = liger.LigerRMSNorm:other (a, w)
}
<domain: "liger", overload: "other", opset_import: ["" : 17]>
LigerRMSNorm (x, scale) => (y) { y = Mul (x, scale) }
<domain: "own", opset_import: ["" : 17]>
Twice (x) => (y) { y = Add (x, x) })";
  onnx::ModelProto model = ModelFromText(text);
  EXPECT_EQ(InlineFunctions(model).calls, 1);
  ASSERT_EQ(model.functions_size(), 1);
  EXPECT_EQ(model.functions(0).name(), "LigerRMSNorm");
  EXPECT_THAT(OpTypes(model.graph()), ElementsAre("Add", "LigerRMSNorm"));
  EXPECT_EQ(model.graph().node(1).overload(), "other");
  // Nothing but fused ops is left: a second time changes nothing.
  const std::string before = model.SerializeAsString();
  const InlinedFunctions again = InlineFunctions(model);
  EXPECT_EQ(again.calls, 0);
  EXPECT_THAT(again.notes, IsEmpty());
  EXPECT_EQ(model.SerializeAsString(), before);
}

TEST(InlineFunctions, TellsOverloadsApartAndLooksIntoBodies) {
  onnx::ModelProto model = ModelFromText(R"(
<ir_version: 10, opset_import: ["" : 17, "own" : 1]>
agraph (float[2, 4] x, bool c) => (float[2, 4] y)
{
  y = If (c) <
    then_branch = g1 () => (float[2, 4] p) { p = own.F:one (x) },
    else_branch = g2 () => (float[2, 4] q) { q = own.F:two (x) }
  >
}
<domain: "own", overload: "one", opset_import: ["" : 17]>
F (x) => (y) { y = Neg (x) }
<domain: "own", overload: "two", opset_import: ["" : 17]>
F (x) => (y) {
  always = Constant <value = bool {1}> ()
  y = If (always) <
    then_branch = h1 () => (t) { t = Abs (x) },
    else_branch = h2 () => (e) { e = Sqrt (x) }
  >
})");
  EXPECT_EQ(InlineFunctions(model).calls, 2);
  const auto& branches = model.graph().node(0);
  EXPECT_THAT(OpTypes(branches.attribute(0).g()), ElementsAre("Neg"));
  EXPECT_THAT(OpTypes(branches.attribute(1).g()), ElementsAre("Constant", "If"));
  EXPECT_THAT(OpTypes(branches.attribute(1).g().node(1).attribute(0).g()), ElementsAre("Abs"));
  EXPECT_EQ(branches.attribute(1).g().node(1).attribute(0).g().node(0).input(0), "x");
  EXPECT_NO_THROW(onnx::checker::check_model(model));
}

TEST(InlineFunctions, AcceptsOtherVersionsOfTheSameOperators) {
  // Mul is the same from 14 on; ReduceMean takes its axes as an operand from 18 on.
  onnx::ModelProto model = ModelFromText(R"(
<ir_version: 10, opset_import: ["" : 20, "own" : 1]>
agraph (float[2, 4] x) => (float[2, 4] y)
{
  a = own.Square (x)
  b = own.Mean (a)
  y = own.Calls (b)
}
<domain: "own", opset_import: ["" : 17]>
Square (x) => (y) { y = Mul (x, x) }
<domain: "own", opset_import: ["" : 17]>
Mean (x) => (y) { y = ReduceMean <axes = [-1]> (x) }
<domain: "own", opset_import: ["" : 17, "own" : 1]>
Calls (x) => (y) {
  m = ReduceMean <axes = [-1]> (x)
  y = own.Square (m)
})");
  const InlinedFunctions inlined = InlineFunctions(model);
  EXPECT_EQ(inlined.calls, 1);
  EXPECT_THAT(inlined.notes, ElementsAre(HasSubstr("'own::Calls' was not looked into"),
                                         HasSubstr("'own::Mean' was not looked into")));
  EXPECT_THAT(OpTypes(model.graph()), ElementsAre("Mul", "Mean", "Calls"));
  // Square is still called, by a function that stays.
  EXPECT_EQ(model.functions_size(), 3);
  EXPECT_EQ(model.opset_import_size(), 2);
}

TEST(InlineFunctions, LeavesCirclesAlone) {
  onnx::ModelProto model = ModelFromText(R"(
<ir_version: 10, opset_import: ["" : 17, "own" : 1]>
agraph (float[2] x) => (float[2] y) { y = own.A (x) }
<domain: "own", opset_import: ["" : 17, "own" : 1]>
A (x) => (y) { y = own.B (x) }
<domain: "own", opset_import: ["" : 17, "own" : 1]>
B (x) => (y) { y = own.A (x) })");
  const std::string before = model.SerializeAsString();
  const InlinedFunctions inlined = InlineFunctions(model);
  EXPECT_EQ(inlined.calls, 0);
  EXPECT_THAT(inlined.notes, ElementsAre(HasSubstr("circle")));
  EXPECT_EQ(model.SerializeAsString(), before);
}

TEST(InlineFunctions, GivesTypesThatFunctionsHide) {
  onnx::ModelProto model = ModelFromText(kModules);
  InlineFunctions(model);
  const auto graph = BuildGraphModel(model, {});
  ASSERT_OK(graph);
  ASSERT_EQ(graph->graphs.size(), 1U);
  for (const Value& value : graph->main().values) EXPECT_TRUE(value.type.shape) << value.name;
}

// --- Order ---------------------------------------------------------------------------------------

TEST(SortNodes, LeavesWhatIsInOrder) {
  onnx::ModelProto model = ModelFromText(kModules);
  const std::string before = model.SerializeAsString();
  const auto moved = SortNodes(model);
  ASSERT_OK(moved);
  EXPECT_EQ(*moved, 0);
  EXPECT_EQ(model.SerializeAsString(), before);
}

TEST(SortNodes, PullsANodeInFrontOfWhatNeedsIt) {
  onnx::ModelProto model = ModelFromText(R"(
<ir_version: 8, opset_import: ["" : 17]>
agraph (float[2] x) => (float[2] y)
{
  a = Neg (x)
  y = Add (b, d)
  c = Abs (a)
  d = Sqrt (c)
  b = Exp (x)
})");
  const auto moved = SortNodes(model);
  ASSERT_OK(moved);
  EXPECT_EQ(*moved, 3);
  EXPECT_THAT(OpTypes(model.graph()), ElementsAre("Neg", "Exp", "Abs", "Sqrt", "Add"));
  EXPECT_NO_THROW(onnx::checker::check_model(model));
}

TEST(SortNodes, CountsWhatABodyReadsForItsNode) {
  onnx::ModelProto model = ModelFromText(R"(
<ir_version: 8, opset_import: ["" : 17]>
agraph (float[2] x, bool c) => (float[2] y)
{
  y = If (c) <
    then_branch = g1 () => (float[2] p) {
      p = Neg (q)
      q = Abs (late)
    },
    else_branch = g2 () => (float[2] r) { r = Neg (x) }
  >
  late = Exp (x)
})");
  const auto moved = SortNodes(model);
  ASSERT_OK(moved);
  EXPECT_EQ(*moved, 2);
  EXPECT_THAT(OpTypes(model.graph()), ElementsAre("Exp", "If"));
  EXPECT_THAT(OpTypes(model.graph().node(1).attribute(0).g()), ElementsAre("Abs", "Neg"));
  EXPECT_NO_THROW(onnx::checker::check_model(model));
}

TEST(SortNodes, SortsFunctions) {
  onnx::ModelProto model = ModelFromText(R"(
<ir_version: 8, opset_import: ["" : 17, "own" : 1]>
agraph (float[2] x) => (float[2] y) { y = own.F (x) }
<domain: "own", opset_import: ["" : 17]>
F (x) => (y) {
  y = Neg (a)
  a = Abs (x)
})");
  const auto moved = SortNodes(model);
  ASSERT_OK(moved);
  EXPECT_EQ(*moved, 1);
  EXPECT_EQ(model.functions(0).node(0).op_type(), "Abs");
}

TEST(SortNodes, NamesANodeOfACycle) {
  onnx::ModelProto model = ModelFromText(R"(
<ir_version: 8, opset_import: ["" : 17]>
agraph (float[2] x) => (float[2] y)
{
  y = Neg (x)
  [one] a = Abs (b)
  [two] b = Abs (a)
})");
  EXPECT_ERROR(SortNodes(model), ErrorCode::kInvalidModel, HasSubstr("cycle"),
               HasSubstr("Abs node 'one'"));
}

TEST(SortNodes, SurvivesDeepChains) {
  onnx::ModelProto model = ModelFromText(R"(
<ir_version: 8, opset_import: ["" : 17]>
agraph (float[2] v0) => (float[2] v50000) { v50000 = Neg (v49999) })");
  for (int i = 49999; i > 0; --i) {
    onnx::NodeProto& node = *model.mutable_graph()->add_node();
    node.set_op_type("Neg");
    node.add_input("v" + std::to_string(i - 1));
    node.add_output("v" + std::to_string(i));
  }
  const auto moved = SortNodes(model);
  ASSERT_OK(moved);
  EXPECT_EQ(*moved, 49999);
  EXPECT_EQ(model.graph().node(0).input(0), "v0");
}

// --- Dtypes after a conversion -------------------------------------------------------------------

std::string Patched(const std::string& dtype) {
  return R"(
<ir_version: 8, opset_import: ["" : 17, "liger" : 1]>
agraph ()" +
         dtype + "[2, 4] x, " + dtype + "[4] w) => (" + dtype + R"([2, 4] y)
{
  [norm] y = liger.LigerRMSNorm (x, w)
}
<domain: "liger", opset_import: ["" : 17]>
LigerRMSNorm (x, scale) => (y) {
  two = Constant <value_float = 2.0> ()
  square = Pow (x, two)
  mean = ReduceMean <axes = [-1]> (square)
  eps = Constant <value_float = 0.00001> ()
  shifted = Add (mean, eps)
  root = Sqrt (shifted)
  n = Div (x, root)
  y = Mul (n, scale)
})";
}

std::vector<std::string> Drift(const std::string& text) {
  const onnx::ModelProto model = ModelFromText(text);
  const auto graph = BuildGraphModel(model, {});
  if (!graph) ADD_FAILURE() << graph.error().message;
  return graph ? FindDTypeDrift(model, *graph) : std::vector<std::string>();
}

TEST(FindDTypeDrift, SaysNothingOfABodyThatFits) {
  EXPECT_THAT(Drift(Patched("float")), IsEmpty());
}

TEST(FindDTypeDrift, NamesTheFunctionTheDtypesAndTheCall) {
  EXPECT_THAT(Drift(Patched("float16")),
              ElementsAre("the body of 'liger::LigerRMSNorm' computes in f32 where the operands "
                          "give f16 (Add): node 'norm' calls it with f16 inputs"));
}

TEST(FindDTypeDrift, SeesACastToTheOldDtype) {
  // The body ends in a Cast to what x was.
  EXPECT_THAT(Drift(R"(
<ir_version: 8, opset_import: ["" : 17, "liger" : 1]>
agraph (float16[2, 4] x, float16[4] w) => (float16[2, 4] y)
{
  [norm] y = liger.LigerRMSNorm (x, w)
}
<domain: "liger", opset_import: ["" : 17]>
LigerRMSNorm (x, scale) => (y) {
  wide = Cast <to = 1> (x)
  weight = Cast <to = 1> (scale)
  y = Mul (wide, weight)
})"),
              ElementsAre(HasSubstr("gives f32 for 'y', where the graph has f16")));
}

TEST(FindDTypeDrift, LooksAtFusedOpsOnlyAndTakesUnknownDtypesToFit) {
  EXPECT_THAT(Drift(R"(
<ir_version: 8, opset_import: ["" : 17, "own" : 1, "liger" : 1]>
agraph (float16[2, 4] x, float16[4] w) => (float16[2, 4] y)
{
  a = own.Unknown (x)
  b = liger.LigerRMSNorm (a, w)
  y = own.LigerRMSNorm (x, w)
}
<domain: "liger", opset_import: ["" : 17]>
LigerRMSNorm (x, scale) => (y) {
  one = Constant <value_float = 1.0> ()
  y = Add (x, one)
}
<domain: "own", opset_import: ["" : 17]>
LigerRMSNorm (x, scale) => (y) {
  one = Constant <value_float = 1.0> ()
  y = Add (x, one)
})"),
              IsEmpty());
}

}  // namespace
}  // namespace liger
