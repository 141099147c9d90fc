// The whole way of a model as one call: load, identify, resolve, plan, rewrite, check, save,
// report.
//
// The routes: official (the family's map), structural (`family` is "any"), custom (the user's
// `patches` alone), composite (`patches` that extend a family, or beside a `family`).
//
//   PatchOptions options;
//   options.input = "model.onnx";
//   PatchOutcome outcome = PatchModel(options);
//   if (outcome.error) std::cerr << outcome.error->message;
//   std::cout << ToText(outcome.report, {});
//
// The report exists whatever happens. The input is never overwritten unless it is named as the
// output; no half-written file is left behind.
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "model/external_data.h"
#include "ops/op_contract.h"
#include "patchmap/resolve.h"
#include "report/report.h"

namespace liger {

struct PatchOptions {
  std::filesystem::path input;
  // The model itself, instead of the file at `input`, which then only says where external data and
  // config.json are.
  std::optional<std::span<const std::byte>> bytes;
  std::optional<std::filesystem::path> output;  // default: <stem>.liger.onnx beside the input
  // An open file that takes the model instead, such as standard output. External data stays where
  // it is.
  std::optional<int> output_fd;
  std::string family;  // empty: inferred; "any": the structural route
  std::string modules = "auto";
  std::string exclude{kDefaultExclude};
  std::string stage;                           // pt, sft, rm, ppo, dpo, kto, inference; empty: none
  std::vector<std::filesystem::path> patches;  // the user's patch maps
  std::vector<std::string> scopes;             // globs over module paths: patch nothing else
  std::vector<std::string> skips;              // leave these alone
  // A glob of `scopes` or `skips` that takes in no module path is an error. In a run of several
  // models that is for the whole run to judge (Report::scopes).
  bool globs_must_match = true;
  std::vector<Provider> providers = {Provider::kCpu, Provider::kCuda};
  std::optional<std::filesystem::path> patches_dir;
  ExternalDataMode external_data = ExternalDataMode::kAuto;
  bool exact = false;
  bool strict = false;              // every expected instance has to be fused
  std::vector<std::string> expect;  // "rms_norm=65", "rope>=64"
  bool dry_run = false;             // everything but writing
  bool check = false;               // the same, wherever the output would go
  int64_t only_first = -1;          // replace only so many matches; for bisecting
  // Fills chain, closest text and values of the misses at these module paths, nodes or modules;
  // empty: of all.
  std::optional<std::string> explain;
};

struct PatchOutcome {
  Report report;
  std::optional<Error> error;
};

PatchOutcome PatchModel(const PatchOptions& options);

// Version of the tool, "0.1.0".
std::string_view ToolVersion();

// Modules for which this version has ops, in the order of the vocabulary.
std::vector<std::string> AvailableModules();

}  // namespace liger
