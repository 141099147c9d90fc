// What ParseUserMap says about faulty maps: every fault with its place, and nothing that follows
// from another one.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "model/text_check.h"
#include "patchmap/user_map.h"

namespace liger {
namespace {

using testing::ElementsAreArray;

constexpr std::string_view kSoftCap = R"(SoftCap <cap> (x) => (y) {
  c = Constant <value_float: float = @cap> ()
  d = Div (x, c)
  t = Tanh (d)
  y = Mul (t, c)
})";

// Stands in messages for the newest opset that the ONNX in use knows.
constexpr std::string_view kNewest = "NEWEST";

std::string Indented(std::string_view text, size_t columns) {
  std::string result;
  bool at_start = true;
  for (const char c : text) {
    if (at_start && c != '\n') result += std::string(columns, ' ');
    result += c;
    at_start = c == '\n';
  }
  return result;
}

// Behind the head of a map that is fine.
std::string Rest(std::string_view text) {
  return "schema_version: 1\nfamily: mine\n" + std::string(text);
}

// Entries of one module; they begin in line 5, column 7.
std::string Entries(std::string_view text) { return Rest("modules:\n  m:\n" + Indented(text, 4)); }

// An entry with this text, which begins in line 6, column 9, and more of the entry behind it.
std::string Text(std::string_view text, std::string_view more = "") {
  return Entries("- match: |\n" + Indented(text, 4) + "\n  op: my.ops.SoftCap\n" +
                 Indented(more, 2));
}

// The same with one edit to a text that is fine.
std::string Edited(std::string_view from, std::string_view to, std::string_view more = "") {
  std::string text(kSoftCap);
  for (size_t at = text.find(from); !from.empty() && at != std::string::npos;
       at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
  }
  return Text(text, more);
}

std::string OwnOp(std::string_view op) {
  return Entries("- match: |\n" + Indented(kSoftCap, 4) + "\n  op: " + std::string(op) + "\n");
}

// "line:column: message" of each fault.
std::vector<std::string> Faults(const Error& error) {
  constexpr size_t kFile = std::string_view("m.yaml:").size();
  std::vector<std::string> faults = {error.location.substr(kFile) + ": " + error.message};
  for (const Error& other : error.others) {
    faults.push_back(other.location.substr(kFile) + ": " + other.message);
  }
  return faults;
}

struct BadMap {
  const char* name;
  std::string text;
  std::vector<std::string> faults;
};

std::string NameOf(const testing::TestParamInfo<BadMap>& info) { return info.param.name; }

class ParseUserMapRefuses : public testing::TestWithParam<BadMap> {};

TEST_P(ParseUserMapRefuses, WithPlaceAndReason) {
  const Result<UserMap> map = ParseUserMap("m.yaml", GetParam().text);
  ASSERT_FALSE(map) << GetParam().text;
  EXPECT_EQ(map.error().code, ErrorCode::kUsage);
  std::vector<std::string> expected = GetParam().faults;
  for (std::string& fault : expected) {
    if (const size_t at = fault.find(kNewest); at != std::string::npos) {
      fault.replace(at, kNewest.size(), std::to_string(NewestOpset()));
    }
  }
  EXPECT_THAT(Faults(map.error()), ElementsAreArray(expected)) << GetParam().text;
}

