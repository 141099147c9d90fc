// libliger_ort.so in ONNX Runtime: numbers, inference, options, errors.
#include <gtest/gtest.h>
#include <onnx/defs/parser.h>
#include <onnx/onnx_pb.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "ops/op_contract.h"
#include "ort_session.h"

namespace liger::test {
namespace {

class OrtLibrary : public testing::Test {
 protected:
  void SetUp() override {
    if (!OrtIsAvailable()) GTEST_SKIP() << OrtMissingText();
  }
};

std::string ModelBytes(const std::string& text) {
  onnx::ModelProto model;
  onnx::OnnxParser parser(text.c_str());
  const auto status = parser.Parse(model);
  EXPECT_TRUE(status.IsOK()) << status.ErrorMessage() << "\n" << text;
  return model.SerializeAsString();
}

// A model with the given graph text and body-less liger nodes.
std::string Model(const std::string& graph) {
  return ModelBytes("<ir_version: 8, opset_import: [\"\": 18, \"liger\": 1]>\n" + graph);
}

SessionConfig WithLibrary() {
  SessionConfig config;
  config.library = LigerLibraryPath();
  return config;
}

TEST_F(OrtLibrary, NormalisesRows) {
  Result<OrtSession> session = OrtSession::FromBytes(Model(R"(
    g (float[N,4] x, float[4] w) => (float[N,4] y) {
      y = liger.LigerRMSNorm <epsilon: float = 0.0, offset: float = 0.0, stash_type: int = 1,
                              scale_type: int = 1> (x, w)
    })"),
                                                     WithLibrary());
  ASSERT_TRUE(session) << session.error().message;
  Result<NamedTensors> y =
      session->Run({{"x", Tensor::FromDoubles(DType::kF32, {1, 4}, {1, -1, 7, 7})},
                    {"w", Tensor::FromDoubles(DType::kF32, {4}, {1, 2, 3, 4})}});
  ASSERT_TRUE(y) << y.error().message;
  EXPECT_EQ(y->at("y").shape, (std::vector<int64_t>{1, 4}));
  EXPECT_EQ(y->at("y").dtype, DType::kF32);
  const std::vector<double> values = y->at("y").ToDoubles();
  const double expected[] = {0.2, -0.4, 4.2, 5.6};  // mean square 25
  for (int i = 0; i < 4; ++i) EXPECT_NEAR(values[i], expected[i], 1e-6);
}

}  // namespace
}  // namespace liger::test
