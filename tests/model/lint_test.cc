#include "model/lint.h"

#include <algorithm>
#include <fstream>
#include <functional>
#include <iterator>
#include <set>

#include "model/check.h"
#include "model/model_file.h"
#include "model_testing.h"

namespace liger {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using Severity = LintFinding::Severity;

std::string Text(const LintFinding& finding) {
  static constexpr const char* kNames[] = {"note", "warning", "error"};
  return std::string(kNames[static_cast<int>(finding.severity)]) + " " + finding.rule + " [" +
         finding.place + "] " + finding.message;
}

std::vector<std::string> LintTexts(const onnx::ModelProto& model, const LintContext& context = {}) {
  std::vector<std::string> texts;
  for (const LintFinding& finding : Lint(model, context)) texts.push_back(Text(finding));
  return texts;
}

std::string Header(int opset = 17, int ir = 8) {
  return "<ir_version: " + std::to_string(ir) + ", opset_import: [\"\" : " + std::to_string(opset) +
         "]>\n";
}

// A patched norm: the call and its body.
constexpr char kPatched[] = R"(
<ir_version: 8, opset_import: ["" : 17, "liger" : 1]>
g (float[N,4] x) => (float[N,4] y) <float[4] w = {1, 2, 3, 4}>
{
  [norm] y = liger.LigerRMSNorm <epsilon = 0.00001, offset = 0.0, stash_type = 1, scale_type = 1> (x, w)
}
<domain: "liger", opset_import: ["" : 17]>
LigerRMSNorm <epsilon, offset, stash_type, scale_type> (x, scale) => (y)
{
  two = Constant <value = float {2}> ()
  eps = Constant <value_float: float = @epsilon> ()
  sq = Pow (x, two)
  mean = ReduceMean <axes = [-1]> (sq)
  me = Add (mean, eps)
  rms = Sqrt (me)
  n = Div (x, rms)
  y = Mul (n, scale)
})";

// --- Nothing to say -------------------------------------------------------------------------------

