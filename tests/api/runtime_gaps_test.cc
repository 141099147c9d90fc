#include "api/runtime_gaps.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model_testing.h"

namespace liger {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Optional;

// The built library with other bytes in its note.
std::string LibraryWith(const std::string& what, const std::string& by) {
  std::string bytes = ReadFile(LIGER_LIBRARY);
  const std::string note("liger\0\0\0cpu", 11);
  const size_t at = bytes.find(note);
  EXPECT_NE(at, std::string::npos);
  return bytes.replace(bytes.find(what, at), what.size(), by);
}

// --- The library as a file ------------------------------------------------------------------------

TEST(InspectLibrary, TheBuiltOneHasCpuKernels) {
  const RuntimeLibrary library = InspectLibrary(LIGER_LIBRARY);
  EXPECT_TRUE(library.found()) << library.problem;
  EXPECT_THAT(library.providers, Optional(Contains(Provider::kCpu)));
}

TEST(InspectLibrary, ReadsTheProvidersOfTheNote) {
  TemporaryFolder folder;
  // The note is "cpu", or "cpu,cuda" in a build with CUDA, and keeps its size.
  const bool has_cuda = InspectLibrary(LIGER_LIBRARY).providers->size() > 1;
  const fs::path path =
      WriteFile(folder / "lib.so", has_cuda ? LibraryWith("cpu", "oth")
                                            : LibraryWith(std::string("cpu\0", 4), "cuda"));
  EXPECT_THAT(InspectLibrary(path).providers, Optional(ElementsAre(Provider::kCuda)));
}

TEST(InspectLibrary, ALibraryWithoutNoteSaysNothing) {
  TemporaryFolder folder;
  const fs::path path = WriteFile(folder / "lib.so", LibraryWith("liger", "other"));
  const RuntimeLibrary library = InspectLibrary(path);
  EXPECT_TRUE(library.found());
  EXPECT_EQ(library.providers, std::nullopt);
}

TEST(InspectLibrary, NamesWhatIsNoLibrary) {
  TemporaryFolder folder;
  EXPECT_EQ(InspectLibrary(folder / "lib.so").problem, "is not there");
  EXPECT_EQ(InspectLibrary(folder.path()).problem, "is no shared library");
  EXPECT_EQ(InspectLibrary(WriteFile(folder / "text", "#!/bin/sh\n")).problem,
            "is no shared library");
  EXPECT_EQ(InspectLibrary(WriteFile(folder / "empty", "")).problem, "is no shared library");
  const std::string cut = ReadFile(LIGER_LIBRARY).substr(0, 100);
  EXPECT_EQ(InspectLibrary(WriteFile(folder / "cut", cut)).problem, "is no shared library");
}

// --- Gaps -----------------------------------------------------------------------------------------

RuntimeLibrary Library(std::vector<Provider> providers) {
  RuntimeLibrary library;
  library.path = "lib/libliger_ort.so";
  library.providers = std::move(providers);
  return library;
}

PatchedReport Patched(const std::string& op) {
  PatchedReport patched;
  patched.op = op;
  return patched;
}

Report Fused(const std::string& op) {
  Report report;
  report.patched.push_back(Patched(op));
  return report;
}

Report FusedBefore(const std::string& op) {
  Report report;
  report.already_fused.emplace_back().op = op;
  return report;
}

constexpr Provider kCpuOnly[] = {Provider::kCpu};

TEST(RuntimeGaps, NothingFusedNeedsNothing) {
  EXPECT_THAT(RuntimeGaps(Report(), kCpuOnly, InspectLibrary("missing.so")), IsEmpty());
}

TEST(RuntimeGaps, BothProvidersLeaveTheChoice) {
  EXPECT_THAT(
      RuntimeGaps(Fused("LigerRMSNorm"), kCpuOnly, Library({Provider::kCpu, Provider::kCuda})),
      ElementsAre(HasSubstr("without it the same file runs from the function bodies")));
}

TEST(RuntimeGaps, CpuKernelsAreNotForCudaSessions) {
  const auto cpu = Library({Provider::kCpu});
  const auto warns = AllOf(HasSubstr("'lib/libliger_ort.so' has CPU kernels only"),
                           HasSubstr("would run on the CPU, with copies"));
  EXPECT_THAT(RuntimeGaps(Fused("LigerRMSNorm"), kCpuOnly, cpu),
              ElementsAre(HasSubstr("with"), warns));
  EXPECT_THAT(RuntimeGaps(FusedBefore("LigerRope"), kCpuOnly, cpu),
              ElementsAre(HasSubstr("with"), warns));
  EXPECT_THAT(RuntimeGaps(FusedBefore("RotaryEmbedding"), kCpuOnly, cpu), IsEmpty());
}

TEST(RuntimeGaps, NamesThePlaceWhereTheLibraryIsNot) {
  RuntimeLibrary library = InspectLibrary("nowhere/lib.so");
  EXPECT_THAT(RuntimeGaps(Fused("LigerRMSNorm"), kCpuOnly, library),
              ElementsAre(HasSubstr("with"), AllOf(HasSubstr("'nowhere/lib.so' is not there"),
                                                   HasSubstr("build the target liger_ort"))));
  library.by_environment = true;
  EXPECT_THAT(RuntimeGaps(Fused("LigerRMSNorm"), kCpuOnly, library)[1],
              AllOf(HasSubstr("LIGER_ORT_LIBRARY names it"), HasSubstr("unset")));
}

TEST(RuntimeGaps, CountsPlacesWithoutAKernelOnce) {
  Report report;
  const std::string refusal = "no cuda kernel for LigerRMSNorm with T = f16, S = f32";
  for (const char* node : {"a", "b"}) {
    report.missed.push_back({"rms_norm", "", node, refusal, "kernel"});
    report.near_misses.push_back({"rms_norm", "", node, refusal, "kernel"});
  }
  report.near_misses.push_back(
      {"rope", "", "c", "no cuda kernel for LigerRope with T = f16", "kernel"});
  report.missed.push_back({"rope", "", "d", "the halves differ", "halves_equal"});
  const Provider both[] = {Provider::kCpu, Provider::kCuda};
  EXPECT_THAT(RuntimeGaps(report, both, Library({Provider::kCpu})),
              ElementsAre(refusal + ": not fused in 2 places, since --providers asks for it",
                          "no cuda kernel for LigerRope with T = f16: not fused in 1 place, since "
                          "--providers asks for it"));
}

TEST(RuntimeGaps, OwnOpsRunByTheirBodies) {
  const auto library = Library({Provider::kCpu, Provider::kCuda});
  EXPECT_THAT(RuntimeGaps(Fused("SoftCap"), kCpuOnly, library),
              ElementsAre(AllOf(HasSubstr("SoftCap is an op of the patch map"),
                                HasSubstr("the function bodies run"))));
  Report two = Fused("SoftCap");
  two.patched.push_back(Patched("Gate"));
  two.patched.push_back(Patched("Gate"));
  EXPECT_THAT(RuntimeGaps(two, kCpuOnly, library), ElementsAre(HasSubstr("Gate, SoftCap are ops")));
}

// --- Commands -------------------------------------------------------------------------------------

Installation Whole() {
  Installation installation;
  installation.program = "build/bin/liger-patch";
  installation.python = "build/venv/bin/python";
  installation.compare = "tools/compare.py";
  installation.library = Library({Provider::kCpu});
  return installation;
}

TEST(ValidationCommands, CheckCompareRegister) {
  EXPECT_THAT(
      ValidationCommands({.original = "a.onnx", .patched = "b.onnx", .choices = " --exact"},
                         Whole()),
      ElementsAre("build/bin/liger-patch b.onnx --exact --check   # finds nothing left to do",
                  "build/venv/bin/python tools/compare.py a.onnx b.onnx --library "
                  "lib/libliger_ort.so   # runs both, compares the outputs",
                  "build/venv/bin/python -c 'import onnxruntime as ort; options = "
                  "ort.SessionOptions(); "
                  "options.register_custom_ops_library(\"lib/libliger_ort.so\"); "
                  "ort.InferenceSession(\"b.onnx\", options, providers=[\"CPUExecutionProvider\"])'"
                  "   # loads it with the library"));
}

TEST(ValidationCommands, NothingIsNamedThatIsNotThere) {
  Installation installation = Whole();
  installation.library = InspectLibrary("missing.so");
  const ValidationTarget target{.original = "a.onnx", .patched = "b.onnx"};
  EXPECT_THAT(ValidationCommands(target, installation),
              ElementsAre(HasSubstr("--check"), HasSubstr("compare.py a.onnx b.onnx   #")));
  installation.compare.clear();
  EXPECT_THAT(ValidationCommands(target, installation), ElementsAre(HasSubstr("--check")));
}

TEST(ValidationCommands, NoComparisonWithAnOriginalThatIsGone) {
  EXPECT_THAT(
      ValidationCommands({.original = "a.onnx", .patched = "a.onnx", .replaced = true}, Whole()),
      ElementsAre(HasSubstr("--check"), HasSubstr("InferenceSession")));
}

TEST(ValidationCommands, AwkwardNamesAreQuoted) {
  const auto commands =
      ValidationCommands({.original = "-a.onnx", .patched = "it's \"b\\c\".onnx"}, Whole());
  EXPECT_THAT(commands[0], HasSubstr(" 'it'\\''s \"b\\c\".onnx' --check"));
  EXPECT_THAT(commands[1], HasSubstr(" ./-a.onnx 'it'\\''s"));
  EXPECT_THAT(commands[2], HasSubstr(R"(InferenceSession("it'\''s \"b\\c\".onnx", )"));
}

TEST(ShellWord, OneWord) {
  EXPECT_EQ(ShellWord("a/b-c_1.onnx"), "a/b-c_1.onnx");
  EXPECT_EQ(ShellWord(""), "''");
  EXPECT_EQ(ShellWord("a b"), "'a b'");
  EXPECT_EQ(ShellWord("$HOME"), "'$HOME'");
  EXPECT_EQ(ShellWord("a'b"), "'a'\\''b'");
  EXPECT_EQ(ShellWord("a#b"), "'a#b'");
}

}  // namespace
}  // namespace liger
