#include "patchmap/family_map.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "patchmap/modules.h"
#include "patchmap/nearest.h"
#include "patchmap/yaml_reader.h"

namespace liger {
namespace {

constexpr int64_t kSchemaVersion = 1;

bool IsNameCharacter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

// Families and modules are words of lower-case letters, digits and underscores.
bool IsSnakeCase(std::string_view name) {
  return !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
    return IsNameCharacter(c) && !(c >= 'A' && c <= 'Z');
  });
}

// Class and function names are dotted identifiers; patterns may have `*` in place of a segment.
bool IsDottedName(std::string_view name, bool allow_star) {
  size_t start = 0;
  while (true) {
    const size_t end = std::min(name.find('.', start), name.size());
    const std::string_view segment = name.substr(start, end - start);
    if (segment.empty()) return false;
    const bool star = allow_star && segment == "*";
    if (!star && !std::all_of(segment.begin(), segment.end(), IsNameCharacter)) return false;
    if (end == name.size()) return true;
    start = end + 1;
  }
}

std::string FileStem(std::string_view file) {
  const size_t slash = file.find_last_of('/');
  std::string_view name = slash == std::string_view::npos ? file : file.substr(slash + 1);
  if (name.ends_with(".yaml")) name.remove_suffix(5);
  return std::string(name);
}

class FamilyParser {
 public:
  FamilyParser(std::string_view file, const YamlNode& root)
      : file_(file), reader_(file), root_(reader_.Map(root, "the family")) {}

  Result<FamilyMap> Parse() {
    FamilyMap map;
    map.head = ParseHead();
    if (const YamlNode* adds = reader_.Find(root_, "adds")) {
      map.adds = SnakeCaseNames(*adds, "adds");
    }
    if (const YamlNode* node = reader_.Require(root_, "defaults")) ParseDefaults(*node, &map);
    ParseReasons(&map);
    if (const YamlNode* node = reader_.Require(root_, "modules")) ParseModules(*node, &map);
    reader_.Finish(root_);
    if (!reader_.ok()) return reader_.error();
    return map;
  }

  Result<FamilyHead> ParseHeadOnly() {
    FamilyHead head = ParseHead();
    if (!reader_.ok()) return reader_.error();
    return head;
  }

 private:
  FamilyHead ParseHead() {
    FamilyHead head;
    head.file = file_;
    if (const YamlNode* node = reader_.Require(root_, "schema_version")) {
      const size_t before = reader_.faults();
      const int64_t version = reader_.Integer(*node, "schema_version");
      if (reader_.faults() == before && version != kSchemaVersion) {
        reader_.Fail(node->position,
                     "schema_version is " + std::to_string(version) + ", this program reads 1");
      }
    }
    if (const YamlNode* node = reader_.Require(root_, "family")) {
      head.family = reader_.String(*node, "family");
      if (head.family.empty()) {
        // Said already.
      } else if (!IsSnakeCase(head.family) || head.family == "any") {
        reader_.Fail(node->position, "family '" + head.family +
                                         "' has to be lower-case letters, digits and underscores, "
                                         "and not the word any");
      } else if (head.family != FileStem(file_)) {
        reader_.Fail(node->position, "family '" + head.family +
                                         "' stands in a file of another name; "
                                         "the file is to be called " +
                                         head.family + ".yaml");
      }
    }
    head.model_types = Names("model_types", true);
    head.aliases = Names("aliases", false);
    head.genai_types = Names("genai_types", false);
    if (head.genai_types.empty()) head.genai_types = head.model_types;
    head.architectures = DottedNames(root_, "architectures", true, false, false);
    if (const YamlNode* node = reader_.Require(root_, "package")) {
      head.package = reader_.String(*node, "package");
      if (!head.package.empty() && !IsDottedName(head.package, false)) {
        reader_.Fail(node->position, "package '" + head.package + "' is not a dotted module name");
      }
    }
    head.layer_classes = DottedNames(root_, "layer_classes", false, false, false);
    if (const YamlNode* node = reader_.Find(root_, "parts")) {
      YamlMap parts = reader_.Map(*node, "parts");
      if (const YamlNode* families = reader_.Require(parts, "families")) {
        head.parts = reader_.Strings(*families, "families", /*may_be_empty=*/false);
      }
      head.parts_outside = DottedNames(parts, "outside", false, false, false);
      reader_.Finish(parts);
    }
    if (const YamlNode* node = reader_.Find(root_, "structure")) {
      YamlMap structure = reader_.Map(*node, "structure");
      head.structure_present = DottedNames(structure, "present", true, true, false);
      head.structure_absent = DottedNames(structure, "absent", false, true, true);
      reader_.Finish(structure);
    }
    return head;
  }

