// A family that nobody here knows, added as a file: nothing but data is needed, from recognising the
// model to what of it was fused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <onnx/defs/parser.h>
#include <onnx/onnx_pb.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>

#include "api/patch_model.h"

namespace liger {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr const char* kFamily = R"(schema_version: 1
family: made_up
model_types: [made_up]
aliases: [invented]
architectures: [MadeUpForCausalLM]
package: my_pkg.modeling_made_up
structure:
  present: [blocks.*.pre_norm.weight]
defaults:
  rms_norm: on
  swiglu: on
  geglu: off
no_op:
  geglu: the model has none
modules:
  rms_norm:
    - class: my_pkg.modeling_made_up.MadeUpNorm
      op: LigerRMSNorm
      scopes: [blocks.*.pre_norm]
      weights: [blocks.*.pre_norm.weight]
  swiglu:
    - class: my_pkg.modeling_made_up.MadeUpMLP
      op: LigerSwiGLU
      scopes: [blocks.*.mlp]
      child: act
)";

// Two blocks: a norm and a gated MLP each. The norm of the second centres its input first, so that
// it is no RMSNorm.
constexpr const char* kModel = R"(
<ir_version: 9, opset_import: ["" : 18]>
g (float[2,4,8] x) => (float[2,4,8] y)
<float[8] w0 = {1,2,3,4,5,6,7,8},
 float[8] w1 = {8,7,6,5,4,3,2,1},
 float two = {2}, float eps = {0.00001}, int64[1] last = {-1}> {
  [n0] p0 = Pow (x, two)
  [n1] m0 = ReduceMean (p0, last)
  [n2] e0 = Add (m0, eps)
  [n3] s0 = Sqrt (e0)
  [n4] d0 = Div (x, s0)
  [n5] h0 = Mul (d0, w0)
  [g0] sig0 = Sigmoid (h0)
  [g1] act0 = Mul (h0, sig0)
  [g2] x1 = Mul (act0, x)
  [c0] mean1 = ReduceMean (x1, last)
  [c1] x1c = Sub (x1, mean1)
  [c2] p1 = Pow (x1c, two)
  [c3] m1 = ReduceMean (p1, last)
  [c4] e1 = Add (m1, eps)
  [c5] s1 = Sqrt (e1)
  [c6] d1 = Div (x1, s1)
  [c7] h1 = Mul (d1, w1)
  [k0] sig1 = Sigmoid (h1)
  [k1] act1 = Mul (h1, sig1)
  [k2] y = Mul (act1, x1)
})";

class MadeUpFamilyTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("liger_made_up_test_" + std::to_string(::getpid()));
    fs::create_directories(folder_ / "patches" / "families");
    std::ofstream(folder_ / "patches" / "families" / "made_up.yaml") << kFamily;
    onnx::OnnxParser parser(kModel);
    ASSERT_TRUE(parser.Parse(model_).IsOK());
    Rename("w0", "blocks.0.pre_norm.weight");  // the text format has no dotted names
    Rename("w1", "blocks.1.pre_norm.weight");
    options_.input = folder_ / "model.onnx";
    options_.patches_dir = folder_ / "patches";
    options_.dry_run = true;
  }
  void TearDown() override { fs::remove_all(folder_); }

  void Rename(const std::string& from, const std::string& to) {
    for (auto& initializer : *model_.mutable_graph()->mutable_initializer()) {
      if (initializer.name() == from) initializer.set_name(to);
    }
    for (auto& node : *model_.mutable_graph()->mutable_node()) {
      for (auto& input : *node.mutable_input()) {
        if (input == from) input = to;
      }
    }
  }

  // Metadata as torch's dynamo exporter writes it: the scopes of the node named `name`.
  static std::pair<std::string, std::string> ScopesOf(const std::string& name) {
    const std::string block = name[0] == 'n' || name[0] == 'g' ? "blocks.0" : "blocks.1";
    const bool is_norm = name[0] == 'n' || name[0] == 'c';
    const std::string path = block + (is_norm ? ".pre_norm" : ".mlp");
    const std::string package = "my_pkg.modeling_made_up.";
    return {"['', '" + path + "', 'op']", "['" + package + "MadeUpForCausalLM', '" + package +
                                              (is_norm ? "MadeUpNorm" : "MadeUpMLP") +
                                              "', 'aten.op.default']"};
  }

  void AddMetadata() {
    for (auto& node : *model_.mutable_graph()->mutable_node()) {
      const auto [paths, classes] = ScopesOf(node.name());
      auto* names = node.add_metadata_props();
      names->set_key("pkg.torch.onnx.name_scopes");
      names->set_value(paths);
      auto* hierarchy = node.add_metadata_props();
      hierarchy->set_key("pkg.torch.onnx.class_hierarchy");
      hierarchy->set_value(classes);
    }
  }

  // Names as torch's TorchScript exporter gives them.
  void AddPaths() {
    for (auto& node : *model_.mutable_graph()->mutable_node()) {
      const bool is_first = node.name()[0] == 'n' || node.name()[0] == 'g';
      std::string path = is_first ? "/blocks.0/" : "/blocks.1/";
      const std::string name = node.name();
      path += name[0] == 'n' || name[0] == 'c' ? "pre_norm/" : "mlp/";
      if (name == "g0" || name == "g1" || name == "k0" || name == "k1") path += "act/";
      node.set_name(path + node.op_type() + "_" + name);
    }
  }

  Report Patch() {
    std::ofstream stream(options_.input, std::ios::binary);
    model_.SerializeToOstream(&stream);
    stream.close();
    PatchOutcome outcome = PatchModel(options_);
    EXPECT_FALSE(outcome.error) << outcome.error->message << " " << outcome.error->location;
    return std::move(outcome.report);
  }

  static const ModuleReport& Module(const Report& report, const std::string& name) {
    for (const ModuleReport& module : report.modules) {
      if (module.name == name) return module;
    }
    ADD_FAILURE() << "no module " << name;
    static const ModuleReport none;
    return none;
  }

  fs::path folder_;
  onnx::ModelProto model_;
  PatchOptions options_;
};