INSTANTIATE_TEST_SUITE_P(
    Maps, ParseUserMapRefuses,
    testing::Values(
        BadMap{"Empty", "", {"1:1: the file is empty"}},
        BadMap{"NoMap", "- class: A\n", {"1:1: the patch map has to be a map of keys and values"}},
        BadMap{"NoYaml",
               "schema_version: 1\nfamily: [mine\n",
               {"3:1: not valid YAML: end of sequence flow not found"}},
        BadMap{"TwoDocuments",
               "schema_version: 1\n---\nfamily: mine\n",
               {"3:1: a second YAML document; one file holds one map"}},
        BadMap{"Nothing",
               "{}\n",
               {"1:1: the patch map lacks the key 'schema_version'",
                "1:1: the patch map lacks the key 'family'",
                "1:1: the patch map lacks the key 'modules'"}},
        BadMap{"OtherVersion",
               "schema_version: 2\nfamily: mine\nmodules: {m: [{class: A, op: LigerRope}]}\n",
               {"1:17: schema_version is 2, this program reads 1"}},
        BadMap{"VersionIsNoNumber",
               "schema_version: one\nfamily: mine\nmodules: {m: [{class: A, op: LigerRope}]}\n",
               {"1:17: schema_version has to be an integer"}},
        BadMap{"FamilyInCapitals",
               "schema_version: 1\nfamily: MyModel\nmodules: {m: [{class: A, op: LigerRope}]}\n",
               {"2:9: family 'MyModel' has to be lower-case letters, digits and underscores, and "
                "not the word any"}},
        BadMap{"FamilyAny",
               "schema_version: 1\nfamily: any\nmodules: {m: [{class: A, op: LigerRope}]}\n",
               {"2:9: family 'any' has to be lower-case letters, digits and underscores, and not "
                "the word any"}},
        BadMap{"FamilyIsAList",
               "schema_version: 1\nfamily: [mine]\nmodules: {m: [{class: A, op: LigerRope}]}\n",
               {"2:9: family has to be a word"}},
        BadMap{"ExtendsTwo",
               Rest("extends: llama, qwen2\nmodules: {m: [{class: A, op: LigerRope}]}\n"),
               {"3:10: extends 'llama, qwen2' is not the name of a family"}},
        BadMap{"ExtendsAny",
               Rest("extends: any\nmodules: {m: [{class: A, op: LigerRope}]}\n"),
               {"3:10: extends 'any' is not the name of a family"}},
        BadMap{"MistypedKey",
               Rest("module: {m: [{class: A, op: LigerRope}]}\n"),
               {"3:1: unknown key 'module' in the patch map"}},
        BadMap{"KeyOfAFamilyFile",
               Rest("defaults: {rope: on}\nmodules: {m: [{class: A, op: LigerRope}]}\n"),
               {"3:1: unknown key 'defaults' in the patch map"}},
        BadMap{"DuplicateKey",
               Rest("family: yours\nmodules: {m: [{class: A, op: LigerRope}]}\n"),
               {"3:1: key 'family' stands twice in the patch map, first in line 2"}},
        BadMap{"ModulesEmpty", Rest("modules: {}\n"), {"3:10: modules names no module"}},
        BadMap{"ModulesWithoutValue",
               Rest("modules:\n"),
               {"3:1: modules has to be a map of keys and values"}},
        BadMap{"ModulesIsAList",
               Rest("modules: [rope]\n"),
               {"3:10: modules has to be a map of keys and values"}},
        BadMap{"ModuleIsAMap",
               Rest("modules:\n  rope: {class: A, op: LigerRope}\n"),
               {"4:9: module 'rope' has to be a list of entries"}},
        BadMap{"ModuleIsEmpty",
               Rest("modules:\n  rope: []\n"),
               {"4:9: module 'rope' has to be a list of entries"}},
        BadMap{"ModuleWithoutValue",
               Rest("modules:\n  rope:\n"),
               {"4:3: module 'rope' has to be a list of entries"}},
        BadMap{"ModuleTwice",
               Rest("modules:\n  rope: [{class: A, op: LigerRope}]\n  rope: [{class: B, op: "
                    "LigerRope}]\n"),
               {"5:3: key 'rope' stands twice in modules, first in line 4"}},
        BadMap{"ModuleNamedNone",
               Rest("modules:\n  none: [{class: A, op: LigerRope}]\n"),
               {"4:3: 'none' cannot be the name of a module"}},
        BadMap{"ModuleWithSpace",
               Rest("modules:\n  my norm: [{class: A, op: LigerRope}]\n"),
               {"4:3: 'my norm' cannot be the name of a module"}},
        BadMap{"Anchor",
               "schema_version: 1\nfamily: &f mine\nmodules: {m: [{class: A, op: LigerRope}]}\n",
               {"2:9: anchors (&name) are not supported"}}),
    NameOf);

