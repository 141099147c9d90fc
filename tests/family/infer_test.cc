#include "family/infer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "graph_builder.h"
#include "patchmap/nearest.h"
#include "registry_for_tests.h"

namespace liger {
namespace {

namespace fs = std::filesystem;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::IsSupersetOf;
using testing::Not;

std::string Llama(const std::string& name) {
  return "transformers.models.llama.modeling_llama." + name;
}
std::string Qwen2(const std::string& name) {
  return "transformers.models.qwen2.modeling_qwen2." + name;
}

const Evidence* FindEvidence(const FamilyInfo& info, std::string_view source,
                             std::string_view key) {
  for (const Evidence& e : info.evidence) {
    if (e.source == source && e.key == key) return &e;
  }
  return nullptr;
}

class InferFamilyTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("liger_infer_test_" + std::to_string(::getpid()));
    fs::create_directories(folder_ / "onnx");
  }
  void TearDown() override { fs::remove_all(folder_); }

  void Write(const std::string& name, const std::string& text) {
    std::ofstream(folder_ / name) << text;
  }
  FamilyInfo Infer() { return InferFamily(m_.model, folder_ / "onnx" / "model.onnx", registry_); }

  // Nodes of a Llama below `outer` modules.
  void AddLlama(std::vector<std::string> paths, std::vector<std::string> classes) {
    const std::string prefix = paths.back().empty() ? "" : paths.back() + ".";
    for (const char* part : {"model", "model.layers.0", "model.layers.0.input_layernorm"}) {
      paths.push_back(prefix + part);
    }
    classes.insert(classes.end(),
                   {Llama("LlamaModel"), Llama("LlamaDecoderLayer"), Llama("LlamaRMSNorm")});
    m_.Add(TorchNode(paths, classes));
  }
  void AddLlamaParameters() {
    for (const char* name :
         {"model.layers.0.input_layernorm.weight", "model.layers.0.post_attention_layernorm.weight",
          "model.norm.weight"}) {
      m_.Initializer(name);
    }
  }

  fs::path folder_;
  FamilyRegistry registry_ = BuiltInFamilies();
  ModelBuilder m_;
};

TEST_F(InferFamilyTest, TakesConfigJsonBesideTheModel) {
  Write("onnx/config.json", R"({"model_type": "qwen3", "num_hidden_layers": 2})");
  const FamilyInfo info = Infer();
  EXPECT_EQ(info.family, "qwen3");
  EXPECT_EQ(info.decided_by, "config.json");
  EXPECT_EQ(info.config.Integer("num_hidden_layers"), 2);
  const Evidence* evidence = FindEvidence(info, "config.json", "model_type");
  ASSERT_NE(evidence, nullptr);
  EXPECT_TRUE(evidence->decided);
  EXPECT_EQ(evidence->place, (folder_ / "onnx" / "config.json").string());
}

TEST_F(InferFamilyTest, TakesConfigJsonOfTheFolderAbove) {
  Write("config.json", R"({"model_type": "mistral"})");
  EXPECT_EQ(Infer().family, "mistral");
}

TEST_F(InferFamilyTest, OwnFolderStandsBeforeTheOneAbove) {
  Write("config.json", R"({"model_type": "mistral"})");
  Write("onnx/config.json", R"({"model_type": "llama"})");
  EXPECT_EQ(Infer().family, "llama");
}

TEST_F(InferFamilyTest, ResolvesAliases) {
  for (const char* alias : {"qwq", "qwen2_5"}) {
    Write("config.json", std::string(R"({"model_type": ")") + alias + "\"}");
    EXPECT_EQ(Infer().family, "qwen2") << alias;
  }
}

TEST_F(InferFamilyTest, ReportsAConfigThatCannotBeRead) {
  Write("onnx/config.json", R"({"model_type": "llama")");
  FamilyInfo info = Infer();
  EXPECT_FALSE(info.known());
  const Evidence* evidence = FindEvidence(info, "config.json", "model_type");
  ASSERT_NE(evidence, nullptr);
  EXPECT_THAT(evidence->note, HasSubstr("not valid JSON"));
  EXPECT_THAT(UndecidedFamilyError(info, registry_).hint, HasSubstr("not valid JSON"));

  Write("config.json", R"({"model_type": "llama"})");
  EXPECT_EQ(Infer().family, "llama");
}

