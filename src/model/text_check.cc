#include "model/text_check.h"

#include <onnx/defs/parser.h>
#include <onnx/defs/schema.h>
#include <onnx/onnx_pb.h>

#include <algorithm>
#include <charconv>
#include <exception>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "ops/op_contract.h"

namespace liger {
namespace {

// The parser calls itself for what stands inside of brackets.
constexpr int kMaxDepth = 64;
constexpr std::string_view kEndOfText = "the end of the text";
// Longer lists help nobody.
constexpr size_t kMostNames = 8;

bool IsWordStart(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

struct Token {
  enum class Kind { kEnd, kWord, kString, kOther };
  Kind kind = Kind::kEnd;
  std::string text;  // of a string: what stands between the quotes
  size_t offset = 0;
};

// The tokens of a function text, comments left out. "=>" is one token.
std::vector<Token> Tokenize(std::string_view text) {
  std::vector<Token> tokens;
  size_t at = 0;
  while (at < text.size()) {
    const char c = text[at];
    const size_t start = at;
    if (c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\f' || c == '\v') {
      ++at;
    } else if (c == '#') {
      at = std::min(text.find('\n', at), text.size());
    } else if (c == '"') {
      std::string inside;
      for (++at; at < text.size() && text[at] != '"'; ++at) {
        if (text[at] == '\\' && at + 1 < text.size()) ++at;
        inside += text[at];
      }
      at = std::min(at + 1, text.size());
      tokens.push_back({Token::Kind::kString, std::move(inside), start});
    } else if (IsWordStart(c)) {
      while (at < text.size() && (IsWordStart(text[at]) || (text[at] >= '0' && text[at] <= '9'))) {
        ++at;
      }
      tokens.push_back({Token::Kind::kWord, std::string(text.substr(start, at - start)), start});
    } else {
      at += text.substr(at, 2) == "=>" ? 2 : 1;
      tokens.push_back({Token::Kind::kOther, std::string(text.substr(start, at - start)), start});
    }
  }
  tokens.push_back({Token::Kind::kEnd, "", text.size()});
  return tokens;
}

// Where the parts of a text stand. For texts that the parser takes; on others it stops early.
struct NodePlaces {
  size_t op = 0;
  std::vector<TextName> outputs;
  std::vector<TextName> inputs;
  std::vector<TextName> attributes;
  std::vector<TextName> references;  // @name
};

class TextPlaces {
 public:
  explicit TextPlaces(std::string_view text) : tokens_(Tokenize(text)) {
    if (Is("<")) {
      const size_t first = at_;
      std::vector<TextName> references;
      Angle(header_, references);
      for (size_t i = first; i < at_; ++i) {
        if (tokens_[i].text == "opset_import") imports_ = tokens_[i].offset;
      }
    }
    function_ = {Current().text, Current().offset};
    Advance();
    std::vector<TextName> references;
    if (Is("<")) Angle(attributes_, references);
    inputs_ = List("(", ")");
    if (Is("=>")) Advance();
    outputs_ = List("(", ")");
    if (Is("<")) Angle(header_, references);
    if (!Is("{")) return;
    Advance();
    while (!Is("}") && !AtEnd()) {
      const size_t before = at_;
      nodes_.push_back(Node());
      if (at_ == before) return;
    }
    Advance();
    rest_ = Current().offset;
  }

  const TextName& function() const { return function_; }
  size_t imports() const { return imports_; }
  // Of what stands behind the closing brace.
  size_t rest() const { return rest_; }

  size_t Attribute(const std::string& name) const { return Find(attributes_, name, 0); }
  size_t Input(size_t index) const { return At(inputs_, index); }
  size_t Output(size_t index) const { return At(outputs_, index); }
  size_t Op(size_t node) const { return node < nodes_.size() ? nodes_[node].op : 0; }
  size_t NodeOutput(size_t node, const std::string& name) const {
    return node < nodes_.size() ? Find(nodes_[node].outputs, name, nodes_[node].op) : 0;
  }
  size_t NodeInput(size_t node, const std::string& name) const {
    return node < nodes_.size() ? Find(nodes_[node].inputs, name, nodes_[node].op) : 0;
  }
  size_t NodeAttribute(size_t node, const std::string& name) const {
    return node < nodes_.size() ? Find(nodes_[node].attributes, name, nodes_[node].op) : 0;
  }
  size_t NodeReference(size_t node, const std::string& name) const {
    return node < nodes_.size() ? Find(nodes_[node].references, name, nodes_[node].op) : 0;
  }

 private:
  const Token& Current() const { return tokens_[at_]; }
  bool AtEnd() const { return Current().kind == Token::Kind::kEnd; }
  bool Is(std::string_view mark) const {
    return Current().kind == Token::Kind::kOther && Current().text == mark;
  }
  bool IsName() const {
    return Current().kind == Token::Kind::kWord || Current().kind == Token::Kind::kString;
  }
  void Advance() {
    if (!AtEnd()) ++at_;
  }
  int Depth() const {
    if (Current().kind != Token::Kind::kOther) return 0;
    const std::string& text = Current().text;
    if (text == "(" || text == "[" || text == "{" || text == "<") return 1;
    return text == ")" || text == "]" || text == "}" || text == ">" ? -1 : 0;
  }

  // <name: type = value, ...>
  void Angle(std::vector<TextName>& names, std::vector<TextName>& references) {
    int depth = 0;
    bool is_start = false;
    bool is_reference = false;
    do {
      if (IsName() && is_start && depth == 1) names.push_back({Current().text, Current().offset});
      if (IsName() && is_reference) references.push_back({Current().text, Current().offset});
      depth += Depth();
      is_start = Is("<") || Is(",");
      is_reference = Is("@");
      Advance();
    } while (depth > 0 && !AtEnd());
  }

  // The last name of each item between two marks; types may stand in front.
  std::vector<TextName> List(std::string_view open, std::string_view close) {
    std::vector<TextName> names;
    if (!Is(open)) return names;
    Advance();
    std::optional<TextName> name;
    int depth = 0;
    while (!AtEnd() && !(depth == 0 && Is(close))) {
      if (IsName() && depth == 0) name = {Current().text, Current().offset};
      if (Is(",") && depth == 0 && name) names.push_back(*std::exchange(name, std::nullopt));
      depth += Depth();
      Advance();
    }
    if (name) names.push_back(*std::move(name));
    Advance();
    return names;
  }

  NodePlaces Node() {
    NodePlaces node;
    if (Is("[")) {
      while (!Is("]") && !AtEnd()) Advance();
      Advance();
    }
    while (!Is("=") && !AtEnd() && !Is("}")) {
      if (IsName()) node.outputs.push_back({Current().text, Current().offset});
      Advance();
    }
    Advance();
    node.op = Current().offset;
    while (!AtEnd() && !Is("<") && !Is("(") && !Is("}")) Advance();
    if (Is("<")) Angle(node.attributes, node.references);
    node.inputs = List("(", ")");
    if (Is("<")) Angle(node.attributes, node.references);
    return node;
  }

  static size_t Find(const std::vector<TextName>& names, const std::string& name, size_t fallback) {
    const auto found = std::find_if(names.begin(), names.end(),
                                    [&](const TextName& entry) { return entry.name == name; });
    return found == names.end() ? fallback : found->offset;
  }
  static size_t At(const std::vector<TextName>& names, size_t index) {
    return index < names.size() ? names[index].offset : 0;
  }

  std::vector<Token> tokens_;
  size_t at_ = 0;
  TextName function_;
  size_t imports_ = 0;
  size_t rest_ = 0;
  std::vector<TextName> header_;
  std::vector<TextName> attributes_;
  std::vector<TextName> inputs_;
  std::vector<TextName> outputs_;
  std::vector<NodePlaces> nodes_;
};

std::string Domain(const std::string& domain) { return domain == "ai.onnx" ? "" : domain; }

std::string FullName(const onnx::NodeProto& node) {
  const std::string domain = Domain(node.domain());
  return domain.empty() ? node.op_type() : domain + "." + node.op_type();
}

// What the nodes of a text use, those of bodies included.
struct Uses {
  std::set<std::string> values;
  std::set<std::string> attributes;

  void Take(const onnx::NodeProto& node) {
    values.insert(node.input().begin(), node.input().end());
    for (const onnx::AttributeProto& attribute : node.attribute()) {
      if (!attribute.ref_attr_name().empty()) attributes.insert(attribute.ref_attr_name());
      if (attribute.has_g()) Take(attribute.g());
      for (const onnx::GraphProto& graph : attribute.graphs()) Take(graph);
    }
  }
  void Take(const onnx::GraphProto& graph) {
    for (const onnx::NodeProto& node : graph.node()) Take(node);
    for (const onnx::ValueInfoProto& output : graph.output()) values.insert(output.name());
  }
};

std::string Joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

std::string AttributeTypeName(onnx::AttributeProto::AttributeType type) {
  switch (type) {
    case onnx::AttributeProto::FLOAT:
      return "a float";
    case onnx::AttributeProto::INT:
      return "an integer";
    case onnx::AttributeProto::STRING:
      return "a string";
    case onnx::AttributeProto::FLOATS:
      return "a list of floats";
    case onnx::AttributeProto::INTS:
      return "a list of integers";
    case onnx::AttributeProto::STRINGS:
      return "a list of strings";
    case onnx::AttributeProto::TENSOR:
      return "a tensor";
    default:
      return "of another type";
  }
}

std::string Count(int count, std::string_view what) {
  return std::to_string(count) + " " + std::string(what) + (count == 1 ? "" : "s");
}

// "takes 1 input", "takes 2 to 3 inputs", "takes at least 2 inputs".
std::string CountRange(std::string_view verb, int min, int max, std::string_view what) {
  std::string text = std::string(verb) + " ";
  if (min == max) return text + Count(max, what);
  if (max == std::numeric_limits<int>::max()) return text + "at least " + Count(min, what);
  return text + std::to_string(min) + " to " + Count(max, what);
}

// The operators of the default domain.
const std::vector<std::string>& OnnxNames() {
  static const std::vector<std::string> names = [] {
    std::set<std::string> found;
    for (const auto& schema : onnx::OpSchemaRegistry::get_all_schemas()) {
      if (schema.domain().empty()) found.insert(schema.Name());
    }
    return std::vector<std::string>(found.begin(), found.end());
  }();
  return names;
}

class TextChecker {
 public:
  explicit TextChecker(const std::string& text) : text_(text) {}

  CheckedText Check(const std::optional<OpsetRange>& range) {
    if (!Parse()) return std::move(result_);
    const TextPlaces places(text_);
    places_ = &places;
    Signature();
    Captures();
    Values();
    Operators(range);
    std::stable_sort(result_.faults.begin(), result_.faults.end(),
                     [](const TextFault& a, const TextFault& b) { return a.offset < b.offset; });
    return std::move(result_);
  }

 private:
  void Fail(size_t offset, std::string message, std::string hint = "") {
    result_.faults.push_back({offset, std::move(message), std::move(hint)});
  }
  void FailName(size_t offset, std::string message, std::string name,
                std::vector<std::string> known) {
    result_.faults.push_back({offset, std::move(message), "", std::move(name), std::move(known)});
  }

  bool Parse() {
    if (const size_t zero = text_.find('\0'); zero != std::string::npos) {
      Fail(zero, "the text holds a zero byte");
      return false;
    }
    int depth = 0;
    for (const Token& token : Tokenize(text_)) {
      if (token.kind != Token::Kind::kOther) continue;
      if (token.text == "(" || token.text == "{" || token.text == "[") ++depth;
      if (token.text == ")" || token.text == "}" || token.text == "]") --depth;
      if (depth > kMaxDepth) {
        Fail(token.offset, "the text is nested too deeply");
        return false;
      }
    }
    std::string why;
    try {
      onnx::OnnxParser parser(text_.c_str());
      const auto status = parser.Parse(proto_);
      if (status.IsOK()) {
        result_.is_parsed = true;
        return true;
      }
      why = status.ErrorMessage();
    } catch (const std::exception&) {
      // Its number conversions throw, without a place.
      Fail(LongNumber(), "the text cannot be parsed: it holds a number that is too large");
      return false;
    }
    // "[ParseError at position (line: 3 column: 5)]\nError context: <line>\n<message>"
    size_t line = 1;
    size_t column = 1;
    if (const size_t at = why.find("(line: "); at != std::string::npos) {
      const char* end = why.data() + why.size();
      const auto [stop, code] = std::from_chars(why.data() + at + 7, end, line);
      const std::string_view rest(stop, static_cast<size_t>(end - stop));
      if (code == std::errc() && rest.starts_with(" column: ")) {
        std::from_chars(stop + 9, end, column);
      }
    }
    size_t offset = 0;
    for (; line > 1 && offset < text_.size(); --line) {
      offset = std::min(text_.find('\n', offset), text_.size() - 1) + 1;
    }
    offset = std::min(offset + column - 1, text_.size());
    while (!why.empty() && why.back() == '\n') why.pop_back();
    std::string message = why.substr(why.rfind('\n') + 1);
    while (!message.empty() && (message.back() == '.' || message.back() == ' ')) message.pop_back();
    const std::string found = TokenAt(offset);
    constexpr std::string_view kExpected = "Expected character ";
    constexpr std::string_view kNotFound = " not found";
    if (message.starts_with(kExpected) && message.ends_with(kNotFound)) {
      message =
          "'" +
          message.substr(kExpected.size(), message.size() - kExpected.size() - kNotFound.size()) +
          "' is expected, not " + found;
    } else {
      message += ", at " + found;
    }
    Fail(offset, "the text cannot be parsed: " + message,
         found == kEndOfText && text_.find('{') != std::string::npos
             ? "is the closing brace missing?"
             : "the syntax is that of onnx.parser.parse_function: "
               "Name <captures> (inputs) => (outputs) { y = Op <attribute = 1> (x) }");
    return false;
  }

  // The first number with more digits than 64 bits have; 0 if there is none.
  size_t LongNumber() const {
    size_t digits = 0;
    for (size_t i = 0; i < text_.size(); ++i) {
      digits = text_[i] >= '0' && text_[i] <= '9' ? digits + 1 : 0;
      if (digits >= 19) return i + 1 - digits;
    }
    return 0;
  }

  std::string TokenAt(size_t offset) const {
    for (const Token& token : Tokenize(text_)) {
      if (token.offset < offset) continue;
      if (token.kind == Token::Kind::kEnd) break;
      return "'" + token.text + "'";
    }
    return std::string(kEndOfText);
  }

  void Signature() {
    result_.function = places_->function();
    result_.domain = proto_.domain();
    const auto names = [&](const auto& list, auto place) {
      std::vector<TextName> result;
      for (int i = 0; i < list.size(); ++i) result.push_back({list[i], place(i)});
      return result;
    };
    result_.inputs = names(proto_.input(), [&](size_t i) { return places_->Input(i); });
    result_.outputs = names(proto_.output(), [&](size_t i) { return places_->Output(i); });
    result_.attributes = names(proto_.attribute(), [&](size_t i) {
      return places_->Attribute(proto_.attribute(static_cast<int>(i)));
    });
    if (places_->rest() < text_.size()) {
      Fail(places_->rest(), "the text goes on behind its closing brace",
           "one entry holds one function");
    }
    if (!proto_.overload().empty()) Fail(0, "a pattern has no overload");
    for (const onnx::ValueInfoProto& typed : proto_.value_info()) {
      size_t offset = 0;
      for (const auto* list : {&result_.inputs, &result_.outputs}) {
        for (const TextName& name : *list) {
          if (name.name == typed.name()) offset = name.offset;
        }
      }
      Fail(offset, "the text gives '" + typed.name() + "' a type",
           "inputs may have any float type; `types:` of the entry fixes the dtypes of others");
    }
    if (proto_.input_size() == 0) Fail(result_.function.offset, "the text has no inputs");
    if (proto_.output_size() == 0) Fail(result_.function.offset, "the text has no outputs");
    for (const auto* list : {&result_.inputs, &result_.outputs, &result_.attributes}) {
      const std::string_view what = list == &result_.inputs    ? "input"
                                    : list == &result_.outputs ? "output"
                                                               : "attribute";
      std::set<std::string> seen;
      for (const TextName& name : *list) {
        if (seen.insert(name.name).second) continue;
        Fail(name.offset, std::string(what) + " '" + name.name + "' stands twice");
      }
    }
  }

  void Captures() {
    std::set<std::string> declared(proto_.attribute().begin(), proto_.attribute().end());
    for (const onnx::AttributeProto& attribute : proto_.attribute_proto()) {
      declared.insert(attribute.name());
      Fail(places_->Attribute(attribute.name()),
           "attribute '" + attribute.name() + "' has a type or a default value",
           "captures take their value from the graph and are written as names alone: <" +
               attribute.name() + ">");
    }
    Uses uses;
    for (const onnx::NodeProto& node : proto_.node()) uses.Take(node);
    // A mistyped reference leaves the capture that was meant without a use.
    const bool all_declared = std::includes(declared.begin(), declared.end(),
                                            uses.attributes.begin(), uses.attributes.end());
    for (const TextName& capture : result_.attributes) {
      if (!all_declared || uses.attributes.contains(capture.name)) continue;
      Fail(capture.offset, "attribute '" + capture.name + "' is captured and never used",
           "@" + capture.name + " uses it: c = Constant <value_float: float = @" + capture.name +
               "> ()");
    }
    for (int i = 0; i < proto_.node_size(); ++i) {
      const onnx::NodeProto& node = proto_.node(i);
      for (const onnx::AttributeProto& attribute : node.attribute()) {
        const std::string& name = attribute.ref_attr_name();
        if (name.empty()) continue;
        const size_t offset = places_->NodeReference(i, name);
        if (!declared.contains(name)) {
          FailName(offset, "attribute '" + name + "' is used and not declared", name,
                   {declared.begin(), declared.end()});
          if (declared.empty()) {
            result_.faults.back().hint =
                "captures stand behind the function's name: " + proto_.name() + " <" + name + ">";
          }
          continue;
        }
        const bool is_scalar = attribute.name() == "value_float" || attribute.name() == "value_int";
        const bool is_constant = Domain(node.domain()).empty() && node.op_type() == "Constant";
        if (is_constant && is_scalar) continue;
        Fail(offset,
             "attribute '" + name + "' stands at " + FullName(node) +
                 ", where its value cannot be read from a graph",
             "captures are scalars: c = Constant <value_float: float = @" + name +
                 "> (); other attributes are written as values");
      }
    }
  }

  void Values() {
    std::map<std::string, int> computed;  // by name: the node, -1 for inputs
    for (const std::string& input : proto_.input()) computed.emplace(input, -1);
    std::map<std::string, int> later;
    for (int i = 0; i < proto_.node_size(); ++i) {
      for (const std::string& output : proto_.node(i).output()) later.emplace(output, i);
    }
    const std::set<std::string> captures(proto_.attribute().begin(), proto_.attribute().end());
    Uses uses;
    for (int i = 0; i < proto_.node_size(); ++i) {
      const onnx::NodeProto& node = proto_.node(i);
      std::set<std::string> complained;
      for (const std::string& input : node.input()) {
        if (input.empty() || computed.contains(input) || !complained.insert(input).second) continue;
        const size_t offset = places_->NodeInput(i, input);
        if (later.contains(input)) {
          Fail(offset, "value '" + input + "' is used before it is computed",
               "nodes stand in the order in which they are computed");
          mistyped_ = true;
        } else if (captures.contains(input)) {
          Fail(offset, "attribute '" + input + "' is used as a value",
               "a constant makes it one: c = Constant <value_float: float = @" + input + "> ()");
        } else {
          std::vector<std::string> known;
          for (const auto& [name, at] : computed) known.push_back(name);
          FailName(offset, "value '" + input + "' is neither an input nor computed", input,
                   std::move(known));
          mistyped_ = true;
        }
      }
      for (const std::string& output : node.output()) {
        if (output.empty()) continue;
        const auto [first, is_new] = computed.emplace(output, i);
        if (is_new) continue;
        Fail(places_->NodeOutput(i, output),
             first->second < 0 ? "value '" + output + "' is an input and computed again"
                               : "value '" + output + "' is computed twice");
      }
      uses.Take(node);
    }
    uses.values.insert(proto_.output().begin(), proto_.output().end());
    for (const TextName& output : result_.outputs) {
      const auto found = computed.find(output.name);
      if (found == computed.end()) {
        std::vector<std::string> known;
        for (const auto& [name, at] : computed) {
          if (at >= 0) known.push_back(name);
        }
        const bool is_some = !known.empty() && known.size() <= kMostNames;
        const std::string names = is_some ? Joined(known) : "";
        FailName(output.offset, "output '" + output.name + "' is not produced", output.name,
                 std::move(known));
        if (is_some) result_.faults.back().hint = "the text computes " + names;
        mistyped_ = true;
      } else if (found->second < 0) {
        Fail(output.offset, "output '" + output.name + "' is an input");
        mistyped_ = true;
      }
    }
    // A mistyped name leaves the one that was meant without a use.
    if (mistyped_) return;
    for (const TextName& input : result_.inputs) {
      if (!uses.values.contains(input.name)) {
        Fail(input.offset, "input '" + input.name + "' is never used");
      }
    }
    for (int i = 0; i < proto_.node_size(); ++i) {
      const onnx::NodeProto& node = proto_.node(i);
      const bool is_used =
          std::any_of(node.output().begin(), node.output().end(),
                      [&](const auto& name) { return uses.values.contains(name); });
      if (is_used || node.output_size() == 0) continue;
      Fail(places_->NodeOutput(i, node.output(0)),
           "value '" + node.output(0) + "' is computed and never used");
    }
  }

  void Operators(const std::optional<OpsetRange>& range) {
    std::optional<int64_t> imported;
    for (const auto& import : proto_.opset_import()) {
      if (Domain(import.domain()).empty()) imported = import.version();
    }
    const int64_t newest = NewestOpset();
    if (imported && (*imported < 1 || *imported > newest)) {
      Fail(places_->imports(), "the text imports opset " + std::to_string(*imported) +
                                   "; this program knows 1 to " + std::to_string(newest));
      return;
    }
    if (imported && range && (*imported < range->min || *imported > range->max)) {
      Fail(places_->imports(), "the text imports opset " + std::to_string(*imported) +
                                   ", which is outside of its range");
    }
    for (int i = 0; i < proto_.node_size(); ++i) {
      const onnx::NodeProto& node = proto_.node(i);
      if (HasBody(node)) {
        Fail(places_->Op(i), FullName(node) + " has a body and cannot stand in a text");
        continue;
      }
      if (Domain(node.domain()).empty()) continue;
      const bool is_ours = node.domain() == kOpDomain;
      Fail(places_->Op(i),
           "the operator " + FullName(node) +
               (is_ours ? " is a fused op" : " is of another domain") +
               " and cannot stand in a text",
           "write out what it computes in ONNX operators");
    }
    if (range) {
      std::set<int> complained;
      const int64_t last = std::min(range->max, newest);
      for (int64_t opset = std::min(range->min, newest); opset <= last; ++opset) {
        std::vector<TextFault> faults;
        for (int i = 0; i < proto_.node_size(); ++i) {
          if (complained.contains(i)) continue;
          const size_t before = faults.size();
          OnnxOp(i, opset, faults);
          if (faults.size() != before) complained.insert(i);
        }
        Take(std::move(faults));
      }
      return;
    }
    std::vector<TextFault> best;
    for (int64_t opset = imported.value_or(newest); opset >= imported.value_or(1); --opset) {
      std::vector<TextFault> faults;
      for (int i = 0; i < proto_.node_size(); ++i) OnnxOp(i, opset, faults);
      if (opset == imported.value_or(newest) || faults.size() < best.size()) {
        best = std::move(faults);
      }
    }
    Take(std::move(best));
  }

  void Take(std::vector<TextFault> faults) {
    std::move(faults.begin(), faults.end(), std::back_inserter(result_.faults));
  }

  // An operator of the default domain at one version.
  void OnnxOp(int index, int64_t opset, std::vector<TextFault>& faults) const {
    const onnx::NodeProto& node = proto_.node(index);
    if (!Domain(node.domain()).empty() || HasBody(node)) return;
    const size_t place = places_->Op(index);
    const std::string at = " at opset " + std::to_string(opset);
    const auto* schema =
        onnx::OpSchemaRegistry::Schema(node.op_type(), static_cast<int>(opset), onnx::ONNX_DOMAIN);
    if (schema == nullptr) {
      const auto* any = onnx::OpSchemaRegistry::Schema(node.op_type(), onnx::ONNX_DOMAIN);
      if (any != nullptr) {
        const auto* first = any;
        while (first->since_version() > 1) {
          const auto* older = onnx::OpSchemaRegistry::Schema(
              node.op_type(), first->since_version() - 1, onnx::ONNX_DOMAIN);
          if (older == nullptr) break;
          first = older;
        }
        faults.push_back({place, node.op_type() + " does not exist" + at,
                          "it came with opset " + std::to_string(first->since_version()) +
                              ": narrow `opset:`, or write another text for older opsets"});
        return;
      }
      faults.push_back(
          {place, "'" + node.op_type() + "' is no ONNX operator", "", node.op_type(), OnnxNames()});
      return;
    }
    if (schema->Deprecated()) {
      faults.push_back({place, node.op_type() + " is deprecated" + at,
                        "narrow `opset:`, or write another text for newer opsets"});
      return;
    }
    CheckCounts(place, node, schema->min_input(), schema->max_input(), schema->min_output(),
                schema->max_output(), at, faults);
    std::vector<std::string> known;
    for (const auto& [name, attribute] : schema->attributes()) known.push_back(name);
    bool is_known = true;
    for (const onnx::AttributeProto& attribute : node.attribute()) {
      const size_t there = places_->NodeAttribute(index, attribute.name());
      const auto found = schema->attributes().find(attribute.name());
      if (found == schema->attributes().end()) {
        faults.push_back({there,
                          node.op_type() + " has no attribute '" + attribute.name() + "'" + at, "",
                          attribute.name(), known});
        if (HasAttribute(node.op_type(), attribute.name(), 1, opset)) {
          faults.back().hint = "older opsets have it: one entry for those and one for opset " +
                               std::to_string(opset) + " on";
        } else if (HasAttribute(node.op_type(), attribute.name(), opset, NewestOpset())) {
          faults.back().hint = "newer opsets have it: narrow `opset:`";
        }
        is_known = false;
      } else if (attribute.type() != onnx::AttributeProto::UNDEFINED &&
                 attribute.type() != found->second.type) {
        faults.push_back({there,
                          "attribute '" + attribute.name() + "' of " + node.op_type() +
                              " has to be " + AttributeTypeName(found->second.type) + at,
                          found->second.type == onnx::AttributeProto::FLOAT
                              ? "floats are written with a point: 1.0"
                              : ""});
      }
    }
    for (const auto& [name, attribute] : schema->attributes()) {
      if (is_known && attribute.required && !Has(node, name)) {
        faults.push_back({place, node.op_type() + " lacks the attribute '" + name + "'" + at});
      }
    }
  }

  // Whether the operator has the attribute at one of the versions.
  static bool HasAttribute(const std::string& op_type, const std::string& name, int64_t first,
                           int64_t last) {
    for (int64_t opset = first; opset <= last; ++opset) {
      const auto* schema =
          onnx::OpSchemaRegistry::Schema(op_type, static_cast<int>(opset), onnx::ONNX_DOMAIN);
      if (schema != nullptr && schema->attributes().contains(name)) return true;
    }
    return false;
  }

  static bool HasBody(const onnx::NodeProto& node) {
    return std::any_of(node.attribute().begin(), node.attribute().end(),
                       [](const auto& a) { return a.has_g() || a.graphs_size() > 0; });
  }

  static bool Has(const onnx::NodeProto& node, const std::string& attribute) {
    return std::any_of(node.attribute().begin(), node.attribute().end(),
                       [&](const auto& candidate) { return candidate.name() == attribute; });
  }

  static void CheckCounts(size_t place, const onnx::NodeProto& node, int min_inputs, int max_inputs,
                          int min_outputs, int max_outputs, const std::string& at,
                          std::vector<TextFault>& faults) {
    if (node.input_size() < min_inputs || node.input_size() > max_inputs) {
      faults.push_back({place, FullName(node) + " " +
                                   CountRange("takes", min_inputs, max_inputs, "input") + at +
                                   ", not " + std::to_string(node.input_size())});
    }
    if (node.output_size() < min_outputs || node.output_size() > max_outputs) {
      faults.push_back({place, FullName(node) + " " +
                                   CountRange("has", min_outputs, max_outputs, "output") + at +
                                   ", not " + std::to_string(node.output_size())});
    }
  }

  const std::string& text_;
  onnx::FunctionProto proto_;
  const TextPlaces* places_ = nullptr;
  bool mistyped_ = false;
  CheckedText result_;
};

}  // namespace

int64_t NewestOpset() {
  return onnx::OpSchemaRegistry::DomainToVersionRange::Instance()
      .Map()
      .at(onnx::ONNX_DOMAIN)
      .second;
}

CheckedText CheckFunctionText(const std::string& text, const std::optional<OpsetRange>& range) {
  return TextChecker(text).Check(range);
}

}  // namespace liger
