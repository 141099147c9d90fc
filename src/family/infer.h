// The family of a model, with the evidence.
//
//   FamilyInfo info = InferFamily(model, "llama/model.onnx", registry);
//   if (!info.known()) return UndecidedFamilyError(info, registry);
//
// Evidence is looked for in this order, and the first piece that names a family decides, also if
// that family is not one of ours (a gemma3 config beside Llama-shaped weights is not llama):
//   1. `liger.family` in the model's metadata, written by an earlier run
//   2. genai_config.json beside the model
//   3. config.json beside the model, else in the parent folder
//   4. `model_type` or `architectures` in the model's metadata
//   5. class names in node metadata: the outermost class of a model package decides, and only a
//      whole model or a decoder layer, since norms and MLPs of one family are used by others
//   6. parameter names: several families share them, so they only make candidates
// All six are always looked at; what disagrees with the decision is reported.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "family/model_config.h"
#include "model/graph.h"
#include "patchmap/family_registry.h"

namespace liger {

struct Evidence {
  std::string
      source;  // "metadata", "genai_config.json", "config.json", "class names", "parameter names"
  std::string place;     // file, or node name; may be empty
  std::string key;       // "model_type", "pkg.torch.onnx.class_hierarchy", ...
  std::string value;     // as found; empty if nothing was found
  std::string family;    // what it speaks for, aliases resolved; empty if for none
  bool known = false;    // `family` is one of the registry's
  bool decided = false;  // this piece decided
  std::string note;      // why it speaks for nothing, what could not be read, ...
};

// "config.json model_type = qwen3 (models/config.json)".
std::string ToString(const Evidence& evidence);

struct FamilyInfo {
  std::string family;  // empty if unknown
  std::string
      decided_by;  // source of the deciding piece, "--family" if named; empty if nothing names one
  std::string
      named;  // the name that the deciding piece gives, also if nobody knows it: "gemma3_text"
  std::vector<Evidence> evidence;  // everything looked at, in order
  std::vector<std::string> disagreements;
  std::vector<std::string> candidates;  // families that could be meant, best first
  // Families whose models stand in this one, as config.json's text_config and vision_config or the
  // classes in node metadata say; for FamilyRegistry::LoadMap.
  std::vector<std::string> parts;
  ModelConfig config;  // numbers for expected counts

  bool known() const { return !family.empty(); }
};

// `model_path` may be empty for a model in memory; then no file is looked for.
FamilyInfo InferFamily(const GraphModel& model, const std::filesystem::path& model_path,
                       const FamilyRegistry& registry);

// `inferred` with the family that the user named; "any" is allowed. Evidence for another family
// becomes a disagreement. kFamily if nobody knows the name.
Result<FamilyInfo> ChooseFamily(std::string_view name, FamilyInfo inferred,
                                const FamilyRegistry& registry);

// kFamily: what was looked at, the nearest families, how to go on.
Error UndecidedFamilyError(const FamilyInfo& info, const FamilyRegistry& registry);

}  // namespace liger
