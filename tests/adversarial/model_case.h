// A small model as ONNX text, what the patcher must make of it, and the proof that it computes the
// same before and after.
//
//   TEST(Norm, RefusesEpsilonThatIsAnInput) {
//     Case c = NormCase();
//     c.inputs += ", float[] e";
//     c.body = Norm("x", "w", "e", "y");
//     Expect(c, {}, "epsilon is not a constant");
//   }
//
// The model is run in ONNX Runtime as it is, patched with the custom-op library, and patched
// without it; then it is patched a second time, which must change nothing.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <onnx/defs/parser.h>
#include <onnx/onnx_pb.h>

#include <functional>
#include <limits>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "patch_and_run.h"

namespace liger::test {

struct Case {
  int opset = 18;
  int ir_version = 9;
  std::string imports;  // further opset imports: ", \"liger\" : 1"
  std::string inputs = "float[2,4,8] x";
  std::string outputs = "float[2,4,8] y";
  std::string constants;  // further initializers
  std::string values;     // value_info
  std::string body;
  std::string functions;
  std::map<std::string, int64_t> dims;          // of symbolic dimensions in a run
  std::map<std::string, Tensor> feeds;          // instead of random ones
  std::function<void(onnx::ModelProto&)> edit;  // of the parsed model
  double limit = 2e-6;                          // of the largest output
  bool runs = true;                             // whether ONNX Runtime can run it
};

// Constants that bodies may use: w and w2 [8]; eps, one, two, half of rank 0; m1 (-1), zero, i1, i2,
// i4, i8 and big of int64 [1].
inline std::string CommonConstants() {
  return R"(float[8] w = {0.5,0.75,1,1.25,1.5,0.25,-0.5,2}, float[8] w2 = {1,2,3,4,4,3,2,1},
    float eps = {0.00001}, float one = {1},
    float two = {2}, float half = {0.5}, int64[1] m1 = {-1}, int64[1] zero = {0}, int64[1] i1 = {1},
    int64[1] i2 = {2}, int64[1] i4 = {4}, int64[1] i8 = {8}, int64[1] big = {9223372036854775807})";
}

inline onnx::ModelProto Parse(const Case& c) {
  std::string text = "<ir_version: " + std::to_string(c.ir_version) +
                     ", opset_import: [\"\" : " + std::to_string(c.opset) + c.imports + "]>\ng (" +
                     c.inputs + ") => (" + c.outputs + ")\n<" + CommonConstants() +
                     (c.constants.empty() ? "" : ", " + c.constants) +
                     (c.values.empty() ? "" : ", " + c.values) + ">\n{\n" + c.body + "\n}\n" +
                     c.functions;
  onnx::ModelProto model;
  const auto status = onnx::OnnxParser::Parse(model, text.c_str());
  if (!status.IsOK()) ADD_FAILURE() << status.ErrorMessage() << "\n" << text;
  if (c.edit) c.edit(model);
  return model;
}

inline NamedTensors Feeds(const Case& c, const onnx::ModelProto& model) {
  std::mt19937_64 random(1);
  NamedTensors feeds = c.feeds;
  std::set<std::string> initializers;
  for (const auto& tensor : model.graph().initializer()) initializers.insert(tensor.name());
  for (const auto& input : model.graph().input()) {
    if (feeds.contains(input.name()) || initializers.contains(input.name())) continue;
    const auto& type = input.type().tensor_type();
    std::vector<int64_t> shape;
    for (const auto& dim : type.shape().dim()) {
      const auto found = c.dims.find(dim.dim_param());
      shape.push_back(dim.has_dim_value()     ? dim.dim_value()
                      : found != c.dims.end() ? found->second
                                              : 2);
    }
    feeds[input.name()] = RandomTensor(static_cast<DType>(type.elem_type()), shape, random);
  }
  return feeds;
}

inline std::vector<std::string> FusedOps(const Report& report) {
  std::vector<std::string> ops;
  for (const auto& patched : report.patched) ops.push_back(patched.op);
  return ops;
}

