// The rules by which one node of the standard operators becomes terms: spellings that mean the same
// give the same term. Shapes of the canonicalizer are used where they are known, and added for
// terms that no value of the graph stands for.
#pragma once

#include <vector>

#include "pattern/canonical.h"

namespace liger {

// The term of each output; kNone where the operator is opaque.
std::vector<TermId> ApplyNodeRules(Canonicalizer& canonicalizer, const NodeContext& context);

}  // namespace liger
