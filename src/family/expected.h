// How many instances of each module a model should have, found without matching anything.
//
//   ExpectedCounts expected = ComputeExpected(model, map, info.config);
//   expected.Find("rms_norm")->count        // 9
//   expected.Find("rms_norm")->source       // "class_metadata"
//   expected.Find("rms_norm")->instances    // {"model.layers.0.input_layernorm", ...}
//
// Sources; the first that knows anything wins, unless a later one knows the same instances and more
// (nodes that a rewrite made may have lost their metadata):
//   class_metadata  distinct paths of the family's classes in node metadata
//   node_names      distinct scopes in node names
//   weight_names    distinct names of parameters in use
//   config          layers in config.json; a guess about this file, never a reason to fail
// config.json is no source where metadata shows the modules of this very file. A path that several
// entries of a module know is one instance, of the first of them. A body of If or Loop that repeats
// a module counts it again; a body inside a module does not.
// Rotations have neither class nor weight: `per_instance` (two: q and k) per path that calls them,
// less the layers that config.json marks without rope; where a family marks layers and config.json
// does not say which, nothing is expected. Modules with losses and those of the structural map have
// no count.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "family/model_config.h"
#include "model/graph.h"
#include "patchmap/family_map.h"

namespace liger {

struct ExpectedModule {
  std::string module;
  std::optional<int64_t> count;  // absent if it cannot be known
  std::string
      source;  // "class_metadata", "node_names", "weight_names", "config"; empty without a count
  // Module paths, where the source knows them, sorted by graph and first appearance. A path stands
  // here once for each fused application: twice for a rotation of q and k, and again per body that
  // repeats it.
  std::vector<std::string> instances;
  // Where other sources say another number: "weight names say 7".
  std::vector<std::string> disagreements;
};

struct ExpectedCounts {
  std::vector<ExpectedModule>
      modules;  // one for each module that the family accepts, in the map's order

  const ExpectedModule* Find(std::string_view module) const;
};

// `config` may be empty (ModelConfig{}).
ExpectedCounts ComputeExpected(const GraphModel& model, const FamilyMap& family,
                               const ModelConfig& config);

}  // namespace liger
