// OpPatternSet::AddOwn: from a text of a user's patch map to a pattern like those of ours.

#include <onnx/defs/parser.h>
#include <onnx/onnx_pb.h>

#include <algorithm>
#include <array>
#include <set>

#include "pattern/canonical.h"
#include "pattern/op_pattern.h"

namespace liger {
namespace {

constexpr std::array kFloatTypes = {DType::kF32, DType::kF16, DType::kBF16, DType::kF64};
// The symbol of the float dtype that the inputs share.
constexpr std::string_view kShared = "T";
// Own ops are tried before those of ours: what a user wrote out is meant.
constexpr int kOwnPriority = 0;

Error BadText(const OwnOp::Text& text, std::string message, std::string hint = "") {
  return {ErrorCode::kUsage, std::move(message), text.place, std::move(hint)};
}

// How the text's nodes use each attribute of the function.
Result<std::vector<AttributeSpec>> AttributesOf(const OwnOp::Text& text,
                                                const FunctionText& function) {
  onnx::FunctionProto proto;
  LIGER_CHECK(onnx::OnnxParser(text.source.c_str()).Parse(proto).IsOK());
  std::vector<AttributeSpec> specs;
  for (const std::string& name : function.attributes) {
    std::optional<AttributeKind> kind;
    for (const onnx::NodeProto& node : proto.node()) {
      for (const onnx::AttributeProto& attribute : node.attribute()) {
        if (attribute.ref_attr_name() != name) continue;
        const bool is_float = attribute.name() == "value_float";
        if (node.op_type() != "Constant" || (!is_float && attribute.name() != "value_int")) {
          return BadText(text,
                         "attribute '" + name + "' stands at " + node.op_type() +
                             ", where its value cannot be read from a graph",
                         "captures are scalars: c = Constant <value_float: float = @" + name +
                             "> (); write other attributes as numbers");
        }
        kind = is_float ? AttributeKind::kFloat : AttributeKind::kInt;
      }
    }
    if (!kind) return BadText(text, "attribute '" + name + "' is captured and never used");
    specs.push_back({name, *kind, {}});
  }
  return specs;
}

// Captures and operators of a term.
struct Contents {
  std::set<TermId> terms;
  std::set<std::string> captures;
  int count = 0;                       // of operators
  std::vector<std::string> operators;  // outermost first, without repetition
  // Operators of constants and captures alone: in a graph they are folded, and what went in is lost.
  std::vector<std::string> folded;

  void Collect(const TermStore& store, TermId root) {
    std::vector<TermId> work = {root};
    while (!work.empty()) {
      const TermId id = work.back();
      work.pop_back();
      if (id == kNone || !terms.insert(id).second) continue;
      const Term& term = store[id];
      if (term.kind == TermKind::kCapture) captures.insert(term.text);
      if (term.kind == TermKind::kOp &&
          std::find(operators.begin(), operators.end(), term.text) == operators.end()) {
        operators.push_back(term.text);
      }
      count += term.kind == TermKind::kOp ? 1 : 0;
      if (term.kind == TermKind::kOp && IsFolded(store, term)) folded.push_back(term.text);
      work.insert(work.end(), term.args.begin(), term.args.end());
    }
  }

