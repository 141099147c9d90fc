// Every function text of every fused op, as the body that a model of each operator set carries:
// ONNX's checker accepts it.
#include "model/function_body.h"

#include <onnx/checker.h>

#include <algorithm>
#include <set>

#include "model_testing.h"
#include "pattern/canonical.h"
#include "pattern/lowering.h"
#include "pattern/op_pattern.h"

namespace liger {
namespace {

DType TypeOf(const PatternInstance& instance, size_t input) {
  for (const TypeBinding& binding : instance.types) {
    if (binding.symbol == instance.op->contract->inputs[input].type_symbol) return binding.dtype;
  }
  return DType::kUndefined;
}

// Texts of the fused ops that `text` calls.
std::map<std::string, std::string> Callees(const OpPatternSet& ops, const OpText& text,
                                           const FunctionSpec& spec, int64_t opset) {
  std::map<std::string, std::string> callees;
  const Graph& graph = text.function.graph;
  for (const Node& node : graph.nodes) {
    if (node.domain != kOpDomain) continue;
    std::vector<bool> given;
    for (const ValueId input : node.inputs) {
      given.push_back(!spec.absent.contains(graph.values[input].name));
    }
    const auto call = ops.ResolveCall(node, opset, spec.fixed, given);
    EXPECT_NE(call.text, nullptr) << node.op_type;
    if (call.text != nullptr) callees.emplace(node.op_type, call.text->source);
  }
  return callees;
}

FunctionSpec SpecOf(const OpPatternSet& ops, const PatternInstance& instance, const OpText& text,
                    int64_t opset) {
  const OpContract& contract = *instance.op->contract;
  FunctionSpec spec;
  spec.op_type = contract.op_type;
  spec.text = text.source;
  spec.fixed = instance.attributes;
  for (const auto& [name, value] : text.attributes) spec.fixed[name] = value;
  // Before opset 12 a captured integer stands in the body.
  for (const std::string& name : instance.captures) {
    const bool is_integer = contract.FindAttribute(name)->kind == AttributeKind::kInt;
    if (opset < 12 && is_integer) spec.fixed[name] = int64_t{4};
  }
  for (const AttributeSpec& attribute : contract.attributes) {
    spec.attributes.emplace_back(attribute.name);
  }
  spec.opsets = {{"", opset}};
  for (size_t i = 0; i < contract.inputs.size(); ++i) {
    const std::string name(contract.inputs[i].name);
    if (instance.inputs[i] != kNone) {
      spec.inputs.push_back(name);
      spec.types[name] = TypeOf(instance, i);
    } else if (const auto constant = instance.op->absent.find(name);
               constant != instance.op->absent.end()) {
      spec.absent[name] = constant->second;
    }
  }
  const Graph& graph = text.function.graph;
  for (const ValueId output : graph.outputs) spec.outputs.push_back(graph.values[output].name);
  spec.callees = Callees(ops, text, spec, opset);
  return spec;
}

// A model that holds the function and nothing that matters beside it.
onnx::ModelProto Holding(const onnx::FunctionProto& function, int64_t opset) {
  onnx::ModelProto model =
      ModelFromText("<ir_version: 8, opset_import: [\"\" : " + std::to_string(opset) +
                    ", \"liger\" : 1]>\n"
                    "g (float[2] x) => (float[2] y) { y = Neg (x) }");
  *model.add_functions() = function;
  return model;
}

class FunctionBodies : public ::testing::TestWithParam<int64_t> {};

TEST_P(FunctionBodies, AreValidAtTheModelsOperatorSet) {
  const int64_t opset = GetParam();
  const auto ops = OpPatternSet::Load(EmbeddedPatches());
  ASSERT_OK(ops);
  const auto lowerings = LoweringSet::Load(EmbeddedPatches());
  ASSERT_OK(lowerings);
  TermStore terms;
  Canonicalizer canonicalizer(terms, &*lowerings, &*ops);
  OpPatternSet::Request request;
  request.opset = opset;
  request.dtypes = {DType::kF32, DType::kF16, DType::kF64};
  std::set<std::string> op_types;
  std::set<std::string> bodies;
  for (const PatternInstance& instance : ops->Instantiate(canonicalizer, request)) {
    const auto given =
        static_cast<size_t>(std::count_if(instance.inputs.begin(), instance.inputs.end(),
                                          [](TermId input) { return input != kNone; }));
    std::vector<const OpText*> texts = {instance.text};
    for (const OpText& body : instance.op->bodies) {
      if (body.Covers(opset) && body.function.graph.inputs.size() == given) texts.push_back(&body);
    }
    for (const OpText* text : texts) {
      const FunctionSpec spec = SpecOf(*ops, instance, *text, opset);
      const auto made = MakeFunction(spec);
      ASSERT_OK(made);
      if (!bodies.insert(made->SerializeAsString()).second) continue;
      op_types.insert(spec.op_type);
      try {
        onnx::checker::check_model(Holding(*made, opset));
      } catch (const std::exception& e) {
        ADD_FAILURE() << spec.op_type << " " << instance.Form() << " (" << text->name
                      << "): " << e.what();
      }
    }
  }
  for (const OpPattern& op : ops->ops()) {
    EXPECT_TRUE(op_types.contains(std::string(op.contract->op_type))) << op.contract->op_type;
  }
}

INSTANTIATE_TEST_SUITE_P(OperatorSets, FunctionBodies,
                         ::testing::Values(11, 12, 13, 17, 18, 20, 23));

// --- Constants before opset 12 -------------------------------------------------------------------

FunctionSpec ConstantsSpec(int64_t opset) {
  FunctionSpec spec;
  spec.op_type = "LigerGroupNorm";
  spec.text = R"(
<opset_import: ["" : 17], domain: "liger">
LigerGroupNorm <epsilon, num_groups> (x) => (y, n)
{
  half = Constant <value_float = 0.5> ()
  eps = Constant <value_float: float = @epsilon> ()
  n = Constant <value_int: int = @num_groups> ()
  shape = Constant <value_ints = [2, 1]> ()
  a = Mul (x, half)
  b = Add (a, eps)
  y = Reshape (b, shape)
})";
  spec.inputs = {"x"};
  spec.outputs = {"y", "n"};
  spec.attributes = {"epsilon", "num_groups"};
  spec.types = {{"x", DType::kF32}};
  spec.opsets = {{"", opset}};
  return spec;
}

std::vector<std::string> ConstantAttributes(const onnx::FunctionProto& function) {
  std::vector<std::string> names;
  for (const auto& node : function.node()) {
    if (node.op_type() == "Constant") names.push_back(node.attribute(0).name());
  }
  return names;
}

TEST(MakeFunction, WritesConstantsAsTensorsBeforeOpset12) {
  FunctionSpec spec = ConstantsSpec(11);
  EXPECT_FALSE(MakeFunction(spec));  // nothing gives an integer attribute as a value
  spec.fixed["num_groups"] = int64_t{4};
  const auto old = MakeFunction(spec);
  ASSERT_OK(old);
  EXPECT_THAT(ConstantAttributes(*old), ::testing::Each(std::string("value")));
  EXPECT_NO_THROW(onnx::checker::check_model(Holding(*old, 11)));
  const auto newer = MakeFunction(ConstantsSpec(12));
  ASSERT_OK(newer);
  EXPECT_THAT(ConstantAttributes(*newer),
              ::testing::ElementsAre("value", "value_float", "value_int", "value_ints"));
  EXPECT_NO_THROW(onnx::checker::check_model(Holding(*newer, 12)));
  // The attributes are still the node's.
  std::set<std::string> references;
  for (const auto& node : old->node()) {
    for (const auto& attribute : node.attribute()) {
      if (!attribute.ref_attr_name().empty()) references.insert(attribute.ref_attr_name());
    }
  }
  EXPECT_THAT(references, ::testing::ElementsAre("epsilon"));
}

TEST(MakeFunction, WritesAxesAsAttributesBeforeOpset13) {
  for (const int64_t opset : {11, 12, 13}) {
    FunctionSpec spec = ConstantsSpec(opset);
    spec.text = R"(
<opset_import: ["" : 17], domain: "liger">
LigerGroupNorm <epsilon, num_groups> (x) => (y, n)
{
  axes = Constant <value_ints = [0, 2]> ()
  wide = Unsqueeze (x, axes)
  n = Identity (wide)
  y = Squeeze (wide, axes)
})";
    const auto made = MakeFunction(spec);
    ASSERT_OK(made);
    EXPECT_EQ(made->node_size(), opset < 13 ? 3 : 4);
    EXPECT_NO_THROW(onnx::checker::check_model(Holding(*made, opset)));
  }
}

}  // namespace
}  // namespace liger
