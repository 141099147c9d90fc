#include "pattern/node_rules.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <set>
#include <string_view>

namespace liger {
namespace {

// The dtype of these operators' output is that of their first input.
const std::set<std::string_view>& SameDtypeOps() {
  static const std::set<std::string_view> ops = {
      "Abs",       "Add",       "Ceil",       "Clip",       "Concat",
      "Cos",       "Div",       "Erf",        "Exp",        "Expand",
      "Floor",     "Gather",    "Gelu",       "Identity",   "Log",
      "MatMul",    "Max",       "Min",        "Mul",        "Neg",
      "Pow",       "Relu",      "Reshape",    "Reciprocal", "Sigmoid",
      "Sin",       "Slice",     "Softmax",    "Split",      "Sqrt",
      "Squeeze",   "Sub",       "Sum",        "Tanh",       "Tile",
      "Transpose", "Unsqueeze", "ReduceMean", "ReduceSum",  "ReduceSumSquare",
      "ReduceMax", "ReduceMin"};
  return ops;
}

const std::set<std::string_view>& RandomOps() {
  static const std::set<std::string_view> ops = {"RandomNormal",  "RandomNormalLike",
                                                 "RandomUniform", "RandomUniformLike",
                                                 "Multinomial",   "Bernoulli"};
  return ops;
}

// One node on its way to terms. Each Rule returns the outputs, or nothing if it does not apply.
class NodeRules {
 public:
  NodeRules(Canonicalizer& canonicalizer, const NodeContext& context)
      : canon_(canonicalizer), terms_(canonicalizer.terms()), context_(context) {}

  std::vector<TermId> Run() {
    const Node& node = *context_.node;
    if (!node.bodies.empty() || node.has_other_attributes || RandomOps().contains(node.op_type)) {
      return Opaque();
    }
    if (!node.domain.empty() && node.domain != "com.microsoft" && node.domain != "ai.onnx.ml") {
      return Opaque();
    }
    if (node.domain.empty()) {
      if (auto term = Standard()) return {*term};
      if (node.op_type == "Split") {
        if (auto parts = Split()) return *std::move(parts);
      }
      if (node.op_type == "Dropout") return DropoutOutputs();
    }
    return Generic();
  }

 private:
  using Maybe = std::optional<TermId>;

  std::vector<TermId> Opaque() const {
    return std::vector<TermId>(context_.node->outputs.size(), kNone);
  }

  TermId Arg(size_t index) const {
    return index < context_.args.size() ? context_.args[index] : kNone;
  }
  const Term& At(TermId id) const { return terms_[id]; }

  std::optional<Attribute::Value> Attr(std::string_view name) const {
    const Attribute* attribute = context_.node->FindAttribute(name);
    if (attribute == nullptr) return std::nullopt;
    if (const auto* ref = std::get_if<AttributeRef>(&attribute->value)) {
      if (context_.env != nullptr) {
        if (const auto found = context_.env->find(ref->name); found != context_.env->end()) {
          return found->second;
        }
      }
    }
    return attribute->value;
  }

  template <typename T>
  T AttrOr(std::string_view name, T otherwise) const {
    const auto value = Attr(name);
    if (!value) return otherwise;
    const T* typed = std::get_if<T>(&*value);
    return typed != nullptr ? *typed : otherwise;
  }

  // Integers given as an attribute in old opsets and as an input in newer ones.
  std::optional<std::vector<int64_t>> AttrOrInput(std::string_view name, size_t input) const {
    if (const auto value = Attr(name)) {
      if (const auto* ints = std::get_if<std::vector<int64_t>>(&*value)) return *ints;
      if (const auto* one = std::get_if<int64_t>(&*value)) return std::vector<int64_t>{*one};
      return std::nullopt;
    }
    if (Arg(input) == kNone) return std::nullopt;
    return AsInts(terms_, Arg(input));
  }
  bool HasAttrOrInput(std::string_view name, size_t input) const {
    return context_.node->FindAttribute(name) != nullptr || Arg(input) != kNone;
  }

  DType OutputDtype(size_t index) const {
    if (index < context_.output_types.size() &&
        context_.output_types[index].dtype != DType::kUndefined) {
      return context_.output_types[index].dtype;
    }
    if (SameDtypeOps().contains(context_.node->op_type) && Arg(0) != kNone) {
      return At(Arg(0)).dtype;
    }
    return DType::kUndefined;
  }

  const Shape* OutputShape() const {
    if (context_.output_types.empty() || !context_.output_types[0].shape) return nullptr;
    return &*context_.output_types[0].shape;
  }

  std::optional<int64_t> Rank(TermId term) const {
    if (At(term).kind == TermKind::kScalar) return At(term).numbers[0];
    if (At(term).kind == TermKind::kInts) return 1;
    if (const Shape* shape = canon_.FindShape(term)) return static_cast<int64_t>(shape->size());
    // Inside of a text no shapes are known, but those of what it was given. An operand of unknown
    // rank may have more axes than all others.
    static const std::set<std::string_view> elementwise = {
        op::kMul, op::kAdd, op::kNeg, op::kRecip, op::kSqrt, op::kCast, op::kMean};
    if (At(term).kind != TermKind::kOp || !elementwise.contains(At(term).text)) return std::nullopt;
    int64_t rank = 0;
    for (const TermId arg : At(term).args) {
      if (At(arg).kind == TermKind::kCapture) continue;  // a scalar
      const auto of_arg = Rank(arg);
      if (!of_arg) return std::nullopt;
      rank = std::max(rank, *of_arg);
    }
    return rank;
  }

