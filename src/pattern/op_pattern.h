// Fused ops as patterns: patches/ops/*.yaml to terms.
//
//   Result<OpPatternSet> ops = OpPatternSet::Load(files);
//   std::vector<PatternInstance> instances = ops->Instantiate(canonicalizer, request);
//
// An op is defined by function texts. An instance is one text with its attributes fixed by a preset
// and its type symbols bound to dtypes; as a term it has variables where the op has inputs and
// captures where an attribute takes its value from the graph. Instances with equal terms are one.
//
// The file, beside the contract that op, inputs, outputs, attributes and kernels make (ops/op_contract.h):
//
//   priority: 20                  # larger fusions first: lower numbers win
//   anchors: [Mean]               # canonical operators that make a failed attempt a near miss
//   only_on_request: on           # optional: not looked for where the module is off (others are: the
//                                 # tail of a LayerNorm is no RMSNorm)
//   near_score: 3                 # operators that must fit before a failure at the anchor counts
//   captures: [epsilon]           # attributes bound to constants of the graph
//   derived: [layout]             # attributes that a guard computes
//   presets:                      # named sets of attribute values; T, S stand for the bound dtypes
//     - {name: llama, stash_type: f32, scale_type: T}
//     - {name: llama_f16, only: {T: f32}, wrap: {scale: f16, y: f16}, ...}
//                                 # only: for these dtypes. wrap: the graph has this input or output
//                                 # in a narrower dtype; exact Casts stand beside the fused node
//     - {name: reversed, negate: [sin], ...}   # the op takes the negative of the graph's value
//   choices: {offset: [captured, 0]}   # tried in this order, with every preset
//   absent: {scale: 1}            # an optional input that is left out stands for this constant
//   guards:                       # named predicates (pattern/guard.h) and what they constrain
//     - {row_of: [scale, x]}
//   pair: {input: x, second_input: second_x, output: y, second_output: second_y}   # optional
//   texts:                        # each defines the op; presets and choices apply to all
//     - name: decomposed
//       opset: 13-17              # range of the default domain in which the text is valid
//       attributes: {table: full} # optional: values this text stands for
//       captures: [limit]         # optional: attributes that this text binds, beside those of all
//       choices: {alpha: [1, captured]}   # optional: beside those of all texts
//       requires: [scale]         # optional: inputs that this text cannot do without
//       reassociated: on          # optional: equal in exact arithmetic, with other roundings
//       text: |  ...
//   bodies:                       # optional: preferred bodies, where they mean the same term
//     - {name: ..., opset: 23-, text: ...}
#pragma once

#include <deque>
#include <limits>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "model/onnx_graph.h"
#include "ops/embedded_patches.h"
#include "ops/op_contract.h"
#include "pattern/canonical.h"

namespace liger {

struct OpText {
  std::string name;
  int64_t min_opset = 1;
  int64_t max_opset = std::numeric_limits<int64_t>::max();
  AttributeEnv attributes;
  std::vector<std::string> captures;
  std::vector<std::pair<std::string, std::vector<std::string>>> choices;
  std::vector<std::string> required;
  bool reassociated = false;
  std::string source;  // the text itself, for bodies
  FunctionText function;

  bool Covers(int64_t opset) const { return min_opset <= opset && opset <= max_opset; }
};

struct GuardSpec {
  std::string name;
  std::vector<std::string> args;  // inputs or captured attributes
};

struct PairSpec {
  std::string input, second_input, output, second_output;
};

// "T", "S" or a dtype's name: the value of a dtype attribute in a preset.
struct Preset {
  std::string name;
  std::map<std::string, DType> only;  // type symbol to dtype
  std::map<std::string, DType> wrap;  // input, or first output, to its dtype in the graph
  std::vector<std::string> negate;    // inputs of which the graph has the negative
  std::map<std::string, std::string> values;
};

struct OpPattern {
  const OpContract* contract = nullptr;
  std::string file;
  int priority = 0;
  std::vector<std::string> anchors;
  int near_score = 0;
  bool only_on_request = false;  // not looked for where its module is off
  std::vector<std::string> captures;
  std::vector<std::string> derived;
  std::vector<Preset> presets;
  std::vector<std::pair<std::string, std::vector<std::string>>> choices;
  std::map<std::string, double> absent;
  std::vector<GuardSpec> guards;
  std::optional<PairSpec> pair;
  std::vector<OpText> texts;
  std::vector<OpText> bodies;
};

struct PatternInstance {
  const OpPattern* op = nullptr;
  const OpText* text = nullptr;
  std::string preset;                 // "any" where all presets mean the same
  AttributeEnv attributes;            // fixed by text, preset and choice
  std::vector<std::string> captures;  // attributes that the match binds
  std::vector<TypeBinding> types;
  std::vector<TermId> inputs;   // by position in the contract; kNone where left out
  std::vector<TermId> outputs;  // by position in the contract; [0] is the root
  // Dtypes in the graph of inputs and of the root, where exact Casts stand between graph and op.
  std::map<size_t, DType> input_wraps;
  std::vector<size_t> negated;  // inputs that the op takes with the opposite sign
  DType output_wrap = DType::kUndefined;

