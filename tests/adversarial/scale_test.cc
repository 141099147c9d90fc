// Large and deep graphs: no recursion over the graph, no step that grows with its square.
#include "model_case.h"

namespace liger::test {
namespace {

void AddNode(onnx::GraphProto& graph, const std::string& op, std::vector<std::string> inputs,
             const std::string& output) {
  auto& node = *graph.add_node();
  node.set_op_type(op);
  for (auto& input : inputs) node.add_input(std::move(input));
  node.add_output(output);
}

// A chain of `length` nodes of one operator in front of a norm.
Case Chain(const std::string& op, int length, bool binary) {
  Case c;
  c.body = "t = Tanh(x)\n" + Norm("last", "w", "eps", "y");
  c.edit = [=](onnx::ModelProto& model) {
    auto& graph = *model.mutable_graph();
    onnx::GraphProto old = graph;
    graph.clear_node();
    *graph.add_node() = old.node(0);
    std::string value = "t";
    for (int i = 0; i < length; ++i) {
      const std::string next = i + 1 == length ? "last" : "c" + std::to_string(i);
      AddNode(graph, op,
              binary ? std::vector<std::string>{value, "x"} : std::vector<std::string>{value},
              next);
      value = next;
    }
    for (int i = 1; i < old.node_size(); ++i) *graph.add_node() = old.node(i);
  };
  c.runs = false;
  return c;
}

TEST(ScaleAdversarial, DeepChains) {
  for (const char* op : {"Tanh", "Neg", "Identity", "Reciprocal", "Sigmoid"}) {
    SCOPED_TRACE(op);
    Expect(Chain(op, 50000, false), {"LigerRMSNorm"});
  }
}

TEST(ScaleAdversarial, DeepChainsOfBinaryOperators) {
  Expect(Chain("Mul", 50000, true), {"LigerRMSNorm"});
  // The last difference is no sum of two values of the graph.
  Expect(Chain("Sub", 50000, true), {"LigerRMSNorm"});
}

// Every value doubled: a term of 2^n leaves that is a graph of n nodes.
TEST(ScaleAdversarial, SharedOperands) {
  for (const char* op : {"Mul", "Add"}) {
    Case c;
    c.runs = false;
    c.body = "t = Tanh(x)\n" + Norm("last", "w", "eps", "y");
    c.edit = [=](onnx::ModelProto& model) {
      auto& graph = *model.mutable_graph();
      onnx::GraphProto old = graph;
      graph.clear_node();
      *graph.add_node() = old.node(0);
      std::string value = "t";
      for (int i = 0; i < 3000; ++i) {
        const std::string next = i == 2999 ? "last" : "c" + std::to_string(i);
        AddNode(graph, op, {value, value}, next);
        value = next;
      }
      for (int i = 1; i < old.node_size(); ++i) *graph.add_node() = old.node(i);
    };
    SCOPED_TRACE(op);
    const auto patched = PatchBytes(Parse(c).SerializeAsString());
    ASSERT_TRUE(static_cast<bool>(patched));
    EXPECT_FALSE(patched->report.patched.empty());
  }
}

// Many norms of which each has an inner value that is read outside: refused one and all.
TEST(ScaleAdversarial, ManyRefusals) {
  Case c;
  c.runs = false;
  std::string x = "x";
  for (int i = 0; i < 1500; ++i) {
    const std::string y = "y" + std::to_string(i);
    c.body += Norm(x, "w", "eps", y) + "o" + std::to_string(i) + " = Neg(" + y + "_r)\n";
    c.outputs += ", float[2,4,1] o" + std::to_string(i);
    x = y;
  }
  c.body += "y = Identity(" + x + ")\n";
  Expect(c, {}, "is also read by");
}

// Norms in a chain, where each reads the statistics of the one before: dropped one after another.
TEST(ScaleAdversarial, RefusalsThatFollowFromOneAnother) {
  Case c;
  c.runs = false;
  constexpr int kNorms = 300;
  for (int i = 0; i < kNorms; ++i) {
    const std::string y = "y" + std::to_string(i);
    c.body +=
        Statistics("x", "eps", y) +
        (i > 0 ? y + "_k = Mul(y" + std::to_string(i - 1) + "_r, w)\n" : y + "_k = Identity(w)\n") +
        y + "_n = Div(x, " + y + "_r)\n" + y + " = Mul(" + y + "_n, " + y + "_k)\n";
    c.outputs += ", float[2,4,8] " + y;
  }
  c.outputs = c.outputs.substr(std::string("float[2,4,8] y, ").size());
  const auto patched = PatchBytes(Parse(c).SerializeAsString());
  ASSERT_TRUE(static_cast<bool>(patched));
}

TEST(ScaleAdversarial, ManyNorms) {
  Case c;
  c.runs = false;
  std::string x = "x";
  for (int i = 0; i < 2000; ++i) {
    const std::string y = "y" + std::to_string(i);
    c.body += Norm(x, "w", "eps", y);
    x = y;
  }
  c.body += "y = Identity(" + x + ")\n";
  Expect(c, std::vector<std::string>(2000, "LigerRMSNorm"));
}

}  // namespace
}  // namespace liger::test
