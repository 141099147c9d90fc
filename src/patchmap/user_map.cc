#include "patchmap/user_map.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <span>
#include <utility>

#include "model/text_check.h"
#include "ops/op_contract.h"
#include "patchmap/nearest.h"
#include "patchmap/scalar_source.h"
#include "patchmap/yaml_reader.h"

namespace liger {
namespace {

constexpr int64_t kSchemaVersion = 1;

bool IsWordCharacter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

bool IsIdentifier(std::string_view name) {
  return !name.empty() && !(name.front() >= '0' && name.front() <= '9') &&
         std::all_of(name.begin(), name.end(), IsWordCharacter);
}

bool IsSnakeCase(std::string_view name) {
  return !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
    return IsWordCharacter(c) && !(c >= 'A' && c <= 'Z');
  });
}

// Names of modules stand in lists of words on the command line.
bool IsModuleName(std::string_view name) {
  return !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
    return IsWordCharacter(c) || c == '-' || c == '.';
  });
}

std::vector<std::string_view> Split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const size_t end = text.find(separator);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

// Python's qualified names: identifiers of any script, and <locals> where a class stands in a
// function.
bool IsClassName(std::string_view name) {
  const std::vector<std::string_view> segments = Split(name, '.');
  return std::all_of(segments.begin(), segments.end(), [](std::string_view segment) {
    const bool is_word = !segment.empty() && !(segment.front() >= '0' && segment.front() <= '9') &&
                         std::all_of(segment.begin(), segment.end(), [](char c) {
                           return IsWordCharacter(c) || (static_cast<unsigned char>(c) & 0x80) != 0;
                         });
    return is_word || segment == "<locals>";
  });
}

bool HasSpace(std::string_view text) {
  return text.find_first_of(" \t\r\n") != std::string_view::npos;
}

// NAME or DOMAIN::NAME.
bool IsFunctionGlob(std::string_view text) {
  const size_t colons = text.find("::");
  if (HasSpace(text)) return false;
  if (colons == std::string_view::npos) return true;
  return colons > 0 && colons + 2 < text.size() &&
         text.find("::", colons + 2) == std::string_view::npos;
}

bool IsPathGlob(std::string_view text) {
  const std::vector<std::string_view> segments = Split(text, '.');
  return !HasSpace(text) && text.find('/') == std::string_view::npos &&
         std::none_of(segments.begin(), segments.end(),
                      [](std::string_view segment) { return segment.empty(); });
}

// Dotted words.
bool IsDomain(std::string_view text) {
  const std::vector<std::string_view> segments = Split(text, '.');
  return std::all_of(segments.begin(), segments.end(), [](std::string_view segment) {
    return !segment.empty() && std::all_of(segment.begin(), segment.end(),
                                           [](char c) { return IsWordCharacter(c) || c == '-'; });
  });
}

std::optional<int64_t> ParseNumber(std::string_view text) {
  int64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, code] = std::from_chars(text.data(), end, value);
  if (text.empty() || text.front() == '-' || code != std::errc() || stop != end) {
    return std::nullopt;
  }
  return value;
}

// "13-17", "13-", "17".
bool ParseOpsetRange(std::string_view text, int64_t* min, int64_t* max) {
  const size_t dash = text.find('-');
  const std::optional<int64_t> first = ParseNumber(text.substr(0, dash));
  if (!first) return false;
  *min = *first;
  *max = *first;
  if (dash == std::string_view::npos) return true;
  const std::string_view rest = text.substr(dash + 1);
  const std::optional<int64_t> last =
      rest.empty() ? std::numeric_limits<int64_t>::max() : ParseNumber(rest);
  if (!last) return false;
  *max = *last;
  return true;
}

bool IsOnnxDomain(std::string_view domain) {
  return domain.empty() || domain == "ai.onnx" || domain.starts_with("ai.onnx.") ||
         domain == "com.microsoft" || domain.starts_with("com.microsoft.");
}

// Names that other tools give to dtypes.
constexpr std::pair<std::string_view, std::string_view> kOtherDTypeNames[] = {
    {"float", "f32"},   {"float32", "f32"}, {"fp32", "f32"},      {"half", "f16"},
    {"float16", "f16"}, {"fp16", "f16"},    {"bfloat16", "bf16"}, {"double", "f64"},
    {"float64", "f64"}, {"int64", "i64"},   {"int", "i64"},       {"int32", "i32"},
    {"int16", "i16"},   {"int8", "i8"},     {"uint64", "u64"},    {"uint32", "u32"},
    {"uint16", "u16"},  {"uint8", "u8"},    {"boolean", "bool"},
};