TEST_F(InferFamilyTest, LooksAboveAConfigThatDoesNotSay) {
  Write("onnx/config.json", R"({"word_embedding_dimension": 3})");
  Write("config.json", R"({"model_type": "llama"})");
  EXPECT_EQ(Infer().family, "llama");
}

TEST_F(InferFamilyTest, TakesTheArchitectureWhereTheTypeIsMissing) {
  Write("config.json", R"({"architectures": ["MistralForCausalLM"]})");
  EXPECT_EQ(Infer().family, "mistral");
  Write("config.json", R"({"architectures": ["CohereForCausalLM"]})");
  const FamilyInfo info = Infer();
  EXPECT_FALSE(info.known());
  EXPECT_EQ(info.named, "CohereForCausalLM");
}

TEST_F(InferFamilyTest, GenaiConfigStandsBeforeConfigJson) {
  Write("onnx/genai_config.json",
        R"({"model": {"type": "qwen2", "decoder": {"num_hidden_layers": 5}}})");
  Write("onnx/config.json", R"({"model_type": "llama", "num_hidden_layers": 2})");
  const FamilyInfo info = Infer();
  EXPECT_EQ(info.family, "qwen2");
  EXPECT_EQ(info.decided_by, "genai_config.json");
  EXPECT_THAT(info.disagreements, ElementsAre(HasSubstr("model_type = llama")));
  // The layers of a llama say nothing of this model.
  EXPECT_EQ(info.config.Integer("num_hidden_layers"), std::nullopt);
}

TEST_F(InferFamilyTest, GenaiPipelineNamesAreNoFamilies) {
  Write("onnx/genai_config.json", R"({"model": {"type": "decoder-pipeline"}})");
  Write("onnx/config.json", R"({"model_type": "llama"})");
  const FamilyInfo info = Infer();
  EXPECT_EQ(info.family, "llama");
  EXPECT_THAT(info.disagreements, IsEmpty());
}

TEST_F(InferFamilyTest, OwnStampStandsFirst) {
  m_.model.metadata["liger.family"] = "llama";
  Write("config.json", R"({"model_type": "qwen3"})");
  const FamilyInfo info = Infer();
  EXPECT_EQ(info.family, "llama");
  EXPECT_EQ(info.decided_by, "metadata");
  EXPECT_THAT(info.disagreements, ElementsAre(HasSubstr("speaks for qwen3, not llama")));
}

TEST_F(InferFamilyTest, StampOfTheStructuralRouteDecidesNothing) {
  m_.model.metadata["liger.family"] = "any";
  EXPECT_FALSE(Infer().known());
  Write("config.json", R"({"model_type": "qwen3"})");
  EXPECT_EQ(Infer().family, "qwen3");
}

TEST_F(InferFamilyTest, TakesModelMetadata) {
  m_.model.metadata["model_type"] = "mistral";
  EXPECT_EQ(Infer().family, "mistral");
  m_.model.metadata = {{"architectures", "['Qwen3ForCausalLM']"}};
  EXPECT_EQ(Infer().family, "qwen3");
}

TEST_F(InferFamilyTest, TakesClassNamesBelowWrappers) {
  AddLlama({"", "m"}, {"__main__.Wrap", Llama("LlamaForCausalLM")});
  FamilyInfo info = Infer();
  EXPECT_EQ(info.family, "llama");
  EXPECT_EQ(info.decided_by, "class names");
  EXPECT_THAT(info.disagreements, IsEmpty());
}

TEST_F(InferFamilyTest, TakesABaseModelWithoutHead) {
  AddLlama({""}, {"__main__.Wrap"});
  EXPECT_EQ(Infer().family, "llama");
}

