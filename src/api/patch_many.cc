#include "api/patch_many.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <set>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include "model/external_data.h"
#include "model/posix_file.h"

namespace liger {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kModelSuffix = ".onnx";

// One name for one place, whether it exists or not; links are followed as far as they lead.
fs::path RealPath(const fs::path& path) {
  std::error_code error;
  const fs::path whole = fs::absolute(path.empty() ? "." : path);
  const fs::path real = fs::weakly_canonical(whole, error);
  fs::path normal = (error ? whole : real).lexically_normal();
  return normal.has_filename() ? normal : normal.parent_path();
}

bool Exists(const fs::path& path) {
  std::error_code error;
  return fs::exists(fs::symlink_status(path, error));
}

// What is below a folder, by path from there.
struct FolderContents {
  std::vector<fs::path> files;    // regular files, and links to such
  std::vector<fs::path> folders;  // outer before inner
  std::vector<std::string> left_out;
};

// Walks `root`. Links to folders are followed if `through_links`, but not into what holds them.
Result<FolderContents> ListFolder(const fs::path& root, bool through_links) {
  struct Pending {
    fs::path relative;
    std::vector<fs::path> above;  // real paths, this folder's own included
  };
  FolderContents contents;
  std::vector<Pending> work = {{"", {RealPath(root)}}};
  while (!work.empty()) {
    const Pending folder = std::move(work.back());
    work.pop_back();
    std::error_code error;
    fs::directory_iterator entries(root / folder.relative, error);
    for (; !error && entries != fs::directory_iterator(); entries.increment(error)) {
      const fs::path relative = folder.relative / entries->path().filename();
      std::error_code ignored;
      const fs::file_status status = fs::status(entries->path(), ignored);
      const bool is_link = fs::is_symlink(fs::symlink_status(entries->path(), ignored));
      if (fs::is_regular_file(status)) {
        contents.files.push_back(relative);
      } else if (!fs::is_directory(status)) {
        contents.left_out.push_back(
            Quoted(root / relative) +
            (is_link ? " is a link that leads to no file" : " is neither a file nor a folder"));
      } else if (!is_link || through_links) {
        Pending inner{relative, folder.above};
        inner.above.push_back(RealPath(entries->path()));
        if (std::find(folder.above.begin(), folder.above.end(), inner.above.back()) !=
            folder.above.end()) {
          contents.left_out.push_back(Quoted(root / relative) +
                                      " is a link to a folder that holds it");
          continue;
        }
        contents.folders.push_back(relative);
        work.push_back(std::move(inner));
      }
    }
    if (error) {
      return Error{
          ErrorCode::kInvalidModel,
          "the folder " + Quoted(root / folder.relative) + " cannot be read: " + error.message(),
          "", "check its permissions"};
    }
  }
  std::sort(contents.files.begin(), contents.files.end());
  std::sort(contents.folders.begin(), contents.folders.end());
  std::sort(contents.left_out.begin(), contents.left_out.end());
  return contents;
}

// The next model for each of `jobs` threads until none is left or `stop` says so.
void ForEach(size_t count, int jobs, const std::function<void(size_t)>& work,
             const std::function<bool()>& stop) {
  std::atomic<size_t> next = 0;
  const auto worker = [&] {
    while (!stop()) {
      const size_t i = next++;
      if (i >= count) return;
      work(i);
    }
  };
  const size_t wanted = jobs > 0 ? static_cast<size_t>(jobs) : std::thread::hardware_concurrency();
  std::vector<std::jthread> threads;
  for (size_t i = 1; i < std::min(wanted, count); ++i) {
    try {
      threads.emplace_back(worker);
    } catch (const std::system_error&) {
      break;  // as many as the system gives
    }
  }
  worker();
}

class ManyRun {
 public:
  ManyRun(const ManyOptions& options, const ModelJob& job) : options_(options), job_(job) {}

