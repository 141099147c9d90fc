#include "pattern/term.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>

#include "base/error.h"

// The canonical rules, by operator (x, y terms; constants fold in their own dtype):
//   Mul     x*1 = x    x*-1 = Neg x    Neg(x)*y = Neg(x*y)    Sum(x)*(1/length) = Mean x
//           Sqrt(Sum x)*(1/sqrt(length)) = Sqrt(Mean x)    operands are sorted
//   Add     x+0 = x    operands are sorted
//   Neg     Neg Neg x = x
//   Recip   Recip Recip x = x    Recip Neg x = Neg Recip x    Recip(1 + Exp Neg x) = Sigmoid x
//   Pow     x^1 = x    x^2 = x*x    x^3 = x*(x*x)    x^0.5 = Sqrt x    x^-0.5 = Recip Sqrt x    x^-1 = Recip x
//   Cast    to the same dtype, or to a wider one and back = x    Cast Neg x = Neg Cast x
//           to f16 of Sigmoid(Cast x to f32) = Sigmoid x, and the like
//           of a value that only moves elements = that of the Casts of its operands
//   Part    Part Neg x = Neg Part x    part 1 of 1 = x    a part of SplitLast x = a column of
//           Stride x
//   Slice   Slice Neg x = Neg Slice x
//   Concat  of all parts of x in order = x    Concat(x, Neg y) = Neg Concat(Neg x, y)
//   Min     with +inf = x    Max with -inf = x    Max(Mean(x*x), 0) = Mean(x*x)
//           Max(Min(x, high), low) = Min(Max(x, low), high) where low <= high
//   Interleave  of both strides of x = x    signs as in Concat
//   Squeeze and Unsqueeze undo each other    Unsqueeze Neg x = Neg Unsqueeze x
// Mul keeps its tree: which products were formed first decides the rounding in half precision. The
// matcher looks through it (matcher.h).

