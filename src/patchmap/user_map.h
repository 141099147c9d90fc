// A patch map that a user writes (--patches FILE): which classes, functions and scopes of the model
// become which fused op, and patterns of their own.
//
//   Result<UserMap> map = ParseUserMap("mine.yaml", text);
//
// The file (docs/patch-maps.md is the guide, docs/patch-map.schema.json the schema for editors):
//
//   schema_version: 1
//   family: mymodel            # label for the report: lower-case letters, digits, underscores
//   extends: qwen3             # optional: start from a built-in family
//   modules:
//     rms_norm:                # any name: letters, digits, _, - and .
//       - class: my_pkg.modeling.MyRMSNorm   # in the exporter's metadata, with its module or
//                                            #   without; or
//         function: my_domain::MyRMSNorm     # local function, glob; or
//         scope: "model.layers.*.norm"       # module paths, glob (family/module_glob.h)
//         op: LigerRMSNorm                   # an op of this program or an alias (op_names.h)
//         expect: 65                         # optional: number of instances, or ">=65"
//         optional: true                     # optional: absence and instances without a form are
//                                            #   no errors
//     soft_cap:
//       - match: |             # own pattern, an ONNX function text; <cap> are captured attributes
//           SoftCap <cap> (x) => (y) { ... }
//         opset: 13-           # optional: range of the default domain's opset; default: every one
//         op: my.domain.SoftCap     # domain and name of the own op; the text becomes its body
//         types: {mask: bool}  # optional: dtypes of inputs; the others share one float type
//
// An Error holds all faults of the file, in its order, each with file:line:column, those inside of
// a text as well: unknown, duplicate and lacking keys, wrong types, names of ops that are unknown
// or cannot be used, texts that do not define their op (model/text_check.h). Several `match`
// entries of one op are texts for one pattern: their signatures are equal, they stand in one
// module, and the same text stands twice for different opsets only. What depends on the model (the
// family of `extends`, symbols, opsets without a text) is not looked at.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/error.h"
#include "patchmap/family_map.h"
#include "patchmap/op_names.h"

namespace liger {

// A number of instances that has to be there: exactly, or at least.
struct CountWish {
  int64_t count = 0;
  bool at_least = false;

  bool Met(int64_t found) const { return at_least ? found >= count : found == count; }
  std::string ToText() const;  // "65", ">=65"
};

// "65", "=65", ">=65".
std::optional<CountWish> ParseCountWish(std::string_view text);

struct UserEntry {
  enum class Kind { kClass, kFunction, kScope, kMatch };
  Kind kind = Kind::kClass;
  std::string symbol;  // class name, function glob, path glob; the text's name for kMatch
  std::string domain;  // of the op
  std::string op;      // op type; an alias stands as what it means
  std::string alias;   // the name as written, if it is an alias; else empty
  std::string text;    // kMatch: the ONNX function text
  int64_t min_opset = 1;
  int64_t max_opset = std::numeric_limits<int64_t>::max();
  std::map<std::string, DType> types;  // kMatch: of inputs
  std::optional<CountWish> expect;
  bool optional = false;
  std::string place;  // "mine.yaml:7:9", of the entry
};

std::string_view UserEntryKindName(UserEntry::Kind kind);

struct UserModule {
  std::string name;
  std::vector<UserEntry> entries;
};

struct UserMap {
  std::string file;
  std::string family;
  std::string extends;        // empty: nothing
  std::string extends_place;  // "mine.yaml:3:10"
  std::vector<UserModule> modules;
};

// Errors are kUsage.
Result<UserMap> ParseUserMap(std::string_view file, std::string_view text);

}  // namespace liger
