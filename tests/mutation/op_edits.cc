#include "op_edits.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>

namespace liger::test {
namespace {

using onnx::AttributeProto;
using onnx::NodeProto;
using onnx::TensorProto;

std::vector<int64_t> IntsOf(const TensorProto& tensor) {
  if (tensor.data_type() != TensorProto::INT64) return {};
  std::vector<int64_t> values(tensor.int64_data().begin(), tensor.int64_data().end());
  if (values.empty()) {
    values.resize(tensor.raw_data().size() / sizeof(int64_t));
    std::memcpy(values.data(), tensor.raw_data().data(), values.size() * sizeof(int64_t));
  }
  return values;
}

// The number that a dimension is, or 0 for a symbol.
int64_t NumberOf(const std::string& dim) {
  const bool digits = !dim.empty() && dim.find_first_not_of("0123456789") == std::string::npos;
  return digits ? std::stoll(dim) : 0;
}

class OpEdits final : public EditBase {
 public:
  using EditBase::EditBase;

  // Two values of one type in exchanged roles: gate and up, cos and sin, stream and residual.
  bool ExchangeValues() {
    const int n = Pick(
        {}, [&](const NodeProto& node) { return node.input_size() > 0 && IsFloat(node.input(0)); });
    if (n < 0) return false;
    const NodeProto& node = graph_.node(n);
    std::vector<int> slots;
    for (int i = 0; i < node.input_size(); ++i) {
      if (IsFloat(node.input(i))) slots.push_back(i);
    }
    const std::string a = node.input(slots[Below(static_cast<int>(slots.size()))]);
    const std::vector<std::string> others = ValuesLike(a, n);
    if (others.empty()) return false;
    const std::string& b = others[Below(static_cast<int>(others.size()))];
    const bool everywhere = Below(2) == 0;
    const auto producer = Producers();
    int first = -1;
    for (const std::string& value : {a, b}) {
      const auto found = producer.find(value);
      if (found != producer.end()) first = std::max(first, found->second);
    }
    int changed = 0;
    for (int i = first + 1; i < graph_.node_size() && (everywhere || i <= n); ++i) {
      if (!everywhere && i != n) continue;
      for (std::string& input : *graph_.mutable_node(i)->mutable_input()) {
        if (input != a && input != b) continue;
        input = input == a ? b : a;
        ++changed;
      }
    }
    return changed > 0 &&
           Note(graph_.node(n), a + " and " + b + " exchanged" + (everywhere ? " everywhere" : ""));
  }

  bool SameOperand() {
    const int n = Pick({"Mul", "Add", "Sub", "Div", "Concat"}, [&](const NodeProto& node) {
      return node.input_size() >= 2 && IsFloat(node.input(0)) && node.input(0) != node.input(1);
    });
    if (n < 0) return false;
    NodeProto& node = *graph_.mutable_node(n);
    const int kept = Below(2);
    node.set_input(1 - kept, node.input(kept));
    return Note(node, "reads input " + std::to_string(kept) + " twice");
  }

  // One use of a value reads an unrelated graph input of its type.
  bool OtherValue() {
    return OnEdge([this](int n, int slot) {
      NodeProto& node = *graph_.mutable_node(n);
      const std::string old = node.input(slot);
      const std::string name = Fresh("other");
      AddValueInfo(*graph_.add_input(), name, *TypeOf(old));
      node.set_input(slot, name);
      return Note(node, "another value in place of " + old);
    });
  }

  bool SwapSplitOutputs() {
    const int n = Pick({"Split"}, [](const NodeProto& node) { return node.output_size() >= 2; });
    if (n < 0) return false;
    NodeProto& node = *graph_.mutable_node(n);
    const int a = Below(node.output_size() - 1);
    node.mutable_output()->SwapElements(a, a + 1);
    return Note(node, "outputs " + std::to_string(a) + " and the next swapped");
  }

