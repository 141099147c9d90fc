#include "api/patch_many.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <stdexcept>
#include <thread>

#include "model_testing.h"
#include "report/formats.h"

namespace liger {
namespace {

namespace fs = std::filesystem;

using ::testing::AllOf;
using ::testing::Contains;
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
  if (text.starts_with("invalid")) fail("error", ErrorCode::kInvalidModel);
  if (outcome.error) return outcome;
  if (text.starts_with("unmet")) fail("expectation_failed", ErrorCode::kExpectation);
  if (text.starts_with("nothing")) outcome.report.status = "nothing_to_do";
  for (const auto& [option, globs] :
       {std::pair("--scope", &options.scopes), std::pair("--skip", &options.skips)}) {
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
    options_.inputs = std::move(inputs);
    const auto outcomes = PatchMany(options_, FakeJob);
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

TEST_F(PatchManyTest, OtherJobsHaveOtherOutputs) {
  for (const char* name : {"a.onnx", "a.liger.onnx", "a.liger.reverted.onnx"}) {
    WriteFile(in(name), "a");
  }
  options_.patch.dry_run = true;
  options_.own_suffix = ".reverted.onnx";
  EXPECT_THAT(Inputs(Fake({in()}, false)),
              ElementsAre(in("a.liger.onnx").string(), in("a.onnx").string()));
  // A job that writes nothing looks at everything, and has no names that could clash.
  options_.own_suffix.clear();
  EXPECT_THAT(Fake({in()}, false), SizeIs(3));
  EXPECT_THAT(Fake({in("a.onnx"), in("a.liger.onnx"), in("a.onnx")}, false), SizeIs(3));
  EXPECT_THAT(Inputs(Fake({in("a.onnx")}, true)), ElementsAre(in("a.onnx").string()));
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
  EXPECT_EQ(Tree(in()), before);
  EXPECT_THAT(Inputs(outcomes),
              ElementsAre(in("broken.onnx").string(), in("embedding.onnx").string(),
                          in("model.onnx").string(), in("sub/deep/vision.onnx").string(),
                          in("unmet.onnx").string()));
  EXPECT_THAT(Statuses(outcomes),
              ElementsAre("error", "nothing_to_do", "ok", "ok", "expectation_failed"));
  EXPECT_EQ(WorstExitCode(ReportsOf(outcomes)), 3);
  std::map<std::string, std::string> wanted = before;
  wanted["model.onnx"] = "patched a";
  wanted["sub/deep/vision.onnx"] = "patched v";
  wanted["tokenizer.json"] = "tokens";
  wanted.erase("more");
  wanted["more/"] = "";
  wanted["more/vocab"] = "words";
  EXPECT_EQ(Tree(out()), wanted);
  EXPECT_NE(fs::status(out("run.sh")).permissions() & fs::perms::owner_exec, fs::perms::none);
  EXPECT_EQ(fs::status(out("model.onnx.data")).permissions() & fs::perms::owner_exec,
            fs::perms::none);
  EXPECT_FALSE(fs::equivalent(in("model.onnx.data"), out("model.onnx.data")));
  // What became of the models that were not written.
  for (const size_t i : {0, 1, 4}) {
    EXPECT_FALSE(outcomes[i].report.output);
    EXPECT_THAT(outcomes[i].report.diagnostics,
                Contains(Field(&Diagnostic::message, HasSubstr("carried over as it is: '"))));
  }
}

TEST_F(PatchManyTest, HardlinksWhereAskedTo) {
  WriteFile(in("a.onnx"), "a");
  WriteFile(in("a.onnx.data"), "weights");
  WriteFile(in("b.onnx"), "nothing");
  options_.patch.external_data = ExternalDataMode::kHardlink;
  const auto outcomes = Fake({in()});
  EXPECT_TRUE(fs::equivalent(in("a.onnx.data"), out("a.onnx.data")));
  EXPECT_TRUE(fs::equivalent(in("b.onnx"), out("b.onnx")));
  EXPECT_EQ(ReadFile(in("a.onnx")), "a");
  EXPECT_EQ(ReadFile(out("a.onnx")), "patched a");
  EXPECT_THAT(outcomes[0].report.diagnostics,
              Contains(Field(&Diagnostic::message, HasSubstr("are hard links"))));
}

TEST_F(PatchManyTest, NamedFilesGoIntoTheFolderAlone) {
  WriteFile(in("a.onnx"), "a");
  WriteFile(in("b.onnx"), "nothing");
  WriteFile(in("config.json"), "{}");
  Fake({in("a.onnx"), in("b.onnx")});
  EXPECT_THAT(Listing(out()), ElementsAre("a.onnx"));
}

TEST_F(PatchManyTest, MakesTheOutputFolderWithAllAboveIt) {
  WriteFile(in("a.onnx"), "a");
  options_.output = folder_ / "x/y/out/";
  options_.inputs = {in()};
  PatchMany(options_, FakeJob);
  EXPECT_EQ(ReadFile(folder_ / "x/y/out/a.onnx"), "patched a");
}

TEST_F(PatchManyTest, AnEmptyFolderAndFilesWithOtherNamesAreNoHindrance) {
  WriteFile(in("a.onnx"), "a");
  WriteFile(in("sub/c"), "c");
  WriteFile(out("keep"), "kept");
  fs::create_directory(out("sub"));
  Fake({in()});
  EXPECT_EQ(Tree(out()),
            (std::map<std::string, std::string>{
                {"a.onnx", "patched a"}, {"keep", "kept"}, {"sub/", ""}, {"sub/c", "c"}}));
}

TEST_F(PatchManyTest, LinksThatLeadNowhereOrBackAreNamed) {
  WriteFile(in("a.onnx"), "a");
  fs::create_symlink("nowhere", in("dangling"));
  fs::create_directory_symlink("..", in("sub"));
  fs::remove(in("sub"));
  fs::create_directory(in("sub"));
  fs::create_directory_symlink("..", in("sub/back"));
  const auto outcomes = Fake({in()});
  EXPECT_THAT(Tree(out()), UnorderedElementsAre(Key("a.onnx"), Key("sub/")));
  std::vector<std::string> messages;
  for (const Diagnostic& d : outcomes[0].report.diagnostics) messages.push_back(d.message);
  EXPECT_THAT(messages,
              ElementsAre(AllOf(HasSubstr("in/dangling'"), HasSubstr("leads to no file")),
                          AllOf(HasSubstr("in/sub/back'"), HasSubstr("a folder that holds it"))));
}

TEST_F(PatchManyTest, RefusesTheInputFolderOrOneInsideItAsOutput) {
  WriteFile(in("a.onnx"), "a");
  fs::create_directory(in("sub"));
  fs::create_directory_symlink("in", folder_ / "link");
  options_.output = in();
  ExpectRefused({in()}, ErrorCode::kUsage, "is the input folder", "leave -o out");
  options_.output = in("sub/../../link");
  options_.inputs = {in()};
  for (const fs::path& output :
       {folder_ / "in", folder_ / "link", in("."), in("sub/.."), folder_ / "link/"}) {
    options_.output = output;
    EXPECT_THAT(PatchMany(options_, FakeJob)[0].error->message, HasSubstr("is the input folder"))
        << output;
  }
  for (const fs::path& output : {in("sub"), in("new/folder"), folder_ / "link/new"}) {
    options_.output = output;
    EXPECT_THAT(PatchMany(options_, FakeJob)[0].error->message, HasSubstr("lies in the input"))
        << output;
  }
  EXPECT_THAT(Listing(in()), UnorderedElementsAre("a.onnx", "sub"));
  // A name that only begins alike is another folder.
  options_.output = folder_ / "in2";
  EXPECT_EQ(PatchMany(options_, FakeJob)[0].report.status, "ok");
}

TEST_F(PatchManyTest, ReplacesNothingInTheOutputFolder) {
  WriteFile(in("a.onnx"), "a");
  WriteFile(in("sub/config.json"), "{}");
  WriteFile(out("a.onnx"), "precious");
  options_.output = out();
  ExpectRefused({in()}, ErrorCode::kWrite, "out/a.onnx' is there already", "new or empty folder");
  WriteFile(out("sub/config.json"), "precious");
  ExpectRefused({in()}, ErrorCode::kWrite, "and 1 more are there already");
  fs::remove_all(out());
  fs::create_directories(out());
  fs::create_symlink("nowhere", out("a.onnx"));
  ExpectRefused({in()}, ErrorCode::kWrite, "is there already");
  fs::remove(out("a.onnx"));
  WriteFile(out("sub"), "a file where a folder is wanted");
  ExpectRefused({in()}, ErrorCode::kWrite, "out/sub' is there already");
}

TEST_F(PatchManyTest, TwoInputsOfOneNameAreAnError) {
  WriteFile(folder_ / "a/model.onnx", "a");
  WriteFile(folder_ / "b/model.onnx", "b");
  WriteFile(folder_ / "b/x", "b");
  WriteFile(folder_ / "c/other.onnx", "c");
  WriteFile(folder_ / "c/x", "c");
  WriteFile(folder_ / "d/d.onnx", "d");
  WriteFile(folder_ / "d/x/y", "d");
  options_.output = out();
  ExpectRefused({folder_ / "a/model.onnx", folder_ / "b/model.onnx"}, ErrorCode::kUsage,
                "would both become", "own run");
  ExpectRefused({folder_ / "a", folder_ / "b"}, ErrorCode::kUsage, "would both become");
  ExpectRefused({folder_ / "b", folder_ / "c"}, ErrorCode::kUsage, "would both become");
  ExpectRefused({folder_ / "c", folder_ / "d"}, ErrorCode::kUsage,
                "would be a folder and the file");
}

TEST_F(PatchManyTest, AFileIsNoOutputFolder) {
  WriteFile(in("a.onnx"), "a");
  WriteFile(folder_ / "file", "f");
  options_.output = folder_ / "file";
  options_.inputs = {in()};
  const auto outcomes = PatchMany(options_, FakeJob);
  EXPECT_THAT(outcomes[0].error->message, HasSubstr("several models are written to a folder"));
  EXPECT_EQ(ReadFile(folder_ / "file"), "f");
}

TEST_F(PatchManyTest, AFolderWithoutModelsIsAnError) {
  WriteFile(in("config.json"), "{}");
  ExpectRefused({in()}, ErrorCode::kInvalidModel, "holds no .onnx file");
  ExpectRefused({}, ErrorCode::kUsage, "no model is named");
}

TEST_F(PatchManyTest, NothingIsLeftWhereEveryModelFails) {
  WriteFile(in("a.onnx"), "invalid");
  WriteFile(in("b.onnx"), "unmet");
  WriteFile(in("sub/c.onnx"), "throw");
  WriteFile(in("weights"), "w");
  options_.output = folder_ / "new/out";
  options_.inputs = {in()};
  const auto outcomes = PatchMany(options_, FakeJob);
  EXPECT_THAT(Statuses(outcomes), ElementsAre("error", "expectation_failed", "error"));
  EXPECT_THAT(outcomes[0].report.diagnostics,
              Contains(Field(&Diagnostic::message, HasSubstr("nothing was carried over"))));
  EXPECT_THAT(Listing(folder_.path()), ElementsAre("in"));
}

TEST_F(PatchManyTest, NothingIsLeftWhereAFileCannotBeCarriedOver) {
  WriteFile(in("a.onnx"), "a");
  WriteFile(in("sub/b.onnx"), "b");
  WriteFile(in("a1"), "1");
  WriteFile(in("weights"), "w");
  options_.inputs = {in()};
  options_.output = out();
  const auto outcomes = PatchMany(options_, [&](const PatchOptions& options) {
    fs::remove(in("weights"));  // as another program might
    return FakeJob(options);
  });
  ASSERT_THAT(outcomes, SizeIs(1));
  EXPECT_EQ(outcomes[0].report.exit_code, static_cast<int>(ErrorCode::kWrite));
  EXPECT_THAT(outcomes[0].error->message, HasSubstr("in/weights'"));
  EXPECT_THAT(Listing(folder_.path()), ElementsAre("in"));
}

TEST_F(PatchManyTest, AFolderThatCannotBeWrittenToIsAnError) {
  WriteFile(in("a.onnx"), "a");
  fs::permissions(folder_.path(), fs::perms(0555));
  options_.inputs = {in()};
  options_.output = out();
  std::vector<PatchOutcome> outcomes;
  {
    const Unprivileged user;
    outcomes = PatchMany(options_, FakeJob);
  }
  fs::permissions(folder_.path(), fs::perms(0755));
  ASSERT_THAT(outcomes, SizeIs(1));
  EXPECT_EQ(outcomes[0].report.exit_code, static_cast<int>(ErrorCode::kWrite));
  EXPECT_THAT(outcomes[0].error->message, HasSubstr("Permission denied"));
}

// --- Failures, checks, threads -------------------------------------------------------------------

TEST_F(PatchManyTest, AnExceptionIsTheErrorOfItsModel) {
  WriteFile(in("a.onnx"), "a");
  WriteFile(in("b.onnx"), "throw");
  WriteFile(in("c.onnx"), "c");
  const auto outcomes = Fake({in(), folder_ / "missing.onnx"});
  EXPECT_THAT(Statuses(outcomes), ElementsAre("ok", "error", "ok", "ok"));
  EXPECT_EQ(outcomes[1].report.exit_code, static_cast<int>(ErrorCode::kInternal));
  EXPECT_EQ(outcomes[1].error->message, "internal error: boom");
  EXPECT_EQ(outcomes[1].report.input.path, in("b.onnx").string());
  EXPECT_EQ(ReadFile(out("b.onnx")), "throw");
  EXPECT_EQ(WorstExitCode(ReportsOf(outcomes)), 70);
}

TEST_F(PatchManyTest, ChecksAndDryRunsWriteNothing) {
  WriteFile(in("a.onnx"), "a");
  WriteFile(in("b.onnx"), "nothing");
  WriteFile(in("config.json"), "{}");
  const auto before = Tree(folder_.path());
  options_.patch.check = true;
  EXPECT_THAT(Statuses(Fake({in()})), ElementsAre("checked", "nothing_to_do"));
  // Where the output would go does not matter to a check.
  options_.output = in();
  EXPECT_THAT(Statuses(Fake({in()}, false)), ElementsAre("checked", "nothing_to_do"));
  options_.patch.check = false;
  options_.patch.dry_run = true;
  EXPECT_THAT(Fake({in()}, false)[0].error->message, HasSubstr("is the input folder"));
  const auto dry = Fake({in()});
  EXPECT_THAT(Statuses(dry), ElementsAre("dry_run", "nothing_to_do"));
  EXPECT_THAT(dry[0].report.diagnostics,
              Contains(Field(&Diagnostic::message, HasSubstr("out/a.onnx' was not written"))));
  options_.output.reset();
  EXPECT_THAT(Statuses(Fake({in()}, false)), ElementsAre("dry_run", "nothing_to_do"));
  EXPECT_EQ(Tree(folder_.path()), before);
}

TEST_F(PatchManyTest, OutcomesDoNotDependOnTheNumberOfThreads) {
  for (int i = 0; i < 40; ++i) {
    WriteFile(in(std::to_string(i) + ".onnx"), i % 7 == 0 ? "throw" : i % 5 == 0 ? "nothing" : "a");
  }
  const auto render = [](const std::vector<PatchOutcome>& outcomes) {
    return Render(ReportFormat::kJson, ReportsOf(outcomes), {});
  };
  const std::string one = render(Fake({in()}, true, 1));
  const auto tree = Tree(out());
  for (const int jobs : {0, 4, 100}) {
    fs::remove_all(out());
    EXPECT_EQ(render(Fake({in()}, true, jobs)), one);
    EXPECT_EQ(Tree(out()), tree);
  }
}

TEST_F(PatchManyTest, WorksOnSeveralModelsAtATime) {
  for (int i = 0; i < 2; ++i) WriteFile(in(std::to_string(i) + ".onnx"), "a");
  std::atomic<int> waiting = 0;
  options_.inputs = {in()};
  options_.jobs = 2;
  PatchMany(options_, [&](const PatchOptions& options) {
    ++waiting;
    while (waiting < 2) std::this_thread::yield();  // each waits for the other
    return FakeJob(options);
  });
  EXPECT_EQ(waiting, 2);
}

// --- Globs ---------------------------------------------------------------------------------------

TEST_F(PatchManyTest, AGlobHasToMatchInOneModelOnly) {
  WriteFile(in("a.onnx"), "text.layers");
  WriteFile(in("b.onnx"), "vision.layers");
  WriteFile(in("c.onnx"), "invalid");
  options_.patch.scopes = {"text", "layers"};
  options_.patch.skips = {"vision"};
  for (const int jobs : {1, 3}) {
    fs::remove_all(out());
    const auto outcomes = Fake({in()}, true, jobs);
    EXPECT_THAT(Statuses(outcomes), ElementsAre("ok", "ok", "error"));
    EXPECT_EQ(ReadFile(out("b.onnx")), "patched vision.layers");
  }
}

TEST_F(PatchManyTest, AGlobThatMatchesNowhereEndsTheRunBeforeAnythingIsWritten) {
  WriteFile(in("a.onnx"), "text");
  WriteFile(in("b.onnx"), "vision");
  WriteFile(in("c.onnx"), "invalid");
  options_.patch.scopes = {"text", "txt"};
  options_.patch.skips = {"vsion"};
  ExpectRefused({in()}, ErrorCode::kUsage, "--scope 'txt' takes in no module of any model");
  options_.output = out();
  ExpectRefused({in()}, ErrorCode::kUsage, "--scope 'txt' takes in no module of any model");
  const auto outcomes = Fake({in()});
  ASSERT_THAT(outcomes[0].error->others, SizeIs(1));
  EXPECT_THAT(outcomes[0].error->others[0].message, HasSubstr("--skip 'vsion'"));
  EXPECT_THAT(outcomes[0].report.diagnostics, SizeIs(2));
  options_.patch.check = true;
  EXPECT_EQ(Fake({in()})[0].error->code, ErrorCode::kUsage);
}

TEST_F(PatchManyTest, GlobsAreNotJudgedWhereEveryModelFailsBefore) {
  WriteFile(in("a.onnx"), "invalid");
  options_.patch.scopes = {"txt"};
  EXPECT_EQ(Fake({in()})[0].report.exit_code, static_cast<int>(ErrorCode::kInvalidModel));
}

// --- Real models ---------------------------------------------------------------------------------

class RealModelsTest : public PatchManyTest {
 protected:
  // Optimum's kind of folder: two models, their data in one file, configuration beside them.
  void MakeExport() const {
    Model("llama/dynamo_op20_external.onnx", "in/decoder_model.onnx");
    Model("llama/dynamo_op20_external.onnx", "in/decoder_with_past_model.onnx");
    Model("llama/dynamo_op20_external.onnx.data", "in/dynamo_op20_external.onnx.data");
    Model("llama/config.json", "in/config.json");
    WriteFile(in("tokenizer.json"), "{}");
    WriteFile(in("notes.onnx"), "no model");
  }

  std::vector<PatchOutcome> Run(int jobs) {
    options_.inputs = {in()};
    options_.output = out();
    options_.jobs = jobs;
    return PatchMany(options_);
  }
};

TEST_F(RealModelsTest, AnExportedFolderIsPatchedWhole) {
  MakeExport();
  const auto outcomes = Run(2);
  EXPECT_THAT(Statuses(outcomes), ElementsAre("ok", "ok", "error"));
  EXPECT_THAT(Listing(out()),
              UnorderedElementsAre("decoder_model.onnx", "decoder_with_past_model.onnx",
                                   "dynamo_op20_external.onnx.data", "config.json",
                                   "tokenizer.json", "notes.onnx"));
  EXPECT_EQ(ReadFile(out("notes.onnx")), "no model");
  EXPECT_NE(ReadFile(out("decoder_model.onnx")), ReadFile(in("decoder_model.onnx")));
  EXPECT_EQ(ReadFile(out("dynamo_op20_external.onnx.data")),
            ReadFile(in("dynamo_op20_external.onnx.data")));
  EXPECT_EQ(outcomes[0].report.family, "llama");
  // The result is a complete export: a second run finds its data and nothing left to do.
  options_.inputs = {out()};
  options_.output = folder_ / "again";
  const auto again = PatchMany(options_);
  EXPECT_THAT(Statuses(again), ElementsAre("nothing_to_do", "nothing_to_do", "error"));
  EXPECT_EQ(Tree(folder_ / "again"), Tree(out()));
}

TEST_F(RealModelsTest, ThreadsChangeNothing) {
  MakeExport();
  for (const char* name :
       {"dynamo_op20", "mask_ts_op17_dyn", "fp16_dynamo_op20", "loss_dynamo_op20"}) {
    Model("llama/" + std::string(name) + ".onnx", "in/more/" + std::string(name) + ".onnx");
  }
  const std::string one = Render(ReportFormat::kJson, ReportsOf(Run(1)), {});
  const auto tree = Tree(out());
  fs::remove_all(out());
  EXPECT_EQ(Render(ReportFormat::kJson, ReportsOf(Run(4)), {}), one);
  EXPECT_EQ(Tree(out()), tree);
}

TEST_F(RealModelsTest, LinksOfACacheAreResolved) {
  Model("llama/dynamo_op20_external.onnx", "blobs/1");
  Model("llama/dynamo_op20_external.onnx.data", "blobs/2");
  Model("llama/config.json", "in/config.json");
  fs::create_symlink("../blobs/1", in("model.onnx"));
  fs::create_symlink("../blobs/2", in("dynamo_op20_external.onnx.data"));
  const auto outcomes = Run(1);
  EXPECT_THAT(Statuses(outcomes), ElementsAre("ok"));
  EXPECT_FALSE(fs::is_symlink(out("dynamo_op20_external.onnx.data")));
  EXPECT_EQ(ReadFile(out("dynamo_op20_external.onnx.data")), ReadFile(folder_ / "blobs/2"));
}

TEST_F(RealModelsTest, DataBesideTheFileThatALinkLeadsToComesAlong) {
  Model("llama/dynamo_op20_external.onnx", "store/m.onnx");
  Model("llama/dynamo_op20_external.onnx.data", "store/dynamo_op20_external.onnx.data");
  fs::create_directory(in());
  for (const char* name : {"a.onnx", "b.onnx"}) fs::create_symlink("../store/m.onnx", in(name));
  options_.patch.family = "llama";
  const auto outcomes = Run(2);
  EXPECT_THAT(Statuses(outcomes), ElementsAre("ok", "ok"));
  EXPECT_THAT(Listing(out()),
              UnorderedElementsAre("a.onnx", "b.onnx", "dynamo_op20_external.onnx.data"));
}

TEST_F(RealModelsTest, NamedFilesThatShareDataGetItOnce) {
  MakeExport();
  options_.inputs = {in("decoder_model.onnx"), in("decoder_with_past_model.onnx")};
  options_.output = out();
  options_.jobs = 2;
  for (const PatchOutcome& outcome : PatchMany(options_)) {
    ASSERT_TRUE(outcome.error);
    EXPECT_THAT(outcome.error->message, HasSubstr("would not find its data"));
  }
  EXPECT_FALSE(fs::exists(out()));
  options_.patch.external_data = ExternalDataMode::kCopy;
  EXPECT_THAT(Statuses(PatchMany(options_)), ElementsAre("ok", "ok"));
  EXPECT_EQ(ReadFile(out("dynamo_op20_external.onnx.data")),
            ReadFile(in("dynamo_op20_external.onnx.data")));
}

TEST_F(RealModelsTest, AnUnmatchedGlobNamesTheNearestPaths) {
  MakeExport();
  options_.patch.skips = {"model.layers.O"};
  const auto outcomes = Run(1);
  ASSERT_THAT(outcomes, SizeIs(1));
  EXPECT_THAT(outcomes[0].error->message,
              HasSubstr("--skip 'model.layers.O' takes in no module of any model"));
  EXPECT_THAT(outcomes[0].error->hint,
              AllOf(HasSubstr("decoder_model.onnx: the model has "), HasSubstr("model.layers.0")));
  EXPECT_FALSE(fs::exists(out()));
}

TEST(AreManyTest, FoldersAndSeveralFilesAre) {
  const TemporaryFolder folder;
  const fs::path file = WriteFile(folder / "a.onnx", "a");
  EXPECT_FALSE(AreMany(std::vector{file}));
  EXPECT_FALSE(AreMany(std::vector{folder / "missing"}));
  EXPECT_TRUE(AreMany(std::vector{folder.path()}));
  EXPECT_TRUE(AreMany(std::vector{file, file}));
}

}  // namespace
}  // namespace liger
