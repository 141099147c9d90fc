#include "pattern/matcher.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <span>

#include "pattern/own_match.h"

namespace liger {
namespace {

// Arguments of an operator in a pattern, at most.
constexpr size_t kMaxArgs = 8;

// How far below the place where structures part the rare operator is looked for.
constexpr int kAnchorDepth = 4;

// Constants that stand in pattern texts: 0, 1, 0.5, 3, ... must be met exactly, others (sqrt(2),
// 0.044715) up to one unit in the last place of the graph's dtype, since exporters form them in
// different ways.
bool SameConstant(const Term& pattern, const Term& graph) {
  const double wanted = RoundTo(graph.dtype, pattern.scalar);
  if (wanted == graph.scalar) return true;
  constexpr double kGrid = 8;
  if (!IsFloat(graph.dtype) || std::trunc(wanted * kGrid) == wanted * kGrid) return false;
  const int bits = graph.dtype == DType::kF64   ? 52
                   : graph.dtype == DType::kF32 ? 23
                   : graph.dtype == DType::kF16 ? 10
                                                : 7;
  const double unit = std::ldexp(1.0, std::ilogb(wanted) - bits);
  return std::abs(wanted - graph.scalar) <= unit;
}

// One thing still to be shown: that `pattern` meets `graph`, or, with `pattern` kNone, that the
// factors of a product do. Goals are a list whose nodes live in the frames of the search that still
// need them.
struct Goal {
  TermId pattern = kNone;
  TermId graph = kNone;
  const Goal* next = nullptr;
  std::span<const TermId> pattern_factors;
  std::span<const TermId> graph_factors;
  // Of a product: the pattern's term and all factors of the graph's.
  TermId product = kNone;
  std::span<const TermId> cut;

  static Goal Of(TermId pattern, TermId graph, const Goal* next) {
    Goal goal;
    goal.pattern = pattern;
    goal.graph = graph;
    goal.next = next;
    return goal;
  }
};

class Search {
 public:
  Search(const GraphView& view, GuardEvaluator& guards, const PatternInstance& instance,
         Attempt* attempt)
      : view_(view),
        terms_(view.terms()),
        guards_(guards),
        instance_(instance),
        attempt_(attempt) {}

  std::optional<Binding> Run(TermId root) {
    const Goal goal = Goal::Of(instance_.root(), root, nullptr);
    if (!Solve(&goal)) return std::nullopt;
    return std::move(result_);
  }

 private:
  // Depth is bounded by the size of the pattern, not by that of the graph.
  bool Solve(const Goal* goal) {
    if (goal == nullptr) return Finish();
    return goal->pattern != kNone ? SolveTerm(*goal) : SolveFactors(*goal);
  }

