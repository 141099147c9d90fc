#include "mutator.h"

#include <onnx/defs/schema.h>
#include <onnx/shape_inference/implementation.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <limits>

#include "op_edits.h"
#include "window.h"

namespace liger::test {
namespace {

using onnx::GraphProto;
using onnx::NodeProto;
using onnx::TensorProto;

// One edit in the making. Every kind is a method that returns false if it finds no place.
class Edit : public EditBase {
 public:
  using EditBase::EditBase;

  bool SwapOperands() {
    const int n = Pick({"Mul", "Add", "Sub", "Div", "Pow", "Concat"},
                       [](const NodeProto& node) { return node.input_size() >= 2; });
    if (n < 0) return false;
    NodeProto& node = *graph_.mutable_node(n);
    const int a = Below(node.input_size());
    const int b = (a + 1 + Below(node.input_size() - 1)) % node.input_size();
    node.mutable_input()->SwapElements(a, b);
    return Note(node, "inputs " + std::to_string(a) + " and " + std::to_string(b));
  }

  bool ChangeScalar() {
    int slot = 0;
    const int n = PickScalarUse({"Mul", "Add", "Sub", "Div", "Pow"}, &slot,
                                [](const NodeProto&) { return true; });
    if (n < 0) return false;
    return ReplaceScalar(n, slot, [&](double v) {
      static constexpr double kFactors[] = {2, 0.5, -1, 1.0001, 0};
      return v * kFactors[Below(5)];
    });
  }

  bool ChangeEpsilon() {
    const auto producer = Producers();
    int slot = 0;
    const int n = PickScalarUse({"Add"}, &slot, [&](const NodeProto& node) {
      return std::any_of(node.input().begin(), node.input().end(), [&](const std::string& input) {
        const auto found = producer.find(input);
        return found != producer.end() && graph_.node(found->second).op_type() == "ReduceMean";
      });
    });
    if (n < 0) {
      const int norm = Pick({"RMSNormalization"});
      if (norm < 0) return false;
      NodeProto& node = *graph_.mutable_node(norm);
      static constexpr float kValues[] = {0.0F, 1e-3F, 0.5F, 1e-12F};
      FloatAttribute(node, "epsilon", kValues[Below(4)]);
      return Note(node, "epsilon");
    }
    return ReplaceScalar(n, slot, [&](double) {
      static constexpr double kValues[] = {0, 1e-3, 1.0, -1e-9, 0.01};
      return kValues[Below(5)];
    });
  }

  // A vector where a scalar stood, with equal or unequal elements.
  bool VectorConstant() {
    int slot = 0;
    const int n = PickScalarUse({"Mul", "Add", "Pow", "Div"}, &slot, [&](const NodeProto& node) {
      const MutantType* type = TypeOf(node.output(0));
      return type != nullptr && !type->dims.empty();
    });
    if (n < 0) return false;
    NodeProto& node = *graph_.mutable_node(n);
    const TensorProto* constant = Constant(node.input(slot));
    const double value = *ScalarOf(*constant);
    static constexpr int64_t kLengths[] = {8, 32, 48, 1};
    const int64_t length = kLengths[Below(4)];
    const bool equal = Below(2) == 0;
    std::vector<double> values;
    for (int64_t i = 0; i < length; ++i)
      values.push_back(equal ? value : value * (1 + 0.1 * static_cast<double>(i)));
    node.set_input(slot, AddConstant(constant->data_type(), {length}, values));
    return Note(node,
                "constant of length " + std::to_string(length) + (equal ? " equal" : " unequal"));
  }

  bool ChangeExponent() {
    int slot = 0;
    const int n = PickScalarUse({"Pow"}, &slot, [](const NodeProto&) { return true; });
    if (n < 0 || slot != 1) return false;
    return ReplaceScalar(n, slot, [&](double) {
      static constexpr double kValues[] = {3, 1, 0.5, 2.001, -2, 4};
      return kValues[Below(6)];
    });
  }