  bool ChangeSplit() {
    const int n = Pick({"Split"}, [&](const NodeProto& node) {
      return std::all_of(node.output().begin(), node.output().end(),
                         [&](const std::string& output) { return TypeOf(output) != nullptr; });
    });
    if (n < 0) return false;
    NodeProto& node = *graph_.mutable_node(n);
    int64_t axis = 0;
    for (const auto& attribute : node.attribute()) {
      if (attribute.name() == "axis") axis = attribute.i();
    }
    std::vector<int64_t> sizes;
    for (const std::string& output : node.output()) {
      const auto& dims = TypeOf(output)->dims;
      const auto at =
          static_cast<size_t>(axis < 0 ? axis + static_cast<int64_t>(dims.size()) : axis);
      if (at >= dims.size() || NumberOf(dims[at]) == 0) return false;
      sizes.push_back(NumberOf(dims[at]));
    }
    if (sizes.size() < 2) return false;
    const int a = Below(static_cast<int>(sizes.size()));
    const int b = (a + 1) % static_cast<int>(sizes.size());
    const int64_t moved = Below(2) == 0 ? 1 : sizes[a] - 1;
    if (moved < 1 || moved >= sizes[a]) return false;
    sizes[a] -= moved;
    sizes[b] += moved;
    RemoveAttribute(node, "num_outputs");
    while (node.input_size() < 2) node.add_input("");
    node.set_input(1, AddInts(sizes));
    return Note(node, "part " + std::to_string(a) + " is " + std::to_string(sizes[a]));
  }

  // Start and end by the same amount: as many elements, other ones. With a stride: the other ones.
  bool ShiftSlice() {
    const int n = Pick({"Slice"}, [&](const NodeProto& node) {
      if (node.input_size() < 3) return false;
      const TensorProto* start = Constant(node.input(1));
      const TensorProto* end = Constant(node.input(2));
      return start != nullptr && end != nullptr && IntsOf(*start).size() == 1 &&
             IntsOf(*end).size() == 1;
    });
    if (n < 0) return false;
    NodeProto& node = *graph_.mutable_node(n);
    int64_t start = IntsOf(*Constant(node.input(1)))[0];
    int64_t end = IntsOf(*Constant(node.input(2)))[0];
    const int64_t by = Below(2) == 0 ? 1 : -1;
    const bool open = end > std::numeric_limits<int32_t>::max();
    start += by;
    if (!open) end += by;
    node.set_input(1, AddInts({start}));
    node.set_input(2, AddInts({end}));
    return Note(node, "starts at " + std::to_string(start));
  }

  bool SwapTrig() {
    const int n = Pick({"Cos", "Sin"});
    if (n < 0) return false;
    NodeProto& node = *graph_.mutable_node(n);
    node.set_op_type(node.op_type() == "Cos" ? "Sin" : "Cos");
    return Note(node, "the other function");
  }

  bool SwapOrdered() {
    const int n = Pick({"Sub", "Div", "Pow", "Concat"},
                       [](const NodeProto& node) { return node.input_size() >= 2; });
    if (n < 0) return false;
    NodeProto& node = *graph_.mutable_node(n);
    const int a = Below(node.input_size() - 1);
    node.mutable_input()->SwapElements(a, a + 1);
    return Note(node, "inputs " + std::to_string(a) + " and the next swapped");
  }

  // A constant of any operator, by little or by much.
  bool TweakConstant() {
    int slot = 0;
    const int n = PickScalarUse({}, &slot, [](const NodeProto&) { return true; });
    if (n < 0) return false;
    return ReplaceScalar(n, slot, [&](double v) {
      static constexpr std::array<double, 8> kFactors = {1.01, 0.99, 1.003, 1.1, 3, -1, 0, 0.5};
      const int which = Below(static_cast<int>(kFactors.size()) + 2);
      if (which == 8) return v + 0.25;
      if (which == 9) return v == 0 ? 1.0 : 1 / v;
      return v * kFactors[which];
    });
  }

  // A product or sum with a row of unequal numbers.
  bool InsertRow() {
    return OnEdge([this](int n, int slot) {
      const MutantType* type = TypeOf(graph_.node(n).input(slot));
      if (type->dims.empty()) return false;
      const int64_t width = NumberOf(type->dims.back());
      if (width < 1 || width > 4096) return false;
      std::vector<double> row;
      for (int64_t i = 0; i < width; ++i) row.push_back(1 + 0.01 * static_cast<double>(i % 16));
      const char* op = Below(2) == 0 ? "Mul" : "Add";
      return Between(n, slot, {With(Node(op, {}, {}), AddConstant(type->dtype, {width}, row))},
                     std::string(op) + " of a row");
    });
  }

