#include "api/lint_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model_testing.h"
#include "report/formats.h"

namespace liger {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr char kRight[] = R"(
<ir_version: 8, opset_import: ["" : 17]>
g (float[N,4] x) => (float[N,4] y) { y = Neg (x) })";
constexpr char kNote[] = R"(
<ir_version: 8, opset_import: ["" : 17]>
g (float[N,1] x) => (float[N,1] y) <float[1] w = {1}> { y = Neg (x) })";
constexpr char kWarning[] = R"(
<ir_version: 8, opset_import: ["" : 17]>
g (float[N,1] x) => (float[N,1] y) <float[1] w = {1}> { [n] a = Neg (x)  [n] y = Neg (a) })";
constexpr char kError[] = R"(
<ir_version: 8, opset_import: ["" : 17]>
g (float[N,4] x) => (float[N,4] y) { [act] y = com.microsoft.QuickGelu (x) })";

PatchOutcome LintText(const TemporaryFolder& folder, const char* text) {
  const auto path = WriteFile(folder / "model.onnx", ModelFromText(text).SerializeAsString());
  return LintModel({.input = path, .bytes = {}});
}

TEST(LintModel, NothingFound) {
  const TemporaryFolder folder;
  const PatchOutcome outcome = LintText(folder, kRight);
  EXPECT_FALSE(outcome.error);
  EXPECT_EQ(outcome.report.status, "checked");
  EXPECT_EQ(outcome.report.exit_code, 0);
  EXPECT_EQ(outcome.report.input.path, (folder / "model.onnx").string());
  EXPECT_THAT(outcome.report.input.sha256, SizeIs(64));
  EXPECT_THAT(outcome.report.diagnostics, IsEmpty());
  EXPECT_THAT(outcome.report.verification, ElementsAre("lint: nothing found"));
}

TEST(LintModel, NotesAloneAreFine) {
  const TemporaryFolder folder;
  const PatchOutcome outcome = LintText(folder, kNote);
  EXPECT_EQ(outcome.report.status, "checked");
  EXPECT_EQ(outcome.report.exit_code, 0);
  EXPECT_THAT(outcome.report.verification, ElementsAre("lint: 1 note"));
}

TEST(LintModel, AWarningIsExitCodeOne) {
  const TemporaryFolder folder;
  const PatchOutcome outcome = LintText(folder, kWarning);
  EXPECT_FALSE(outcome.error);
  EXPECT_EQ(outcome.report.status, "expectation_failed");
  EXPECT_EQ(outcome.report.exit_code, 1);
  EXPECT_THAT(outcome.report.verification, ElementsAre("lint: 1 warning, 1 note"));
}

TEST(LintModel, AnErrorHasPlaceRuleAndRemedy) {
  const TemporaryFolder folder;
  const PatchOutcome outcome = LintText(folder, kError);
  EXPECT_EQ(outcome.report.exit_code, 1);
  ASSERT_THAT(outcome.report.diagnostics, SizeIs(1));
  const Diagnostic& diagnostic = outcome.report.diagnostics[0];
  EXPECT_EQ(diagnostic.severity, Diagnostic::Severity::kError);
  EXPECT_EQ(diagnostic.location, "QuickGelu node 'act'");
  EXPECT_EQ(diagnostic.message,
            "domain 'com.microsoft' is used (1 node) but not imported [missing_opset_import]");
  EXPECT_EQ(diagnostic.hint, "add it to the opset_import of the model");
}

TEST(LintModel, EveryFormatShowsTheFinding) {
  const TemporaryFolder folder;
  const PatchOutcome outcome = LintText(folder, kError);
  for (const ReportFormat format :
       {ReportFormat::kText, ReportFormat::kJson, ReportFormat::kMarkdown, ReportFormat::kJUnit,
        ReportFormat::kSarif, ReportFormat::kGitHub}) {
    EXPECT_THAT(Render(format, {&outcome.report, 1}, {}),
                AllOf(HasSubstr("missing_opset_import"), HasSubstr("com.microsoft")))
        << ReportFormatName(format);
  }
}

TEST(LintModel, WhatCannotBeReadIsExitCodeThree) {
  const TemporaryFolder folder;
  for (const auto& path : {folder / "missing.onnx", WriteFile(folder / "text.onnx", "no model")}) {
    const PatchOutcome outcome = LintModel({.input = path, .bytes = {}});
    ASSERT_TRUE(outcome.error) << path;
    EXPECT_EQ(outcome.report.status, "error");
    EXPECT_EQ(outcome.report.exit_code, 3);
    EXPECT_THAT(outcome.report.diagnostics, SizeIs(1));
  }
}

TEST(LintModel, FromMemory) {
  const std::string text = ModelFromText(kError).SerializeAsString();
  const auto bytes = std::as_bytes(std::span(text));
  const PatchOutcome outcome = LintModel({.input = "-", .bytes = bytes});
  EXPECT_EQ(outcome.report.exit_code, 1);
  EXPECT_THAT(outcome.report.diagnostics, SizeIs(1));
}

TEST(LintModel, PatchedModelsAreClean) {
  const TemporaryFolder folder;
  int patched_models = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(LIGER_MODELS_DIR)) {
    if (entry.path().extension() != ".onnx") continue;
    PatchOptions options;
    options.input = entry.path();
    options.output = folder / entry.path().filename().string();
    options.family = "any";
    options.external_data = ExternalDataMode::kCopy;
    const PatchOutcome patched = PatchModel(options);
    ASSERT_FALSE(patched.error) << entry.path() << patched.error->message;
    ASSERT_TRUE(patched.report.output) << entry.path();
    const PatchOutcome outcome = LintModel({.input = *options.output, .bytes = {}});
    EXPECT_THAT(outcome.report.verification, ElementsAre("lint: nothing found")) << entry.path();
    std::filesystem::remove(*options.output);
    ++patched_models;
  }
  EXPECT_GE(patched_models, 20);
}

}  // namespace
}  // namespace liger
