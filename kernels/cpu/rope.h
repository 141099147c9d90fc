// Rope of one instruction set; the arguments have been checked. Shapes: liger/rope.h.
#pragma once

#include "liger/rope.h"

namespace liger::cpu::LIGER_ISA {

void Rope(const LigerRopeArgs& args, int64_t begin, int64_t end);

}  // namespace liger::cpu::LIGER_ISA
