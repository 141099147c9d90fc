// From a fused op's function text to the FunctionProto that a model carries: attribute values put
// in place, Casts between equal dtypes and operations with neutral constants left out, at the
// model's opset.
//
// Specialised bodies matter: ONNX Runtime fuses the plain spelling by itself, and fails to load
// some half-precision graphs that hold Casts to the dtype a value already has.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "model/graph.h"

namespace onnx {
class FunctionProto;
}

namespace liger {

// A second application in the same node: the text stands twice, on other names.
struct SecondApplication {
  std::string input, second_input, output, second_output;
};

struct FunctionSpec {
  std::string domain = "liger";
  std::string op_type;
  // The text is the body as it stands, whatever the dtypes: that of an op from a user's patch map.
  bool as_written = false;
  std::string tag;                  // overload of a further variant, e.g. "f16_gemma"
  std::string text;                 // in ONNX function syntax
  std::vector<std::string> inputs;  // formal inputs, in order
  std::vector<std::string> outputs;
  std::vector<std::string> attributes;            // all attributes of the op
  std::map<std::string, Attribute::Value> fixed;  // put in place of references
  std::map<std::string, DType> types;             // of the inputs
  std::map<std::string, double> absent;           // inputs of the text that are constants here
  std::map<std::string, int64_t> opsets;          // of the model, domain to version
  std::optional<SecondApplication> second;
  // Put behind the names of inner values. ONNX Runtime names inlined values after them, and a model
  // that it saved so may be patched again.
  std::string value_suffix;
  std::map<std::string, std::string>
      callees;  // op type of a fused op that the text calls to its text
};

// Fused ops that the text calls are put in place: ONNX Runtime does not find the overload of a
// function that another function calls.
Result<onnx::FunctionProto> MakeFunction(const FunctionSpec& spec);

}  // namespace liger
