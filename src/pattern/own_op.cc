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

// What a text comes to, for a dtype that it is for: whether it can be matched, and by which operators
// it is found.
class TextCheck {
 public:
  TextCheck(const OwnOp::Text& source, const OpText& text, OpPattern& op)
      : source_(source), text_(text), op_(op), contract_(*op.contract), typed_(text.function) {}

  Status Run() {
    if (Status status = InferTypes(); !status) return status;
    if (Status status = Evaluate(); !status) return status;
    if (Status status = CheckTerm(); !status) return status;
    if (Status status = CheckFurtherOutputs(); !status) return status;
    SetAnchors();
    return {};
  }

 private:
  Status Bad(std::string message, std::string hint = "") const {
    return BadText(source_, std::move(message), std::move(hint));
  }

  // A text with Casts may be for some float dtypes only.
  Status InferTypes() {
    std::optional<Error> first;
    for (const TypeTuple& tuple : contract_.kernels) {
      variables_.clear();
      std::map<std::string, ValueType> types;
      for (size_t i = 0; i < contract_.inputs.size(); ++i) {
        const DType dtype = tuple.Find(contract_.inputs[i].type_symbol);
        variables_.push_back(terms_.Variable(static_cast<int>(i), dtype));
        types[std::string(contract_.inputs[i].name)].dtype = dtype;
      }
      typed_ = text_.function;
      Status inferred = InferTextTypes(text_.source, types, {}, typed_.opsets, typed_);
      if (inferred) return {};
      if (!first) first = std::move(inferred).error();
    }
    return Bad(first->message, "`types:` gives the dtypes of inputs that are no floats");
  }

  // The terms of the outputs, and of all values: each operator needs one.
  Status Evaluate() {
    Graph whole = typed_.graph;
    for (Value& value : whole.values) value.type.shape.reset();
    std::vector<const Node*> producers;  // of the values behind the outputs
    for (const Node& node : typed_.graph.nodes) {
      for (const ValueId output : node.outputs) {
        if (output == kNone) continue;
        whole.outputs.push_back(output);
        producers.push_back(&node);
      }
    }
    values_ = canonicalizer_.Evaluate(whole, variables_, {}, typed_.opsets);
    const size_t outputs = typed_.graph.outputs.size();
    for (size_t i = 0; i < producers.size(); ++i) {
      if (values_[outputs + i] == kNone) return NoTerm(*producers[i]);
    }
    values_.resize(outputs);
    contents_.Collect(terms_, values_[0]);
    return {};
  }

  Status NoTerm(const Node& node) const {
    if (node.op_type == "Constant") {
      return Bad("a Constant of the text is no number that can be compared",
                 "numbers are scalars (value_float, value_int), lists are of integers "
                 "(value_ints)");
    }
    return Bad("the operator " + (node.domain.empty() ? "" : node.domain + ".") + node.op_type +
                   " in the text cannot be matched",
               "control flow, random numbers, large constants and operators of other domains "
               "cannot stand in a pattern; ops of domain liger are written out");
  }

  Status CheckTerm() const {
    if (terms_[values_[0]].kind != TermKind::kOp) {
      return Bad("the text computes nothing: its first output is an input or a constant");
    }
    for (size_t i = 0; i < variables_.size(); ++i) {
      if (contents_.terms.contains(variables_[i])) continue;
      return Bad("input '" + std::string(contract_.inputs[i].name) +
                 "' does not enter the first output");
    }
    if (!contents_.folded.empty() && contents_.folded.front() == "Broadcast") {
      return Bad("a constant of the text has axes of its own",
                 "write numbers as scalars: Constant <value_float: float = 2.5> ()");
    }
    if (!contents_.folded.empty()) {
      return Bad("the text computes " + contents_.folded.front() +
                     " of constants and captures, which a graph holds as one number",
                 "capture the number that the graph holds");
    }
    for (const std::string& capture : op_.captures) {
      if (contents_.captures.contains(capture)) continue;
      return Bad("attribute '" + capture + "' does not enter the first output");
    }
    return {};
  }

  Status CheckFurtherOutputs() const {
    for (size_t i = 1; i < values_.size(); ++i) {
      const std::string name(contract_.outputs[i].name);
      const auto here = values_.begin() + static_cast<int64_t>(i);
      if (std::find(values_.begin(), here, values_[i]) != here) {
        return Bad("output '" + name + "' is the same value as another output");
      }
      if (contents_.terms.contains(values_[i])) continue;
      return Bad("output '" + name + "' is not computed on the way to the first output",
                 "the match starts at the first output: further ones are inner values of it");
    }
    return {};
  }

  void SetAnchors() {
    for (const std::string& name : contents_.operators) {
      const auto& anchors = op_.anchors;
      const bool known = std::find(anchors.begin(), anchors.end(), name) != anchors.end();
      if (!known && !IsCommon(name)) op_.anchors.push_back(name);
    }
    if (op_.anchors.empty()) op_.anchors.push_back(terms_[values_[0]].text);
    op_.near_score = std::max(2, (contents_.count + 1) / 2);
  }

  const OwnOp::Text& source_;
  const OpText& text_;
  OpPattern& op_;
  const OpContract& contract_;
  FunctionText typed_;
  TermStore terms_;
  Canonicalizer canonicalizer_{terms_, nullptr, nullptr};
  std::vector<TermId> variables_;
  std::vector<TermId> values_;  // of the outputs
  Contents contents_;
};

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

  for (size_t t = 0; t < op.texts.size(); ++t) {
    if (Status status = TextCheck(*texts[t], op.texts[t], op).Run(); !status) return status;
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