  bool SolveTerm(const Goal& goal) {
    const Term& p = terms_[goal.pattern];
    const Term& g = terms_[goal.graph];
    if (const auto bound = bound_.find(goal.pattern); bound != bound_.end()) {
      if (bound->second == goal.graph) return Solve(goal.next);
      return Fail(goal, [&] {
        return Name(goal.pattern) + " is " + view_.Describe(bound->second) + " in one place and " +
               view_.Describe(goal.graph) + " in another";
      });
    }
    if (p.kind == TermKind::kScalar) {
      if (g.kind == TermKind::kScalar && IsConstant(p, g)) return Solve(goal.next);
      return Fail(goal, [&] {
        return "expected the constant " + terms_.ToString(goal.pattern) + ", found " +
               view_.Describe(goal.graph);
      });
    }
    if (p.kind == TermKind::kInts) {
      if (g.kind == TermKind::kInts && p.numbers == g.numbers && p.dtype == g.dtype) {
        return Solve(goal.next);
      }
      return Fail(goal, [&] {
        return "expected the constant " + terms_.ToString(goal.pattern) + ", found " +
               view_.Describe(goal.graph);
      });
    }
    if (p.kind == TermKind::kCapture) return SolveCapture(goal);
    if (p.IsOp(op::kNeg) && terms_[p.args[0]].kind == TermKind::kCapture &&
        g.kind == TermKind::kScalar) {
      return BindCapture(goal, terms_[p.args[0]], g.dtype, -g.scalar);
    }
    if (p.IsOp(op::kRecip) && terms_[p.args[0]].kind == TermKind::kCapture &&
        g.kind == TermKind::kScalar) {
      return BindReciprocal(goal, terms_[p.args[0]], g);
    }
    if (p.IsOp(op::kHead) || p.IsOp(op::kTail)) return SolveHeadOrTail(goal);
    if (p.dtype != g.dtype) {
      return Fail(goal, [&] {
        return Name(goal.pattern) + " should be " + std::string(DTypeName(p.dtype)) + ", but " +
               view_.Describe(goal.graph) + " is " + std::string(DTypeName(g.dtype));
      });
    }
    if (p.kind == TermKind::kVariable) {
      return WithBound(goal.pattern, goal.graph, [&] { return Solve(goal.next); });
    }
    if (p.IsOp(op::kCast) && !g.IsOp(op::kCast)) {
      for (const TermId source : terms_.CastSources(goal.graph)) {
        const Goal inside = Goal::Of(p.args[0], source, goal.next);
        if (WithBound(goal.pattern, goal.graph, [&] { return Solve(&inside); })) return true;
      }
    }
    // A text does not know how long the axis is that it sums over.
    const bool any_length = p.IsOp(op::kSum) && p.numbers[0] < 0;
    if (g.kind != TermKind::kOp || p.text != g.text || (p.numbers != g.numbers && !any_length) ||
        p.args.size() != g.args.size()) {
      return Fail(goal, [&] {
        return "expected " + Name(goal.pattern) + ", found " + view_.Describe(goal.graph);
      });
    }
    ++score_;
    const bool is_anchor = IsAnchor(p);
    const TermId outer_anchor = anchor_;
    if (is_anchor) anchor_ = goal.graph;
    const bool solved = WithBound(goal.pattern, goal.graph, [&] {
      if (p.IsOp(op::kMul)) return SolveProduct(goal);
      if (p.IsOp(op::kAdd) || p.IsOp(op::kMin) || p.IsOp(op::kMax)) {
        return SolvePairs(p.args, g.args, goal.next) ||
               SolvePairs(p.args, Swapped(g.args), goal.next);
      }
      return SolvePairs(p.args, g.args, goal.next);
    });
    if (solved) return true;
    --score_;
    if (is_anchor) anchor_ = outer_anchor;
    return false;
  }

  // The body of an own op is its text: it holds this very number, as a scalar.
  bool IsConstant(const Term& p, const Term& g) const {
    if (!instance_.op->contract->is_own()) return SameConstant(p, g);
    return RoundTo(g.dtype, p.scalar) == g.scalar && p.numbers == g.numbers &&
           (IsFloat(g.dtype) || HoldsInteger(g.scalar));
  }

  bool SolveCapture(const Goal& goal) {
    const Term& p = terms_[goal.pattern];
    const Term& g = terms_[goal.graph];
    if (g.kind == TermKind::kScalar && g.numbers[0] != 0 && instance_.op->contract->is_own()) {
      return Fail(goal, [&] {
        return p.text + " is a constant of rank " + std::to_string(g.numbers[0]) +
               ", which may give the result more axes";
      });
    }
    if (g.kind != TermKind::kScalar) {
      return Fail(goal,
                  [&] { return p.text + " is not a constant: " + view_.Describe(goal.graph); });
    }
    return BindCapture(goal, p, g.dtype, g.scalar);
  }

  bool BindCapture(const Goal& goal, const Term& p, DType dtype, double scalar) {
    if (p.dtype != dtype) {
      return Fail(goal, [&] { return p.text + " has dtype " + std::string(DTypeName(dtype)); });
    }
    const AttributeSpec* spec = instance_.op->contract->FindAttribute(p.text);
    const bool is_int = spec != nullptr && instance_.op->contract->is_own()
                            ? spec->kind == AttributeKind::kInt
                            : !IsFloat(dtype);
    if (is_int && !HoldsInteger(scalar)) {
      return Fail(goal, [&] {
        return p.text + " = " + std::to_string(scalar) + " is no integer, or too large a one";
      });
    }
    if (is_int) return BindValue(goal, p, static_cast<int64_t>(scalar), goal.next);
    const auto value = static_cast<float>(scalar);
    if (!std::isfinite(scalar)) {
      return Fail(goal, [&] { return p.text + " is not finite"; });
    }
    if (static_cast<double>(value) != scalar) {
      return Fail(goal, [&] {
        return p.text + " = " + std::to_string(scalar) +
               " is not representable as a 32-bit attribute";
      });
    }
    return BindValue(goal, p, value, goal.next);
  }