  bool ChangeAxis() {
    const int n = Pick({"ReduceMean", "Concat", "Split", "RMSNormalization", "Softmax"});
    if (n < 0) return false;
    NodeProto& node = *graph_.mutable_node(n);
    const MutantType* type = TypeOf(node.input(0));
    const int rank = type != nullptr ? static_cast<int>(type->dims.size()) : 3;
    std::vector<int64_t> axes = {static_cast<int64_t>(Below(2 * rank)) - rank};
    if (node.op_type() != "ReduceMean") {
      IntAttribute(node, "axis", axes[0]);
      return Note(node, "axis " + std::to_string(axes[0]));
    }
    const int form = Below(4);
    if (form == 0) axes = {-1, -2};
    if (form == 1) axes = {};
    if (opset_ >= 18) {
      while (node.input_size() < 2) node.add_input("");
      node.set_input(1, AddInts(axes));
    } else {
      IntsAttribute(node, "axes", axes);
      if (axes.empty()) RemoveAttribute(node, "axes");
    }
    return Note(node, "axes, form " + std::to_string(form));
  }

  bool KeepDims() {
    const int n = Pick({"ReduceMean"});
    if (n < 0) return false;
    NodeProto& node = *graph_.mutable_node(n);
    IntAttribute(node, "keepdims", 0);
    const std::string output = node.output(0);
    const int form = Below(4);
    if (form == 0) return Note(node, "keepdims 0");
    const std::string flat = Fresh("flat");
    const std::string name = node.name();
    node.set_output(0, flat);
    static constexpr int64_t kAxes[] = {-1, 1, 0};
    NodeProto unsqueeze = Node("Unsqueeze", {flat}, {output});
    unsqueeze.add_input(AddInts({kAxes[form - 1]}));
    Insert(n + 1, unsqueeze);
    mutant_.note = name + ": keepdims 0, Unsqueeze at " + std::to_string(kAxes[form - 1]);
    return true;
  }

  bool ChangeSlice() {
    const int n = Pick({"Slice"}, [](const NodeProto& node) { return node.input_size() >= 4; });
    if (n < 0) return false;
    NodeProto& node = *graph_.mutable_node(n);
    const int form = Below(4);
    if (form == 0) {  // the other half
      const auto other = graph_.node();
      for (const NodeProto& twin : other) {
        if (twin.op_type() != "Slice" || twin.input(0) != node.input(0)) continue;
        if (twin.output(0) == node.output(0) || !Precede(twin, n)) continue;
        for (int i = 1; i < std::min(node.input_size(), twin.input_size()); ++i) {
          node.set_input(i, twin.input(i));
        }
        return Note(node, "bounds of its twin");
      }
    }
    if (form == 1) {
      while (node.input_size() < 5) node.add_input("");
      static constexpr int64_t kSteps[] = {2, -1};
      const int64_t step = kSteps[Below(2)];
      node.set_input(4, AddInts({step}));
      if (step < 0) {
        node.set_input(1, AddInts({std::numeric_limits<int64_t>::max()}));
        node.set_input(2, AddInts({std::numeric_limits<int64_t>::min()}));
      }
      return Note(node, "step " + std::to_string(step));
    }
    if (form == 2) {
      node.set_input(3, AddInts({static_cast<int64_t>(Below(4)) - 2}));
      return Note(node, "axis");
    }
    const int slot = 1 + Below(2);
    const int64_t bound = static_cast<int64_t>(Below(17)) - 8;
    node.set_input(slot, AddInts({bound}));
    return Note(node, "bound " + std::to_string(slot) + " = " + std::to_string(bound));
  }

  bool RewireInput() {
    const int n = Pick({}, [&](const NodeProto& node) {
      return node.input_size() > 0 && TypeOf(node.input(0)) != nullptr;
    });
    if (n < 0) return false;
    NodeProto& node = *graph_.mutable_node(n);
    const int slot = Below(node.input_size());
    const MutantType* type = TypeOf(node.input(slot));
    if (type == nullptr) return false;
    std::vector<std::string> others;
    const auto consider = [&](const std::string& name) {
      const MutantType* other = TypeOf(name);
      if (name != node.input(slot) && other != nullptr && *other == *type) others.push_back(name);
    };
    for (const auto& initializer : graph_.initializer()) consider(initializer.name());
    for (int i = 0; i < n; ++i) {
      for (const std::string& output : graph_.node(i).output()) consider(output);
    }
    if (others.empty()) return false;
    const std::string other = others[Below(static_cast<int>(others.size()))];
    const std::string old = node.input(slot);
    node.set_input(slot, other);
    return Note(node, old + " -> " + other);
  }

