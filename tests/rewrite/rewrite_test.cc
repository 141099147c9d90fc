// Graph in, graph out: each cases/NAME.onnxtext is patched by the structural route and compared
// with cases/NAME.expected, which holds what the report says and the graph that comes out. Then
// original and result are run in ONNX Runtime, with the library and without it.
//
// LIGER_UPDATE_GOLDENS=1 writes the .expected files anew; their diff is reviewed.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <onnx/defs/parser.h>
#include <onnx/defs/printer.h>
#include <onnx/onnx_pb.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>

#include "api/patch_model.h"
#include "ort_session.h"

namespace liger {
namespace {

namespace fs = std::filesystem;

std::string ReadFile(const fs::path& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
}

std::vector<std::string> CaseNames() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(LIGER_CASES_DIR)) {
    if (entry.path().extension() == ".onnxtext") names.push_back(entry.path().stem().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

// What a reviewer wants to see: the report's lines, then the graph.
std::string Describe(const Report& report, const onnx::ModelProto& model) {
  std::ostringstream text;
  for (const PatchedReport& p : report.patched) {
    text << "patched " << p.op << " " << p.form << " " << p.precision;
    for (const auto& [name, value] : p.attributes)
      text << " " << name << "=" << AttributeText(value);
    text << "\n";
  }
  for (const MissReport& m : report.degraded)
    text << "degraded " << m.module << ": " << m.reason << "\n";
  for (const MissReport& m : report.missed) {
    text << "missed " << m.module << " [" << m.guard << "]: " << m.reason << "\n";
  }
  for (const MissReport& m : report.near_misses)
    text << "near " << m.module << ": " << m.reason << "\n";
  for (const auto& function : model.functions()) {
    text << "function " << function.name();
    if (!function.overload().empty()) text << ":" << function.overload();
    text << "\n";
  }
  text << onnx::ProtoToString(model.graph()) << "\n";
  return text.str();
}

// Deterministic inputs of the declared types; symbolic dimensions get a small length by name.
test::NamedTensors MakeInputs(const onnx::GraphProto& graph) {
  test::NamedTensors inputs;
  std::mt19937 random(7);
  std::normal_distribution<double> normal;
  for (const auto& input : graph.input()) {
    const auto& type = input.type().tensor_type();
    std::vector<int64_t> shape;
    int64_t size = 1;
    for (const auto& dim : type.shape().dim()) {
      shape.push_back(dim.has_dim_value() ? dim.dim_value() : dim.dim_param() == "batch" ? 2 : 3);
      size *= shape.back();
    }
    std::vector<double> values(static_cast<size_t>(size));
    for (double& value : values) value = shape.empty() ? 1.0 : normal(random);
    inputs[input.name()] =
        test::Tensor::FromDoubles(static_cast<DType>(type.elem_type()), shape, values);
  }
  return inputs;
}

class RewriteTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() /
              ("liger_rewrite_" + std::to_string(getpid()) + "_" + GetParam());
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  fs::path folder_;
};

void ExpectClose(const test::NamedTensors& want, const test::NamedTensors& got,
                 const std::string& what) {
  for (const auto& [name, tensor] : want) {
    ASSERT_TRUE(got.contains(name));
    ASSERT_EQ(got.at(name).shape, tensor.shape);
    const std::vector<double> a = tensor.ToDoubles();
    const std::vector<double> b = got.at(name).ToDoubles();
    double largest = 0;
    for (double value : a) largest = std::max(largest, std::abs(value));
    // The largest output times a few roundings of the dtype: f16 graphs round after every operator.
    const double limit = largest * (tensor.dtype == DType::kF32 ? 2e-6 : 4e-3);
    for (size_t i = 0; i < a.size(); ++i) {
      if (std::isnan(a[i])) {
        EXPECT_TRUE(std::isnan(b[i])) << what << " " << name << "[" << i << "]";
      } else {
        EXPECT_NEAR(a[i], b[i], limit) << what << " " << name << "[" << i << "]";
      }
    }
  }
}

TEST_P(RewriteTest, GivesTheExpectedGraphAndTheSameNumbers) {
  const fs::path stem = fs::path(LIGER_CASES_DIR) / GetParam();
  const std::string text = ReadFile(stem.string() + ".onnxtext");
  onnx::ModelProto original;
  onnx::OnnxParser parser(text.c_str());
  const auto status = parser.Parse(original);
  ASSERT_TRUE(status.IsOK()) << status.ErrorMessage();
  const std::string bytes = original.SerializeAsString();

  PatchOptions options;
  options.input = folder_ / "model.onnx";
  options.bytes = std::as_bytes(std::span(bytes));
  options.output = folder_ / "patched.onnx";
  options.family = "any";
  const PatchOutcome outcome = PatchModel(options);
  ASSERT_FALSE(outcome.error) << outcome.error->message;

  onnx::ModelProto patched = original;
  if (outcome.report.output) {
    ASSERT_TRUE(patched.ParseFromString(ReadFile(*options.output)));
  }
  EXPECT_EQ(outcome.report.output.has_value(), !outcome.report.patched.empty());
  EXPECT_EQ(GetParam().starts_with("keeps_"), outcome.report.patched.empty())
      << "the name of the case says what is expected";

  const std::string described = Describe(outcome.report, patched);
  const fs::path golden = stem.string() + ".expected";
  if (std::getenv("LIGER_UPDATE_GOLDENS") != nullptr) {
    std::ofstream(golden, std::ios::binary) << described;
  }
  EXPECT_EQ(ReadFile(golden), described);

  if (!outcome.report.output) return;  // nothing changed
  if (!test::OrtIsAvailable()) GTEST_SKIP() << test::OrtMissingText();
  const test::NamedTensors inputs = MakeInputs(original.graph());
  test::SessionConfig plain;
  plain.optimisation_level = 0;
  auto session = test::OrtSession::FromBytes(bytes, plain);
  ASSERT_TRUE(session) << session.error().message;
  auto want = session->Run(inputs);
  ASSERT_TRUE(want) << want.error().message;
  for (const bool with_library : {false, true}) {
    for (const int level : {0, 99}) {
      test::SessionConfig config;
      config.optimisation_level = level;
      if (with_library) config.library = test::LigerLibraryPath();
      const std::string what =
          std::string(with_library ? "library" : "bodies") + " at level " + std::to_string(level);
      auto rewritten = test::OrtSession::FromBytes(patched.SerializeAsString(), config);
      ASSERT_TRUE(rewritten) << what << ": " << rewritten.error().message;
      auto got = rewritten->Run(inputs);
      ASSERT_TRUE(got) << what << ": " << got.error().message;
      ExpectClose(*want, *got, what);
    }
  }
}

TEST_P(RewriteTest, FindsNothingMoreInItsOwnResult) {
  const std::string text =
      ReadFile((fs::path(LIGER_CASES_DIR) / GetParam()).string() + ".onnxtext");
  onnx::ModelProto original;
  onnx::OnnxParser parser(text.c_str());
  ASSERT_TRUE(parser.Parse(original).IsOK());
  const std::string bytes = original.SerializeAsString();
  PatchOptions options;
  options.input = folder_ / "model.onnx";
  options.bytes = std::as_bytes(std::span(bytes));
  options.output = folder_ / "patched.onnx";
  options.family = "any";
  const PatchOutcome first = PatchModel(options);
  ASSERT_FALSE(first.error) << first.error->message;
  if (!first.report.output) return;

  PatchOptions again;
  again.input = *options.output;
  again.output = folder_ / "again.onnx";
  again.family = "any";
  const PatchOutcome second = PatchModel(again);
  ASSERT_FALSE(second.error) << second.error->message;
  EXPECT_EQ(second.report.status, "nothing_to_do");
  EXPECT_TRUE(second.report.patched.empty());
  EXPECT_FALSE(second.report.output);
  EXPECT_FALSE(fs::exists(*again.output));
  int64_t fused = 0;
  for (const FusedReport& entry : second.report.already_fused) fused += entry.instances;
  int64_t patched = 0;
  for (const PatchedReport& entry : first.report.patched)
    patched += static_cast<int64_t>(entry.paths.size());
  EXPECT_EQ(fused, patched);
}

INSTANTIATE_TEST_SUITE_P(Cases, RewriteTest, testing::ValuesIn(CaseNames()),
                         [](const auto& param_info) { return param_info.param; });

}  // namespace
}  // namespace liger
