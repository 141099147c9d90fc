#include "mutator.h"

#include <onnx/defs/schema.h>
#include <onnx/shape_inference/implementation.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <limits>

#include "tensor.h"

namespace liger::test {
namespace {

using onnx::AttributeProto;
using onnx::GraphProto;
using onnx::NodeProto;
using onnx::TensorProto;

// One edit in the making. Every kind is a method that returns false if it finds no place.
class Edit {
 public:
  Edit(Mutant& mutant, const std::set<std::string>& preferred,
       const std::map<std::string, MutantType>& types, std::mt19937_64& random)
      : mutant_(mutant),
        graph_(*mutant.model.mutable_graph()),
        preferred_(preferred),
        types_(types),
        random_(random) {
    for (const auto& import : mutant.model.opset_import()) {
      if (import.domain().empty()) opset_ = import.version();
    }
  }

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
        [](Edit& e, int n, int slot) { return e.Between(n, slot, {Node("Neg", {}, {})}, "Neg"); });
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
    return OnEdge([](Edit& e, int n, int slot) {
      return e.Between(n, slot, {Node("Identity", {}, {})}, "Identity");
    });
  }

  bool InsertCast() {
    return OnEdge([](Edit& e, int n, int slot) {
      const MutantType* type = e.TypeOf(e.graph_.node(n).input(slot));
      const auto cast = [](int32_t to) {
        NodeProto node = Node("Cast", {}, {});
        IntAttribute(node, "to", to);
        return node;
      };
      const int form = e.Below(4);
      if (form == 0) return e.Between(n, slot, {cast(type->dtype)}, "no-op Cast");
      static constexpr int32_t kVia[] = {TensorProto::FLOAT16, TensorProto::DOUBLE,
                                         TensorProto::BFLOAT16};
      const int32_t via = kVia[form - 1];
      return e.Between(n, slot, {cast(via), cast(type->dtype)},
                       "Cast to " + std::to_string(via) + " and back");
    });
  }

