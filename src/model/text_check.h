// Everything that is wrong with a function text that an author wrote, each fault with its place in
// the text.
//
//   CheckedText checked = CheckFunctionText(source, OpsetRange{13, 17});
//   for (const TextFault& fault : checked.faults) ... LineOf(source, fault.offset) ...
//
// Beyond the syntax (onnx::OnnxParser) it holds the text against what a pattern needs: values are
// computed once and before they are used, every input, capture and value is used, captures stand
// where a graph has a scalar, and each operator is one of ONNX's default domain and exists, with
// these inputs and attributes, at every opset of the range.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace liger {

// Versions of the default domain, both included.
struct OpsetRange {
  int64_t min = 1;
  int64_t max = 1;
};

// The newest version of the default domain that this program knows.
int64_t NewestOpset();

struct TextFault {
  size_t offset = 0;  // byte of the text
  std::string message;
  std::string hint{};
  // A name that may be mistyped, and the names that it may stand for.
  std::string name{};
  std::vector<std::string> known{};
};

struct TextName {
  std::string name;
  size_t offset = 0;
};

struct CheckedText {
  bool is_parsed = false;  // else `faults` has what the parser says, and all below is empty
  TextName function;
  std::string domain;  // of the header; empty if it names none
  std::vector<TextName> inputs;
  std::vector<TextName> outputs;
  std::vector<TextName> attributes;  // captures
  std::vector<TextFault> faults;     // by offset
};

// `range` is that for which the text is meant. Without one the version that the text imports counts,
// and if it imports none the operators have to fit together at one version at least.
CheckedText CheckFunctionText(const std::string& text, const std::optional<OpsetRange>& range);

}  // namespace liger
