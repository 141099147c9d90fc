#include "patchmap/yaml_reader.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <sstream>
#include <utility>

#include "patchmap/nearest.h"

namespace liger {
namespace {

// Family and patch files nest a handful of levels; a limit keeps deep input from exhausting the
// stack.
constexpr size_t kMaxDepth = 64;

struct YamlFailure {
  YamlPosition position;
  std::string message;
};

YamlPosition PositionOf(const YAML::Mark& mark) { return {mark.line + 1, mark.column + 1}; }

// Builds YamlNode from the parser's events. Events keep what a YAML::Node loses: duplicate keys,
// and whether a scalar was quoted.
class TreeBuilder : public YAML::EventHandler {
 public:
  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    RefuseAnchor(mark, anchor);
    YamlNode node;
    node.position = PositionOf(mark);
    Add(std::move(node));
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
    throw YamlFailure{PositionOf(mark), "aliases (*name) are not supported"};
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    RefuseAnchor(mark, anchor);
    RefuseTag(mark, tag);
    YamlNode node;
    node.kind = YamlNode::Kind::kScalar;
    node.scalar = value;
    node.quoted = tag == "!";
    node.position = PositionOf(mark);
    Add(std::move(node));
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    Open(mark, tag, anchor, YamlNode::Kind::kSequence);
  }
  void OnSequenceEnd() override { Close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    Open(mark, tag, anchor, YamlNode::Kind::kMap);
  }
  void OnMapEnd() override { Close(); }

  bool has_root() const { return root_.has_value(); }
  YamlNode TakeRoot() { return *std::move(root_); }

 private:
  struct OpenNode {
    YamlNode node;
    std::optional<YamlNode> key;  // of a map: the key whose value comes next
  };

  static void RefuseAnchor(const YAML::Mark& mark, YAML::anchor_t anchor) {
    if (anchor != 0) throw YamlFailure{PositionOf(mark), "anchors (&name) are not supported"};
  }
  // "?" marks a plain scalar and "!" a quoted one; other tags were written by the author.
  static void RefuseTag(const YAML::Mark& mark, const std::string& tag) {
    if (!tag.empty() && tag != "?" && tag != "!") {
      throw YamlFailure{PositionOf(mark), "tags (" + tag + ") are not supported"};
    }
  }

  void Open(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
            YamlNode::Kind kind) {
    RefuseAnchor(mark, anchor);
    RefuseTag(mark, tag);
    if (open_.size() >= kMaxDepth) throw YamlFailure{PositionOf(mark), "nested too deeply"};
    OpenNode opened;
    opened.node.kind = kind;
    opened.node.position = PositionOf(mark);
    open_.push_back(std::move(opened));
  }
  void Close() {
    YamlNode node = std::move(open_.back().node);
    open_.pop_back();
    Add(std::move(node));
  }
  void Add(YamlNode node) {
    if (open_.empty()) {
      root_ = std::move(node);
      return;
    }
    OpenNode& parent = open_.back();
    if (parent.node.kind == YamlNode::Kind::kSequence) {
      parent.node.items.push_back(std::move(node));
    } else if (!parent.key) {
      if (node.kind != YamlNode::Kind::kScalar) {
        throw YamlFailure{node.position, "a key has to be a plain word"};
      }
      parent.key = std::move(node);
    } else {
      // The parser places a missing value at whatever comes next; its key says more.
      if (node.kind == YamlNode::Kind::kNull) node.position = parent.key->position;
      parent.node.entries.push_back({*std::move(parent.key), std::move(node)});
      parent.key.reset();
    }
  }

