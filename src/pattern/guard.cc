#include "pattern/guard.h"

#include <algorithm>
#include <cmath>
#include <set>

namespace liger {
namespace {

// Rotary tables are read to compare their halves; larger ones are not.
constexpr int64_t kMaxTableBytes = int64_t{64} << 20;

bool IsUnaryElementwise(const Term& term) {
  static const std::set<std::string_view> ops = {op::kNeg, op::kRecip,   op::kSqrt, op::kCast,
                                                 op::kExp, op::kSigmoid, "::Cos",   "::Sin",
                                                 "::Tanh", "::Abs",      "::Log",   "Broadcast"};
  return term.args.size() == 1 && ops.contains(term.text);
}

int64_t LastDim(const Shape* shape) {
  return shape != nullptr && !shape->empty() ? shape->back().value : -1;
}

// Dimension `from_end` (1 = last) of a shape that broadcasts: 1 where it has fewer axes.
Dim DimFromEnd(const Shape& shape, size_t from_end) {
  return from_end <= shape.size() ? shape[shape.size() - from_end] : Dim{1, ""};
}

}  // namespace

bool GuardEvaluator::IsKnown(const std::string& name) {
  static const std::set<std::string> names = {
      "row_of",          "same_shape",   "different", "not_negative", "captured_positive",
      "row_per_channel", "rotary_tables"};
  return names.contains(name);
}

std::optional<GuardRefusal> GuardEvaluator::Check(const PatternInstance& instance,
                                                  const std::vector<TermId>& inputs,
                                                  AttributeEnv& attributes) {
  const auto& ports = instance.op->contract->inputs;
  const auto find = [&](const std::string& name) {
    Arg arg{name, kNone, nullptr};
    for (size_t i = 0; i < ports.size(); ++i) {
      if (ports[i].name != name || inputs[i] == kNone) continue;
      arg.term = inputs[i];
      arg.shape = view_.canonicalizer().FindShape(inputs[i]);
    }
    return arg;
  };
  for (const GuardSpec& spec : instance.op->guards) {
    std::optional<std::string> reason;
    if (spec.name == "not_negative") {
      for (const std::string& name : spec.args) {
        const auto* value = std::get_if<float>(&attributes[name]);
        if (value == nullptr || !(*value >= 0)) reason = name + " is negative";
        if (value != nullptr && !std::isfinite(*value)) reason = name + " is not finite";
      }
    } else if (spec.name == "captured_positive") {
      for (const std::string& name : spec.args) {
        const auto& captures = instance.captures;
        if (std::find(captures.begin(), captures.end(), name) == captures.end()) continue;
        const auto* value = std::get_if<float>(&attributes[name]);
        if (value == nullptr || !(*value > 0) || !std::isfinite(*value)) {
          reason = name + " is not a positive number";
        }
      }
    } else {
      std::vector<Arg> args;
      for (const std::string& name : spec.args) args.push_back(find(name));
      if (std::any_of(args.begin(), args.end(), [](const Arg& a) { return a.term == kNone; })) {
        continue;
      }
      if (spec.name == "row_of") reason = RowOf(args[0], args[1]);
      if (spec.name == "row_per_channel") reason = RowPerChannel(args[0], args[1]);
      if (spec.name == "same_shape") reason = SameShape(args[0], args[1]);
      if (spec.name == "different" && args[0].term == args[1].term) {
        reason = args[0].name + " and " + args[1].name + " are the same value";
      }
      if (spec.name == "rotary_tables") {
        reason = RotaryTables(args[0], args[1], args[2], attributes);
      }
    }
    if (reason) return GuardRefusal{spec.name, *std::move(reason)};
  }
  return std::nullopt;
}

bool GuardEvaluator::DerivesTheSame(const PatternInstance& instance,
                                    const std::vector<std::optional<Shape>>& shapes,
                                    const AttributeEnv& attributes) {
  const auto captures = [&](std::string_view name) {
    return std::find(instance.captures.begin(), instance.captures.end(), name) !=
           instance.captures.end();
  };
  for (const GuardSpec& spec : instance.op->guards) {
    if (spec.name != "rotary_tables" || captures("rotary_dim")) continue;
    const auto& ports = instance.op->contract->inputs;
    const auto x = std::find_if(ports.begin(), ports.end(),
                                [&](const Port& port) { return port.name == spec.args[0]; });
    const std::optional<Shape>& shape = shapes[static_cast<size_t>(x - ports.begin())];
    const auto* dim = std::get_if<int64_t>(&attributes.at("rotary_dim"));
    const auto* offset = std::get_if<int64_t>(&attributes.at("rotary_offset"));
    if (dim == nullptr || offset == nullptr) return false;
    const int64_t width = shape && !shape->empty() ? shape->back().value : -1;
    // No text turns a part in the middle.
    if (width < 0 ? !captures("rotary_offset") || *offset == 0 : *dim != width - *offset) {
      return false;
    }
  }
  return true;
}

std::optional<std::string> GuardEvaluator::RowOf(const Arg& row, const Arg& of) const {
  if (of.shape == nullptr || of.shape->empty() ||
      !(of.shape->back().is_known() || !of.shape->back().symbol.empty())) {
    return "the width of " + of.name + " is unknown: " + view_.Describe(of.term);
  }
  if (row.shape != nullptr && !row.shape->empty() && row.shape->size() <= of.shape->size() &&
      row.shape->back().SameAs(of.shape->back()) &&
      std::all_of(row.shape->begin(), row.shape->end() - 1,
                  [](const Dim& dim) { return dim.value == 1; })) {
    return std::nullopt;
  }
  return row.name + " is not one row as wide as " + of.name + ": " + view_.Describe(row.term) +
         " has shape " + ToString(row.shape != nullptr ? std::optional(*row.shape) : std::nullopt) +
         ", " + of.name + " " + ToString(*of.shape);
}

std::optional<std::string> GuardEvaluator::RowPerChannel(const Arg& row, const Arg& of) const {
  constexpr size_t kChannels = 1;
  const bool fits = row.shape != nullptr && row.shape->size() == 1 && of.shape != nullptr &&
                    of.shape->size() > kChannels &&
                    row.shape->front().SameAs((*of.shape)[kChannels]);
  if (fits) return std::nullopt;
  return row.name + " has not one element for each channel of " + of.name + ": " +
         view_.Describe(row.term) + " has shape " +
         ToString(row.shape != nullptr ? std::optional(*row.shape) : std::nullopt) + ", " +
         of.name + " " + ToString(of.shape != nullptr ? std::optional(*of.shape) : std::nullopt);
}

std::optional<std::string> GuardEvaluator::SameShape(const Arg& a, const Arg& b) const {
  const bool same = a.shape != nullptr && b.shape != nullptr &&
                    a.shape->size() == b.shape->size() &&
                    std::equal(a.shape->begin(), a.shape->end(), b.shape->begin(),
                               [](const Dim& x, const Dim& y) { return x.SameAs(y); });
  if (same && a.shape->empty()) return a.name + " has no axis: " + view_.Describe(a.term);
  if (same) return std::nullopt;
  const auto text = [](const Arg& arg) {
    return ToString(arg.shape != nullptr ? std::optional(*arg.shape) : std::nullopt);
  };
  return a.name + " and " + b.name + " cannot be shown to have the same shape: " + text(a) +
         " and " + text(b);
}

std::optional<std::string> GuardEvaluator::RotaryTables(const Arg& x, const Arg& cos,
                                                        const Arg& sin, AttributeEnv& attributes) {
  if (x.shape == nullptr || x.shape->size() < 3 || x.shape->size() > 4) {
    return "x must have 3 or 4 axes of known number: " + view_.Describe(x.term);
  }
  // The text turns the first rotary_dim elements of a head, or all from rotary_offset on.
  const auto number = [&](const char* name) {
    const auto found = attributes.find(name);
    return found != attributes.end() ? std::get_if<int64_t>(&found->second) : nullptr;
  };
  const int64_t* offset = number("rotary_offset");
  const int64_t* captured = number("rotary_dim");
  const int64_t rotary_dim =
      captured != nullptr ? *captured : LastDim(x.shape) - (offset != nullptr ? *offset : 0);
  if (LastDim(x.shape) <= 0 || rotary_dim <= 0 || rotary_dim % 2 != 0) {
    return "the size of a head, or of its rotary part, is unknown or odd";
  }
  const auto* table = std::get_if<std::string>(&attributes["table"]);
  const bool full = table == nullptr || *table == "full";
  const int64_t width = full ? rotary_dim : rotary_dim / 2;
  for (const Arg* t : {&cos, &sin}) {
    if (t->shape == nullptr || t->shape->size() > x.shape->size() || LastDim(t->shape) != width) {
      return "the table " + t->name + " is not " + std::to_string(width) +
             " wide: " + view_.Describe(t->term);
    }
  }
  // Which axis of x carries positions: the one along which the tables may vary. The head axis of
  // the tables must be 1. Of the others a known length must be 1 or that of x, and none may
  // enlarge an axis of x of which the length is known to be 1. Where both lengths are not known the
  // kernel checks them: a table longer than x is an error there.
  const auto compatible = [](const Dim& table_dim, const Dim& x_dim) {
    if (!table_dim.is_known()) return x_dim.value != 1;
    return table_dim.value == 1 || table_dim.value == x_dim.value;
  };
  const auto fits = [&](size_t heads, size_t positions) {  // axes counted from the end
    for (const Arg* t : {&cos, &sin}) {
      if (DimFromEnd(*t->shape, heads).value != 1) return false;
      if (!compatible(DimFromEnd(*t->shape, positions), DimFromEnd(*x.shape, positions))) {
        return false;
      }
      if (x.shape->size() == 4 && !compatible(DimFromEnd(*t->shape, 4), (*x.shape)[0]))
        return false;
    }
    return true;
  };
  std::string layout;
  if (x.shape->size() == 4) {
    layout = fits(3, 2) ? "BNSD" : fits(2, 3) ? "BSND" : "";
  } else if (fits(2, 3)) {
    layout = "SND";
  }
  if (layout.empty()) {
    return "the tables do not broadcast over the heads of x: x has shape " + ToString(*x.shape) +
           ", cos " + ToString(*cos.shape) + ", sin " + ToString(*sin.shape);
  }
  if (full) {
    const int64_t* interleaved = number("interleaved");
    const Repeat repeat =
        interleaved != nullptr && *interleaved != 0 ? Repeat::kPairs : Repeat::kHalves;
    for (const Arg* t : {&cos, &sin}) {
      if (auto reason = NotRepeated(t->term, repeat)) {
        return "of the table " + t->name + " " + *reason;
      }
    }
  }
  attributes["layout"] = layout;
  attributes["rotary_dim"] = rotary_dim;
  return std::nullopt;
}

// Follows the table back to where its last axis is made: a Concat of one value with itself (halves),
// an interleaving of one value with itself (pairs), or a stored table. Every term on the way must
// keep the last axis as it is.
std::optional<std::string> GuardEvaluator::NotRepeated(TermId table, Repeat repeat) {
  const bool halves = repeat == Repeat::kHalves;
  std::unordered_map<TermId, std::optional<std::string>>& repeated = halves ? halves_ : pairs_;
  const std::string unknown = halves ? "the halves cannot be shown to be equal: "
                                     : "neighbours cannot be shown to be equal: ";
  if (const auto known = repeated.find(table); known != repeated.end()) return known->second;
  const TermStore& terms = view_.terms();
  std::optional<std::string> reason;
  std::vector<TermId> work = {table};
  std::set<TermId> seen;
  const auto last_dim = [&](TermId id) { return LastDim(view_.canonicalizer().FindShape(id)); };
  while (!work.empty() && !reason) {
    const TermId id = work.back();
    work.pop_back();
    if (!seen.insert(id).second) continue;
    const Term& term = terms[id];
    if (term.kind == TermKind::kScalar || last_dim(id) == 1) continue;
    if (term.kind == TermKind::kLeaf) {
      reason = StoredNotRepeated(id, repeat);
    } else if (term.IsOp(op::kInterleave)) {
      if (halves || term.args[0] != term.args[1]) reason = unknown + view_.Describe(id);
    } else if (!halves && term.IsOp(op::kConcat) && term.numbers[0] == -1) {
      for (const TermId arg : term.args) {
        if (last_dim(arg) <= 0 || last_dim(arg) % 2 != 0) reason = unknown + view_.Describe(id);
        work.push_back(arg);
      }
    } else if (term.IsOp(op::kConcat) && term.numbers[0] == -1) {
      const size_t half = term.args.size() / 2;
      bool same = term.args.size() % 2 == 0;
      for (size_t i = 0; same && i < half; ++i) {
        same = HalfApart(term.args[i], term.args[i + half], work);
      }
      if (!same) reason = unknown + view_.Describe(id);
    } else if (IsPickOfLastAxis(term, last_dim(id))) {
      const std::vector<int64_t>& picks = terms[term.args[1]].numbers;
      const size_t step = halves ? picks.size() / 2 : 1;
      for (size_t i = 0; i + step < picks.size(); i += halves ? 1 : 2) {
        if (picks[i] != picks[i + step]) reason = unknown + view_.Describe(id);
      }
    } else if (IsUnaryElementwise(term)) {
      work.push_back(term.args[0]);
    } else if (term.IsOp(op::kMul) || term.IsOp(op::kAdd) || term.IsOp(op::kConcat)) {
      work.insert(work.end(), term.args.begin(), term.args.end());
    } else if ((term.IsOp(op::kUnsqueeze) || term.IsOp(op::kSqueeze)) &&
               term.numbers.back() != -1) {
      work.push_back(term.args[0]);
    } else if ((term.IsOp(op::kPart) || term.IsOp(op::kSlice)) && term.numbers[0] != -1) {
      work.push_back(term.args[0]);
    } else if (term.kind == TermKind::kOp &&
               (term.text == "::Gather" || term.text == "::Gather axis=0" ||
                IsSliceOfOtherAxis(term) || term.text.starts_with("::Reshape") ||
                term.text.starts_with("::Expand") || term.text.starts_with("::Transpose")) &&
               last_dim(id) > 0 && last_dim(id) == last_dim(term.args[0])) {
      // Rows are picked, grouped or repeated; a transposition must leave the last axis in its
      // place.
      const bool gather_rows = !term.text.starts_with("::Gather") ||
                               view_.canonicalizer().FindShape(term.args[0])->size() > 1;
      bool keeps_last = gather_rows;
      if (term.text.starts_with("::Transpose")) {
        const auto rank = view_.canonicalizer().FindShape(id)->size();
        keeps_last = term.text.ends_with("," + std::to_string(rank - 1) + ",");
      }
      if (keeps_last) {
        work.push_back(term.args[0]);
      } else {
        reason = unknown + view_.Describe(id);
      }
    } else {
      reason = unknown + view_.Describe(id);
    }
  }
  repeated[table] = reason;
  return reason;
}

// Whether the two are the same value, or the same of pieces of one value that lie half its width
// apart. The halves of that value must then be equal: it is added to `work`.
bool GuardEvaluator::HalfApart(TermId first, TermId second, std::vector<TermId>& work) const {
  if (first == second) return true;
  const Term& a = view_.terms()[first];
  const Term& b = view_.terms()[second];
  if (a.kind != TermKind::kOp || a.args.empty() || a.args.size() != b.args.size()) return false;
  const auto piece = [&](const Term& term) -> std::pair<int64_t, int64_t> {
    const int64_t width = LastDim(view_.canonicalizer().FindShape(term.args[0]));
    if (width <= 0 || term.numbers.empty() || term.numbers[0] != -1) return {-1, -1};
    if (term.IsOp(op::kPart)) {
      const int64_t length = width / term.numbers[2];
      return {term.numbers[1] * length, (term.numbers[1] + 1) * length};
    }
    return term.IsOp(op::kSlice) ? std::pair(term.numbers[1], term.numbers[2])
                                 : std::pair<int64_t, int64_t>(-1, -1);
  };
  if (a.args[0] == b.args[0] && piece(a).first >= 0 && piece(b).first >= 0) {
    const int64_t half = LastDim(view_.canonicalizer().FindShape(a.args[0])) / 2;
    const bool apart =
        piece(b).first - piece(a).first == half && piece(b).second - piece(a).second == half;
    if (apart) work.push_back(a.args[0]);
    return apart;
  }
  return a.text == b.text && a.numbers == b.numbers &&
         std::equal(a.args.begin() + 1, a.args.end(), b.args.begin() + 1) &&
         HalfApart(a.args[0], b.args[0], work);
}

// A Slice with bounds that are not known, along other axes than the last.
bool GuardEvaluator::IsSliceOfOtherAxis(const Term& term) const {
  if (term.text != "::Slice" || term.args.size() < 4 || term.args[3] == kNone) return false;
  const Shape* data = view_.canonicalizer().FindShape(term.args[0]);
  const auto axes = AsInts(view_.terms(), term.args[3]);
  if (data == nullptr || !axes) return false;
  const auto last = static_cast<int64_t>(data->size()) - 1;
  return std::none_of(axes->begin(), axes->end(),
                      [&](int64_t axis) { return axis == -1 || axis == last; });
}

// A Gather along the last axis by a constant list of as many indices as the result is wide.
bool GuardEvaluator::IsPickOfLastAxis(const Term& term, int64_t width) const {
  if (term.kind != TermKind::kOp || !term.text.starts_with("::Gather axis=")) return false;
  const Shape* data = view_.canonicalizer().FindShape(term.args[0]);
  if (data == nullptr) return false;
  const int64_t axis = std::stoll(term.text.substr(std::string_view("::Gather axis=").size()));
  const Term& index = view_.terms()[term.args[1]];
  return (axis == -1 || axis == static_cast<int64_t>(data->size()) - 1) &&
         index.kind == TermKind::kInts && width % 2 == 0 &&
         static_cast<int64_t>(index.numbers.size()) == width;
}

std::optional<std::string> GuardEvaluator::StoredNotRepeated(TermId leaf, Repeat repeat) const {
  const bool halves = repeat == Repeat::kHalves;
  const Term& term = view_.terms()[leaf];
  const Graph* graph = &view_.model().graphs[term.numbers[0]];
  auto value = static_cast<ValueId>(term.numbers[1]);
  while (graph->values[value].outer != kNone) {
    value = graph->values[value].outer;
    graph = &view_.model().graphs[graph->parent];
  }
  const auto tensor = view_.model().constants->Read(*graph, value, kMaxTableBytes);
  if (tensor == nullptr || tensor->dims.empty() || tensor->floats.empty()) {
    return (halves ? "the halves cannot be shown to be equal: "
                   : "neighbours cannot be shown to be equal: ") +
           view_.Describe(leaf) + " is not a stored table";
  }
  const int64_t width = tensor->dims.back();
  if (width % 2 != 0) return "the width is odd: " + view_.Describe(leaf);
  const int64_t rows = tensor->size() / width;
  for (int64_t row = 0; row < rows; ++row) {
    const double* at = tensor->floats.data() + row * width;
    if (halves && !std::equal(at, at + width / 2, at + width / 2)) {
      return "the halves differ: " + view_.Describe(leaf);
    }
    for (int64_t i = 0; !halves && i < width; i += 2) {
      if (at[i] != at[i + 1]) return "neighbours differ: " + view_.Describe(leaf);
    }
  }
  return std::nullopt;
}

}  // namespace liger
