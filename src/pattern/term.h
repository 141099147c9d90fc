// Hash-consed terms: the canonical form in which spellings that mean the same are the same.
//
//   TermStore terms;
//   TermId x = terms.Variable(0, DType::kF32);
//   TermId y = terms.Mul(x, terms.Recip(terms.Sqrt(terms.Mean(terms.Mul(x, x)))));
//
// Building a term applies the canonical rules (term.cc lists them), so two ids are equal exactly if
// the terms are. The same store holds the terms of a graph and those of the patterns; a pattern's
// terms have variables and captures as leaves, a graph's have values. Terms are never removed;
// references to a Term stay valid.
//
// The rules keep the value of a term up to the rounding of single operations; they never move a
// Cast across a product, since that changes what half-precision graphs compute.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "model/graph.h"

namespace liger {

using TermId = int32_t;

enum class TermKind : uint8_t {
  kLeaf,      // a value of the graph: `numbers` = {graph, value}
  kVariable,  // an input of a pattern: `numbers` = {position}
  kCapture,   // a scalar attribute that the match binds: `text` is its name
  kScalar,    // a constant of one element: `scalar`; `numbers` = {rank}
  kInts,      // a constant list of integers of rank 1: `numbers`
  kOp,        // `text` is the operator, `numbers` its attributes in canonical order
};

struct Term {
  TermKind kind = TermKind::kOp;
  DType dtype = DType::kUndefined;
  double scalar = 0;
  std::string text;
  std::vector<int64_t> numbers;
  std::vector<TermId> args;

  bool IsOp(std::string_view op) const { return kind == TermKind::kOp && text == op; }
  // A column: an element-wise value [...] seen as [..., 1].
  bool IsColumn() const { return IsOp("Unsqueeze") && numbers.size() == 1 && numbers[0] == -1; }
};

// The operators that canonical rules know. Everything else is "domain::Type{attributes}#output".
namespace op {
inline constexpr std::string_view kMul = "Mul", kAdd = "Add", kNeg = "Neg", kRecip = "Reciprocal",
                                  kSqrt = "Sqrt", kCast = "Cast", kMean = "Mean", kSum = "Sum",
                                  kPart = "Part", kSlice = "Slice", kConcat = "Concat",
                                  kSigmoid = "Sigmoid", kExp = "Exp", kPow = "Pow", kMin = "Min",
                                  kMax = "Max", kStride = "Stride", kInterleave = "Interleave",
                                  kSplitLast = "SplitLast", kMergeLast = "MergeLast",
                                  kSqueeze = "Squeeze", kUnsqueeze = "Unsqueeze", kHead = "Head",
                                  kTail = "Tail";
}  // namespace op

// Whether a constant's `scalar` is an integer that it holds exactly: larger ones are rounded.
inline bool HoldsInteger(double scalar) {
  constexpr double kExact = 9007199254740992.0;  // 2^53
  return scalar > -kExact && scalar < kExact &&
         static_cast<double>(static_cast<int64_t>(scalar)) == scalar;
}

class TermStore {
 public:
  TermId Leaf(int graph, ValueId value, DType dtype);
  TermId Variable(int position, DType dtype);
  TermId Capture(std::string_view name, DType dtype);
  TermId Scalar(double value, DType dtype, int rank = 0);
  TermId Ints(std::vector<int64_t> values, DType dtype);

  // An operator without rules of its own.
  TermId Op(std::string_view op, DType dtype, std::vector<TermId> args,
            std::vector<int64_t> numbers = {});

  // Operators with rules. A scalar operand must not raise the rank of the result: see
  // canonical.cc, which drops the rank where that is known.
  TermId Mul(TermId a, TermId b);
  TermId Add(TermId a, TermId b);
  TermId Neg(TermId a);
  TermId Recip(TermId a);
  TermId Sqrt(TermId a);
  TermId Exp(TermId a);
  TermId Sigmoid(TermId a);
  TermId Pow(TermId a, TermId exponent);
  TermId Cast(TermId a, DType to);
  // What has become `cast` by a Cast that went inwards: a value may be an input of a pattern that
  // casts it.
  std::span<const TermId> CastSources(TermId cast) const;
  TermId Mean(TermId a);  // over the last axis, kept as 1
  // Sum over the last axis, kept as 1; the product with 1 / `length` becomes a mean (length < 0:
  // unknown).
  TermId Sum(TermId a, int64_t length);
  // Part `index` of `count` equal parts along a negative axis.
  TermId Part(TermId a, int64_t axis, int64_t index, int64_t count);
  // [begin, end) along a negative axis.
  TermId Slice(TermId a, int64_t axis, int64_t begin, int64_t end);
  TermId Concat(std::vector<TermId> args, int64_t axis);
  TermId Min(TermId a, TermId b);
  TermId Max(TermId a, TermId b);
  // Every `step`-th element of the last axis from `index` on; the length is a multiple of `step`.
  TermId Stride(TermId a, int64_t index, int64_t step);
  // The last axis cut into rows of `width`: [..., n * width] to [..., n, width].
  TermId SplitLast(TermId a, int64_t width);
  // The last two axes as one: [..., n, width] to [..., n * width].
  TermId MergeLast(TermId a);
  // a0, b0, a1, b1, ... along the last axis.
  TermId Interleave(TermId a, TermId b);
  // Axes of length 1, added or removed; all negative, sorted, counted in the larger shape.
  TermId Unsqueeze(TermId a, std::vector<int64_t> axes);
  TermId Squeeze(TermId a, std::vector<int64_t> axes);

  const Term& operator[](TermId id) const { return terms_[id]; }
  int size() const { return static_cast<int>(terms_.size()); }

  bool IsScalar(TermId id, double value) const {
    return terms_[id].kind == TermKind::kScalar && terms_[id].scalar == value;
  }

  // "Mul(x, Reciprocal(...))" down to `depth` operators, for diagnostics.
  std::string ToString(TermId id, int depth = 2) const;

 private:
  TermId Intern(Term term);
  TermId CastTerm(TermId a, DType to);
  // Min or Max of sorted operands.
  TermId Extremum(std::string_view op, TermId a, TermId b);
  // A term of one argument that only changes the value element by element and commutes with Neg.
  TermId Unary(std::string_view op, TermId a);

  std::deque<Term> terms_;
  std::unordered_multimap<uint64_t, TermId> index_;
  std::unordered_map<TermId, std::vector<TermId>> cast_sources_;
};

}  // namespace liger