  // A division by a constant, of which the graph's term holds the rounded reciprocal: the numbers
  // that have this one, whole ones first. Where the text has the capture twice, the other place
  // decides.
  bool BindReciprocal(const Goal& goal, const Term& p, const Term& g) {
    const double inverse = 1.0 / g.scalar;
    const auto nearest = static_cast<float>(inverse);
    const double candidates[] = {std::round(inverse), RoundTo(g.dtype, inverse), nearest,
                                 std::nextafter(nearest, std::numeric_limits<float>::max()),
                                 std::nextafter(nearest, std::numeric_limits<float>::lowest())};
    for (const double candidate : candidates) {
      const bool fits = std::isfinite(candidate) && RoundTo(g.dtype, candidate) == candidate &&
                        RoundTo(g.dtype, 1.0 / candidate) == g.scalar;
      if (fits && BindCapture(goal, p, g.dtype, candidate)) return true;
    }
    return Fail(goal, [&] { return "no number has the reciprocal " + std::to_string(g.scalar); });
  }

  bool BindValue(const Goal& goal, const Term& p, const Attribute::Value& value, const Goal* next) {
    if (const auto known = captured_.find(p.text); known != captured_.end()) {
      if (known->second == value) return Solve(next);
      return Fail(goal, [&] { return p.text + " has two different values"; });
    }
    captured_[p.text] = value;
    if (Solve(next)) return true;
    captured_.erase(p.text);
    return false;
  }

  // The first or the last elements of the last axis, however many: the number is captured.
  bool SolveHeadOrTail(const Goal& goal) {
    const Term& p = terms_[goal.pattern];
    const Term& g = terms_[goal.graph];
    const bool is_head = p.IsOp(op::kHead);
    const Shape* whole = g.args.size() == 1 ? view_.canonicalizer().FindShape(g.args[0]) : nullptr;
    const int64_t length = whole != nullptr && !whole->empty() ? whole->back().value : -1;
    int64_t cut = -1;
    if (g.IsOp(op::kPart) && g.numbers[0] == -1 && length > 0) {
      const int64_t width = length / g.numbers[2];
      if (is_head && g.numbers[1] == 0) cut = width;
      if (!is_head && g.numbers[1] == g.numbers[2] - 1) cut = length - width;
    } else if (g.IsOp(op::kSlice) && g.numbers[0] == -1) {
      if (is_head && g.numbers[1] == 0) cut = g.numbers[2];
      if (!is_head && g.numbers[2] == length) cut = g.numbers[1];
    }
    if (p.dtype != g.dtype || cut <= 0) {
      return Fail(goal, [&] {
        return std::string("expected the ") + (is_head ? "first" : "last") +
               " elements of the last axis, found " + view_.Describe(goal.graph);
      });
    }
    ++score_;
    const Goal rest = Goal::Of(p.args[0], g.args[0], goal.next);
    const bool solved = WithBound(goal.pattern, goal.graph,
                                  [&] { return BindValue(rest, terms_[p.args[1]], cut, &rest); });
    if (!solved) --score_;
    return solved;
  }

  static std::array<TermId, 2> Swapped(const std::vector<TermId>& pair) {
    return {pair[1], pair[0]};
  }

  // Arguments one by one; what has structure first, since it binds the variables.
  bool SolvePairs(std::span<const TermId> patterns, std::span<const TermId> graphs,
                  const Goal* next) {
    std::array<Goal, kMaxArgs> goals;
    if (patterns.size() > goals.size()) return false;
    size_t used = 0;
    for (const bool structured : {false, true}) {
      for (size_t i = patterns.size(); i-- > 0;) {
        if ((patterns[i] == kNone) != (graphs[i] == kNone)) return false;
        if (patterns[i] == kNone) continue;
        if ((terms_[patterns[i]].kind == TermKind::kOp) != structured) continue;
        goals[used] = Goal::Of(patterns[i], graphs[i], next);
        next = &goals[used++];
      }
    }
    return Solve(next);
  }