TEST(Lint, SaysNothingOfARightModel) {
  EXPECT_THAT(LintTexts(ModelFromText(kPatched)), IsEmpty());
  EXPECT_THAT(LintTexts(ModelFromText(Header() + R"(
g (float[N,4] x, bool c) => (float[N,4] y) <float[4] w = {1, 2, 3, 4}>
{
  a = Mul (x, w)
  y = If (c) <
    then_branch = yes () => (float[N,4] t) { t = Neg (a) },
    else_branch = no () => (float[N,4] e) { e = Identity (a) }
  >
})")),
              IsEmpty());
}

TEST(Lint, SaysNothingWrongOfRealExports) {
  int files = 0;
  for (const auto& entry : fs::recursive_directory_iterator(LIGER_MODELS_DIR)) {
    if (entry.path().extension() != ".onnx") continue;
    auto file = LoadModelFile(entry.path());
    ASSERT_OK(file);
    for (const LintFinding& finding : Lint(file->proto, {file->folder, file->path})) {
      EXPECT_EQ(finding.severity, Severity::kNote) << entry.path() << ": " << Text(finding);
    }
    ++files;
  }
  EXPECT_GE(files, 20);
}

// --- One fault each -------------------------------------------------------------------------------

struct Fault {
  std::string name;
  std::string text;
  std::vector<std::string> findings;
};

void PrintTo(const Fault& fault, std::ostream* out) { *out << fault.name; }

class Lints : public testing::TestWithParam<Fault> {};

TEST_P(Lints, Fault) {
  EXPECT_THAT(LintTexts(ModelFromText(GetParam().text)),
              testing::ElementsAreArray(GetParam().findings));
}

std::string NameOf(const testing::TestParamInfo<Fault>& test) { return test.param.name; }

INSTANTIATE_TEST_SUITE_P(
    Operators, Lints,
    testing::Values(
        Fault{"ContribOpInTheDefaultDomain",
              Header() + "g (float[1,2,4] x, float[1,2,4] r, float[4] w) => (float[1,2,4] y) "
                         "{ [n] y = SkipLayerNormalization <epsilon = 0.00001> (x, r, w) "
                         "  z = SkipLayerNormalization <epsilon = 0.00001> (x, r, w) }",
              {"error contrib_op_in_default_domain [SkipLayerNormalization node 'n'] "
               "SkipLayerNormalization is an operator of ONNX Runtime, not of ONNX (2 nodes, the "
               "first named): no runtime finds it in the default domain"}},
        Fault{"OnnxRuntimesOwnSpelling",
              Header() +
                  "g (float[1,4] x, float[4] w) => (float[1,4] y) "
                  "{ y = SimplifiedLayerNormalization <axis = -1, epsilon = 0.00001> (x, w) }",
              {"warning contrib_op_in_default_domain [SimplifiedLayerNormalization node 'y'] "
               "SimplifiedLayerNormalization is an operator of ONNX Runtime, not of ONNX (1 node): "
               "only ONNX Runtime finds it in the default domain"}},
        Fault{"UnknownOperator",
              Header() + "g (float[4] x) => (float[4] y) { y = RmsNorm (x) }",
              {"error unknown_operator [RmsNorm node 'y'] RmsNorm is no operator of the default "
               "operator set in any version (1 node)"}},
        Fault{"LaterOperator",
              Header(13) + "g (float[1,4] x, float[4] w) => (float[1,4] y) "
                           "{ [n] y = LayerNormalization (x, w) }",
              {"error operator_not_in_opset [LayerNormalization node 'n'] LayerNormalization does "
               "not exist in version 13 of the default operator set (1 node); ONNX Runtime alone "
               "accepts it there"}},
        Fault{"RemovedOperator",
              Header(10) + "g (float[1,1,2,2] x, float[4] s) => (float[1,1,4,4] y) "
                           "{ y = Upsample (x, s) }",
              {"error operator_not_in_opset [Upsample node 'y'] Upsample was removed by version 10 "
               "of the default operator set (1 node)"}},
        Fault{"AttributeOfAnotherOpset",
              Header(18) +
                  "g (float[2,4] x) => (float[2,1] y) { [m] y = ReduceMean <axes = [-1]> (x) }",
              {"error operator_attribute [ReduceMean node 'm'] Unrecognized attribute: axes for "
               "operator ReduceMean"}},
        Fault{"AttributeInAFunctionBody",
              "<ir_version: 8, opset_import: [\"\" : 18, \"own\" : 1]>\n"
              "g (float[2,4] x) => (float[2,1] y) { y = own.Mean (x) }\n"
              "<domain: \"own\", opset_import: [\"\" : 18]> Mean (x) => (y) "
              "{ y = ReduceMean <axes = [-1]> (x) }",
              {"error operator_attribute [ReduceMean node 'y' in function own.Mean] Unrecognized "
               "attribute: axes for operator ReduceMean"}},
        Fault{"NewerOpset",
              Header(99) + "g (float[4] x) => (float[4] y) { y = Neg (x) }",
              {"note unknown_opset [] version 99 of the default operator set is newer than the "
               "newest known here, 28: its operators were checked as those of that one"}},
        Fault{"ForeignOperator",
              "<ir_version: 8, opset_import: [\"\" : 17, \"own\" : 1]>\n"
              "g (float[4] x) => (float[4] y) { y = own.Cap (x) }",
              {"note operator_without_body [Cap node 'y'] own.Cap has no function in the model (1 "
               "node): it runs only where a library with that operator is registered"}}),
    NameOf);

INSTANTIATE_TEST_SUITE_P(
    Imports, Lints,
    testing::Values(
        Fault{"Missing",
              Header() + "g (float[1,4] x) => (float[1,4] y) "
                         "{ a = com.microsoft.QuickGelu (x)  y = com.microsoft.QuickGelu (a) }",
              {"error missing_opset_import [QuickGelu node 'a'] domain 'com.microsoft' is used (2 "
               "nodes) but not imported"}},
        Fault{"MissingInAFunction",
              "<ir_version: 8, opset_import: [\"\" : 17, \"own\" : 1, \"com.microsoft\" : 1]>\n"
              "g (float[1,4] x) => (float[1,4] y) { y = own.Act (x) }\n"
              "<domain: \"own\", opset_import: [\"\" : 17]> Act (x) => (y) "
              "{ [q] y = com.microsoft.QuickGelu (x) }",
              {"error missing_opset_import [QuickGelu node 'q' in function own.Act] domain "
               "'com.microsoft' is used (1 node) but not imported"}},
        Fault{
            "MissingDefaultDomain",
            "<ir_version: 8, opset_import: [\"com.microsoft\" : 1]>\n"
            "g (float[1,4] x) => (float[1,4] y) { y = Neg (x) }",
            {"error missing_opset_import [Neg node 'y'] the default operator set is used (1 node) "
             "but not imported"}},
        Fault{"TwiceTheSame",
              "<ir_version: 8, opset_import: [\"\" : 17, \"ai.onnx\" : 17]>\n"
              "g (float[4] x) => (float[4] y) { y = Neg (x) }",
              {"warning duplicate_opset_import [] the default operator set is imported twice, as "
               "version 17 and 17"}},
        Fault{"TwoVersions",
              "<ir_version: 8, opset_import: [\"\" : 17, \"\" : 13]>\n"
              "g (float[4] x) => (float[4] y) { y = Neg (x) }",
              {"error duplicate_opset_import [] the default operator set is imported twice, as "
               "version 17 and 13"}},
        Fault{"BodyOfAnotherOpset",
              "<ir_version: 8, opset_import: [\"\" : 17, \"own\" : 1]>\n"
              "g (float[2,4] x) => (float[2,1] y) { y = own.Mean (x) }\n"
              "<domain: \"own\", opset_import: [\"\" : 18]> Mean (x) => (y) "
              "{ a = Constant <value_ints = [-1]> ()  y = ReduceMean (x, a) }",
              {"error function_opset [function own.Mean] its ReduceMean is that of version 18 of "
               "the default operator set, which has another meaning at version 17 of the model"}},
        Fault{"BodyOfAnotherOpsetThatMeansTheSame",
              "<ir_version: 8, opset_import: [\"\" : 17, \"own\" : 1]>\n"
              "g (float[2,4] x) => (float[2,4] y) { y = own.Act (x) }\n"
              "<domain: \"own\", opset_import: [\"\" : 18]> Act (x) => (y) { y = Neg (x) }",
              {}}),
    NameOf);

INSTANTIATE_TEST_SUITE_P(
    Names, Lints,
    testing::Values(
        Fault{"NodesOfOneName",
              Header() +
                  "g (float[4] x) => (float[4] y) { [n] a = Neg (x)  [n] b = Neg (a)  [n] y = "
                  "Neg (b) }",
              {"warning duplicate_node_name [Neg node 'n'] the name 'n' is that of an earlier node "
               "as well"}},
        Fault{"ValueTwice",
              Header() + "g (float[4] x) => (float[4] y) { y = Neg (x)  [second] y = Abs (x) }",
              {"error duplicate_value [Abs node 'second'] the value 'y' is defined twice"}},
        Fault{"InitializerTwice",
              Header() +
                  "g (float[1] x) => (float[1] y) <float[1] w = {1}, float[1] w = {2}> { y = "
                  "Mul (x, w) }",
              {"error duplicate_value [initializer 'w'] the initializer 'w' stands twice"}},
        Fault{"Shadowed",
              Header() + "g (float[4] x, bool c) => (float[4] y) { a = Neg (x) "
                         "  y = If (c) < then_branch = yes () => (float[4] t) { a = Abs (x)  t = "
                         "Neg (a) }, else_branch = no () => (float[4] e) { e = Neg (a) } > }",
              {"warning shadowed_value [Abs node 'a' in then_branch of If node 'y'] the value 'a' "
               "has the name of a value around the body"}},
        Fault{"UnusedInitializer",
              Header() + "g (float[1] x) => (float[1] y) <float[1] w = {1}> { y = Neg (x) }",
              {"note unused_initializer [initializer 'w'] nothing uses the initializer 'w'"}},
        Fault{"InitializerUsedInABodyOnly",
              Header() + "g (float[1] x, bool c) => (float[1] y) <float[1] w = {1}> "
                         "{ y = If (c) < then_branch = yes () => (float[1] t) { t = Mul (x, w) }, "
                         "else_branch = no () => (float[1] e) { e = Neg (x) } > }",
              {}},
        Fault{"UndefinedValue",
              Header() + "g (float[4] x) => (float[4] y) { y = Add (x, lost) }",
              {"error undefined_value [Add node 'y'] Add node 'y' uses 'lost', which is not "
               "defined"}},
        Fault{"UndefinedOutput",
              Header() + "g (float[4] x) => (float[4] y, float[4] z) { y = Neg (x) }",
              {"error undefined_output [graph output 'z'] graph output 'z' is not defined"}},
        Fault{"OutOfOrder",
              Header() + "g (float[4] x) => (float[4] y) { y = Neg (b)  b = Neg (a)  a = Neg (x) }",
              {"warning node_order [Neg node 'y'] it uses 'b', which is computed behind it (and 1 "
               "more such nodes)"}},
        Fault{"BodyInFrontOfWhatItUses",
              Header() + "g (float[4] x, bool c) => (float[4] y) "
                         "{ y = If (c) < then_branch = yes () => (float[4] t) { t = Neg (a) }, "
                         "else_branch = no () => (float[4] e) { e = Neg (x) } >  a = Abs (x) }",
              {"warning node_order [Neg node 't' in then_branch of If node 'y'] it uses 'a', which "
               "is computed behind it"}}),
    NameOf);

INSTANTIATE_TEST_SUITE_P(
    Functions, Lints,
    testing::Values(
        Fault{"Unused",
              "<ir_version: 8, opset_import: [\"\" : 17, \"own\" : 1]>\n"
              "g (float[4] x) => (float[4] y) { y = Neg (x) }\n"
              "<domain: \"own\", opset_import: [\"\" : 17]> Act (x) => (y) { y = Neg (x) }",
              {"note unused_function [function own.Act] nothing calls the function"}},
        Fault{"TooManyInputs",
              "<ir_version: 8, opset_import: [\"\" : 17, \"own\" : 1]>\n"
              "g (float[4] x) => (float[4] y) { [call] y = own.Act (x, x) }\n"
              "<domain: \"own\", opset_import: [\"\" : 17]> Act (x) => (y) { y = Neg (x) }",
              {"error call_signature [Act node 'call'] Act node 'call' has more inputs or outputs "
               "than the function it calls"}},
        Fault{
            "AttributeMissingAndTooMany",
            "<ir_version: 8, opset_import: [\"\" : 17, \"own\" : 1]>\n"
            "g (float[4] x) => (float[4] y) { [call] y = own.Act <beta = 1.0> (x) }\n"
            "<domain: \"own\", opset_import: [\"\" : 17]> Act <alpha> (x) => (y) "
            "{ y = LeakyRelu <alpha: float = @alpha> (x) }",
            {"error call_signature [Act node 'call'] Act node 'call' sets attribute 'beta', which "
             "the function it calls does not have",
             "error call_signature [Act node 'call'] Act node 'call' does not set attribute "
             "'alpha' of the function it calls"}},
        Fault{"AttributeThatNoFunctionHas",
              "<ir_version: 8, opset_import: [\"\" : 17, \"own\" : 1]>\n"
              "g (float[4] x) => (float[4] y) { y = own.Act (x) }\n"
              "<domain: \"own\", opset_import: [\"\" : 17]> Act (x) => (y) "
              "{ [l] y = LeakyRelu <alpha: float = @slope> (x) }",
              {"error attribute_reference [LeakyRelu node 'l' in function own.Act] LeakyRelu node "
               "'l' takes 'alpha' from the attribute 'slope', which no function around it has"}},
        Fault{"OutputNotProduced",
              "<ir_version: 8, opset_import: [\"\" : 17, \"own\" : 1]>\n"
              "g (float[4] x) => (float[4] y) { y = own.Act (x) }\n"
              "<domain: \"own\", opset_import: [\"\" : 17]> Act (x) => (y) { z = Neg (x) }",
              {"error undefined_output [function own.Act] output 'y' of function own.Act is not "
               "defined"}},
        Fault{"OldIrVersion",
              "<ir_version: 7, opset_import: [\"\" : 17, \"own\" : 1]>\n"
              "g (float[4] x) => (float[4] y) { y = own.Act (x) }\n"
              "<domain: \"own\", opset_import: [\"\" : 17]> Act (x) => (y) { y = Neg (x) }",
              {"error ir_version [] local functions need IR version 8"}}),
    NameOf);

// --- Patched models -------------------------------------------------------------------------------

// The patched norm with one thing changed.
struct Change {
  std::string name;
  std::function<void(onnx::ModelProto&)> apply;
  std::vector<std::string> findings;
};

void PrintTo(const Change& change, std::ostream* out) { *out << change.name; }

class PatchedModel : public testing::TestWithParam<Change> {};

TEST_P(PatchedModel, Change) {
  onnx::ModelProto model = ModelFromText(kPatched);
  GetParam().apply(model);
  EXPECT_THAT(LintTexts(model), testing::ElementsAreArray(GetParam().findings));
}

onnx::NodeProto& Call(onnx::ModelProto& model) { return *model.mutable_graph()->mutable_node(0); }

onnx::AttributeProto& Attr(onnx::ModelProto& model, const std::string& name) {
  for (onnx::AttributeProto& attribute : *Call(model).mutable_attribute()) {
    if (attribute.name() == name) return attribute;
  }
  ADD_FAILURE() << name;
  return *Call(model).mutable_attribute(0);
}

INSTANTIATE_TEST_SUITE_P(
    Lint, PatchedModel,
    testing::Values(
        Change{
            "BodyLost",
            [](auto& model) { model.clear_functions(); },
            {"warning fused_op_without_body [LigerRMSNorm node 'norm'] LigerRMSNorm has lost its "
             "function body (1 node): the model loads only where libliger_ort.so is registered"}},
        Change{
            "AttributeLost",
            [](auto& model) {
              auto& attributes = *Call(model).mutable_attribute();
              attributes.erase(attributes.begin());
            },
            {"error call_signature [LigerRMSNorm node 'norm'] LigerRMSNorm node 'norm' does not "
             "set attribute 'epsilon' of the function it calls",
             "error fused_op_attribute [LigerRMSNorm node 'norm'] attribute 'epsilon' is not set"}},
        Change{"NegativeEpsilon",
               [](auto& model) { Attr(model, "epsilon").set_f(-1.0F); },
               {"error fused_op_attribute [LigerRMSNorm node 'norm'] attribute 'epsilon' is "
                "negative"}},
        Change{"OffsetOfAnotherKind",
               [](auto& model) {
                 Attr(model, "offset").set_type(onnx::AttributeProto::INT);
                 Attr(model, "offset").set_i(1);
               },
               {"error fused_op_attribute [LigerRMSNorm node 'norm'] attribute 'offset' is no "
                "float"}},
        Change{
            "NoFloatingPointType",
            [](auto& model) { Attr(model, "stash_type").set_i(7); },
            {"error fused_op_attribute [LigerRMSNorm node 'norm'] attribute 'stash_type' is 7, no "
             "floating-point type that the op computes in"}},
        Change{"InputLost",
               [](auto& model) { Call(model).set_input(0, ""); },
               {"error call_signature [LigerRMSNorm node 'norm'] input 'x' is left out"}},
        Change{
            "UnknownOp",
            [](auto& model) {
              Call(model).set_op_type("LigerTomorrow");
              model.clear_functions();
            },
            {"warning fused_op_version [LigerTomorrow node 'norm'] LigerTomorrow is no op of this "
             "version (1 node)"}},
        Change{
            "LaterVersion",
            [](auto& model) { model.mutable_opset_import(1)->set_version(2); },
            {"warning fused_op_version [] domain 'liger' is imported as version 2; its version is "
             "1"}},
        Change{"ImportLost",
               [](auto& model) { model.mutable_opset_import()->RemoveLast(); },
               {"error missing_opset_import [LigerRMSNorm node 'norm'] domain 'liger' is used (1 "
                "node) but not imported"}},
        Change{
            "ConvertedToHalfPrecision",
            [](auto& model) {
              auto& graph = *model.mutable_graph();
              for (auto* value : {graph.mutable_input(0), graph.mutable_output(0)}) {
                value->mutable_type()->mutable_tensor_type()->set_elem_type(
                    onnx::TensorProto::FLOAT16);
              }
              auto& w = *graph.mutable_initializer(0);
              w.clear_float_data();
              w.set_data_type(onnx::TensorProto::FLOAT16);
              w.set_raw_data(std::string(8, '\0'));
              // as the converter's body is left: its constants are f32
            },
            {"error function_types [] the body of 'liger::LigerRMSNorm' computes in f32 where the "
             "operands give f16 (Add): node 'norm' calls it with f16 inputs"}},
        Change{
            "StampWithoutNodes",
            [](auto& model) {
              model.clear_functions();
              model.mutable_opset_import()->RemoveLast();
              Call(model).set_op_type("Mul");
              Call(model).set_domain("");
              Call(model).clear_attribute();
              auto& entry = *model.add_metadata_props();
              entry.set_key("liger.modules");
              entry.set_value("rms_norm,rope");
            },
            {"note stale_stamp [] the metadata says that rms_norm,rope were fused, but the model "
             "has no fused node"}}),
    [](const auto& test) { return test.param.name; });

TEST(Lint, RopeValuesOutsideTheContract) {
  const auto findings = LintTexts(ModelFromText(R"(
<ir_version: 8, opset_import: ["" : 17, "liger" : 1]>
g (float[1,2,3,4] x, float[3,4] c, float[3,4] s) => (float[1,2,3,4] y)
{
  [r] y = liger.LigerRope <interleaved = 2, rotary_dim = -4, rotary_offset = 0, layout = "BDNS",
                           table = "full", stash_type = 1, extra = 1> (x, c, s)
})"));
  EXPECT_THAT(findings, ElementsAre(HasSubstr("'interleaved' is neither 0 nor 1"),
                                    HasSubstr("'rotary_dim' is negative"),
                                    HasSubstr("'layout' is 'BDNS', none of BNSD, BSND, SND"),
                                    HasSubstr("'extra' is none of the op's attributes"),
                                    HasSubstr("fused_op_without_body")));
}

// --- Types ----------------------------------------------------------------------------------------

TEST(Lint, DeclarationsThatCannotBeTrue) {
  EXPECT_THAT(
      LintTexts(ModelFromText(Header() + R"(
g (float[2,4] x) => (float[2,4] y) <float16[2,4] a, float[2,5] b, float[2,4] gone>
{ a = Neg (x)  b = Abs (a)  y = Neg (b) })")),
      ElementsAre(HasSubstr("note stale_value_info [value_info 'gone'] it describes a value "
                            "that does not exist"),
                  "note declared_type [value 'a'] it is declared as FLOAT16[2,4], but "
                  "computed as FLOAT[2,4]",
                  "note declared_type [value 'b'] it is declared as FLOAT[2,5], but computed "
                  "as FLOAT[2,4]"));
}

TEST(Lint, AnOutputOfAnotherTypeIsMoreThanANote) {
  EXPECT_THAT(
      LintTexts(ModelFromText(Header() + "g (float[4] x) => (float16[4] y) { y = Neg (x) }")),
      Contains("warning declared_type [graph output 'y'] it is declared as FLOAT16[4], but "
               "computed as FLOAT[4]"));
}

TEST(Lint, OperandsThatDoNotFit) {
  EXPECT_THAT(LintTexts(ModelFromText(
                  Header() + "g (float[4] x, float16[4] z) => (float[4] y) { [sum] y = Add "
                             "(x, z) }")),
              ElementsAre(AllOf(HasSubstr("warning type_inference"), HasSubstr("sum"))));
}

TEST(Lint, TheCheckerHasTheLastWord) {
  onnx::ModelProto model =
      ModelFromText(Header() + "g (float[4] x) => (float[4] y) { y = Neg (x) }");
  model.mutable_graph()->clear_name();
  EXPECT_THAT(LintTexts(model),
              ElementsAre(HasSubstr("error onnx_checker [] ONNX's checker refuses")));
}

TEST(Lint, ACycle) {
  EXPECT_THAT(
      LintTexts(ModelFromText(Header() + "g (float[4] x) => (float[4] y) { a = Add (x, b)  b = "
                                         "Neg (a)  y = Neg (b) }")),
      ElementsAre(HasSubstr("error cycle"), HasSubstr("warning node_order")));
}

TEST(Lint, AFunctionThatCallsItself) {
  EXPECT_THAT(LintTexts(ModelFromText(
                  "<ir_version: 8, opset_import: [\"\" : 17, \"own\" : 1]>\n"
                  "g (float[4] x) => (float[4] y) { y = own.Act (x) }\n"
                  "<domain: \"own\", opset_import: [\"\" : 17, \"own\" : 1]> Act (x) => (y) { y = "
                  "own.Act (x) }")),
              ElementsAre(HasSubstr("error recursive_function")));
}

TEST(Lint, AFunctionTwice) {
  onnx::ModelProto model = ModelFromText(kPatched);
  *model.add_functions() = model.functions(0);
  EXPECT_THAT(LintTexts(model), Contains(HasSubstr("error duplicate_function [function "
                                                   "liger.LigerRMSNorm]")));
}

// --- Data files -----------------------------------------------------------------------------------

class ExternalLint : public testing::Test {
 protected:
  ExternalLint() {
    model_ = ModelFromText(Header() + R"(
g (float[N,4] x) => (float[N,4] y) <float[4] w = {1, 2, 3, 4}, float[4] b = {1, 2, 3, 4}>
{ a = Mul (x, w)  y = Add (a, b) })");
    Store(0, "model.onnx.data", "0", "16");
    Store(1, "model.onnx.data", "16", "16");
    WriteFile(folder_ / "model.onnx.data", std::string(32, '\0'));
  }

  void Store(int tensor, const std::string& location, const std::string& offset,
             const std::string& length) {
    MakeExternal(*model_.mutable_graph()->mutable_initializer(tensor), location, {4}, offset,
                 length);
  }

  std::vector<LintFinding> Run() {
    WriteFile(folder_ / "model.onnx", model_.SerializeAsString());
    return Lint(model_, {ModelFolder::Of(folder_ / "model.onnx"), folder_ / "model.onnx"});
  }

  std::vector<std::string> Texts() {
    std::vector<std::string> texts;
    for (const LintFinding& finding : Run()) texts.push_back(Text(finding));
    return texts;
  }

  TemporaryFolder folder_;
  onnx::ModelProto model_;
};

TEST_F(ExternalLint, NothingToSay) { EXPECT_THAT(Texts(), IsEmpty()); }

TEST_F(ExternalLint, SharedBytesAreFine) {
  Store(1, "model.onnx.data", "0", "16");
  EXPECT_THAT(Texts(), IsEmpty());
}

TEST_F(ExternalLint, AMissingFileIsNamedOnceWithTheOneThatItMayBe) {
  fs::rename(folder_ / "model.onnx.data", folder_ / "old_name.onnx.data");
  const auto findings = Run();
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_THAT(Text(findings[0]),
              AllOf(HasSubstr("error external_data [file 'model.onnx.data'] tensor 'w' (and 1 more "
                              "tensor there)"),
                    HasSubstr("a file that is not in")));
  EXPECT_THAT(findings[0].hint, HasSubstr("'old_name.onnx.data' is large enough to be it under "
                                          "another name"));
}

TEST_F(ExternalLint, TooSmallAFileIsNoCandidate) {
  fs::rename(folder_ / "model.onnx.data", folder_ / "old_name.onnx.data");
  fs::resize_file(folder_ / "old_name.onnx.data", 31);
  EXPECT_THAT(Run()[0].hint, testing::Not(HasSubstr("old_name")));
}

TEST_F(ExternalLint, EachTensorThatDoesNotFit) {
  fs::resize_file(folder_ / "model.onnx.data", 15);
  EXPECT_THAT(Texts(), ElementsAre(HasSubstr("tensor 'w' needs bytes 0 to 16"),
                                   HasSubstr("tensor 'b' needs bytes 16 to 32")));
}

TEST_F(ExternalLint, OutsideOfTheFolder) {
  Store(0, "../other.data", "0", "16");
  Store(1, "/other.data", "0", "16");
  EXPECT_THAT(Texts(), Contains(HasSubstr("which leads out of the model's folder")));
  EXPECT_THAT(Texts(), Contains(HasSubstr("an absolute path")));
}

TEST_F(ExternalLint, ALinkThatLeadsOut) {
  const TemporaryFolder elsewhere;
  WriteFile(elsewhere / "blob", std::string(32, '\0'));
  fs::remove(folder_ / "model.onnx.data");
  fs::create_symlink(elsewhere / "blob", folder_ / "model.onnx.data");
  EXPECT_THAT(Texts(), ElementsAre(AllOf(HasSubstr("error external_data"), HasSubstr("a link to"),
                                         HasSubstr("outside the model's folder"))));
}

TEST_F(ExternalLint, OverlappingRanges) {
  Store(1, "./model.onnx.data", "8", "16");
  EXPECT_THAT(Texts(),
              ElementsAre("warning overlapping_data [initializer 'b'] its bytes 8 to 24 of "
                          "'model.onnx.data' overlap with those of 'w' (0 to 16)"));
}

TEST_F(ExternalLint, UnalignedOffsets) {
  WriteFile(folder_ / "model.onnx.data", std::string(33, '\0'));
  Store(1, "model.onnx.data", "17", "16");
  EXPECT_THAT(Texts(), ElementsAre(HasSubstr("note unaligned_data [initializer 'b'] it starts in "
                                             "'model.onnx.data' at an offset")));
}

TEST_F(ExternalLint, DataThatTheModelDoesNotUse) {
  WriteFile(folder_ / "model.onnx_data", "12345");
  for (const char* name : {"readme.md", "tokenizer.data", "model_old.onnx.data",
                           "model.onnx.database", "model.onnxdata"}) {
    WriteFile(folder_ / name, "");
  }
  EXPECT_THAT(Texts(), ElementsAre("warning unreferenced_data_file [file 'model.onnx_data'] it is "
                                   "named like data of this model, which has no tensor in it (5 "
                                   "bytes)"));
}

TEST_F(ExternalLint, DataOfANumberedKind) {
  Store(0, "weights_00.bin", "0", "16");
  Store(1, "weights_01.bin", "0", "16");
  fs::remove(folder_ / "model.onnx.data");
  for (const char* name : {"weights_00.bin", "weights_01.bin", "weights_02.bin"}) {
    WriteFile(folder_ / name, std::string(16, '\0'));
  }
  EXPECT_THAT(Texts(), ElementsAre(HasSubstr("[file 'weights_02.bin']")));
}

TEST_F(ExternalLint, DataOfAnotherModelOfTheFolder) {
  WriteFile(folder_ / "model_fp16.onnx", "");
  WriteFile(folder_ / "model_fp16.onnx_data", "");
  EXPECT_THAT(Texts(), IsEmpty());
  WriteFile(folder_ / "model_data", "");
  EXPECT_THAT(Texts(), ElementsAre(HasSubstr("note unreferenced_data_file [file 'model_data']")));
}

TEST_F(ExternalLint, NoPayloadIsRead) {
  fs::permissions(folder_.path(), fs::perms::all);
  fs::permissions(folder_ / "model.onnx.data", fs::perms::none);
  const Unprivileged user;
  EXPECT_THAT(Texts(), IsEmpty());
}

// --- The list of rules ----------------------------------------------------------------------------

TEST(Lint, ManyOfAKindAreCounted) {
  onnx::ModelProto model =
      ModelFromText(Header() + "g (float[4] x) => (float[4] y) { y = Neg (x) }");
  for (int i = 0; i < 1000; ++i) {
    onnx::TensorProto& tensor = *model.mutable_graph()->add_initializer();
    tensor.set_name("w" + std::to_string(i));
    tensor.set_data_type(onnx::TensorProto::FLOAT);
    tensor.add_float_data(1);
  }
  const auto texts = LintTexts(model);
  ASSERT_THAT(texts, SizeIs(51));
  EXPECT_EQ(texts.back(), "note unused_initializer [] and 950 more of this kind");
}

TEST(Lint, DocumentationListsEveryRule) {
  std::ifstream file(LIGER_LINT_PAGE);
  const std::string page{std::istreambuf_iterator<char>(file), {}};
  std::set<std::string> documented;
  for (size_t at = page.find("\n| `"); at != std::string::npos; at = page.find("\n| `", at + 1)) {
    documented.insert(page.substr(at + 4, page.find('`', at + 4) - at - 4));
  }
  std::set<std::string> rules;
  for (const std::string_view rule : LintRules()) rules.emplace(rule);
  EXPECT_EQ(documented, rules);
}

}  // namespace
}  // namespace liger