  // `axis` counted from the back; positive if the rank is unknown.
  int64_t NegativeAxis(int64_t axis, TermId term) const {
    if (axis < 0) return axis;
    const auto rank = Rank(term);
    return rank ? axis - *rank : axis;
  }

  // Length of a negative axis; -1 if unknown.
  int64_t Length(TermId term, int64_t axis) const {
    const Shape* shape = canon_.FindShape(term);
    if (shape == nullptr || axis >= 0 || -axis > static_cast<int64_t>(shape->size())) return -1;
    return (*shape)[shape->size() + axis].value;
  }

  bool SameShapeAsOutput(TermId term) const {
    const Shape* in = canon_.FindShape(term);
    const Shape* out = OutputShape();
    if (in == nullptr || out == nullptr || in->size() != out->size()) return false;
    return std::equal(in->begin(), in->end(), out->begin(),
                      [](const Dim& a, const Dim& b) { return a.SameAs(b); });
  }

  // The operand of an elementwise operator: a scalar loses its rank where that cannot change the
  // shape of the result; where it could, the operand is kept as an operator of its own.
  TermId Operand(TermId term, TermId other) {
    const Term& t = At(term);
    if (t.kind != TermKind::kScalar || t.numbers[0] == 0) return term;
    const auto other_rank = Rank(other);
    if (At(other).kind == TermKind::kScalar) return term;
    if (other_rank && *other_rank >= t.numbers[0]) return terms_.Scalar(t.scalar, t.dtype);
    return terms_.Op("Broadcast", t.dtype, {term});
  }

  using BinaryRule = TermId (TermStore::*)(TermId, TermId);

  Maybe Binary(BinaryRule rule) {
    if (Arg(0) == kNone || Arg(1) == kNone) return std::nullopt;
    return Apply(rule, Operand(Arg(0), Arg(1)), Operand(Arg(1), Arg(0)));
  }

  // An operator between columns is the column of the operator: complex numbers are kept as pairs
  // on an axis of their own, and are computed with as [..., n, 1].
  TermId Apply(BinaryRule rule, TermId a, TermId b) {
    const bool column = StripNeg(a).IsColumn() || StripNeg(b).IsColumn();
    if (column) {
      const TermId left = InsideColumn(a, b);
      const TermId right = InsideColumn(b, a);
      if (left != kNone && right != kNone)
        return terms_.Unsqueeze((terms_.*rule)(left, right), {-1});
    }
    return (terms_.*rule)(a, b);
  }

  const Term& StripNeg(TermId term) const {
    return At(term).IsOp(op::kNeg) ? At(At(term).args[0]) : At(term);
  }

  // What stands in the column `term`; kNone if it is none, or of another rank than `other`.
  TermId InsideColumn(TermId term, TermId other) {
    if (At(term).kind == TermKind::kScalar) return At(term).numbers[0] == 0 ? term : kNone;
    return ColumnOfRank(term, Rank(other));
  }

  // What stands in the column `term`, which has `rank` axes; kNone if it is not known to be one.
  TermId ColumnOfRank(TermId term, std::optional<int64_t> rank) {
    if (StripNeg(term).IsColumn()) return terms_.Squeeze(term, {-1});
    const Shape* shape = canon_.FindShape(term);
    if (shape == nullptr || shape->size() < 2 || shape->back().value != 1 ||
        rank != static_cast<int64_t>(shape->size())) {
      return kNone;
    }
    const TermId inside = terms_.Squeeze(term, {-1});
    canon_.SetShape(inside, Shape(shape->begin(), shape->end() - 1));
    return inside;
  }

  Maybe Standard() {
    const std::string& type = context_.node->op_type;
    if (type == "Constant") return Constant();
    if (Arg(0) == kNone) return std::nullopt;
    if (type == "Identity") return Arg(0);
    if (type == "Mul") return Binary(&TermStore::Mul);
    if (type == "Add") return Binary(&TermStore::Add);
    if (type == "Sum" && context_.args.size() == 2) return Binary(&TermStore::Add);
    if (type == "Min" && context_.args.size() == 2) return Binary(&TermStore::Min);
    if (type == "Max" && context_.args.size() == 2) return Binary(&TermStore::Max);
    if (type == "Clip") return Clip();
    if (type == "Sub") return Sub();
    if (type == "Div") return Div();
    if (type == "Pow") return Pow();
    if (type == "Neg") return terms_.Neg(Arg(0));
    if (type == "Reciprocal") return terms_.Recip(Arg(0));
    if (type == "Sqrt") return terms_.Sqrt(Arg(0));
    if (type == "Exp") return terms_.Exp(Arg(0));
    if (type == "Sigmoid") return terms_.Sigmoid(Arg(0));
    if (type == "LeakyRelu") return LeakyRelu();
    if (type == "Cast") return Cast();
    if (type == "CastLike") return CastLike();
    if (type == "ReduceMean" || type == "ReduceSum" || type == "ReduceSumSquare" ||
        type == "ReduceL2") {
      return Reduce();
    }
    if (type == "SplitToSequence") return SplitToSequence();
    if (type == "SequenceAt") return SequenceAt();
    if (type == "Softmax") return Softmax();
    if (type == "GroupNormalization") return GroupNormalization();
    if (type == "Slice") return Slice();
    if (type == "Concat") return Concat();
    if (type == "Shape") return ShapeOf();
    if (type == "Gather") return Gather();
    if (type == "Unsqueeze") return Unsqueeze();
    if (type == "Squeeze") return Squeeze();
    if (type == "Reshape" || type == "Expand") return Reshape();
    if (type == "Transpose") return Transpose();
    return std::nullopt;
  }

