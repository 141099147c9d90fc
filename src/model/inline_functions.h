// Puts the bodies of a model's own local functions in place of their calls, so that what they
// compute can be matched: one function per module, function libraries of exporters.
//
//   const InlinedFunctions inlined = InlineFunctions(file.proto);
//   if (inlined.calls > 0) ...
//
// Functions of our fused ops stay calls: they are what patching makes. A function whose nodes mean
// something else at the model's operator set versions stays too, and what it calls. Inlined nodes
// carry the metadata of the call where they have none of that kind, and its name in front of their
// own, since the call is what knows the module path. A model without other functions is not changed
// by a single byte.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace onnx {
class ModelProto;
}

namespace liger {

// A call that is gone, and what stands in its place.
struct InlinedCall {
  std::string function;              // "domain::name"
  std::string node;                  // name of the call
  std::vector<std::string> outputs;  // values that the call gave
  std::vector<std::string> values;   // all values that its body computes, nested calls included
};

struct InlinedFunctions {
  int64_t functions = 0;           // that were called and are gone
  int64_t calls = 0;               // that were replaced, nested ones included
  std::vector<std::string> notes;  // what was left, and why
  std::vector<InlinedCall> places;
};

InlinedFunctions InlineFunctions(onnx::ModelProto& model);

}  // namespace liger
