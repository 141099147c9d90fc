// The command line of liger-patch as a value.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "api/patch_model.h"
#include "base/error.h"
#include "report/formats.h"

namespace liger {

enum class Job { kPatch, kLint, kRevert, kRefresh, kList };

struct CommandLine {
  Job job = Job::kPatch;
  std::vector<std::string> inputs;   // models and folders; "-" is standard input
  std::string output;                // "-" is standard output; empty: the default
  std::vector<std::string> reports;  // files; "-" is standard output
  std::string list;                  // families, modules or ops
  std::string format;                // of standard output; empty: text
  int jobs = 1;
  PatchOptions patch;  // without input and output

  bool ReportsToStdout() const;
  bool NamesStdout() const;    // as where the model goes
  bool ModelToStdout() const;  // and a model is written
};

struct ParsedCommandLine {
  CommandLine line;
  std::optional<Error> error;         // kUsage; `line` holds what was read by then
  std::optional<std::string> answer;  // of --help and --version: nothing else is to be done
};

ParsedCommandLine ParseCommandLine(int argc, char** argv);

}  // namespace liger