namespace liger {
namespace {

uint64_t Combine(uint64_t seed, uint64_t value) {
  return seed ^ (value + 0x9e3779b97f4a7c15ULL + (seed << 6) + (seed >> 2));
}

uint64_t Hash(const Term& term) {
  uint64_t hash = Combine(static_cast<uint64_t>(term.kind), static_cast<uint64_t>(term.dtype));
  hash = Combine(hash, std::bit_cast<uint64_t>(term.scalar));
  hash = Combine(hash, std::hash<std::string>{}(term.text));
  for (int64_t n : term.numbers) hash = Combine(hash, static_cast<uint64_t>(n));
  for (TermId a : term.args) hash = Combine(hash, static_cast<uint64_t>(a) + 1);
  return hash;
}

bool Same(const Term& a, const Term& b) {
  return a.kind == b.kind && a.dtype == b.dtype && a.text == b.text && a.numbers == b.numbers &&
         a.args == b.args && std::bit_cast<uint64_t>(a.scalar) == std::bit_cast<uint64_t>(b.scalar);
}

// Rank of the result of an elementwise operator on two scalars.
int MaxRank(const Term& a, const Term& b) {
  return static_cast<int>(std::max(a.numbers[0], b.numbers[0]));
}

// Whether every value of `narrow` is a value of `wide`.
bool HoldsAll(DType wide, DType narrow) {
  switch (narrow) {
    case DType::kF16:
    case DType::kBF16:
      return wide == DType::kF32 || wide == DType::kF64;
    case DType::kF32:
      return wide == DType::kF64;
    default:
      return false;
  }
}

// Whether `value`, the result of an operation on constants, is what the dtype's own arithmetic gives
// when it is computed in double: integers must not wrap around, and narrow types have rules of their
// own.
bool Folds(DType dtype, double value) {
  constexpr double kExact = 2147483648.0;  // 2^31
  if (IsFloat(dtype)) return true;
  return (dtype == DType::kI64 || dtype == DType::kI32) && std::abs(value) < kExact;
}

bool OnlyMovesElements(const Term& term) {
  for (const std::string_view op :
       {op::kPart, op::kSlice, op::kStride, op::kConcat, op::kInterleave, op::kSqueeze,
        op::kUnsqueeze, op::kSplitLast, op::kMergeLast}) {
    if (term.IsOp(op)) return true;
  }
  return false;
}

}  // namespace

TermId TermStore::Intern(Term term) {
  const uint64_t hash = Hash(term);
  const auto [begin, end] = index_.equal_range(hash);
  for (auto it = begin; it != end; ++it) {
    if (Same(terms_[it->second], term)) return it->second;
  }
  const auto id = static_cast<TermId>(terms_.size());
  terms_.push_back(std::move(term));
  index_.emplace(hash, id);
  return id;
}

TermId TermStore::Leaf(int graph, ValueId value, DType dtype) {
  return Intern({TermKind::kLeaf, dtype, 0, "", {graph, value}, {}});
}

TermId TermStore::Variable(int position, DType dtype) {
  return Intern({TermKind::kVariable, dtype, 0, "", {position}, {}});
}

TermId TermStore::Capture(std::string_view name, DType dtype) {
  return Intern({TermKind::kCapture, dtype, 0, std::string(name), {}, {}});
}

TermId TermStore::Scalar(double value, DType dtype, int rank) {
  return Intern({TermKind::kScalar, dtype, RoundTo(dtype, value), "", {rank}, {}});
}

TermId TermStore::Ints(std::vector<int64_t> values, DType dtype) {
  return Intern({TermKind::kInts, dtype, 0, "", std::move(values), {}});
}

TermId TermStore::Op(std::string_view op, DType dtype, std::vector<TermId> args,
                     std::vector<int64_t> numbers) {
  return Intern({TermKind::kOp, dtype, 0, std::string(op), std::move(numbers), std::move(args)});
}

TermId TermStore::Unary(std::string_view op, TermId a) { return Op(op, terms_[a].dtype, {a}); }

TermId TermStore::Mul(TermId a, TermId b) {
  if (terms_[b].kind == TermKind::kScalar) std::swap(a, b);
  const Term& x = terms_[a];
  const Term& y = terms_[b];
  if (x.kind == TermKind::kScalar) {
    if (y.kind == TermKind::kScalar && Folds(y.dtype, x.scalar * y.scalar)) {
      return Scalar(x.scalar * y.scalar, y.dtype, MaxRank(x, y));
    }
    if (x.scalar == 1) return b;
    if (x.scalar == -1) return Neg(b);
    if (y.IsOp(op::kSum) && y.numbers[0] > 0 &&
        RoundTo(x.dtype, 1.0 / static_cast<double>(y.numbers[0])) == x.scalar) {
      return Mean(y.args[0]);
    }
    if (y.IsOp(op::kSqrt) && terms_[y.args[0]].IsOp(op::kSum)) {
      const Term& sum = terms_[y.args[0]];
      const double root = std::sqrt(static_cast<double>(sum.numbers[0]));
      const bool is_root = x.scalar == RoundTo(x.dtype, 1.0 / root) ||
                           x.scalar == RoundTo(x.dtype, 1.0 / RoundTo(x.dtype, root));
      if (sum.numbers[0] > 0 && is_root) return Sqrt(Mean(sum.args[0]));
    }
  }
  if (x.IsOp(op::kNeg)) return Neg(Mul(x.args[0], b));
  if (y.IsOp(op::kNeg)) return Neg(Mul(a, y.args[0]));
  if (a > b) std::swap(a, b);
  return Op(op::kMul, terms_[a].dtype, {a, b});
}

TermId TermStore::Add(TermId a, TermId b) {
  const Term& x = terms_[a];
  const Term& y = terms_[b];
  if (x.kind == TermKind::kScalar && y.kind == TermKind::kScalar &&
      Folds(x.dtype, x.scalar + y.scalar)) {
    return Scalar(x.scalar + y.scalar, x.dtype, MaxRank(x, y));
  }
  if (IsScalar(a, 0)) return b;
  if (IsScalar(b, 0)) return a;
  if (a > b) std::swap(a, b);
  return Op(op::kAdd, terms_[a].dtype, {a, b});
}

namespace {

// Whether the dtype holds the number, rounded, with all of its digits: a quotient by a constant is the
// product with its reciprocal only then.
bool IsNormal(DType dtype, double value) {
  const double rounded = std::abs(RoundTo(dtype, value));
  const double smallest = dtype == DType::kF16   ? 0x1p-14
                          : dtype == DType::kF64 ? 0x1p-1022
                                                 : 0x1p-126;
  return IsFloat(dtype) && std::isfinite(rounded) && rounded >= smallest;
}

}  // namespace

TermId TermStore::Neg(TermId a) {
  const Term& x = terms_[a];
  if (x.kind == TermKind::kScalar && Folds(x.dtype, -x.scalar)) {
    return Scalar(-x.scalar, x.dtype, MaxRank(x, x));
  }
  if (x.IsOp(op::kNeg)) return x.args[0];
  return Unary(op::kNeg, a);
}

TermId TermStore::Recip(TermId a) {
  const Term& x = terms_[a];
  if (x.kind == TermKind::kScalar && IsNormal(x.dtype, 1.0 / x.scalar)) {
    return Scalar(1.0 / x.scalar, x.dtype, MaxRank(x, x));
  }
  if (x.IsOp(op::kRecip)) return x.args[0];
  if (x.IsOp(op::kNeg)) return Neg(Recip(x.args[0]));
  if (x.IsOp(op::kAdd)) {
    for (int i : {0, 1}) {
      const Term& other = terms_[x.args[1 - i]];
      if (IsScalar(x.args[i], 1) && other.IsOp(op::kExp) && terms_[other.args[0]].IsOp(op::kNeg)) {
        return Sigmoid(terms_[other.args[0]].args[0]);
      }
    }
  }
  return Unary(op::kRecip, a);
}

TermId TermStore::Sqrt(TermId a) {
  const Term& x = terms_[a];
  if (x.kind == TermKind::kScalar) return Scalar(std::sqrt(x.scalar), x.dtype, MaxRank(x, x));
  return Unary(op::kSqrt, a);
}

TermId TermStore::Exp(TermId a) { return Unary(op::kExp, a); }

TermId TermStore::Sigmoid(TermId a) { return Unary(op::kSigmoid, a); }

TermId TermStore::Pow(TermId a, TermId exponent) {
  const Term& e = terms_[exponent];
  if (e.kind == TermKind::kScalar) {
    if (e.scalar == 1) return a;
    if (e.scalar == 2) return Mul(a, a);
    if (e.scalar == 3) return Mul(a, Mul(a, a));
    if (e.scalar == 0.5) return Sqrt(a);
    if (e.scalar == -0.5) return Recip(Sqrt(a));
    if (e.scalar == -1) return Recip(a);
  }
  return Op(op::kPow, terms_[a].dtype, {a, exponent});
}

TermId TermStore::Cast(TermId a, DType to) {
  const TermId cast = CastTerm(a, to);
  const Term& result = terms_[cast];
  if (cast != a && IsFloat(to) && !(result.IsOp(op::kCast) && result.args[0] == a)) {
    std::vector<TermId>& sources = cast_sources_[cast];
    if (std::find(sources.begin(), sources.end(), a) == sources.end()) sources.push_back(a);
  }
  return cast;
}

std::span<const TermId> TermStore::CastSources(TermId cast) const {
  const auto found = cast_sources_.find(cast);
  return found != cast_sources_.end() ? std::span<const TermId>(found->second)
                                      : std::span<const TermId>();
}

TermId TermStore::CastTerm(TermId a, DType to) {
  const Term& x = terms_[a];
  if (x.dtype == to) return a;
  if (x.kind == TermKind::kScalar) {
    const auto rank = static_cast<int>(x.numbers[0]);
    if (to == DType::kBool) return Scalar(x.scalar != 0 ? 1 : 0, to, rank);
    if (IsFloat(to)) return Scalar(x.scalar, to, rank);
    if (Folds(to, x.scalar)) return Scalar(std::trunc(x.scalar), to, rank);
    return Op(op::kCast, to, {a});
  }
  if (x.kind == TermKind::kInts && !IsFloat(to) &&
      std::all_of(x.numbers.begin(), x.numbers.end(),
                  [&](int64_t n) { return Folds(to, static_cast<double>(n)); })) {
    return Ints(x.numbers, to);
  }
  if (x.kind == TermKind::kCapture) return Capture(x.text, to);
  if (x.IsOp(op::kNeg) && IsFloat(to) && IsFloat(x.dtype)) return Neg(Cast(x.args[0], to));
  // To a wider type and back changes nothing.
  if (x.IsOp(op::kCast) && terms_[x.args[0]].dtype == to && HoldsAll(x.dtype, to)) return x.args[0];
  // Sigmoid of a narrow value, computed wider and rounded, is what the narrow operator gives.
  if (x.IsOp(op::kSigmoid) && terms_[x.args[0]].IsOp(op::kCast)) {
    const TermId narrow = terms_[x.args[0]].args[0];
    if (terms_[narrow].dtype == to && HoldsAll(x.dtype, to)) return Sigmoid(narrow);
  }
  if (OnlyMovesElements(x)) {
    const Term moved = x;
    std::vector<TermId> args;
    for (TermId arg : moved.args) args.push_back(Cast(arg, to));
    return Op(moved.text, to, std::move(args), moved.numbers);
  }
  return Op(op::kCast, to, {a});
}

TermId TermStore::Mean(TermId a) { return Unary(op::kMean, a); }

TermId TermStore::Sum(TermId a, int64_t length) {
  return Op(op::kSum, terms_[a].dtype, {a}, {length});
}

TermId TermStore::Part(TermId a, int64_t axis, int64_t index, int64_t count) {
  const Term& x = terms_[a];
  if (count == 1) return a;
  if (x.IsOp(op::kNeg)) return Neg(Part(x.args[0], axis, index, count));
  if (x.IsOp(op::kSplitLast) && axis == -1 && count == x.numbers[0]) {
    return Unsqueeze(Stride(x.args[0], index, count), {-1});
  }
  return Op(op::kPart, x.dtype, {a}, {axis, index, count});
}

TermId TermStore::Slice(TermId a, int64_t axis, int64_t begin, int64_t end) {
  const Term& x = terms_[a];
  if (x.IsOp(op::kNeg)) return Neg(Slice(x.args[0], axis, begin, end));
  return Op(op::kSlice, x.dtype, {a}, {axis, begin, end});
}

TermId TermStore::Concat(std::vector<TermId> args, int64_t axis) {
  if (args.size() == 1) return args[0];
  const Term& first = terms_[args[0]];
  const auto count = static_cast<int64_t>(args.size());
  bool whole = first.IsOp(op::kPart);
  for (int64_t i = 0; whole && i < count; ++i) {
    const Term& part = terms_[args[i]];
    whole = part.IsOp(op::kPart) && part.args[0] == first.args[0] &&
            part.numbers == std::vector<int64_t>{axis, i, count};
  }
  if (whole) return first.args[0];
  if (count == 2 && !first.IsOp(op::kNeg) && terms_[args[1]].IsOp(op::kNeg)) {
    return Neg(Concat({Neg(args[0]), terms_[args[1]].args[0]}, axis));
  }
  const DType dtype = first.dtype;
  return Op(op::kConcat, dtype, std::move(args), {axis});
}

TermId TermStore::Extremum(std::string_view op, TermId a, TermId b) {
  if (a > b) std::swap(a, b);
  return Op(op, terms_[a].dtype, {a, b});
}

TermId TermStore::Min(TermId a, TermId b) {
  if (terms_[b].kind == TermKind::kScalar) std::swap(a, b);
  const Term& x = terms_[a];
  if (x.kind == TermKind::kScalar) {
    const Term& y = terms_[b];
    if (y.kind == TermKind::kScalar) {
      return Scalar(std::min(x.scalar, y.scalar), x.dtype, MaxRank(x, y));
    }
    if (x.scalar == std::numeric_limits<double>::infinity()) return b;
  }
  return Extremum(op::kMin, a, b);
}

TermId TermStore::Max(TermId a, TermId b) {
  if (terms_[b].kind == TermKind::kScalar) std::swap(a, b);
  const Term& x = terms_[a];
  const Term& y = terms_[b];
  if (x.kind == TermKind::kScalar) {
    if (y.kind == TermKind::kScalar) {
      return Scalar(std::max(x.scalar, y.scalar), x.dtype, MaxRank(x, y));
    }
    if (x.scalar == -std::numeric_limits<double>::infinity()) return b;
    if (x.scalar <= 0 && y.IsOp(op::kMean)) {
      const Term& square = terms_[y.args[0]];
      if (square.IsOp(op::kMul) && square.args[0] == square.args[1]) return b;
    }
    if (y.IsOp(op::kMin)) {
      for (const int i : {0, 1}) {
        const Term& high = terms_[y.args[i]];
        if (high.kind == TermKind::kScalar && x.scalar <= high.scalar) {
          return Min(y.args[i], Max(a, y.args[1 - i]));
        }
      }
    }
  }
  return Extremum(op::kMax, a, b);
}

TermId TermStore::Stride(TermId a, int64_t index, int64_t step) {
  const Term& x = terms_[a];
  if (x.IsOp(op::kNeg)) return Neg(Stride(x.args[0], index, step));
  return Op(op::kStride, x.dtype, {a}, {index, step});
}

TermId TermStore::SplitLast(TermId a, int64_t width) {
  return Op(op::kSplitLast, terms_[a].dtype, {a}, {width});
}

TermId TermStore::MergeLast(TermId a) {
  const Term& x = terms_[a];
  if (x.IsOp(op::kSplitLast)) return x.args[0];
  return Op(op::kMergeLast, x.dtype, {a});
}

TermId TermStore::Interleave(TermId a, TermId b) {
  const Term& x = terms_[a];
  const Term& y = terms_[b];
  if (x.IsOp(op::kStride) && y.IsOp(op::kStride) && x.args == y.args &&
      x.numbers == std::vector<int64_t>{0, 2} && y.numbers == std::vector<int64_t>{1, 2}) {
    return x.args[0];
  }
  if (!x.IsOp(op::kNeg) && y.IsOp(op::kNeg)) return Neg(Interleave(Neg(a), y.args[0]));
  return Op(op::kInterleave, x.dtype, {a, b});
}

TermId TermStore::Unsqueeze(TermId a, std::vector<int64_t> axes) {
  const Term& x = terms_[a];
  if (x.IsOp(op::kNeg)) return Neg(Unsqueeze(x.args[0], std::move(axes)));
  if (x.IsOp(op::kSqueeze) && x.numbers == axes) return x.args[0];
  return Op(op::kUnsqueeze, x.dtype, {a}, std::move(axes));
}

TermId TermStore::Squeeze(TermId a, std::vector<int64_t> axes) {
  const Term& x = terms_[a];
  if (x.IsOp(op::kNeg)) return Neg(Squeeze(x.args[0], std::move(axes)));
  if (x.IsOp(op::kUnsqueeze) && x.numbers == axes) return x.args[0];
  return Op(op::kSqueeze, x.dtype, {a}, std::move(axes));
}

std::string TermStore::ToString(TermId id, int depth) const {
  const Term& term = terms_[id];
  switch (term.kind) {
    case TermKind::kLeaf:
      return "value#" + std::to_string(term.numbers[1]);
    case TermKind::kVariable:
      return "input#" + std::to_string(term.numbers[0]);
    case TermKind::kCapture:
      return "@" + term.text;
    case TermKind::kScalar: {
      std::string text = std::to_string(term.scalar);
      return text;
    }
    case TermKind::kInts:
    case TermKind::kOp:
      break;
  }
  std::string text = term.text;
  if (depth == 0) return text + "(...)";
  text += "(";
  for (size_t i = 0; i < term.args.size(); ++i) {
    if (i > 0) text += ", ";
    text += ToString(term.args[i], depth - 1);
  }
  for (int64_t n : term.numbers) text += "; " + std::to_string(n);
  return text + ")";
}

}  // namespace liger
