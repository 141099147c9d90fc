#include "patch_and_run.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>

namespace liger::test {

namespace fs = std::filesystem;

Result<PatchedModel> PatchBytes(const std::string& bytes, const PatchOptions& base) {
  static int count = 0;
  const fs::path folder = fs::temp_directory_path() / ("liger-run-" + std::to_string(::getpid()) +
                                                       "-" + std::to_string(count++));
  std::error_code ignored;
  fs::create_directory(folder, ignored);
  PatchOptions options = base;
  options.input = folder / "in.onnx";
  options.bytes = std::as_bytes(std::span(bytes.data(), bytes.size()));
  options.output = folder / "out.onnx";
  options.family = "any";
  PatchOutcome outcome = PatchModel(options);
  PatchedModel patched{std::move(outcome.report), bytes};
  if (fs::exists(*options.output)) {
    std::ifstream stream(*options.output, std::ios::binary);
    patched.bytes.assign(std::istreambuf_iterator<char>(stream), {});
  }
  fs::remove_all(folder, ignored);
  if (outcome.error) return *std::move(outcome.error);
  return patched;
}

Result<NamedTensors> RunModel(const std::string& bytes, const NamedTensors& feeds,
                              const std::string& library) {
  SessionConfig config;
  config.library = library;
  config.optimisation_level = 0;
  auto session = OrtSession::FromBytes(bytes, config);
  if (!session) return std::move(session).error().WithContext("loading");
  return session->Run(feeds);
}

Tensor RandomTensor(DType dtype, std::vector<int64_t> shape, std::mt19937_64& random) {
  int64_t count = 1;
  for (int64_t d : shape) count *= d;
  std::vector<double> values;
  for (int64_t i = 0; i < count; ++i) {
    values.push_back(static_cast<double>(random() % 20001) / 10000 - 1);
  }
  return Tensor::FromDoubles(dtype, std::move(shape), values);
}

NamedTensors DecoderFeeds(const onnx::ModelProto& model, std::mt19937_64& random) {
  constexpr int64_t kBatch = 2, kSequence = 5, kPast = 3, kVocabulary = 64;
  std::map<std::string, const onnx::ValueInfoProto*> inputs;
  bool has_past = false;
  for (const auto& input : model.graph().input()) {
    inputs[input.name()] = &input;
    has_past = has_past || input.name().starts_with("past");
  }
  for (const auto& tensor : model.graph().initializer()) inputs.erase(tensor.name());
  NamedTensors feeds;
  for (const auto& [name, info] : inputs) {
    const auto& type = info->type().tensor_type();
    const auto dtype = static_cast<DType>(type.elem_type());
    std::vector<int64_t> shape;
    for (int axis = 0; axis < type.shape().dim_size(); ++axis) {
      const auto& dim = type.shape().dim(axis);
      int64_t length = axis == 0 ? kBatch : kSequence;
      if (axis > 0 && name.starts_with("past")) length = kPast;
      if (name == "attention_mask" && axis == 1 && has_past) length = kSequence + kPast;
      shape.push_back(dim.has_dim_value() ? dim.dim_value() : length);
    }
    if (IsFloat(dtype)) {
      feeds[name] = RandomTensor(dtype, shape, random);
      continue;
    }
    int64_t count = 1;
    for (int64_t d : shape) count *= d;
    std::vector<double> values;
    for (int64_t i = 0; i < count; ++i) {
      values.push_back(name == "attention_mask" ? (i < 2 ? 0 : 1)
                                                : static_cast<double>(random() % kVocabulary));
    }
    feeds[name] = Tensor::FromDoubles(dtype, shape, values);
  }
  return feeds;
}

Difference Compare(const NamedTensors& a, const NamedTensors& b) {
  Difference worst;
  if (a.size() != b.size()) worst.structure = "another number of outputs";
  for (const auto& [name, x] : a) {
    const auto found = b.find(name);
    if (found == b.end()) {
      worst.structure = "no output " + name;
      continue;
    }
    const Tensor& y = found->second;
    if (x.dtype != y.dtype || x.shape != y.shape) {
      worst.structure = name + " has another type or shape";
      continue;
    }
    const std::vector<double> u = x.ToDoubles();
    const std::vector<double> v = y.ToDoubles();
    double largest = 0, difference = 0, norm2 = 0, difference2 = 0;
    for (size_t i = 0; i < u.size(); ++i) {
      if (!std::isfinite(u[i]) || !std::isfinite(v[i])) {
        const bool same = (std::isnan(u[i]) && std::isnan(v[i])) || u[i] == v[i];
        if (!same) {
          worst.structure = name + "[" + std::to_string(i) + "] is " + std::to_string(u[i]) +
                            " before and " + std::to_string(v[i]) + " after";
        }
        continue;
      }
      largest = std::max(largest, std::abs(u[i]));
      difference = std::max(difference, std::abs(u[i] - v[i]));
      norm2 += u[i] * u[i];
      difference2 += (u[i] - v[i]) * (u[i] - v[i]);
    }
    if (difference == 0) continue;
    worst.largest = std::max(worst.largest, difference / std::max(largest, 1e-30));
    worst.relative_l2 =
        std::max(worst.relative_l2, std::sqrt(difference2 / std::max(norm2, 1e-60)));
  }
  return worst;
}

}  // namespace liger::test
