#include "api/rebuild_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "api/patch_model.h"
#include "model/each_node.h"
#include "model/model_file.h"
#include "model_testing.h"

namespace liger {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;
using ::testing::UnorderedElementsAre;

// --- What is done with a model --------------------------------------------------------------------

struct Made {
  PatchOutcome outcome;
  onnx::ModelProto model;  // empty if none was written
};

using Job = PatchOutcome (*)(const RebuildOptions&);

class RebuildTest : public ::testing::Test {
 protected:
  Made Run(Job job, const onnx::ModelProto& model,
           std::vector<std::filesystem::path> patches = {}) {
    RebuildOptions options;
    options.input = WriteFile(folder_ / "in.onnx", model.SerializeAsString());
    options.output = folder_ / "out.onnx";
    options.patches = std::move(patches);
    std::filesystem::remove(*options.output);
    Made made{job(options), {}};
    if (auto file = LoadModelFile(*options.output)) made.model = file->proto;
    return made;
  }
  Made Run(Job job, const std::string& text) { return Run(job, ModelFromText(text)); }

  // `model` patched on the structural route, or with a map.
  onnx::ModelProto Patched(const onnx::ModelProto& model,
                           std::vector<std::filesystem::path> patches = {}) {
    PatchOptions options;
    options.input = WriteFile(folder_ / "original.onnx", model.SerializeAsString());
    options.output = folder_ / "patched.onnx";
    if (patches.empty()) options.family = "any";
    options.patches = std::move(patches);
    std::filesystem::remove(*options.output);
    const PatchOutcome outcome = PatchModel(options);
    EXPECT_FALSE(outcome.error) << outcome.error->message;
    auto file = LoadModelFile(*options.output);
    EXPECT_TRUE(file);
    return file ? file->proto : onnx::ModelProto();
  }

  TemporaryFolder folder_;
};

std::vector<std::string> Messages(const PatchOutcome& outcome) {
  std::vector<std::string> messages;
  for (const Diagnostic& d : outcome.report.diagnostics) messages.push_back(d.message);
  return messages;
}

// Operators of all nodes, those in bodies included, "liger.LigerRMSNorm" for ours.
std::vector<std::string> Operators(const NodeProtos& nodes) {
  std::vector<std::string> operators;
  ForEachNode(nodes, [&](const onnx::NodeProto& node) {
    if (node.op_type() != "Constant") {
      operators.push_back((node.domain().empty() ? "" : node.domain() + ".") + node.op_type());
    }
  });
  return operators;
}

std::vector<std::string> Operators(const onnx::ModelProto& model) {
  return Operators(model.graph().node());
}

std::vector<std::string> FunctionNames(const onnx::ModelProto& model) {
  std::vector<std::string> names;
  for (const auto& function : model.functions()) {
    names.push_back(function.domain() + "." + function.name());
  }
  return names;
}

std::vector<std::string> Domains(const onnx::ModelProto& model) {
  std::vector<std::string> domains;
  for (const auto& import : model.opset_import()) domains.push_back(import.domain());
  return domains;
}

std::map<std::string, std::string> Metadata(const onnx::ModelProto& model) {
  std::map<std::string, std::string> metadata;
  for (const auto& entry : model.metadata_props()) metadata[entry.key()] = entry.value();
  return metadata;
}

void SetOpset(onnx::ModelProto& model, int64_t version) {
  for (auto& import : *model.mutable_opset_import()) {
    if (import.domain().empty()) import.set_version(version);
  }
}

// What a converter to half precision does: values and initializers change, bodies do not.
void Convert(onnx::ModelProto& model, int32_t from, int32_t to) {
  const auto convert = [&](auto& infos) {
    for (auto& info : infos) {
      auto& tensor = *info.mutable_type()->mutable_tensor_type();
      if (tensor.elem_type() == from) tensor.set_elem_type(to);
    }
  };
  convert(*model.mutable_graph()->mutable_input());
  convert(*model.mutable_graph()->mutable_output());
  convert(*model.mutable_graph()->mutable_value_info());
}

constexpr int32_t kF32 = onnx::TensorProto::FLOAT;
constexpr int32_t kF16 = onnx::TensorProto::FLOAT16;
constexpr int32_t kBF16 = onnx::TensorProto::BFLOAT16;

// --- Models -------------------------------------------------------------------------------------

std::string Norm(int opset, const std::string& dtype, int ir_version = 7) {
  const bool axes_are_input = opset >= 18;
  return "<ir_version: " + std::to_string(ir_version) +
         ", opset_import: [\"\" : " + std::to_string(opset) + R"(]>
g ()" + dtype +
         "[2,3,32] x, " + dtype + "[32] w) => (" + dtype + R"([2,3,32] y)
<float eps = {1e-5}, float two = {2}, int64[1] axes = {-1}>
{
  [a] s = Pow (x, two)
  [b] m = ReduceMean )" +
         (axes_are_input ? "(s, axes)" : "<axes = [-1]> (s)") + R"(
  [c] v = Add (m, eps)
  [d] r = Sqrt (v)
  [e] n = Div (x, r)
  [f] y = Mul (n, w)
})";
}