  std::vector<std::string> Names(std::string_view key, bool required) {
    const YamlNode* node = required ? reader_.Require(root_, key) : reader_.Find(root_, key);
    if (node == nullptr) return {};
    return reader_.Strings(*node, key, /*may_be_empty=*/!required);
  }

  std::vector<std::string> DottedNames(YamlMap& map, std::string_view key, bool required,
                                       bool allow_star, bool may_be_empty) {
    const YamlNode* node = required ? reader_.Require(map, key) : reader_.Find(map, key);
    if (node == nullptr) return {};
    std::vector<std::string> names;
    for (YamlWord& word : reader_.Words(*node, key, may_be_empty)) {
      if (!IsDottedName(word.text, allow_star)) {
        reader_.Fail(word.position, "'" + word.text + "' in " + std::string(key) +
                                        (allow_star ? " has to be dotted words, * for one of them"
                                                    : " has to be a dotted name"));
      }
      names.push_back(std::move(word.text));
    }
    return names;
  }

  std::vector<std::string> SnakeCaseNames(const YamlNode& node, std::string_view what) {
    std::vector<std::string> names;
    for (YamlWord& word : reader_.Words(node, what, /*may_be_empty=*/true)) {
      if (!IsSnakeCase(word.text)) {
        reader_.Fail(word.position,
                     "'" + word.text + "' has to be lower-case letters, digits and underscores");
      }
      if (FindModule(word.text) != nullptr) {
        reader_.Fail(word.position, "'" + word.text + "' is in the vocabulary already");
      }
      names.push_back(std::move(word.text));
    }
    return names;
  }

  void ParseDefaults(const YamlNode& node, FamilyMap* map) {
    const size_t before = reader_.faults();
    const YamlMap defaults = reader_.Map(node, "defaults");
    for (const auto& [key, value] : defaults.node().entries) {
      const bool known =
          FindModule(key.scalar) != nullptr ||
          std::find(map->adds.begin(), map->adds.end(), key.scalar) != map->adds.end();
      if (!known) {
        std::vector<std::string> names = map->adds;
        for (const ModuleKind& kind : ModuleVocabulary()) names.emplace_back(kind.name);
        const std::vector<std::string> nearest = NearestNames(key.scalar, names);
        reader_.Fail(key.position, "unknown module '" + key.scalar + "' in defaults",
                     nearest.empty() ? "known modules: " + JoinNames(names)
                                     : "did you mean " + JoinAlternatives(nearest) + "?");
        continue;
      }
      map->defaults.push_back(
          {key.scalar, reader_.OnOff(value, "the default of " + key.scalar), key.position});
    }
    if (reader_.faults() != before) return;
    defaults_are_sound_ = true;
    if (map->defaults.empty()) reader_.Fail(node.position, "defaults names no module");
    for (const std::string& name : map->adds) {
      if (!map->Accepts(name)) {
        reader_.Fail(node.position, "module '" + name + "' of adds has no default");
      }
    }
  }

  // no_op and refused: a sentence for each module.
  void ParseReasons(FamilyMap* map) {
    if (const YamlNode* node = reader_.Find(root_, "no_op")) {
      const YamlMap reasons = reader_.Map(*node, "no_op");
      for (const auto& [key, value] : reasons.node().entries) {
        if (ModuleDefault* module = OffByDefault(key, "no_op", map)) {
          module->no_op = reader_.String(value, "the reason of " + key.scalar);
        }
      }
    }
    if (const YamlNode* node = reader_.Find(root_, "refused")) {
      const YamlMap reasons = reader_.Map(*node, "refused");
      for (const auto& [key, value] : reasons.node().entries) {
        if (ModuleDefault* module = OffByDefault(key, "refused", map)) {
          module->refused = reader_.String(value, "the reason of " + key.scalar);
        }
      }
    }
  }