// Vision-language models hold a whole LlamaModel or Qwen2Model.
TEST_F(InferFamilyTest, TheOutermostModelDecides) {
  AddLlama({"", "m"},
           {"__main__.Wrap",
            "transformers.models.smolvlm.modeling_smolvlm.SmolVLMForConditionalGeneration"});
  FamilyInfo info = Infer();
  EXPECT_EQ(info.family, "smolvlm");
  EXPECT_THAT(info.parts, Contains("llama"));

  m_ = ModelBuilder();
  AddLlama({"", "m"},
           {"__main__.Wrap",
            "transformers.models.idefics3.modeling_idefics3.Idefics3ForConditionalGeneration"});
  info = Infer();
  EXPECT_FALSE(info.known());
  EXPECT_EQ(info.named, "idefics3");
}

// gemma3 and gemma3_text, gemma4 and gemma4_text live in one package.
TEST_F(InferFamilyTest, FamiliesOfOnePackageAreToldApartByTheirModels) {
  const std::string gemma3 = "transformers.models.gemma3.modeling_gemma3.";
  const std::string gemma4 = "transformers.models.gemma4.modeling_gemma4.";
  const std::pair<std::string, const char*> cases[] = {
      {gemma3 + "Gemma3ForConditionalGeneration", "gemma3"},
      {gemma3 + "Gemma3ForCausalLM", "gemma3_text"},
      {gemma3 + "Gemma3TextModel", "gemma3_text"},
      {gemma3 + "Gemma3MultiModalProjector", ""},
      {gemma4 + "Gemma4TextDecoderLayer", "gemma4_text"},
      {gemma4 + "Gemma4VisionModel", "gemma4"}};
  for (const auto& [name, family] : cases) {
    m_ = ModelBuilder();
    m_.Add(TorchNode({""}, {name}));
    EXPECT_EQ(Infer().family, family) << name;
  }
  // Parts of one package side by side.
  m_.Add(TorchNode({"", "embed"}, {"W", gemma4 + "Gemma4MultimodalEmbedder"}));
  EXPECT_EQ(Infer().family, "gemma4");
}

// A vision tower exported alone.
TEST_F(InferFamilyTest, TowersDecideWhereTheyBelongToOneFamily) {
  const std::pair<const char*, const char*> cases[] = {
      {"transformers.models.pixtral.modeling_pixtral.PixtralVisionModel", "pixtral"},
      {"transformers.models.qwen2_vl.modeling_qwen2_vl.Qwen2VisionTransformerPretrainedModel",
       "qwen2_vl"},
      {"transformers.models.mllama.modeling_mllama.MllamaVisionModel", "mllama"},
      {"transformers.models.siglip.modeling_siglip.SiglipVisionModel", ""}};
  for (const auto& [name, family] : cases) {
    m_ = ModelBuilder();
    m_.Add(TorchNode({"", "m"}, {"__main__.Wrap", name}));
    EXPECT_EQ(Infer().family, family) << name;
  }
}

TEST_F(InferFamilyTest, ConfigurationNamesTheParts) {
  Write("config.json", R"({"model_type": "llava", "text_config": {"model_type": "mistral"},
                           "vision_config": {"model_type": "pixtral"}})");
  AddLlama({""}, {Llama("LlamaForCausalLM")});
  EXPECT_THAT(Infer().parts, ElementsAre("mistral", "pixtral"));
}

TEST_F(InferFamilyTest, ANormAloneDecidesNothing) {
  m_.Add(TorchNode({"", "norm"}, {"__main__.Block", Llama("LlamaRMSNorm")}));
  const FamilyInfo info = Infer();
  EXPECT_FALSE(info.known());
  EXPECT_EQ(info.named, "");
  EXPECT_THAT(info.candidates, ElementsAre("llama"));
}

TEST_F(InferFamilyTest, TwoModelsSideBySideDecideNothing) {
  AddLlama({""}, {"__main__.Wrap"});
  m_.Add(TorchNode({"", "vision"},
                   {"__main__.Wrap", "transformers.models.clip.modeling_clip.CLIPVisionModel"}));
  const FamilyInfo info = Infer();
  EXPECT_FALSE(info.known());
  EXPECT_THAT(info.candidates, Contains("llama"));
}