constexpr char kBody[] = R"(
<domain: "liger", opset_import: ["" : 18]>
LigerRMSNorm <epsilon, offset, stash_type, scale_type> (x, scale) => (y) {
  two = Constant <value = float {2.0}> ()
  square = Pow (x, two)
  axes = Constant <value = int64[1] {-1}> ()
  mean = ReduceMean (square, axes)
  eps = Constant <value_float: float = @epsilon> ()
  shifted = Add (mean, eps)
  root = Sqrt (shifted)
  n = Div (x, root)
  y = Mul (n, scale)
})";

constexpr char kCall[] =
    "liger.LigerRMSNorm <epsilon = 1e-6, offset = 0.0, stash_type = 1, scale_type = 1>";

// A call in a body of If, one in a function that is none of ours.
std::string Nested() {
  return std::string(R"(
<ir_version: 8, opset_import: ["" : 18, "liger" : 1, "mine" : 1],
 metadata_props: ["liger.version": "0", "author": "somebody"]>
g (float[2,8] x, float[8] w, bool c) => (float[2,8] y)
{
  a = If (c) <
    then_branch = t () => (float[2,8] p) { [in_body] p = )") +
         kCall + R"( (x, w) },
    else_branch = e () => (float[2,8] q) { q = Neg (x) }
  >
  y = mine.Twice (a, w)
}
<domain: "mine", opset_import: ["" : 18, "liger" : 1]>
Twice (x, w) => (y) {
  n = )" +
         kCall + R"( (x, w)
  y = Add (n, n)
}
)" + kBody;
}

