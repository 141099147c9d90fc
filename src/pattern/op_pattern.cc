#include "pattern/op_pattern.h"

#include <algorithm>
#include <charconv>
#include <set>

#include "patchmap/yaml_reader.h"
#include "pattern/guard.h"

namespace liger {
namespace {

// Bodies must exist for these opsets of the default domain; there is no converter for them.
constexpr int64_t kFirstOpset = 11;

Error BadFile(const OpPattern& op, std::string message) {
  return {ErrorCode::kUsage, std::move(message), op.file, ""};
}

// "13-17", "18-" or "21".
bool ParseRange(std::string_view text, OpText& result) {
  const auto number = [](std::string_view digits, int64_t& value) {
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    return error == std::errc() && end == digits.data() + digits.size();
  };
  const size_t dash = text.find('-');
  if (!number(text.substr(0, dash), result.min_opset)) return false;
  if (dash == std::string_view::npos) {
    result.max_opset = result.min_opset;
    return true;
  }
  const std::string_view last = text.substr(dash + 1);
  return last.empty() || (number(last, result.max_opset) && result.max_opset >= result.min_opset);
}

// The value of an attribute as its contract types it; nullopt if `text` does not fit. `types` binds
// T, S.
std::optional<Attribute::Value> AttributeValue(const AttributeSpec& spec, const std::string& text,
                                               std::span<const TypeBinding> types) {
  switch (spec.kind) {
    case AttributeKind::kString:
      if (!spec.values.empty() &&
          std::find(spec.values.begin(), spec.values.end(), text) == spec.values.end()) {
        return std::nullopt;
      }
      return text;
    case AttributeKind::kDType:
      for (const TypeBinding& binding : types) {
        if (binding.symbol == text) return static_cast<int64_t>(binding.dtype);
      }
      if (const auto dtype = ParseDType(text)) return static_cast<int64_t>(*dtype);
      return std::nullopt;
    case AttributeKind::kInt: {
      int64_t value = 0;
      const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
      if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
      return value;
    }
    case AttributeKind::kFloat: {
      char* end = nullptr;
      const float value = std::strtof(text.c_str(), &end);
      if (text.empty() || *end != '\0') return std::nullopt;
      return value;
    }
  }
  return std::nullopt;
}

class OpFileReader {
 public:
  OpFileReader(std::string_view file, OpPattern& op) : reader_(file), op_(op) {}

  Status Read(const YamlNode& root) {
    YamlMap map = reader_.Map(root, "the op file");
    for (const char* key : {"schema_version", "since_version", "module", "algebra", "inputs",
                            "outputs", "attributes", "kernels"}) {
      reader_.Require(map, key);  // read by the contract generator
    }
    reader_.Find(map, "names");  // likewise
    const std::string type = RequiredString(map, "op");
    op_.contract = FindContract(type);
    if (reader_.ok() && op_.contract == nullptr) {
      reader_.Fail(
          root.position, "the op '" + type + "' has no kernels in this build",
          "ops are compiled in; a patch map can add op names only with a domain of its own");
    }
    if (!reader_.ok()) return reader_.error();
    op_.priority = static_cast<int>(RequiredInteger(map, "priority"));
    if (const YamlNode* node = reader_.Require(map, "anchors")) {
      op_.anchors = reader_.Strings(*node, "anchors", false);
    }
    op_.near_score = static_cast<int>(RequiredInteger(map, "near_score"));
    if (const YamlNode* node = reader_.Find(map, "only_on_request")) {
      op_.only_on_request = reader_.OnOff(*node, "only_on_request");
    }
    op_.captures = OptionalStrings(map, "captures");
    op_.derived = OptionalStrings(map, "derived");
    ReadPresets(map);
    ReadChoices(map, op_.choices);
    ReadAbsent(map);
    ReadGuards(map);
    ReadPair(map);
    ReadTexts(map, "texts", op_.texts);
    ReadTexts(map, "bodies", op_.bodies);
    if (reader_.ok() && op_.texts.empty()) reader_.Fail(root.position, "the op has no texts");
    reader_.Finish(map);
    if (!reader_.ok()) return reader_.error();
    return {};
  }