  std::vector<PatchOutcome> Execute() {
    if (Status status = Plan(); !status) return {Failed(status.error())};
    if (writes()) {
      if (Status status = FindUnmatchedGlobs(); !status) return {Failed(status.error())};
    }
    if (Status status = MakeFolders(); !status) {
      RemoveWritten();
      return {Failed(status.error())};
    }
    outcomes_.resize(models_.size());
    ForEach(
        models_.size(), options_.jobs,
        [&](size_t i) { outcomes_[i] = RunOne(OptionsOf(models_[i])); }, [] { return false; });
    if (!writes()) {
      if (Status status = JudgeGlobs(outcomes_); !status) return {Failed(status.error())};
    }
    if (to_folder()) {
      if (Status status = CarryOver(); !status) {
        RemoveWritten();
        return {Failed(status.error())};
      }
    }
    Report& first = outcomes_.front().report;
    for (std::string& warning : warnings_) {
      first.diagnostics.push_back({Diagnostic::Severity::kWarning, std::move(warning)});
    }
    return std::move(outcomes_);
  }

  // The outcome of a run that failed as a whole.
  PatchOutcome Failed(const Error& error) const {
    PatchOutcome outcome;
    Report& report = outcome.report;
    report.tool_version = ToolVersion();
    if (!options_.inputs.empty()) report.input.path = options_.inputs.front().string();
    report.status = "error";
    report.exit_code = static_cast<int>(error.code);
    report.diagnostics.push_back(
        {Diagnostic::Severity::kError, error.message, error.location, error.hint});
    for (const Error& other : error.others) {
      report.diagnostics.push_back(
          {Diagnostic::Severity::kError, other.message, other.location, other.hint});
    }
    outcome.error = error;
    return outcome;
  }

  // Takes back what the run has made in the output folder; nothing else was touched there.
  void RemoveWritten() {
    if (!to_folder()) return;
    std::error_code ignored;
    for (const PatchOutcome& outcome : outcomes_) {
      if (outcome.report.output) fs::remove(outcome.report.output->path, ignored);
    }
    for (auto folder = new_folders_.rbegin(); folder != new_folders_.rend(); ++folder) {
      fs::remove(*folder, ignored);  // fails, as it should, if something else is in it
    }
  }

 private:
  struct Model {
    fs::path input;
    std::optional<fs::path> output;
    bool of_folder = false;
  };
  struct File {
    fs::path source;
    fs::path target;
  };

  // Whether it is a job that writes models, were it not for --dry-run.
  bool is_writer() const { return !options_.patch.check && !options_.own_suffix.empty(); }
  bool writes() const { return is_writer() && !options_.patch.dry_run; }
  // In a check nothing depends on where models would go.
  bool has_output() const { return options_.output && is_writer(); }
  bool to_folder() const { return has_output() && writes(); }

  // --- What goes where --------------------------------------------------------------------------

  Status Plan() {
    if (options_.inputs.empty()) {
      return Error{ErrorCode::kUsage, "no model is named", "", "name files or folders"};
    }
    std::error_code ignored;
    if (has_output() && fs::exists(*options_.output, ignored) &&
        !fs::is_directory(*options_.output, ignored)) {
      return Error{
          ErrorCode::kUsage,
          Quoted(*options_.output) + " is a file, and several models are written to a folder", "",
          "name a folder with -o, or leave -o out to write beside each model"};
    }
    for (const fs::path& input : options_.inputs) {
      if (fs::is_directory(input, ignored)) {
        if (Status status = AddFolder(input); !status) return status;
      } else {
        Model model{input, std::nullopt, false};
        if (has_output()) model.output = *options_.output / input.filename();
        models_.push_back(std::move(model));
      }
    }
    return CheckNames();
  }

  Status AddFolder(const fs::path& folder) {
    if (Status status = CheckApart(folder); !status) return status;
    auto contents = ListFolder(folder, has_output());
    if (!contents) return std::move(contents).error();
    const size_t before = models_.size();
    for (const fs::path& file : contents->files) {
      const bool is_model = file.native().ends_with(kModelSuffix);
      if (is_model && !IsOwnOutput(folder / file)) {
        Model model{folder / file, std::nullopt, has_output()};
        if (has_output()) model.output = *options_.output / file;
        models_.push_back(std::move(model));
      } else if (has_output()) {
        others_.push_back({folder / file, *options_.output / file});
      }
    }
    if (models_.size() == before) {
      return Error{ErrorCode::kInvalidModel,
                   "the folder " + Quoted(folder) + " holds no .onnx file", "",
                   "name the folder of the exported models"};
    }
    if (!has_output()) return {};
    for (const fs::path& inner : contents->folders) folders_.push_back(*options_.output / inner);
    for (const std::string& what : contents->left_out) {
      warnings_.push_back(what + ", and was not carried over");
    }
    return {};
  }

