#include "base/error.h"

#include <cstdio>
#include <cstdlib>

namespace liger {

void Fatal(const char* file, int line, std::string_view what) {
  std::fprintf(stderr, "liger-patch: internal error at %s:%d: %.*s\n", file, line,
               static_cast<int>(what.size()), what.data());
  std::abort();
}

}  // namespace liger
