// Softmax of one instruction set; the arguments have been checked. Shapes: liger/softmax.h.
#pragma once

#include "liger/softmax.h"

namespace liger::cpu::LIGER_ISA {

void Softmax(const LigerSoftmaxArgs& args, int64_t begin, int64_t end);

}  // namespace liger::cpu::LIGER_ISA