TEST_F(InferFamilyTest, ClassesOfOtherPackagesOnlyLookAlike) {
  m_.Add(TorchNode({"", "m"}, {"__main__.Wrap", "my_pkg.modeling_llama.LlamaForCausalLM"}));
  m_.Add(TorchNode(
      {"", "m"}, {"__main__.Wrap", "transformers.models.llama.modeling_llama2.LlamaForCausalLM"}));
  const FamilyInfo info = Infer();
  EXPECT_FALSE(info.known());
  EXPECT_EQ(info.named, "");
}

TEST_F(InferFamilyTest, ReadsMetadataInBodies) {
  const int body = m_.AddGraph(0);
  m_.Add(TorchNode({""}, {Qwen2("Qwen2ForCausalLM")}), body);
  EXPECT_EQ(Infer().family, "qwen2");
}

TEST_F(InferFamilyTest, ConfigOfAnotherFamilyBeatsLlamaClasses) {
  Write("config.json", R"({"model_type": "cohere2"})");
  AddLlama({""}, {Llama("LlamaForCausalLM")});
  AddLlamaParameters();
  FamilyInfo info = Infer();
  EXPECT_FALSE(info.known());
  EXPECT_EQ(info.named, "cohere2");
  EXPECT_THAT(info.disagreements, ElementsAre(HasSubstr("speaks for llama, not cohere2")));
  Write("config.json", R"({"model_type": "gemma3_text"})");
  info = Infer();
  EXPECT_EQ(info.family, "gemma3_text");
  EXPECT_THAT(info.disagreements, ElementsAre(HasSubstr("speaks for llama, not gemma3_text")));
}

TEST_F(InferFamilyTest, APackageServesTypesThatExtendItsName) {
  Write("config.json", R"({"model_type": "cohere2_vision"})");
  m_.Add(TorchNode({""}, {"transformers.models.cohere2.modeling_cohere2.Cohere2ForCausalLM"}));
  EXPECT_THAT(Infer().disagreements, IsEmpty());
}

TEST_F(InferFamilyTest, TextPartIsNotTheFamily) {
  Write("config.json", R"({"model_type": "aya_vision", "text_config": {"model_type": "llama"}})");
  FamilyInfo info = Infer();
  EXPECT_FALSE(info.known());
  EXPECT_EQ(info.named, "aya_vision");
  EXPECT_THAT(info.candidates, ElementsAre("llama"));
  EXPECT_THAT(info.disagreements, IsEmpty());
  Write("config.json", R"({"model_type": "llava", "text_config": {"model_type": "llama"}})");
  info = Infer();
  EXPECT_EQ(info.family, "llava");
  EXPECT_THAT(info.disagreements, IsEmpty());
  Write("config.json", R"({"text_config": {"model_type": "llama"}})");
  EXPECT_FALSE(Infer().known());
}

TEST_F(InferFamilyTest, ParameterNamesOnlyMakeCandidates) {
  AddLlamaParameters();
  FamilyInfo info = Infer();
  EXPECT_FALSE(info.known());
  EXPECT_THAT(info.candidates, IsSupersetOf({"llama", "mistral", "granite", "phi3"}));
  EXPECT_THAT(info.candidates, Not(Contains("qwen2")));  // has biases
  EXPECT_THAT(info.candidates, Not(Contains("qwen3")));

  m_.Initializer("model.layers.0.self_attn.q_norm.weight");
  m_.Initializer("model.layers.0.self_attn.k_norm.weight");
  info = Infer();
  EXPECT_FALSE(info.known());
  EXPECT_THAT(info.candidates, IsSupersetOf({"qwen3", "qwen3_moe"}));
  EXPECT_THAT(info.candidates, Not(Contains("llama")));

  m_.Initializer("model.layers.0.pre_feedforward_layernorm.weight");
  EXPECT_THAT(Infer().candidates, Not(Contains("qwen3")));
}