  std::optional<YamlNode> root_;
  std::vector<OpenNode> open_;
};

std::string PlaceOf(std::string_view file, YamlPosition position) {
  return std::string(file) + ":" + std::to_string(position.line) + ":" +
         std::to_string(position.column);
}

Error YamlError(std::string_view file, YamlPosition position, std::string message) {
  return Error{ErrorCode::kUsage, std::move(message), PlaceOf(file, position), ""};
}

// What an author most likely meant where the library stopped at `position`.
std::string HintFor(std::string_view text, const YAML::Exception& exception,
                    YamlPosition position) {
  if (exception.msg == YAML::ErrorMsg::TAB_IN_INDENTATION) return "YAML is indented by spaces";
  if (exception.msg == YAML::ErrorMsg::MAP_VALUE) {
    return "a value with ': ' in it stands in quotes, a text of several lines behind |";
  }
  for (int line = 1; line < position.line; ++line) {
    text.remove_prefix(std::min(text.find('\n'), text.size() - 1) + 1);
  }
  const std::string_view line = text.substr(0, text.find_first_of("\r\n"));
  const size_t colon = line.find(": ");
  const size_t start = line.find_first_not_of(' ', colon == std::string_view::npos ? 0 : colon + 2);
  if (start == std::string_view::npos) return "";
  const std::string_view value = line.substr(start);
  if (value.starts_with("*") || value.starts_with(">=")) {
    return "words that begin with * or > stand in quotes: \"" + std::string(value) + "\"";
  }
  return "";
}

}  // namespace

Result<YamlNode> ParseYaml(std::string_view file, std::string_view text) {
  if (const size_t nul = text.find('\0'); nul != std::string_view::npos) {
    const auto line =
        1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(nul), '\n');
    return YamlError(file, {static_cast<int>(line), 1}, "not a text file: it holds a zero byte");
  }
  try {
    std::istringstream stream{std::string(text)};
    YAML::Parser parser(stream);
    TreeBuilder builder;
    if (!parser.HandleNextDocument(builder) || !builder.has_root()) {
      return YamlError(file, {1, 1}, "the file is empty");
    }
    YamlNode root = builder.TakeRoot();
    TreeBuilder second;
    if (parser.HandleNextDocument(second)) {
      const YamlPosition position =
          second.has_root() ? second.TakeRoot().position : YamlPosition{1, 1};
      return YamlError(file, position, "a second YAML document; one file holds one map");
    }
    return root;
  } catch (const YamlFailure& failure) {
    return YamlError(file, failure.position, failure.message);
  } catch (const YAML::Exception& exception) {
    Error error = YamlError(file, PositionOf(exception.mark), "not valid YAML: " + exception.msg);
    error.hint = HintFor(text, exception, PositionOf(exception.mark));
    return error;
  }
}

Error YamlReader::error() const {
  std::vector<const Fault*> sorted;
  for (const Fault& fault : faults_) sorted.push_back(&fault);
  std::stable_sort(sorted.begin(), sorted.end(), [](const Fault* a, const Fault* b) {
    return std::pair(a->position.line, a->position.column) <
           std::pair(b->position.line, b->position.column);
  });
  Error error = sorted.front()->error;
  for (size_t i = 1; i < sorted.size(); ++i) error.others.push_back(sorted[i]->error);
  return error;
}

void YamlReader::Fail(YamlPosition position, std::string message, std::string hint) {
  faults_.push_back(
      {position, Error{ErrorCode::kUsage, std::move(message), Place(position), std::move(hint)}});
}

std::string YamlReader::Place(YamlPosition position) const { return PlaceOf(file_, position); }

YamlMap YamlReader::Map(const YamlNode& node, std::string_view what) {
  static const YamlNode kEmpty{};
  YamlMap map;
  map.what_ = what;
  map.node_ = &kEmpty;
  if (node.kind != YamlNode::Kind::kMap) {
    Fail(node.position, std::string(what) + " has to be a map of keys and values");
    return map;
  }
  map.node_ = &node;
  map.is_map_ = true;
  std::map<std::string_view, int> lines;
  for (const auto& [key, value] : node.entries) {
    const auto [first, is_new] = lines.try_emplace(key.scalar, key.position.line);
    if (is_new) continue;
    Fail(key.position, "key '" + key.scalar + "' stands twice in " + std::string(what) +
                           ", first in line " + std::to_string(first->second));
  }
  return map;
}

