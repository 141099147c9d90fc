// What the tests of libliger_ort share: models of one node in ONNX text, runs with the library, the
// loop over the dtype tuples of an op.
//
//   const onnx::ModelProto model = Model(Instantiate(kText, DType::kF16, DType::kF32));
//   const NamedTensors y = MustRun(model, {{"x", x}});
#pragma once

#include <gtest/gtest.h>
#include <onnx/defs/parser.h>
#include <onnx/onnx_pb.h>

#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kernel_test.h"
#include "ops/op_contract.h"
#include "ort_session.h"

namespace liger::test {

class OrtLibrary : public testing::Test {
 protected:
  void SetUp() override {
    if (!OrtIsAvailable()) GTEST_SKIP() << OrtMissingText();
  }
};

inline onnx::ModelProto Parse(const std::string& body) {
  onnx::ModelProto model;
  onnx::OnnxParser parser(body.c_str());
  const auto status = parser.Parse(model);
  EXPECT_TRUE(status.IsOK()) << status.ErrorMessage() << "\n" << body;
  return model;
}

// A graph (and functions) in ONNX text, as a model that imports the liger domain.
inline onnx::ModelProto Model(const std::string& text) {
  return Parse("<ir_version: 8, opset_import: [\"\": 18, \"liger\": 1]>\n" + text);
}

inline SessionConfig WithLibrary() {
  SessionConfig config;
  config.library = LigerLibraryPath();
  return config;
}

inline Result<OrtSession> Load(const onnx::ModelProto& model,
                               const SessionConfig& config = WithLibrary()) {
  return OrtSession::FromBytes(model.SerializeAsString(), config);
}

inline std::string TypeText(DType dtype) {
  switch (dtype) {
    case DType::kF16:
      return "float16";
    case DType::kBF16:
      return "bfloat16";
    case DType::kF64:
      return "double";
    default:
      return "float";
  }
}

// The text of a model with one node: `%T` and `%S` stand for the dtypes, `%stash` for T, or f32
// under a mixed tuple.
inline std::string Instantiate(std::string text, DType t, DType s) {
  const std::pair<std::string, std::string> replacements[] = {
      {"%T", TypeText(t)},
      {"%S", TypeText(s)},
      {"%stash", std::to_string(static_cast<int>(s))},
  };
  for (const auto& [from, to] : replacements) {
    for (size_t at = text.find(from); at != std::string::npos;
         at = text.find(from, at + to.size())) {
      text.replace(at, from.size(), to);
    }
  }
  return text;
}

inline Tensor Get(const NamedTensors& tensors, const std::string& name) {
  const auto found = tensors.find(name);
  EXPECT_NE(found, tensors.end()) << name;
  return found == tensors.end() ? Tensor{DType::kF32, {0}, {}} : found->second;
}

inline NamedTensors MustRun(const onnx::ModelProto& model, const NamedTensors& inputs,
                            const SessionConfig& config = WithLibrary()) {
  Result<OrtSession> session = Load(model, config);
  if (!session) {
    ADD_FAILURE() << session.error().message;
    return {};
  }
  Result<NamedTensors> outputs = session->Run(inputs);
  if (!outputs) {
    ADD_FAILURE() << outputs.error().message;
    return {};
  }
  return *std::move(outputs);
}

inline void ForEachTuple(const char* op_type, auto body) {
  const OpContract* contract = FindContract(op_type);
  ASSERT_NE(contract, nullptr);
  for (const TypeTuple& tuple : contract->kernels) {
    if (tuple.provider != Provider::kCpu) continue;
    const DType t = tuple.Find("T");
    const DType s = tuple.Find("S") == DType::kUndefined ? t : tuple.Find("S");
    SCOPED_TRACE(std::string(op_type) + " " + std::string(DTypeName(t)) + " " +
                 std::string(DTypeName(s)));
    body(t, s);
  }
}

// The dims that the runtime infers for the outputs of `model`, whose own say nothing.
inline std::vector<std::vector<std::string>> InferredDims(onnx::ModelProto model) {
  for (auto& output : *model.mutable_graph()->mutable_output()) {
    output.mutable_type()->mutable_tensor_type()->clear_shape();
  }
  std::vector<std::vector<std::string>> dims;
  Result<OrtSession> session = Load(model);
  if (!session) {
    ADD_FAILURE() << session.error().message;
    return dims;
  }
  for (const ValueInfo& output : session->outputs()) dims.push_back(output.dims);
  return dims;
}

using Dims = std::vector<std::string>;

// A change of a model's only node that must be an error when its kernel is made.
struct BadAttribute {
  const char* model;
  const char* from;
  const char* to;
  const char* message;
};

inline void ExpectBadAttributes(std::span<const BadAttribute> cases) {
  for (const BadAttribute& c : cases) {
    std::string text = Instantiate(c.model, DType::kF32, DType::kF32);
    const size_t at = text.find(c.from);
    ASSERT_NE(at, std::string::npos) << c.from;
    text.replace(at, std::string(c.from).size(), c.to);
    onnx::ModelProto model = Model(text);
    model.mutable_graph()->mutable_node(0)->set_name("n1");
    Result<OrtSession> session = Load(model);
    ASSERT_FALSE(session) << c.to;
    EXPECT_NE(session.error().message.find(c.message), std::string::npos)
        << session.error().message;
    EXPECT_NE(session.error().message.find("(node 'n1'): "), std::string::npos)
        << session.error().message;
  }
}

// Shapes of the inputs with which the model's only node must fail.
struct BadShapes {
  const char* model;
  std::map<std::string, std::vector<int64_t>> shapes;
  const char* message;
};

inline void ExpectBadShapes(std::span<const BadShapes> cases) {
  for (const BadShapes& c : cases) {
    SCOPED_TRACE(c.message);
    onnx::ModelProto model = Model(Instantiate(c.model, DType::kF32, DType::kF32));
    model.mutable_graph()->mutable_node(0)->set_name("n1");
    NamedTensors inputs;
    for (auto& input : *model.mutable_graph()->mutable_input()) {
      // Every dimension gets a name of its own, or the runtime would refuse the input first.
      int index = 0;
      for (auto& dim :
           *input.mutable_type()->mutable_tensor_type()->mutable_shape()->mutable_dim()) {
        dim.set_dim_param(input.name() + std::to_string(index++));
      }
      inputs[input.name()] = RandomTensor(DType::kF32, c.shapes.at(input.name()), 1);
    }
    Result<OrtSession> session = Load(model);
    ASSERT_TRUE(session) << session.error().message;
    Result<NamedTensors> outputs = session->Run(inputs);
    ASSERT_FALSE(outputs);
    EXPECT_NE(outputs.error().message.find(c.message), std::string::npos)
        << outputs.error().message;
  }
}

}  // namespace liger::test
