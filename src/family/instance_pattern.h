// Patterns for module paths and parameter names, relative to a base model whose own path is not
// known.
//
//   MatchPattern("layers.*.input_layernorm", "m.model.layers.0.input_layernorm")   // "m.model"
//
// `*` stands for one number. A pattern matches the end of a path; what precedes is the
// prefix, the path of the base model. A pattern of one or two plain words ("norm", "norm.weight")
// would match far too much: MatchPatterns accepts such matches only with a prefix that a pattern
// with `*` has found as well.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace liger {

// The prefix, or nothing if the pattern does not match.
std::optional<std::string> MatchPattern(std::string_view pattern, std::string_view path);

// The paths that one of the patterns matches, in their order.
std::vector<std::string> MatchPatterns(std::span<const std::string> patterns,
                                       std::span<const std::string> paths);

}  // namespace liger