  Maybe Constant() {
    if (const auto value = Attr("value")) {
      const auto* tensor = std::get_if<Tensor>(&*value);
      return tensor != nullptr ? ConstantTerm(terms_, *tensor) : std::nullopt;
    }
    if (const auto value = Attr("value_float")) {
      if (const auto* ref = std::get_if<AttributeRef>(&*value)) {
        return terms_.Capture(ref->name, DType::kF32);
      }
      if (const auto* number = std::get_if<float>(&*value)) {
        return terms_.Scalar(*number, DType::kF32);
      }
    }
    if (const auto value = Attr("value_int")) {
      if (const auto* ref = std::get_if<AttributeRef>(&*value)) {
        return terms_.Capture(ref->name, DType::kI64);
      }
      if (const auto* number = std::get_if<int64_t>(&*value)) {
        return terms_.Scalar(static_cast<double>(*number), DType::kI64);
      }
    }
    if (const auto value = Attr("value_ints")) {
      if (const auto* ints = std::get_if<std::vector<int64_t>>(&*value)) {
        return ints->size() == 1 ? terms_.Scalar(static_cast<double>((*ints)[0]), DType::kI64, 1)
                                 : terms_.Ints(*ints, DType::kI64);
      }
    }
    return std::nullopt;
  }

  Maybe Sub() {
    if (Arg(1) == kNone) return std::nullopt;
    const TermId a = Operand(Arg(0), Arg(1));
    return Apply(&TermStore::Add, a, terms_.Neg(Operand(Arg(1), Arg(0))));
  }

  Maybe Div() {
    if (Arg(1) == kNone) return std::nullopt;
    const Term& a = At(Arg(0));
    const Term& b = At(Arg(1));
    if (!IsFloat(OutputDtype(0))) {
      constexpr double kExact = 2147483648.0;  // 2^31: quotients of smaller integers are exact
      const bool folds = a.kind == TermKind::kScalar && b.kind == TermKind::kScalar &&
                         b.scalar != 0 && std::abs(a.scalar) < kExact &&
                         std::abs(b.scalar) < kExact;
      if (!folds) return std::nullopt;
      return terms_.Scalar(std::trunc(a.scalar / b.scalar), a.dtype,
                           static_cast<int>(std::max(a.numbers[0], b.numbers[0])));
    }
    return terms_.Mul(Operand(Arg(0), Arg(1)), terms_.Recip(Operand(Arg(1), Arg(0))));
  }

  // A bound that is left out does not bound. Clip is Min(Max(x, low), high), also where low > high.
  Maybe Clip() {
    if (context_.opset < 11) return std::nullopt;
    TermId term = Arg(0);
    for (const size_t i : {size_t{1}, size_t{2}}) {
      const TermId bound = Arg(i);
      if (bound == kNone) continue;
      const TermKind kind = At(bound).kind;
      const bool negated = At(bound).IsOp(op::kNeg) && StripNeg(bound).kind == TermKind::kCapture;
      if (kind != TermKind::kScalar && kind != TermKind::kCapture && !negated) return std::nullopt;
      const TermId scalar = Operand(bound, term);
      term = i == 1 ? terms_.Max(scalar, term) : terms_.Min(scalar, term);
    }
    return term;
  }

  Maybe Pow() {
    if (Arg(1) == kNone || !IsFloat(At(Arg(0)).dtype)) return std::nullopt;
    return terms_.Pow(Arg(0), Operand(Arg(1), Arg(0)));
  }

  // Of a number: before opset 12 that is how a function turns a float attribute into one.
  Maybe LeakyRelu() {
    const Term& x = At(Arg(0));
    if (x.kind != TermKind::kScalar || x.dtype != DType::kF32) return std::nullopt;
    return x.scalar >= 0 ? Arg(0) : terms_.Mul(AttributeTerm("alpha", DType::kF32, 0.01F), Arg(0));
  }

  Maybe Cast() {
    const auto to = static_cast<DType>(AttrOr<int64_t>("to", 0));
    // What becomes of numbers that an 8-bit type does not hold.
    if (AttrOr<int64_t>("saturate", 1) != 1 || Attr("round_mode")) return std::nullopt;
    return to != DType::kUndefined ? Maybe(terms_.Cast(Arg(0), to)) : std::nullopt;
  }

  Maybe CastLike() {
    if (Arg(1) == kNone) return std::nullopt;
    const DType to = At(Arg(1)).dtype;
    return to != DType::kUndefined ? Maybe(terms_.Cast(Arg(0), to)) : std::nullopt;
  }

  // Only a reduction over exactly the last axis that keeps it has a canonical form.
  Maybe Reduce() {
    if (AttrOr<int64_t>("keepdims", 1) != 1 || !HasAttrOrInput("axes", 1)) return std::nullopt;
    const auto axes = AttrOrInput("axes", 1);
    if (!axes || axes->size() != 1 || NegativeAxis((*axes)[0], Arg(0)) != -1) return std::nullopt;
    const std::string& type = context_.node->op_type;
    if (type == "ReduceMean") return terms_.Mean(Arg(0));
    const TermId summand = type == "ReduceSum" ? Arg(0) : terms_.Mul(Arg(0), Arg(0));
    const TermId sum = terms_.Sum(summand, Length(Arg(0), -1));
    return type == "ReduceL2" ? terms_.Sqrt(sum) : sum;
  }