  bool DropNeg() {
    const int n = Pick({"Neg"});
    if (n < 0) return false;
    graph_.mutable_node(n)->set_op_type("Identity");
    return Note(graph_.node(n), "Neg -> Identity");
  }

  bool InsertNeg() {
    return OnEdge(
        [this](int n, int slot) { return Between(n, slot, {Node("Neg", {}, {})}, "Neg"); });
  }

  bool ChangeActivation() {
    const int n = Pick({"Sigmoid"});
    if (n < 0) return false;
    static const char* const kOps[] = {"Tanh",     "HardSigmoid", "Relu",
                                       "Softplus", "Erf",         "Softsign"};
    const std::string op = kOps[Below(6)];
    graph_.mutable_node(n)->set_op_type(op);
    return Note(graph_.node(n), "Sigmoid -> " + op);
  }

  bool ChangeOp() {
    static const std::map<std::string, std::vector<std::string>> others = {
        {"Add", {"Sub", "Mul", "Max"}},
        {"Sub", {"Add"}},
        {"Mul", {"Add", "Div", "Sub"}},
        {"Div", {"Mul", "Sub"}},
        {"Sqrt", {"Abs", "Exp", "Identity"}},
        {"Reciprocal", {"Identity", "Sqrt", "Neg"}},
        {"ReduceMean", {"ReduceMax", "ReduceSumSquare", "ReduceL2"}},
        {"Pow", {"Mul", "Add"}},
        {"Neg", {"Abs"}}};
    const int n = Pick({}, [&](const NodeProto& node) { return others.contains(node.op_type()); });
    if (n < 0) return false;
    NodeProto& node = *graph_.mutable_node(n);
    const auto& choice = others.at(node.op_type());
    const std::string& op = choice[Below(static_cast<int>(choice.size()))];
    const std::string old = node.op_type();
    node.set_op_type(op);
    return Note(node, old + " -> " + op);
  }

  // The users of a node's output read one of its inputs instead.
  bool BypassNode() {
    const int n = Pick({}, [&](const NodeProto& node) { return SameTypeInput(node) >= 0; });
    if (n < 0) return false;
    const NodeProto node = graph_.node(n);
    const std::string& from = node.output(0);
    const std::string& to = node.input(SameTypeInput(node));
    bool used = false;
    for (NodeProto& user : *graph_.mutable_node()) {
      for (std::string& input : *user.mutable_input()) {
        if (input == from) input = to, used = true;
      }
    }
    return used && Note(node, "bypassed");
  }

  bool InnerOutput() {
    const int n =
        Pick({}, [&](const NodeProto& node) { return TypeOf(node.output(0)) != nullptr; });
    return n >= 0 && AddOutput(graph_.node(n).output(0)) && Note(graph_.node(n), "as graph output");
  }

  bool OutsideUse() {
    const int n = PickFloatOutput();
    if (n < 0) return false;
    const std::string value = graph_.node(n).output(0);
    const std::string use = Fresh("use");
    Insert(graph_.node_size(), Node("Abs", {value}, {use}));
    return AddOutput(use, value) && Note(graph_.node(n), "read outside");
  }

  bool DuplicateNode() {
    const int n = Pick({}, [&](const NodeProto& node) { return node.output_size() == 1; });
    if (n < 0) return false;
    NodeProto clone = graph_.node(n);
    const std::string from = clone.output(0);
    const std::string to = Fresh("again");
    clone.set_output(0, to);
    clone.set_name(Fresh("again"));
    std::vector<std::pair<int, int>> uses;
    for (int i = 0; i < graph_.node_size(); ++i) {
      for (int s = 0; s < graph_.node(i).input_size(); ++s) {
        if (graph_.node(i).input(s) == from) uses.emplace_back(i, s);
      }
    }
    if (uses.empty()) return false;
    const auto [user, slot] = uses[Below(static_cast<int>(uses.size()))];
    graph_.mutable_node(user)->set_input(slot, to);
    Note(clone, "computed twice");
    Insert(n + 1, clone);
    return true;
  }

