// What a fused node inherits from the nodes it replaces.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/graph.h"

namespace liger {

// ONNX Runtime places nodes by this annotation (session.layer_assignment_settings).
inline constexpr std::string_view kPlacementKey = "layer_ann";

// The entries on which all nodes that have them agree. Of the exporters' scope entries, which end
// in the single operator, the common beginning is kept: the module that the fused node stands for.
std::vector<std::pair<std::string, std::string>> CommonMetadata(
    const std::vector<const Node*>& nodes);

}  // namespace liger
