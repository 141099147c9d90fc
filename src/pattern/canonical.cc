#include "pattern/canonical.h"

#include <limits>

#include "base/error.h"
#include "ops/op_contract.h"
#include "pattern/lowering.h"
#include "pattern/node_rules.h"

namespace liger {
namespace {

int64_t ToInt(double value) {
  constexpr double kLimit = 9.2e18;
  if (value >= kLimit) return std::numeric_limits<int64_t>::max();
  if (value <= -kLimit) return std::numeric_limits<int64_t>::min();
  return static_cast<int64_t>(value);
}

}  // namespace

std::optional<TermId> ConstantTerm(TermStore& terms, const Tensor& tensor) {
  if (tensor.size() == 1 && tensor.floats.size() + tensor.ints.size() == 1) {
    const double value =
        tensor.floats.empty() ? static_cast<double>(tensor.ints[0]) : tensor.floats[0];
    return terms.Scalar(value, tensor.dtype, static_cast<int>(tensor.dims.size()));
  }
  if (tensor.dims.size() == 1 && tensor.floats.empty() &&
      static_cast<int64_t>(tensor.ints.size()) == tensor.dims[0]) {
    return terms.Ints(tensor.ints, tensor.dtype);
  }
  return std::nullopt;
}

int64_t OpsetOf(const std::map<std::string, int64_t>& opsets, const std::string& domain) {
  const auto found = opsets.find(domain);
  return found != opsets.end() ? found->second : 1;
}

std::optional<std::vector<int64_t>> AsInts(const TermStore& terms, TermId term) {
  const Term& t = terms[term];
  if (t.kind == TermKind::kInts) return t.numbers;
  if (t.kind == TermKind::kScalar && !IsFloat(t.dtype))
    return std::vector<int64_t>{ToInt(t.scalar)};
  return std::nullopt;
}

void Canonicalizer::SetShape(TermId term, const std::optional<Shape>& shape) {
  if (shape) shapes_.emplace(term, *shape);
}

const Shape* Canonicalizer::FindShape(TermId term) const {
  const auto found = shapes_.find(term);
  return found != shapes_.end() ? &found->second : nullptr;
}

std::vector<TermId> Canonicalizer::Canonicalize(const NodeContext& context) {
  if (auto lowered = Lower(context)) return *std::move(lowered);
  if (context.env != nullptr && context.node->domain == kOpDomain && fused_ops_ != nullptr) {
    return fused_ops_->Expand(*this, *context.node, context.default_opset, context.args,
                              *context.env);
  }
  return ApplyNodeRules(*this, context);
}

std::optional<std::vector<TermId>> Canonicalizer::Lower(const NodeContext& context) {
  if (lowerings_ == nullptr) return std::nullopt;
  const Lowering* lowering = lowerings_->Find(*context.node, context.opset, context.env);
  if (lowering == nullptr) return std::nullopt;
  AttributeEnv env = lowering->defaults;
  for (const Attribute& attribute : context.node->attributes) {
    env[attribute.name] = attribute.value;
    if (const auto* ref = std::get_if<AttributeRef>(&attribute.value)) {
      const auto found =
          context.env != nullptr ? context.env->find(ref->name) : AttributeEnv::iterator{};
      if (context.env != nullptr && found != context.env->end()) {
        env[attribute.name] = found->second;
      }
    }
  }
  const auto args = context.args.first(lowering->body.inputs.size());
  if (lowering->last_axis_only) {
    const auto* axis = std::get_if<int64_t>(&env["axis"]);
    const Shape* shape = FindShape(args[0]);
    if (axis == nullptr) return std::nullopt;
    const bool last =
        *axis == -1 || (shape != nullptr && *axis == static_cast<int64_t>(shape->size()) - 1);
    if (!last) return std::nullopt;
  }
  for (TermId arg : args) {
    if (arg == kNone) return std::nullopt;
    const bool same_type = terms_[arg].dtype == terms_[args[0]].dtype;
    if (!same_type && !lowering->mixed_types) return std::nullopt;
  }
  const std::vector<TermId> results = Evaluate(lowering->body, args, env, lowering->opsets);
  std::vector<TermId> outputs(context.node->outputs.size(), kNone);
  for (size_t i = 0; i < results.size(); ++i) {
    if (lowering->outputs[i] < outputs.size()) outputs[lowering->outputs[i]] = results[i];
  }
  return outputs;
}

std::vector<TermId> Canonicalizer::Evaluate(const Graph& body, std::span<const TermId> inputs,
                                            const AttributeEnv& env,
                                            const std::map<std::string, int64_t>& opsets) {
  return EvaluateBody(body, inputs, &env, opsets);
}

std::vector<TermId> Canonicalizer::EvaluateInPlace(const Graph& body,
                                                   std::span<const TermId> inputs,
                                                   const std::map<std::string, int64_t>& opsets) {
  return EvaluateBody(body, inputs, nullptr, opsets);
}

std::vector<TermId> Canonicalizer::EvaluateBody(const Graph& body, std::span<const TermId> inputs,
                                                const AttributeEnv* env,
                                                const std::map<std::string, int64_t>& opsets) {
  LIGER_CHECK(inputs.size() == body.inputs.size());
  std::vector<TermId> values(body.values.size(), kNone);
  for (size_t i = 0; i < inputs.size(); ++i) values[body.inputs[i]] = inputs[i];
  for (const Node& node : body.nodes) {
    std::vector<TermId> args;
    for (ValueId input : node.inputs) args.push_back(input == kNone ? kNone : values[input]);
    NodeContext context;
    context.node = &node;
    context.opset = OpsetOf(opsets, node.domain);
    context.default_opset = OpsetOf(opsets, "");
    context.args = args;
    context.env = env;
    for (const ValueId output : node.outputs) {
      context.output_types.push_back(output == kNone ? ValueType{} : body.values[output].type);
    }
    const std::vector<TermId> outputs = Canonicalize(context);
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      const ValueId output = node.outputs[i];
      if (output == kNone || i >= outputs.size()) continue;
      values[output] = outputs[i];
      if (env == nullptr && outputs[i] != kNone)
        SetShape(outputs[i], body.values[output].type.shape);
    }
  }
  std::vector<TermId> results;
  for (ValueId output : body.outputs) results.push_back(values[output]);
  return results;
}

}  // namespace liger