 private:
  // Signs and reciprocals are seen through.
  static bool IsFolded(const TermStore& store, const Term& term) {
    if (term.IsOp(op::kNeg) || term.IsOp(op::kRecip) || term.IsOp(op::kCast)) return false;
    return !term.args.empty() && std::all_of(term.args.begin(), term.args.end(), [&](TermId arg) {
      const Term* inner = &store[arg];
      while (inner->IsOp(op::kNeg) || inner->IsOp(op::kRecip) || inner->IsOp(op::kCast)) {
        inner = &store[inner->args[0]];
      }
      return inner->kind == TermKind::kCapture || inner->kind == TermKind::kScalar;
    });
  }
};

// Operators that nearly every graph is full of say nothing about where an op may stand.
bool IsCommon(const std::string& op) {
  static const std::set<std::string_view> common = {op::kMul,  op::kAdd,    op::kNeg,   op::kRecip,
                                                    op::kCast, op::kConcat, op::kSlice, op::kPart};
  return common.contains(op);
}

}  // namespace

Status OpPatternSet::AddOwn(const OwnOp& own, const std::map<std::string, int64_t>& opsets) {
  const int64_t opset = OpsetOf(opsets, "");
  std::vector<const OwnOp::Text*> texts;
  std::string ranges;
  for (const OwnOp::Text& text : own.texts) {
    if (text.min_opset <= opset && opset <= text.max_opset) texts.push_back(&text);
    ranges += (ranges.empty() ? "" : ", ") + std::to_string(text.min_opset) + "-";
    if (text.max_opset != std::numeric_limits<int64_t>::max()) {
      ranges += std::to_string(text.max_opset);
    }
  }
  if (texts.empty()) {
    return BadText(own.texts.front(),
                   "no text of " + own.Name() + " is for the model's opset " +
                       std::to_string(opset) + ", only for " + ranges,
                   "add a `match` entry for that opset, or widen `opset:` where the operators mean "
                   "the same there");
  }

  OwnContract& made = own_.emplace_back();
  made.domain = own.domain;
  made.op_type = own.op_type;
  made.module = own.Name();
  OpPattern op;
  op.file = texts.front()->place;
  op.priority = kOwnPriority;
  for (const OwnOp::Text* text : texts) {
    auto function = ParseFunctionText(text->source);
    if (!function) return BadText(*text, function.error().message, function.error().hint);
    OpText parsed;
    parsed.name = texts.size() == 1 ? "text" : "text" + std::to_string(op.texts.size() + 1);
    parsed.min_opset = text->min_opset;
    parsed.max_opset = text->max_opset;
    parsed.source = text->source;
    parsed.function = *std::move(function);
    // What is matched is what the body computes at the model's versions.
    for (const auto& [domain, version] : opsets) parsed.function.opsets[domain] = version;
    op.texts.push_back(std::move(parsed));
  }

  const FunctionText& first = op.texts.front().function;
  const auto keep = [&](std::string name) -> std::string_view {
    return made.names.emplace_back(std::move(name));
  };
  const std::map<std::string, DType>& fixed = texts.front()->types;
  std::vector<TypeBinding> bindings;
  bool shares = false;
  for (const ValueId input : first.graph.inputs) {
    const std::string& name = first.graph.values[input].name;
    const auto type = fixed.find(name);
    shares = shares || type == fixed.end();
    const std::string_view symbol = type == fixed.end() ? kShared : keep(std::string("T_") + name);
    if (type != fixed.end()) bindings.push_back({symbol, type->second});
    made.inputs.push_back({keep(name), symbol, false});
  }
  for (const ValueId output : first.graph.outputs) {
    made.outputs.push_back({keep(first.graph.values[output].name), kShared, false});
  }
  auto attributes = AttributesOf(*texts.front(), first);
  if (!attributes) return std::move(attributes).error();
  for (const AttributeSpec& spec : *attributes) {
    made.attributes.push_back({keep(std::string(spec.name)), spec.kind, {}});
    op.captures.emplace_back(spec.name);
  }
  for (const DType dtype : kFloatTypes) {
    std::vector<TypeBinding>& tuple = made.bindings.emplace_back(bindings);
    if (shares) tuple.insert(tuple.begin(), {kShared, dtype});
    made.tuples.push_back({Provider::kCpu, tuple});
    if (!shares) break;
  }
  made.contract = {made.op_type,    1,           made.module, "", made.inputs, made.outputs,
                   made.attributes, made.tuples, made.domain};
  op.contract = &made.contract;
  op.presets.push_back({});

  // What the text comes to, for a dtype that it is for.
  TermStore terms;
  Canonicalizer canonicalizer(terms, nullptr, nullptr);
  for (size_t t = 0; t < op.texts.size(); ++t) {
    const OpText& text = op.texts[t];
    // A text with Casts may be for some float dtypes only.
    std::vector<TermId> variables;
    FunctionText typed = text.function;
    Status fits = Error{};
    for (size_t dtype = 0; dtype < made.tuples.size() && !fits; ++dtype) {
      variables.clear();
      std::map<std::string, ValueType> types;
      for (size_t i = 0; i < made.inputs.size(); ++i) {
        const DType of_input = made.tuples[dtype].Find(made.inputs[i].type_symbol);
        variables.push_back(terms.Variable(static_cast<int>(i), of_input));
        types[std::string(made.inputs[i].name)].dtype = of_input;
      }
      typed = text.function;
      Status inferred = InferTextTypes(text.source, types, {}, typed.opsets, typed);
      if (inferred || dtype == 0) fits = std::move(inferred);
    }
    if (!fits) {
      return BadText(*texts[t], fits.error().message,
                     "`types:` gives the dtypes of inputs that are no floats");
    }
    Graph whole = typed.graph;
    for (Value& value : whole.values) value.type.shape.reset();
    for (const Node& node : whole.nodes) {
      for (const ValueId output : node.outputs) {
        if (output != kNone) whole.outputs.push_back(output);
      }
    }
    const std::vector<TermId> values = canonicalizer.Evaluate(whole, variables, {}, typed.opsets);
    size_t at = typed.graph.outputs.size();
    for (const Node& node : whole.nodes) {
      for (const ValueId output : node.outputs) {
        if (output != kNone && values[at++] == kNone) {
          if (node.op_type == "Constant") {
            return BadText(*texts[t], "a Constant of the text is no number that can be compared",
                           "numbers are scalars (value_float, value_int), lists are of integers "
                           "(value_ints)");
          }
          return BadText(*texts[t],
                         "the operator " + (node.domain.empty() ? "" : node.domain + ".") +
                             node.op_type + " in the text cannot be matched",
                         "control flow, random numbers, large constants and operators of other "
                         "domains cannot stand in a pattern; ops of domain liger are written out");
        }
      }
    }
    Contents contents;
    contents.Collect(terms, values[0]);
    const Term& root = terms[values[0]];
    if (root.kind != TermKind::kOp) {
      return BadText(*texts[t],
                     "the text computes nothing: its first output is an input or a "
                     "constant");
    }
    for (size_t i = 0; i < variables.size(); ++i) {
      if (contents.terms.contains(variables[i])) continue;
      return BadText(*texts[t], "input '" + std::string(made.inputs[i].name) +
                                    "' does not enter the first output");
    }
    if (!contents.folded.empty() && contents.folded.front() == "Broadcast") {
      return BadText(*texts[t], "a constant of the text has axes of its own",
                     "write numbers as scalars: Constant <value_float: float = 2.5> ()");
    }
    if (!contents.folded.empty()) {
      return BadText(*texts[t],
                     "the text computes " + contents.folded.front() +
                         " of constants and captures, which a graph holds as one number",
                     "capture the number that the graph holds");
    }
    for (const std::string& capture : op.captures) {
      if (contents.captures.contains(capture)) continue;
      return BadText(*texts[t], "attribute '" + capture + "' does not enter the first output");
    }
    for (size_t i = 1; i < typed.graph.outputs.size(); ++i) {
      if (std::find(values.begin(), values.begin() + static_cast<int64_t>(i), values[i]) !=
          values.begin() + static_cast<int64_t>(i)) {
        return BadText(*texts[t], "output '" + std::string(made.outputs[i].name) +
                                      "' is the same value as another output");
      }
      if (contents.terms.contains(values[i])) continue;
      return BadText(*texts[t],
                     "output '" + std::string(made.outputs[i].name) +
                         "' is not computed on the way to the first output",
                     "the match starts at the first output: further ones are inner values of it");
    }
    for (const std::string& name : contents.operators) {
      const bool known = std::find(op.anchors.begin(), op.anchors.end(), name) != op.anchors.end();
      if (!known && !IsCommon(name)) op.anchors.push_back(name);
    }
    if (op.anchors.empty()) op.anchors.push_back(root.text);
    op.near_score = std::max(2, (contents.count + 1) / 2);
  }
  ops_.push_front(std::move(op));
  return {};
}

std::vector<TermId> OpPatternSet::EvaluateInPlace(Canonicalizer& canonicalizer,
                                                  const OpContract& contract, const OpText& text,
                                                  std::span<const TermId> inputs,
                                                  const AttributeEnv& attributes) {
  FunctionText body = text.function;
  std::map<std::string, ValueType> types;
  for (size_t i = 0; i < contract.inputs.size(); ++i) {
    ValueType& type = types[std::string(contract.inputs[i].name)];
    type.dtype = canonicalizer.terms()[inputs[i]].dtype;
    const Shape* shape = canonicalizer.FindShape(inputs[i]);
    if (shape != nullptr) type.shape = *shape;
  }
  if (!InferTextTypes(text.source, types, attributes, body.opsets, body)) return {};
  for (Node& node : body.graph.nodes) {
    for (Attribute& attribute : node.attributes) {
      const auto* ref = std::get_if<AttributeRef>(&attribute.value);
      if (ref != nullptr) attribute.value = attributes.at(ref->name);
    }
  }
  return canonicalizer.EvaluateInPlace(body.graph, inputs, body.opsets);
}

}  // namespace liger