INSTANTIATE_TEST_SUITE_P(
    Entries, ParseUserMapRefuses,
    testing::Values(
        BadMap{"EntryIsAWord",
               Entries("- LigerRMSNorm\n"),
               {"5:7: an entry of m has to be a map of keys and values"}},
        BadMap{"EntryIsEmpty",
               Entries("- {}\n"),
               {"5:7: an entry of m names none of class, function, scope and match",
                "5:7: an entry of m lacks the key 'op'"}},
        BadMap{"NoSymbol",
               Entries("- op: LigerRMSNorm\n"),
               {"5:7: an entry of m names none of class, function, scope and match"}},
        BadMap{"NoOp", Entries("- class: A\n"), {"5:7: an entry of m lacks the key 'op'"}},
        BadMap{"MistypedSymbol",
               Entries("- klass: A\n  op: LigerRMSNorm\n"),
               {"5:7: unknown key 'klass' in an entry of m"}},
        BadMap{"MistypedOp",
               Entries("- class: A\n  ops: LigerRMSNorm\n"),
               {"6:7: unknown key 'ops' in an entry of m"}},
        BadMap{"UnknownKey",
               Entries("- class: A\n  op: LigerRMSNorm\n  epsilon: 1e-6\n"),
               {"7:7: unknown key 'epsilon' in an entry of m"}},
        BadMap{"KeyTwice",
               Entries("- class: A\n  class: B\n  op: LigerRMSNorm\n"),
               {"6:7: key 'class' stands twice in an entry of m, first in line 5"}},
        BadMap{"TwoSymbols",
               Entries("- class: A\n  scope: \"model.norm\"\n  op: LigerRMSNorm\n"),
               {"5:7: an entry of m has class, scope; an entry has one of them alone"}},
        BadMap{"ThreeSymbols",
               Entries("- class: A\n  function: b\n  match: c\n  op: my.ops.C\n"),
               {"5:7: an entry of m has class, function, match; an entry has one of them alone"}},
        BadMap{"ClassIsAList",
               Entries("- class: [A, B]\n  op: LigerRMSNorm\n"),
               {"5:14: class has to be a word"}},
        BadMap{"ClassWithoutValue",
               Entries("- class:\n  op: LigerRMSNorm\n"),
               {"5:7: class has to be a word"}},
        BadMap{"ClassIsAGlob",
               Entries("- class: pkg.*Norm\n  op: LigerRMSNorm\n"),
               {"5:14: 'pkg.*Norm' is not the name of a class"}},
        BadMap{"ClassWithSpace",
               Entries("- class: pkg.My Norm\n  op: LigerRMSNorm\n"),
               {"5:14: 'pkg.My Norm' is not the name of a class"}},
        BadMap{"ClassEndsWithPoint",
               Entries("- class: pkg.Norm.\n  op: LigerRMSNorm\n"),
               {"5:14: 'pkg.Norm.' is not the name of a class"}},
        BadMap{"FunctionWithTwoDomains",
               Entries("- function: a::b::c\n  op: LigerRMSNorm\n"),
               {"5:17: 'a::b::c' is not the name of a function"}},
        BadMap{"FunctionWithoutName",
               Entries("- function: \"a::\"\n  op: LigerRMSNorm\n"),
               {"5:17: 'a::' is not the name of a function"}},
        BadMap{"ScopeWithSlashes",
               Entries("- scope: /model/layers.*/norm\n  op: LigerRMSNorm\n"),
               {"5:14: '/model/layers.*/norm' is not a glob over module paths"}},
        BadMap{"ScopeWithEmptySegment",
               Entries("- scope: model..norm\n  op: LigerRMSNorm\n"),
               {"5:14: 'model..norm' is not a glob over module paths"}},
        BadMap{"ScopeBeginsWithStar",
               Entries("- scope: *.norm\n  op: LigerRMSNorm\n"),
               {"5:14: not valid YAML: the referenced anchor is not defined"}},
        BadMap{"SameEntryTwice",
               Entries("- class: A\n  op: LigerRMSNorm\n- class: A\n  op: LigerRMSNormForGemma\n"),
               {"7:7: class 'A' with LigerRMSNorm stands twice, first in line 5"}},
        BadMap{"UnknownOp",
               Entries("- class: A\n  op: LigerRMSNrom\n"),
               {"6:11: unknown op 'LigerRMSNrom'"}},
        BadMap{"UnknownOpWithDomain",
               Entries("- class: A\n  op: liger.LigerNothing\n"),
               {"6:11: unknown op 'liger.LigerNothing'"}},
        BadMap{"OpWithoutPrefix",
               Entries("- class: A\n  op: RMSNorm\n"),
               {"6:11: unknown op 'RMSNorm'"}},
        BadMap{"OpIsAPythonPath",
               Entries("- class: A\n  op: liger_kernel.transformers.LigerRMSNormForGemma\n"),
               {"6:11: 'liger_kernel.transformers.LigerRMSNormForGemma' is not an op"}},
        BadMap{"OpWithColons",
               Entries("- class: A\n  op: liger::LigerRMSNorm\n"),
               {"6:11: 'liger::LigerRMSNorm' is not the name of an op"}},
        BadMap{"OpIsANumber",
               Entries("- class: A\n  op: 5\n"),
               {"6:11: '5' is not the name of an op"}},
        BadMap{"OpIsAMap",
               Entries("- class: A\n  op: {domain: liger}\n"),
               {"6:11: op has to be a word"}},
        BadMap{"OpOfOnnxRuntime",
               Entries("- class: A\n  op: com.microsoft.SkipLayerNormalization\n"),
               {"6:11: 'com.microsoft.SkipLayerNormalization' is not a fused op of this program"}},
        BadMap{"OpOfOwnDomain",
               Entries("- scope: model.cap\n  op: my.ops.SoftCap\n"),
               {"6:11: 'my.ops.SoftCap' is of a domain of your own, and scope takes the ops of "
                "this program"}},
        BadMap{"FusedLinearCrossEntropy",
               Entries("- class: pkg.Head\n  op: FusedLinearCrossEntropy\n"),
               {"6:11: 'FusedLinearCrossEntropy' cannot be asked for by class: it spans modules "
                "(the language-model head and the loss behind it), so that no class, function or "
                "scope holds it; and no loss is fused in this version"}},
        BadMap{"FusedLinearCrossEntropyLoss",
               Entries("- function: loss\n  op: LigerFusedLinearCrossEntropyLoss\n"),
               {"6:11: 'LigerFusedLinearCrossEntropyLoss' cannot be asked for by function: it "
                "spans modules (the language-model head and the loss behind it), so that no class, "
                "function or scope holds it; and no loss is fused in this version"}},
        BadMap{"CrossEntropy",
               Entries("- scope: loss\n  op: LigerCrossEntropyLoss\n"),
               {"6:11: 'LigerCrossEntropyLoss' cannot be asked for by scope: no loss is fused in "
                "this version; losses stay in the graph as they are"}},
        BadMap{"Experts",
               Entries("- class: pkg.Experts\n  op: LigerExperts\n"),
               {"6:11: 'LigerExperts' cannot be asked for by class: it holds the routing and the "
                "matrix products of all experts, for which there is no fused op; the gated product "
                "inside is LigerSwiGLU"}},
        BadMap{"DynamicTanh",
               Entries("- class: pkg.DyT\n  op: liger.LigerDyT\n"),
               {"6:11: 'liger.LigerDyT' cannot be asked for by class: there is no fused op for it; "
                "a pattern of your own (match, with an op of your own domain) can describe it"}},
        BadMap{"ExpectIsAWord",
               Entries("- class: A\n  op: LigerRMSNorm\n  expect: many\n"),
               {"7:15: expect has to be a number of instances, as 65 or \">=65\""}},
        BadMap{"ExpectIsNegative",
               Entries("- class: A\n  op: LigerRMSNorm\n  expect: -1\n"),
               {"7:15: expect has to be a number of instances, as 65 or \">=65\""}},
        BadMap{"ExpectHasOtherSign",
               Entries("- class: A\n  op: LigerRMSNorm\n  expect: \"<=3\"\n"),
               {"7:15: expect has to be a number of instances, as 65 or \">=65\""}},
        BadMap{"ExpectWithoutQuotes",
               Entries("- class: A\n  op: LigerRMSNorm\n  expect: >=3\n"),
               {"7:16: not valid YAML: unexpected character in block scalar"}},
        BadMap{"ExpectIsHuge",
               Entries("- class: A\n  op: LigerRMSNorm\n  expect: 99999999999999999999\n"),
               {"7:15: expect has to be a number of instances, as 65 or \">=65\""}},
        BadMap{"ExpectIsAList",
               Entries("- class: A\n  op: LigerRMSNorm\n  expect: [3]\n"),
               {"7:15: expect has to be a number of instances, as 65 or \">=65\""}},
        BadMap{"OptionalIsYes",
               Entries("- class: A\n  op: LigerRMSNorm\n  optional: yes\n"),
               {"7:17: optional has to be true or false"}},
        BadMap{"OptionalWithoutValue",
               Entries("- class: A\n  op: LigerRMSNorm\n  optional:\n"),
               {"7:7: optional has to be true or false"}},
        BadMap{"OpsetOfAClass",
               Entries("- class: A\n  op: LigerRMSNorm\n  opset: 13-\n"),
               {"7:14: opset belongs to match, not to class"}},
        BadMap{"TypesOfAScope",
               Entries("- scope: a.b\n  op: LigerRMSNorm\n  types: {x: f32}\n"),
               {"7:14: types belongs to match, not to scope"}}),
    NameOf);