  ModuleDefault* OffByDefault(const YamlNode& key, std::string_view section, FamilyMap* map) {
    const auto it = std::find_if(map->defaults.begin(), map->defaults.end(),
                                 [&](const ModuleDefault& d) { return d.name == key.scalar; });
    if (it != map->defaults.end() && !it->on) return &*it;
    if (it == map->defaults.end() && !defaults_are_sound_) return nullptr;
    reader_.Fail(key.position, "module '" + key.scalar + "' of " + std::string(section) +
                                   " has to be off in defaults");
    return nullptr;
  }

  void ParseModules(const YamlNode& node, FamilyMap* map) {
    const YamlMap modules = reader_.Map(node, "modules");
    for (const auto& [key, value] : modules.node().entries) {
      if (!map->Accepts(key.scalar) && defaults_are_sound_) {
        std::vector<std::string> names;
        for (const ModuleDefault& accepted : map->defaults) names.push_back(accepted.name);
        const std::vector<std::string> nearest = NearestNames(key.scalar, names);
        reader_.Fail(key.position, "module '" + key.scalar + "' is not in defaults",
                     nearest.empty() ? "the family accepts " + JoinNames(names)
                                     : "did you mean " + JoinAlternatives(nearest) + "?");
      }
      ModuleMap module;
      module.name = key.scalar;
      module.position = key.position;
      if (value.kind != YamlNode::Kind::kSequence || value.items.empty()) {
        reader_.Fail(value.position, "module '" + key.scalar + "' has to be a list of entries");
        continue;
      }
      for (const YamlNode& item : value.items) {
        module.entries.push_back(ParseEntry(item, key.scalar));
      }
      map->modules.push_back(std::move(module));
    }
  }

  ModuleEntry ParseEntry(const YamlNode& node, const std::string& module) {
    ModuleEntry entry;
    entry.position = node.position;
    YamlMap map = reader_.Map(node, "an entry of " + module);
    if (node.kind != YamlNode::Kind::kMap) return entry;
    const YamlNode* class_node = reader_.Find(map, "class");
    const YamlNode* function_node = reader_.Find(map, "function");
    if ((class_node == nullptr) == (function_node == nullptr)) {
      reader_.Fail(node.position, "an entry of " + module + " names one class or one function");
    }
    if (const YamlNode* symbol = class_node != nullptr ? class_node : function_node) {
      entry.kind = class_node != nullptr ? ModuleEntry::Kind::kClass : ModuleEntry::Kind::kFunction;
      entry.symbol = reader_.String(*symbol, class_node != nullptr ? "class" : "function");
      if (!entry.symbol.empty() && !IsDottedName(entry.symbol, false)) {
        reader_.Fail(symbol->position, "'" + entry.symbol + "' is not a dotted name");
      }
    }
    if (const YamlNode* op = reader_.Require(map, "op")) {
      entry.op = reader_.String(*op, "op");
      if (!entry.op.empty() && !IsDottedName(entry.op, false)) {
        reader_.Fail(op->position, "'" + entry.op + "' is not the name of an op");
      }
    }
    entry.callers = DottedNames(map, "callers", false, false, false);
    if (entry.kind == ModuleEntry::Kind::kClass && !entry.callers.empty()) {
      reader_.Fail(node.position, "callers belong to a function; a class is found by its own name");
    }
    if (const YamlNode* count = reader_.Find(map, "per_instance")) {
      entry.per_instance = PositiveInteger(*count, "per_instance");
    }
    entry.scopes = DottedNames(map, "scopes", false, true, false);
    entry.weights = DottedNames(map, "weights", false, true, false);
    if (const YamlNode* count = reader_.Find(map, "count")) {
      const size_t before = reader_.faults();
      YamlMap rule = reader_.Map(*count, "count");
      CountRule parsed;
      if (const YamlNode* n = reader_.Find(rule, "per_layer"))
        parsed.per_layer = Natural(*n, "per_layer");
      if (const YamlNode* n = reader_.Find(rule, "fixed")) parsed.fixed = Natural(*n, "fixed");
      reader_.Finish(rule);
      if (reader_.faults() == before && parsed.per_layer == 0 && parsed.fixed == 0) {
        reader_.Fail(count->position, "count is nought; leave it out where nothing is expected");
      }
      entry.count = parsed;
    }
    if (const YamlNode* child = reader_.Find(map, "child")) {
      entry.child = reader_.String(*child, "child");
      if (!entry.child.empty() && !IsDottedName(entry.child, false)) {
        reader_.Fail(child->position, "child '" + entry.child + "' is not a dotted name");
      }
    }
    entry.outside = DottedNames(map, "outside", false, false, false);
    ParseLayers(&map, &entry);
    reader_.Finish(map);
    return entry;
  }