// Rotates the first `part` elements of each head of 8.
std::string Rotation(int part) {
  const std::string half = std::to_string(part / 2);
  const std::string whole = std::to_string(part);
  return R"(<ir_version: 8, opset_import: ["" : 18]>
g (float[2,4,5,8] q, float[1,1,5,)" +
         half + "] c, float[1,1,5," + half + R"(] s) => (float[2,4,5,8] y)
{
  axis = Constant <value_ints = [-1]> ()
  zero = Constant <value_ints = [0]> ()
  half = Constant <value_ints = [)" +
         half + R"(]> ()
  whole = Constant <value_ints = [)" +
         whole + R"(]> ()
  end = Constant <value_ints = [9223372036854775807]> ()
  cos = Concat <axis = -1> (c, c)
  sin = Concat <axis = -1> (s, s)
  head = Slice (q, zero, whole, axis)
  first = Slice (head, zero, half, axis)
  second = Slice (head, half, end, axis)
  minus = Neg (second)
  turned = Concat <axis = -1> (minus, first)
  straight = Mul (head, cos)
  crossed = Mul (turned, sin)
  sum = Add (straight, crossed)
)" +
         (part == 8 ? "  y = Identity (sum)\n"
                    : "  rest = Slice (q, whole, end, axis)\n"
                      "  y = Concat <axis = -1> (sum, rest)\n") +
         "}";
}

// --- Revert -------------------------------------------------------------------------------------

using RevertTest = RebuildTest;

TEST_F(RevertTest, GivesBackNodesVersionAndMetadata) {
  onnx::ModelProto original = ModelFromText(Norm(18, "float"));
  original.mutable_graph()->mutable_node(5)->set_name("/model/norm/Mul");
  const onnx::ModelProto patched = Patched(original);
  ASSERT_THAT(Operators(patched), ElementsAre("liger.LigerRMSNorm"));
  EXPECT_EQ(patched.ir_version(), 8);
  const Made made = Run(RevertModel, patched);
  ASSERT_FALSE(made.outcome.error);
  EXPECT_THAT(Operators(made.model), ElementsAre("Pow", "ReduceMean", "Add", "Sqrt", "Div", "Mul"));
  EXPECT_THAT(made.model.functions(), IsEmpty());
  EXPECT_THAT(Domains(made.model), ElementsAre(""));
  EXPECT_THAT(Metadata(made.model), IsEmpty());
  EXPECT_EQ(made.model.ir_version(), 7);
  EXPECT_EQ(made.outcome.report.status, "ok");
  EXPECT_EQ(made.outcome.report.op_counts.at("liger.LigerRMSNorm"),
            (std::pair<int64_t, int64_t>(1, 0)));
  EXPECT_THAT(Messages(made.outcome),
              ElementsAre("the bodies of 1 call stand in their place: 1 LigerRMSNorm"));
  std::set<std::string> names;
  for (const auto& node : made.model.graph().node()) {
    EXPECT_THAT(node.name(), StartsWith("/model/norm/Mul_LigerRMSNorm_"));
    EXPECT_TRUE(names.insert(node.name()).second) << node.name();
  }
}

// The model's body holds an attribute of its call, for which opset 11 has no constant.
TEST_F(RevertTest, ResultIsPatchedAgainToTheSame) {
  for (const int opset : {11, 13, 18, 23}) {
    const onnx::ModelProto patched = Patched(ModelFromText(Norm(opset, "float")));
    const Made made = Run(RevertModel, patched);
    ASSERT_FALSE(made.outcome.error) << opset;
    const onnx::ModelProto again = Patched(made.model);
    ASSERT_THAT(Operators(again), ElementsAre("liger.LigerRMSNorm")) << opset;
    EXPECT_EQ(again.functions(0).SerializeAsString(), patched.functions(0).SerializeAsString());
    for (const auto& attribute : patched.graph().node(0).attribute()) {
      const auto& attributes = again.graph().node(0).attribute();
      EXPECT_TRUE(std::any_of(attributes.begin(), attributes.end(), [&](const auto& other) {
        return other.SerializeAsString() == attribute.SerializeAsString();
      })) << attribute.name();
    }
  }
}

TEST_F(RevertTest, LooksIntoBodiesAndOtherFunctions) {
  const Made made = Run(RevertModel, Nested());
  ASSERT_FALSE(made.outcome.error) << made.outcome.error->message;
  EXPECT_THAT(Operators(made.model),
              AllOf(Contains("Sqrt"), Contains("mine.Twice"), Not(Contains("liger.LigerRMSNorm"))));
  EXPECT_THAT(FunctionNames(made.model), ElementsAre("mine.Twice"));
  EXPECT_THAT(Operators(made.model.functions(0).node()),
              AllOf(Contains("Sqrt"), Contains("Add"), Not(Contains("liger.LigerRMSNorm"))));
  EXPECT_THAT(Domains(made.model), ElementsAre("", "mine"));
  EXPECT_THAT(Metadata(made.model), ElementsAre(std::pair("author", "somebody")));
  EXPECT_EQ(made.model.ir_version(), 8);  // functions need it
}

TEST_F(RevertTest, LeavesAnIrVersionThatAnotherToolHasSet) {
  onnx::ModelProto patched = Patched(ModelFromText(Norm(18, "float")));
  patched.set_ir_version(11);
  EXPECT_EQ(Run(RevertModel, patched).model.ir_version(), 11);
}

TEST_F(RevertTest, OfAModelThatWasNeverPatchedDoesNothing) {
  const Made made = Run(RevertModel, Norm(18, "float"));
  EXPECT_FALSE(made.outcome.error);
  EXPECT_EQ(made.outcome.report.status, "nothing_to_do");
  EXPECT_EQ(made.model.graph().node_size(), 0);
  EXPECT_THAT(Messages(made.outcome),
              ElementsAre("the model holds nothing that patching made; nothing was written"));
}

TEST_F(RevertTest, MakesMissingBodiesFirst) {
  onnx::ModelProto patched = Patched(ModelFromText(Norm(18, "float")));
  patched.clear_functions();
  const Made made = Run(RevertModel, patched);
  ASSERT_FALSE(made.outcome.error);
  EXPECT_THAT(Operators(made.model), Contains("Sqrt"));
  EXPECT_THAT(Messages(made.outcome), Contains(HasSubstr("its function is gone")));
}

TEST_F(RevertTest, NamesAnOpThatItDoesNotKnow) {
  const Made made = Run(RevertModel, R"(
<ir_version: 8, opset_import: ["" : 18, "liger" : 1]>
g (float[2,8] x) => (float[2,8] y) { [n] y = liger.LigerOfTomorrow (x) }
<domain: "liger", opset_import: ["" : 18]> LigerOfTomorrow (x) => (y) { y = Neg (x) })");
  ASSERT_TRUE(made.outcome.error);
  EXPECT_EQ(made.outcome.error->code, ErrorCode::kInvalidModel);
  EXPECT_THAT(made.outcome.error->message, HasSubstr("1 liger.LigerOfTomorrow"));
  EXPECT_EQ(made.model.graph().node_size(), 0);
}

// --- Refresh ------------------------------------------------------------------------------------

using RefreshTest = RebuildTest;

TEST_F(RefreshTest, OfAModelThatFitsDoesNothing) {
  for (const int opset : {11, 13, 18, 23}) {
    for (const std::string dtype : {"float", "float16"}) {
      onnx::ModelProto original = ModelFromText(Norm(opset, "float"));
      if (dtype == "float16") Convert(original, kF32, kF16);
      if (dtype == "float16") {
        auto& tensors = *original.mutable_graph()->mutable_initializer();
        for (auto& tensor : tensors) {
          if (tensor.name() != "eps") continue;
          tensor.clear_float_data();
          tensor.set_data_type(kF16);
          tensor.add_int32_data(0xa8);  // about 1e-5
        }
      }
      const Made made = Run(RefreshModel, Patched(original));
      EXPECT_EQ(made.outcome.report.status, "nothing_to_do") << opset << " " << dtype;
      EXPECT_THAT(
          Messages(made.outcome),
          ElementsAre("every call of a fused op has a body that fits it; nothing was written"));
    }
  }
}

TEST_F(RefreshTest, MakesTheBodyThatPatchingMakes) {
  const onnx::ModelProto patched = Patched(ModelFromText(Norm(18, "float")));
  onnx::ModelProto stripped = patched;
  stripped.clear_functions();
  stripped.clear_metadata_props();
  const Made made = Run(RefreshModel, stripped);
  ASSERT_FALSE(made.outcome.error);
  ASSERT_EQ(made.model.functions_size(), 1);
  EXPECT_EQ(made.model.functions(0).SerializeAsString(), patched.functions(0).SerializeAsString());
  EXPECT_EQ(made.model.graph().node(0).SerializeAsString(),
            patched.graph().node(0).SerializeAsString());
  EXPECT_THAT(Metadata(made.model),
              UnorderedElementsAre(std::pair("liger.modules", "rms_norm"),
                                   std::pair("liger.version", std::string(ToolVersion()))));
}

TEST_F(RefreshTest, FollowsAConversionToHalfPrecision) {
  onnx::ModelProto model = Patched(ModelFromText(Norm(18, "float")));
  Convert(model, kF32, kF16);
  const Made made = Run(RefreshModel, model);
  ASSERT_FALSE(made.outcome.error);
  EXPECT_THAT(Messages(made.outcome),
              ElementsAre(AllOf(HasSubstr("1 call of liger.LigerRMSNorm got a new body"),
                                HasSubstr("computes in f32 where the operands give f16"))));
  // The attributes say f32, and so computes the body.
  ASSERT_EQ(made.model.functions_size(), 1);
  EXPECT_THAT(
      Operators(made.model.functions(0).node()),
      ElementsAre("Cast", "Pow", "ReduceMean", "Add", "Sqrt", "Div", "Cast", "Mul", "Cast"));
  EXPECT_EQ(made.model.functions(0).overload(), "");
}

TEST_F(RefreshTest, FollowsTheOperatorSet) {
  onnx::ModelProto model = Patched(ModelFromText(Norm(17, "float")));
  SetOpset(model, 18);
  const Made made = Run(RefreshModel, model);
  ASSERT_FALSE(made.outcome.error);
  EXPECT_THAT(Messages(made.outcome),
              ElementsAre(HasSubstr("its body is written for opset 17, where the model imports "
                                    "opset 18")));
  EXPECT_EQ(made.model.functions(0).opset_import(0).version(), 18);
}

// Mul and Sigmoid are at opset 20 what they were at 18, Constant is not.
TEST_F(RefreshTest, KeepsABodyWhoseOperatorsMeanTheSame) {
  onnx::ModelProto model = ModelFromText(R"(
<ir_version: 8, opset_import: ["" : 20, "liger" : 1],
 metadata_props: ["liger.modules": "swiglu", "liger.version": "0"]>
g (float[2,8] g, float[2,8] u) => (float[2,8] y)
{ y = liger.LigerSwiGLU <alpha = 1.0, gate_multiplier = 1.0, limit = 0.0, up_offset = 0.0, packed = "none",
                         stash_type = 1> (g, u) }
<domain: "liger", opset_import: ["" : 18]>
LigerSwiGLU <alpha, gate_multiplier, limit, up_offset, packed, stash_type> (gate, up) => (y) {
  sigmoid = Sigmoid (gate)
  swish = Mul (gate, sigmoid)
  y = Mul (swish, up)
})");
  EXPECT_EQ(Run(RefreshModel, model).outcome.report.status, "nothing_to_do");
  model = Patched(ModelFromText(Norm(18, "float")));
  SetOpset(model, 20);
  const Made made = Run(RefreshModel, model);
  EXPECT_EQ(made.outcome.report.status, "ok");
  EXPECT_EQ(made.model.functions(0).opset_import(0).version(), 20);
}

// Both rotations have tables as wide as they turn; only the length of the axis tells them apart.
TEST_F(RefreshTest, TurnsAsManyElementsAsTheAttributeSays) {
  for (const int part : {4, 8}) {
    const onnx::ModelProto patched = Patched(ModelFromText(Rotation(part)));
    onnx::ModelProto stripped = patched;
    stripped.clear_functions();
    const Made made = Run(RefreshModel, stripped);
    ASSERT_FALSE(made.outcome.error) << made.outcome.error->message;
    ASSERT_EQ(made.model.functions_size(), 1);
    EXPECT_EQ(made.model.functions(0).SerializeAsString(), patched.functions(0).SerializeAsString())
        << part;
  }
}

TEST_F(RefreshTest, NamesACallThatFitsNoForm) {
  onnx::ModelProto model = ModelFromText(R"(
<ir_version: 8, opset_import: ["" : 18, "liger" : 1]>
g (bfloat16[2,8] x, bfloat16[8] w, float16[8] other) => (bfloat16[2,8] y)
{
  [first] a = liger.LigerRMSNorm <epsilon = 1e-6, offset = 0.0, stash_type = 1, scale_type = 10> (x, w)
  [second] y = liger.LigerRMSNorm <epsilon = 1e-6, offset = 0.0, stash_type = 1, scale_type = 16> (a, other)
})");
  const Made made = Run(RefreshModel, model);
  ASSERT_TRUE(made.outcome.error);
  const Error& error = *made.outcome.error;
  EXPECT_EQ(error.code, ErrorCode::kInvalidModel);
  EXPECT_EQ(error.message,
            "node 'first' (liger.LigerRMSNorm) fits no form of the op: x: bf16, scale: bf16; "
            "epsilon = 9.99999997e-07, offset = 0, stash_type = f32, scale_type = f16");
  EXPECT_THAT(error.hint,
              AllOf(HasSubstr("the nearest form is"), HasSubstr("scale_type bf16 instead of f16"),
                    HasSubstr("--revert"), HasSubstr("patch again")));
  ASSERT_EQ(error.others.size(), 1U);
  EXPECT_THAT(error.others[0].message, HasSubstr("node 'second' (liger.LigerRMSNorm)"));
  EXPECT_THAT(error.others[0].hint, HasSubstr("instead of f16"));
  EXPECT_EQ(made.outcome.report.diagnostics.size(), 2U);
  EXPECT_EQ(made.model.graph().node_size(), 0);
}

TEST_F(RefreshTest, NamesACallThatDoesNotKeepToTheContract) {
  const struct {
    std::string call, says;
  } cases[] = {
      {"liger.LigerRMSNorm <epsilon = 1e-6, offset = 0.0, stash_type = 1> (x, w)",
       "lacks the attribute 'scale_type'"},
      {"liger.LigerRMSNorm <epsilon = 1e-6, offset = 0.0, stash_type = 1, scale_type = 1, axis = "
       "2> "
       "(x, w)",
       "has an attribute 'axis' that the op does not have so"},
      {"liger.LigerRMSNorm <epsilon = 1, offset = 0.0, stash_type = 1, scale_type = 1> (x, w)",
       "has an attribute 'epsilon' that the op does not have so"},
      {"liger.LigerRMSNorm <epsilon = 1e-6, offset = 0.0, stash_type = 1, scale_type = 1> (x, w, "
       "w)",
       "has more inputs or outputs than the op"},
      {"liger.LigerAddRMSNorm <epsilon = 1e-6, offset = 0.0, stash_type = 1, scale_type = 1> (x, , "
       "w)",
       "lacks the input 'residual'"},
      {"liger.LigerAddRMSNorm <epsilon = 1e-6, offset = 0.0, stash_type = 1, scale_type = 1> (x, "
       "h, w)",
       "has inputs of the dtypes f32 and f16 ('residual') where they have to have the same one"},
  };
  for (const auto& test : cases) {
    const Made made = Run(RefreshModel, R"(
<ir_version: 8, opset_import: ["" : 18, "liger" : 1]>
g (float[2,8] x, float[8] w, float16[2,8] h) => (float[2,8] y) { [n] y = )" +
                                            test.call + " }");
    ASSERT_TRUE(made.outcome.error) << test.call;
    EXPECT_EQ(made.outcome.error->message.substr(0, 9), "node 'n' ");
    EXPECT_THAT(made.outcome.error->message, HasSubstr(test.says));
  }
}

TEST_F(RefreshTest, NamesAnOutputThatIsDeclaredOtherwise) {
  const Made made = Run(RefreshModel, std::string(R"(
<ir_version: 8, opset_import: ["" : 18, "liger" : 1]>
g (float16[2,8] x, float16[8] w) => (float[2,8] y) { [n] y = )") +
                                          kCall + " (x, w) }" + kBody);
  ASSERT_TRUE(made.outcome.error);
  EXPECT_THAT(made.outcome.error->message,
              HasSubstr("gives f16 for the graph output 'y', which is declared as f32"));
}

// Inner values that the converter has left declared as they were.
TEST_F(RefreshTest, CorrectsTheDeclaredTypesOfResults) {
  onnx::ModelProto model = ModelFromText(std::string(R"(
<ir_version: 8, opset_import: ["" : 18, "liger" : 1]>
g (float16[2,8] x, float16[8] w) => (float16[2,8] y) <float[2,8] n>
{ n = )") + kCall + " (x, w)  y = Neg (n) }" +
                                         kBody);
  const Made made = Run(RefreshModel, model);
  ASSERT_FALSE(made.outcome.error) << made.outcome.error->message;
  ASSERT_EQ(made.model.graph().value_info_size(), 1);
  EXPECT_EQ(made.model.graph().value_info(0).type().tensor_type().elem_type(), kF16);
}

TEST_F(RefreshTest, LooksIntoBodiesAndNamesFunctionsItCannotJudge) {
  std::string text = Nested();
  text.replace(text.find("float[2,8] x, float[8] w"), 24, "float16[2,8] x, float16[8] w");
  for (size_t at = text.find("float[2,8]"); at != std::string::npos; at = text.find("float[2,8]")) {
    text.replace(at, 10, "float16[2,8]");
  }
  const Made made = Run(RefreshModel, text);
  ASSERT_FALSE(made.outcome.error) << made.outcome.error->message;
  EXPECT_THAT(Messages(made.outcome),
              AllOf(Contains(HasSubstr("(node 'in_body')")),
                    Contains(HasSubstr("a local function calls liger.LigerRMSNorm"))));
  // The function of ours that the other function calls stays for it.
  EXPECT_THAT(FunctionNames(made.model),
              ElementsAre("mine.Twice", "liger.LigerRMSNorm", "liger.LigerRMSNorm"));
}

TEST_F(RefreshTest, GivesASharedBodyBackToTheCallThatItFits) {
  const Made made = Run(RefreshModel, std::string(R"(
<ir_version: 8, opset_import: ["" : 18, "liger" : 1]>
g (float[2,8] x, float[8] w, float16[8] h) => (float[2,8] y, float16[2,8] z)
{
  [fits] y = )") + kCall + R"( (x, w)
  half = Cast <to = 10> (x)
  [stale] z = )" + kCall + " (half, h) }" +
                                          kBody);
  ASSERT_FALSE(made.outcome.error) << made.outcome.error->message;
  ASSERT_EQ(made.model.functions_size(), 2);
  EXPECT_EQ(made.model.ir_version(), 10);
  EXPECT_EQ(made.model.graph().node(0).overload(), "");
  EXPECT_EQ(made.model.graph().node(2).overload(), made.model.functions(1).overload());
  EXPECT_NE(made.model.functions(1).overload(), "");
}

// A body that computes in the operands' own dtype where the call says f32 has the right types.
TEST_F(RefreshTest, SeesABodyOfAnotherMeaning) {
  const Made made = Run(RefreshModel, R"(
<ir_version: 8, opset_import: ["" : 18, "liger" : 1]>
g (float16[2,8] g, float16[2,8] u) => (float16[2,8] y)
{ y = liger.LigerSwiGLU <alpha = 1.0, gate_multiplier = 1.0, limit = 0.0, up_offset = 0.0, packed = "none",
                         stash_type = 1> (g, u) }
<domain: "liger", opset_import: ["" : 18]>
LigerSwiGLU <alpha, gate_multiplier, limit, up_offset, packed, stash_type> (gate, up) => (y) {
  sigmoid = Sigmoid (gate)
  swish = Mul (gate, sigmoid)
  y = Mul (swish, up)
})");
  ASSERT_FALSE(made.outcome.error);
  EXPECT_THAT(Messages(made.outcome), Contains(HasSubstr("its body computes something else")));
  EXPECT_THAT(Operators(made.model.functions(0).node()), Contains("Cast"));
}

// --- Own ops of patch maps ------------------------------------------------------------------------

constexpr char kMap[] = R"(schema_version: 1
family: mine
modules:
  soft_cap:
    - match: |
        SoftCap <cap> (x) => (y)
        {
          c = Constant <value_float: float = @cap> ()
          scaled = Div (x, c)
          bent = Tanh (scaled)
          y = Mul (bent, c)
        }
      opset: 13-
      op: my.domain.SoftCap
)";

constexpr char kCapped[] = R"(
<ir_version: 8, opset_import: ["" : 18]>
g (float[2,8] x) => (float[2,8] y)
{
  c = Constant <value_float = 30.0> ()
  [a] d = Div (x, c)
  [b] t = Tanh (d)
  [c] y = Mul (t, c)
})";