  // Attributes become operands, so that a text can capture them. Before opset 21 the scale has one
  // element for each group.
  Maybe GroupNormalization() {
    if (context_.opset < 21 || context_.args.size() != 3) return std::nullopt;
    const TermId epsilon = AttributeTerm("epsilon", DType::kF32, 1e-5F);
    const TermId groups = AttributeTerm("num_groups", DType::kI64, 0);
    const auto stash = AttrOr<int64_t>("stash_type", 1);
    return terms_.Op("GroupNorm", At(Arg(0)).dtype, {Arg(0), Arg(1), Arg(2), epsilon, groups},
                     {stash});
  }

  // A number, or the capture that a reference to an attribute of the text stands for.
  TermId AttributeTerm(std::string_view name, DType dtype, double otherwise) {
    const auto value = Attr(name);
    if (!value) return terms_.Scalar(otherwise, dtype);
    if (const auto* ref = std::get_if<AttributeRef>(&*value)) {
      return terms_.Capture(ref->name, dtype);
    }
    if (const auto* number = std::get_if<float>(&*value)) return terms_.Scalar(*number, dtype);
    const auto* integer = std::get_if<int64_t>(&*value);
    return terms_.Scalar(integer != nullptr ? static_cast<double>(*integer) : otherwise, dtype);
  }

  // Along the last axis. Before opset 13 all axes from `axis` on make one row.
  Maybe Softmax() {
    const int64_t axis = AttrOr<int64_t>("axis", context_.opset < 13 ? 1 : -1);
    if (NegativeAxis(axis, Arg(0)) != -1) return std::nullopt;
    return terms_.Op("Softmax", At(Arg(0)).dtype, {Arg(0)});
  }

  Maybe Slice() {
    if (context_.opset < 10) return std::nullopt;  // bounds are attributes there; not a form in use
    if (auto captured = CapturedSlice()) return captured;
    const auto starts = Arg(1) != kNone ? AsInts(terms_, Arg(1)) : std::nullopt;
    const auto ends = Arg(2) != kNone ? AsInts(terms_, Arg(2)) : std::nullopt;
    if (!starts || !ends || starts->size() != ends->size()) return std::nullopt;
    std::vector<int64_t> axes(starts->size());
    for (size_t i = 0; i < axes.size(); ++i) axes[i] = static_cast<int64_t>(i);
    if (Arg(3) != kNone) {
      const auto given = AsInts(terms_, Arg(3));
      if (!given || given->size() != starts->size()) return std::nullopt;
      axes = *given;
    }
    if (Arg(4) != kNone) {
      const auto steps = AsInts(terms_, Arg(4));
      if (!steps || steps->size() != starts->size()) return std::nullopt;
      if (steps->size() == 1 && (*steps)[0] > 1) {
        return StrideOf(Arg(0), axes[0], (*starts)[0], (*ends)[0], (*steps)[0]);
      }
      if (std::any_of(steps->begin(), steps->end(), [](int64_t s) { return s != 1; })) {
        return std::nullopt;
      }
    }
    TermId term = Arg(0);
    for (size_t i = 0; i < axes.size(); ++i) {
      const int64_t axis = NegativeAxis(axes[i], Arg(0));
      const auto sliced = SliceAxis(term, axis, Length(Arg(0), axis), (*starts)[i], (*ends)[i]);
      if (!sliced) return std::nullopt;
      term = *sliced;
    }
    return term;
  }

  // In function texts: the first or the last elements of the last axis, as many as an attribute says.
  Maybe CapturedSlice() {
    const auto is_capture = [&](TermId term) {
      return term != kNone && At(term).kind == TermKind::kCapture;
    };
    if (!is_capture(Arg(1)) && !is_capture(Arg(2))) return std::nullopt;
    const auto axes = Arg(3) != kNone ? AsInts(terms_, Arg(3)) : std::nullopt;
    if (!axes || *axes != std::vector<int64_t>{-1} || Arg(4) != kNone) return std::nullopt;
    const DType dtype = At(Arg(0)).dtype;
    if (is_capture(Arg(2))) {
      if (!terms_.IsScalar(Arg(1), 0)) return std::nullopt;
      return terms_.Op(op::kHead, dtype, {Arg(0), Arg(2)});
    }
    const auto end = Arg(2) != kNone ? AsInts(terms_, Arg(2)) : std::nullopt;
    if (!end || (*end)[0] < std::numeric_limits<int32_t>::max()) return std::nullopt;
    return terms_.Op(op::kTail, dtype, {Arg(0), Arg(1)});
  }

  // A function text promises that the step divides the length.
  Maybe StrideOf(TermId term, int64_t axis, int64_t begin, int64_t end, int64_t step) {
    if (NegativeAxis(axis, term) != -1 || begin < 0 || begin >= step) return std::nullopt;
    const int64_t length = Length(term, -1);
    if (context_.env == nullptr && (length < 0 || length % step != 0)) return std::nullopt;
    const bool to_the_end =
        end >= std::numeric_limits<int32_t>::max() || (length >= 0 && end > length - step + begin);
    return to_the_end ? Maybe(terms_.Stride(term, begin, step)) : std::nullopt;
  }

  Maybe SliceAxis(TermId term, int64_t axis, int64_t length, int64_t begin, int64_t end) {
    if (begin == 0 && end >= std::numeric_limits<int32_t>::max()) return term;  // all of it
    if (axis >= 0 || length < 0) return std::nullopt;
    if (begin < 0) begin += length;
    if (end < 0) end += length;
    begin = std::clamp<int64_t>(begin, 0, length);
    end = std::clamp<int64_t>(end, 0, length);
    return PartOrSlice(term, axis, length, begin, end);
  }

