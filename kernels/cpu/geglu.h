// GeGLU of one instruction set; the arguments have been checked. Shapes: liger/geglu.h.
#pragma once

#include "liger/geglu.h"

namespace liger::cpu::LIGER_ISA {

void GeGlu(const LigerGeGluArgs& args, int64_t begin, int64_t end);

}  // namespace liger::cpu::LIGER_ISA