  bool InsertIdentity() {
    return OnEdge([this](int n, int slot) {
      return Between(n, slot, {Node("Identity", {}, {})}, "Identity");
    });
  }

  bool InsertCast() {
    return OnEdge([this](int n, int slot) {
      const MutantType* type = TypeOf(graph_.node(n).input(slot));
      const auto cast = [](int32_t to) {
        NodeProto node = Node("Cast", {}, {});
        IntAttribute(node, "to", to);
        return node;
      };
      const int form = Below(4);
      if (form == 0) return Between(n, slot, {cast(type->dtype)}, "no-op Cast");
      static constexpr int32_t kVia[] = {TensorProto::FLOAT16, TensorProto::DOUBLE,
                                         TensorProto::BFLOAT16};
      const int32_t via = kVia[form - 1];
      return Between(n, slot, {cast(via), cast(type->dtype)},
                     "Cast to " + std::to_string(via) + " and back");
    });
  }

  bool InsertReshape() {
    return OnEdge([this](int n, int slot) {
      const MutantType* type = TypeOf(graph_.node(n).input(slot));
      if (type->dims.empty()) return false;
      const auto rank = static_cast<int64_t>(type->dims.size());
      const int form = Below(4);
      if (form == 0) {  // to its own shape
        NodeProto reshape = Node("Reshape", {}, {});
        std::vector<int64_t> zeros(rank, 0);
        return Between(n, slot, {With(reshape, AddInts(zeros))}, "Reshape to the same shape");
      }
      if (form == 1) {
        const std::string axes = AddInts({static_cast<int64_t>(Below(static_cast<int>(rank)))});
        return Between(n, slot,
                       {With(Node("Unsqueeze", {}, {}), axes), With(Node("Squeeze", {}, {}), axes)},
                       "Unsqueeze and Squeeze");
      }
      if (form == 2) {  // an axis more in front
        return Between(n, slot, {With(Node("Unsqueeze", {}, {}), AddInts({0}))}, "Unsqueeze at 0");
      }
      std::vector<int64_t> perm(rank);
      for (int64_t i = 0; i < rank; ++i) perm[i] = i;
      if (rank >= 2) std::swap(perm[Below(static_cast<int>(rank))], perm[rank - 1]);
      NodeProto transpose = Node("Transpose", {}, {});
      IntsAttribute(transpose, "perm", perm);
      return Between(n, slot, {transpose}, "Transpose");
    });
  }

  // The scale as [1, H], [1, 1, H], [H, 1] or repeated rows.
  bool ReshapeScale() {
    const int n = Pick({"Mul", "RMSNormalization"},
                       [&](const NodeProto& node) { return RowSlot(node) >= 0; });
    if (n < 0) return false;
    NodeProto& node = *graph_.mutable_node(n);
    const int slot = RowSlot(node);
    const TensorProto* row = Constant(node.input(slot));
    const int64_t width = row->dims(0);
    static const std::vector<std::vector<int64_t>> kForms = {
        {1, 0}, {1, 1, 0}, {0, 1}, {1, 1, 1, 0}};
    std::vector<int64_t> dims = kForms[Below(4)];
    for (int64_t& d : dims) d = d == 0 ? width : d;
    const std::string scale = Fresh("scale");
    TensorProto& copy = *graph_.add_initializer();
    copy = *Constant(node.input(slot));
    copy.set_name(scale);
    copy.clear_dims();
    for (int64_t d : dims) copy.add_dims(d);
    node.set_input(slot, scale);
    return Note(node, "scale of rank " + std::to_string(dims.size()));
  }