std::string_view MeantDType(std::string_view name) {
  for (const auto& [other, dtype] : kOtherDTypeNames) {
    if (other == name) return dtype;
  }
  return "";
}

const std::vector<std::string>& MapKeys() {
  static const std::vector<std::string> keys = {"schema_version", "family", "extends", "modules"};
  return keys;
}

const std::vector<std::string>& EntryKeys() {
  static const std::vector<std::string> keys = {"class", "function", "scope",    "match", "op",
                                                "opset", "types",    "optional", "expect"};
  return keys;
}

std::string DidYouMean(std::string_view name, std::span<const std::string> known) {
  const std::vector<std::string> nearest = NearestNames(name, known);
  return nearest.empty() ? "" : "did you mean " + JoinAlternatives(nearest) + "?";
}

// "(x, mask)".
std::string NamesOf(std::span<const TextName> names) {
  std::vector<std::string> words;
  for (const TextName& name : names) words.push_back(name.name);
  return "(" + JoinNames(words) + ")";
}

bool SameNames(std::span<const TextName> a, std::span<const TextName> b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const TextName& x, const TextName& y) { return x.name == y.name; });
}

class UserMapParser {
 public:
  UserMapParser(std::string_view file, std::string_view text, const YamlNode& root)
      : text_(text), reader_(file), root_(reader_.Map(root, "the patch map")) {
    map_.file = file;
  }

  Result<UserMap> Parse() {
    if (const YamlNode* node = Require(root_, "schema_version", MapKeys())) {
      const size_t before = reader_.faults();
      const int64_t version = reader_.Integer(*node, "schema_version");
      if (reader_.faults() == before && version != kSchemaVersion) {
        reader_.Fail(node->position,
                     "schema_version is " + std::to_string(version) + ", this program reads 1");
      }
    }
    if (const YamlNode* node = Require(root_, "family", MapKeys())) {
      map_.family = reader_.String(*node, "family");
      if (!map_.family.empty() && (!IsSnakeCase(map_.family) || map_.family == "any")) {
        reader_.Fail(node->position, "family '" + map_.family +
                                         "' has to be lower-case letters, digits and underscores, "
                                         "and not the word any");
      }
    }
    if (const YamlNode* node = reader_.Find(root_, "extends")) {
      map_.extends = reader_.String(*node, "extends");
      map_.extends_place = reader_.Place(node->position);
      if (!map_.extends.empty() && (!IsModuleName(map_.extends) || map_.extends == "any")) {
        reader_.Fail(node->position, "extends '" + map_.extends + "' is not the name of a family",
                     "--list families names them");
      }
    }
    if (const YamlNode* node = Require(root_, "modules", MapKeys())) ReadModules(*node);
    reader_.Finish(root_);
    CompareMatches();
    if (!reader_.ok()) return reader_.error();
    return std::move(map_);
  }

 private:
  // A `match` entry whose text could be parsed, for comparison with others of the same op.
  struct Match {
    std::string module;
    std::string op;  // with its domain
    YamlPosition position;
    OpsetRange range;
    std::string text;
    CheckedText checked;
    std::map<std::string, DType> types;
  };

  // Like YamlReader::Require; says nothing where the key is there and mistyped, which Finish says.
  const YamlNode* Require(YamlMap& map, const std::string& key,
                          const std::vector<std::string>& known) {
    if (IsMistyped(map, {key}, known)) return reader_.Find(map, key);
    return reader_.Require(map, key);
  }

  static bool IsMistyped(const YamlMap& map, const std::vector<std::string>& keys,
                         const std::vector<std::string>& known) {
    return std::any_of(map.node().entries.begin(), map.node().entries.end(), [&](const auto& e) {
      return std::find(known.begin(), known.end(), e.key.scalar) == known.end() &&
             !NearestNames(e.key.scalar, keys).empty();
    });
  }

