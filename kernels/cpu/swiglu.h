// SwiGLU of one instruction set; the arguments have been checked. Shapes: liger/swiglu.h.
#pragma once

#include "liger/swiglu.h"

namespace liger::cpu::LIGER_ISA {

void SwiGlu(const LigerSwiGluArgs& args, int64_t begin, int64_t end);

}  // namespace liger::cpu::LIGER_ISA