  // Rotation: Add(Mul(x, cos), Mul(Concat(Neg, .), sin)).
  bool SwapCosSin() {
    const auto producer = Producers();
    const auto made_by = [&](const std::string& value) -> const NodeProto* {
      const auto found = producer.find(value);
      return found != producer.end() ? &graph_.node(found->second) : nullptr;
    };
    struct Place {
      int straight, straight_slot, crossed, crossed_slot;
    };
    std::vector<Place> places;
    for (const NodeProto& node : graph_.node()) {
      if (node.op_type() != "Add") continue;
      for (int side : {0, 1}) {
        const auto a = producer.find(node.input(side));
        const auto b = producer.find(node.input(1 - side));
        if (a == producer.end() || b == producer.end()) continue;
        const NodeProto& straight = graph_.node(a->second);
        const NodeProto& crossed = graph_.node(b->second);
        if (straight.op_type() != "Mul" || crossed.op_type() != "Mul") continue;
        for (int turned : {0, 1}) {
          const NodeProto* concat = made_by(crossed.input(turned));
          if (concat == nullptr || concat->op_type() != "Concat" || concat->input_size() != 2) {
            continue;
          }
          const NodeProto* low = made_by(concat->input(1));
          if (low == nullptr || low->op_type() != "Slice") continue;
          const int x = straight.input(0) == low->input(0) ? 0 : 1;
          places.push_back({a->second, 1 - x, b->second, 1 - turned});
        }
      }
    }
    if (places.empty()) return false;
    const Place place = places[Below(static_cast<int>(places.size()))];
    NodeProto& straight = *graph_.mutable_node(place.straight);
    NodeProto& crossed = *graph_.mutable_node(place.crossed);
    const std::string cos = straight.input(place.straight_slot);
    const std::string sin = crossed.input(place.crossed_slot);
    const int form = Below(3);
    if (form != 1) straight.set_input(place.straight_slot, sin);
    if (form != 2) crossed.set_input(place.crossed_slot, cos);
    return Note(straight, "tables swapped, form " + std::to_string(form));
  }

  bool InitializerAsInput() {
    const auto slot_of = [&](const NodeProto& node) {
      for (int i = 0; i < node.input_size(); ++i) {
        const TensorProto* t = Constant(node.input(i));
        if (t != nullptr &&
            (t->data_type() == TensorProto::FLOAT || t->data_type() == TensorProto::FLOAT16)) {
          return i;
        }
      }
      return -1;
    };
    int slot = 0;
    const bool scalar = Below(2) == 0;
    const int n = scalar ? PickScalarUse({"Mul", "Add", "Div", "Pow"}, &slot,
                                         [](const NodeProto&) { return true; })
                         : Pick({}, [&](const NodeProto& node) { return slot_of(node) >= 0; });
    if (n >= 0 && !scalar) slot = slot_of(graph_.node(n));
    if (n < 0) return false;
    NodeProto& node = *graph_.mutable_node(n);
    const TensorProto* constant = Constant(node.input(slot));
    if (constant == nullptr) return false;
    TensorProto copy = *constant;
    const std::string name = Fresh("overridable");
    copy.set_name(name);
    auto& input = *graph_.add_input();
    input.set_name(name);
    auto& tensor = *input.mutable_type()->mutable_tensor_type();
    tensor.set_elem_type(copy.data_type());
    tensor.mutable_shape();
    for (int64_t d : copy.dims()) tensor.mutable_shape()->add_dim()->set_dim_value(d);
    *graph_.add_initializer() = copy;
    node.set_input(slot, name);
    mutant_.overrides.push_back(name);
    return Note(node, "constant " + std::to_string(slot) + " overridable");
  }

  // A node stands in both branches of an If; the branch that is not taken may do something else.
  bool MoveToIf() {
    const int n = PickFloatOutput();
    if (n < 0) return false;
    const NodeProto node = graph_.node(n);
    const bool differ = Below(2) == 0;
    NodeProto branch = Node("If", {AddBool(Below(2) == 0)}, {node.output(0)});
    branch.set_name(Fresh("if"));
    for (const char* which : {"then_branch", "else_branch"}) {
      GraphProto body;
      body.set_name(which);
      const std::string result = Fresh("result");
      NodeProto inner = node;
      inner.set_output(0, result);
      *body.add_node() = inner;
      std::string last = result;
      if (differ && which == std::string("else_branch")) {
        last = Fresh("result");
        *body.add_node() = Node("Neg", {result}, {last});
      }
      AddValueInfo(*body.add_output(), last, *TypeOf(node.output(0)));
      AddBody(branch, which, body);
    }
    *graph_.mutable_node(n) = branch;
    return Note(node, "moved into an If");
  }

