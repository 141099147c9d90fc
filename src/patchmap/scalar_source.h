// Where the characters of a scalar stand in its YAML file: for messages about a text inside of it.
//
//   ScalarSource source(yaml, node.position, node.scalar);
//   std::optional<YamlPosition> place = source.At(offset);   // of the scalar's byte `offset`
//
// Block scalars (| and >, with any indicators), quoted and plain ones are followed character by
// character; spaces and line breaks, which YAML folds, are stepped over on both sides.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "patchmap/family_map.h"

namespace liger {

class ScalarSource {
 public:
  // `position` is that of the scalar's first character in `yaml`: its indicator, quote or letter.
  ScalarSource(std::string_view yaml, YamlPosition position, std::string_view scalar);

  // An offset at white space stands for what follows, the end of the scalar for what is behind its
  // last character. Nothing where the scalar could not be followed so far.
  std::optional<YamlPosition> At(size_t offset) const;

 private:
  std::string_view yaml_;
  std::string_view scalar_;
  std::vector<size_t> offsets_;  // in `yaml_`, of each byte of the scalar that was followed
};

}  // namespace liger
