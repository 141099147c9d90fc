// What is wrong with a model file, also where the model still runs: faults that tools leave behind
// which fuse, convert, rename or move models.
//
//   for (const LintFinding& finding : Lint(file.proto, {file.folder, file.path})) ...
//
// error    a runtime, or ONNX's checker, refuses the model, or what runs is not what is written
// warning  only some runtimes accept it, or it rests on something that is not there
// note     a loose end: harmless by itself
//
// Findings come in the order of severity, then as rules and places stand in the model; of many of a
// kind the first are named and the others counted. No payload is read; of data files only names and
// sizes are looked at. The rules are listed in docs/lint.md.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "model/external_data.h"

namespace onnx {
class ModelProto;
}

namespace liger {

struct LintFinding {
  enum class Severity { kNote, kWarning, kError };
  std::string rule;  // "missing_opset_import"
  Severity severity = Severity::kNote;
  std::string place;    // "MatMul node 'n' in function f", "initializer 'w'"; empty for the file
  std::string message;  // one sentence
  std::string hint;     // what to do about it
};

struct LintContext {
  ModelFolder folder;
  std::filesystem::path file;  // the model's own; empty for a model from memory
};

std::vector<LintFinding> Lint(const onnx::ModelProto& model, const LintContext& context);

// The names of all rules, sorted.
std::vector<std::string_view> LintRules();

}  // namespace liger