  void ParseLayers(YamlMap* map, ModuleEntry* entry) {
    const auto read = [&](std::string_view key, std::string* value, bool allowed,
                          std::string_view with) {
      const YamlNode* node = reader_.Find(*map, key);
      if (node == nullptr) return;
      *value = reader_.String(*node, key);
      if (!allowed) {
        reader_.Fail(node->position, std::string(key) + " belongs to " + std::string(with));
      }
    };
    read("layer_flags", &entry->layer_flags, true, "");
    read("layer_interval", &entry->layer_interval, !entry->layer_flags.empty(), "layer_flags");
    if (const YamlNode* node = reader_.Find(*map, "layer_types")) {
      entry->layer_types = reader_.Strings(*node, "layer_types", /*may_be_empty=*/false);
      if (!entry->layer_flags.empty()) {
        reader_.Fail(node->position, "an entry has layer_flags or layer_types, not both");
      }
    }
    read("layer_types_if", &entry->layer_types_if, !entry->layer_types.empty(), "layer_types");
  }

  // Counts are multiplied by layer counts of model size; a limit keeps the product in 64 bits.
  int64_t Natural(const YamlNode& node, std::string_view what) {
    const int64_t value = reader_.Integer(node, what);
    if (value < 0 || value > 1000000) {
      reader_.Fail(node.position, std::string(what) + " has to lie between 0 and 1000000");
    }
    return value;
  }
  int64_t PositiveInteger(const YamlNode& node, std::string_view what) {
    const size_t before = reader_.faults();
    const int64_t value = Natural(node, what);
    if (reader_.faults() == before && value == 0)
      reader_.Fail(node.position, std::string(what) + " is nought");
    return value;
  }

  std::string file_;
  YamlReader reader_;
  YamlMap root_;
  bool defaults_are_sound_ = false;
};

std::string_view Trim(std::string_view text) {
  const size_t begin = text.find_first_not_of(' ');
  if (begin == std::string_view::npos) return "";
  return text.substr(begin, text.find_last_not_of(' ') - begin + 1);
}

// A word that YAML reads as itself, in a block and inside [ ].
bool IsPlainWord(std::string_view word) {
  return !word.empty() && word != "~" &&
         std::all_of(
             word.begin(), word.end(),
             [](char c) { return IsNameCharacter(c) || c == '.' || c == '*' || c == '-'; }) &&
         word.front() != '*' && word.front() != '-';
}

// [a, b] into words; false unless each is a plain word.
bool ScanList(std::string_view value, std::vector<std::string>* words) {
  if (value.size() < 2 || value.front() != '[' || value.back() != ']') return false;
  value = Trim(value.substr(1, value.size() - 2));
  while (!value.empty()) {
    const size_t comma = value.find(',');
    const std::string_view word = Trim(value.substr(0, comma));
    if (!IsPlainWord(word)) return false;
    if (std::find(words->begin(), words->end(), word) != words->end()) return false;
    words->emplace_back(word);
    value = comma == std::string_view::npos ? "" : Trim(value.substr(comma + 1));
    if (comma != std::string_view::npos && value.empty())
      return false;  // [a,]: left to the YAML reader
  }
  return true;
}

