// From ONNX protobufs to the format-neutral graph, and from ONNX function text to the same.
//
//   Result<GraphModel> graph = BuildGraphModel(file.proto, file.folder);
//
// Types and shapes come from ONNX shape inference on a copy without weights. The GraphModel refers
// to the ModelProto for its constants: the proto must outlive it and must not change meanwhile.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "model/external_data.h"
#include "model/graph.h"

namespace onnx {
class FunctionProto;
class ModelProto;
}  // namespace onnx

namespace liger {

// External data is read from `folder`, and only when a constant is asked for.
Result<GraphModel> BuildGraphModel(const onnx::ModelProto& model, const ModelFolder& folder);

// A function text (`<opset_import: ...> name <attributes> (inputs) => (outputs) { nodes }`),
// parsed.
struct FunctionText {
  std::string domain;
  std::string name;
  Graph graph;                          // is_function is set; values have no types
  std::vector<std::string> attributes;  // required ones, in the order of the text
  std::vector<Attribute> defaults;      // attributes with a default value
  std::map<std::string, int64_t> opsets;
};

// The body of a function as a graph without types.
Result<Graph> GraphOfFunction(const onnx::FunctionProto& function);

// Gives the values of the text the types that follow from those of its inputs, by name, at the
// operator set versions of `opsets`; `attributes` take the place of references to them, as far as
// they are there. What does not follow stays unknown. An error (kUsage) if the text's operators do
// not take such inputs. `source` is what `text` was parsed from.
Status InferTextTypes(const std::string& source, const std::map<std::string, ValueType>& inputs,
                      const std::map<std::string, Attribute::Value>& attributes,
                      const std::map<std::string, int64_t>& opsets, FunctionText& text);

// Parses the text; an error carries the parser's own message with its line.
Result<FunctionText> ParseFunctionText(std::string_view text);

}  // namespace liger