  TermId PartOrSlice(TermId term, int64_t axis, int64_t length, int64_t begin, int64_t end) {
    const int64_t width = end - begin;
    if (width == length) return term;
    if (const TermId joined = InsideConcat(term, axis, begin, end); joined != kNone) return joined;
    if (length == 2 && axis == -1 && At(term).kind == TermKind::kOp &&
        At(term).text.starts_with("::Reshape")) {
      if (const TermId merged = MergedLast(term); merged != kNone) {
        return terms_.Unsqueeze(terms_.Stride(merged, begin, 2), {-1});
      }
    }
    if (width > 0 && length % width == 0 && begin % width == 0) {
      return terms_.Part(term, axis, begin / width, length / width);
    }
    return terms_.Slice(term, axis, begin, end);
  }

  // Pairs on an axis of their own, as one axis again.
  TermId MergedLast(TermId term) {
    const Shape* pairs = canon_.FindShape(term);
    if (pairs == nullptr || pairs->size() < 2 || !(*pairs)[pairs->size() - 2].is_known()) {
      return kNone;
    }
    Shape shape(pairs->begin(), pairs->end() - 1);
    shape.back().value *= 2;
    const TermId merged = terms_.MergeLast(term);
    canon_.SetShape(merged, shape);
    return merged;
  }

  // A slice of a Concat that lies in one of its operands, or holds exactly some of them.
  TermId InsideConcat(TermId term, int64_t axis, int64_t begin, int64_t end) {
    const Term concat = At(term);
    if (!concat.IsOp(op::kConcat) || concat.numbers[0] != axis) return kNone;
    std::vector<TermId> inside;
    int64_t at = 0;
    for (const TermId arg : concat.args) {
      const int64_t length = Length(arg, axis);
      if (length < 0) return kNone;
      if (begin >= at && end <= at + length && end - begin < length) {
        return PartOrSlice(arg, axis, length, begin - at, end - at);
      }
      if (at >= begin && at + length <= end) inside.push_back(arg);
      at += length;
      const bool cut = (at > begin && at - length < begin) || (at > end && at - length < end);
      if (cut) return kNone;
    }
    return inside.empty() ? kNone : terms_.Concat(std::move(inside), axis);
  }

  std::optional<std::vector<TermId>> Split() {
    const auto count = static_cast<int64_t>(context_.node->outputs.size());
    if (Arg(0) == kNone || count == 0) return std::nullopt;
    const int64_t axis = NegativeAxis(AttrOr<int64_t>("axis", 0), Arg(0));
    if (axis >= 0) return std::nullopt;
    const int64_t length = Length(Arg(0), axis);
    std::vector<TermId> parts;
    if (HasAttrOrInput("split", 1)) {
      const auto sizes = AttrOrInput("split", 1);
      if (!sizes || static_cast<int64_t>(sizes->size()) != count) return std::nullopt;
      int64_t total = 0;
      for (int64_t size : *sizes) total += size;
      if (length >= 0 && total != length) return std::nullopt;
      int64_t begin = 0;
      for (int64_t size : *sizes) {
        parts.push_back(PartOrSlice(Arg(0), axis, total, begin, begin + size));
        begin += size;
      }
      return parts;
    }
    // Without sizes the parts are equal. From opset 18 the last may be shorter, so the length must
    // be known to divide; a function text (no types) promises that it does.
    if (context_.opset >= 18 && context_.env == nullptr && (length < 0 || length % count != 0)) {
      return std::nullopt;
    }
    for (int64_t i = 0; i < count; ++i) {
      const int64_t width = length >= 0 ? length / count : -1;
      parts.push_back(width > 0 ? PartOrSlice(Arg(0), axis, length, i * width, (i + 1) * width)
                                : terms_.Part(Arg(0), axis, i, count));
    }
    return parts;
  }

  // Pieces along a negative axis: `numbers` are the axis and their lengths.
  Maybe SplitToSequence() {
    const int64_t axis = NegativeAxis(AttrOr<int64_t>("axis", 0), Arg(0));
    const int64_t length = Length(Arg(0), axis);
    if (axis >= 0 || length <= 0 || Arg(1) == kNone) return std::nullopt;
    const auto split = AsInts(terms_, Arg(1));
    if (!split) return std::nullopt;
    std::vector<int64_t> numbers = {axis};
    if (At(Arg(1)).kind == TermKind::kScalar && At(Arg(1)).numbers[0] == 0) {
      const int64_t size = (*split)[0];
      if (size <= 0) return std::nullopt;
      for (int64_t at = 0; at < length; at += size) numbers.push_back(std::min(size, length - at));
    } else {
      numbers.insert(numbers.end(), split->begin(), split->end());
    }
    return terms_.Op("SplitToSequence", At(Arg(0)).dtype, {Arg(0)}, std::move(numbers));
  }

  Maybe SequenceAt() {
    const Term sequence = At(Arg(0));
    if (!sequence.IsOp("SplitToSequence") || Arg(1) == kNone) return std::nullopt;
    const auto index = AsInts(terms_, Arg(1));
    const auto count = static_cast<int64_t>(sequence.numbers.size()) - 1;
    if (!index || index->size() != 1) return std::nullopt;
    const int64_t at = (*index)[0] < 0 ? (*index)[0] + count : (*index)[0];
    if (at < 0 || at >= count) return std::nullopt;
    int64_t begin = 0;
    for (int64_t i = 0; i < at; ++i) begin += sequence.numbers[i + 1];
    const TermId data = sequence.args[0];
    const int64_t axis = sequence.numbers[0];
    return PartOrSlice(data, axis, Length(data, axis), begin, begin + sequence.numbers[at + 1]);
  }