class OwnOpTest : public RebuildTest {
 protected:
  const std::filesystem::path map_ = WriteFile(folder_ / "map.yaml", kMap);
  const onnx::ModelProto patched_ = Patched(ModelFromText(kCapped), {map_});
};

TEST_F(OwnOpTest, IsRevertedByItsStamp) {
  ASSERT_THAT(Operators(patched_), ElementsAre("my.domain.SoftCap"));
  const Made made = Run(RevertModel, patched_);
  ASSERT_FALSE(made.outcome.error);
  EXPECT_THAT(Operators(made.model), ElementsAre("Div", "Tanh", "Mul"));
  EXPECT_THAT(made.model.functions(), IsEmpty());
  EXPECT_THAT(Domains(made.model), ElementsAre(""));
  EXPECT_THAT(Metadata(made.model), IsEmpty());
}

TEST_F(OwnOpTest, KeepsABodyThatFits) {
  EXPECT_EQ(Run(RefreshModel, patched_).outcome.report.status, "nothing_to_do");
}

TEST_F(OwnOpTest, NeedsItsMapForAnother) {
  onnx::ModelProto stripped = patched_;
  stripped.clear_functions();
  for (Job job : {RefreshModel, RevertModel}) {
    const Made refused = Run(job, stripped);
    ASSERT_TRUE(refused.outcome.error);
    EXPECT_THAT(
        refused.outcome.error->message,
        HasSubstr("(my.domain.SoftCap) is an own op of a patch map, and its function is gone"));
    EXPECT_THAT(refused.outcome.error->hint, HasSubstr("--patches"));
  }
  const Made made = Run(RefreshModel, stripped, {map_});
  ASSERT_FALSE(made.outcome.error) << made.outcome.error->message;
  ASSERT_EQ(made.model.functions_size(), 1);
  EXPECT_EQ(made.model.functions(0).SerializeAsString(), patched_.functions(0).SerializeAsString());
  EXPECT_EQ(Metadata(made.model)["liger.own_ops"], "my.domain.SoftCap");
}

TEST_F(OwnOpTest, NamesABodyThatAConversionHasBroken) {
  onnx::ModelProto converted = patched_;
  Convert(converted, kF32, kBF16);
  const Made made = Run(RefreshModel, converted);
  ASSERT_TRUE(made.outcome.error);
  EXPECT_THAT(made.outcome.error->message,
              HasSubstr("its body computes in f32 where the operands give bf16 (Div)"));
}

// Without the stamp the function is one of the model's own; the map says what it is.
TEST_F(OwnOpTest, IsTheMapsWithoutAStamp) {
  onnx::ModelProto unstamped = patched_;
  unstamped.clear_metadata_props();
  EXPECT_EQ(Run(RevertModel, unstamped).outcome.report.status, "nothing_to_do");
  const Made made = Run(RevertModel, unstamped, {map_});
  ASSERT_FALSE(made.outcome.error);
  EXPECT_THAT(Operators(made.model), ElementsAre("Div", "Tanh", "Mul"));
}

}  // namespace
}  // namespace liger
