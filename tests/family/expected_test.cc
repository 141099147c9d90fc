#include "family/expected.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "graph_builder.h"
#include "registry_for_tests.h"

namespace liger {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class ExpectedTest : public testing::Test {
 protected:
  ExpectedTest() : map_(*BuiltInFamilies().LoadMap("qwen3")) {}

  static std::string Qwen3(const std::string& name) {
    return "transformers.models.qwen3.modeling_qwen3." + name;
  }

  // One node of module `name` in layer `layer`, as dynamo names it.
  void AddTorch(const std::string& layer, const std::string& name, const std::string& class_name,
                int graph = 0) {
    const std::string path = "model.layers." + layer;
    std::vector<std::string> paths = {"", "model", path};
    std::vector<std::string> classes = {Qwen3("Qwen3ForCausalLM"), Qwen3("Qwen3Model"),
                                        Qwen3("Qwen3DecoderLayer")};
    if (name.starts_with("self_attn.")) {
      paths.push_back(path + ".self_attn");
      classes.push_back(Qwen3("Qwen3Attention"));
    }
    paths.push_back(path + "." + name);
    classes.push_back(Qwen3(class_name));
    m_.Add(TorchNode(paths, classes), graph);
  }
  void AddTorchLayer(const std::string& layer, int graph = 0) {
    for (int repeat = 0; repeat < 2; ++repeat) {  // several nodes of one module are one instance
      AddTorch(layer, "input_layernorm", "Qwen3RMSNorm", graph);
      AddTorch(layer, "self_attn.q_norm", "Qwen3RMSNorm", graph);
      AddTorch(layer, "self_attn.k_norm", "Qwen3RMSNorm", graph);
      AddTorch(layer, "self_attn", "Qwen3Attention", graph);
      AddTorch(layer, "post_attention_layernorm", "Qwen3RMSNorm", graph);
      AddTorch(layer, "mlp", "Qwen3MLP", graph);
    }
  }
  void AddFinalNorm(int graph = 0) {
    m_.Add(TorchNode({"", "model", "model.norm"},
                     {Qwen3("Qwen3ForCausalLM"), Qwen3("Qwen3Model"), Qwen3("Qwen3RMSNorm")}),
           graph);
  }
  void AddNamed(const std::string& path, int graph = 0) {
    m_.Add(NamedNode("/" + path + "/Mul"), graph);
  }
  void AddNamedLayer(const std::string& prefix, int graph = 0) {
    for (const char* name : {"input_layernorm", "self_attn/q_norm", "self_attn/k_norm", "self_attn",
                             "post_attention_layernorm", "mlp", "mlp/act_fn"}) {
      AddNamed(prefix + "/" + name, graph);
    }
  }

  const ExpectedModule& Expect(const std::string& module) {
    counts_ = ComputeExpected(m_.model, map_, config_);
    return *counts_.Find(module);
  }

