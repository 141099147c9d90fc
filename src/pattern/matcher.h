// Finds where a pattern instance stands in a graph, and says how far it got where it does not.
//
//   Matcher matcher(view);
//   Attempt attempt;
//   if (auto binding = matcher.Match(instance, root, &attempt)) Use(*binding);
//   else Report(attempt);
//
// Matching is on terms. Sums are commutative; products are compared as trees first, then as lists
// of factors (such a match is `reassociated`: it may move roundings). An equal pattern term always
// meets one and the same graph term. Guards are part of a match: where one refuses, other bindings
// are tried.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "pattern/guard.h"
#include "pattern/op_pattern.h"
#include "pattern/view.h"

namespace liger {

// How an input of the op is made from the value that the graph has.
struct InputView {
  enum class Kind {
    kSqueeze,    // `axes` of length 1 are removed
    kMergeLast,  // the last two axes become one; `axes` are those that stay
  };
  Kind kind = Kind::kSqueeze;
  std::vector<int64_t> axes;

  bool operator==(const InputView&) const = default;
};

struct Binding {
  std::vector<TermId> inputs;         // by position in the contract; kNone where left out
  std::vector<TermId> outputs;        // graph terms of the op's outputs
  AttributeEnv attributes;            // all of the op's attributes
  TermId anchor = kNone;              // the graph's term at the op's rare operator
  std::map<size_t, InputView> views;  // by contract position
  bool reassociated = false;
};

// The furthest that a failed match got.
struct Attempt {
  int score = -1;         // operators that fitted
  TermId anchor = kNone;  // the graph's term at the op's rare operator; kNone: never reached
  std::string guard;      // name of the guard that refused; empty if the structure did
  std::string reason;
  bool wants_values = false;  // asked for by the caller
  std::vector<std::string>
      values;  // what was bound by then: "x = 'hidden' (value)", "epsilon = 1e-06"
};

class Matcher {
 public:
  explicit Matcher(const GraphView& view) : view_(view), guards_(view) {}

  // `attempt` keeps the better of what it holds and this attempt; it may be null.
  std::optional<Binding> Match(const PatternInstance& instance, TermId root, Attempt* attempt);

 private:
  const GraphView& view_;
  GuardEvaluator guards_;
};

}  // namespace liger
