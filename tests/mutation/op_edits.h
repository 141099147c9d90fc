// Further kinds of edits: those that aim at the parts of rotations, norms, gated products and softmax.
//
//   for (const auto& [name, make] : OpEditKinds()) made += make(context);
//
// Each finds its place by operators alone, so that it also falls on what only resembles an op.
#pragma once

#include <vector>

#include "edit_base.h"

namespace liger::test {

const std::vector<EditKind>& OpEditKinds();

}  // namespace liger::test