  ModelBuilder m_;
  FamilyMap map_;
  ModelConfig config_;
  ExpectedCounts counts_;
};

TEST_F(ExpectedTest, CountsInstancesOfClasses) {
  AddTorchLayer("0");
  AddTorchLayer("1");
  AddFinalNorm();
  EXPECT_EQ(Expect("rms_norm").count, 9);
  EXPECT_EQ(Expect("rms_norm").source, "class_metadata");
  EXPECT_EQ(Expect("rms_norm").instances.front(), "model.layers.0.input_layernorm");
  EXPECT_EQ(Expect("rms_norm").instances.back(), "model.norm");
  EXPECT_EQ(Expect("swiglu").count, 2);
  EXPECT_EQ(Expect("rope").count, 4);
  // Once for q and once for k.
  EXPECT_THAT(Expect("rope").instances,
              ElementsAre("model.layers.0.self_attn", "model.layers.0.self_attn",
                          "model.layers.1.self_attn", "model.layers.1.self_attn"));
}

TEST_F(ExpectedTest, ClassesOfOtherFamiliesDoNotCount) {
  AddTorchLayer("0");
  m_.Add(TorchNode({"", "vision.norm"},
                   {"W", "transformers.models.llama.modeling_llama.LlamaRMSNorm"}));
  EXPECT_EQ(Expect("rms_norm").count, 4);
}

TEST_F(ExpectedTest, LossesAreNotCounted) {
  AddTorchLayer("0");
  config_.integers["num_hidden_layers"] = 1;
  EXPECT_EQ(Expect("cross_entropy").count, std::nullopt);
  EXPECT_EQ(Expect("fused_linear_cross_entropy").count, std::nullopt);
}

TEST_F(ExpectedTest, CountsScopesInNodeNames) {
  AddNamedLayer("m/model/layers.0");
  AddNamedLayer("m/model/layers.1");
  AddNamed("m/model/norm");
  EXPECT_EQ(Expect("rms_norm").count, 9);
  EXPECT_EQ(Expect("rms_norm").source, "node_names");
  EXPECT_EQ(Expect("rms_norm").instances.back(), "m.model.norm");
  EXPECT_EQ(Expect("rope").count, 4);
  EXPECT_EQ(Expect("swiglu").count, 2);
}

TEST_F(ExpectedTest, ConstantsAreNoInstances) {
  AddNamedLayer("model/layers.0");
  m_.Add(NamedNode("/model/layers.1/input_layernorm/Constant_1", "Constant"));
  EXPECT_EQ(Expect("rms_norm").count, 4);
}

// onnxruntime-genai numbers the last norm as if it stood in a further layer.
TEST_F(ExpectedTest, CountsTheNamesOfTheGenaiBuilder) {
  for (const char* name : {"input_layernorm", "attn/q_norm", "attn/k_norm", "attn/q_rotary",
                           "post_attention_layernorm", "mlp"}) {
    AddNamed(std::string("model/layers.0/") + name);
  }
  AddNamed("model/layers.1/final_norm_layernorm");
  EXPECT_EQ(Expect("rms_norm").count, 5);
  EXPECT_EQ(Expect("rope").count, 2);
  EXPECT_EQ(Expect("swiglu").count, 1);
}

TEST_F(ExpectedTest, CountsParameters) {
  for (const char* name :
       {"model.layers.0.input_layernorm.weight", "model.layers.0.self_attn.q_norm.weight",
        "model.layers.0.self_attn.k_norm.weight", "model.layers.0.post_attention_layernorm.weight",
        "model.norm.weight", "onnx::MatMul_1430", "vision.norm.weight"}) {
    m_.Initializer(name);
  }
  EXPECT_EQ(Expect("rms_norm").count, 5);
  EXPECT_EQ(Expect("rms_norm").source, "weight_names");
  EXPECT_EQ(Expect("rms_norm").instances.front(), "model.layers.0.input_layernorm");
  EXPECT_EQ(Expect("swiglu").count, std::nullopt);  // linear weights lost their names
  EXPECT_EQ(Expect("rope").count, std::nullopt);    // rotations have no weights
  EXPECT_EQ(Expect("rope").source, "");
}

TEST_F(ExpectedTest, ParametersOutOfUseDoNotCount) {
  m_.Initializer("model.layers.0.input_layernorm.weight");
  m_.Initializer("model.layers.1.input_layernorm.weight", /*is_used=*/false);
  EXPECT_EQ(Expect("rms_norm").count, 1);

  // In use by a body, which holds a value of the same name.
  const int body = m_.AddGraph(0);
  Value captured;
  captured.name = "model.layers.1.input_layernorm.weight";
  captured.outer = 1;
  captured.users = {0};
  m_.model.graphs[static_cast<size_t>(body)].values.push_back(captured);
  EXPECT_EQ(Expect("rms_norm").count, 2);
}

TEST_F(ExpectedTest, NamesTheModuleThatOwnsAParameter) {
  m_.Initializer("model.layers.0.mlp.gate_proj.weight");
  m_.Initializer("model.layers.0.attn.q_norm.layernorm.weight");
  EXPECT_THAT(Expect("swiglu").instances, ElementsAre("model.layers.0.mlp"));
  EXPECT_THAT(Expect("rms_norm").instances, ElementsAre("model.layers.0.attn.q_norm"));
}

// A rewritten node may have lost its metadata; its weight still says that the norm is there.
TEST_F(ExpectedTest, ASourceThatKnowsTheSameAndMoreIsTheBetterOne) {
  AddTorch("0", "input_layernorm", "Qwen3RMSNorm");
  m_.Initializer("model.layers.0.input_layernorm.weight");
  m_.Initializer("model.layers.0.post_attention_layernorm.weight");
  EXPECT_EQ(Expect("rms_norm").count, 2);
  EXPECT_EQ(Expect("rms_norm").source, "weight_names");
  EXPECT_THAT(Expect("rms_norm").disagreements, ElementsAre("class_metadata says 1"));

  // A source that misses an instance is no better, however many it sees.
  AddTorch("0", "self_attn.q_norm", "Qwen3RMSNorm");
  m_.Initializer("model.layers.1.input_layernorm.weight");
  EXPECT_EQ(Expect("rms_norm").count, 2);
  EXPECT_EQ(Expect("rms_norm").source, "class_metadata");
}

TEST_F(ExpectedTest, CountsLayersOfTheConfiguration) {
  config_.integers["num_hidden_layers"] = 28;
  EXPECT_EQ(Expect("rms_norm").count, 4 * 28 + 1);
  EXPECT_EQ(Expect("rms_norm").source, "config");
  EXPECT_THAT(Expect("rms_norm").instances, IsEmpty());
  EXPECT_EQ(Expect("rope").count, 56);
  EXPECT_EQ(Expect("swiglu").count, 28);
}

TEST_F(ExpectedTest, RefusesAbsurdConfigurations) {
  for (const int64_t layers : {int64_t{0}, int64_t{-3}, int64_t{1} << 60}) {
    config_.integers["num_hidden_layers"] = layers;
    EXPECT_EQ(Expect("rms_norm").count, std::nullopt) << layers;
  }
}

TEST_F(ExpectedTest, NamesSourcesThatDisagree) {
  AddTorchLayer("0");
  AddFinalNorm();
  config_.integers["num_hidden_layers"] = 2;
  EXPECT_EQ(Expect("rms_norm").count, 5);
  EXPECT_THAT(Expect("rms_norm").disagreements, ElementsAre("config says 9"));
  config_.integers["num_hidden_layers"] = 1;
  EXPECT_THAT(Expect("rms_norm").disagreements, IsEmpty());
}

// decoder_model_merged: both branches hold the whole decoder.
TEST_F(ExpectedTest, CountsEveryBodyThatRepeatsAModule) {
  for (int branch = 0; branch < 2; ++branch) {
    const int body = m_.AddGraph(0);
    AddNamedLayer("model/layers.0", body);
    AddNamed("model/norm", body);
  }
  EXPECT_EQ(Expect("rms_norm").count, 10);
  EXPECT_EQ(Expect("rope").count, 4);
  EXPECT_EQ(Expect("swiglu").count, 2);
}

TEST_F(ExpectedTest, ABodyInsideAModuleIsPartOfIt) {
  AddTorchLayer("0");
  const int body = m_.AddGraph(0);
  AddTorch("0", "self_attn", "Qwen3Attention", body);
  const int inner = m_.AddGraph(body);
  AddTorch("0", "self_attn", "Qwen3Attention", inner);
  EXPECT_EQ(Expect("rope").count, 2);
}

TEST_F(ExpectedTest, LayersMarkedWithoutTheModuleDoNotCount) {
  for (ModuleMap& module : map_.modules) {
    if (module.name == "rope") module.entries[0].layer_flags = "no_rope_layers";
  }
  AddTorchLayer("0");
  AddTorchLayer("1");
  config_.integers["num_hidden_layers"] = 2;
  EXPECT_EQ(Expect("rope").count, std::nullopt);  // nothing says which layers rotate
  EXPECT_EQ(Expect("rope").source, "");
  config_.lists["no_rope_layers"] = {1, 0};
  EXPECT_EQ(Expect("rope").count, 2);
  EXPECT_THAT(Expect("rope").instances,
              ElementsAre("model.layers.0.self_attn", "model.layers.0.self_attn"));
  EXPECT_EQ(Expect("rms_norm").count, 8);
  m_.model.graphs[0].nodes.clear();
  EXPECT_EQ(Expect("rope").count, 2);
  EXPECT_EQ(Expect("rope").source, "config");
}

// Every third layer: where the list is empty, as in files that were written by older releases.
TEST_F(ExpectedTest, AnIntervalStandsForTheListOfLayers) {
  for (ModuleMap& module : map_.modules) {
    if (module.name != "rope") continue;
    module.entries[0].layer_flags = "no_rope_layers";
    module.entries[0].layer_interval = "no_rope_layer_interval";
  }
  for (const char* layer : {"0", "1", "2", "3"}) AddTorchLayer(layer);
  config_.integers["no_rope_layer_interval"] = 3;
  EXPECT_EQ(Expect("rope").count, 6);
  config_.lists["no_rope_layers"] = {};
  EXPECT_EQ(Expect("rope").count, 6);
  config_.lists["no_rope_layers"] = {0, 0, 0, 1};
  EXPECT_EQ(Expect("rope").count, 2);
}

TEST_F(ExpectedTest, LayerTypesSayWhichLayersHaveTheModule) {
  for (ModuleMap& module : map_.modules) {
    if (module.name != "rope") continue;
    module.entries[0].layer_types = {"sliding_attention"};
    module.entries[0].layer_types_if = "sliding_window";
  }
  AddTorchLayer("0");
  AddTorchLayer("1");
  EXPECT_EQ(Expect("rope").count, std::nullopt);
  config_.integers["num_hidden_layers"] = 2;
  EXPECT_EQ(Expect("rope").count, 4);  // no window: every layer rotates
  config_.integers["sliding_window"] = 4096;
  EXPECT_EQ(Expect("rope").count, std::nullopt);
  config_.layer_types = {"full_attention", "sliding_attention"};
  EXPECT_EQ(Expect("rope").count, 2);
  EXPECT_THAT(Expect("rope").instances,
              ElementsAre("model.layers.1.self_attn", "model.layers.1.self_attn"));
  m_.model.graphs[0].nodes.clear();
  EXPECT_EQ(Expect("rope").count, 2);
  EXPECT_EQ(Expect("rope").source, "config");
}

// Mixtures of experts hold dense layers, whose MLP stands where others have the experts, and
// TorchScript numbers the calls of one activation.
TEST_F(ExpectedTest, AChildTellsModulesApartAndCountsTheirCalls) {
  map_ = *BuiltInFamilies().LoadMap("qwen3_moe");
  AddNamed("model/layers.0/mlp/gate_proj");
  AddNamed("model/layers.1/mlp/gate");
  for (const char* call : {"act_fn", "act_fn_1", "act_fn_2", "act_fn_9"}) {
    AddNamed(std::string("model/layers.1/mlp/experts/") + call);
  }
  EXPECT_THAT(Expect("swiglu").instances,
              ElementsAre("model.layers.1.mlp.experts", "model.layers.1.mlp.experts",
                          "model.layers.1.mlp.experts", "model.layers.0.mlp"));
}

TEST_F(ExpectedTest, PathsOutsideDoNotCount) {
  map_ = *BuiltInFamilies().LoadMap("gemma3");
  AddNamed("model/language_model/layers.0/mlp/act_fn");
  AddNamed("model/vision_tower/encoder/layers.0/mlp/fc1");
  AddNamed("model/vision_tower/encoder/layers.0/self_attn");
  EXPECT_THAT(Expect("geglu").instances, ElementsAre("model.language_model.layers.0.mlp"));
  EXPECT_EQ(Expect("rope").count, std::nullopt);
}

// Two entries that know one path: classes of two releases, or one pattern for both.
TEST_F(ExpectedTest, EntriesThatKnowOnePathCountItOnce) {
  for (ModuleMap& module : map_.modules) module.entries.push_back(module.entries[0]);
  AddNamedLayer("model/layers.0");
  EXPECT_EQ(Expect("rms_norm").count, 4);
  EXPECT_EQ(Expect("rope").count, 2);
  EXPECT_EQ(Expect("swiglu").count, 1);
}

// Each kind of module rotates as many tensors as its entry says.
TEST_F(ExpectedTest, EntriesHaveCountsOfTheirOwn) {
  map_ = *BuiltInFamilies().LoadMap("deepseek_v4");
  const std::string package = "transformers.models.deepseek_v4.modeling_deepseek_v4.";
  m_.Add(TorchNode({"", "layers.0.self_attn"}, {"W", package + "DeepseekV4Attention"}));
  m_.Add(TorchNode({"", "layers.0.self_attn", "layers.0.self_attn.compressor",
                    "layers.0.self_attn.compressor.indexer"},
                   {"W", package + "DeepseekV4Attention", package + "DeepseekV4CSACompressor",
                    package + "DeepseekV4Indexer"}));
  EXPECT_EQ(Expect("rope").count, 3 + 1 + 2);
}

TEST_F(ExpectedTest, LinearWeightsThatLostTheirNamesAreNoDisagreement) {
  AddTorchLayer("0");
  AddTorchLayer("1");
  m_.Initializer("model.layers.1.mlp.gate_proj.weight");
  EXPECT_EQ(Expect("swiglu").count, 2);
  EXPECT_THAT(Expect("swiglu").disagreements, IsEmpty());
  m_.Initializer("model.layers.2.mlp.gate_proj.weight");
  m_.Initializer("model.layers.3.mlp.gate_proj.weight");
  EXPECT_THAT(Expect("swiglu").disagreements, ElementsAre("weight_names says 3"));
}

// The layers of config.json may be in another file of the same folder.
TEST_F(ExpectedTest, ConfigurationIsNoSourceBesideMetadata) {
  m_.Add(TorchNode({"", "lm_head"}, {Qwen3("Qwen3ForCausalLM"), "torch.nn.modules.linear.Linear"}));
  config_.integers["num_hidden_layers"] = 28;
  EXPECT_EQ(Expect("rms_norm").count, std::nullopt);
}

TEST_F(ExpectedTest, StructuralRouteExpectsNothing) {
  AddTorchLayer("0");
  map_ = StructuralMap();
  EXPECT_EQ(Expect("rms_norm").count, std::nullopt);
  EXPECT_EQ(Expect("rms_norm").source, "");
}

TEST_F(ExpectedTest, AnEmptyModelExpectsNothing) {
  EXPECT_EQ(Expect("rms_norm").count, std::nullopt);
  EXPECT_EQ(counts_.Find("no_such_module"), nullptr);
}

}  // namespace
}  // namespace liger
