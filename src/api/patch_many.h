// Several models in one run: files and whole folders, in parallel.
//
//   ManyOptions many;
//   many.patch = options;                       // input and output of it are not looked at
//   many.inputs = {"export"};                   // a folder with model.onnx, config.json, ...
//   many.output = "patched";
//   many.jobs = 4;
//   const std::vector<PatchOutcome> outcomes = PatchMany(many);
//   const std::vector<Report> reports = ReportsOf(outcomes);
//   std::cout << Render(ReportFormat::kText, reports, {.many = true});
//   return WorstExitCode(reports);
//
// Without `output` each model goes to <stem>.liger.onnx beside it. With it, a folder, files go into it
// under their names and the models of a folder under their paths in that folder; whatever else is in
// the folder (tokenizer, configuration, data files, what links lead to) is carried over, copied or
// hard-linked, and so is each model that had nothing to patch or failed.
//
// Nothing that exists in the output folder is replaced, and nothing is written where two things
// would get one name. If every model of the run fails, or the disk is full, no new file is left there.
// Outcomes are in the order of the inputs, those of a folder by path, whatever `jobs` is. One model's
// failure, exceptions included, does not end the others.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "api/patch_model.h"

namespace liger {

struct ManyOptions {
  PatchOptions patch;
  std::vector<std::filesystem::path> inputs;    // models, and folders that hold models
  std::optional<std::filesystem::path> output;  // a folder; made if it is not there
  int jobs = 1;                                 // models at a time; 0: one per core
  // What the job ends its files' names with beside the models; files of a folder that end so are its
  // own. Empty for a job that writes nothing.
  std::string own_suffix = ".liger.onnx";
};

// What is done with a model: PatchModel, or another job with the same way of input and output.
using ModelJob = std::function<PatchOutcome(const PatchOptions&)>;

// One outcome per model. An error of the run as a whole is the only outcome: its report names the
// first input. A --scope or --skip that takes in no module path of any model is such an error; it is
// found out before anything is written.
std::vector<PatchOutcome> PatchMany(const ManyOptions& options, const ModelJob& job = PatchModel);

// Whether these inputs are a run of several models: more than one, or a folder.
bool AreMany(std::span<const std::filesystem::path> inputs);

std::vector<Report> ReportsOf(std::span<const PatchOutcome> outcomes);

}  // namespace liger