 private:
  std::string RequiredString(YamlMap& map, std::string_view key) {
    const YamlNode* node = reader_.Require(map, key);
    return node != nullptr ? reader_.String(*node, key) : "";
  }
  int64_t RequiredInteger(YamlMap& map, std::string_view key) {
    const YamlNode* node = reader_.Require(map, key);
    return node != nullptr ? reader_.Integer(*node, key) : 0;
  }
  std::vector<std::string> OptionalStrings(YamlMap& map, std::string_view key) {
    const YamlNode* node = reader_.Find(map, key);
    return node != nullptr ? reader_.Strings(*node, key, true) : std::vector<std::string>{};
  }

  void CheckAttribute(const YamlNode& at, const std::string& name, const std::string& text) {
    const AttributeSpec* spec = op_.contract->FindAttribute(name);
    if (spec == nullptr) {
      reader_.Fail(at.position, "the op has no attribute '" + name + "'");
      return;
    }
    const TypeBinding any[] = {{"T", DType::kF32}, {"S", DType::kF32}};
    if (!AttributeValue(*spec, text, any)) {
      reader_.Fail(at.position, "'" + text + "' is no value for the attribute '" + name + "'");
    }
  }

  void ReadPresets(YamlMap& map) {
    const YamlNode* list = reader_.Require(map, "presets");
    if (list == nullptr) return;
    for (const YamlNode& item : list->items) {
      YamlMap entry = reader_.Map(item, "the preset");
      Preset preset;
      preset.name = RequiredString(entry, "name");
      for (const auto& [key, value] : item.entries) {
        if (key.scalar == "name") continue;
        reader_.Find(entry, key.scalar);
        if (key.scalar == "only" || key.scalar == "wrap") {
          ReadDTypes(value, key.scalar == "only" ? preset.only : preset.wrap);
          continue;
        }
        if (key.scalar == "negate") {
          preset.negate = reader_.Strings(value, key.scalar, false);
          continue;
        }
        CheckAttribute(value, key.scalar, value.scalar);
        preset.values[key.scalar] = value.scalar;
      }
      reader_.Finish(entry);
      op_.presets.push_back(std::move(preset));
    }
  }

  void ReadDTypes(const YamlNode& node, std::map<std::string, DType>& dtypes) {
    YamlMap map = reader_.Map(node, "a map of dtypes");
    for (const auto& [name, value] : node.entries) {
      reader_.Find(map, name.scalar);
      const auto dtype = ParseDType(value.scalar);
      if (!dtype) reader_.Fail(value.position, "'" + value.scalar + "' is no dtype");
      dtypes[name.scalar] = dtype.value_or(DType::kUndefined);
    }
    reader_.Finish(map);
  }

  void ReadChoices(YamlMap& map,
                   std::vector<std::pair<std::string, std::vector<std::string>>>& result) {
    const YamlNode* node = reader_.Find(map, "choices");
    if (node == nullptr) return;
    YamlMap choices = reader_.Map(*node, "choices");
    for (const auto& [key, value] : node->entries) {
      reader_.Find(choices, key.scalar);
      std::vector<std::string> values = reader_.Strings(value, key.scalar, false);
      for (const std::string& v : values) {
        if (v != "captured") CheckAttribute(value, key.scalar, v);
      }
      result.emplace_back(key.scalar, std::move(values));
    }
    reader_.Finish(choices);
  }

  void ReadAbsent(YamlMap& map) {
    const YamlNode* node = reader_.Find(map, "absent");
    if (node == nullptr) return;
    YamlMap absent = reader_.Map(*node, "absent");
    for (const auto& [key, value] : node->entries) {
      reader_.Find(absent, key.scalar);
      op_.absent[key.scalar] = std::strtod(reader_.String(value, key.scalar).c_str(), nullptr);
    }
    reader_.Finish(absent);
  }