  Maybe Concat() {
    std::vector<TermId> args(context_.args.begin(), context_.args.end());
    if (std::find(args.begin(), args.end(), kNone) != args.end()) return std::nullopt;
    if (auto list = ConcatInts(args)) return list;
    int64_t axis = AttrOr<int64_t>("axis", 0);
    for (size_t i = 0; i < args.size() && axis >= 0; ++i) axis = NegativeAxis(axis, args[i]);
    if (axis >= 0 && OutputShape() != nullptr) {
      axis -= static_cast<int64_t>(OutputShape()->size());
    }
    if (axis >= 0) return std::nullopt;
    return terms_.Concat(std::move(args), axis);
  }

  Maybe ConcatInts(const std::vector<TermId>& args) {
    std::vector<int64_t> all;
    for (TermId arg : args) {
      if (IsFloat(At(arg).dtype)) return std::nullopt;
      const auto ints = AsInts(terms_, arg);
      if (!ints || Rank(arg) != 1) return std::nullopt;
      all.insert(all.end(), ints->begin(), ints->end());
    }
    return all.size() == 1 ? terms_.Scalar(static_cast<double>(all[0]), At(args[0]).dtype, 1)
                           : terms_.Ints(std::move(all), At(args[0]).dtype);
  }

  Maybe ShapeOf() {
    const Shape* shape = canon_.FindShape(Arg(0));
    if (shape == nullptr) return std::nullopt;
    const auto rank = static_cast<int64_t>(shape->size());
    int64_t start = AttrOr<int64_t>("start", 0);
    int64_t end = AttrOr<int64_t>("end", rank);
    if (start < 0) start += rank;
    if (end < 0) end += rank;
    start = std::clamp<int64_t>(start, 0, rank);
    end = std::clamp<int64_t>(end, start, rank);
    std::vector<int64_t> dims;
    for (int64_t i = start; i < end; ++i) {
      if (!(*shape)[i].is_known()) return std::nullopt;
      dims.push_back((*shape)[i].value);
    }
    if (dims.size() == 1) return terms_.Scalar(static_cast<double>(dims[0]), DType::kI64, 1);
    return terms_.Ints(std::move(dims), DType::kI64);
  }

  // Picking from a constant list, or one dimension out of a shape.
  Maybe Gather() {
    if (Arg(1) == kNone) return std::nullopt;
    const auto index = AsInts(terms_, Arg(1));
    if (!index || index->size() != 1) return std::nullopt;
    const int64_t picked = AttrOr<int64_t>("axis", 0);
    if (const Term& pairs = At(Arg(0)); pairs.IsOp(op::kSplitLast)) {
      const int64_t width = pairs.numbers[0];
      const int64_t at = (*index)[0] < 0 ? (*index)[0] + width : (*index)[0];
      const bool drops_axis = At(Arg(1)).kind == TermKind::kScalar && At(Arg(1)).numbers[0] == 0;
      if (NegativeAxis(picked, Arg(0)) != -1 || !drops_axis || at < 0 || at >= width) {
        return std::nullopt;
      }
      return terms_.Stride(pairs.args[0], at, width);
    }
    if (picked != 0) return std::nullopt;
    const int rank =
        At(Arg(1)).kind == TermKind::kScalar ? static_cast<int>(At(Arg(1)).numbers[0]) : 1;
    const Term& data = At(Arg(0));
    if (data.kind == TermKind::kInts) {
      const auto size = static_cast<int64_t>(data.numbers.size());
      const int64_t at = (*index)[0] < 0 ? (*index)[0] + size : (*index)[0];
      if (at < 0 || at >= size) return std::nullopt;
      return terms_.Scalar(static_cast<double>(data.numbers[at]), data.dtype, rank);
    }
    if (data.kind == TermKind::kOp && data.text.starts_with("::Shape") && data.args.size() == 1) {
      const TermId of = data.args[0];
      if (data.text != "::Shape") return std::nullopt;  // with start or end
      const int64_t axis = NegativeAxis((*index)[0], of);
      const int64_t length = Length(of, axis);
      if (length >= 0) return terms_.Scalar(static_cast<double>(length), DType::kI64, rank);
    }
    return std::nullopt;
  }

  Maybe Unsqueeze() {
    const auto axes = AttrOrInput("axes", 1);
    if (!axes) return std::nullopt;
    const Term& data = At(Arg(0));
    if (data.kind == TermKind::kScalar) {
      return terms_.Scalar(data.scalar, data.dtype,
                           static_cast<int>(data.numbers[0] + static_cast<int64_t>(axes->size())));
    }
    const auto rank = Rank(Arg(0));
    std::vector<int64_t> negative;
    for (int64_t axis : *axes) {
      if (axis >= 0 && !rank) return std::nullopt;
      negative.push_back(axis < 0 ? axis : axis - *rank - static_cast<int64_t>(axes->size()));
    }
    std::sort(negative.begin(), negative.end());
    return terms_.Unsqueeze(Arg(0), std::move(negative));
  }

