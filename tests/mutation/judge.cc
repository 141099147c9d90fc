#include "judge.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

namespace liger::test {
namespace {

// Exports move by about 6 times a disturbance of their weights. A mutant that moves by many times more
// cannot be judged.
constexpr double kRounding = 1e-6;         // of f32, as it reaches an output
constexpr double kHalfMagnification = 20;  // f16
constexpr double kHalfUlp = 1e-3;
constexpr double kLargestHalf = 70000;  // 65504, and what a mask of -65504 may add to it
constexpr double kAbsolute =
    5e-8;  // error of ONNX Runtime's f32 Sigmoid, also where its result is small
constexpr double kDisturbance = 1e-6;  // to see how a mutant magnifies roundings

void Disturb(char* bytes, size_t size, std::mt19937_64& random) {
  for (size_t at = 0; at + 4 <= size; at += 4) {
    float value;
    std::memcpy(&value, bytes + at, 4);
    const double push = static_cast<double>(random() % 2001) / 1000 - 1;
    value = static_cast<float>(value * (1 + kDisturbance * push));
    std::memcpy(bytes + at, &value, 4);
  }
}

// Moves the results of functions that saturate.
void DisturbFunctions(onnx::GraphProto& graph, std::mt19937_64& random) {
  const auto nodes = graph.node();
  graph.clear_node();
  for (const auto& old : nodes) {
    onnx::NodeProto& node = *graph.add_node();
    node = old;
    if (node.op_type() != "Sigmoid" && node.op_type() != "Tanh" && node.op_type() != "Erf")
      continue;
    const float push = static_cast<float>(random() % 2 == 0 ? kAbsolute : -kAbsolute);
    const std::string& name = old.output(0);
    onnx::TensorProto& tensor = *graph.add_initializer();
    tensor.set_name(name + "_push");
    tensor.set_data_type(onnx::TensorProto::FLOAT);
    tensor.add_float_data(push);
    node.set_output(0, name + "_exact");
    onnx::NodeProto& add = *graph.add_node();
    add.set_op_type("Add");
    for (const char* input : {"_exact", "_push"}) add.add_input(name + input);
    add.add_output(name);
  }
}

// How much the outputs move, relative to kDisturbance, when every f32 weight and input moves by
// that.
double MagnificationOnce(const onnx::ModelProto& model, const NamedTensors& feeds,
                         const NamedTensors& outputs, uint64_t seed) {
  std::mt19937_64 random(seed);
  onnx::ModelProto disturbed = model;
  for (auto& tensor : *disturbed.mutable_graph()->mutable_initializer()) {
    if (tensor.data_type() != onnx::TensorProto::FLOAT || tensor.raw_data().size() < 64) continue;
    std::string& bytes = *tensor.mutable_raw_data();
    Disturb(bytes.data(), bytes.size(), random);
  }
  if (seed % 2 == 0) DisturbFunctions(*disturbed.mutable_graph(), random);
  NamedTensors inputs = feeds;
  for (auto& [name, tensor] : inputs) {
    if (tensor.dtype != DType::kF32) continue;
    Disturb(reinterpret_cast<char*>(tensor.bytes.data()), tensor.bytes.size(), random);
  }
  const auto moved = RunModel(disturbed.SerializeAsString(), inputs, "");
  if (!moved) return 0;
  const Difference difference = Compare(outputs, *moved);
  return difference.structure.empty() ? difference.largest / kDisturbance : 1e30;
}

// The largest of a few: a rounding to a half type moves its result seldom, but then far.
double Magnification(const onnx::ModelProto& model, const NamedTensors& feeds,
                     const NamedTensors& outputs, uint64_t seed) {
  double largest = 0;
  for (uint64_t i = 0; i < 5; ++i) {
    largest = std::max(largest, MagnificationOnce(model, feeds, outputs, seed + i));
  }
  return largest;
}

void WidenType(onnx::TypeProto& type) {
  auto& tensor = *type.mutable_tensor_type();
  if (tensor.elem_type() == onnx::TensorProto::FLOAT16) {
    tensor.set_elem_type(onnx::TensorProto::FLOAT);
  }
}

void WidenTensor(onnx::TensorProto& tensor) {
  if (tensor.data_type() != onnx::TensorProto::FLOAT16) return;
  Tensor half{DType::kF16, {tensor.dims().begin(), tensor.dims().end()}, {}};
  half.bytes.resize(half.size() * 2);
  if (tensor.int32_data_size() > 0) {
    for (int i = 0; i < tensor.int32_data_size(); ++i) {
      const auto bits = static_cast<uint16_t>(tensor.int32_data(i));
      std::memcpy(half.bytes.data() + 2 * i, &bits, 2);
    }
  } else {
    std::memcpy(half.bytes.data(), tensor.raw_data().data(), half.bytes.size());
  }
  const Tensor wide = Tensor::FromDoubles(DType::kF32, half.shape, half.ToDoubles());
  tensor.clear_int32_data();
  tensor.set_data_type(onnx::TensorProto::FLOAT);
  tensor.set_raw_data(
      std::string(reinterpret_cast<const char*>(wide.bytes.data()), wide.bytes.size()));
}

// The model in f32 throughout: what its f16 form rounds from.
void Widen(onnx::GraphProto& graph) {
  for (auto& tensor : *graph.mutable_initializer()) WidenTensor(tensor);
  for (auto* infos : {graph.mutable_input(), graph.mutable_output(), graph.mutable_value_info()}) {
    for (auto& info : *infos) WidenType(*info.mutable_type());
  }
  for (auto& node : *graph.mutable_node()) {
    for (auto& attribute : *node.mutable_attribute()) {
      if (attribute.has_t()) WidenTensor(*attribute.mutable_t());
      if (attribute.has_g()) Widen(*attribute.mutable_g());
      if (node.op_type() == "Cast" && attribute.i() == onnx::TensorProto::FLOAT16) {
        attribute.set_i(onnx::TensorProto::FLOAT);
      }
    }
  }
}

NamedTensors Widened(const NamedTensors& tensors) {
  NamedTensors wide = tensors;
  for (auto& [name, tensor] : wide) {
    if (tensor.dtype != DType::kF16) continue;
    tensor = Tensor::FromDoubles(DType::kF32, tensor.shape, tensor.ToDoubles());
  }
  return wide;
}

// Whether a value of the f32 form does not fit into f16. ONNX Runtime leaves out the roundings between
// two of its own nodes, so that only a fused node meets them.
bool LeavesRange(const onnx::ModelProto& wide, const NamedTensors& feeds) {
  onnx::ModelProto model = wide;
  auto& graph = *model.mutable_graph();
  graph.clear_output();
  for (const auto& node : graph.node()) {
    for (const std::string& output : node.output()) {
      if (!output.empty()) graph.add_output()->set_name(output);
    }
  }
  const auto values = RunModel(model.SerializeAsString(), feeds, "");
  if (!values) return false;
  for (const auto& [name, tensor] : *values) {
    if (tensor.dtype != DType::kF32) continue;
    const std::vector<double> numbers = tensor.ToDoubles();
    if (std::any_of(numbers.begin(), numbers.end(),
                    [](double v) { return std::isfinite(v) && std::abs(v) > kLargestHalf; })) {
      return true;
    }
  }
  return false;
}

// Against the f32 form of the mutant.
Judgement JudgeHalf(const onnx::ModelProto& mutant, const NamedTensors& feeds,
                    const NamedTensors& before, const NamedTensors& after, uint64_t seed) {
  onnx::ModelProto wide = mutant;
  Widen(*wide.mutable_graph());
  const NamedTensors wide_feeds = Widened(feeds);
  const auto reference = RunModel(wide.SerializeAsString(), wide_feeds, "");
  if (!reference) return {Verdict::kWrong, 0, "no f32 form: " + reference.error().message};
  const Difference old = Compare(*reference, Widened(before));
  const Difference now = Compare(*reference, Widened(after));
  Judgement judged{Verdict::kWrong, now.relative_l2, now.structure};
  if (old.structure.empty() && now.structure.empty() &&
      now.relative_l2 <= 1.25 * old.relative_l2 + kHalfUlp) {
    judged.verdict = Verdict::kSame;
  } else if (!old.structure.empty() || LeavesRange(wide, wide_feeds) ||
             Magnification(wide, wide_feeds, *reference, seed) > kHalfMagnification) {
    judged.verdict = Verdict::kUnstable;
  }
  return judged;
}

}  // namespace

Judgement Judge(const onnx::ModelProto& mutant, const NamedTensors& feeds,
                const NamedTensors& before, const NamedTensors& after, const Tolerance& tolerance,
                uint64_t seed) {
  const Difference difference = Compare(before, after);
  Judgement judged;
  judged.amount = tolerance.half ? difference.relative_l2 : difference.largest;
  judged.structure = difference.structure;
  if (judged.structure.empty() && judged.amount <= tolerance.limit) {
    judged.verdict = Verdict::kSame;
  } else if (tolerance.half) {
    return JudgeHalf(mutant, feeds, before, after, seed);
  } else if (Magnification(mutant, feeds, before, seed) > tolerance.limit / kRounding) {
    judged.verdict = Verdict::kUnstable;
  }
  return judged;
}

}  // namespace liger::test
