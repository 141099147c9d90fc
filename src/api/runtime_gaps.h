// What a patched model needs or lacks at run time, and the commands that prove it right.
//
//   const Installation installation = FindInstallation();
//   for (std::string& gap : RuntimeGaps(report, providers, installation.library)) ...
//   for (std::string& line : ValidationCommands(target, installation)) ...
//
// Only files are looked at: neither ONNX Runtime nor our library is loaded. Commands are lines for a
// POSIX shell in the current folder; every file they name was there when they were made.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ops/op_contract.h"
#include "report/report.h"

namespace liger {

// libliger_ort.so as a file.
struct RuntimeLibrary {
  std::filesystem::path path;   // where it is, or where it is expected
  bool by_environment = false;  // LIGER_ORT_LIBRARY names it
  std::string problem;          // why it cannot be used; empty if nothing speaks against it
  // The providers that it has kernels for; nothing if the file does not say.
  std::optional<std::vector<Provider>> providers;

  bool found() const { return problem.empty(); }
};

// What the file itself says. Its providers stand in an ELF note (kernels/ort/build_note.cc).
RuntimeLibrary InspectLibrary(const std::filesystem::path& path);

// This program's files, as a command in the current folder would name them.
struct Installation {
  std::string program = "liger-patch";
  std::string python = "python3";  // one with ONNX Runtime where the build made one
  std::string compare;             // compare.py; empty if it is not there
  RuntimeLibrary library;
};

// The library is LIGER_ORT_LIBRARY, else lib/libliger_ort.so beside the folder of the program;
// compare.py is that of the source tree, else the installed one.
Installation FindInstallation();

// Sentences about fused nodes without a library, a library without the kernels that a session would
// need, dtypes without kernels and ops that are the user's own. Reads `patched`, `already_fused`,
// `missed`, `degraded` and `near_misses` of the report.
std::vector<std::string> RuntimeGaps(const Report& report, std::span<const Provider> providers,
                                     const RuntimeLibrary& library);

struct ValidationTarget {
  std::filesystem::path original;
  std::filesystem::path patched;
  std::string choices{};  // options that decide what is fused, quoted: " --modules rope=off"
  bool replaced = false;  // the patched model stands in the place of the original
};

// A second run that finds nothing left to do, the comparison of both models, and a session with the
// library: as far as what they need is there.
std::vector<std::string> ValidationCommands(const ValidationTarget& target,
                                            const Installation& installation);

// `word` as a POSIX shell reads it as one word.
std::string ShellWord(const std::string& word);

}  // namespace liger