  Maybe Squeeze() {
    const Term& data = At(Arg(0));
    const auto axes = AttrOrInput("axes", 1);
    if (data.kind == TermKind::kScalar) {
      const int64_t dropped = HasAttrOrInput("axes", 1)
                                  ? (axes ? static_cast<int64_t>(axes->size()) : -1)
                                  : data.numbers[0];
      if (dropped < 0 || dropped > data.numbers[0]) return std::nullopt;
      return terms_.Scalar(data.scalar, data.dtype, static_cast<int>(data.numbers[0] - dropped));
    }
    if (!axes) return std::nullopt;
    std::vector<int64_t> negative;
    for (int64_t axis : *axes) {
      negative.push_back(NegativeAxis(axis, Arg(0)));
      if (negative.back() >= 0) return std::nullopt;
    }
    std::sort(negative.begin(), negative.end());
    return terms_.Squeeze(Arg(0), std::move(negative));
  }

  // A Reshape or Expand that changes nothing is its input.
  Maybe Reshape() {
    if (SameShapeAsOutput(Arg(0))) return Arg(0);
    const Term& data = At(Arg(0));
    if (data.kind == TermKind::kCapture) return Arg(0);
    if (context_.node->op_type == "Reshape") {
      if (auto pairs = CutLastAxis()) return pairs;
      if (auto merged = MergePairs()) return merged;
    }
    if (data.kind == TermKind::kScalar && context_.node->op_type == "Reshape" && Arg(1) != kNone) {
      if (const auto dims = AsInts(terms_, Arg(1))) {
        return terms_.Scalar(data.scalar, data.dtype, static_cast<int>(dims->size()));
      }
    }
    return std::nullopt;
  }

  // Whether the first `count` axes of both are of the same lengths. A Reshape keeps the number of
  // elements, so one axis may be unknown where all others are the same.
  static bool SameLeading(const Shape& a, const Shape& b, size_t count) {
    size_t open = 0;
    for (size_t i = 0; i < count; ++i) open += a[i].SameAs(b[i]) ? 0 : 1;
    if (open == 0) return true;
    if (open > 1) return false;
    for (size_t i = 0; i < count; ++i) {
      if (a[i].is_known() && b[i].is_known() && a[i].value != b[i].value) return false;
    }
    return true;
  }

  // [..., n * width] to [..., n, width].
  Maybe CutLastAxis() {
    const Shape* in = canon_.FindShape(Arg(0));
    const Shape* out = OutputShape();
    if (in == nullptr || out == nullptr || in->empty() || out->size() != in->size() + 1) {
      return std::nullopt;
    }
    const size_t last = in->size() - 1;
    if (!in->back().is_known() || !out->back().is_known() || !(*out)[last].is_known()) {
      return std::nullopt;
    }
    if ((*out)[last].value * out->back().value != in->back().value || out->back().value < 2 ||
        !SameLeading(*in, *out, last)) {
      return std::nullopt;
    }
    return terms_.SplitLast(Arg(0), out->back().value);
  }

  // [..., n, 2], made of two columns, to [..., 2 * n].
  Maybe MergePairs() {
    const Term& data = At(Arg(0));
    const bool is_pair = data.IsOp(op::kConcat) && data.numbers[0] == -1 && data.args.size() == 2;
    const bool is_repeat = data.kind == TermKind::kOp && data.args.size() == 2 &&
                           (data.text == "::Expand" || data.text == "::Tile");
    if (!is_pair && !is_repeat) return std::nullopt;
    const std::vector<TermId> args = data.args;
    if (context_.env != nullptr) {
      if (!is_pair || !StripNeg(args[0]).IsColumn() || !StripNeg(args[1]).IsColumn()) {
        return std::nullopt;
      }
      return terms_.Interleave(terms_.Squeeze(args[0], {-1}), terms_.Squeeze(args[1], {-1}));
    }
    const Shape* in = canon_.FindShape(Arg(0));
    const Shape* out = OutputShape();
    if (in == nullptr || out == nullptr || in->size() < 2 || out->size() + 1 != in->size()) {
      return std::nullopt;
    }
    const size_t last = out->size() - 1;
    if (in->back().value != 2 || !(*in)[last].is_known() ||
        out->back().value != 2 * (*in)[last].value || !SameLeading(*in, *out, last)) {
      return std::nullopt;
    }
    const auto rank = static_cast<int64_t>(in->size());
    const TermId first = ColumnOfRank(args[0], rank);
    const TermId second = is_pair ? ColumnOfRank(args[1], rank) : first;
    if (first == kNone || second == kNone) return std::nullopt;
    return terms_.Interleave(first, second);
  }

  Maybe Transpose() {
    const auto perm = AttrOr<std::vector<int64_t>>("perm", {});
    if (perm.empty()) return std::nullopt;
    for (size_t i = 0; i < perm.size(); ++i) {
      if (perm[i] != static_cast<int64_t>(i)) return std::nullopt;
    }
    return Arg(0);
  }

  // In inference Dropout passes its input on; in training it is random.
  std::vector<TermId> DropoutOutputs() {
    std::vector<TermId> outputs = Opaque();
    const TermId training = Arg(2);
    const bool inference = context_.opset < 12 || training == kNone || terms_.IsScalar(training, 0);
    if (inference && Arg(0) != kNone && !outputs.empty()) outputs[0] = Arg(0);
    return outputs;
  }

