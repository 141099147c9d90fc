#include "base/error.h"

#include <cstdio>
#include <cstdlib>
#include <iterator>

namespace liger {

void Fatal(const char* file, int line, std::string_view what) {
  std::fprintf(stderr, "liger-patch: internal error at %s:%d: %.*s\n", file, line,
               static_cast<int>(what.size()), what.data());
  std::abort();
}

void ErrorList::Add(Error error) {
  std::vector<Error> others = std::move(error.others);
  error.others.clear();
  errors_.push_back(std::move(error));
  for (Error& other : others) Add(std::move(other));
}

Status ErrorList::Take() {
  if (errors_.empty()) return {};
  Error first = std::move(errors_.front());
  first.others.assign(std::make_move_iterator(errors_.begin() + 1),
                      std::make_move_iterator(errors_.end()));
  errors_.clear();
  return first;
}

}  // namespace liger
