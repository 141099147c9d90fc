// Puts the bodies of a model's own local functions in place of their calls, so that what they
// compute can be matched: one function per module, function libraries of exporters.
//
//   const InlinedFunctions inlined = InlineFunctions(file.proto);
//   if (inlined.calls > 0) ...
//
// Functions of our fused ops stay calls: they are what patching makes. So do those of `kept`, own
// ops of users' patch maps. A function whose nodes mean something else at the model's operator set
// versions stays too, and what it calls. Inlined nodes carry the metadata of the call where they
// have none of that kind, and its name in front of their own, since the call is what knows the
// module path. A model without other functions is not changed by a single byte.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/own_ops.h"

namespace onnx {
class ModelProto;
}

namespace liger {

// A call that is gone, and what stands in its place.
struct InlinedCall {
  std::string function;             // "domain::name"
  std::string node;                 // name of the call; may be empty
  std::vector<std::string> values;  // that its body computes, those of nested calls included
};

struct InlinedFunctions {
  int64_t functions = 0;            // that were called and are gone
  int64_t calls = 0;                // that were replaced, nested ones included
  std::vector<std::string> notes;   // what was left, and why
  std::vector<InlinedCall> places;  // one for each of `calls`
};

InlinedFunctions InlineFunctions(onnx::ModelProto& model, const OwnOpNames& kept = {});

// The other way round: fused ops and `own` ops of users' patch maps become nodes again, wherever
// they are called, and all other functions stay. Inlined nodes are named CALL_NODE, so that their
// module path is that of the call. Functions and imports that nothing uses any more go; a call
// whose function is missing, or means something else at the model's versions, stays.
InlinedFunctions InlineFusedOps(onnx::ModelProto& model, const OwnOpNames& own = {});

}  // namespace liger