  static void AppendValue(std::string& text, const Attribute::Value& value) {
    if (const auto* i = std::get_if<int64_t>(&value)) {
      text += std::to_string(*i);
    } else if (const auto* f = std::get_if<float>(&value)) {
      char buffer[32];
      std::snprintf(buffer, sizeof(buffer), "%a", static_cast<double>(*f));
      text += buffer;
    } else if (const auto* s = std::get_if<std::string>(&value)) {
      text += '"' + *s + '"';
    } else if (const auto* ints = std::get_if<std::vector<int64_t>>(&value)) {
      for (int64_t n : *ints) text += std::to_string(n) + ",";
    } else if (const auto* floats = std::get_if<std::vector<float>>(&value)) {
      for (float n : *floats) AppendValue(text, Attribute::Value{n}), text += ",";
    } else if (const auto* strings = std::get_if<std::vector<std::string>>(&value)) {
      for (const std::string& n : *strings) text += '"' + n + "\",";
    } else if (const auto* ref = std::get_if<AttributeRef>(&value)) {
      text += "@" + ref->name;
    }
  }

  // Whether the attribute says what holds without it, at every version of the operator.
  static bool IsDefault(const Node& node, const Attribute& attribute) {
    static const std::map<std::string_view, std::map<std::string_view, Attribute::Value>> defaults =
        {{"ArgMax",
          {{"axis", int64_t{0}}, {"keepdims", int64_t{1}}, {"select_last_index", int64_t{0}}}},
         {"ArgMin",
          {{"axis", int64_t{0}}, {"keepdims", int64_t{1}}, {"select_last_index", int64_t{0}}}},
         {"CumSum", {{"exclusive", int64_t{0}}, {"reverse", int64_t{0}}}},
         {"Elu", {{"alpha", 1.0F}}},
         {"Gather", {{"axis", int64_t{0}}}},
         {"GatherElements", {{"axis", int64_t{0}}}},
         {"GatherND", {{"batch_dims", int64_t{0}}}},
         {"Gelu", {{"approximate", std::string("none")}}},
         {"Gemm",
          {{"alpha", 1.0F}, {"beta", 1.0F}, {"transA", int64_t{0}}, {"transB", int64_t{0}}}},
         {"LeakyRelu", {{"alpha", 0.01F}}},
         {"Mod", {{"fmod", int64_t{0}}}},
         {"ReduceMax", {{"keepdims", int64_t{1}}}},
         {"ReduceMin", {{"keepdims", int64_t{1}}}},
         {"ReduceProd", {{"keepdims", int64_t{1}}}},
         {"ReduceL1", {{"keepdims", int64_t{1}}}},
         {"ReduceL2", {{"keepdims", int64_t{1}}}},
         {"ReduceLogSum", {{"keepdims", int64_t{1}}}},
         {"ReduceLogSumExp", {{"keepdims", int64_t{1}}}},
         {"ReduceMean", {{"keepdims", int64_t{1}}}},
         {"ReduceSum", {{"keepdims", int64_t{1}}}},
         {"Reshape", {{"allowzero", int64_t{0}}}},
         {"TopK", {{"largest", int64_t{1}}, {"sorted", int64_t{1}}}},
         {"Trilu", {{"upper", int64_t{1}}}}};
    const auto op = node.domain.empty() ? defaults.find(node.op_type) : defaults.end();
    if (op == defaults.end()) return false;
    const auto value = op->second.find(attribute.name);
    return value != op->second.end() && value->second == attribute.value;
  }

  // An operator without rules: itself, with its attributes in order of their names.
  std::vector<TermId> Generic() {
    const Node& node = *context_.node;
    // What a node without operands gives stands in its attributes, and not every kind of attribute
    // is held here (a sparse constant).
    if (context_.args.empty()) return Opaque();
    std::map<std::string, Attribute::Value> attributes;
    for (const Attribute& attribute : node.attributes) {
      if (std::holds_alternative<Tensor>(attribute.value)) return Opaque();
      if (IsDefault(node, attribute)) continue;
      attributes[attribute.name] = *Attr(attribute.name);
    }
    std::string text = node.domain + "::" + node.op_type;
    if (!node.overload.empty()) text += ":" + node.overload;
    for (const auto& [name, value] : attributes) {
      text += " " + name + "=";
      AppendValue(text, value);
    }
    // Before opset 18 only the number of outputs says how long the parts of a Split are.
    if (node.op_type == "Split") text += " of " + std::to_string(node.outputs.size());
    const std::vector<TermId> args = BroadcastOperands();
    std::vector<TermId> outputs;
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      outputs.push_back(
          terms_.Op(i == 0 ? text : text + "#" + std::to_string(i), OutputDtype(i), args));
    }
    return outputs;
  }

  // The operands of an operator that broadcasts, with scalars of the lowest rank that means the same.
  std::vector<TermId> BroadcastOperands() const {
    static const std::set<std::string_view> broadcasting = {
        "Where", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Equal", "Mod", "PRelu"};
    std::vector<TermId> args(context_.args.begin(), context_.args.end());
    if (!context_.node->domain.empty() || !broadcasting.contains(context_.node->op_type))
      return args;
    std::optional<int64_t> rank;
    for (const TermId arg : args) {
      const bool is_scalar = arg == kNone || At(arg).kind == TermKind::kScalar;
      if (!is_scalar) rank = std::max(rank.value_or(0), Rank(arg).value_or(0));
    }
    for (TermId& arg : args) {
      if (arg == kNone || At(arg).kind != TermKind::kScalar) continue;
      if (rank && At(arg).numbers[0] <= *rank) arg = terms_.Scalar(At(arg).scalar, At(arg).dtype);
    }
    return args;
  }

  Canonicalizer& canon_;
  TermStore& terms_;
  const NodeContext& context_;
};

}  // namespace

std::vector<TermId> ApplyNodeRules(Canonicalizer& canonicalizer, const NodeContext& context) {
  return NodeRules(canonicalizer, context).Run();
}

}  // namespace liger