const YamlNode* YamlReader::Find(YamlMap& map, std::string_view key) {
  map.asked_.emplace(key);
  for (const auto& [name, value] : map.node_->entries) {
    if (name.scalar == key) return &value;
  }
  return nullptr;
}

const YamlNode* YamlReader::Require(YamlMap& map, std::string_view key) {
  const YamlNode* node = Find(map, key);
  if (node == nullptr && map.is_map_) {
    Fail(map.node_->position, map.what_ + " lacks the key '" + std::string(key) + "'");
  }
  return node;
}

void YamlReader::Finish(const YamlMap& map) {
  const std::vector<std::string> known(map.asked_.begin(), map.asked_.end());
  std::vector<std::string> absent;
  for (const std::string& key : known) {
    const bool has = std::any_of(map.node_->entries.begin(), map.node_->entries.end(),
                                 [&](const YamlEntry& entry) { return entry.key.scalar == key; });
    if (!has) absent.push_back(key);
  }
  std::set<std::string_view> complained;
  for (const auto& [name, value] : map.node_->entries) {
    if (map.asked_.contains(name.scalar) || !complained.insert(name.scalar).second) continue;
    // A key that is there already was not meant.
    std::vector<std::string> nearest = NearestNames(name.scalar, absent);
    if (nearest.empty()) nearest = NearestNames(name.scalar, known);
    Fail(name.position, "unknown key '" + name.scalar + "' in " + map.what_,
         nearest.empty() ? "known keys: " + JoinNames(known)
                         : "did you mean " + JoinAlternatives(nearest) + "?");
  }
}

std::string YamlReader::String(const YamlNode& node, std::string_view what) {
  if (node.kind != YamlNode::Kind::kScalar || node.scalar.empty()) {
    Fail(node.position, std::string(what) + " has to be a word");
    return "";
  }
  return node.scalar;
}

int64_t YamlReader::Integer(const YamlNode& node, std::string_view what) {
  int64_t value = 0;
  const char* end = node.scalar.data() + node.scalar.size();
  const auto [stop, code] = std::from_chars(node.scalar.data(), end, value);
  if (node.kind != YamlNode::Kind::kScalar || node.quoted || node.scalar.empty() ||
      code != std::errc() || stop != end) {
    Fail(node.position, std::string(what) + " has to be an integer");
    return 0;
  }
  return value;
}

bool YamlReader::OnOff(const YamlNode& node, std::string_view what) {
  if (node.kind == YamlNode::Kind::kScalar && node.scalar == "on") return true;
  if (node.kind == YamlNode::Kind::kScalar && node.scalar == "off") return false;
  Fail(node.position, std::string(what) + " has to be on or off");
  return false;
}

std::vector<YamlWord> YamlReader::Words(const YamlNode& node, std::string_view what,
                                        bool may_be_empty) {
  std::vector<YamlWord> words;
  if (node.kind != YamlNode::Kind::kSequence || (node.items.empty() && !may_be_empty)) {
    Fail(node.position, std::string(what) + " has to be a list of words, [a, b]");
    return words;
  }
  std::set<std::string_view> seen;
  for (const YamlNode& item : node.items) {
    std::string word = String(item, "each item of " + std::string(what));
    if (word.empty()) continue;
    if (!seen.insert(item.scalar).second) {
      Fail(item.position, "'" + word + "' stands twice in " + std::string(what));
      continue;
    }
    words.push_back({std::move(word), item.position});
  }
  return words;
}

std::vector<std::string> YamlReader::Strings(const YamlNode& node, std::string_view what,
                                             bool may_be_empty) {
  std::vector<std::string> strings;
  for (YamlWord& word : Words(node, what, may_be_empty)) strings.push_back(std::move(word.text));
  return strings;
}

}  // namespace liger