TEST_F(MadeUpFamilyTest, IsKnownByItsClasses) {
  AddMetadata();
  const Report report = Patch();
  EXPECT_EQ(report.family, "made_up");
  EXPECT_EQ(report.family_decided_by, "class names");
  EXPECT_EQ(report.route, "official");

  const ModuleReport& norms = Module(report, "rms_norm");
  EXPECT_EQ(norms.expected, 2);
  EXPECT_EQ(norms.expected_source, "class_metadata");
  EXPECT_EQ(norms.patched, 1);
  EXPECT_EQ(norms.missed, 1);
  ASSERT_EQ(report.missed.size(), 1u);
  EXPECT_EQ(report.missed[0].path, "blocks.1.pre_norm");

  EXPECT_EQ(Module(report, "swiglu").expected, 2);
  EXPECT_EQ(Module(report, "swiglu").patched, 2);
  EXPECT_EQ(Module(report, "geglu").reason,
            "off by default for family made_up: the model has none");
}

TEST_F(MadeUpFamilyTest, IsKnownByItsConfiguration) {
  AddPaths();
  std::ofstream(folder_ / "config.json") << R"({"model_type": "invented"})";
  const Report report = Patch();
  EXPECT_EQ(report.family, "made_up");
  EXPECT_EQ(Module(report, "rms_norm").expected, 2);
  EXPECT_EQ(Module(report, "rms_norm").expected_source, "node_names");
  EXPECT_EQ(Module(report, "rms_norm").patched, 1);
  EXPECT_EQ(Module(report, "swiglu").expected, 2);
  EXPECT_EQ(Module(report, "swiglu").patched, 2);
}

// What is fused elsewhere does not stand for what is missing.
TEST_F(MadeUpFamilyTest, WhatIsFusedElsewhereIsNoInstance) {
  AddMetadata();
  Rename("blocks.0.pre_norm.weight", "tower.norm.weight");
  for (auto& node : *model_.mutable_graph()->mutable_node()) {
    if (node.name()[0] != 'n') continue;
    node.mutable_metadata_props(0)->set_value("['', 'tower.norm', 'op']");
    node.mutable_metadata_props(1)->set_value(
        "['my_pkg.modeling_made_up.MadeUpForCausalLM', 'other.TowerNorm', 'aten.op.default']");
  }
  const Report report = Patch();
  const ModuleReport& norms = Module(report, "rms_norm");
  EXPECT_EQ(norms.expected, 1);
  EXPECT_EQ(norms.missed, 1);
  ASSERT_EQ(report.missed.size(), 1u);
  EXPECT_EQ(report.missed[0].path, "blocks.1.pre_norm");
  std::vector<std::string> notes;
  for (const Diagnostic& d : report.diagnostics) {
    if (d.message.find("outside") != std::string::npos) notes.push_back(d.message);
  }
  EXPECT_THAT(notes, ElementsAre(HasSubstr("1 of rms_norm")));
}

// Parameters carry the names of modules around the exported one, paths of nodes do not.
TEST_F(MadeUpFamilyTest, InstancesThatParametersNameAreFoundByTheEndOfTheirPath) {
  std::string family = kFamily;
  const std::string scopes = "      scopes: [blocks.*.pre_norm]\n";
  family.erase(family.find(scopes), scopes.size());
  std::ofstream(folder_ / "patches" / "families" / "made_up.yaml") << family;
  AddPaths();
  Rename("blocks.0.pre_norm.weight", "m.model.blocks.0.pre_norm.weight");
  Rename("blocks.1.pre_norm.weight", "m.model.blocks.1.pre_norm.weight");
  options_.family = "made_up";
  const Report report = Patch();
  EXPECT_EQ(Module(report, "rms_norm").expected, 2);
  EXPECT_EQ(Module(report, "rms_norm").expected_source, "weight_names");
  EXPECT_EQ(Module(report, "rms_norm").patched, 1);
  EXPECT_EQ(Module(report, "rms_norm").missed, 1);
  ASSERT_EQ(report.missed.size(), 1u);
  EXPECT_EQ(report.missed[0].path, "m.model.blocks.1.pre_norm");
}

TEST_F(MadeUpFamilyTest, ParameterNamesMakeItACandidate) {
  std::ofstream stream(options_.input, std::ios::binary);
  model_.SerializeToOstream(&stream);
  stream.close();
  const PatchOutcome outcome = PatchModel(options_);
  ASSERT_TRUE(outcome.error);
  EXPECT_EQ(outcome.error->code, ErrorCode::kFamily);
  EXPECT_THAT(outcome.error->hint, HasSubstr("Its structure fits made_up"));
}

}  // namespace
}  // namespace liger
