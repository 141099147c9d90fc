// Random edits of real exports: whatever the edit did to the function, the patched model must
// compute the same. Seeds are fixed and printed; LIGER_MUTANTS changes their number, LIGER_MUTANT_SEED
// the first of them, and LIGER_MUTANTS_KEEP names a folder for the mutants that fail.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <memory>
#include <set>

#include "mutator.h"
#include "patch_and_run.h"

namespace liger::test {
namespace {

constexpr uint64_t kSeed = 20261130;  // of the first mutant; LIGER_MUTANT_SEED is another
constexpr int kMutants = 406;
constexpr int kHalfMutants = 87;
constexpr int kMaxTries = 6;         // seeds for one mutant until one gives a model that runs
constexpr double kLimit = 2e-4;      // f32: of the largest output
constexpr double kHalfLimit = 2e-3;  // f16: relative L2
constexpr double kHalfUlp = 1e-3;
// Exports move by about 6 times a disturbance of their weights. A mutant beyond these cannot be
// judged.
constexpr double kMagnification = 200;     // f32: roundings of 1e-6 reach kLimit
constexpr double kHalfMagnification = 20;  // f16
constexpr double kDisturbance = 1e-6;  // of the weights, to see how a mutant magnifies roundings

const char* const kModels[] = {
    "llama/dynamo_op20",          "llama/dynamo_op18_dyn",      "llama/mask_ts_op17_dyn",
    "llama/dynamo_op23",          "llama/past_ts_op17_dyn",     "llama/past_dynamo_op20_dyn",
    "llama/loss_dynamo_op20",     "mistral/mask_ts_op20",       "mistral/mask_dynamo_op20_dyn",
    "mistral/dynamo_op23",        "qwen2/dynamo_op18",          "qwen2/mask_ts_op17_dyn",
    "qwen2/mask_dynamo_op20_dyn", "qwen3/past_dynamo_op18_dyn", "qwen3/dynamo_op20",
    "qwen3/mask_ts_op17_dyn"};
const char* const kHalfModels[] = {"llama/fp16_dynamo_op20", "llama/fp16_mask_ts_op17_dyn",
                                   "qwen3/fp16_dynamo_op23"};

// What was matched: op, place and form of each fused node.
std::multiset<std::string> Matches(const Report& report) {
  std::multiset<std::string> matches;
  for (const PatchedReport& patched : report.patched) {
    matches.insert(patched.op + " " + patched.node + " " + patched.form);
  }
  return matches;
}

struct Base {
  std::string name;
  onnx::ModelProto model;
  std::multiset<std::string> matches;
  std::unique_ptr<Mutator> mutator;
};

Base LoadBase(const std::string& name) {
  Base base;
  base.name = name;
  std::ifstream stream(std::string(LIGER_TEST_MODELS) + "/" + name + ".onnx", std::ios::binary);
  const std::string bytes(std::istreambuf_iterator<char>(stream), {});
  EXPECT_TRUE(base.model.ParseFromString(bytes)) << name;
  const auto patched = PatchBytes(bytes);
  EXPECT_TRUE(static_cast<bool>(patched)) << name;
  if (!patched) return base;
  base.matches = Matches(patched->report);
  EXPECT_FALSE(base.matches.empty()) << name;
  std::set<std::string> nodes;
  for (const PatchedReport& report : patched->report.patched) {
    nodes.insert(report.replaced.begin(), report.replaced.end());
  }
  base.mutator = std::make_unique<Mutator>(base.model, std::move(nodes));
  return base;
}

NamedTensors FeedsFor(const Mutant& mutant, uint64_t seed) {
  std::mt19937_64 random(seed);
  NamedTensors feeds = DecoderFeeds(mutant.model, random);
  for (const std::string& name : mutant.overrides) {
    for (const auto& tensor : mutant.model.graph().initializer()) {
      if (tensor.name() != name) continue;
      feeds[name] = RandomTensor(static_cast<DType>(tensor.data_type()),
                                 {tensor.dims().begin(), tensor.dims().end()}, random);
    }
  }
  return feeds;
}

// How much the outputs move, relative to kDisturbance, when every f32 weight moves by that.
double MagnificationOnce(const onnx::ModelProto& model, const NamedTensors& feeds,
                         const NamedTensors& outputs, uint64_t seed) {
  std::mt19937_64 random(seed);
  onnx::ModelProto disturbed = model;
  for (auto& tensor : *disturbed.mutable_graph()->mutable_initializer()) {
    if (tensor.data_type() != onnx::TensorProto::FLOAT || tensor.raw_data().size() < 64) continue;
    std::string& bytes = *tensor.mutable_raw_data();
    for (size_t at = 0; at + 4 <= bytes.size(); at += 4) {
      float value;
      std::memcpy(&value, bytes.data() + at, 4);
      const double push = static_cast<double>(random() % 2001) / 1000 - 1;
      value = static_cast<float>(value * (1 + kDisturbance * push));
      std::memcpy(bytes.data() + at, &value, 4);
    }
  }
  const auto moved = RunModel(disturbed.SerializeAsString(), feeds, "");
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

// Whether the patched f16 model is as near to the f32 form of the mutant as the mutant itself, or
// the mutant magnifies roundings several times more than an export does.
enum class Verdict { kAsExact, kUnstable, kWrong };
Verdict JudgeHalf(const onnx::ModelProto& model, const NamedTensors& feeds,
                  const NamedTensors& before, const NamedTensors& after, uint64_t seed) {
  onnx::ModelProto wide = model;
  Widen(*wide.mutable_graph());
  const NamedTensors wide_feeds = Widened(feeds);
  const auto reference = RunModel(wide.SerializeAsString(), wide_feeds, "");
  if (!reference) return Verdict::kWrong;
  const Difference old = Compare(*reference, Widened(before));
  const Difference now = Compare(*reference, Widened(after));
  if (old.structure.empty() && now.structure.empty() &&
      now.relative_l2 <= 1.25 * old.relative_l2 + kHalfUlp) {
    return Verdict::kAsExact;
  }
  return Magnification(wide, wide_feeds, *reference, seed) > kHalfMagnification ? Verdict::kUnstable
                                                                                : Verdict::kWrong;
}

struct Tally {
  int made = 0, changed = 0, patched = 0, unstable = 0, tries = 0;
  double worst = 0;
};

struct Totals {
  std::map<std::string, Tally> kinds;
  std::map<std::string, int> models;
  int made = 0, changed = 0, failed = 0, unstable = 0;
};

// Makes one mutant, patches and runs it. False if the mutant is no model that runs.
bool TryMutant(const Base& base, const std::string& kind, uint64_t seed, bool half,
               Totals& totals) {
  std::mt19937_64 random(seed);
  Tally& tally = totals.kinds[kind];
  ++tally.tries;
  const auto mutant = base.mutator->Make(kind, random);
  if (!mutant) return false;
  const std::string bytes = mutant->model.SerializeAsString();
  const NamedTensors feeds = FeedsFor(*mutant, seed);
  const auto before = RunModel(bytes, feeds, "");
  if (!before) return false;

  const auto patched = PatchBytes(bytes);
  const auto fail = [&](const std::string& what) {
    ++totals.failed;
    std::string text = what + "\n  seed " + std::to_string(seed) + ", " + kind + ", " + base.name +
                       ", " + mutant->note;
    if (patched) {
      for (const std::string& match : Matches(patched->report)) {
        text += std::string("\n    ") + (base.matches.contains(match) ? "  " : "* ") + match;
      }
      for (const std::string& match : base.matches) {
        if (!Matches(patched->report).contains(match)) text += "\n    - " + match;
      }
    }
    ADD_FAILURE() << text;
    if (const char* folder = std::getenv("LIGER_MUTANTS_KEEP")) {
      std::ofstream(std::string(folder) + "/" + std::to_string(seed) + ".onnx", std::ios::binary)
          << bytes;
    }
  };
  ++totals.made;
  ++tally.made;
  ++totals.models[base.name];
  if (!patched) {
    fail("the tool fails: " + patched.error().message);
    return true;
  }
  if (Matches(patched->report) != base.matches) ++totals.changed, ++tally.changed;
  if (patched->report.patched.empty()) return true;
  ++tally.patched;
  for (const std::string& library : {LigerLibraryPath(), std::string()}) {
    const std::string how = library.empty() ? "without the library" : "with the library";
    const auto after = RunModel(patched->bytes, feeds, library);
    if (!after) {
      fail(how + " the patched model does not run: " + after.error().message);
      return true;
    }
    const Difference difference = Compare(*before, *after);
    const double amount = half ? difference.relative_l2 : difference.largest;
    const double limit = half ? kHalfLimit : kLimit;
    if (difference.structure.empty() && amount <= limit) {
      tally.worst = std::max(tally.worst, amount);
      continue;
    }
    // An edit can make a model that magnifies roundings without bound (a norm bypassed, a value
    // near zero inverted). Then the difference says nothing.
    Verdict verdict = Verdict::kWrong;
    if (half) {
      verdict = JudgeHalf(mutant->model, feeds, *before, *after, seed);
    } else if (Magnification(mutant->model, feeds, *before, seed) > kMagnification) {
      verdict = Verdict::kUnstable;
    }
    if (verdict == Verdict::kAsExact) continue;
    if (verdict == Verdict::kUnstable) {
      ++totals.unstable, ++tally.unstable;
      return true;
    }
    fail(how + " the result differs by " + std::to_string(amount) + " " + difference.structure);
    return true;
  }
  return true;
}

uint64_t FirstSeed() {
  const char* given = std::getenv("LIGER_MUTANT_SEED");
  return given != nullptr ? std::strtoull(given, nullptr, 10) : kSeed;
}

Totals RunMutants(std::span<const char* const> names, int count, bool half) {
  std::vector<Base> bases;
  for (const char* name : names) bases.push_back(LoadBase(name));
  Totals totals;
  const auto& kinds = Mutator::Kinds();
  for (int i = 0; i < count; ++i) {
    const std::string& kind = kinds[i % kinds.size()];
    for (int attempt = 0; attempt < kMaxTries; ++attempt) {
      const uint64_t seed = FirstSeed() + static_cast<uint64_t>(i) * kMaxTries + attempt;
      const Base& base = bases[(i / kinds.size() + i % kinds.size() + attempt) % bases.size()];
      if (base.mutator != nullptr && TryMutant(base, kind, seed, half, totals)) break;
    }
  }
  std::printf("%-22s %6s %6s %8s %8s %9s %10s\n", "kind", "tries", "made", "changed", "patched",
              "unstable", "worst");
  for (const auto& [kind, tally] : totals.kinds) {
    std::printf("%-22s %6d %6d %8d %8d %9d %10.1e\n", kind.c_str(), tally.tries, tally.made,
                tally.changed, tally.patched, tally.unstable, tally.worst);
  }
  std::printf(
      "first seed %llu: %d mutants of %zu models, %d change the matches, %d unstable, %d "
      "wrong\n",
      static_cast<unsigned long long>(FirstSeed()), totals.made, totals.models.size(),
      totals.changed, totals.unstable, totals.failed);
  return totals;
}

int Count(int usual) {
  const char* given = std::getenv("LIGER_MUTANTS");
  return given != nullptr ? std::atoi(given) : usual;
}

TEST(Mutation, PatchedMutantsOfF32ExportsComputeTheSame) {
  if (!OrtIsAvailable()) GTEST_SKIP() << OrtMissingText();
  const int count = Count(kMutants);
  const Totals totals = RunMutants(kModels, count, /*half=*/false);
  EXPECT_EQ(totals.failed, 0);
  if (count < kMutants) return;
  EXPECT_GE(totals.made, 300);
  EXPECT_GE(totals.models.size(), 8u);
  EXPECT_GE(3 * totals.changed, totals.made) << "the edits miss the matches";
  EXPECT_LE(50 * totals.unstable, totals.made) << "too many mutants cannot be judged";
}

TEST(Mutation, PatchedMutantsOfF16ExportsComputeNearlyTheSame) {
  if (!OrtIsAvailable()) GTEST_SKIP() << OrtMissingText();
  const int count = Count(kHalfMutants);
  const Totals totals = RunMutants(kHalfModels, count, /*half=*/true);
  EXPECT_EQ(totals.failed, 0);
  if (count < kHalfMutants) return;
  EXPECT_GE(totals.made, 40);
  EXPECT_LE(20 * totals.unstable, totals.made) << "too many mutants cannot be judged";
  EXPECT_GE(3 * totals.changed, totals.made) << "the edits miss the matches";
}

}  // namespace
}  // namespace liger::test