  void ReadGuards(YamlMap& map) {
    const YamlNode* list = reader_.Find(map, "guards");
    if (list == nullptr) return;
    for (const YamlNode& item : list->items) {
      YamlMap entry = reader_.Map(item, "the guard");
      if (entry.node().entries.size() != 1) {
        reader_.Fail(item.position, "a guard is one name with its inputs, as `row_of: [scale, x]`");
        continue;
      }
      const auto& [key, value] = item.entries.front();
      GuardSpec guard{key.scalar, reader_.Strings(value, key.scalar, false)};
      if (!GuardEvaluator::IsKnown(guard.name)) {
        reader_.Fail(item.position, "there is no guard '" + guard.name + "'");
      }
      for (const std::string& arg : guard.args) {
        const auto& ports = op_.contract->inputs;
        const bool is_input = std::any_of(ports.begin(), ports.end(),
                                          [&](const Port& port) { return port.name == arg; });
        if (!is_input && op_.contract->FindAttribute(arg) == nullptr) {
          reader_.Fail(value.position, "the op has no input or attribute '" + arg + "'");
        }
      }
      op_.guards.push_back(std::move(guard));
    }
  }

  void ReadPair(YamlMap& map) {
    const YamlNode* node = reader_.Find(map, "pair");
    if (node == nullptr) return;
    YamlMap pair = reader_.Map(*node, "pair");
    op_.pair = PairSpec{RequiredString(pair, "input"), RequiredString(pair, "second_input"),
                        RequiredString(pair, "output"), RequiredString(pair, "second_output")};
    reader_.Finish(pair);
  }

  void ReadTexts(YamlMap& map, std::string_view key, std::vector<OpText>& texts) {
    const YamlNode* list = reader_.Find(map, key);
    if (list == nullptr) return;
    for (const YamlNode& item : list->items) {
      const size_t before = reader_.faults();
      YamlMap entry = reader_.Map(item, "the text");
      OpText text;
      text.name = RequiredString(entry, "name");
      const std::string range = RequiredString(entry, "opset");
      if (!range.empty() && !ParseRange(range, text)) {
        reader_.Fail(item.position, "'" + range + "' is no range of opsets, as 13-17 or 18-");
      }
      if (const YamlNode* attributes = reader_.Find(entry, "attributes")) {
        YamlMap fixed = reader_.Map(*attributes, "attributes");
        for (const auto& [name, value] : attributes->entries) {
          reader_.Find(fixed, name.scalar);
          const size_t faults = reader_.faults();
          CheckAttribute(value, name.scalar, value.scalar);
          if (reader_.faults() != faults) continue;
          text.attributes[name.scalar] =
              *AttributeValue(*op_.contract->FindAttribute(name.scalar), value.scalar, {});
        }
        reader_.Finish(fixed);
      }
      text.captures = OptionalStrings(entry, "captures");
      for (const std::string& name : text.captures) {
        if (op_.contract->FindAttribute(name) == nullptr) {
          reader_.Fail(item.position, "the op has no attribute '" + name + "'");
        }
      }
      text.required = OptionalStrings(entry, "requires");
      ReadChoices(entry, text.choices);
      if (const YamlNode* flag = reader_.Find(entry, "reassociated")) {
        text.reassociated = reader_.OnOff(*flag, "reassociated");
      }
      text.source = RequiredString(entry, "text");
      reader_.Finish(entry);
      if (reader_.faults() != before) continue;
      auto function = ParseFunctionText(text.source);
      if (!function) {
        reader_.Fail(item.position, "in the text '" + text.name + "': " + function.error().message);
        continue;
      }
      text.function = *std::move(function);
      CheckSignature(item, text);
      texts.push_back(std::move(text));
    }
  }

  void CheckSignature(const YamlNode& at, const OpText& text) {
    if (text.function.name != op_.contract->op_type || text.function.domain != kOpDomain) {
      reader_.Fail(at.position, "the text '" + text.name + "' must define " +
                                    std::string(kOpDomain) + "." +
                                    std::string(op_.contract->op_type));
    }
    const Graph& graph = text.function.graph;
    for (ValueId input : graph.inputs) {
      const std::string& name = graph.values[input].name;
      const auto& ports = op_.contract->inputs;
      if (std::none_of(ports.begin(), ports.end(), [&](const Port& p) { return p.name == name; })) {
        reader_.Fail(at.position, "the op has no input '" + name + "'");
      }
    }
    for (size_t i = 0; i < graph.outputs.size(); ++i) {
      if (i >= op_.contract->outputs.size() ||
          graph.values[graph.outputs[i]].name != op_.contract->outputs[i].name) {
        reader_.Fail(at.position, "the outputs of the text '" + text.name +
                                      "' are not those of the op, in its order");
      }
    }
  }

