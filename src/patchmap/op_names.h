// The names under which patch maps know the fused ops: their own, and those of Liger-Kernel's
// replacement classes and functions.
//
//   FindOpName("LigerRMSNorm")->op              // "LigerRMSNorm"
//   FindOpName("LigerRMSNormForGemma")->op      // "LigerRMSNorm", and its `implies` say offset 1
//
// The table is generated at build time from the `names:` of patches/ops/*.yaml and from
// patches/unfused_names.yaml. An alias never forces a number: where the graph disagrees with
// `implies`, the graph is right and the report says so.
#pragma once

#include <span>
#include <string_view>

namespace liger {

struct ImpliedAttribute {
  std::string_view name;   // of the op: "offset"
  std::string_view value;  // "1", "tanh"
};

struct OpName {
  std::string_view name;
  std::string_view op;  // op type; empty for a name that is known and cannot be used
  std::span<const ImpliedAttribute> implies;
  std::string_view refused{};  // why it cannot be used
};

// Every accepted name, sorted.
std::span<const OpName> OpNames();
const OpName* FindOpName(std::string_view name);

}  // namespace liger
