#include "patchmap/user_map.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <utility>

#include "model/onnx_graph.h"
#include "patchmap/nearest.h"
#include "patchmap/yaml_reader.h"

namespace liger {
namespace {

constexpr int64_t kSchemaVersion = 1;
constexpr std::string_view kOurDomain = "liger";

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

class UserMapParser {
 public:
  UserMapParser(std::string_view file, const YamlNode& root)
      : reader_(file), root_(reader_.Map(root, "the patch map")) {
    map_.file = file;
  }

  Result<UserMap> Parse() {
    if (const YamlNode* node = reader_.Require(root_, "schema_version")) {
      const size_t before = reader_.faults();
      const int64_t version = reader_.Integer(*node, "schema_version");
      if (reader_.faults() == before && version != kSchemaVersion) {
        reader_.Fail(node->position,
                     "schema_version is " + std::to_string(version) + ", this program reads 1");
      }
    }
    if (const YamlNode* node = reader_.Require(root_, "family")) {
      map_.family = reader_.String(*node, "family");
      if (!map_.family.empty() && !IsSnakeCase(map_.family)) {
        reader_.Fail(node->position, "family '" + map_.family +
                                         "' has to be lower-case letters, digits and underscores");
      }
    }
    if (const YamlNode* node = reader_.Find(root_, "extends")) {
      map_.extends = reader_.String(*node, "extends");
    }
    if (const YamlNode* node = reader_.Require(root_, "modules")) ReadModules(*node);
    reader_.Finish(root_);
    if (!reader_.ok()) return reader_.error();
    return std::move(map_);
  }

 private:
  void ReadModules(const YamlNode& node) {
    const YamlMap modules = reader_.Map(node, "modules");
    if (node.kind == YamlNode::Kind::kMap && node.entries.empty()) {
      reader_.Fail(node.position, "modules names no module");
    }
    for (const auto& [key, value] : modules.node().entries) {
      if (!IsModuleName(key.scalar)) {
        reader_.Fail(key.position, "the name of a module, '" + key.scalar +
                                       "', has to be letters, digits, _, - and .");
      }
      UserModule module{key.scalar, {}};
      if (value.kind != YamlNode::Kind::kSequence || value.items.empty()) {
        reader_.Fail(value.position, "module '" + key.scalar + "' has to be a list of entries");
        continue;
      }
      for (const YamlNode& item : value.items)
        module.entries.push_back(ReadEntry(item, key.scalar));
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
    int symbols = 0;
    for (const UserEntry::Kind kind : {UserEntry::Kind::kClass, UserEntry::Kind::kFunction,
                                       UserEntry::Kind::kScope, UserEntry::Kind::kMatch}) {
      const YamlNode* found = reader_.Find(map, UserEntryKindName(kind));
      if (found == nullptr) continue;
      ++symbols;
      symbol = found;
      entry.kind = kind;
    }
    if (symbols != 1) {
      reader_.Fail(node.position, what + " has to have one of class, function, scope and match");
    }
    const bool is_match = entry.kind == UserEntry::Kind::kMatch;
    if (symbols == 1) ReadSymbol(*symbol, &entry);
    if (const YamlNode* op = reader_.Require(map, "op")) ReadOp(*op, &entry);
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
    if (const YamlNode* opset = reader_.Find(map, "opset")) {
      if (!is_match) {
        reader_.Fail(opset->position, "opset belongs to match");
      } else if (!ParseOpsetRange(opset->scalar, &entry.min_opset, &entry.max_opset)) {
        reader_.Fail(opset->position,
                     "'" + opset->scalar + "' is no range of opsets, as 13-17 or 18-");
      }
    }
    if (const YamlNode* types = reader_.Find(map, "types")) {
      if (!is_match) reader_.Fail(types->position, "types belongs to match");
      ReadTypes(*types, &entry);
    }
    reader_.Finish(map);
    return entry;
  }

  void ReadSymbol(const YamlNode& node, UserEntry* entry) {
    const std::string_view kind = UserEntryKindName(entry->kind);
    std::string text = reader_.String(node, kind);
    if (text.empty()) return;
    if (entry->kind == UserEntry::Kind::kMatch) {
      Result<FunctionText> function = ParseFunctionText(text);
      if (!function) {
        reader_.Fail(node.position, function.error().message, function.error().hint);
      } else {
        entry->symbol = function->name;
      }
      entry->text = std::move(text);
      return;
    }
    if (entry->kind == UserEntry::Kind::kClass && !IsClassName(text)) {
      reader_.Fail(node.position, "'" + text + "' is not the name of a class");
    } else if (HasSpace(text)) {
      reader_.Fail(node.position, "'" + text + "' is not the name of a " + std::string(kind));
    }
    entry->symbol = std::move(text);
  }

  void ReadOp(const YamlNode& node, UserEntry* entry) {
    const std::string name = reader_.String(node, "op");
    if (name.empty()) return;
    const size_t dot = name.rfind('.');
    entry->domain = dot == std::string::npos ? kOurDomain : std::string_view(name).substr(0, dot);
    entry->op = dot == std::string::npos ? name : name.substr(dot + 1);
    if (!IsIdentifier(entry->op)) {
      reader_.Fail(node.position, "'" + name + "' is not the name of an op");
      return;
    }
    if (entry->kind == UserEntry::Kind::kMatch) {
      if (entry->domain == kOurDomain || IsOnnxDomain(entry->domain)) {
        reader_.Fail(node.position, "a pattern cannot define '" + name + "'",
                     "give the op a domain of your own, as my.domain." + entry->op);
      }
      return;
    }
    if (entry->domain != kOurDomain) {
      reader_.Fail(node.position, "'" + name + "' is not an op of this program",
                   "an op of another domain is defined by a pattern: match");
      return;
    }
    const OpName* known = FindOpName(entry->op);
    if (known == nullptr) {
      std::vector<std::string> names;
      for (const OpName& candidate : OpNames()) {
        if (candidate.refused.empty()) names.emplace_back(candidate.name);
      }
      const std::vector<std::string> nearest = NearestNames(entry->op, names);
      reader_.Fail(node.position, "unknown op '" + name + "'",
                   nearest.empty() ? "" : "did you mean " + JoinAlternatives(nearest) + "?");
    } else if (!known->refused.empty()) {
      reader_.Fail(node.position, "'" + name + "' cannot be used: " + std::string(known->refused));
    } else {
      if (known->name != known->op) entry->alias = known->name;
      entry->op = known->op;
    }
  }

  void ReadTypes(const YamlNode& node, UserEntry* entry) {
    const YamlMap types = reader_.Map(node, "types");
    for (const auto& [key, value] : types.node().entries) {
      const std::optional<DType> dtype = ParseDType(value.scalar);
      if (!dtype) reader_.Fail(value.position, "'" + value.scalar + "' is no dtype");
      entry->types[key.scalar] = dtype.value_or(DType::kUndefined);
    }
  }

  YamlReader reader_;
  YamlMap root_;
  UserMap map_;
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
  return UserMapParser(file, *root).Parse();
}

}  // namespace liger