  void ReadModules(const YamlNode& node) {
    const YamlMap modules = reader_.Map(node, "modules");
    if (node.kind == YamlNode::Kind::kMap && node.entries.empty()) {
      reader_.Fail(node.position, "modules names no module");
    }
    for (const auto& [key, value] : modules.node().entries) {
      if (!IsModuleName(key.scalar) || key.scalar == "none" || key.scalar == "auto") {
        reader_.Fail(key.position, "'" + key.scalar + "' cannot be the name of a module",
                     "names are letters, digits, _, - and ., and neither auto nor none");
      }
      UserModule module{key.scalar, {}};
      if (value.kind != YamlNode::Kind::kSequence || value.items.empty()) {
        reader_.Fail(value.position, "module '" + key.scalar + "' has to be a list of entries",
                     "each entry begins with a dash: - class: ...");
        continue;
      }
      for (const YamlNode& item : value.items) {
        module.entries.push_back(ReadEntry(item, key.scalar));
      }
      map_.modules.push_back(std::move(module));
    }
  }

  UserEntry ReadEntry(const YamlNode& node, const std::string& module) {
    UserEntry entry;
    entry.place = reader_.Place(node.position);
    const std::string what = "an entry of " + module;
    YamlMap map = reader_.Map(node, what);
    if (node.kind != YamlNode::Kind::kMap) return entry;

    const YamlNode* symbol = nullptr;
    std::vector<std::string> kinds;
    std::vector<std::string> all_kinds;
    for (const UserEntry::Kind kind : {UserEntry::Kind::kClass, UserEntry::Kind::kFunction,
                                       UserEntry::Kind::kScope, UserEntry::Kind::kMatch}) {
      all_kinds.emplace_back(UserEntryKindName(kind));
      const YamlNode* found = reader_.Find(map, all_kinds.back());
      if (found == nullptr) continue;
      kinds.push_back(all_kinds.back());
      symbol = found;
      entry.kind = kind;
    }
    if (kinds.empty() && !IsMistyped(map, all_kinds, EntryKeys())) {
      reader_.Fail(node.position, what + " names none of class, function, scope and match");
    } else if (kinds.size() > 1) {
      reader_.Fail(node.position,
                   what + " has " + JoinNames(kinds) + "; an entry has one of them alone",
                   "write one entry for each");
    }
    const bool has_match = std::find(kinds.begin(), kinds.end(), "match") != kinds.end();
    if (has_match) entry.kind = UserEntry::Kind::kMatch;
    const bool has_kind = kinds.size() == 1;

    const YamlNode* opset = reader_.Find(map, "opset");
    const YamlNode* types = reader_.Find(map, "types");
    for (const auto& [key, value] : {std::pair("opset", opset), std::pair("types", types)}) {
      if (value == nullptr || has_match || kinds.empty()) continue;
      reader_.Fail(value->position,
                   std::string(key) + " belongs to match, not to " + kinds.front());
    }
    const bool has_range = has_match && opset != nullptr && ReadOpset(*opset, &entry);

    if (const YamlNode* op = Require(map, "op", EntryKeys())) ReadOp(*op, has_kind, &entry);
    if (has_kind && has_match) {
      ReadMatch(*symbol, node.position, module, has_range, types, &entry);
    } else if (has_kind) {
      ReadSymbol(*symbol, &entry);
    }

    if (const YamlNode* expect = reader_.Find(map, "expect")) {
      entry.expect = ParseCountWish(expect->scalar);
      if (!entry.expect) {
        reader_.Fail(expect->position, "expect has to be a number of instances, as 65 or \">=65\"");
      }
    }
    if (const YamlNode* optional = reader_.Find(map, "optional")) {
      entry.optional = optional->scalar == "true";
      if (optional->scalar != "true" && optional->scalar != "false") {
        reader_.Fail(optional->position, "optional has to be true or false");
      }
    }
    reader_.Finish(map);
    if (has_kind && !has_match) CheckRepetition(node, entry);
    return entry;
  }

  bool ReadOpset(const YamlNode& node, UserEntry* entry) {
    OpsetRange range;
    const size_t before = reader_.faults();
    if (!ParseOpsetRange(node.scalar, &range.min, &range.max)) {
      reader_.Fail(node.position, "'" + node.scalar + "' is no range of opsets",
                   "13-17, 18- (from 18 on) or 17 (this one) are");
    } else if (range.min < 1 || range.min > NewestOpset()) {
      reader_.Fail(node.position, "opset " + std::to_string(range.min) +
                                      " does not exist; this program knows 1 to " +
                                      std::to_string(NewestOpset()));
    } else if (range.min > range.max) {
      reader_.Fail(node.position, "the range of opsets '" + node.scalar + "' is empty");
    }
    if (reader_.faults() != before) return false;
    entry->min_opset = range.min;
    entry->max_opset = range.max;
    return true;
  }

