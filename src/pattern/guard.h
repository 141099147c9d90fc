// Named conditions of a pattern that its structure cannot say. Each gives a reason when it refuses;
// a guard that cannot decide (a shape is unknown) refuses.
//
//   row_of: [scale, x]          scale has shape [H] or [1, ..., 1, H], H the length of x's last axis
//   row_per_channel: [scale, x] scale has shape [C], and C is the length of x's second axis
//   same_shape: [a, b]          equal dimensions, symbolic ones by name
//   different: [a, b]           two different values
//   not_negative: [epsilon]     a number
//   captured_positive: [limit]  a number that the match captured, where it did
//   rotary_tables: [x, cos, sin]  shapes fit one of the layouts, the tables are as wide as the text
//   says,
//                               and the halves of a full table are equal (interleaved: every two
//                               neighbours); gives layout and rotary_dim
//
// Inputs that the instance leaves out are not constrained.
#pragma once

#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "pattern/op_pattern.h"
#include "pattern/view.h"

namespace liger {

struct GuardRefusal {
  std::string guard;
  std::string reason;
};

class GuardEvaluator {
 public:
  explicit GuardEvaluator(const GraphView& view) : view_(view) {}

  // Checks all guards of the op for the bound `inputs`; adds derived attributes to `attributes`.
  std::optional<GuardRefusal> Check(const PatternInstance& instance,
                                    const std::vector<TermId>& inputs, AttributeEnv& attributes);

  // Whether the attributes that a guard would derive for the instance are the given ones, for a call
  // with inputs of these shapes, by position in the contract: a text turns as many elements as
  // `rotary_dim` says only if it captures that, or if that is all from `rotary_offset` on.
  static bool DerivesTheSame(const PatternInstance& instance,
                             const std::vector<std::optional<Shape>>& shapes,
                             const AttributeEnv& attributes);

  // Names of all guards, for the validation of op files.
  static bool IsKnown(const std::string& name);

 private:
  struct Arg {
    std::string name;
    TermId term = kNone;
    const Shape* shape = nullptr;
  };

  std::optional<std::string> RowOf(const Arg& row, const Arg& of) const;
  std::optional<std::string> RowPerChannel(const Arg& row, const Arg& of) const;
  std::optional<std::string> SameShape(const Arg& a, const Arg& b) const;
  std::optional<std::string> RotaryTables(const Arg& x, const Arg& cos, const Arg& sin,
                                          AttributeEnv& attributes);
  // How a full table repeats the values of a half one along its last axis.
  enum class Repeat { kHalves, kPairs };
  // Nothing if the last axis repeats so, else why that is not known.
  std::optional<std::string> NotRepeated(TermId table, Repeat repeat);
  std::optional<std::string> StoredNotRepeated(TermId leaf, Repeat repeat) const;
  bool HalfApart(TermId first, TermId second, std::vector<TermId>& work) const;
  bool IsSliceOfOtherAxis(const Term& term) const;
  bool IsPickOfLastAxis(const Term& term, int64_t width) const;

  const GraphView& view_;
  std::unordered_map<TermId, std::optional<std::string>> halves_;  // results of NotRepeated
  std::unordered_map<TermId, std::optional<std::string>> pairs_;
};

}  // namespace liger
