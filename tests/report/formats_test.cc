#include "report/formats.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "samples.h"

namespace liger {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr std::array kAll = {ReportFormat::kText,  ReportFormat::kJson,  ReportFormat::kMarkdown,
                             ReportFormat::kJUnit, ReportFormat::kSarif, ReportFormat::kGitHub};

std::string RenderOne(ReportFormat format, const Report& report, bool explain = false) {
  return Render(format, {&report, 1}, {.text = {.explain = explain}});
}

TEST(FormatsTest, NamesAndSuffixesLeadToFormats) {
  for (const ReportFormat format : kAll) {
    EXPECT_EQ(ParseReportFormat(ReportFormatName(format)), format);
    if (format == ReportFormat::kGitHub) continue;
    EXPECT_EQ(FormatOfFile("a/b" + std::string(ReportSuffix(format))), format);
  }
  EXPECT_EQ(ParseReportFormat("yaml"), std::nullopt);
  EXPECT_EQ(FormatOfFile("report"), std::nullopt);
  EXPECT_EQ(FormatOfFile("report.yaml"), std::nullopt);
  EXPECT_EQ(FormatOfFile("json"), std::nullopt);
}

TEST(FormatsTest, EachReportIsKnownAsOneAndOtherFilesAreNot) {
  for (const Sample& sample : Samples()) {
    for (const ReportFormat format : kAll) {
      const std::string text = Render(format, sample.reports, {});
      EXPECT_TRUE(MayBeReport(std::string_view(text).substr(0, kReportStart)))
          << sample.name << " as " << ReportFormatName(format);
      EXPECT_TRUE(MayBeReport(text));
    }
  }
  EXPECT_TRUE(MayBeReport(""));
  for (const char* other :
       {"{\n  \"model_type\": \"llama\"", "<?xml version=\"1.0\"?>\n<project/>", "# Readme\n",
        "\x08\x07\x12", "{\n  \"$schema\": \"x\", \"name\": \"y\"}"}) {
    EXPECT_FALSE(MayBeReport(other)) << other;
  }
}

TEST(FormatsTest, SummaryCountsModelsByWhatBecameOfThem) {
  const std::vector<Report> reports = {GoodRun(), RunWithMisses(), FailedRun(), GoodRun()};
  EXPECT_EQ(SummaryLine(reports), "4 models: 2 patched, 1 not as expected, 1 failed");
  EXPECT_EQ(SummaryLine({reports.data(), 1}), "1 model: 1 patched");
  Report reverted = GoodRun();
  reverted.route.clear();  // the report of a job that patches nothing
  EXPECT_EQ(SummaryLine({&reverted, 1}), "1 model: 1 written");
  EXPECT_EQ(WorstExitCode(reports), 2);
  EXPECT_EQ(WorstExitCode({}), 0);
}

TEST(FormatsTest, SameReportsGiveTheSameBytes) {
  for (const Sample& sample : Samples()) {
    for (const ReportFormat format : kAll) {
      EXPECT_EQ(Render(format, sample.reports, {}), Render(format, sample.reports, {}));
    }
  }
}

TEST(TextTest, ShowsStageSymbolsExpectationsAndLosses) {
  EXPECT_EQ(RenderOne(ReportFormat::kText, RunWithMisses()),
            R"(family   llama (config.json: model_type = llama)
route    official, map llama
STAGE    stage dpo needs the logits: fused_linear_cross_entropy is off
  fused_linear_cross_entropy  turned off: it makes no logits
limits   --scope model.**  120 module paths
patch map
  class my_pkg.MyRMSNorm -> LigerRMSNorm  62 of 65
  match SoftCap -> my.domain.SoftCap      2 of 2; a note
modules
  rms_norm  62 of 65   1 degraded, 2 missed
  rope      4 of 4
  soft_cap  2 of 2
expected
  rms_norm 65 (mine.yaml:5:15)  NOT MET: 62 fused
  rope >=4 (--expect)  met
missed
  rms_norm  model.norm at /norm/Mul: epsilon is no constant [epsilon]
  rms_norm  model.layers.3.norm at /layers.3/norm/Mul: epsilon is no constant [epsilon]
degraded
  rms_norm  model.layers.4.norm at /layers.4/norm/Mul: no weight [scale]
excluded cross_entropy
loss ops left as they are
  LogSoftmax + GatherElements  /loss/LogSoftmax: cross-entropy: reduction mean; 3 nodes; inputs logits, labels
note     attention is not fused (2 places)
warning  nodes were out of order
error    rms_norm: 65 wanted by the patch map, 62 fused
  at: mine.yaml:5:15
  hint: the report names what was missed
)");
}

TEST(TextTest, ExplainShowsTheNodesTheClosestFormAndTheValues) {
  EXPECT_THAT(RenderOne(ReportFormat::kText, RunWithMisses(), true), HasSubstr(R"(
  rms_norm  model.norm at /norm/Mul: epsilon is no constant [epsilon]
    closest  LigerRMSNorm as pow/llama (ops/rms_norm.yaml)
    seen     epsilon = eps: f32[], x: f32[batch,seq,64]
    nodes    /norm/Mul = Mul(/norm/Rsqrt, x)
             /norm/Rsqrt = Rsqrt(/norm/Add)
)"));
  EXPECT_THAT(RenderOne(ReportFormat::kText, RunWithMisses(), true), HasSubstr(R"(
  LogSoftmax + GatherElements  /loss/LogSoftmax: cross-entropy: reduction mean
    path     loss_fn
    module   cross_entropy
    nodes    /loss/LogSoftmax, /loss/Gather, /loss/Mean
    inputs   logits, labels
)"));
  EXPECT_THAT(RenderOne(ReportFormat::kText, RunWithMisses(), true),
              HasSubstr("62 of 65  (mine.yaml:4:7, module rms_norm)"));
}

TEST(TextTest, DiagnosticsCanBeLeftToStandardError) {
  const Report report = RunWithMisses();
  EXPECT_THAT(Render(ReportFormat::kText, {&report, 1}, {.diagnostics = false}),
              Not(HasSubstr("out of order")));
}

TEST(TextTest, OnlyItsOwnEscapeSequencesReachTheTerminal) {
  const Report report = HostileRun();
  std::string text =
      Render(ReportFormat::kText, {&report, 1}, {.text = {.explain = true, .color = true}});
  EXPECT_THAT(text, HasSubstr("\033[1m"));
  for (const std::string own : {"\033[1m", "\033[0m"}) {
    for (size_t at = text.find(own); at != text.npos; at = text.find(own))
      text.erase(at, own.size());
  }
  EXPECT_TRUE(std::none_of(text.begin(), text.end(), [](char c) {
    return static_cast<unsigned char>(c) < 0x20 && c != '\n';
  }));
  EXPECT_THAT(text, Not(HasSubstr("\n::error")));
}

TEST(TextTest, SeveralModelsHaveAHeadEachAndASummary) {
  const std::vector<Report> reports = {GoodRun(), FailedRun()};
  const std::string text = Render(ReportFormat::kText, reports, {});
  EXPECT_THAT(text, StartsWith("== out/model.onnx: patched\nfamily   llama"));
  EXPECT_THAT(text, HasSubstr("\n== broken.onnx: failed with exit code 2\nnothing was written\n"
                              "error    unknown key 'clas'\n  at: maps/mine.yaml:3:5\n"));
  EXPECT_THAT(text, HasSubstr(R"(
  out/model.onnx  patched                  rms_norm 5 of 5, rope 4 of 4
  broken.onnx     failed with exit code 2
2 models: 1 patched, 1 failed
)"));
}

TEST(MarkdownTest, ShowsVerdictTableMissesAndHowToValidate) {
  EXPECT_EQ(RenderOne(ReportFormat::kMarkdown, GoodRun()), R"(<!-- liger-patch -->
### liger-patch: `out/model.onnx`: patched

Family `llama`, route official, map `llama`, written to `out/model.liger.onnx`.

| module | fused | expected | missed |
| --- | ---: | ---: | --- |
| `rms_norm` | 5 | 5 | 0 |
| `rope` | 4 | 4 | 0 |

<details><summary>Modules that are off</summary>

- `cross_entropy`: off by default for family llama

</details>

**Expectations met**

- `rms_norm` 5, found 5 (--expect)

**At run time**

- attention is not fused (2 places)

<details><summary>How to validate</summary>

```sh
liger-patch out/model.liger.onnx --dry-run
```

</details>
)");
  const std::string missed = RenderOne(ReportFormat::kMarkdown, RunWithMisses());
  EXPECT_THAT(missed, HasSubstr("### liger-patch: `in/a b.onnx`: 1 expectation not met\n"));
  EXPECT_THAT(missed, HasSubstr("| `rms_norm` | 62 | 65 | 2, 1 degraded |\n"));
  EXPECT_THAT(
      missed,
      HasSubstr("**Expectations not met**\n\n- `rms_norm` 65, found 62 (mine.yaml:5:15)\n"));
  EXPECT_THAT(missed, HasSubstr("- `rms_norm` `model.norm` at node `/norm/Mul`: epsilon is no "
                                "constant (guard `epsilon`)\n"));
  EXPECT_THAT(missed, HasSubstr("**Warning:** nodes were out of order\n"));
  EXPECT_THAT(missed, Not(HasSubstr("**Error:**")));  // says what the expectation says
}

TEST(MarkdownTest, LongListsAreFoldedAndCut) {
  Report report = RunWithMisses();
  report.missed.resize(6, report.missed[0]);
  EXPECT_THAT(RenderOne(ReportFormat::kMarkdown, report),
              HasSubstr("<details><summary>Not fused (6)</summary>\n\n- "));
  report.missed.resize(500, report.missed[0]);
  const std::string text = RenderOne(ReportFormat::kMarkdown, report);
  EXPECT_THAT(text, HasSubstr("<details><summary>Not fused (500)</summary>"));
  EXPECT_THAT(text, HasSubstr("- ... and 460 more\n"));
}

TEST(MarkdownTest, StaysBelowWhatACommentTakes) {
  Report report = HostileRun();
  report.missed.resize(500, report.missed[0]);
  report.diagnostics.resize(500, report.diagnostics[0]);
  report.runtime_gaps.resize(500, std::string(5000, '|'));
  EXPECT_LT(RenderOne(ReportFormat::kMarkdown, report).size(), 65536U);
  std::vector<Report> reports(300, report);
  reports.back() = FailedRun();
  const std::string text = Render(ReportFormat::kMarkdown, reports, {});
  EXPECT_LT(text.size(), 65536U);
  EXPECT_THAT(text, HasSubstr("do not fit here"));
  // Those that failed come first, whatever their place.
  reports.assign(300, GoodRun());
  reports.back() = FailedRun();
  EXPECT_THAT(
      Render(ReportFormat::kMarkdown, reports, {}),
      HasSubstr("\n\n#### `broken.onnx`: failed with exit code 2\n\n**Error:** unknown key"));
}

TEST(JUnitTest, ModulesAndExpectationsAreCases) {
  const std::string text = RenderOne(ReportFormat::kJUnit, RunWithMisses());
  EXPECT_THAT(text, StartsWith(R"(<?xml version="1.0" encoding="UTF-8"?>
<testsuites name="liger-patch" tests="5" failures="2" errors="0" skipped="0">
  <testsuite name="in/a b.onnx" tests="5" failures="2" errors="0" skipped="0">
)"));
  EXPECT_THAT(text, HasSubstr(R"xml(    <testcase classname="in/a b.onnx" name="rms_norm">
      <failure message="62 fused of 65, wanted 65 (mine.yaml:5:15)" type="expectation">missed: model.norm at node '/norm/Mul': epsilon is no constant [epsilon]
missed: model.layers.3.norm at node '/layers.3/norm/Mul': epsilon is no constant [epsilon]
degraded: model.layers.4.norm at node '/layers.4/norm/Mul': no weight [scale]</failure>
    </testcase>
    <testcase classname="in/a b.onnx" name="rope"/>
)xml"));
}

TEST(GitHubTest, PlacesOfOneReasonShareALine) {
  EXPECT_EQ(RenderOne(ReportFormat::kGitHub, RunWithMisses()),
            "::error file=mine.yaml,line=5,col=15,title=liger-patch%3A rms_norm::"
            "rms_norm: 65 wanted by mine.yaml:5:15, 62 fused\n"
            "::warning file=in/a b.onnx,title=liger-patch::nodes were out of order\n"
            "::warning file=in/a b.onnx,title=liger-patch%3A rms_norm::rms_norm: 2 not fused: "
            "epsilon is no constant [epsilon]%0Amodel.norm at node '/norm/Mul'%0A"
            "model.layers.3.norm at node '/layers.3/norm/Mul'\n"
            "::warning file=in/a b.onnx,title=liger-patch%3A rms_norm::rms_norm: 1 degraded: "
            "no weight [scale]%0Amodel.layers.4.norm at node '/layers.4/norm/Mul'\n"
            "::notice file=in/a b.onnx,title=liger-patch::in/a b.onnx: 1 expectation not met; "
            "rms_norm 62 of 65, rope 4 of 4, soft_cap 2 of 2\n");
}

TEST(FormatsTest, WarningsAreTheReasonWhereARunFailsWithoutAnError) {
  Report report;
  report.tool_version = "0.1.0";
  report.input.path = "m.onnx";
  report.status = "expectation_failed";
  report.exit_code = 1;
  report.diagnostics = {{Diagnostic::Severity::kNote, "a note", "", ""},
                        {Diagnostic::Severity::kWarning, "two nodes have one name", "n", ""}};
  EXPECT_THAT(RenderOne(ReportFormat::kJUnit, report),
              HasSubstr("<error message=\"two nodes have one name\" type=\"exit code 1\">two nodes "
                        "have one name\nat: n</error>"));
  EXPECT_THAT(RenderOne(ReportFormat::kMarkdown, report),
              HasSubstr("`m.onnx`: not as expected\n\n**Warning:** two nodes"));
  EXPECT_THAT(RenderOne(ReportFormat::kSarif, report), HasSubstr("\"executionSuccessful\": true"));
}

TEST(FormatsTest, AFailedVerificationIsAnErrorEverywhere) {
  Report report = GoodRun();
  report.status = "expectation_failed";
  report.exit_code = 1;
  report.diagnostics = {{Diagnostic::Severity::kError, "the checker refuses it", "", ""}};
  EXPECT_THAT(RenderOne(ReportFormat::kGitHub, report), HasSubstr("::error file=out/model.onnx"));
  EXPECT_THAT(RenderOne(ReportFormat::kJUnit, report), HasSubstr("errors=\"1\""));
  EXPECT_THAT(RenderOne(ReportFormat::kMarkdown, report),
              HasSubstr("**Error:** the checker refuses it"));
  EXPECT_THAT(RenderOne(ReportFormat::kSarif, report),
              HasSubstr("\"level\": \"error\",\n          \"message\": {\n            \"text\": "
                        "\"the checker refuses it\""));
}

}  // namespace
}  // namespace liger