  // class, function and scope.
  void ReadSymbol(const YamlNode& node, UserEntry* entry) {
    const std::string_view kind = UserEntryKindName(entry->kind);
    std::string text = reader_.String(node, kind);
    if (text.empty()) return;
    if (entry->kind == UserEntry::Kind::kClass && !IsClassName(text)) {
      const bool is_glob = text.find_first_of("*?[") != std::string::npos;
      reader_.Fail(node.position, "'" + text + "' is not the name of a class",
                   is_glob ? "class names one class; `scope:` takes a glob over module paths"
                           : "a class is named as in Python, with its module or without");
    } else if (entry->kind == UserEntry::Kind::kFunction && !IsFunctionGlob(text)) {
      reader_.Fail(node.position, "'" + text + "' is not the name of a function",
                   "NAME or DOMAIN::NAME; * stands for any characters");
    } else if (entry->kind == UserEntry::Kind::kScope && !IsPathGlob(text)) {
      reader_.Fail(node.position, "'" + text + "' is not a glob over module paths",
                   "module paths are dotted: model.layers.*.norm; ** stands for any number of "
                   "modules");
    }
    entry->symbol = std::move(text);
  }

  void CheckRepetition(const YamlNode& node, const UserEntry& entry) {
    if (entry.symbol.empty() || entry.op.empty()) return;
    const std::string key = std::string(UserEntryKindName(entry.kind)) + " '" + entry.symbol + "'";
    const auto [first, is_new] =
        symbols_.try_emplace({key, entry.op}, static_cast<int>(node.position.line));
    if (is_new) return;
    reader_.Fail(node.position, key + " with " + entry.op + " stands twice, first in line " +
                                    std::to_string(first->second));
  }

  void ReadOp(const YamlNode& node, bool has_kind, UserEntry* entry) {
    const std::string name = reader_.String(node, "op");
    if (name.empty()) return;
    const size_t dot = name.rfind('.');
    const std::string domain = dot == std::string::npos ? "" : name.substr(0, dot);
    const std::string op = dot == std::string::npos ? name : name.substr(dot + 1);
    if (!IsIdentifier(op) || (dot != std::string::npos && !IsDomain(domain))) {
      reader_.Fail(node.position, "'" + name + "' is not the name of an op",
                   name.find("::") != std::string::npos
                       ? "a domain stands in front of a point: my.domain.SoftCap"
                       : "");
      return;
    }
    const bool is_match = entry->kind == UserEntry::Kind::kMatch;
    if (is_match && has_kind) {
      ReadOwnOp(node, name, domain, op, entry);
    } else if (domain.empty() || domain == kOpDomain) {
      ReadOurOp(node, name, op, entry);
    } else if (has_kind) {
      ForeignOp(node, name, domain, op, UserEntryKindName(entry->kind));
    }
  }

  // An op of this program, by its own name or by one of Liger-Kernel's.
  void ReadOurOp(const YamlNode& node, const std::string& name, const std::string& op,
                 UserEntry* entry) {
    const OpName* known = FindOpName(op);
    if (known == nullptr) {
      // RMSNorm for LigerRMSNorm.
      const OpName* prefixed = FindOpName("Liger" + op);
      std::string nearest = prefixed != nullptr && prefixed->refused.empty()
                                ? "did you mean " + std::string(prefixed->name) + "?"
                                : DidYouMean(op, UsableNames());
      if (nearest.empty()) {
        nearest =
            "--list ops names the ops of this program; an op of your own has a domain and a "
            "`match`";
      }
      reader_.Fail(node.position, "unknown op '" + name + "'", std::move(nearest));
      return;
    }
    if (!known->refused.empty()) {
      reader_.Fail(node.position, "'" + name + "' cannot be asked for by " +
                                      std::string(UserEntryKindName(entry->kind)) + ": " +
                                      std::string(known->refused));
      return;
    }
    entry->domain = kOpDomain;
    entry->op = known->op;
    if (known->name != known->op) entry->alias = known->name;
  }