  bool CaptureInIf() {
    const int n = PickFloatOutput();
    if (n < 0) return false;
    const std::string value = graph_.node(n).output(0);
    const std::string use = Fresh("captured");
    NodeProto branch = Node("If", {AddBool(true)}, {use});
    for (const char* which : {"then_branch", "else_branch"}) {
      GraphProto body;
      body.set_name(which);
      const std::string result = Fresh("result");
      *body.add_node() =
          Node(which == std::string("then_branch") ? "Neg" : "Abs", {value}, {result});
      AddValueInfo(*body.add_output(), result, *TypeOf(value));
      AddBody(branch, which, body);
    }
    Insert(graph_.node_size(), branch);
    return AddOutput(use, value) && Note(graph_.node(n), "captured by an If");
  }

  // Another spelling of the same function.
  bool Respell() {
    const int n = Pick({"Pow", "Div", "Sigmoid", "Neg", "Reciprocal", "Add", "Sub"},
                       [&](const NodeProto& node) { return IsFloat(node.output(0)); });
    if (n < 0) return false;
    NodeProto node = graph_.node(n);
    const std::string& op = node.op_type();
    const int32_t dtype = TypeOf(node.output(0))->dtype;
    const std::string& out = node.output(0);
    const std::string t = Fresh("t");
    const std::string u = Fresh("t");
    const auto scalar = [&](double v) { return AddConstant(dtype, {}, {v}); };
    std::vector<NodeProto> nodes;
    if (op == "Pow") {
      const TensorProto* e = Constant(node.input(1));
      if (e == nullptr || ScalarOf(*e) != 2.0) return false;
      nodes = {Node("Mul", {node.input(0), node.input(0)}, {out})};
    } else if (op == "Div") {
      nodes = {Node("Reciprocal", {node.input(1)}, {t}), Node("Mul", {node.input(0), t}, {out})};
    } else if (op == "Sigmoid") {
      nodes = {Node("Neg", {node.input(0)}, {t}), Node("Exp", {t}, {u}),
               Node("Add", {u, scalar(1)}, {t + "p"}), Node("Reciprocal", {t + "p"}, {out})};
    } else if (op == "Neg") {
      nodes = {Below(2) == 0 ? Node("Mul", {node.input(0), scalar(-1)}, {out})
                             : Node("Sub", {scalar(0), node.input(0)}, {out})};
    } else if (op == "Reciprocal") {
      nodes = {Below(2) == 0 ? Node("Div", {scalar(1), node.input(0)}, {out})
                             : Node("Pow", {node.input(0), scalar(-1)}, {out})};
    } else if (op == "Add") {
      nodes = {Node("Sum", {node.input(0), node.input(1)}, {out})};
    } else {
      nodes = {Node("Neg", {node.input(1)}, {t}), Node("Add", {node.input(0), t}, {out})};
    }
    Note(node, "respelt");
    graph_.mutable_node()->DeleteSubrange(n, 1);
    for (size_t i = 0; i < nodes.size(); ++i) Insert(n + static_cast<int>(i), nodes[i]);
    return true;
  }

  bool InsertScale() {
    return OnEdge([this](int n, int slot) {
      const MutantType* type = TypeOf(graph_.node(n).input(slot));
      static constexpr double kValues[] = {2, 0.5, 1, 0, 1.0001};
      const double value = kValues[Below(5)];
      const char* op = Below(2) == 0 ? "Mul" : "Add";
      return Between(n, slot, {With(Node(op, {}, {}), AddConstant(type->dtype, {}, {value}))},
                     std::string(op) + " " + std::to_string(value));
    });
  }