  bool InsertReshape() {
    return OnEdge([](Edit& e, int n, int slot) {
      const MutantType* type = e.TypeOf(e.graph_.node(n).input(slot));
      if (type->dims.empty()) return false;
      const auto rank = static_cast<int64_t>(type->dims.size());
      const int form = e.Below(4);
      if (form == 0) {  // to its own shape
        NodeProto reshape = Node("Reshape", {}, {});
        std::vector<int64_t> zeros(rank, 0);
        return e.Between(n, slot, {With(reshape, e.AddInts(zeros))}, "Reshape to the same shape");
      }
      if (form == 1) {
        const std::string axes = e.AddInts({static_cast<int64_t>(e.Below(static_cast<int>(rank)))});
        return e.Between(
            n, slot, {With(Node("Unsqueeze", {}, {}), axes), With(Node("Squeeze", {}, {}), axes)},
            "Unsqueeze and Squeeze");
      }
      if (form == 2) {  // an axis more in front
        return e.Between(n, slot, {With(Node("Unsqueeze", {}, {}), e.AddInts({0}))},
                         "Unsqueeze at 0");
      }
      std::vector<int64_t> perm(rank);
      for (int64_t i = 0; i < rank; ++i) perm[i] = i;
      if (rank >= 2) std::swap(perm[e.Below(static_cast<int>(rank))], perm[rank - 1]);
      NodeProto transpose = Node("Transpose", {}, {});
      IntsAttribute(transpose, "perm", perm);
      return e.Between(n, slot, {transpose}, "Transpose");
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
          if (concat == nullptr || concat->op_type() != "Concat") continue;
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
    int slot = 0;
    const bool scalar = Below(2) == 0;
    const int n = scalar ? PickScalarUse({"Mul", "Add", "Div", "Pow"}, &slot,
                                         [](const NodeProto&) { return true; })
                         : Pick({}, [&](const NodeProto& node) {
                             for (int i = 0; i < node.input_size(); ++i) {
                               const TensorProto* t = Constant(node.input(i));
                               if (t != nullptr && (t->data_type() == TensorProto::FLOAT ||
                                                    t->data_type() == TensorProto::FLOAT16)) {
                                 slot = i;
                                 return true;
                               }
                             }
                             return false;
                           });
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
    return OnEdge([](Edit& e, int n, int slot) {
      const MutantType* type = e.TypeOf(e.graph_.node(n).input(slot));
      static constexpr double kValues[] = {2, 0.5, 1, 0, 1.0001};
      const double value = kValues[e.Below(5)];
      const char* op = e.Below(2) == 0 ? "Mul" : "Add";
      return e.Between(n, slot, {With(Node(op, {}, {}), e.AddConstant(type->dtype, {}, {value}))},
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

  int Below(int n) { return static_cast<int>(random_() % static_cast<uint64_t>(n)); }

 private:
  static NodeProto Node(const std::string& op, std::vector<std::string> inputs,
                        std::vector<std::string> outputs) {
    NodeProto node;
    node.set_op_type(op);
    for (auto& input : inputs) node.add_input(std::move(input));
    for (auto& output : outputs) node.add_output(std::move(output));
    return node;
  }
  static NodeProto With(NodeProto node, const std::string& second_input) {
    node.add_input(second_input);
    return node;
  }

  static AttributeProto& FreshAttribute(NodeProto& node, const std::string& name,
                                        AttributeProto::AttributeType type) {
    RemoveAttribute(node, name);
    AttributeProto& attribute = *node.add_attribute();
    attribute.set_name(name);
    attribute.set_type(type);
    return attribute;
  }
  static void RemoveAttribute(NodeProto& node, const std::string& name) {
    for (int i = 0; i < node.attribute_size(); ++i) {
      if (node.attribute(i).name() == name) {
        node.mutable_attribute()->DeleteSubrange(i, 1);
        return;
      }
    }
  }
  static void IntAttribute(NodeProto& node, const std::string& name, int64_t value) {
    FreshAttribute(node, name, AttributeProto::INT).set_i(value);
  }
  static void FloatAttribute(NodeProto& node, const std::string& name, float value) {
    FreshAttribute(node, name, AttributeProto::FLOAT).set_f(value);
  }
  static void IntsAttribute(NodeProto& node, const std::string& name,
                            const std::vector<int64_t>& values) {
    AttributeProto& attribute = FreshAttribute(node, name, AttributeProto::INTS);
    for (int64_t v : values) attribute.add_ints(v);
  }
  static void AddBody(NodeProto& node, const std::string& name, const GraphProto& body) {
    *FreshAttribute(node, name, AttributeProto::GRAPH).mutable_g() = body;
  }

  std::string Fresh(const std::string& base) {
    return "mutant_" + base + "_" + std::to_string(next_name_++);
  }

  bool Note(const NodeProto& node, const std::string& what) {
    mutant_.note =
        (node.name().empty() ? node.output(0) : node.name()) + " (" + node.op_type() + "): " + what;
    return true;
  }

  // A random node of one of the types (any if empty) that the predicate likes; -1 if there is none.
  int Pick(std::initializer_list<const char*> types,
           const std::function<bool(const NodeProto&)>& likes = nullptr) {
    std::vector<int> all;
    std::vector<int> liked;
    for (int i = 0; i < graph_.node_size(); ++i) {
      const NodeProto& node = graph_.node(i);
      if (node.output_size() == 0) continue;
      const bool typed =
          types.size() == 0 || std::find(types.begin(), types.end(), node.op_type()) != types.end();
      if (!typed || (likes && !likes(node))) continue;
      all.push_back(i);
      if (preferred_.contains(node.name())) liked.push_back(i);
    }
    if (all.empty()) return -1;
    const std::vector<int>& from = !liked.empty() && Below(4) != 0 ? liked : all;
    return from[Below(static_cast<int>(from.size()))];
  }

  int PickFloatOutput() {
    return Pick({}, [&](const NodeProto& node) {
      return node.output_size() == 1 && node.attribute_size() < 8 && IsFloat(node.output(0));
    });
  }

  int PickScalarUse(std::initializer_list<const char*> types, int* slot,
                    const std::function<bool(const NodeProto&)>& likes) {
    const auto find = [&](const NodeProto& node) {
      for (int i = 0; i < node.input_size(); ++i) {
        const TensorProto* constant = Constant(node.input(i));
        if (constant != nullptr && ScalarOf(*constant)) return i;
      }
      return -1;
    };
    const int n =
        Pick(types, [&](const NodeProto& node) { return find(node) >= 0 && likes(node); });
    if (n >= 0) *slot = find(graph_.node(n));
    return n;
  }

  bool ReplaceScalar(int n, int slot, const std::function<double(double)>& change) {
    NodeProto& node = *graph_.mutable_node(n);
    const TensorProto& old = *Constant(node.input(slot));
    const double value = *ScalarOf(old);
    const double changed = change(value);
    std::vector<int64_t> dims(old.dims().begin(), old.dims().end());
    node.set_input(slot, AddConstant(old.data_type(), dims, {changed}));
    return Note(node, std::to_string(value) + " -> " + std::to_string(changed));
  }

  // Edits the edge into one float input of a node.
  bool OnEdge(const std::function<bool(Edit&, int, int)>& edit) {
    const auto slots = [&](const NodeProto& node) {
      std::vector<int> found;
      for (int i = 0; i < node.input_size(); ++i) {
        if (IsFloat(node.input(i))) found.push_back(i);
      }
      return found;
    };
    const int n = Pick({}, [&](const NodeProto& node) { return !slots(node).empty(); });
    if (n < 0) return false;
    const std::vector<int> found = slots(graph_.node(n));
    return edit(*this, n, found[Below(static_cast<int>(found.size()))]);
  }

  // Puts a chain of nodes, which lack first input and output, in front of an input.
  bool Between(int n, int slot, std::vector<NodeProto> chain, const std::string& note) {
    Note(graph_.node(n), note + " in front of input " + std::to_string(slot));
    std::string value = graph_.node(n).input(slot);
    const std::string first = Fresh("edge");
    std::string last = first;
    for (size_t i = 0; i < chain.size(); ++i) {
      NodeProto& node = chain[i];
      NodeProto full = node;
      full.clear_input();
      full.add_input(value);
      for (const std::string& input : node.input()) full.add_input(input);
      last = i == 0 ? first : Fresh("edge");
      full.add_output(last);
      value = last;
      node = full;
    }
    graph_.mutable_node(n)->set_input(slot, last);
    for (size_t i = 0; i < chain.size(); ++i) Insert(n + static_cast<int>(i), chain[i]);
    return true;
  }

  // Whether all inputs of `node` are known in front of position n.
  bool Precede(const NodeProto& node, int n) const {
    const auto producer = Producers();
    return std::all_of(node.input().begin(), node.input().end(), [&](const std::string& input) {
      const auto found = producer.find(input);
      return found == producer.end() || found->second < n;
    });
  }

  std::map<std::string, int> Producers() const {
    std::map<std::string, int> producer;
    for (int i = 0; i < graph_.node_size(); ++i) {
      for (const std::string& output : graph_.node(i).output()) producer[output] = i;
    }
    return producer;
  }

  const MutantType* TypeOf(const std::string& value) const {
    const auto found = types_.find(value);
    return found != types_.end() ? &found->second : nullptr;
  }
  bool IsFloat(const std::string& value) const {
    const MutantType* type = TypeOf(value);
    return type != nullptr &&
           (type->dtype == TensorProto::FLOAT || type->dtype == TensorProto::FLOAT16);
  }

  int SameTypeInput(const NodeProto& node) const {
    const MutantType* type = TypeOf(node.output(0));
    for (int i = 0; type != nullptr && i < node.input_size(); ++i) {
      const MutantType* in = TypeOf(node.input(i));
      if (in != nullptr && *in == *type) return i;
    }
    return -1;
  }

  int RowSlot(const NodeProto& node) const {
    for (int i = 0; i < node.input_size(); ++i) {
      const TensorProto* constant = Constant(node.input(i));
      if (constant != nullptr && constant->dims_size() == 1 && constant->dims(0) > 1) return i;
    }
    return -1;
  }

  // The tensor behind an initializer or a Constant node.
  const TensorProto* Constant(const std::string& value) const {
    for (const TensorProto& initializer : graph_.initializer()) {
      if (initializer.name() == value) return &initializer;
    }
    for (const NodeProto& node : graph_.node()) {
      if (node.op_type() != "Constant" || node.output(0) != value) continue;
      for (const AttributeProto& attribute : node.attribute()) {
        if (attribute.name() == "value") return &attribute.t();
      }
    }
    return nullptr;
  }

  static std::optional<double> ScalarOf(const TensorProto& tensor) {
    int64_t count = 1;
    for (int64_t d : tensor.dims()) count *= d;
    const auto dtype = static_cast<DType>(tensor.data_type());
    if (count != 1 || (dtype != DType::kF32 && dtype != DType::kF16)) return std::nullopt;
    if (!tensor.raw_data().empty()) {
      return DecodeElement(dtype, reinterpret_cast<const std::byte*>(tensor.raw_data().data()));
    }
    if (tensor.float_data_size() == 1) return tensor.float_data(0);
    if (tensor.int32_data_size() == 1) {
      const auto bits = static_cast<uint16_t>(tensor.int32_data(0));
      std::byte bytes[2];
      std::memcpy(bytes, &bits, 2);
      return DecodeElement(dtype, bytes);
    }
    return std::nullopt;
  }

  std::string AddConstant(int32_t dtype, const std::vector<int64_t>& dims,
                          const std::vector<double>& values) {
    TensorProto& tensor = *graph_.add_initializer();
    tensor.set_name(Fresh("constant"));
    tensor.set_data_type(dtype);
    for (int64_t d : dims) tensor.add_dims(d);
    const Tensor encoded = Tensor::FromDoubles(static_cast<DType>(dtype), dims, values);
    tensor.set_raw_data(
        std::string(reinterpret_cast<const char*>(encoded.bytes.data()), encoded.bytes.size()));
    return tensor.name();
  }
  std::string AddInts(const std::vector<int64_t>& values) {
    TensorProto& tensor = *graph_.add_initializer();
    tensor.set_name(Fresh("ints"));
    tensor.set_data_type(TensorProto::INT64);
    tensor.add_dims(static_cast<int64_t>(values.size()));
    for (int64_t v : values) tensor.add_int64_data(v);
    return tensor.name();
  }
  std::string AddBool(bool value) {
    TensorProto& tensor = *graph_.add_initializer();
    tensor.set_name(Fresh("condition"));
    tensor.set_data_type(TensorProto::BOOL);
    tensor.add_int32_data(value ? 1 : 0);
    return tensor.name();
  }

  void Insert(int position, const NodeProto& node) {
    *graph_.add_node() = node;
    for (int i = graph_.node_size() - 1; i > position; --i) {
      graph_.mutable_node()->SwapElements(i, i - 1);
    }
  }

  static void AddValueInfo(onnx::ValueInfoProto& info, const std::string& name,
                           const MutantType& type) {
    info.set_name(name);
    auto& tensor = *info.mutable_type()->mutable_tensor_type();
    tensor.set_elem_type(type.dtype);
    tensor.mutable_shape();
    for (const std::string& dim : type.dims) {
      auto& d = *tensor.mutable_shape()->add_dim();
      if (!dim.empty() && dim.find_first_not_of("0123456789") == std::string::npos) {
        d.set_dim_value(std::stoll(dim));
      } else if (!dim.starts_with("?")) {
        d.set_dim_param(dim);
      }
    }
  }

  bool AddOutput(const std::string& value) { return AddOutput(value, value); }
  bool AddOutput(const std::string& value, const std::string& typed_like) {
    const MutantType* type = TypeOf(typed_like);
    if (type == nullptr) return false;
    for (const auto& output : graph_.output()) {
      if (output.name() == value) return false;
    }
    AddValueInfo(*graph_.add_output(), value, *type);
    return true;
  }

  Mutant& mutant_;
  GraphProto& graph_;
  const std::set<std::string>& preferred_;
  const std::map<std::string, MutantType>& types_;
  std::mt19937_64& random_;
  int64_t opset_ = 0;
  int next_name_ = 0;
};

using Method = bool (Edit::*)();
const std::vector<std::pair<std::string, Method>>& Methods() {
  static const std::vector<std::pair<std::string, Method>> methods = {
      {"swap_operands", &Edit::SwapOperands},
      {"change_scalar", &Edit::ChangeScalar},
      {"change_epsilon", &Edit::ChangeEpsilon},
      {"vector_constant", &Edit::VectorConstant},
      {"change_exponent", &Edit::ChangeExponent},
      {"change_axis", &Edit::ChangeAxis},
      {"keepdims", &Edit::KeepDims},
      {"change_slice", &Edit::ChangeSlice},
      {"rewire_input", &Edit::RewireInput},
      {"drop_neg", &Edit::DropNeg},
      {"insert_neg", &Edit::InsertNeg},
      {"change_activation", &Edit::ChangeActivation},
      {"change_op", &Edit::ChangeOp},
      {"bypass_node", &Edit::BypassNode},
      {"inner_output", &Edit::InnerOutput},
      {"outside_use", &Edit::OutsideUse},
      {"duplicate_node", &Edit::DuplicateNode},
      {"insert_identity", &Edit::InsertIdentity},
      {"insert_cast", &Edit::InsertCast},
      {"insert_reshape", &Edit::InsertReshape},
      {"reshape_scale", &Edit::ReshapeScale},
      {"swap_cos_sin", &Edit::SwapCosSin},
      {"initializer_as_input", &Edit::InitializerAsInput},
      {"move_to_if", &Edit::MoveToIf},
      {"capture_in_if", &Edit::CaptureInIf},
      {"respell", &Edit::Respell},
      {"insert_scale", &Edit::InsertScale},
      {"reassociate", &Edit::Reassociate},
      {"alias_output", &Edit::AliasOutput},
  };
  return methods;
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
  onnx::ModelProto inferred = base;
  onnx::shape_inference::InferShapes(inferred, onnx::OpSchemaRegistry::Instance(),
                                     onnx::ShapeInferenceOptions(false, 0, true));
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
    for (const auto& [name, method] : Methods()) names.push_back(name);
    return names;
  }();
  return kinds;
}

std::optional<Mutant> Mutator::Make(const std::string& kind, std::mt19937_64& random) const {
  for (const auto& [name, method] : Methods()) {
    if (name != kind) continue;
    Mutant mutant;
    mutant.model = base_;
    Edit edit(mutant, preferred_, types_, random);
    if (!(edit.*method)()) return std::nullopt;
    DropFalseTypes(mutant.model);
    return mutant;
  }
  return std::nullopt;
}

}  // namespace liger::test
