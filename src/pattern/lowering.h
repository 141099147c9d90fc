// Operators that are short for others (RMSNormalization, Swish, QuickGelu, ...), given as function
// texts in patches/lowerings/. The canonical view sees them through their text, so that one pattern
// meets both the operator and its decomposition.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/error.h"
#include "model/graph.h"
#include "ops/embedded_patches.h"
#include "pattern/canonical.h"

namespace liger {

struct Lowering {
  std::string domain;
  std::string op_type;
  int64_t min_opset = 1;
  bool last_axis_only = false;  // holds only where `axis` is the last one
  Graph body;
  std::map<std::string, int64_t> opsets;
  AttributeEnv defaults;  // of attributes that the node may leave out
};

class LoweringSet {
 public:
  // From the files below lowerings/ in `files`.
  static Result<LoweringSet> Load(std::span<const EmbeddedFile> files);

  const Lowering* Find(const Node& node, int64_t opset) const;

 private:
  std::vector<Lowering> lowerings_;
};

}  // namespace liger
