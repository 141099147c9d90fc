// GroupNorm of one instruction set; the arguments have been checked. Shapes: liger/group_norm.h.
#pragma once

#include "liger/group_norm.h"

namespace liger::cpu::LIGER_ISA {

void GroupNorm(const LigerGroupNormArgs& args, int64_t begin, int64_t end);

}  // namespace liger::cpu::LIGER_ISA
