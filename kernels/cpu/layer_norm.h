// LayerNorm of one instruction set; the arguments have been checked. Shapes: liger/layer_norm.h.
#pragma once

#include "liger/layer_norm.h"

namespace liger::cpu::LIGER_ISA {

void LayerNorm(const LigerLayerNormArgs& args, int64_t begin, int64_t end);

}  // namespace liger::cpu::LIGER_ISA
