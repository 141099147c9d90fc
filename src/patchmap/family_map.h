// A family map: what is known of one model family, read from patches/families/<family>.yaml.
//
//   Result<FamilyMap> map = ParseFamilyMap("families/llama.yaml", text);
//   for (const ModuleMap& module : map->modules) ...
//
// The file (every key not marked optional is required; unknown and duplicate keys are errors with
// file:line:column; lists may be empty only where that is said):
//
//   schema_version: 1
//   family: qwen2                     # equals the file's name without .yaml
//   model_types: [qwen2]              # config.json model_type
//   aliases: [qwq, qwen2_5]           # optional: further names for --family and model_type
//   genai_types: [qwen2]              # optional: genai_config.json model.type; default: model_types
//   architectures: [Qwen2ForCausalLM] # config.json architectures, and the classes that decide the
//                                     #   family in node metadata, below `package`
//   package: transformers.models.qwen2.modeling_qwen2
//   layer_classes: [Qwen2DecoderLayer]  # optional: classes below `package` that decide it as well
//   adds: [relu_squared]              # optional: module names outside the vocabulary (modules.h)
//   parts:                            # optional: families whose models stand in this one as parts
//     families: [llama, qwen2]        #   their modules are accepted too (FamilyRegistry::LoadMap)
//     outside: [encoder]              #   optional: as `outside` below, for all their entries
//   defaults:                         # each module the family accepts: on or off
//     rms_norm: on
//   no_op:                            # optional: why Liger's helper takes a flag and does nothing;
//     rope: only halves are rotated   #   the module is off by default, and --modules may turn it on
//   refused:                          # optional: why turning a module on is an error; it is off
//     cross_entropy: logits are scaled
//   structure:                        # optional: parameter names that make the family a candidate
//                                     #   where nothing names it; they never decide
//     present: [layers.*.mlp.gate_proj.weight]
//     absent: [layers.*.self_attn.q_norm.weight] # optional, may be empty
//   modules:
//     rms_norm:                       # one of `defaults`
//       - class: transformers.models.qwen2.modeling_qwen2.Qwen2RMSNorm   # or function:
//         op: LigerRMSNorm
//         callers: [pkg.Attention]    # function only, optional: classes whose instances call it
//         per_instance: 2             # optional: fused applications per instance, default 1
//         scopes: [layers.*.input_layernorm, norm]          # optional: module paths
//         weights: [layers.*.input_layernorm.weight]        # optional: parameter names
//         child: gate_proj            # optional: scopes count only with a module of this name inside,
//                                     #   once for each call of it
//         outside: [encoder]          # optional: words; paths and names with one do not count
//         count: {per_layer: 2, fixed: 1}  # optional: per_layer * num_hidden_layers + fixed
//         layer_flags: no_rope_layers      # optional: list in config.json, one number a layer;
//                                          #   0: no instance
//         layer_interval: no_rope_layer_interval  # optional, with layer_flags: number in
//                                          #   config.json; where the list is absent or empty each
//                                          #   n-th layer has no instance
//         layer_types: [sliding_attention] # optional: what config.json's layer_types says of
//                                          #   layers with an instance
//         layer_types_if: sliding_window   # optional, with layer_types: number in config.json;
//                                          #   where it is absent or null every layer has one
//
// Paths and parameter names are patterns relative to the base model: `*` stands for one number, any
// prefix (`model.`, `model.language_model.`) may precede (family/instance_pattern.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace liger {

// Where something stands in a YAML file; both numbers count from 1.
struct YamlPosition {
  int line = 0;
  int column = 0;
};

// How many instances a model with `num_hidden_layers` layers has: per_layer * layers + fixed.
struct CountRule {
  int64_t per_layer = 0;
  int64_t fixed = 0;
};

// One class or function whose instances are replaced by an op.
struct ModuleEntry {
  enum class Kind { kClass, kFunction };
  Kind kind = Kind::kClass;
  std::string symbol;                // dotted name in the exporter's metadata
  std::string op;                    // "LigerRMSNorm"
  std::vector<std::string> callers;  // of a function: classes whose instances call it
  int64_t per_instance = 1;          // fused applications per instance
  std::vector<std::string> scopes;
  std::vector<std::string> weights;
  std::string child;                 // a module inside each of `scopes`; empty if none is asked for
  std::vector<std::string> outside;  // segments of paths and names that do not count
  std::optional<CountRule> count;
  // Keys of config.json, and values of its layer_types; all empty if every layer is alike.
  std::string layer_flags;
  std::string layer_interval;
  std::vector<std::string> layer_types;
  std::string layer_types_if;
  YamlPosition position;

  bool LayersDiffer() const { return !layer_flags.empty() || !layer_types.empty(); }
};

struct ModuleMap {
  std::string name;
  std::vector<ModuleEntry> entries;
  YamlPosition position;
};

struct ModuleDefault {
  std::string name;
  bool on = false;
  YamlPosition position;
  std::string no_op{};    // why Liger's helper leaves the module alone; empty if it does not
  std::string refused{};  // why turning it on is an error; empty if it is none
  std::string part{};     // the part's family that accepts it; empty if the family itself does
};

// What identification needs of a family: the top of its file, before `modules:`.
struct FamilyHead {
  std::string file;  // as it appears in messages
  std::string family;
  std::vector<std::string> model_types;
  std::vector<std::string> aliases;
  std::vector<std::string> genai_types;
  std::vector<std::string> architectures;
  std::string package;
  std::vector<std::string> layer_classes;
  std::vector<std::string> structure_present;
  std::vector<std::string> structure_absent;
  std::vector<std::string> parts;          // families
  std::vector<std::string> parts_outside;  // as ModuleEntry::outside

  bool operator==(const FamilyHead&) const = default;
};

struct FamilyMap {
  FamilyHead head;
  std::vector<std::string> adds;
  std::vector<ModuleDefault> defaults;  // in the file's order
  std::vector<ModuleMap> modules;       // in the file's order

  // True for the map of --family any: no names, no expectations.
  bool structural = false;

  const std::string& name() const { return head.family; }
  const ModuleDefault* FindDefault(std::string_view module) const;
  const ModuleMap* FindModuleMap(std::string_view module) const;
  bool Accepts(std::string_view module) const { return FindDefault(module) != nullptr; }
};

// Reads and validates one file. Errors are kUsage with file:line:column.
Result<FamilyMap> ParseFamilyMap(std::string_view file, std::string_view text);

// The head of one file. Reads only the lines before `modules:` as long as they are written plainly
// (`key: word`, `key: [word, word]`), else the whole file. Does not validate the rest.
Result<FamilyHead> ReadFamilyHead(std::string_view file, std::string_view text);

// The map of --family any: accepts every module of the vocabulary, all on but the losses. Modules
// that run on request only (ModuleKind::on_request) are no part of any map.
FamilyMap StructuralMap();

}  // namespace liger