TEST_F(InferFamilyTest, NearestFamiliesOfAnUnknownName) {
  Write("config.json", R"({"model_type": "qwen3_omni"})");
  const FamilyInfo info = Infer();
  EXPECT_FALSE(info.known());
  EXPECT_THAT(info.candidates, Contains("qwen3"));
  const Error error = UndecidedFamilyError(info, registry_);
  EXPECT_EQ(error.code, ErrorCode::kFamily);
  EXPECT_THAT(error.message, HasSubstr("'qwen3_omni', named by config.json, is not known"));
  EXPECT_THAT(error.hint, HasSubstr("Nearest families: " + JoinNames(info.candidates)));
}

TEST_F(InferFamilyTest, ErrorShowsWhatWasLookedAtAndHowToGoOn) {
  const Error error = UndecidedFamilyError(Infer(), registry_);
  EXPECT_EQ(error.message, "nothing in or beside the model names its family");
  for (const char* part :
       {"liger.family", "genai_config.json", "config.json", "class names", "parameter names",
        "Known families: deepseek_v4, exaone4,", "--family any", "--patches-dir"}) {
    EXPECT_THAT(error.hint, HasSubstr(part));
  }
}

TEST_F(InferFamilyTest, LooksBesideTheLinkNotBesideItsTarget) {
  fs::create_directories(folder_ / "blobs");
  fs::create_directories(folder_ / "snapshot");
  std::ofstream(folder_ / "blobs" / "abc") << "x";
  fs::create_symlink("../blobs/abc", folder_ / "snapshot" / "model.onnx");
  Write("snapshot/config.json", R"({"model_type": "llama"})");
  EXPECT_EQ(InferFamily(m_.model, folder_ / "snapshot" / "model.onnx", registry_).family, "llama");
}

TEST_F(InferFamilyTest, ModelsInMemoryHaveNoFiles) {
  const FamilyInfo info = InferFamily(m_.model, "", registry_);
  EXPECT_EQ(FindEvidence(info, "config.json", "model_type"), nullptr);
}

TEST_F(InferFamilyTest, ChoosingAFamilyKeepsTheEvidence) {
  Write("config.json", R"({"model_type": "qwen3", "num_hidden_layers": 2})");
  Result<FamilyInfo> info = ChooseFamily("qwq", Infer(), registry_);
  ASSERT_TRUE(info);
  EXPECT_EQ(info->family, "qwen2");
  EXPECT_EQ(info->decided_by, "--family");
  EXPECT_EQ(info->evidence.front().value, "qwq");
  EXPECT_THAT(info->disagreements, ElementsAre(HasSubstr("speaks for qwen3, not qwen2")));
  EXPECT_EQ(info->config.Integer("num_hidden_layers"), std::nullopt);

  info = ChooseFamily("qwen3", Infer(), registry_);
  ASSERT_TRUE(info);
  EXPECT_THAT(info->disagreements, IsEmpty());
  EXPECT_EQ(info->config.Integer("num_hidden_layers"), 2);
}

TEST_F(InferFamilyTest, ChoosingAnyContradictsNothing) {
  Write("config.json", R"({"model_type": "qwen3"})");
  const Result<FamilyInfo> info = ChooseFamily("any", Infer(), registry_);
  ASSERT_TRUE(info);
  EXPECT_EQ(info->family, "any");
  EXPECT_THAT(info->disagreements, IsEmpty());
}

TEST_F(InferFamilyTest, ChoosingAnUnknownFamilyFails) {
  const Result<FamilyInfo> info = ChooseFamily("lama", Infer(), registry_);
  ASSERT_FALSE(info);
  EXPECT_EQ(info.error().code, ErrorCode::kFamily);
  EXPECT_THAT(info.error().hint, HasSubstr("did you mean llama"));
  EXPECT_FALSE(ChooseFamily("Llama", Infer(), registry_));
}

}  // namespace
}  // namespace liger
