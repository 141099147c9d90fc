#include "kernel_test.h"

namespace liger::test {

std::vector<const cpu::KernelTable*> TablesUnderTest() {
  const cpu::KernelTables& available = cpu::AvailableKernels();
  return {available.tables, available.tables + available.count};
}

}  // namespace liger::test
