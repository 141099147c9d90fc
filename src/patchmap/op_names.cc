#include "patchmap/op_names.h"

#include <algorithm>

namespace liger {

const OpName* FindOpName(std::string_view name) {
  const std::span<const OpName> names = OpNames();
  const auto found =
      std::lower_bound(names.begin(), names.end(), name,
                       [](const OpName& entry, std::string_view key) { return entry.name < key; });
  return found == names.end() || found->name != name ? nullptr : &*found;
}

}  // namespace liger