  // What an earlier run has written beside its model is no model to patch.
  bool IsOwnOutput(const fs::path& file) const {
    const std::string& suffix = options_.own_suffix;
    std::string name = file.filename().string();
    if (has_output() || suffix.empty() || !name.ends_with(suffix)) return false;
    name.replace(name.size() - suffix.size(), suffix.size(), kModelSuffix);
    return Exists(file.parent_path() / name);
  }

  Status CheckApart(const fs::path& folder) const {
    if (!has_output()) return {};
    const fs::path inner = RealPath(*options_.output);
    const fs::path outer = RealPath(folder);
    if (!IsInside(inner, outer)) return {};
    return Error{ErrorCode::kUsage,
                 "the output folder " + Quoted(*options_.output) +
                     (inner == outer ? " is the input folder"
                                     : " lies in the input folder " + Quoted(folder)),
                 "",
                 "choose a folder outside of it with -o, or leave -o out to write beside each "
                 "model"};
  }

  // Every new file has a name of its own, and in an output folder none that is taken.
  Status CheckNames() const {
    if (!is_writer()) return {};
    std::map<fs::path, fs::path> sources;  // by real path of the target
    std::set<fs::path> inputs;
    for (const Model& model : models_) inputs.insert(RealPath(model.input));
    const auto add = [&](const fs::path& source, const fs::path& target) -> Status {
      const fs::path place = RealPath(target.parent_path()) / target.filename();
      const auto [found, is_new] = sources.emplace(place, source);
      if (!is_new) {
        return Error{ErrorCode::kUsage,
                     Quoted(found->second) + " and " + Quoted(source) + " would both become " +
                         Quoted(target),
                     "", "give each its own run with its own -o"};
      }
      return {};
    };
    std::vector<fs::path> taken;
    for (const Model& model : models_) {
      const fs::path target = model.output.value_or(DefaultOutput(model.input));
      if (Status status = add(model.input, target); !status) return status;
      if (model.output) {
        if (Exists(target)) taken.push_back(target);
      } else if (inputs.contains(RealPath(target))) {
        return Error{ErrorCode::kUsage,
                     "the output of " + Quoted(model.input) + " would replace " + Quoted(target) +
                         ", which is an input of this run",
                     "", "leave that one out"};
      }
    }
    for (const File& file : others_) {
      if (Status status = add(file.source, file.target); !status) return status;
      if (Exists(file.target)) taken.push_back(file.target);
    }
    std::error_code ignored;
    for (const fs::path& folder : folders_) {
      const auto file = sources.find(RealPath(folder));
      if (file != sources.end()) {
        return Error{ErrorCode::kUsage,
                     Quoted(folder) + " would be a folder and the file that " +
                         Quoted(file->second) + " becomes",
                     "", "give each input its own run with its own -o"};
      }
      if (Exists(folder) && !fs::is_directory(folder, ignored)) taken.push_back(folder);
    }
    if (taken.empty()) return {};
    const std::string more =
        taken.size() > 1 ? " and " + std::to_string(taken.size() - 1) + " more" : "";
    return Error{ErrorCode::kWrite,
                 Quoted(taken.front()) + more + (more.empty() ? " is" : " are") + " there already",
                 "",
                 "choose a new or empty folder with -o, or remove what is there: nothing in an "
                 "output folder is replaced"};
  }

  fs::path DefaultOutput(const fs::path& input) const {
    return input.parent_path() / (input.stem().string() + options_.own_suffix);
  }

  // --- The models -------------------------------------------------------------------------------

  PatchOptions OptionsOf(const Model& model) const {
    PatchOptions options = options_.patch;
    options.input = model.input;
    options.output = model.output;
    options.globs_must_match = false;
    std::error_code ignored;
    if (model.output && options.dry_run &&
        (model.of_folder || !fs::is_directory(*options_.output, ignored))) {
      options.check = true;  // the folder is not made, so what is in it cannot be looked at
    }
    if (model.of_folder) options.external_data = ExternalDataMode::kCarried;
    return options;
  }