  // Scale or bias as one number, one column, all of [B, S, H], or a row of unequal numbers.
  bool ChangeRow() {
    const int n = Pick({}, [&](const NodeProto& node) {
      return RowSlot(node) >= 0 && IsFloat(node.input(RowSlot(node))) &&
             TypeOf(node.output(0)) != nullptr && !TypeOf(node.output(0))->dims.empty();
    });
    if (n < 0) return false;
    NodeProto& node = *graph_.mutable_node(n);
    const int slot = RowSlot(node);
    const TensorProto& row = *Constant(node.input(slot));
    const int64_t width = row.dims(0);
    std::vector<int64_t> dims = {width};
    const int form = Below(5);
    if (form == 0) dims = {1};
    if (form == 1) dims = {width, 1};
    if (form == 2) dims = {1, width};
    if (form == 3) {
      dims.clear();
      for (const std::string& dim : TypeOf(node.output(0))->dims) {
        if (NumberOf(dim) == 0) return false;
        dims.push_back(NumberOf(dim));
      }
    }
    int64_t count = 1;
    for (int64_t d : dims) count *= d;
    if (count > 65536) return false;
    std::vector<double> values;
    for (int64_t i = 0; i < count; ++i) values.push_back(0.5 + 0.07 * static_cast<double>(i % 13));
    node.set_input(slot, AddConstant(row.data_type(), dims, values));
    return Note(node, "row, form " + std::to_string(form));
  }

  bool ChangeAttribute() {
    static const std::set<std::string> names = {"approximate", "alpha",      "epsilon",  "axis",
                                                "stash_type",  "num_groups", "keepdims", "perm"};
    const auto usable = [](const AttributeProto& attribute) {
      return names.contains(attribute.name()) && attribute.ref_attr_name().empty();
    };
    const int n = Pick({}, [&](const NodeProto& node) {
      return std::any_of(node.attribute().begin(), node.attribute().end(), usable);
    });
    if (n < 0) return false;
    NodeProto& node = *graph_.mutable_node(n);
    std::vector<int> found;
    for (int i = 0; i < node.attribute_size(); ++i) {
      if (usable(node.attribute(i))) found.push_back(i);
    }
    AttributeProto& attribute =
        *node.mutable_attribute(found[Below(static_cast<int>(found.size()))]);
    const std::string& name = attribute.name();
    if (name == "approximate") {
      attribute.set_s(attribute.s() == "tanh" ? "none" : "tanh");
    } else if (name == "alpha" || name == "epsilon") {
      static constexpr std::array<float, 5> kFactors = {2, 0.5, 1.01, 0, 1000};
      attribute.set_f(attribute.f() * kFactors[Below(5)]);
    } else if (name == "perm") {
      if (attribute.ints_size() < 2) return false;
      attribute.mutable_ints()->SwapElements(Below(attribute.ints_size()),
                                             Below(attribute.ints_size()));
    } else if (name == "num_groups") {
      attribute.set_i(attribute.i() == 2 ? 4 : 2);
    } else if (name == "stash_type") {
      attribute.set_i(attribute.i() == 1 ? 10 : 1);
    } else {
      attribute.set_i(name == "keepdims" ? 1 - attribute.i() : attribute.i() + (Below(2) ? 1 : -1));
    }
    return Note(node, "attribute " + name);
  }