  bool SolveProduct(const Goal& goal) {
    const std::vector<TermId>& p = terms_[goal.pattern].args;
    const std::vector<TermId>& g = terms_[goal.graph].args;
    if (SolvePairs(p, g, goal.next) || SolvePairs(p, Swapped(g), goal.next)) return true;

    // An own op multiplies as its text is written.
    if (instance_.op->contract->is_own()) return false;
    // As lists of factors: every way to cut the graph's tree of products into as many factors.
    std::vector<TermId> factors;
    Flatten(goal.pattern, factors);
    if (factors.size() < 3) return false;
    // Structure first, then variables: a variable that structure has bound is then only compared.
    std::stable_partition(factors.begin(), factors.end(),
                          [&](TermId id) { return terms_[id].kind == TermKind::kOp; });
    std::vector<std::vector<TermId>> cuts;
    Cut(g, factors.size(), 0, cuts);
    for (const std::vector<TermId>& cut : cuts) {
      const Goal product{kNone, goal.graph, goal.next, factors, cut, goal.pattern, cut};
      if (Solve(&product)) return true;
    }
    return false;
  }

  // A product tree as text: factors by the graph's term, operands sorted, without the factors 0.5,
  // whose place changes no rounding.
  std::string ShapeOfProduct(TermId id, bool is_pattern, std::span<const TermId> cut) const {
    const Term& term = terms_[id];
    const bool is_factor =
        is_pattern ? !term.IsOp(op::kMul) : std::find(cut.begin(), cut.end(), id) != cut.end();
    if (is_factor) {
      if (term.kind == TermKind::kScalar) {
        return term.scalar == 0.5 ? "" : "=" + std::to_string(term.scalar);
      }
      if (!is_pattern) return std::to_string(id);
      const auto bound = bound_.find(id);
      return bound != bound_.end() ? std::to_string(bound->second) : "@" + term.text;
    }
    std::string a = ShapeOfProduct(term.args[0], is_pattern, cut);
    std::string b = ShapeOfProduct(term.args[1], is_pattern, cut);
    if (a.empty() || b.empty()) return a + b;
    if (b < a) std::swap(a, b);
    return "(" + a + "*" + b + ")";
  }

  void Flatten(TermId product, std::vector<TermId>& factors) const {
    for (TermId arg : terms_[product].args) {
      if (terms_[arg].IsOp(op::kMul)) {
        Flatten(arg, factors);
      } else {
        factors.push_back(arg);
      }
    }
  }

  // All cuts with `count` factors that expand only factors from position `from` on, so that none
  // comes twice; one cut with fewer if the tree has no more, for the sake of the reason.
  void Cut(const std::vector<TermId>& factors, size_t count, size_t from,
           std::vector<std::vector<TermId>>& cuts) const {
    if (factors.size() == count) {
      cuts.push_back(factors);
      return;
    }
    for (size_t i = from; i < factors.size(); ++i) {
      if (!terms_[factors[i]].IsOp(op::kMul)) continue;
      std::vector<TermId> finer = factors;
      finer[i] = terms_[factors[i]].args[0];
      finer.insert(finer.begin() + static_cast<int64_t>(i) + 1, terms_[factors[i]].args[1]);
      Cut(finer, count, i, cuts);
    }
    if (cuts.empty() && from == 0) cuts.push_back(factors);
  }

  bool SolveFactors(const Goal& goal) {
    if (goal.pattern_factors.empty()) {
      const bool outer = reassociated_;
      reassociated_ = outer || ShapeOfProduct(goal.product, true, {}) !=
                                   ShapeOfProduct(goal.graph, false, goal.cut);
      if (Solve(goal.next)) return true;
      reassociated_ = outer;
      return false;
    }
    const TermId first = goal.pattern_factors.front();
    if (goal.graph_factors.empty()) {
      return Fail(Goal::Of(first, goal.graph, nullptr), [&] {
        const auto bound = bound_.find(first);
        return bound != bound_.end()
                   ? Name(first) + " is " + view_.Describe(bound->second) +
                         ", which is no factor of the product " + view_.Describe(goal.graph)
                   : "the product " + view_.Describe(goal.graph) + " has no factor for " +
                         Name(first);
      });
    }
    std::vector<TermId> others(goal.graph_factors.begin() + 1, goal.graph_factors.end());
    for (size_t i = 0; i < goal.graph_factors.size(); ++i) {
      // `others` holds all factors but the i-th.
      if (i > 0) others[i - 1] = goal.graph_factors[i - 1];
      const Goal rest{kNone,  goal.graph,   goal.next, goal.pattern_factors.subspan(1),
                      others, goal.product, goal.cut};
      const Goal factor = Goal::Of(first, goal.graph_factors[i], &rest);
      if (Solve(&factor)) return true;
    }
    return false;
  }

