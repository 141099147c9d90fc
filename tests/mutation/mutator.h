// Random edits of an ONNX model, each of one named kind: operands swapped, an epsilon changed, an
// inner value read from a body, ... Some kinds keep the function, most change it.
//
//   Mutator mutator(base, nodes_of_matches);
//   std::mt19937_64 random(seed);
//   if (auto mutant = mutator.Make({"change_slice"}, random)) Use(mutant->model);
//
// The same base, kinds and generator state give the same mutant. Whether a mutant is a valid model
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
  int names = 0;                       // given to new values and nodes
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

  // One edit of each kind, one after the other. Nothing if there is no place for one of them.
  std::optional<Mutant> Make(const std::vector<std::string>& kinds, std::mt19937_64& random) const;

 private:
  onnx::ModelProto base_;
  std::set<std::string> preferred_;
  std::map<std::string, MutantType> types_;
};

}  // namespace liger::test