  PatchOutcome RunOne(const PatchOptions& options) const {
    PatchOutcome outcome;
    try {
      outcome = job_(options);
    } catch (const std::exception& error) {
      outcome = Broken(options, error.what());
    } catch (...) {
      outcome = Broken(options, "an unknown exception");
    }
    Report& report = outcome.report;
    if (options.dry_run && report.status == "checked") {
      report.status = "dry_run";
      report.diagnostics.push_back(
          {Diagnostic::Severity::kNote,
           "dry run: '" + options.output.value_or("").string() + "' was not written"});
    }
    return outcome;
  }

  PatchOutcome Broken(const PatchOptions& options, const std::string& what) const {
    PatchOutcome outcome = Failed({ErrorCode::kInternal, "internal error: " + what, "",
                                   "please report this with the command and the model"});
    outcome.report.input.path = options.input.string();
    return outcome;
  }

  // --- Globs that match in no model -------------------------------------------------------------

  using Glob = std::pair<std::string, std::string>;  // option and glob

  // Looks at models until each glob has matched somewhere, before anything is written.
  Status FindUnmatchedGlobs() {
    const PatchOptions& patch = options_.patch;
    if (patch.scopes.empty() && patch.skips.empty()) return {};
    std::vector<PatchOutcome> looks(models_.size());
    std::vector<std::atomic<bool>> is_done(models_.size());
    const auto all_match = [&] {
      std::set<Glob> matched;
      for (size_t i = 0; i < models_.size(); ++i) {
        if (is_done[i]) AddMatched(looks[i].report, matched);
      }
      return matched.size() == Globs().size();
    };
    ForEach(
        models_.size(), options_.jobs,
        [&](size_t i) {
          PatchOptions options = OptionsOf(models_[i]);
          options.check = true;
          looks[i] = RunOne(options);
          is_done[i] = true;
        },
        all_match);
    return JudgeGlobs(looks);
  }

  std::set<Glob> Globs() const {
    std::set<Glob> globs;
    for (const std::string& glob : options_.patch.scopes) globs.emplace("--scope", glob);
    for (const std::string& glob : options_.patch.skips) globs.emplace("--skip", glob);
    return globs;
  }

  static void AddMatched(const Report& report, std::set<Glob>& matched) {
    for (const ScopeReport& scope : report.scopes) {
      if (scope.paths > 0) matched.emplace(scope.option, scope.glob);
    }
  }

  Status JudgeGlobs(const std::vector<PatchOutcome>& outcomes) const {
    std::set<Glob> matched;
    const Model* model = nullptr;  // one that got as far as to its module paths
    for (size_t i = 0; i < outcomes.size(); ++i) {
      const Report& report = outcomes[i].report;
      AddMatched(report, matched);
      if (!report.scopes.empty() && model == nullptr) model = &models_[i];
    }
    if (model == nullptr) return {};  // all failed before, each with its own error
    std::optional<Error> error;
    for (const Glob& glob : Globs()) {
      if (matched.contains(glob)) continue;
      Error unmatched{ErrorCode::kUsage,
                      glob.first + " '" + glob.second + "' takes in no module of any model", "",
                      HintFor(glob, *model)};
      if (!error) {
        error = std::move(unmatched);
      } else {
        error->others.push_back(std::move(unmatched));
      }
    }
    if (error) return *std::move(error);
    return {};
  }

  // What a run of one model has to say of the glob.
  std::string HintFor(const Glob& glob, const Model& model) const {
    PatchOptions options = OptionsOf(model);
    options.check = true;
    options.globs_must_match = true;
    options.scopes.clear();
    options.skips.clear();
    (glob.first == "--scope" ? options.scopes : options.skips).push_back(glob.second);
    const PatchOutcome outcome = RunOne(options);
    return outcome.error ? model.input.string() + ": " + outcome.error->hint : "";
  }

  // --- The output folder ------------------------------------------------------------------------

  Status MakeFolders() {
    if (!to_folder()) return {};
    for (const Model& model : models_) {
      if (Status status = MakeFolder(model.output->parent_path()); !status) return status;
    }
    return {};
  }