  void ReadOwnOp(const YamlNode& node, const std::string& name, const std::string& domain,
                 const std::string& op, UserEntry* entry) {
    const std::string example = "op: my.domain." + op;
    if (domain == kOpDomain || (domain.empty() && FindOpName(op) != nullptr)) {
      reader_.Fail(node.position, "a pattern cannot define '" + name + "', an op of this program",
                   "class, function and scope ask for an op of this program; an op of your own has "
                   "a domain of your own, " +
                       example);
    } else if (domain.empty()) {
      reader_.Fail(node.position, "the op '" + name + "' of a pattern has no domain", example);
    } else if (IsOnnxDomain(domain)) {
      reader_.Fail(node.position,
                   "a pattern cannot define '" + name + "': " + domain +
                       " is a domain of ONNX and ONNX Runtime",
                   example);
    } else {
      entry->domain = domain;
      entry->op = op;
    }
  }

  void ForeignOp(const YamlNode& node, const std::string& name, const std::string& domain,
                 const std::string& op, std::string_view kind) {
    if (const OpName* known = FindOpName(op); known != nullptr && known->refused.empty()) {
      reader_.Fail(node.position, "'" + name + "' is not an op", "did you mean " + op + "?");
    } else if (IsOnnxDomain(domain)) {
      reader_.Fail(node.position, "'" + name + "' is not a fused op of this program",
                   "--list ops names those of this program");
    } else {
      reader_.Fail(node.position,
                   "'" + name + "' is of a domain of your own, and " + std::string(kind) +
                       " takes the ops of this program",
                   "an op of your own is described by its pattern: match: | with op: " + name);
    }
  }

  void ReadMatch(const YamlNode& node, YamlPosition position, const std::string& module,
                 bool has_range, const YamlNode* types, UserEntry* entry) {
    if (node.scalar.find_first_not_of(" \t\r\n") == std::string::npos) {
      reader_.Fail(node.position, "match has to be a function text",
                   "match: | with the text in the lines below, further to the right");
      return;
    }
    entry->text = node.scalar;
    std::optional<OpsetRange> range;
    if (has_range) range = {entry->min_opset, entry->max_opset};
    CheckedText checked = CheckFunctionText(entry->text, range);
    const ScalarSource source(text_, node.position, entry->text);
    for (const TextFault& fault : checked.faults) {
      FailInText(node, source, entry->text, fault.offset, fault.message,
                 fault.hint.empty() ? DidYouMean(fault.name, fault.known) : fault.hint);
    }
    if (types != nullptr) ReadTypes(*types, checked, entry);
    if (!checked.is_parsed) return;
    entry->symbol = checked.function.name;
    if (!entry->op.empty() && checked.function.name != entry->op) {
      FailInText(node, source, entry->text, checked.function.offset,
                 "the text defines '" + checked.function.name + "', but the entry's op is " +
                     entry->domain + "." + entry->op,
                 "the function has the op's name: " + entry->op);
    }
    if (!entry->op.empty() && !checked.domain.empty() && checked.domain != entry->domain) {
      FailInText(node, source, entry->text, 0,
                 "the text is of domain '" + checked.domain + "', but the entry's op is " +
                     entry->domain + "." + entry->op,
                 "`domain:` may be left out of the text");
    }
    if (entry->op.empty()) return;
    matches_.push_back({module,
                        entry->domain + "." + entry->op,
                        position,
                        {entry->min_opset, entry->max_opset},
                        entry->text,
                        std::move(checked),
                        entry->types});
  }

  void FailInText(const YamlNode& node, const ScalarSource& source, const std::string& text,
                  size_t offset, std::string message, std::string hint) {
    if (const auto place = source.At(offset)) {
      reader_.Fail(*place, std::move(message), std::move(hint));
      return;
    }
    const std::string_view before = std::string_view(text).substr(0, offset);
    const auto line = 1 + std::count(before.begin(), before.end(), '\n');
    reader_.Fail(node.position,
                 std::move(message) + " (line " + std::to_string(line) + " of the text)",
                 std::move(hint));
  }