  bool Finish() {
    Binding binding;
    for (TermId input : instance_.inputs) {
      const auto found = input == kNone ? bound_.end() : bound_.find(input);
      binding.inputs.push_back(found != bound_.end() ? found->second : kNone);
    }
    for (TermId output : instance_.outputs) {
      const auto found = bound_.find(output);
      binding.outputs.push_back(found != bound_.end() ? found->second : kNone);
    }
    binding.attributes = instance_.attributes;
    for (const std::string& name : instance_.captures) {
      const auto found = captured_.find(name);
      if (found == captured_.end()) return false;
      binding.attributes[name] = found->second;
    }
    for (size_t i = 0; i < binding.inputs.size(); ++i) {
      if (instance_.inputs[i] == kNone || binding.inputs[i] == kNone) continue;
      const Term& input = terms_[binding.inputs[i]];
      if (view_.FirstValue(binding.inputs[i]) == kNone) {
        if (SetView(input, binding.views[i])) continue;
        return Refuse("leaf", std::string(instance_.op->contract->inputs[i].name) +
                                  " has no value of its own in the graph");
      }
    }
    if (instance_.op->contract->is_own() && !IsBodyInPlace(view_, instance_, binding)) {
      return Refuse("body", "the text, put in its place, does not come to the same");
    }
    if (const auto refusal = guards_.Check(instance_, binding.inputs, binding.attributes)) {
      return Refuse(refusal->guard, refusal->reason);
    }
    SqueezeRows(binding);
    binding.anchor = anchor_;
    binding.reassociated = reassociated_ || instance_.text->reassociated;
    result_ = std::move(binding);
    return true;
  }

  // An input without a value of its own that one cheap node makes from another value.
  bool SetView(const Term& input, InputView& made) const {
    if (input.args.empty() || view_.FirstValue(input.args[0]) == kNone) return false;
    const Shape* whole = view_.canonicalizer().FindShape(input.args[0]);
    if (input.IsOp(op::kSqueeze)) {
      made = {InputView::Kind::kSqueeze, input.numbers};
      return true;
    }
    if (!input.IsOp(op::kMergeLast) || whole == nullptr) return false;
    made.kind = InputView::Kind::kMergeLast;
    for (size_t axis = 0; axis + 2 < whole->size(); ++axis) {
      made.axes.push_back(static_cast<int64_t>(axis));
    }
    return true;
  }

  // A row stored as [1, ..., 1, width] broadcasts as [width] does; the op takes the latter.
  void SqueezeRows(Binding& binding) const {
    const auto& ports = instance_.op->contract->inputs;
    for (const GuardSpec& guard : instance_.op->guards) {
      if (guard.name != "row_of") continue;
      for (size_t i = 0; i < ports.size(); ++i) {
        if (ports[i].name != guard.args[0] || binding.inputs[i] == kNone) continue;
        const Shape* shape = view_.canonicalizer().FindShape(binding.inputs[i]);
        for (size_t axis = shape->size(); axis > 1; --axis) {
          binding.views[i].axes.push_back(-static_cast<int64_t>(axis));
        }
      }
    }
  }

  template <typename Then>
  bool WithBound(TermId pattern, TermId graph, Then then) {
    bound_[pattern] = graph;
    if (then()) return true;
    bound_.erase(pattern);
    return false;
  }

  bool IsAnchor(const Term& term) const {
    const auto& anchors = instance_.op->anchors;
    return term.kind == TermKind::kOp &&
           std::find(anchors.begin(), anchors.end(), term.text) != anchors.end();
  }

