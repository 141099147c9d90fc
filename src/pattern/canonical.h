// From a node and the terms of its inputs to the terms of its outputs: the one place that knows how
// operators are spelled. Graphs, patterns and lowering texts all pass through it, which is what
// makes a pattern meet its graph.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "model/graph.h"
#include "pattern/term.h"

namespace liger {

class LoweringSet;

// What `@name` in a function text stands for: a value, or a capture where the name is absent.
using AttributeEnv = std::map<std::string, Attribute::Value>;

// A node of a graph or of a function text, seen apart from its graph.
struct NodeContext {
  const Node* node = nullptr;
  int64_t opset = 0;                    // of the node's domain
  int64_t default_opset = 0;            // of the default domain
  std::span<const TermId> args;         // kNone where an input is left out
  const AttributeEnv* env = nullptr;    // set inside function texts
  std::vector<ValueType> output_types;  // as known; entries may be undefined
};

class Canonicalizer;

// Where a function text calls a fused op, its own text is put in place. In a model's graph a fused
// op is opaque: it is what an earlier run has made.
class FusedOpTexts {
 public:
  virtual ~FusedOpTexts() = default;
  // The outputs of the call; empty if the op is unknown. `env` resolves the node's `@name`
  // references.
  virtual std::vector<TermId> Expand(Canonicalizer& canonicalizer, const Node& node, int64_t opset,
                                     std::span<const TermId> args,
                                     const AttributeEnv& env) const = 0;
};

class Canonicalizer {
 public:
  // `lowerings` and `fused_ops` may be null.
  Canonicalizer(TermStore& terms, const LoweringSet* lowerings, const FusedOpTexts* fused_ops)
      : terms_(terms), lowerings_(lowerings), fused_ops_(fused_ops) {}

  // The term of each output; kNone where the operator is opaque (control flow, random numbers,
  // unknown domains): the caller makes a leaf of it.
  std::vector<TermId> Canonicalize(const NodeContext& context);

  // The terms of a function's outputs for the given inputs. `env` gives attribute values;
  // references to other names become captures. `opsets` are those of the text, or of the model it
  // stands in.
  std::vector<TermId> Evaluate(const Graph& body, std::span<const TermId> inputs,
                               const AttributeEnv& env,
                               const std::map<std::string, int64_t>& opsets);

  // The terms of a body's outputs as if it stood in the graph in place of its call: attributes are
  // values, and values have the types that `body` says. Equal to a term of the graph exactly if the
  // body computes the same.
  std::vector<TermId> EvaluateInPlace(const Graph& body, std::span<const TermId> inputs,
                                      const std::map<std::string, int64_t>& opsets);

  // Shapes of terms that stand for values of the graph.
  void SetShape(TermId term, const std::optional<Shape>& shape);
  const Shape* FindShape(TermId term) const;

  TermStore& terms() { return terms_; }

 private:
  std::vector<TermId> EvaluateBody(const Graph& body, std::span<const TermId> inputs,
                                   const AttributeEnv* env,
                                   const std::map<std::string, int64_t>& opsets);
  std::optional<std::vector<TermId>> Lower(const NodeContext& context);

  TermStore& terms_;
  const LoweringSet* lowerings_;
  const FusedOpTexts* fused_ops_;
  std::unordered_map<TermId, Shape> shapes_;
};

// The version of `domain` that is imported; 1 where none is.
int64_t OpsetOf(const std::map<std::string, int64_t>& opsets, const std::string& domain);

// A small tensor as a scalar or a list of integers; nullopt if it is neither.
std::optional<TermId> ConstantTerm(TermStore& terms, const Tensor& tensor);

// `term` as a list of integers, if it is a constant of integers (a scalar counts as a list of one).
std::optional<std::vector<int64_t>> AsInts(const TermStore& terms, TermId term);

}  // namespace liger