  void ReadTypes(const YamlNode& node, const CheckedText& checked, UserEntry* entry) {
    const YamlMap types = reader_.Map(node, "types");
    if (node.kind == YamlNode::Kind::kMap && node.entries.empty()) {
      reader_.Fail(node.position, "types names no input");
    }
    std::vector<std::string> inputs;
    for (const TextName& input : checked.inputs) inputs.push_back(input.name);
    for (const auto& [key, value] : types.node().entries) {
      if (checked.is_parsed &&
          std::find(inputs.begin(), inputs.end(), key.scalar) == inputs.end()) {
        const std::string nearest = DidYouMean(key.scalar, inputs);
        reader_.Fail(key.position, "the text has no input '" + key.scalar + "'",
                     nearest.empty() ? "its inputs: " + JoinNames(inputs) : nearest);
      }
      const std::optional<DType> dtype = ParseDType(value.scalar);
      if (!dtype) {
        const std::string_view meant = MeantDType(value.scalar);
        reader_.Fail(value.position, "'" + value.scalar + "' is no dtype",
                     meant.empty()
                         ? "dtypes: f32, f16, bf16, f64, bool, i64, i32, i16, i8, u64, u32, u16, u8"
                         : "did you mean " + std::string(meant) + "?");
      }
      entry->types[key.scalar] = dtype.value_or(DType::kUndefined);
    }
  }

  // All texts of one op are spellings of one thing.
  void CompareMatches() {
    for (size_t i = 0; i < matches_.size(); ++i) {
      for (size_t j = 0; j < i; ++j) {
        if (matches_[i].op != matches_[j].op) continue;
        CompareMatch(matches_[j], matches_[i]);
        break;
      }
      for (size_t j = 0; j < i; ++j) {
        const Match& a = matches_[j];
        const Match& b = matches_[i];
        if (a.op != b.op || a.text != b.text || a.range.max < b.range.min ||
            b.range.max < a.range.min) {
          continue;
        }
        reader_.Fail(b.position, "the same text of " + b.op + " stands in line " +
                                     std::to_string(a.position.line) +
                                     " for opsets that overlap with these");
        break;
      }
    }
  }

  void CompareMatch(const Match& first, const Match& other) {
    const std::string in_line = "in line " + std::to_string(first.position.line);
    const auto fail = [&](const std::string& message) {
      reader_.Fail(
          other.position, message,
          "the entries of one op are spellings of one function: equal names, in one order");
    };
    if (first.module != other.module) {
      reader_.Fail(other.position,
                   other.op + " stands under " + other.module + " and, " + in_line + ", under " +
                       first.module,
                   "one op belongs to one module");
    }
    const auto compare = [&](const std::string& what, const std::vector<TextName>& a,
                             const std::vector<TextName>& b) {
      if (SameNames(a, b)) return;
      fail("the " + what + " of " + other.op + " are " + NamesOf(b) + " here and " + NamesOf(a) +
           " " + in_line);
    };
    compare("inputs", first.checked.inputs, other.checked.inputs);
    compare("outputs", first.checked.outputs, other.checked.outputs);
    compare("captures", first.checked.attributes, other.checked.attributes);
    if (first.types != other.types) fail("the types of " + other.op + " are others " + in_line);
  }

  static std::vector<std::string> UsableNames() {
    std::vector<std::string> names;
    for (const OpName& name : OpNames()) {
      if (name.refused.empty()) names.emplace_back(name.name);
    }
    return names;
  }

  std::string_view text_;
  YamlReader reader_;
  YamlMap root_;
  UserMap map_;
  std::map<std::pair<std::string, std::string>, int> symbols_;  // symbol and op: the line
  std::vector<Match> matches_;
};

}  // namespace

std::string CountWish::ToText() const { return (at_least ? ">=" : "") + std::to_string(count); }

std::optional<CountWish> ParseCountWish(std::string_view text) {
  CountWish wish;
  if (text.starts_with(">=")) {
    wish.at_least = true;
    text.remove_prefix(2);
  } else if (text.starts_with("=")) {
    text.remove_prefix(1);
  }
  const std::optional<int64_t> count = ParseNumber(text);
  if (!count) return std::nullopt;
  wish.count = *count;
  return wish;
}

std::string_view UserEntryKindName(UserEntry::Kind kind) {
  switch (kind) {
    case UserEntry::Kind::kClass:
      return "class";
    case UserEntry::Kind::kFunction:
      return "function";
    case UserEntry::Kind::kScope:
      return "scope";
    case UserEntry::Kind::kMatch:
      return "match";
  }
  return "";
}

Result<UserMap> ParseUserMap(std::string_view file, std::string_view text) {
  Result<YamlNode> root = ParseYaml(file, text);
  if (!root) return std::move(root).error();
  return UserMapParser(file, text, *root).Parse();
}

}  // namespace liger
