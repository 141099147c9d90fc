#include "api/patch_many.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <stdexcept>

#include "model_testing.h"
#include "report/formats.h"

namespace liger {
namespace {

namespace fs = std::filesystem;

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Key;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAre;

const fs::path kModels = LIGER_MODELS_DIR;

// Everything below a folder: files with their bytes, folders with a slash, links with their targets.
std::map<std::string, std::string> Tree(const fs::path& folder) {
  std::map<std::string, std::string> tree;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    const std::string name = entry.path().lexically_relative(folder).string();
    if (entry.is_symlink()) {
      tree[name] = "-> " + fs::read_symlink(entry.path()).string();
    } else if (entry.is_directory()) {
      tree[name + "/"] = "";
    } else {
      tree[name] = ReadFile(entry.path());
    }
  }
  return tree;
}

std::vector<std::string> Inputs(const std::vector<PatchOutcome>& outcomes) {
  std::vector<std::string> inputs;
  for (const PatchOutcome& outcome : outcomes) inputs.push_back(outcome.report.input.path);
  return inputs;
}

std::vector<std::string> Statuses(const std::vector<PatchOutcome>& outcomes) {
  std::vector<std::string> statuses;
  for (const PatchOutcome& outcome : outcomes) statuses.push_back(outcome.report.status);
  return statuses;
}

// A job that takes the first word of a "model" as what becomes of it.
PatchOutcome FakeJob(const PatchOptions& options) {
  PatchOutcome outcome;
  outcome.report.input.path = options.input.string();
  const std::string text = ReadFile(options.input);
  const auto fail = [&](const char* status, ErrorCode code) {
    outcome.report.status = status;
    outcome.report.exit_code = static_cast<int>(code);
    outcome.error = Error{code, text, "", ""};
  };
  if (text.starts_with("throw")) throw std::runtime_error("boom");
  if (text.starts_with("throw an int")) throw 5;
  if (text.starts_with("invalid")) fail("error", ErrorCode::kInvalidModel);
  if (text.starts_with("unmet")) fail("expectation_failed", ErrorCode::kExpectation);
  if (text.starts_with("nothing")) outcome.report.status = "nothing_to_do";
  for (const auto& [option, globs] : {std::pair("--scope", &options.scopes),
                                      std::pair("--skip", &options.skips)}) {
    for (const std::string& glob : *globs) {
      outcome.report.scopes.push_back({option, glob, text.find(glob) != text.npos ? 1 : 0});
    }
  }
  if (outcome.report.status != "ok") return outcome;
  if (options.check) {
    outcome.report.status = "checked";
  } else if (options.dry_run) {
    outcome.report.status = "dry_run";
  } else {
    const fs::path output = options.output.value_or(
        options.input.parent_path() / (options.input.stem().string() + ".liger.onnx"));
    std::ofstream(output) << "patched " << text;
    outcome.report.output = FileReport{output.string(), ""};
  }
  return outcome;
}

class PatchManyTest : public ::testing::Test {
 protected:
  fs::path in(const std::string& name = "") const { return folder_ / ("in/" + name); }
  fs::path out(const std::string& name = "") const { return folder_ / ("out/" + name); }

  // A copy of a model of tests/models.
  fs::path Model(const std::string& name, const std::string& to) const {
    fs::create_directories((folder_ / to).parent_path());
    fs::copy_file(kModels / name, folder_ / to);
    return folder_ / to;
  }

  std::vector<PatchOutcome> Fake(std::vector<fs::path> inputs, bool to_folder = true,
                                 int jobs = 1) {
    options_.inputs = std::move(inputs);
    options_.jobs = jobs;
    if (to_folder) options_.output = folder_ / "out";
    return PatchMany(options_, FakeJob);
  }

  // A run that fails as a whole and leaves everything as it is.
  void ExpectRefused(std::vector<fs::path> inputs, ErrorCode code, const std::string& message,
                     const std::string& hint = "") {
    const auto before = Tree(folder_.path());
    const auto outcomes = Fake(std::move(inputs), options_.output.has_value());
    ASSERT_THAT(outcomes, SizeIs(1));
    ASSERT_TRUE(outcomes[0].error);
    EXPECT_EQ(outcomes[0].error->code, code) << outcomes[0].error->message;
    EXPECT_THAT(outcomes[0].error->message, HasSubstr(message));
    EXPECT_THAT(outcomes[0].error->hint, HasSubstr(hint));
    EXPECT_EQ(outcomes[0].report.status, "error");
    EXPECT_EQ(outcomes[0].report.exit_code, static_cast<int>(code));
    EXPECT_EQ(outcomes[0].report.tool_version, ToolVersion());
    EXPECT_THAT(outcomes[0].report.diagnostics, Not(IsEmpty()));
    EXPECT_EQ(Tree(folder_.path()), before);
  }