  // sqrt(v) + epsilon, or max(v, epsilon), for sqrt(v + epsilon).
  bool MoveEpsilon() {
    const auto producer = Producers();
    const auto added = [&](const NodeProto& node) {
      const auto found = producer.find(node.input(0));
      return found != producer.end() && graph_.node(found->second).op_type() == "Add" &&
             SlotOfScalar(graph_.node(found->second)) >= 0;
    };
    const int n = Pick({"Sqrt"}, added);
    if (n < 0) return false;
    NodeProto& root = *graph_.mutable_node(n);
    NodeProto& sum = *graph_.mutable_node(producer.at(root.input(0)));
    const int slot = SlotOfScalar(sum);
    if (Below(2) == 0) {
      sum.set_op_type("Max");
      return Note(sum, "Add -> Max of epsilon");
    }
    const std::string variance = sum.input(1 - slot);
    const std::string epsilon = sum.input(slot);
    const std::string result = root.output(0);
    const std::string bare = Fresh("root");
    root.set_input(0, variance);
    root.set_output(0, bare);
    NodeProto moved = Node("Add", {bare, epsilon}, {result});
    moved.set_name(Fresh("moved"));
    Note(root, "epsilon behind it");
    Insert(n + 1, moved);
    return true;
  }

  bool ChangeBounds() {
    const int n = Pick({"Clip", "Min", "Max"});
    if (n < 0) return false;
    NodeProto& node = *graph_.mutable_node(n);
    const int form = Below(5);
    if (node.op_type() != "Clip") {
      if (form == 0) {
        node.set_op_type(node.op_type() == "Min" ? "Max" : "Min");
        return Note(node, "the other bound");
      }
      const int slot = SlotOfScalar(node);
      return slot >= 0 && ReplaceScalar(n, slot, [&](double v) { return NewBound(v, form); });
    }
    while (node.input_size() < 3) node.add_input("");
    const int slot = 1 + Below(2);
    if (form == 0) {
      node.mutable_input()->SwapElements(1, 2);
      return Note(node, "bounds swapped");
    }
    if (form == 1 || node.input(slot).empty()) {
      const bool empty = node.input(slot).empty();
      const std::string value = slot == 1 ? node.input(2) : node.input(1);
      node.set_input(slot, empty ? value : std::string());
      return Note(node, "bound " + std::to_string(slot) + (empty ? " like the other" : " dropped"));
    }
    const TensorProto* bound = Constant(node.input(slot));
    return bound != nullptr && ScalarOf(*bound) &&
           ReplaceScalar(n, slot, [&](double v) { return NewBound(v, form); });
  }

  // [high, -low] for [-high, low].
  bool MoveNeg() {
    const auto producer = Producers();
    const auto negated = [&](const std::string& value) {
      const auto found = producer.find(value);
      return found != producer.end() && graph_.node(found->second).op_type() == "Neg";
    };
    const int n = Pick({"Concat"}, [&](const NodeProto& node) {
      return node.input_size() == 2 && negated(node.input(0)) != negated(node.input(1));
    });
    if (n < 0) return false;
    NodeProto& node = *graph_.mutable_node(n);
    const int from = negated(node.input(0)) ? 0 : 1;
    const std::string bare = graph_.node(producer.at(node.input(from))).input(0);
    node.set_input(from, bare);
    return Between(n, 1 - from, {Node("Neg", {}, {})}, "Neg moved");
  }

  bool ChangeUnsqueeze() {
    const int n = Pick({"Unsqueeze"}, [&](const NodeProto& node) {
      return node.input_size() == 2 && Constant(node.input(1)) != nullptr &&
             TypeOf(node.input(0)) != nullptr;
    });
    if (n < 0) return false;
    NodeProto& node = *graph_.mutable_node(n);
    const int rank = static_cast<int>(TypeOf(node.input(0))->dims.size()) + 1;
    const int64_t axis = Below(rank);
    node.set_input(1, AddInts({axis}));
    return Note(node, "axis " + std::to_string(axis));
  }

  // [f, 1.1 f] for [f, f].
  bool UnequalHalves() {
    const int n = Pick({"Concat"}, [&](const NodeProto& node) {
      return node.input_size() == 2 && node.input(0) == node.input(1) && IsFloat(node.input(0));
    });
    if (n < 0) return false;
    const MutantType& type = *TypeOf(graph_.node(n).input(0));
    const int slot = Below(2);
    switch (Below(3)) {
      case 0:
        return Between(n, slot, {Node("Neg", {}, {})}, "Neg of a half");
      case 1:
        return Between(n, slot, {With(Node("Mul", {}, {}), AddConstant(type.dtype, {}, {1.1}))},
                       "1.1 of a half");
      default:
        return Between(n, slot, {With(Node("Add", {}, {}), AddConstant(type.dtype, {}, {0.3}))},
                       "a half and 0.3");
    }
  }

