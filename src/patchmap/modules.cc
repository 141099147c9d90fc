#include "patchmap/modules.h"

#include <algorithm>

namespace liger {
namespace {

constexpr ModuleKind kVocabulary[] = {
    {"rope", false, "rotary position embedding of queries and keys"},
    {"rms_norm", false, "root-mean-square normalisation, with or without a residual sum"},
    {"layer_norm", false, "layer normalisation, with or without a residual sum"},
    {"swiglu", false, "gated MLP with SiLU: silu(gate) * up"},
    {"geglu", false, "gated MLP with GELU: gelu(gate) * up"},
    {"softmax", false, "softmax over the last axis; on request only", true},
    {"group_norm", false, "group normalisation; on request only", true},
    {"cross_entropy", true, "cross-entropy loss on logits"},
    {"fused_linear_cross_entropy", true, "language-model head and cross-entropy loss in one"},
};

}  // namespace

std::span<const ModuleKind> ModuleVocabulary() { return kVocabulary; }

const ModuleKind* FindModule(std::string_view name) {
  const auto* it = std::find_if(std::begin(kVocabulary), std::end(kVocabulary),
                                [&](const ModuleKind& m) { return m.name == name; });
  return it == std::end(kVocabulary) ? nullptr : it;
}

}  // namespace liger
