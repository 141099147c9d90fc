// Random edits of real exports, of parts of them and of small models of every op: whatever the edit did
// to the function, the patched model must compute the same. Seeds are fixed and printed.
//
// LIGER_MUTANTS changes the number of mutants of a test, LIGER_MUTANT_SEED the first seed,
// LIGER_MUTANTS_MODELS names a folder of other models whose parts are edited, LIGER_MUTANTS_KEEP one
// for the mutants that fail.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <set>

#include "judge.h"
#include "mutator.h"
#include "patch_and_run.h"
#include "seed_models.h"
#include "window.h"

namespace liger::test {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kSeed = 20261130;
constexpr int kMaxTries = 24;  // seeds for one mutant until one gives a model that runs
constexpr const char* kModules = "rope,rms_norm,layer_norm,swiglu,geglu,softmax,group_norm";

// Whole exports carry a difference through layers of others, parts do not.
constexpr Tolerance kWhole = {.half = false, .limit = 2e-4};
constexpr Tolerance kPart = {.half = false, .limit = 1e-5};
constexpr Tolerance kHalf = {.half = true, .limit = 2e-3};

const char* const kModels[] = {
    "llama/dynamo_op20",          "llama/dynamo_op18_dyn",      "llama/mask_ts_op17_dyn",
    "llama/dynamo_op23",          "llama/past_ts_op17_dyn",     "llama/past_dynamo_op20_dyn",
    "llama/loss_dynamo_op20",     "mistral/mask_ts_op20",       "mistral/mask_dynamo_op20_dyn",
    "mistral/dynamo_op23",        "qwen2/dynamo_op18",          "qwen2/mask_ts_op17_dyn",
    "qwen2/mask_dynamo_op20_dyn", "qwen3/past_dynamo_op18_dyn", "qwen3/dynamo_op20",
    "qwen3/mask_ts_op17_dyn"};
const char* const kHalfModels[] = {"llama/fp16_dynamo_op20", "llama/fp16_mask_ts_op17_dyn",
                                   "qwen3/fp16_dynamo_op23"};
const char* const kOps[] = {"LigerRMSNorm",      "LigerAddRMSNorm", "LigerLayerNorm",
                            "LigerAddLayerNorm", "LigerRope",       "LigerSwiGLU",
                            "LigerGeGLU",        "LigerSoftmax",    "LigerGroupNorm"};

Result<PatchedModel> Patch(const std::string& bytes) {
  PatchOptions options;
  options.modules = kModules;
  return PatchBytes(bytes, options);
}

// What was matched: op, place and form of each fused node.
std::multiset<std::string> Matches(const Report& report) {
  std::multiset<std::string> matches;
  for (const PatchedReport& patched : report.patched) {
    matches.insert(patched.op + " " + patched.node + " " + patched.form);
  }
  return matches;
}

struct Base {
  std::string name;    // family/file, or that of a seed
  std::string family;  // empty for a seed
  std::multiset<std::string> matches;
  std::set<std::string> ops;
  std::unique_ptr<Mutator> mutator;
};

// A model to edit; nothing if nothing in it is fused.
std::optional<Base> MakeBase(const std::string& name, const onnx::ModelProto& model) {
  const auto patched = Patch(model.SerializeAsString());
  if (!patched || patched->report.patched.empty()) return std::nullopt;
  Base base;
  base.name = name;
  base.matches = Matches(patched->report);
  std::set<std::string> nodes;
  for (const PatchedReport& report : patched->report.patched) {
    nodes.insert(report.replaced.begin(), report.replaced.end());
    base.ops.insert(report.op);
  }
  base.mutator = std::make_unique<Mutator>(model, std::move(nodes));
  return base;
}

onnx::ModelProto ReadModel(const fs::path& path) {
  onnx::ModelProto model;
  std::ifstream stream(path, std::ios::binary);
  EXPECT_TRUE(model.ParseFromIstream(&stream)) << path;
  return model;
}

std::vector<Base> WholeModels(std::span<const char* const> names) {
  std::vector<Base> bases;
  for (const std::string name : names) {
    auto base =
        MakeBase(name, ReadModel(fs::path(LIGER_TEST_MODELS) / (name + std::string(".onnx"))));
    EXPECT_TRUE(base) << name << ": nothing is fused";
    if (!base) continue;
    base->family = name.substr(0, name.find('/'));
    bases.push_back(*std::move(base));
  }
  return bases;
}

std::string FamilyOf(const fs::path& file) {
  std::string unit = file.parent_path().filename();
  for (const std::string suffix : {"_lang", "_vis", "_text", "_text_model"}) {
    if (unit.ends_with(suffix)) unit.resize(unit.size() - suffix.size());
  }
  return unit;
}

// One part of an export for every form of every op in it.
void CutParts(const fs::path& file, std::vector<Base>& bases) {
  const onnx::ModelProto model = ReadModel(file);
  const auto patched = Patch(model.SerializeAsString());
  if (!patched) return;
  const onnx::ModelProto typed = WithTypes(model);
  std::set<std::string> seen;
  const std::string unit = file.parent_path().filename().string() + "/" + file.stem().string();
  for (const PatchedReport& report : patched->report.patched) {
    if (!seen.insert(report.op + report.form).second) continue;
    const bool rope = report.op == "LigerRope";  // with the tables
    const WindowSize size = {.above = rope ? 7 : 2 + static_cast<int>(seen.size() % 3)};
    const auto part = CutWindow(typed, {report.replaced.begin(), report.replaced.end()}, size);
    if (!part) continue;
    std::mt19937_64 random(kSeed);
    const NamedTensors feeds = DecoderFeeds(*part, random);
    if (!RunModel(part->SerializeAsString(), feeds, "")) continue;
    auto base = MakeBase(unit + " " + report.node, *part);
    if (!base) continue;
    base->family = FamilyOf(file);
    bases.push_back(*std::move(base));
  }
}

std::vector<Base> Parts(bool half) {
  const char* given = std::getenv("LIGER_MUTANTS_MODELS");
  std::vector<fs::path> files;
  for (const auto& entry :
       fs::recursive_directory_iterator(given != nullptr ? given : LIGER_TEST_EXPORTS)) {
    const bool is_half = entry.path().filename().string().starts_with("fp16");
    if (entry.path().extension() == ".onnx" && is_half == half) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  std::vector<Base> bases;
  for (const fs::path& file : files) CutParts(file, bases);
  return bases;
}

std::vector<Base> Seeds(DType dtype) {
  std::vector<Base> bases;
  for (const SeedModel& seed : SeedModels()) {
    const onnx::ModelProto model = BuildSeed(seed, dtype);
    std::mt19937_64 random(kSeed);
    const auto result =
        RunModel(model.SerializeAsString(), DecoderFeeds(model, random), std::string());
    if (!result) {
      // Some of ONNX Runtime's own operators have no f16 form on the CPU.
      EXPECT_EQ(dtype, DType::kF16) << seed.name << ": " << result.error().message;
      continue;
    }
    auto base = MakeBase(seed.name, model);
    EXPECT_TRUE(base) << seed.name << " (" << DTypeName(dtype) << "): nothing is fused";
    if (base) bases.push_back(*std::move(base));
  }
  return bases;
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

struct Tally {
  int made = 0, changed = 0, patched = 0, unstable = 0, tries = 0;
  double worst = 0;
};

struct Totals {
  std::map<std::string, Tally> kinds;
  std::map<std::string, int> ops;  // mutants of models that hold the op
  std::set<std::string> models, families;
  int made = 0, changed = 0, patched = 0, failed = 0, unstable = 0;
};

class Run {
 public:
  Run(std::vector<Base> bases, const Tolerance& tolerance)
      : bases_(std::move(bases)), tolerance_(tolerance) {}

  Totals Make(int count) {
    const auto& kinds = Mutator::Kinds();
    for (int i = 0; i < count && !bases_.empty(); ++i) {
      std::vector<std::string> edits = {kinds[i % kinds.size()]};
      // Every fourth mutant has two edits: the second may hide what the first one did.
      if (i % 4 == 3) edits.push_back(kinds[(i * 13 + i / 4) % kinds.size()]);
      for (int attempt = 0; attempt < kMaxTries; ++attempt) {
        const uint64_t seed = FirstSeed() + static_cast<uint64_t>(i) * kMaxTries + attempt;
        // A stride through the models that meets every one of them.
        const size_t at = (static_cast<size_t>(i) * 31 + static_cast<size_t>(attempt) * 7 +
                           static_cast<size_t>(i) / kinds.size()) %
                          bases_.size();
        if (Try(bases_[at], edits, seed)) break;
      }
    }
    Print();
    return totals_;
  }

 private:
  static uint64_t FirstSeed() {
    const char* given = std::getenv("LIGER_MUTANT_SEED");
    return given != nullptr ? std::strtoull(given, nullptr, 10) : kSeed;
  }

  // Makes one mutant, patches and runs it. False if the mutant is no model that runs.
  bool Try(const Base& base, const std::vector<std::string>& edits, uint64_t seed) {
    const std::string& kind = edits.front();
    std::mt19937_64 random(seed);
    Tally& tally = totals_.kinds[kind];
    ++tally.tries;
    const auto mutant = base.mutator->Make(edits, random);
    if (!mutant) return false;
    const std::string bytes = mutant->model.SerializeAsString();
    const NamedTensors feeds = FeedsFor(*mutant, seed);
    const auto before = RunModel(bytes, feeds, "");
    if (!before) return false;

    ++totals_.made, ++tally.made;
    totals_.models.insert(base.name);
    if (!base.family.empty()) totals_.families.insert(base.family);
    for (const std::string& op : base.ops) ++totals_.ops[op];
    const auto patched = Patch(bytes);
    const std::string where = "seed " + std::to_string(seed) + ", " + kind +
                              (edits.size() > 1 ? " and " + edits[1] : "") + ", " + base.name +
                              ", " + mutant->note;
    if (!patched) {
      Fail(where, bytes, "the tool fails: " + patched.error().message);
      return true;
    }
    const auto matches = Matches(patched->report);
    if (matches != base.matches) ++totals_.changed, ++tally.changed;
    if (matches.empty()) return true;
    ++totals_.patched, ++tally.patched;
    for (const std::string& library : {LigerLibraryPath(), std::string()}) {
      const std::string how = library.empty() ? "without the library" : "with the library";
      const auto after = RunModel(patched->bytes, feeds, library);
      if (!after) {
        Fail(where, bytes, how + " the patched model does not run: " + after.error().message);
        return true;
      }
      const Judgement judged = Judge(mutant->model, feeds, *before, *after, tolerance_, seed);
      if (judged.verdict == Verdict::kSame) {
        tally.worst = std::max(tally.worst, judged.amount);
      } else if (judged.verdict == Verdict::kUnstable) {
        ++totals_.unstable, ++tally.unstable;
        return true;
      } else {
        char amount[32];
        std::snprintf(amount, sizeof amount, "%.2e", judged.amount);
        std::string text = how + " the result differs by " + amount + " " + judged.structure;
        for (const std::string& match : matches) {
          text += std::string("\n    ") + (base.matches.contains(match) ? "  " : "* ") + match;
        }
        for (const std::string& match : base.matches) {
          if (!matches.contains(match)) text += "\n    - " + match;
        }
        Fail(where, bytes, text);
        return true;
      }
    }
    return true;
  }

  void Fail(const std::string& where, const std::string& bytes, const std::string& what) {
    ++totals_.failed;
    ADD_FAILURE() << where << "\n  " << what;
    if (const char* folder = std::getenv("LIGER_MUTANTS_KEEP")) {
      const std::string name = "mutant-" + std::to_string(totals_.failed) + "-" +
                               std::to_string(std::hash<std::string>{}(where) % 100000);
      std::ofstream(fs::path(folder) / (name + ".onnx"), std::ios::binary) << bytes;
      std::ofstream(fs::path(folder) / (name + ".txt")) << where << "\n" << what << "\n";
    }
  }

  void Print() const {
    std::printf("%-22s %6s %6s %8s %8s %9s %10s\n", "kind", "tries", "made", "changed", "patched",
                "unstable", "worst");
    for (const auto& [kind, tally] : totals_.kinds) {
      std::printf("%-22s %6d %6d %8d %8d %9d %10.1e\n", kind.c_str(), tally.tries, tally.made,
                  tally.changed, tally.patched, tally.unstable, tally.worst);
    }
    for (const auto& [op, made] : totals_.ops) std::printf("%-22s %13d\n", op.c_str(), made);
    std::printf(
        "first seed %llu: %d mutants of %zu models (of %zu) and %zu families, %d change the "
        "matches, %d are patched, %d unstable, %d wrong\n",
        static_cast<unsigned long long>(FirstSeed()), totals_.made, totals_.models.size(),
        bases_.size(), totals_.families.size(), totals_.changed, totals_.patched, totals_.unstable,
        totals_.failed);
  }

  std::vector<Base> bases_;
  Tolerance tolerance_;
  Totals totals_;
};

int Count(int usual) {
  const char* given = std::getenv("LIGER_MUTANTS");
  return given != nullptr ? std::atoi(given) : usual;
}

struct Expected {
  int made;
  size_t families = 0;
  std::span<const char* const> ops = {};
};

void RunMutants(std::vector<Base> bases, const Tolerance& tolerance, int usual,
                const Expected& expected) {
  const int count = Count(usual);
  Totals totals = Run(std::move(bases), tolerance).Make(count);
  EXPECT_EQ(totals.failed, 0);
  if (count < usual) return;
  EXPECT_GE(totals.made, expected.made);
  if (std::getenv("LIGER_MUTANTS_MODELS") == nullptr) {
    EXPECT_GE(totals.families.size(), expected.families);
  }
  EXPECT_GE(3 * totals.changed, totals.made) << "the edits miss the matches";
  EXPECT_LE((tolerance.half ? 20 : 50) * totals.unstable, totals.made)
      << "too many mutants cannot be judged";
  for (const std::string op : expected.ops) EXPECT_GE(totals.ops[op], 3) << op;
}

TEST(Mutation, PatchedMutantsOfF32ExportsComputeTheSame) {
  if (!OrtIsAvailable()) GTEST_SKIP() << OrtMissingText();
  RunMutants(WholeModels(kModels), kWhole, 104, {.made = 80, .families = 4});
}

TEST(Mutation, PatchedMutantsOfF16ExportsComputeNearlyTheSame) {
  if (!OrtIsAvailable()) GTEST_SKIP() << OrtMissingText();
  RunMutants(WholeModels(kHalfModels), kHalf, 52, {.made = 40, .families = 2});
}

TEST(Mutation, PatchedMutantsOfPartsOfEveryFamilyComputeTheSame) {
  if (!OrtIsAvailable()) GTEST_SKIP() << OrtMissingText();
  RunMutants(Parts(/*half=*/false), kPart, 624, {.made = 400, .families = 30});
}

TEST(Mutation, PatchedMutantsOfF16PartsComputeNearlyTheSame) {
  if (!OrtIsAvailable()) GTEST_SKIP() << OrtMissingText();
  RunMutants(Parts(/*half=*/true), kHalf, 208, {.made = 140, .families = 4});
}

TEST(Mutation, PatchedMutantsOfEveryOpComputeTheSame) {
  if (!OrtIsAvailable()) GTEST_SKIP() << OrtMissingText();
  RunMutants(Seeds(DType::kF32), kPart, 624, {.made = 400, .ops = kOps});
}

TEST(Mutation, PatchedMutantsOfEveryOpInF16ComputeNearlyTheSame) {
  if (!OrtIsAvailable()) GTEST_SKIP() << OrtMissingText();
  RunMutants(Seeds(DType::kF16), kHalf, 364, {.made = 220, .ops = kOps});
}

}  // namespace
}  // namespace liger::test