  bool ChangePerm() {
    const int n = Pick({"Transpose"}, [](const NodeProto& node) {
      return node.attribute_size() == 1 && node.attribute(0).ints_size() >= 2;
    });
    if (n < 0) return false;
    NodeProto& node = *graph_.mutable_node(n);
    auto& perm = *node.mutable_attribute(0)->mutable_ints();
    const int a = Below(perm.size());
    const int b = (a + 1 + Below(perm.size() - 1)) % perm.size();
    perm.SwapElements(a, b);
    return Note(node, "perm");
  }

  // Cast(f(a, b)) as f(Cast(a), Cast(b)).
  bool CastUp() {
    const auto producer = Producers();
    const int n = Pick({"Cast"}, [&](const NodeProto& node) {
      const auto found = producer.find(node.input(0));
      return found != producer.end() && IsFloat(node.output(0)) && IsFloat(node.input(0)) &&
             IsElementwise(graph_.node(found->second));
    });
    if (n < 0) return false;
    const NodeProto cast = graph_.node(n);
    const NodeProto made = graph_.node(producer.at(cast.input(0)));
    NodeProto later = made;
    later.set_output(0, cast.output(0));
    later.set_name(Fresh("later"));
    Note(cast, "in front of " + made.op_type());
    std::vector<NodeProto> casts;
    for (std::string& input : *later.mutable_input()) {
      NodeProto early = cast;
      early.set_name(Fresh("early"));
      early.set_input(0, input);
      input = Fresh("cast");
      early.set_output(0, input);
      casts.push_back(early);
    }
    *graph_.mutable_node(n) = later;
    for (const NodeProto& early : casts) Insert(n, early);
    return true;
  }

  // f(Cast(a), Cast(b)) as Cast(f(a, b)); a constant gets the narrow type.
  bool CastDown() {
    const auto producer = Producers();
    const auto narrow = [&](const std::string& value) -> const MutantType* {
      const auto found = producer.find(value);
      if (found == producer.end() || graph_.node(found->second).op_type() != "Cast") return nullptr;
      const std::string& source = graph_.node(found->second).input(0);
      return IsFloat(source) ? TypeOf(source) : nullptr;
    };
    const int n = Pick({}, [&](const NodeProto& node) {
      return IsElementwise(node) && IsFloat(node.output(0)) &&
             std::any_of(node.input().begin(), node.input().end(),
                         [&](const std::string& input) { return narrow(input) != nullptr; });
    });
    if (n < 0) return false;
    NodeProto node = graph_.node(n);
    const int32_t wide = TypeOf(node.output(0))->dtype;
    int32_t type = 0;
    for (const std::string& input : node.input()) {
      if (narrow(input) != nullptr) type = narrow(input)->dtype;
    }
    for (std::string& input : *node.mutable_input()) {
      const TensorProto* constant = Constant(input);
      if (narrow(input) != nullptr && narrow(input)->dtype == type) {
        input = graph_.node(producer.at(input)).input(0);
      } else if (constant != nullptr && ScalarOf(*constant)) {
        input = AddConstant(type, {}, {*ScalarOf(*constant)});
      } else {
        return false;
      }
    }
    Note(node, "in front of its Casts");
    NodeProto cast = Node("Cast", {Fresh("narrow")}, {node.output(0)});
    IntAttribute(cast, "to", wide);
    cast.set_name(Fresh("cast"));
    node.set_output(0, cast.input(0));
    *graph_.mutable_node(n) = node;
    Insert(n + 1, cast);
    return true;
  }

  // One operand of an elementwise operator shrinks to its first element along an axis.
  bool BroadcastOperand() {
    const int n = Pick({"Mul", "Add", "Sub", "Div"}, [&](const NodeProto& node) {
      return IsFloat(node.input(0)) && IsFloat(node.input(1));
    });
    if (n < 0) return false;
    const int slot = Below(2);
    const MutantType& type = *TypeOf(graph_.node(n).input(slot));
    if (type.dims.empty()) return false;
    const int64_t axis = Below(static_cast<int>(type.dims.size()));
    NodeProto slice = Node("Slice", {}, {});
    for (int64_t bound : {int64_t{0}, int64_t{1}, axis}) slice.add_input(AddInts({bound}));
    return Between(n, slot, {slice}, "first of axis " + std::to_string(axis));
  }

