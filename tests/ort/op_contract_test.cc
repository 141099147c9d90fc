// The generated contracts, the embedded files, and the reader that the generator is made of.
#include "ops/op_contract.h"

#include <gtest/gtest.h>
#include <onnx/defs/schema.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>

#include "model/contrib_op_types.h"
#include "ops/embedded_patches.h"
#include "ops/opgen/contract_reader.h"

namespace liger::test {
namespace {

TEST(OpContract, NoOpTypeEqualsOneOfOnnxOrOnnxRuntime) {
  std::set<std::string, std::less<>> taken(std::begin(kContribOpTypes), std::end(kContribOpTypes));
  for (const onnx::OpSchema& schema : onnx::OpSchemaRegistry::get_all_schemas_with_history()) {
    taken.insert(schema.Name());
  }
  ASSERT_TRUE(taken.contains("RMSNormalization"));
  // What our names stand beside: an op without its prefix would be one of these.
  for (const char* type : {"LayerNormalization", "SkipLayerNormalization", "Gelu", "Softmax",
                           "GroupNormalization", "GroupNorm", "SwiGLU", "RotaryEmbedding"}) {
    EXPECT_TRUE(taken.contains(type)) << type;
  }
  ASSERT_FALSE(Contracts().empty());
  for (const OpContract& contract : Contracts()) {
    EXPECT_FALSE(taken.contains(contract.op_type)) << contract.op_type;
  }
}

TEST(OpContract, HoldsWhatTheYamlSays) {
  const OpContract* rope = FindContract("LigerRope");
  ASSERT_NE(rope, nullptr);
  EXPECT_EQ(rope->since_version, 1);
  EXPECT_EQ(rope->module, "rope");
  ASSERT_EQ(rope->inputs.size(), 4u);
  EXPECT_EQ(rope->inputs[1].name, "cos");
  EXPECT_EQ(rope->inputs[1].type_symbol, "S");
  EXPECT_FALSE(rope->inputs[1].optional);
  EXPECT_TRUE(rope->inputs[3].optional);
  const AttributeSpec* layout = rope->FindAttribute("layout");
  ASSERT_NE(layout, nullptr);
  EXPECT_EQ(layout->kind, AttributeKind::kString);
  EXPECT_EQ(std::vector<std::string_view>(layout->values.begin(), layout->values.end()),
            (std::vector<std::string_view>{"BNSD", "BSND", "SND"}));
  EXPECT_EQ(rope->FindAttribute("stash_type")->kind, AttributeKind::kDType);
  EXPECT_EQ(rope->FindAttribute("no_such"), nullptr);
  EXPECT_EQ(FindContract("LigerNoSuch"), nullptr);
}

TEST(OpContract, SeveralInputsMayBeOptional) {
  const OpContract* norm = FindContract("LigerAddLayerNorm");
  ASSERT_NE(norm, nullptr);
  EXPECT_EQ(norm->module, "layer_norm");
  ASSERT_EQ(norm->inputs.size(), 4u);
  EXPECT_FALSE(norm->inputs[1].optional);
  EXPECT_TRUE(norm->inputs[2].optional);
  EXPECT_TRUE(norm->inputs[3].optional);
  EXPECT_EQ(norm->inputs[2].type_symbol, norm->inputs[3].type_symbol);
}

TEST(OpContract, AnswersWhetherThereIsAKernel) {
  const OpContract& op = *FindContract("LigerRMSNorm");
  const auto has = [&](Provider provider, std::vector<TypeBinding> types) {
    return HasKernel(op, provider, types);
  };
  EXPECT_TRUE(has(Provider::kCpu, {{"T", DType::kF16}, {"S", DType::kF16}}));
  EXPECT_TRUE(has(Provider::kCpu, {{"T", DType::kF16}, {"S", DType::kF32}}));
  EXPECT_TRUE(has(Provider::kCpu, {{"T", DType::kBF16}}));  // the scale is absent
  EXPECT_FALSE(has(Provider::kCpu, {{"T", DType::kF32}, {"S", DType::kF16}}));
  EXPECT_FALSE(has(Provider::kCpu, {{"T", DType::kI64}}));
  EXPECT_FALSE(has(Provider::kCpu, {{"T", DType::kUndefined}}));
  EXPECT_FALSE(has(Provider::kCpu, {{"U", DType::kF32}}));
}

TEST(OpContract, EveryProviderHasTheSameKernels) {
  for (const OpContract& contract : Contracts()) {
    for (const TypeTuple& tuple : contract.kernels) {
      EXPECT_TRUE(HasKernel(contract, Provider::kCpu, tuple.types)) << contract.op_type;
      EXPECT_TRUE(HasKernel(contract, Provider::kCuda, tuple.types)) << contract.op_type;
    }
    EXPECT_EQ(DistinctTypes(contract).size() * 2, contract.kernels.size()) << contract.op_type;
  }
}

TEST(EmbeddedPatches, EqualTheFilesOfTheSource) {
  const std::filesystem::path root = LIGER_TEST_PATCHES;
  std::map<std::string, std::string> expected;
  for (const char* folder : {"ops", "lowerings", "families"}) {
    std::error_code ignored;
    for (const auto& entry : std::filesystem::directory_iterator(root / folder, ignored)) {
      if (entry.path().extension() != ".yaml") continue;
      std::ifstream in(entry.path(), std::ios::binary);
      expected[std::string(folder) + "/" + entry.path().filename().string()] =
          std::string(std::istreambuf_iterator<char>(in), {});
    }
  }
  std::map<std::string, std::string> embedded;
  for (const EmbeddedFile& file : EmbeddedPatches()) {
    embedded[std::string(file.path)] = std::string(file.contents);
  }
  EXPECT_GE(embedded.size(), Contracts().size());
  EXPECT_EQ(embedded, expected);
  EXPECT_TRUE(
      std::is_sorted(EmbeddedPatches().begin(), EmbeddedPatches().end(),
                     [](const EmbeddedFile& a, const EmbeddedFile& b) { return a.path < b.path; }));
}

constexpr const char* kGoodYaml = R"(schema_version: 1
op: LigerTest
since_version: 1
module: test
algebra: y = x
inputs:
  - {name: x, type: T}
  - {name: w, type: S, optional: true}
outputs:
  - {name: y, type: T}
attributes:
  - {name: mode, type: string, values: [a, b]}
kernels:
  cpu:
    - {T: f32, S: f16}
texts: [belongs to another reader]
)";

TEST(ContractReader, ReadsItsPartAndLeavesOtherKeys) {
  Result<opgen::OpSource> op = opgen::ReadContract("test.yaml", kGoodYaml);
  ASSERT_TRUE(op) << op.error().message;
  EXPECT_EQ(op->op_type, "LigerTest");
  ASSERT_EQ(op->kernels.size(), 1u);
  EXPECT_EQ(op->kernels[0].types.size(), 2u);
  EXPECT_EQ(op->attributes[0].values, (std::vector<std::string>{"a", "b"}));
}

// Each row replaces a piece of the good file and names the error and its place.
struct Mistake {
  const char* from;
  const char* to;
  const char* message;
  const char* location;
};

constexpr Mistake kMistakes[] = {
    {"op: LigerTest", "op: Test", "op types start with 'Liger'", "test.yaml:2:5"},
    {"op: LigerTest\n", "", "the file lacks the key 'op'", "test.yaml:1:1"},
    {"since_version: 1", "since_version: one", "since_version must be a positive integer",
     "test.yaml:3:16"},
    {"since_version: 1", "since_version: 0", "since_version must be a positive integer",
     "test.yaml:3:16"},
    {"module: test", "module: test\nmodule: other", "key 'module' stands twice in the file",
     "test.yaml:5:1"},
    {"{name: x, type: T}", "{name: x, type: T, name: z}", "key 'name' stands twice in inputs",
     "test.yaml:7:24"},
    {"{name: x, type: T}", "{name: x, typ: T}", "unknown key 'typ' in inputs", "test.yaml:7:15"},
    {"{name: x, type: T}", "{name: x}", "inputs lacks the key 'type'", "test.yaml:7:5"},
    {"{name: x, type: T}", "{name: x, type: T, optional: maybe}", "optional must be true or false",
     "test.yaml:7:34"},
    {"{name: x, type: T}", "{name: x, type: T, optional: true}",
     "the first of inputs must be required", "test.yaml:7:3"},
    {"{name: w, ", "{name: x, ", "'x' stands twice in inputs", "test.yaml:8:5"},
    {"type: string", "type: word", "attribute type 'word' is none of int, float, string, dtype",
     "test.yaml:12:24"},
    {"values: [a, b]", "values: []", "values must not be empty", "test.yaml:12:40"},
    {"type: string", "type: int", "values are for attributes of type string", "test.yaml:12:37"},
    {"T: f32", "T: f33", "'f33' is not a dtype", "test.yaml:15:11"},
    {"T: f32", "U: f32", "type symbol 'U' is used by no input or output", "test.yaml:15:8"},
    {"{T: f32, S: f16}", "{T: f32}", "a kernel must bind every type symbol", "test.yaml:15:7"},
    {"  cpu:", "  gpu:", "unknown key 'gpu' in kernels", "test.yaml:14:3"},
    {"  cpu:", "  cuda:", "kernels lacks the key 'cpu'", "test.yaml:14:3"},
    {"  cpu:\n", "  cuda: cpu\n  cpu:\n", "no kernels of 'cpu' stand above", "test.yaml:14:9"},
    {"{T: f32, S: f16}", "{T: f32, S: f16}\n    - {S: f16, T: f32}", "this kernel stands twice",
     "test.yaml:16:7"},
    {"outputs:\n  - {name: y, type: T}", "outputs: []", "outputs must not be empty",
     "test.yaml:9:10"},
};

TEST(ContractReader, NamesEveryMistakeAndItsPlace) {
  for (const Mistake& mistake : kMistakes) {
    SCOPED_TRACE(mistake.to);
    std::string text = kGoodYaml;
    const size_t at = text.find(mistake.from);
    ASSERT_NE(at, std::string::npos);
    text.replace(at, std::string_view(mistake.from).size(), mistake.to);
    Result<opgen::OpSource> op = opgen::ReadContract("test.yaml", text);
    ASSERT_FALSE(op);
    EXPECT_EQ(op.error().message, mistake.message);
    EXPECT_EQ(op.error().location, mistake.location);
  }
}

TEST(ContractReader, ReportsBrokenYaml) {
  Result<opgen::OpSource> op = opgen::ReadContract("test.yaml", "op: [");
  ASSERT_FALSE(op);
  EXPECT_FALSE(op.error().message.empty());
}

}  // namespace
}  // namespace liger::test