INSTANTIATE_TEST_SUITE_P(
    OwnOps, ParseUserMapRefuses,
    testing::Values(
        BadMap{"OwnOpWithoutDomain",
               OwnOp("SoftCap"),
               {"12:11: the op 'SoftCap' of a pattern has no domain"}},
        BadMap{"OwnOpOfOurDomain",
               OwnOp("liger.SoftCap"),
               {"12:11: a pattern cannot define 'liger.SoftCap', an op of this program"}},
        BadMap{"OwnOpWithOurName",
               OwnOp("LigerRMSNorm"),
               {"12:11: a pattern cannot define 'LigerRMSNorm', an op of this program"}},
        BadMap{"OwnOpOfOnnx",
               OwnOp("ai.onnx.SoftCap"),
               {"12:11: a pattern cannot define 'ai.onnx.SoftCap': ai.onnx is a domain of ONNX and "
                "ONNX Runtime"}},
        BadMap{"OwnOpOfOnnxMl",
               OwnOp("ai.onnx.ml.SoftCap"),
               {"12:11: a pattern cannot define 'ai.onnx.ml.SoftCap': ai.onnx.ml is a domain of "
                "ONNX and ONNX Runtime"}},
        BadMap{"OwnOpOfOnnxRuntime",
               OwnOp("com.microsoft.SoftCap"),
               {"12:11: a pattern cannot define 'com.microsoft.SoftCap': com.microsoft is a domain "
                "of ONNX and ONNX Runtime"}},
        BadMap{"OwnOpWithColons",
               OwnOp("my::SoftCap"),
               {"12:11: 'my::SoftCap' is not the name of an op"}},
        BadMap{"OwnOpWithEmptySegment",
               OwnOp("my..SoftCap"),
               {"12:11: 'my..SoftCap' is not the name of an op"}},
        BadMap{
            "OpsetIsAWord", Edited("", "", "opset: new\n"), {"13:14: 'new' is no range of opsets"}},
        BadMap{"OpsetWithoutFirst",
               Edited("", "", "opset: -17\n"),
               {"13:14: '-17' is no range of opsets"}},
        BadMap{"OpsetIsEmptyRange",
               Edited("", "", "opset: 17-13\n"),
               {"13:14: the range of opsets '17-13' is empty"}},
        BadMap{"OpsetIsZero",
               Edited("", "", "opset: 0-\n"),
               {"13:14: opset 0 does not exist; this program knows 1 to NEWEST"}},
        BadMap{"OpsetOfTheFuture",
               Edited("", "", "opset: 99\n"),
               {"13:14: opset 99 does not exist; this program knows 1 to NEWEST"}},
        BadMap{"TypesOfNoInput",
               Edited("", "", "types: {z: bool}\n"),
               {"13:15: the text has no input 'z'"}},
        BadMap{"TypesEmpty", Edited("", "", "types: {}\n"), {"13:14: types names no input"}},
        BadMap{"TypesIsAList",
               Edited("", "", "types: [x]\n"),
               {"13:14: types has to be a map of keys and values"}},
        BadMap{"TypeIsOfNumpy",
               Edited("", "", "types: {x: float32}\n"),
               {"13:18: 'float32' is no dtype"}},
        BadMap{"TypeIsUnknown",
               Edited("", "", "types: {x: quaternion}\n"),
               {"13:18: 'quaternion' is no dtype"}}),
    NameOf);

