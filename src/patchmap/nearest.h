// Names that a mistyped or unknown name may have meant.
//
//   NearestNames("mistrl", {"llama", "mistral"})   // {"mistral"}
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace liger {

// The names of `known` that resemble `name`, best first, `limit` at most. Two names resemble each
// other if few edits lead from one to the other or one begins with the other. Empty if none does.
std::vector<std::string> NearestNames(std::string_view name, std::span<const std::string> known,
                                      size_t limit = 3);

// "a", "a or b", "a, b or c".
std::string JoinAlternatives(std::span<const std::string> names);

// "a, b, c".
std::string JoinNames(std::span<const std::string> names);

}  // namespace liger
