// Random edits of an ONNX model, each of one named kind: operands swapped, an epsilon changed, an
// inner value read from a body, ... Some kinds keep the function, most change it.
//
//   Mutator mutator(base, nodes_of_matches);
//   std::mt19937_64 random(seed);
//   if (auto mutant = mutator.Make("change_slice", random)) Use(mutant->model);
//
// The same base, kind and generator state give the same mutant. Whether a mutant is a valid model
// is for the caller to find out.
#pragma once

#include <onnx/onnx_pb.h>

#include <cstdint>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace liger::test {

struct Mutant {
  onnx::ModelProto model;
  std::string note;                    // what was edited, for people
  std::vector<std::string> overrides;  // initializers that became inputs: feed other numbers
};

// Type of a value; dimensions are numbers or symbols in text.
struct MutantType {
  int32_t dtype = 0;
  std::vector<std::string> dims;
  bool operator==(const MutantType&) const = default;
};

class Mutator {
 public:
  // Edits fall on `preferred` nodes, by name, three times out of four.
  Mutator(const onnx::ModelProto& base, std::set<std::string> preferred);

  static const std::vector<std::string>& Kinds();

  // Nothing if the base has no place for the kind.
  std::optional<Mutant> Make(const std::string& kind, std::mt19937_64& random) const;

 private:
  onnx::ModelProto base_;
  std::set<std::string> preferred_;
  std::map<std::string, MutantType> types_;
};

}  // namespace liger::test