INSTANTIATE_TEST_SUITE_P(
    Texts, ParseUserMapRefuses,
    testing::Values(
        BadMap{"TextIsBlank", Text(""), {"5:14: match has to be a function text"}},
        BadMap{"TextIsAWord",
               Text("SoftCap"),
               {"6:16: the text cannot be parsed: '(' is expected, not the end of the text"}},
        BadMap{"ClosingBraceMissing",
               Edited("\n}", ""),
               {"10:25: the text cannot be parsed: '=' is expected, not the end of the text"}},
        BadMap{"ParenthesisMissing",
               Edited("Tanh (d)", "Tanh (d"),
               {"10:11: the text cannot be parsed: ')' is expected, not 'y'"}},
        BadMap{"EqualsMissing",
               Edited("t = Tanh", "t Tanh"),
               {"9:13: the text cannot be parsed: '=' is expected, not 'Tanh'"}},
        BadMap{"NumberTooLarge",
               Edited("Tanh (d)", "LeakyRelu <alpha = 99999999999999999999> (d)"),
               {"9:34: the text cannot be parsed: it holds a number that is too large"}},
        BadMap{"TextGoesOn",
               Edited("\n}", "\n}\nMore (x) => (y) { y = Neg (x) }"),
               {"12:9: the text goes on behind its closing brace"}},
        BadMap{"OtherName",
               Edited("SoftCap", "Softcap"),
               {"6:9: the text defines 'Softcap', but the entry's op is my.ops.SoftCap"}},
        BadMap{"OtherDomain",
               Edited("SoftCap", "<domain: \"other\"> SoftCap"),
               {"6:9: the text is of domain 'other', but the entry's op is my.ops.SoftCap"}},
        BadMap{"CaptureUnused",
               Edited("<cap>", "<cap, scale>"),
               {"6:23: attribute 'scale' is captured and never used"}},
        BadMap{"CaptureUndeclared",
               Edited(" <cap>", ""),
               {"7:47: attribute 'cap' is used and not declared"}},
        BadMap{"CaptureMistyped",
               Edited("@cap", "@cup"),
               {"7:47: attribute 'cup' is used and not declared"}},
        BadMap{"CaptureWithType",
               Edited("<cap>", "<cap: float>"),
               {"6:18: attribute 'cap' has a type or a default value"}},
        BadMap{"CaptureWithDefault",
               Edited("<cap>", "<cap: float = 30.0>"),
               {"6:18: attribute 'cap' has a type or a default value"}},
        BadMap{
            "CaptureTwice", Edited("<cap>", "<cap, cap>"), {"6:18: attribute 'cap' stands twice"}},
        BadMap{"CaptureAsValue",
               Edited("(x, c)", "(x, cap)"),
               {"8:23: attribute 'cap' is used as a value"}},
        BadMap{"CaptureAtOtherOperator",
               Edited("Tanh (d)", "LeakyRelu <alpha: float = @cap> (d)"),
               {"9:42: attribute 'cap' stands at LeakyRelu, where its value cannot be read from a "
                "graph"}},
        BadMap{"InputUnused", Edited("(x)", "(x, z)"), {"6:27: input 'z' is never used"}},
        BadMap{"InputTwice", Edited("(x)", "(x, x)"), {"6:27: input 'x' stands twice"}},
        BadMap{"InputWithType", Edited("(x)", "(float[N] x)"), {"6:33: the text gives 'x' a type"}},
        BadMap{"NoInputs",
               Edited("(x) => (y)", "() => (y)"),
               {"6:9: the text has no inputs", "8:20: value 'x' is neither an input nor computed"}},
        BadMap{
            "OutputNotProduced", Edited("=> (y)", "=> (z)"), {"6:31: output 'z' is not produced"}},
        BadMap{"OutputIsInput", Edited("=> (y)", "=> (x)"), {"6:31: output 'x' is an input"}},
        BadMap{"UsedBeforeComputed",
               Edited("Tanh (d)", "Tanh (y)"),
               {"9:21: value 'y' is used before it is computed"}},
        BadMap{"NeverComputed",
               Edited("Tanh (d)", "Tanh (dd)"),
               {"9:21: value 'dd' is neither an input nor computed"}},
        BadMap{"ComputedTwice",
               Edited("  y =", "  d ="),
               {"6:31: output 'y' is not produced", "10:11: value 'd' is computed twice"}},
        BadMap{"InputComputedAgain",
               Edited("  y =", "  x ="),
               {"6:31: output 'y' is not produced",
                "10:11: value 'x' is an input and computed again"}},
        BadMap{"ComputedAndUnused",
               Edited("  y =", "  z = Neg (t)\n  y ="),
               {"10:11: value 'z' is computed and never used"}},
        BadMap{"UnknownOperator", Edited("Tanh", "Tahn"), {"9:15: 'Tahn' is no ONNX operator"}},
        BadMap{"OperatorTooNew",
               Edited("t = Tanh (d)", "t = CastLike (d, x)", "opset: 13-\n"),
               {"9:15: CastLike does not exist at opset 13"}},
        BadMap{"OperatorTooNewForImport",
               Edited("SoftCap <cap> (x) => (y) {\n",
                      "<opset_import: [\"\" : 13]> SoftCap <cap> (x) => (y) {\n  u = Gelu (x)\n"),
               {"7:11: value 'u' is computed and never used",
                "7:15: Gelu does not exist at opset 13"}},
        BadMap{"OperatorGone",
               Edited("t = Tanh (d)", "t = Scatter (d, d, d)", "opset: 9-12\n"),
               {"7:25: Constant has no attribute 'value_float' at opset 9",
                "9:15: Scatter is deprecated at opset 11"}},
        BadMap{"AttributeMoved",
               Edited("t = Tanh (d)", "t = ReduceMean <axes = [-1]> (d)", "opset: 13-\n"),
               {"9:27: ReduceMean has no attribute 'axes' at opset 18"}},
        BadMap{"AttributeUnknown",
               Edited("Tanh (d)", "LeakyRelu <alhpa = 0.1> (d)"),
               {"9:26: LeakyRelu has no attribute 'alhpa' at opset NEWEST"}},
        BadMap{"AttributeOfOtherType",
               Edited("Tanh (d)", "LeakyRelu <alpha = 1> (d)"),
               {"9:26: attribute 'alpha' of LeakyRelu has to be a float at opset NEWEST"}},
        BadMap{"AttributeMissing",
               Edited("Tanh (d)", "Cast (d)"),
               {"9:15: Cast lacks the attribute 'to' at opset NEWEST"}},
        BadMap{"TooManyInputs",
               Edited("Tanh (d)", "Tanh (d, c)"),
               {"9:15: Tanh takes 1 input at opset NEWEST, not 2"}},
        BadMap{"TooFewInputs",
               Edited("Mul (t, c)", "Mul (t)"),
               {"10:15: Mul takes 2 inputs at opset NEWEST, not 1"}},
        BadMap{"TooManyOutputs",
               Edited("t = Tanh", "t, u = Tanh"),
               {"9:18: Tanh has 1 output at opset NEWEST, not 2"}},
        BadMap{"OperatorOfOtherDomain",
               Edited("Tanh (d)", "com.microsoft.Gelu (d)"),
               {"9:15: the operator com.microsoft.Gelu is of another domain and cannot stand in a "
                "text"}},
        BadMap{"OurOp",
               Edited("Tanh (d)", "liger.LigerSoftmax <stash_type = 1> (d)"),
               {"9:15: the operator liger.LigerSoftmax is a fused op and cannot stand in a text"}},
        BadMap{"ImportOutsideOfRange",
               Edited("SoftCap <cap>", "<opset_import: [\"\" : 11]> SoftCap <cap>", "opset: 13-\n"),
               {"6:10: the text imports opset 11, which is outside of its range"}},
        BadMap{"ImportOfTheFuture",
               Edited("SoftCap <cap>", "<opset_import: [\"\" : 99]> SoftCap <cap>"),
               {"6:10: the text imports opset 99; this program knows 1 to NEWEST"}},
        BadMap{
            "Body",
            Edited("t = Tanh (d)", "t = If <then_branch = g () => (float z) { z = Neg (d) }> (d)"),
            {"9:15: If has a body and cannot stand in a text"}},
        BadMap{"CaptureAtOperatorOfOtherDomain",
               Edited("Tanh (d)", "liger.LigerSoftmax <stash_type: int = @cap> (d)"),
               {"9:15: the operator liger.LigerSoftmax is a fused op and cannot stand in a text",
                "9:54: attribute 'cap' stands at liger.LigerSoftmax, where its value cannot be "
                "read from a graph"}}),
    NameOf);

