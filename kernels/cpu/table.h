// The kernel table of the instruction set LIGER_ISA.
#pragma once

#include "kernel_table.h"

namespace liger::cpu::LIGER_ISA {

extern const KernelTable kTable;

}  // namespace liger::cpu::LIGER_ISA