  // A product with a common factor takes another factor first: (a*b)*c as a*(b*c).
  bool Reassociate() {
    const auto producer = Producers();
    const int n = Pick({"Mul"}, [&](const NodeProto& node) {
      return std::any_of(node.input().begin(), node.input().end(), [&](const std::string& input) {
        const auto found = producer.find(input);
        return found != producer.end() && graph_.node(found->second).op_type() == "Mul";
      });
    });
    if (n < 0) return false;
    const NodeProto node = graph_.node(n);
    for (int slot : {0, 1}) {
      const auto found = producer.find(node.input(slot));
      if (found == producer.end() || graph_.node(found->second).op_type() != "Mul") continue;
      const NodeProto first = graph_.node(found->second);
      const int kept = Below(2);
      const std::string t = Fresh("t");
      *graph_.mutable_node(n) = Node("Mul", {first.input(kept), t}, {node.output(0)});
      graph_.mutable_node(n)->set_name(node.name());
      Insert(n, Node("Mul", {first.input(1 - kept), node.input(1 - slot)}, {t}));
      return Note(node, "re-associated");
    }
    return false;
  }

  // The graph output is another name of what it was.
  bool AliasOutput() {
    const int o = Below(graph_.output_size());
    const std::string old = graph_.output(o).name();
    const std::string name = Fresh("alias");
    graph_.mutable_output(o)->set_name(name);
    Insert(graph_.node_size(), Node("Identity", {old}, {name}));
    mutant_.note = old + " as " + name;
    return true;
  }
};

const std::vector<EditKind>& AllKinds() {
  static const std::vector<EditKind> kinds = [] {
    std::vector<EditKind> all = {
        KindOf("swap_operands", &Edit::SwapOperands),
        KindOf("change_scalar", &Edit::ChangeScalar),
        KindOf("change_epsilon", &Edit::ChangeEpsilon),
        KindOf("vector_constant", &Edit::VectorConstant),
        KindOf("change_exponent", &Edit::ChangeExponent),
        KindOf("change_axis", &Edit::ChangeAxis),
        KindOf("keepdims", &Edit::KeepDims),
        KindOf("change_slice", &Edit::ChangeSlice),
        KindOf("rewire_input", &Edit::RewireInput),
        KindOf("drop_neg", &Edit::DropNeg),
        KindOf("insert_neg", &Edit::InsertNeg),
        KindOf("change_activation", &Edit::ChangeActivation),
        KindOf("change_op", &Edit::ChangeOp),
        KindOf("bypass_node", &Edit::BypassNode),
        KindOf("inner_output", &Edit::InnerOutput),
        KindOf("outside_use", &Edit::OutsideUse),
        KindOf("duplicate_node", &Edit::DuplicateNode),
        KindOf("insert_identity", &Edit::InsertIdentity),
        KindOf("insert_cast", &Edit::InsertCast),
        KindOf("insert_reshape", &Edit::InsertReshape),
        KindOf("reshape_scale", &Edit::ReshapeScale),
        KindOf("swap_cos_sin", &Edit::SwapCosSin),
        KindOf("initializer_as_input", &Edit::InitializerAsInput),
        KindOf("move_to_if", &Edit::MoveToIf),
        KindOf("capture_in_if", &Edit::CaptureInIf),
        KindOf("respell", &Edit::Respell),
        KindOf("insert_scale", &Edit::InsertScale),
        KindOf("reassociate", &Edit::Reassociate),
        KindOf("alias_output", &Edit::AliasOutput),
    };
    all.insert(all.end(), OpEditKinds().begin(), OpEditKinds().end());
    return all;
  }();
  return kinds;
}

bool Contradict(const onnx::TypeProto& declared, const onnx::TypeProto& inferred) {
  const auto& a = declared.tensor_type();
  const auto& b = inferred.tensor_type();
  if (a.elem_type() != b.elem_type()) return true;
  if (!a.has_shape() || !b.has_shape()) return false;
  if (a.shape().dim_size() != b.shape().dim_size()) return true;
  for (int i = 0; i < a.shape().dim_size(); ++i) {
    const auto& x = a.shape().dim(i);
    const auto& y = b.shape().dim(i);
    if (x.has_dim_value() && y.has_dim_value() && x.dim_value() != y.dim_value()) return true;
    if (x.has_dim_value() != y.has_dim_value() && (x.has_dim_param() || y.has_dim_param())) {
      return true;
    }
    if (x.has_dim_param() && y.has_dim_param() && x.dim_param() != y.dim_param()) return true;
  }
  return false;
}

// An edit changes shapes behind it. Declared types that are no longer true go.
void DropFalseTypes(onnx::ModelProto& model) {
  onnx::ModelProto fresh = model;
  fresh.mutable_graph()->clear_value_info();
  for (auto& output : *fresh.mutable_graph()->mutable_output()) output.clear_type();
  std::map<std::string, const onnx::TypeProto*> inferred;
  try {
    onnx::shape_inference::InferShapes(fresh, onnx::OpSchemaRegistry::Instance(),
                                       onnx::ShapeInferenceOptions(false, 0, true));
  } catch (const std::exception&) {
    model.mutable_graph()->clear_value_info();
    return;
  }
  for (const auto& info : fresh.graph().value_info()) inferred[info.name()] = &info.type();
  for (const auto& info : fresh.graph().output()) inferred[info.name()] = &info.type();
  onnx::GraphProto kept;
  for (const auto& info : model.graph().value_info()) {
    const auto found = inferred.find(info.name());
    if (found == inferred.end() || !Contradict(info.type(), *found->second)) {
      *kept.add_value_info() = info;
    }
  }
  model.mutable_graph()->mutable_value_info()->Swap(kept.mutable_value_info());
  for (auto& output : *model.mutable_graph()->mutable_output()) {
    const auto found = inferred.find(output.name());
    if (found != inferred.end() && found->second->has_tensor_type() &&
        Contradict(output.type(), *found->second)) {
      output.mutable_type()->mutable_tensor_type()->clear_shape();
    }
  }
}

}  // namespace

Mutator::Mutator(const onnx::ModelProto& base, std::set<std::string> preferred)
    : base_(base), preferred_(std::move(preferred)) {
  const onnx::ModelProto inferred = WithTypes(base);
  int unknown = 0;
  const auto add = [&](const onnx::ValueInfoProto& info) {
    if (!info.type().has_tensor_type() || !info.type().tensor_type().has_shape()) return;
    MutantType type;
    type.dtype = info.type().tensor_type().elem_type();
    for (const auto& dim : info.type().tensor_type().shape().dim()) {
      type.dims.push_back(dim.has_dim_value()        ? std::to_string(dim.dim_value())
                          : !dim.dim_param().empty() ? dim.dim_param()
                                                     : "?" + std::to_string(unknown++));
    }
    types_[info.name()] = type;
  };
  for (const auto& info : inferred.graph().value_info()) add(info);
  for (const auto& info : inferred.graph().input()) add(info);
  for (const auto& info : inferred.graph().output()) add(info);
  for (const auto& tensor : inferred.graph().initializer()) {
    MutantType type;
    type.dtype = tensor.data_type();
    for (int64_t d : tensor.dims()) type.dims.push_back(std::to_string(d));
    types_[tensor.name()] = type;
  }
}

const std::vector<std::string>& Mutator::Kinds() {
  static const std::vector<std::string> kinds = [] {
    std::vector<std::string> names;
    for (const auto& [name, make] : AllKinds()) names.push_back(name);
    return names;
  }();
  return kinds;
}

std::optional<Mutant> Mutator::Make(const std::vector<std::string>& kinds,
                                    std::mt19937_64& random) const {
  Mutant mutant;
  mutant.model = base_;
  std::string notes;
  for (const std::string& kind : kinds) {
    const auto named = [&](const EditKind& candidate) { return candidate.first == kind; };
    const auto found = std::find_if(AllKinds().begin(), AllKinds().end(), named);
    if (found == AllKinds().end()) return std::nullopt;
    if (!found->second({mutant, preferred_, types_, random})) return std::nullopt;
    notes += (notes.empty() ? "" : "; ") + mutant.note;
  }
  mutant.note = notes;
  DropFalseTypes(mutant.model);
  return mutant;
}

}  // namespace liger::test