inline std::string Reasons(const Report& report) {
  std::string text;
  for (const auto* list : {&report.missed, &report.degraded, &report.near_misses}) {
    for (const auto& miss : *list)
      text += miss.module + " [" + miss.guard + "] " + miss.reason + "\n";
  }
  for (const auto& fused : report.already_fused) text += fused.op + ": " + fused.reason + "\n";
  return text;
}

// Fused ops in node order, and a part of a reason in the report (not looked at if empty).
inline void Expect(const Case& c, const std::vector<std::string>& ops,
                   const std::string& reason = "") {
  const onnx::ModelProto model = Parse(c);
  const std::string bytes = model.SerializeAsString();
  const auto patched = PatchBytes(bytes);
  ASSERT_TRUE(static_cast<bool>(patched)) << patched.error().message;
  EXPECT_THAT(FusedOps(patched->report), ::testing::UnorderedElementsAreArray(ops))
      << Reasons(patched->report);
  if (!reason.empty()) {
    EXPECT_THAT(Reasons(patched->report), ::testing::HasSubstr(reason));
  }
  const auto again = PatchBytes(patched->bytes);
  ASSERT_TRUE(static_cast<bool>(again)) << again.error().message;
  EXPECT_THAT(FusedOps(again->report), ::testing::IsEmpty()) << "by a second run";
  if (!c.runs) return;
  if (!OrtIsAvailable()) GTEST_SKIP() << OrtMissingText();
  const NamedTensors feeds = Feeds(c, model);
  const auto before = RunModel(bytes, feeds, "");
  ASSERT_TRUE(static_cast<bool>(before)) << "the original: " << before.error().message;
  for (const std::string& library : {LigerLibraryPath(), std::string()}) {
    const std::string how = library.empty() ? "without library: " : "with library: ";
    const auto after = RunModel(patched->bytes, feeds, library);
    ASSERT_TRUE(static_cast<bool>(after)) << how << after.error().message;
    const Difference difference = Compare(*before, *after);
    EXPECT_EQ(difference.structure, "") << how;
    EXPECT_LE(difference.largest, c.limit) << how;
  }
}

// y = x / sqrt(mean(x^2) + eps) * w, names prefixed by y's.
inline std::string Statistics(const std::string& x, const std::string& e, const std::string& p) {
  return p + "_sq = Mul(" + x + ", " + x + ")\n" + p + "_m = ReduceMean(" + p + "_sq, m1)\n" + p +
         "_v = Add(" + p + "_m, " + e + ")\n" + p + "_r = Sqrt(" + p + "_v)\n";
}
inline std::string Norm(const std::string& x, const std::string& w, const std::string& e,
                        const std::string& y) {
  return Statistics(x, e, y) + y + "_n = Div(" + x + ", " + y + "_r)\n" + y + " = Mul(" + y +
         "_n, " + w + ")\n";
}

// y = x * cos + Concat(-x2, x1) * sin for a head of 8.
inline std::string Rope(const std::string& x, const std::string& cos, const std::string& sin,
                        const std::string& y) {
  return y + "_lo = Slice(" + x + ", zero, i4, m1)\n" + y + "_hi = Slice(" + x +
         ", i4, big, m1)\n" + y + "_neg = Neg(" + y + "_hi)\n" + y + "_rot = Concat<axis = -1>(" +
         y + "_neg, " + y + "_lo)\n" + y + "_a = Mul(" + x + ", " + cos + ")\n" + y + "_b = Mul(" +
         y + "_rot, " + sin + ")\n" + y + " = Add(" + y + "_a, " + y + "_b)\n";
}

// Tables cos and sin from angles f (half as wide).
inline std::string Tables(const std::string& f) {
  return "emb = Concat<axis = -1>(" + f + ", " + f + ")\ncos = Cos(emb)\nsin = Sin(emb)\n";
}

inline std::string SwiGlu(const std::string& g, const std::string& u, const std::string& y) {
  return y + "_s = Sigmoid(" + g + ")\n" + y + "_a = Mul(" + g + ", " + y + "_s)\n" + y +
         " = Mul(" + y + "_a, " + u + ")\n";
}

inline Tensor Scalar(double value) { return Tensor::FromDoubles(DType::kF32, {}, {value}); }

}  // namespace liger::test
