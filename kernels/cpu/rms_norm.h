// RMSNorm of one instruction set; the arguments have been checked. Shapes: liger/rms_norm.h.
#pragma once

#include "liger/rms_norm.h"

namespace liger::cpu::LIGER_ISA {

void RmsNorm(const LigerRmsNormArgs& args, int64_t begin, int64_t end);

}  // namespace liger::cpu::LIGER_ISA
