#include "family/module_path.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "graph_builder.h"

namespace liger {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

std::vector<std::string> ListOf(std::string_view text) {
  std::vector<std::string> items;
  return ParsePythonStringList(text, &items) ? items : std::vector<std::string>{"(no list)"};
}

TEST(ParsePythonStringList, ReadsWhatReprPrints) {
  EXPECT_THAT(ListOf("['', 'm', 'm.model']"), ElementsAre("", "m", "m.model"));
  EXPECT_THAT(ListOf("[]"), IsEmpty());
  EXPECT_THAT(ListOf("('a',)"), ElementsAre("a"));
  EXPECT_THAT(ListOf(R"(["it's", 'a"b', 'c\'d', 'e\\f', '\n'])"),
              ElementsAre("it's", "a\"b", "c'd", "e\\f", "\n"));
  EXPECT_THAT(ListOf("[ 'a' ,\n 'b' ] "), ElementsAre("a", "b"));
  EXPECT_THAT(ListOf(R"(['\x41'])"), ElementsAre("\\x41"));
}

TEST(ParsePythonStringList, RefusesTheRest) {
  for (const char* text : {"", "a", "[", "['a'", "['a", "['a' 'b']", "[a]", "[1]", "['a']x",
                           "['a\\", "['a', ['b']]", "[,]", "('a']"}) {
    EXPECT_THAT(ListOf(text), ElementsAre("(no list)")) << text;
  }
}

TEST(ModulePathOf, ReadsTorchMetadata) {
  const Node node = TorchNode({"", "model", "model.layers.0", "model.layers.0.input_layernorm"},
                              {"pkg.Wrap", "pkg.Model", "pkg.Layer", "pkg.Norm"});
  EXPECT_EQ(ModulePathOf(node), "model.layers.0.input_layernorm");
  const ModuleScopes scopes = ModuleScopesOf(node);
  EXPECT_EQ(scopes.source, ScopeSource::kMetadata);
  ASSERT_EQ(scopes.scopes.size(), 4u);
  EXPECT_EQ(scopes.scopes[0].path, "");
  EXPECT_EQ(scopes.scopes[0].class_name, "pkg.Wrap");
  EXPECT_EQ(scopes.scopes[3].class_name, "pkg.Norm");
}

// What several nodes share: no FX node at the end.
TEST(ModulePathOf, ReadsListsCutToWhatNodesShare) {
  Node node;
  node.metadata = {{"pkg.torch.onnx.class_hierarchy", "['W', 'M', 'N']"},
                   {"pkg.torch.onnx.name_scopes", "['', 'model', 'model.norm']"}};
  EXPECT_EQ(ModulePathOf(node), "model.norm");
  node.metadata = {{"pkg.torch.onnx.class_hierarchy", "['W']"},
                   {"pkg.torch.onnx.name_scopes", "['']"}};
  EXPECT_EQ(ModulePathOf(node), "");
  EXPECT_EQ(ModuleScopesOf(node).scopes.size(), 1u);
}

TEST(ModulePathOf, TellsModulesFromOpsBelowANamelessModule) {
  Node node;
  node.metadata = {{"pkg.torch.onnx.class_hierarchy", "['pkg.Model', 'pkg.Norm']"},
                   {"pkg.torch.onnx.name_scopes", "['', 'norm']"}};
  EXPECT_EQ(ModulePathOf(node), "norm");
  node.metadata = {{"pkg.torch.onnx.class_hierarchy", "['pkg.Model', 'my_ops.rotate.default']"},
                   {"pkg.torch.onnx.name_scopes", "['', 'rotate_1']"}};
  EXPECT_EQ(ModulePathOf(node), "");
  node.metadata = {{"namespace", ": pkg.Model/norm: pkg.Norm"}};
  EXPECT_EQ(ModulePathOf(node), "norm");
}

TEST(ModulePathOf, ReadsNodesOfTheOutermostModule) {
  EXPECT_EQ(ModulePathOf(TorchNode({""}, {"pkg.Wrap"})), "");
  EXPECT_EQ(ModuleScopesOf(TorchNode({""}, {"pkg.Wrap"})).scopes.size(), 1u);
}

TEST(ModulePathOf, FallsBackOnNamespace) {
  Node node;
  node.metadata = {
      {"namespace", ": pkg.Wrap/model: pkg.Model/model.norm: pkg.Norm/pow_1: aten.pow.Tensor"}};
  EXPECT_EQ(ModulePathOf(node), "model.norm");
  // Lists that do not fit each other are not used.
  node.metadata.emplace_back("pkg.torch.onnx.class_hierarchy", "['pkg.Wrap']");
  node.metadata.emplace_back("pkg.torch.onnx.name_scopes", "['', 'other', 'pow_1']");
  EXPECT_EQ(ModulePathOf(node), "model.norm");
  EXPECT_EQ(ModuleScopesOf(node).scopes.back().class_name, "pkg.Norm");
}

// onnxscript's builder writes each module's own name, and no op.
TEST(ModulePathOf, ReadsOnnxscriptMetadata) {
  Node node;
  node.name = "model/layers.0/input_layernorm/Pow_node_5";
  node.metadata = {{"namespace", "model: M/layers.0: L/input_layernorm: RMSNorm"},
                   {"pkg.onnxscript.class_hierarchy", "['', 'M', 'L', 'RMSNorm']"},
                   {"pkg.onnxscript.name_scopes", "['', 'model', 'layers.0', 'input_layernorm']"}};
  EXPECT_EQ(ModulePathOf(node), "model.layers.0.input_layernorm");
  EXPECT_EQ(ModuleScopesOf(node).scopes.back().class_name, "RMSNorm");
  node.metadata.clear();  // stripped
  EXPECT_EQ(ModulePathOf(node), "model.layers.0.input_layernorm");
  EXPECT_EQ(ModuleScopesOf(node).source, ScopeSource::kNodeName);
}

struct NameCase {
  const char* name;
  const char* path;
};

class ModulePathOfNodeName : public testing::TestWithParam<NameCase> {};

TEST_P(ModulePathOfNodeName, IsItsScope) {
  EXPECT_EQ(ModulePathOf(NamedNode(GetParam().name)), GetParam().path);
}

INSTANTIATE_TEST_SUITE_P(
    Cases, ModulePathOfNodeName,
    testing::Values(NameCase{"/model/layers.0/input_layernorm/Pow",
                             "model.layers.0.input_layernorm"},
                    NameCase{"/model/layers.0/self_attn/Mul_3", "model.layers.0.self_attn"},
                    NameCase{"/model/layers.0/input_layernorm/Mul_1/SimplifiedLayerNormFusion/",
                             "model.layers.0.input_layernorm"},
                    NameCase{"/SimplifiedLayerNormFusion/", ""}, NameCase{"/Add_2", ""},
                    NameCase{"Add_2", ""}, NameCase{"", ""}, NameCase{"/", ""}, NameCase{"//", ""},
                    NameCase{"///", ""}, NameCase{"/a//b", ""}, NameCase{"node_pow_1", ""},
                    // Casts that ONNX Runtime inserts carry the name of a value.
                    NameCase{"InsertedPrecisionFreeCast_/model/norm/Mul_output_0", ""}));

TEST(ModulePathOf, IgnoresBrokenMetadata) {
  Node node = NamedNode("/model/norm/Pow");
  node.metadata = {{"pkg.torch.onnx.class_hierarchy", "['a', 'b'"},
                   {"pkg.torch.onnx.name_scopes", "oops"},
                   {"namespace", "no colon"}};
  EXPECT_EQ(ModulePathOf(node), "model.norm");
  EXPECT_EQ(ModuleScopesOf(Node{}).source, ScopeSource::kUnknown);
}

}  // namespace
}  // namespace liger