  const TemporaryFolder folder_;
  ManyOptions options_;
};

// --- Beside the models ---------------------------------------------------------------------------

TEST_F(PatchManyTest, WritesBesideEachModelInTheOrderOfInputs) {
  WriteFile(folder_ / "z.onnx", "z");
  WriteFile(in("b.onnx"), "b");
  WriteFile(in("sub/a.onnx"), "a");
  WriteFile(in("a.onnx"), "a");
  WriteFile(in("config.json"), "{}");
  const auto outcomes = Fake({folder_ / "z.onnx", in()}, false);
  EXPECT_THAT(Inputs(outcomes), ElementsAre((folder_ / "z.onnx").string(), in("a.onnx").string(),
                                            in("b.onnx").string(), in("sub/a.onnx").string()));
  EXPECT_THAT(Listing(in()), UnorderedElementsAre("a.onnx", "a.liger.onnx", "b.onnx",
                                                  "b.liger.onnx", "config.json", "sub"));
  EXPECT_EQ(ReadFile(in("sub/a.liger.onnx")), "patched a");
}

TEST_F(PatchManyTest, TakesNoOwnOutputForAModelAndThatOfNoModelForOne) {
  WriteFile(in("a.onnx"), "a");
  WriteFile(in("a.liger.onnx"), "an older output");
  WriteFile(in("alone.liger.onnx"), "nothing to do");
  const auto outcomes = Fake({in()}, false);
  EXPECT_THAT(Inputs(outcomes),
              ElementsAre(in("a.onnx").string(), in("alone.liger.onnx").string()));
  EXPECT_EQ(ReadFile(in("a.liger.onnx")), "patched a");
}

TEST_F(PatchManyTest, DoesNotWriteThroughLinksToOtherFolders) {
  WriteFile(in("a.onnx"), "a");
  WriteFile(folder_ / "elsewhere/b.onnx", "b");
  fs::create_directory_symlink("../elsewhere", in("link"));
  EXPECT_THAT(Inputs(Fake({in()}, false)), ElementsAre(in("a.onnx").string()));
  EXPECT_THAT(Listing(folder_ / "elsewhere"), ElementsAre("b.onnx"));
}

TEST_F(PatchManyTest, NoOutputReplacesAnInput) {
  WriteFile(in("a.onnx"), "a");
  WriteFile(in("a.liger.onnx"), "b");
  ExpectRefused({in("a.onnx"), in("a.liger.onnx")}, ErrorCode::kUsage, "would replace",
                "leave that one out");
}

TEST_F(PatchManyTest, OneModelTwiceIsAnError) {
  WriteFile(in("a.onnx"), "a");
  ExpectRefused({in("a.onnx"), in("sub/../a.onnx")}, ErrorCode::kUsage, "would both become");
}

// --- Into a folder -------------------------------------------------------------------------------

TEST_F(PatchManyTest, CarriesEverythingElseOver) {
  WriteFile(in("model.onnx"), "a");
  WriteFile(in("model.onnx.data"), std::string(100000, 'w'));
  WriteFile(in("broken.onnx"), "invalid");
  WriteFile(in("unmet.onnx"), "unmet");
  WriteFile(in("embedding.onnx"), "nothing to do");
  WriteFile(in("sub/deep/vision.onnx"), "v");
  WriteFile(in("sub/config.json"), "{}");
  WriteFile(in(".hidden"), "h");
  WriteFile(in("run.sh"), "#!/bin/sh\n");
  fs::permissions(in("run.sh"), fs::perms::owner_exec, fs::perm_options::add);
  fs::create_directories(in("empty/inner"));
  WriteFile(folder_ / "cache/blob", "tokens");
  WriteFile(folder_ / "cache/more/vocab", "words");
  fs::create_symlink("../cache/blob", in("tokenizer.json"));
  fs::create_directory_symlink("../cache/more", in("more"));
  const auto before = Tree(in());

  const auto outcomes = Fake({in()});
  EXPECT_THAT(Statuses(outcomes),
              ElementsAre("nothing_to_do", "ok", "error", "expectation_failed", "ok")
                  .With(::testing::_));
  EXPECT_EQ(Tree(in()), before);
}

}  // namespace
}  // namespace liger