// Reads the lines up to `modules:` if all of them are of the plainest kind. The result is that of
// the full parser; any doubt (quotes, comments behind values, block lists, repeated keys) gives
// nothing.
std::optional<FamilyHead> ScanHead(std::string_view file, std::string_view text) {
  FamilyHead head;
  head.file = file;
  std::vector<std::string_view> seen;
  std::string section;
  bool complete = false;
  while (!text.empty()) {
    const size_t newline = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, newline);
    text.remove_prefix(std::min(newline + 1, text.size()));
    if (Trim(line).empty() || line.front() == '#') continue;
    const size_t indent = line.find_first_not_of(' ');
    line = Trim(line);
    const size_t colon = line.find(':');
    if (colon == std::string_view::npos) return std::nullopt;
    const std::string_view key = line.substr(0, colon);
    std::string_view value = line.substr(colon + 1);
    if (!IsSnakeCase(key) || (!value.empty() && value.front() != ' ')) return std::nullopt;
    value = Trim(value);
    if (indent == 0) {
      if (key == "modules" && value.empty()) {
        complete = true;
        break;
      }
      if (std::find(seen.begin(), seen.end(), key) != seen.end()) return std::nullopt;
      seen.push_back(key);
      section.clear();
    }
    std::vector<std::string>* list = nullptr;
    if (indent == 0) {
      if (key == "schema_version") {
        if (value != "1") return std::nullopt;
      } else if (key == "family" || key == "package") {
        if (!IsPlainWord(value) || !IsDottedName(value, false)) return std::nullopt;
        (key == "family" ? head.family : head.package) = value;
      } else if (key == "model_types") {
        list = &head.model_types;
      } else if (key == "aliases") {
        list = &head.aliases;
      } else if (key == "genai_types") {
        list = &head.genai_types;
      } else if (key == "architectures") {
        list = &head.architectures;
      } else if (key == "layer_classes") {
        list = &head.layer_classes;
      } else if (key == "structure" || key == "defaults" || key == "parts" || key == "no_op" ||
                 key == "refused") {
        if (!value.empty()) return std::nullopt;
        section = key;
      } else if (key != "adds") {
        return std::nullopt;
      }
    } else if (section == "structure") {
      if (key == "present") {
        list = &head.structure_present;
      } else if (key == "absent") {
        list = &head.structure_absent;
      } else {
        return std::nullopt;
      }
      if (!list->empty()) return std::nullopt;
    } else if (section == "parts") {
      if (key == "families") {
        list = &head.parts;
      } else if (key == "outside") {
        list = &head.parts_outside;
      } else {
        return std::nullopt;
      }
      if (!list->empty()) return std::nullopt;
    } else if (section != "defaults" && section != "no_op" && section != "refused") {
      return std::nullopt;
    }
    if (list != nullptr && !ScanList(value, list)) return std::nullopt;
  }
  // Keys may stand in any order: a head that goes on behind `modules:` is not all read.
  for (size_t i = 0; i < text.size(); i = std::min(text.find('\n', i), text.size() - 1) + 1) {
    if (text[i] != ' ' && text[i] != '#' && text[i] != '\n') return std::nullopt;
  }
  if (!complete || head.family != FileStem(file) || !IsSnakeCase(head.family) ||
      head.family == "any" || head.model_types.empty() || head.architectures.empty() ||
      head.package.empty()) {
    return std::nullopt;
  }
  if (head.genai_types.empty()) head.genai_types = head.model_types;
  return head;
}

}  // namespace

const ModuleDefault* FamilyMap::FindDefault(std::string_view module) const {
  for (const ModuleDefault& d : defaults) {
    if (d.name == module) return &d;
  }
  return nullptr;
}

const ModuleMap* FamilyMap::FindModuleMap(std::string_view module) const {
  for (const ModuleMap& m : modules) {
    if (m.name == module) return &m;
  }
  return nullptr;
}

Result<FamilyMap> ParseFamilyMap(std::string_view file, std::string_view text) {
  Result<YamlNode> root = ParseYaml(file, text);
  if (!root) return std::move(root).error();
  return FamilyParser(file, *root).Parse();
}

Result<FamilyHead> ReadFamilyHead(std::string_view file, std::string_view text) {
  if (std::optional<FamilyHead> head = ScanHead(file, text)) return *std::move(head);
  Result<YamlNode> root = ParseYaml(file, text);
  if (!root) return std::move(root).error();
  return FamilyParser(file, *root).ParseHeadOnly();
}

FamilyMap StructuralMap() {
  FamilyMap map;
  map.structural = true;
  map.head.family = "any";
  for (const ModuleKind& kind : ModuleVocabulary()) {
    if (!kind.on_request) map.defaults.push_back({std::string(kind.name), !kind.is_loss, {}});
  }
  return map;
}

}  // namespace liger