  bool SwapReshapeDims() {
    const int n = Pick({"Reshape"}, [&](const NodeProto& node) {
      const TensorProto* shape = Constant(node.input(1));
      return shape != nullptr && IntsOf(*shape).size() >= 2;
    });
    if (n < 0) return false;
    NodeProto& node = *graph_.mutable_node(n);
    std::vector<int64_t> shape = IntsOf(*Constant(node.input(1)));
    const int a = Below(static_cast<int>(shape.size()) - 1);
    std::swap(shape[a], shape[a + 1]);
    node.set_input(1, AddInts(shape));
    return Note(node, "dimensions " + std::to_string(a) + " and the next swapped");
  }

 private:
  double NewBound(double v, int form) {
    static constexpr std::array<double, 4> kFactors = {-1, 0.5, 1.1, 0};
    return v * kFactors[form % 4];
  }

  int SlotOfScalar(const NodeProto& node) const {
    for (int i = 0; i < node.input_size(); ++i) {
      const TensorProto* constant = Constant(node.input(i));
      if (constant != nullptr && ScalarOf(*constant)) return i;
    }
    return -1;
  }

  static bool IsElementwise(const NodeProto& node) {
    static const std::set<std::string> ops = {"Mul",  "Add",  "Sub",     "Div", "Neg",
                                              "Sqrt", "Tanh", "Sigmoid", "Erf", "Reciprocal"};
    return ops.contains(node.op_type());
  }

  // Other values of the same type that exist in front of node n.
  std::vector<std::string> ValuesLike(const std::string& value, int n) const {
    std::vector<std::string> others;
    const MutantType* type = TypeOf(value);
    const auto consider = [&](const std::string& name) {
      const MutantType* other = TypeOf(name);
      if (name != value && other != nullptr && *other == *type) others.push_back(name);
    };
    for (const auto& input : graph_.input()) consider(input.name());
    for (const auto& initializer : graph_.initializer()) consider(initializer.name());
    for (int i = 0; i < n; ++i) {
      for (const std::string& output : graph_.node(i).output()) consider(output);
    }
    return others;
  }
};

}  // namespace

const std::vector<EditKind>& OpEditKinds() {
  static const std::vector<EditKind> kinds = {
      KindOf("exchange_values", &OpEdits::ExchangeValues),
      KindOf("same_operand", &OpEdits::SameOperand),
      KindOf("other_value", &OpEdits::OtherValue),
      KindOf("swap_split_outputs", &OpEdits::SwapSplitOutputs),
      KindOf("change_split", &OpEdits::ChangeSplit),
      KindOf("shift_slice", &OpEdits::ShiftSlice),
      KindOf("swap_trig", &OpEdits::SwapTrig),
      KindOf("swap_ordered", &OpEdits::SwapOrdered),
      KindOf("tweak_constant", &OpEdits::TweakConstant),
      KindOf("insert_row", &OpEdits::InsertRow),
      KindOf("change_row", &OpEdits::ChangeRow),
      KindOf("change_attribute", &OpEdits::ChangeAttribute),
      KindOf("move_epsilon", &OpEdits::MoveEpsilon),
      KindOf("change_bounds", &OpEdits::ChangeBounds),
      KindOf("move_neg", &OpEdits::MoveNeg),
      KindOf("change_unsqueeze", &OpEdits::ChangeUnsqueeze),
      KindOf("unequal_halves", &OpEdits::UnequalHalves),
      KindOf("change_perm", &OpEdits::ChangePerm),
      KindOf("cast_up", &OpEdits::CastUp),
      KindOf("cast_down", &OpEdits::CastDown),
      KindOf("broadcast_operand", &OpEdits::BroadcastOperand),
      KindOf("swap_reshape_dims", &OpEdits::SwapReshapeDims),
  };
  return kinds;
}

}  // namespace liger::test