  // With all above it, and remembers what is new.
  Status MakeFolder(const fs::path& folder) {
    std::vector<fs::path> missing;
    std::error_code error;
    for (fs::path path = folder; !path.empty() && !fs::is_directory(path, error);
         path = path.parent_path()) {
      if (path.has_filename()) missing.push_back(path);
    }
    for (auto path = missing.rbegin(); path != missing.rend(); ++path) {
      error.clear();
      if (fs::create_directory(*path, error)) new_folders_.push_back(*path);
      if (error) {
        return Error{ErrorCode::kWrite,
                     "cannot make the folder " + Quoted(*path) + ": " + error.message(), "",
                     "choose another folder with -o"};
      }
    }
    return {};
  }

  // Everything else of the input folders, and the models of which nothing was written.
  Status CarryOver() {
    const bool all_failed =
        std::all_of(outcomes_.begin(), outcomes_.end(),
                    [](const PatchOutcome& outcome) { return outcome.report.exit_code != 0; });
    if (all_failed) {
      RemoveWritten();
      if (!others_.empty()) warnings_.push_back("nothing was carried over, since no model is done");
      return {};
    }
    std::vector<File> files = others_;
    for (size_t i = 0; i < models_.size(); ++i) {
      Report& report = outcomes_[i].report;
      if (!models_[i].of_folder || report.output) continue;
      files.push_back({models_[i].input, *models_[i].output});
      report.diagnostics.push_back(
          {Diagnostic::Severity::kNote,
           "carried over as it is: '" + models_[i].output->string() + "'"});
    }
    for (const fs::path& folder : folders_) {
      if (Status status = MakeFolder(folder); !status) return status;
    }
    const bool linked = options_.patch.external_data == ExternalDataMode::kHardlink;
    ExternalDataPlan plan;
    for (const File& file : files) {
      ExternalDataStep step;
      step.kind = linked ? ExternalDataStep::Kind::kHardlink : ExternalDataStep::Kind::kCopy;
      step.location = file.target.string();
      step.source = RealPath(file.source);
      step.target = file.target;
      plan.steps.push_back(std::move(step));
    }
    if (auto made = ApplyExternalData(plan); !made) return std::move(made).error();
    if (linked && !files.empty()) {
      warnings_.push_back(
          "files carried over are hard links: a change in one place shows in the other, and ONNX's "
          "own checker (not ONNX Runtime) refuses data files with more than one name");
    }
    if (!linked) KeepExecutables(files);
    return {};
  }

  // Scripts stay scripts.
  static void KeepExecutables(const std::vector<File>& files) {
    constexpr fs::perms kExecute =
        fs::perms::owner_exec | fs::perms::group_exec | fs::perms::others_exec;
    for (const File& file : files) {
      std::error_code ignored;
      const fs::perms execute = fs::status(file.source, ignored).permissions() & kExecute;
      if (execute != fs::perms::none) {
        fs::permissions(file.target, execute, fs::perm_options::add, ignored);
      }
    }
  }

  const ManyOptions& options_;
  const ModelJob& job_;
  std::vector<Model> models_;
  std::vector<File> others_;       // what is carried over from input folders
  std::vector<fs::path> folders_;  // below the output folder, also empty ones
  std::vector<std::string> warnings_;
  std::vector<fs::path> new_folders_;
  std::vector<PatchOutcome> outcomes_;
};

}  // namespace

std::vector<PatchOutcome> PatchMany(const ManyOptions& options, const ModelJob& job) {
  ManyRun run(options, job);
  try {
    return run.Execute();
  } catch (const std::exception& error) {
    run.RemoveWritten();
    return {run.Failed({ErrorCode::kInternal, std::string("internal error: ") + error.what(), "",
                        "please report this with the command"})};
  }
}

bool AreMany(std::span<const fs::path> inputs) {
  std::error_code ignored;
  return inputs.size() > 1 || std::any_of(inputs.begin(), inputs.end(), [&](const fs::path& input) {
           return fs::is_directory(input, ignored);
         });
}

std::vector<Report> ReportsOf(std::span<const PatchOutcome> outcomes) {
  std::vector<Report> reports;
  reports.reserve(outcomes.size());
  for (const PatchOutcome& outcome : outcomes) reports.push_back(outcome.report);
  return reports;
}

}  // namespace liger