  YamlReader reader_;
  OpPattern& op_;
};

// One value for each choice; all combinations in order.
std::vector<std::map<std::string, std::string>> Combinations(
    const std::vector<std::pair<std::string, std::vector<std::string>>>& choices) {
  std::vector<std::map<std::string, std::string>> result = {{}};
  for (const auto& [name, values] : choices) {
    std::vector<std::map<std::string, std::string>> next;
    for (const auto& partial : result) {
      for (const std::string& value : values) {
        next.push_back(partial);
        next.back()[name] = value;
      }
    }
    result = std::move(next);
  }
  return result;
}

// Which inputs are left out: none first, then every set of those that can be.
std::vector<std::vector<std::string>> LeftOut(const OpPattern& op) {
  std::vector<std::vector<std::string>> sets = {{}};
  for (const auto& [name, value] : op.absent) {
    const size_t count = sets.size();
    for (size_t i = 0; i < count; ++i) {
      sets.push_back(sets[i]);
      sets.back().push_back(name);
    }
  }
  std::stable_sort(sets.begin(), sets.end(),
                   [](const auto& a, const auto& b) { return a.size() < b.size(); });
  return sets;
}

bool AllIn(std::span<const TypeBinding> types, const std::vector<DType>& dtypes) {
  return std::all_of(types.begin(), types.end(), [&](const TypeBinding& b) {
    return std::find(dtypes.begin(), dtypes.end(), b.dtype) != dtypes.end();
  });
}

}  // namespace

Result<OpPatternSet> OpPatternSet::Load(std::span<const EmbeddedFile> files) {
  OpPatternSet set;
  for (const EmbeddedFile& file : files) {
    if (!file.path.starts_with("ops/")) continue;
    auto root = ParseYaml(file.shown(), file.contents);
    if (!root) return std::move(root).error();
    OpPattern& op = set.ops_.emplace_back();
    op.file = file.shown();
    if (Status status = OpFileReader(file.shown(), op).Read(*root); !status) return status.error();
    for (int64_t opset = kFirstOpset; opset <= 28; ++opset) {
      if (std::none_of(op.texts.begin(), op.texts.end(),
                       [&](const OpText& t) { return t.Covers(opset); })) {
        return BadFile(op, "no text covers opset " + std::to_string(opset));
      }
    }
  }
  std::stable_sort(set.ops_.begin(), set.ops_.end(),
                   [](const OpPattern& a, const OpPattern& b) { return a.priority < b.priority; });
  return set;
}

const OpPattern* OpPatternSet::Find(std::string_view op_type) const {
  return Find(kOpDomain, op_type);
}

const OpPattern* OpPatternSet::Find(std::string_view domain, std::string_view op_type) const {
  for (const OpPattern& op : ops_) {
    if (op.contract->domain == domain && op.contract->op_type == op_type) return &op;
  }
  return nullptr;
}

std::vector<TermId> OpPatternSet::Evaluate(Canonicalizer& canonicalizer, const OpPattern& op,
                                           const OpText& text, std::span<const TermId> variables,
                                           const AttributeEnv& attributes) const {
  const Graph& graph = text.function.graph;
  std::vector<TermId> inputs;
  for (ValueId input : graph.inputs) {
    const auto& ports = op.contract->inputs;
    const auto port = std::find_if(ports.begin(), ports.end(), [&](const Port& p) {
      return p.name == graph.values[input].name;
    });
    TermId term = variables[port - ports.begin()];
    if (term == kNone) {
      const auto constant = op.absent.find(std::string(port->name));
      const double value = constant != op.absent.end() ? constant->second : 0;
      term = canonicalizer.terms().Scalar(value, canonicalizer.terms()[variables[0]].dtype);
    }
    inputs.push_back(term);
  }
  AttributeEnv env = attributes;
  for (const auto& [name, value] : text.attributes) env[name] = value;
  if (!op.contract->is_own()) {
    return canonicalizer.Evaluate(graph, inputs, env, text.function.opsets);
  }
  // Ops of ours use operators whose result has the dtype of their operand; others may use any.
  FunctionText typed = text.function;
  std::map<std::string, ValueType> types;
  for (size_t i = 0; i < inputs.size(); ++i) {
    types[graph.values[graph.inputs[i]].name].dtype = canonicalizer.terms()[inputs[i]].dtype;
  }
  if (!InferTextTypes(text.source, types, {}, typed.opsets, typed)) {
    return std::vector<TermId>(graph.outputs.size(), kNone);
  }
  // Shapes of single values do not hold for every match.
  for (Value& value : typed.graph.values) value.type.shape.reset();
  return canonicalizer.Evaluate(typed.graph, inputs, env, typed.opsets);
}

const OpText* OpPatternSet::SelectText(const OpPattern& op, int64_t opset,
                                       const AttributeEnv& attributes,
                                       const std::vector<bool>& given) const {
  const auto& ports = op.contract->inputs;
  const auto fits = [&](const OpText& text) {
    for (const auto& [name, value] : text.attributes) {
      const auto asked = attributes.find(name);
      if (asked != attributes.end() && asked->second != value) return false;
    }
    for (const std::string& name : text.captures) {
      const auto asked = attributes.find(name);
      if (asked == attributes.end() || !std::holds_alternative<AttributeRef>(asked->second)) {
        return false;
      }
    }
    const Graph& graph = text.function.graph;
    for (size_t i = 0; i < ports.size(); ++i) {
      const bool in_text = std::any_of(graph.inputs.begin(), graph.inputs.end(), [&](ValueId v) {
        return graph.values[v].name == ports[i].name;
      });
      const bool can_be_absent = op.absent.contains(std::string(ports[i].name));
      if (given[i] ? !in_text : in_text && !can_be_absent) return false;
    }
    return text.Covers(opset);
  };
  const auto text = std::find_if(op.texts.begin(), op.texts.end(), fits);
  return text != op.texts.end() ? &*text : nullptr;
}

OpPatternSet::Call OpPatternSet::ResolveCall(const Node& node, int64_t opset,
                                             const AttributeEnv& env,
                                             const std::vector<bool>& given) const {
  Call call;
  call.op = Find(node.op_type);
  if (call.op == nullptr) return call;
  for (const Attribute& attribute : node.attributes) {
    call.attributes[attribute.name] = attribute.value;
    if (const auto* ref = std::get_if<AttributeRef>(&attribute.value)) {
      const auto value = env.find(ref->name);
      if (value != env.end()) call.attributes[attribute.name] = value->second;
    }
  }
  call.given = given;
  call.given.resize(call.op->contract->inputs.size(), false);
  call.text = SelectText(*call.op, opset, call.attributes, call.given);
  return call;
}

std::vector<TermId> OpPatternSet::Expand(Canonicalizer& canonicalizer, const Node& node,
                                         int64_t opset, std::span<const TermId> args,
                                         const AttributeEnv& env) const {
  std::vector<TermId> outputs(node.outputs.size(), kNone);
  std::vector<bool> given;
  for (const TermId arg : args) given.push_back(arg != kNone);
  const Call call = ResolveCall(node, opset, env, given);
  if (call.text == nullptr) return outputs;
  std::vector<TermId> variables(args.begin(), args.end());
  variables.resize(call.given.size(), kNone);
  const std::vector<TermId> terms =
      Evaluate(canonicalizer, *call.op, *call.text, variables, call.attributes);
  for (size_t i = 0; i < outputs.size() && i < terms.size(); ++i) outputs[i] = terms[i];
  return outputs;
}

std::vector<PatternInstance> OpPatternSet::Instantiate(Canonicalizer& canonicalizer,
                                                       const Request& request) const {
  std::vector<PatternInstance> instances;
  std::map<std::pair<std::vector<TermId>, std::vector<TermId>>, size_t> known;
  for (const OpPattern& op : ops_) {
    if (!request.op_types.empty() && std::find(request.op_types.begin(), request.op_types.end(),
                                               op.contract->op_type) == request.op_types.end()) {
      continue;
    }
    const auto add = [&](const OpText& text, const TypeTuple& tuple, const Preset& preset,
                         const std::map<std::string, std::string>& choice,
                         const std::vector<std::string>& left_out) {
      // What is left out needs no Casts around it: those instances would only repeat others.
      if (!left_out.empty() && !preset.wrap.empty()) return;
      for (const auto& [symbol, dtype] : preset.only) {
        if (tuple.Find(symbol) != dtype) return;
      }
      TermStore& terms = canonicalizer.terms();
      std::vector<TermId> variables;
      PatternInstance instance;
      instance.op = &op;
      instance.text = &text;
      instance.preset = preset.name;
      instance.types.assign(tuple.types.begin(), tuple.types.end());
      instance.attributes = text.attributes;
      instance.captures = op.captures;
      instance.captures.insert(instance.captures.end(), text.captures.begin(), text.captures.end());
      for (const auto& [name, value] : preset.values) {
        instance.attributes[name] =
            *AttributeValue(*op.contract->FindAttribute(name), value, tuple.types);
      }
      for (const auto& [name, value] : choice) {
        if (value == "captured") {
          instance.captures.push_back(name);
        } else {
          instance.attributes[name] =
              *AttributeValue(*op.contract->FindAttribute(name), value, tuple.types);
        }
      }
      const Graph& graph = text.function.graph;
      for (size_t i = 0; i < op.contract->inputs.size(); ++i) {
        const Port& port = op.contract->inputs[i];
        const bool in_text = std::any_of(graph.inputs.begin(), graph.inputs.end(), [&](ValueId v) {
          return graph.values[v].name == port.name;
        });
        const std::string name(port.name);
        const bool given =
            in_text && std::find(left_out.begin(), left_out.end(), name) == left_out.end();
        const auto wrap = preset.wrap.find(name);
        const bool negated =
            std::find(preset.negate.begin(), preset.negate.end(), name) != preset.negate.end();
        const DType dtype = tuple.Find(port.type_symbol);
        if (!given) {
          instance.inputs.push_back(kNone);
          variables.push_back(kNone);
        } else if (wrap == preset.wrap.end()) {
          instance.inputs.push_back(terms.Variable(static_cast<int>(i), dtype));
          if (negated) instance.negated.push_back(i);
          variables.push_back(negated ? terms.Neg(instance.inputs.back()) : instance.inputs.back());
        } else {
          instance.inputs.push_back(terms.Variable(static_cast<int>(i), wrap->second));
          instance.input_wraps[i] = wrap->second;
          variables.push_back(terms.Cast(instance.inputs.back(), dtype));
        }
      }
      instance.outputs = Evaluate(canonicalizer, op, text, variables, instance.attributes);
      // An own op's text may be for some float dtypes only.
      if (std::find(instance.outputs.begin(), instance.outputs.end(), kNone) !=
          instance.outputs.end()) {
        return;
      }
      if (const auto wrap = preset.wrap.find(std::string(op.contract->outputs[0].name));
          wrap != preset.wrap.end()) {
        // The graph ends where the op's last, widening Cast begins.
        const Term& root = terms[instance.outputs[0]];
        if (!root.IsOp(op::kCast) || terms[root.args[0]].dtype != wrap->second) return;
        instance.output_wrap = wrap->second;
        instance.outputs[0] = root.args[0];
      }
      const auto [found, is_new] =
          known.try_emplace({instance.outputs, instance.inputs}, instances.size());
      if (is_new || request.equal_ones) {
        instances.push_back(std::move(instance));
      } else if (PatternInstance& same = instances[found->second];
                 same.op == &op && same.text == &text && same.preset != preset.name) {
        same.preset = "any";
      }
    };
    const std::vector<TypeTuple> types = DistinctTypes(*op.contract);
    for (const std::vector<std::string>& left_out : LeftOut(op)) {
      for (const OpText& text : op.texts) {
        const bool lacks = std::any_of(left_out.begin(), left_out.end(), [&](const auto& name) {
          return std::find(text.required.begin(), text.required.end(), name) != text.required.end();
        });
        if (lacks || !text.Covers(request.opset)) continue;
        auto choices = op.choices;
        choices.insert(choices.end(), text.choices.begin(), text.choices.end());
        std::erase_if(choices, [&](const auto& c) { return text.attributes.contains(c.first); });
        for (const auto& choice : Combinations(choices)) {
          // Presets before tuples: one with Casts around it comes after all that cover those Casts.
          for (const Preset& preset : op.presets) {
            for (const TypeTuple& tuple : types) {
              if (AllIn(tuple.types, request.dtypes)) add(text, tuple, preset, choice, left_out);
            }
          }
        }
      }
    }
  }
  return instances;
}

}  // namespace liger
