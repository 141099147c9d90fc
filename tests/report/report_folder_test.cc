#include "report/report_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model_testing.h"
#include "samples.h"

namespace liger {
namespace {

namespace fs = std::filesystem;

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

std::vector<std::string> Paths(const std::vector<std::string>& inputs,
                               ReportFormat format = ReportFormat::kJson) {
  std::vector<Report> reports;
  for (const std::string& input : inputs) reports.emplace_back(GoodRun()).input.path = input;
  std::vector<std::string> paths;
  for (const ReportFile& file : RenderFolder(format, reports, {})) {
    paths.push_back(file.path.string());
  }
  return paths;
}

TEST(RenderFolderTest, FilesAreNamedAfterTheModels) {
  EXPECT_THAT(Paths({"in/a.onnx", "in/b.onnx"}),
              ElementsAre("a.onnx.json", "b.onnx.json", "summary.json"));
  EXPECT_THAT(Paths({"in/a.onnx", "in/sub/a.onnx"}, ReportFormat::kMarkdown),
              ElementsAre("a.onnx.md", "sub/a.onnx.md", "summary.md"));
  EXPECT_THAT(Paths({"x/m.onnx", "y/z/../m.onnx"}, ReportFormat::kSarif),
              ElementsAre("x/m.onnx.sarif", "y/m.onnx.sarif", "summary.sarif"));
  EXPECT_THAT(Paths({"/abs/m.onnx", "rel/m.onnx"}).back(), "summary.json");
  EXPECT_THAT(Paths({"../m.onnx"}), ElementsAre("m.onnx.json", "summary.json"));
  EXPECT_THAT(Paths({"-"}), ElementsAre("model.json", "summary.json"));
  EXPECT_THAT(Paths({"export/"}), ElementsAre("export.json", "summary.json"));
  EXPECT_THAT(Paths({}), ElementsAre("summary.json"));
}

TEST(RenderFolderTest, NoTwoFilesHaveOneName) {
  EXPECT_THAT(Paths({"a.onnx", "a.onnx", "./a.onnx", "summary"}),
              ElementsAre("a.onnx.json", "a.onnx-2.json", "a.onnx-3.json", "summary-2.json",
                          "summary.json"));
}

TEST(RenderFolderTest, EachFileIsTheReportOfItsModelAndTheSummaryThatOfAll) {
  const std::vector<Report> reports = {GoodRun(), FailedRun()};
  const auto files = RenderFolder(ReportFormat::kJson, reports, {});
  ASSERT_EQ(files.size(), 3U);
  EXPECT_EQ(files[0].text, ToJson(reports[0]));
  EXPECT_EQ(files[1].text, ToJson(reports[1]));
  EXPECT_EQ(files[2].text, Render(ReportFormat::kJson, reports, {}));
}

TEST(WriteReportFolderTest, MakesFoldersAndReplacesOlderReports) {
  const TemporaryFolder folder;
  std::vector<Report> reports = {GoodRun(), FailedRun()};
  reports[0].input.path = "in/sub/a.onnx";
  reports[1].input.path = "in/b.onnx";
  ASSERT_OK(WriteReportFolder(folder / "x/reports/", ReportFormat::kJUnit, reports, {}));
  EXPECT_THAT(Listing(folder / "x/reports"),
              UnorderedElementsAre("sub", "b.onnx.xml", "summary.xml"));
  EXPECT_THAT(ReadFile(folder / "x/reports/sub/a.onnx.xml"), HasSubstr("<testsuites"));
  reports[1] = GoodRun();
  reports[1].input.path = "in/b.onnx";
  ASSERT_OK(WriteReportFolder(folder / "x/reports", ReportFormat::kJUnit, reports, {}));
  EXPECT_THAT(ReadFile(folder / "x/reports/b.onnx.xml"), HasSubstr("errors=\"0\""));
}

TEST(WriteReportFolderTest, NoOtherFileIsReplaced) {
  const TemporaryFolder folder;
  WriteFile(folder / "r/summary.json", "{\n  \"mine\": 1\n}");
  const std::vector<Report> reports = {GoodRun()};
  EXPECT_ERROR(WriteReportFolder(folder / "r", ReportFormat::kJson, reports, {}), ErrorCode::kUsage,
               HasSubstr("summary.json', which is no report"));
  EXPECT_THAT(Listing(folder / "r"), ElementsAre("summary.json"));
  fs::remove(folder / "r/summary.json");
  fs::create_directories(folder / "r/model.onnx.json");
  EXPECT_ERROR(WriteReportFolder(folder / "r", ReportFormat::kJson, reports, {}), ErrorCode::kUsage,
               HasSubstr("model.onnx.json', which is no report"));
  WriteFile(folder / "file", "");
  EXPECT_ERROR(WriteReportFolder(folder / "file", ReportFormat::kJson, reports, {}),
               ErrorCode::kWrite, HasSubstr("cannot be written"));
}

TEST(IsReportFolderTest, ASlashOrAFolder) {
  const TemporaryFolder folder;
  EXPECT_TRUE(IsReportFolder("reports/"));
  EXPECT_TRUE(IsReportFolder(folder.path().string()));
  EXPECT_FALSE(IsReportFolder((folder / "report.json").string()));
  EXPECT_FALSE(IsReportFolder("-"));
}

}  // namespace
}  // namespace liger
