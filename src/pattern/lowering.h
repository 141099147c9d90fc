// Operators that are short for others (RMSNormalization, Swish, QuickGelu, ...), given as function
// texts in patches/lowerings/. The canonical view sees them through their text, so that one pattern
// meets both the operator and its decomposition.
//
// The same files list operators that are fused already (`already_fused`): what stands behind one of
// them in a model is counted, and not missed.
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
  bool mixed_types = false;     // holds also where the inputs have different dtypes
  AttributeEnv where;           // holds only where the node's attributes have these values
  std::vector<size_t> outputs;  // position on the node of each output of the text
  Graph body;
  std::map<std::string, int64_t> opsets;
  AttributeEnv defaults;  // of attributes that the node may leave out
};

// An operator of another domain that does the work of a fused op.
struct FusedElsewhere {
  std::string domain;
  std::string op_type;
  std::string module;
  int instances = 1;
  AttributeEnv where;
  std::string reason;  // why no fused op takes its place; empty where one may
};

class LoweringSet {
 public:
  // From the files below lowerings/ in `files`.
  static Result<LoweringSet> Load(std::span<const EmbeddedFile> files);

  // The first that stands for a node with these attributes and as many inputs. `env` resolves
  // attribute references; it may be null.
  const Lowering* Find(const Node& node, int64_t opset, const AttributeEnv* env) const;

  // Null if the operator is not one that does a fused op's work.
  const FusedElsewhere* FindFused(const Node& node) const;

 private:
  std::vector<Lowering> lowerings_;
  std::vector<FusedElsewhere> fused_;
};

}  // namespace liger