  TermId root() const { return outputs[0]; }
  std::string Form() const { return preset.empty() ? text->name : text->name + "/" + preset; }
};

// A pattern of a user's patch map. Its text is also the body of the op, as it is written: it computes
// what was matched whatever the dtypes are. Captures are the attributes of the text; all inputs have
// one float dtype unless `types` says otherwise. It is looked for before the ops of ours.
struct OwnOp {
  struct Text {
    std::string source;
    int64_t min_opset = 1;
    int64_t max_opset = std::numeric_limits<int64_t>::max();
    std::map<std::string, DType> types;  // of inputs, by name
    std::string place;                   // for messages: file:line:column
  };
  std::string domain;
  std::string op_type;
  std::vector<Text> texts;  // with equal signatures

  // "my.domain.SoftCap": also the module of its contract, so that it is in none of ours.
  std::string Name() const { return domain + "." + op_type; }
};

class OpPatternSet : public FusedOpTexts {
 public:
  // From the files below ops/ in `files`; every opset from 11 to the newest must have a text.
  static Result<OpPatternSet> Load(std::span<const EmbeddedFile> files);

  // Adds a user's pattern for a model that imports `opsets`. kUsage if no text is for the model's
  // opset, or if a text cannot be matched: an operator that has no term, an attribute that nothing
  // captures, an output that the first one does not depend on.
  Status AddOwn(const OwnOp& op, const std::map<std::string, int64_t>& opsets);

  const std::deque<OpPattern>& ops() const { return ops_; }
  // An op of ours; null if there is none.
  const OpPattern* Find(std::string_view op_type) const;
  const OpPattern* Find(std::string_view domain, std::string_view op_type) const;

  struct Request {
    int64_t opset = 0;                  // of the model's default domain
    std::vector<DType> dtypes;          // that occur in the model
    std::vector<std::string> op_types;  // empty: all
    // Also instances whose terms are those of an earlier one: to a matcher they only repeat it, but
    // their attributes tell them apart.
    bool equal_ones = false;
  };
  // Instances in the order in which they are to be tried.
  std::vector<PatternInstance> Instantiate(Canonicalizer& canonicalizer,
                                           const Request& request) const;

  // The first text that stands for a call with these attributes (a reference is a value that the
  // text would have to capture) and inputs; null if there is none.
  const OpText* SelectText(const OpPattern& op, int64_t opset, const AttributeEnv& attributes,
                           const std::vector<bool>& given) const;

  // A fused op that a text calls: `given` says which of the call's operands there are. `attributes`
  // are the call's, with references put in place as far as `env` has them.
  struct Call {
    const OpPattern* op = nullptr;  // null: unknown
    const OpText* text = nullptr;   // null: no text stands for the call
    AttributeEnv attributes;
    std::vector<bool> given;  // by contract position
  };
  Call ResolveCall(const Node& node, int64_t opset, const AttributeEnv& env,
                   const std::vector<bool>& given) const;

  // The outputs of `text` for a binding, as terms. `variables` by contract position.
  std::vector<TermId> Evaluate(Canonicalizer& canonicalizer, const OpPattern& op,
                               const OpText& text, std::span<const TermId> variables,
                               const AttributeEnv& attributes) const;

  // The outputs of an own op's text in place of a match: of these graph terms, with these values of
  // its attributes. Empty if its operators do not take such inputs.
  static std::vector<TermId> EvaluateInPlace(Canonicalizer& canonicalizer,
                                             const OpContract& contract, const OpText& text,
                                             std::span<const TermId> inputs,
                                             const AttributeEnv& attributes);

  // FusedOpTexts: a fused op that another one calls.
  std::vector<TermId> Expand(Canonicalizer& canonicalizer, const Node& node, int64_t opset,
                             std::span<const TermId> args, const AttributeEnv& env) const override;

 private:
  // What the contract of an own op points to.
  struct OwnContract {
    std::string domain, op_type, module;
    std::deque<std::string> names;
    std::vector<Port> inputs, outputs;
    std::vector<AttributeSpec> attributes;
    std::deque<std::vector<TypeBinding>> bindings;
    std::vector<TypeTuple> tuples;
    OpContract contract;
  };

  std::deque<OpPattern> ops_;  // in the order in which they are tried
  std::deque<OwnContract> own_;
};

}  // namespace liger