// Faults of all parts of one file come together, in the order in which they stand.
TEST(ParseUserMap, ReportsAllFaultsOfAFile) {
  const Result<UserMap> map = ParseUserMap("m.yaml", R"(schema_version: 2
famly: mine
modules:
  my norm:
    - klass: A
      op: LigerRMSNrom
      expect: many
    - class: A
      op: my.ops.Norm
      opset: 13-
  soft_cap:
    - match: |
        SoftCap <cap, scale> (x, z) => (y) {
          c = Constant <value_float: float = @cap> ()
          d = Div (x, c)
          t = Tahn (d)
          y = Mul (t, c)
        }
      opset: 12-x
      op: my.ops.Softcap
    - match: |
        SoftCap (x) => (y) {
          y = Tanh (x
        }
      op: SoftCap
      types: {anything: double}
  empty: []
)");
  ASSERT_FALSE(map);
  EXPECT_THAT(Faults(map.error()),
              ElementsAreArray(std::vector<std::string>{
                  "1:17: schema_version is 2, this program reads 1",
                  "2:1: unknown key 'famly' in the patch map",
                  "4:3: 'my norm' cannot be the name of a module",
                  "5:7: unknown key 'klass' in an entry of my norm",
                  "6:11: unknown op 'LigerRMSNrom'",
                  "7:15: expect has to be a number of instances, as 65 or \">=65\"",
                  std::string("9:11: 'my.ops.Norm' is of a domain of your own, and class takes ") +
                      "the ops of this program",
                  "10:14: opset belongs to match, not to class",
                  "13:9: the text defines 'SoftCap', but the entry's op is my.ops.Softcap",
                  "13:23: attribute 'scale' is captured and never used",
                  "13:34: input 'z' is never used",
                  "16:15: 'Tahn' is no ONNX operator",
                  "19:14: '12-x' is no range of opsets",
                  "24:9: the text cannot be parsed: ')' is expected, not '}'",
                  "25:11: the op 'SoftCap' of a pattern has no domain",
                  "26:25: 'double' is no dtype",
                  "27:10: module 'empty' has to be a list of entries",
              }));
  for (const Error& other : map.error().others) {
    EXPECT_EQ(other.code, ErrorCode::kUsage);
    EXPECT_TRUE(other.others.empty());
  }
}

TEST(ParseUserMap, ComparesTheTextsOfOneOp) {
  const auto entry = [](const char* signature, const char* more) {
    return "    - match: |\n        SoftCap " + std::string(signature) +
           " {\n          y = Add (x, z)\n        }\n      op: my.ops.SoftCap\n" +
           Indented(more, 6);
  };
  const auto faults = [](const std::string& entries) {
    const Result<UserMap> map = ParseUserMap("m.yaml", Rest("modules:\n  m:\n" + entries));
    return map ? std::vector<std::string>() : Faults(map.error());
  };
  const std::string first = entry("(x, z) => (y)", "opset: 13-17\n");
  const auto is = [](const std::string& fault) { return std::vector<std::string>{fault}; };
  EXPECT_EQ(faults(first + entry("(x, z) => (y)", "opset: 18-\n")), std::vector<std::string>());
  EXPECT_EQ(faults(first + entry("(x, z) => (y)", "opset: 17-\n")),
            is("11:7: the same text of my.ops.SoftCap stands in line 5 for opsets that overlap "
               "with these"));
  EXPECT_EQ(faults(first + entry("(x, z) => (y)", "")),
            is("11:7: the same text of my.ops.SoftCap stands in line 5 for opsets that overlap "
               "with these"));
  EXPECT_EQ(faults(first + entry("(z, x) => (y)", "opset: 18-\n")),
            is("11:7: the inputs of my.ops.SoftCap are (z, x) here and (x, z) in line 5"));
  EXPECT_EQ(faults(first + entry("(x, z) => (y)", "opset: 18-\ntypes: {z: f32}\n")),
            is("11:7: the types of my.ops.SoftCap are others in line 5"));
  EXPECT_EQ(faults(first + "  other:\n" + entry("(x, z) => (y)", "opset: 18-\n")),
            is("12:7: my.ops.SoftCap stands under other and, in line 5, under m"));
  const std::string other =
      "    - match: |\n"
      "        SoftCap <k> (x, z) => (y, s) {\n"
      "          c = Constant <value_float: float = @k> ()\n"
      "          s = Add (x, z)\n"
      "          y = Mul (s, c)\n"
      "        }\n"
      "      op: my.ops.SoftCap\n";
  EXPECT_THAT(faults(first + other),
              ElementsAreArray({
                  "11:7: the outputs of my.ops.SoftCap are (y, s) here and (y) in line 5",
                  "11:7: the captures of my.ops.SoftCap are (k) here and () in line 5",
              }));
}

// A text may stand in any style of YAML: the place of a fault inside of it is that of the file.
TEST(ParseUserMap, FindsPlacesInEveryStyleOfScalar) {
  const auto place = [](const std::string& scalar) {
    const Result<UserMap> map =
        ParseUserMap("m.yaml", Entries("- op: my.ops.SoftCap\n  match: ") + scalar);
    return map ? std::string("none") : map.error().location + " " + map.error().message;
  };
  const std::string lines =
      "        SoftCap (x) => (y) {\n"
      "          y = Tahn (x)\n"
      "        }\n";
  const std::string why = " 'Tahn' is no ONNX operator";
  EXPECT_EQ(place("|\n" + lines), "m.yaml:8:15" + why);
  EXPECT_EQ(place("|-\n" + lines), "m.yaml:8:15" + why);
  EXPECT_EQ(place("|+\n" + lines + "\n\n"), "m.yaml:8:15" + why);
  EXPECT_EQ(place("|2\n" + lines), "m.yaml:8:15" + why);
  EXPECT_EQ(place("|  # a comment | with marks\n\n\n" + lines), "m.yaml:10:15" + why);
  EXPECT_EQ(place(">\n" + lines), "m.yaml:8:15" + why);
  EXPECT_EQ(place(">-\n\n" + lines), "m.yaml:9:15" + why);
  EXPECT_EQ(place("SoftCap (x) => (y) { y = Tahn (x) }\n"), "m.yaml:6:39" + why);
  EXPECT_EQ(place("SoftCap (x) => (y) {\n          y = Tahn (x) }\n"), "m.yaml:7:15" + why);
  EXPECT_EQ(place("'SoftCap (x) => (y) {\n\n          y = Tahn (x) }'\n"), "m.yaml:8:15" + why);
  EXPECT_EQ(place("\"SoftCap (x) => (y) {\\n  y = Tahn (x) }\"\n"), "m.yaml:6:43" + why);
  EXPECT_EQ(place("\"\\tSoftCap (x) => (\\\"y\\\") { y = Tahn (x) }\"\n"), "m.yaml:6:46" + why);
  EXPECT_EQ(place("\"SoftCap (x) => (y) { \\\n          y = Tahn (x) }\"\n"), "m.yaml:7:15" + why);
  // Columns count characters, as those of YAML do.
  EXPECT_EQ(place("\"SoftCap (x) => (\\\"\xc3\xa4\\\") { \\\"\xc3\xa4\\\" = Tahn (x) }\"\n"),
            "m.yaml:6:48" + why);
  // Escapes that are followed no further leave the line of the text.
  EXPECT_EQ(place("\"\\x53oftCap (x) => (y) {\\n y = Tahn (x) }\"\n"),
            "m.yaml:6:14" + why + " (line 2 of the text)");
}

TEST(ParseUserMap, FindsPlacesBehindLineEndsOfOtherSystems) {
  std::string text = Edited("Tanh", "Tahn");
  for (size_t at = text.find('\n'); at != std::string::npos; at = text.find('\n', at + 2)) {
    text.replace(at, 1, "\r\n");
  }
  for (const char* mark : {"", "\xef\xbb\xbf"}) {
    const Result<UserMap> map = ParseUserMap("m.yaml", mark + text);
    ASSERT_FALSE(map);
    EXPECT_THAT(Faults(map.error()), ElementsAreArray({"9:15: 'Tahn' is no ONNX operator"}));
  }
}

struct HintCase {
  const char* name;
  std::string text;
  const char* hint;
};

std::string HintName(const testing::TestParamInfo<HintCase>& info) { return info.param.name; }

class ParseUserMapSuggests : public testing::TestWithParam<HintCase> {};

TEST_P(ParseUserMapSuggests, WhatToDo) {
  const Result<UserMap> map = ParseUserMap("m.yaml", GetParam().text);
  ASSERT_FALSE(map) << GetParam().text;
  EXPECT_EQ(map.error().hint, GetParam().hint);
}

INSTANTIATE_TEST_SUITE_P(
    Cases, ParseUserMapSuggests,
    testing::Values(
        HintCase{"Key", Rest("module: {m: [{class: A, op: LigerRope}]}\n"),
                 "did you mean modules?"},
        HintCase{"KeyThatIsNotThereYet", Entries("- clas: A\n  op: LigerRope\n"),
                 "did you mean class?"},
        HintCase{"Op", Entries("- class: A\n  op: LigerGroupNrom\n"),
                 "did you mean LigerGroupNorm?"},
        HintCase{"Alias", Entries("- class: A\n  op: LigerRMSNormForGema3\n"),
                 "did you mean LigerRMSNorm, LigerRMSNormForGemma3 or "
                 "LigerRMSNormForGemma?"},
        HintCase{"OpWithoutPrefix", Entries("- class: A\n  op: RMSNorm\n"),
                 "did you mean LigerRMSNorm?"},
        HintCase{"PythonPath",
                 Entries("- class: A\n  op: liger_kernel.transformers.LigerSwiGLUMLP\n"),
                 "did you mean LigerSwiGLUMLP?"},
        HintCase{"OwnOpOfAClass", Entries("- class: A\n  op: my.ops.SoftCap\n"),
                 "an op of your own is described by its pattern: match: | with op: my.ops.SoftCap"},
        HintCase{"OwnOpWithoutDomain", OwnOp("SoftCap"), "op: my.domain.SoftCap"},
        HintCase{"OwnOpWithOurName", OwnOp("LigerRMSNorm"),
                 "class, function and scope ask for an op of this program; an op of your own has a "
                 "domain of your own, op: my.domain.LigerRMSNorm"},
        HintCase{"ClassGlob", Entries("- class: a.*\n  op: LigerRope\n"),
                 "class names one class; `scope:` takes a glob over module paths"},
        HintCase{"Star", Entries("- scope: **.norm\n  op: LigerRope\n"),
                 "words that begin with * or > stand in quotes: \"**.norm\""},
        HintCase{"AtLeast", Entries("- class: A\n  op: LigerRope\n  expect: >=3\n"),
                 "words that begin with * or > stand in quotes: \">=3\""},
        HintCase{"NoBlock",
                 Entries("- match:\n    SoftCap <cap> (x) => (y) {\n"
                         "      c = Constant <value_float: float = @cap> ()\n    }\n"
                         "  op: my.ops.SoftCap\n"),
                 "a value with ': ' in it stands in quotes, a text of several lines behind |"},
        HintCase{"Tabs", Entries("- match: |\n") + "\t\tSoftCap (x) => (y) { y = Tanh (x) }\n",
                 "YAML is indented by spaces"},
        HintCase{"DType", Edited("", "", "types: {x: bfloat16}\n"), "did you mean bf16?"},
        HintCase{"Input", Edited("", "", "types: {q: f32}\n"), "its inputs: x"},
        HintCase{"Operator", Edited("Tanh", "Tahn"), "did you mean Tan or Tanh?"},
        HintCase{"Value", Edited("(t, c)", "(tt, c)"), "did you mean t?"},
        HintCase{"Capture", Edited("@cap", "@cup"), "did you mean cap?"},
        HintCase{"CaptureWithType", Edited("<cap>", "<cap: float>"),
                 "captures take their value from the graph and are written as names alone: <cap>"},
        HintCase{"ClosingBrace", Edited("\n}", ""), "is the closing brace missing?"},
        HintCase{"NewerOperator", Edited("t = Tanh (d)", "t = Gelu (d)", "opset: 13-17\n"),
                 "it came with opset 20: narrow `opset:`, or write another text for older opsets"},
        HintCase{"OlderAttribute",
                 Edited("t = Tanh (d)", "t = ReduceMean <axes = [-1]> (d)", "opset: 13-\n"),
                 "older opsets have it: one entry for those and one for opset 18 on"}),
    HintName);

// Whatever bytes stand in the file, there is a map or an error with a place.
TEST(ParseUserMap, SurvivesMutations) {
  const std::string seeds[] = {
      Edited("", "", "opset: 13-17\ntypes: {x: f32}\noptional: true\nexpect: \">=2\"\n"),
      Entries("- class: a.B\n  op: LigerRMSNormForGemma\n  expect: 3\n- scope: \"m.**\"\n"
              "  op: LigerRope\n- function: d::f*\n  op: liger.LigerSwiGLU\n"),
      Entries("- match: 'F (x) => (y) { y = If <then_branch = g () => (float z) { z = Neg (x) }, "
              "else_branch = h () => (float z) { z = Abs (x) }> (x) }'\n  op: my.F\n"),
      Entries("- {match: \"F <a, b: int = 3> (float[N] x, \\\"\\\") => (y) <float y> {\\n [n] y = "
              "ai.onnx.Add : o (x, x) # c\\n}\", op: my.F, opset: 7}\n"),
  };
  constexpr std::string_view kBytes = "\"'|>{}[]()<>=:,-#@*&!%\n\t \\0189aZ_.\xc3\xff\x01";
  for (unsigned seed = 0; seed < 4000; ++seed) {
    std::mt19937 random(seed);
    std::string text = seeds[seed % std::size(seeds)];
    for (unsigned edits = 1 + random() % 6; edits > 0 && !text.empty(); --edits) {
      const size_t at = random() % text.size();
      const char byte = kBytes[random() % kBytes.size()];
      switch (random() % 4) {
        case 0:
          text[at] = byte;
          break;
        case 1:
          text.insert(at, 1 + random() % 3, byte);
          break;
        case 2:
          text.erase(at, 1 + random() % 8);
          break;
        default:
          text.insert(at, text.substr(random() % text.size(), random() % 60));
      }
    }
    const Result<UserMap> map = ParseUserMap("m.yaml", text);
    if (map) continue;
    std::vector<const Error*> errors = {&map.error()};
    for (const Error& other : map.error().others) errors.push_back(&other);
    for (const Error* error : errors) {
      EXPECT_TRUE(error->location.starts_with("m.yaml:")) << "seed " << seed;
      EXPECT_FALSE(error->message.empty()) << "seed " << seed;
    }
  }
}

TEST(ParseUserMap, SurvivesDeepTexts) {
  for (const char* open : {"(", "[", "{", "<", "seq(", "g = h () => (y) { y = If <"}) {
    std::string text = "F (x) => (y) { y = If <";
    for (int i = 0; i < 100000; ++i) text += open;
    EXPECT_FALSE(ParseUserMap("m.yaml", Text(text))) << open;
  }
}

}  // namespace
}  // namespace liger