  // `reason` gives the text; it is asked only where the attempt is worth keeping.
  template <typename Reason>
  bool Fail(const Goal& goal, Reason reason) {
    // A failure at the anchor itself says something only where much of the op stood before it, and not
    // where the other operand of a sum was tried.
    const bool at_anchor = IsAnchor(terms_[goal.pattern]) && score_ >= instance_.op->near_score &&
                           terms_[goal.graph].kind != TermKind::kScalar;
    TermId anchor = anchor_;
    if (at_anchor) {
      const TermId rare = FindAnchor(goal.graph, kAnchorDepth);
      anchor = rare != kNone ? rare : goal.graph;
    }
    if (anchor == kNone && attempt_ != nullptr && score_ >= instance_.op->near_score &&
        score_ > attempt_->score && FindAnchor(goal.pattern, kAnchorDepth) != kNone) {
      anchor = FindAnchor(goal.graph, kAnchorDepth);
    }
    if (IsFurther(anchor, score_, false)) Keep(score_, anchor, "", reason());
    return false;
  }

  // The op's rare operator below `id`, not deeper than `depth` operators; kNone if there is none.
  TermId FindAnchor(TermId id, int depth) const {
    const Term& term = terms_[id];
    if (IsAnchor(term)) return id;
    if (depth == 0) return kNone;
    for (const TermId arg : term.args) {
      if (arg == kNone) continue;
      if (const TermId found = FindAnchor(arg, depth - 1); found != kNone) return found;
    }
    return kNone;
  }

  // A guard refuses a complete structure: that is further than any structural failure.
  bool Refuse(const std::string& guard, std::string reason) {
    if (IsFurther(anchor_, score_ + 1, true)) {
      Keep(score_ + 1, anchor_, guard, std::move(reason));
    }
    return false;
  }

  void Keep(int score, TermId anchor, const std::string& guard, std::string reason) {
    attempt_->score = score;
    attempt_->anchor = anchor;
    attempt_->guard = guard;
    attempt_->reason = std::move(reason);
    if (!attempt_->wants_values) return;
    attempt_->values.clear();
    for (const TermId input : instance_.inputs) {
      const auto bound = input == kNone ? bound_.end() : bound_.find(input);
      if (bound == bound_.end()) continue;
      const Shape* shape = view_.canonicalizer().FindShape(bound->second);
      attempt_->values.push_back(Name(input) + " = " + view_.Describe(bound->second) + ", " +
                                 std::string(DTypeName(terms_[bound->second].dtype)) +
                                 (shape != nullptr ? " " + ToString(*shape) : ", shape unknown"));
    }
    for (const auto& [name, value] : captured_) {
      attempt_->values.push_back(name + " = " + AttributeText(value));
    }
  }

  // Attempts that never reached the op's rare operator say nothing and are not kept.
  bool IsFurther(TermId anchor, int score, bool is_refusal) const {
    return attempt_ != nullptr && anchor != kNone &&
           std::pair(is_refusal, score) > std::pair(!attempt_->guard.empty(), attempt_->score);
  }

  // A pattern term for people: the op's input, or what the operator means.
  std::string Name(TermId pattern) const {
    const Term& term = terms_[pattern];
    if (term.kind == TermKind::kVariable) {
      return std::string(instance_.op->contract->inputs[term.numbers[0]].name);
    }
    if (term.kind == TermKind::kCapture) return term.text;
    if (term.IsOp(op::kMean)) return "the mean over the last axis, kept";
    if (term.IsOp(op::kCast)) return "a Cast to " + std::string(DTypeName(term.dtype));
    if (term.IsOp(op::kPart)) {
      return "part " + std::to_string(term.numbers[1] + 1) + " of " +
             std::to_string(term.numbers[2]) + " of the last axis of " + Name(term.args[0]);
    }
    if (term.IsOp(op::kNeg)) return "the negative of " + Name(term.args[0]);
    return term.text;
  }

  const GraphView& view_;
  const TermStore& terms_;
  GuardEvaluator& guards_;
  const PatternInstance& instance_;
  Attempt* attempt_;
  std::unordered_map<TermId, TermId> bound_;
  std::map<std::string, Attribute::Value> captured_;
  int score_ = 0;
  TermId anchor_ = kNone;
  bool reassociated_ = false;
  std::optional<Binding> result_;
};

}  // namespace

std::optional<Binding> Matcher::Match(const PatternInstance& instance, TermId root,
                                      Attempt* attempt) {
  return Search(view_, guards_, instance, attempt).Run(root);
}

}  // namespace liger
