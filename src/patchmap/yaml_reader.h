// Strict reading of YAML: every key is asked for, what was not asked for is an error, and so are
// duplicate keys, which yaml-cpp accepts silently. Every error carries file:line:column.
//
//   Result<YamlNode> root = ParseYaml("families/llama.yaml", text);
//   YamlReader reader("families/llama.yaml");
//   YamlMap map = reader.Map(*root, "the family");
//   const YamlNode* family = reader.Require(map, "family");
//   reader.Finish(map);                      // complains about keys that nobody asked for
//   if (!reader.ok()) return reader.error();
//
// Faults are collected: error() holds the first of the file, by position, and the rest in its
// `others`. A read that fails gives an empty value ("", 0, nothing) and later reads go on, so that a
// caller checks once, at the end; an empty value tells it not to complain about the same thing
// again. A text that is no YAML has one fault alone. The tree that ParseYaml returned has to outlive
// the maps made from it. Anchors, tags and several documents in a file are errors: nothing here
// needs them.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "patchmap/family_map.h"

namespace liger {

struct YamlEntry;

// A node of the parsed file; plain data, independent of the YAML library.
struct YamlNode {
  enum class Kind { kNull, kScalar, kSequence, kMap };
  Kind kind = Kind::kNull;
  std::string scalar;
  bool quoted = false;             // a scalar in quotes or a block scalar
  std::vector<YamlNode> items;     // of a sequence
  std::vector<YamlEntry> entries;  // of a map, in the file's order
  YamlPosition position;
};

struct YamlEntry {
  YamlNode key;
  YamlNode value;
};

// Parses one document. kUsage with file:line:column if it is not one.
Result<YamlNode> ParseYaml(std::string_view file, std::string_view text);

class YamlMap {
 public:
  // An empty node where the map was none.
  const YamlNode& node() const { return *node_; }

 private:
  friend class YamlReader;
  const YamlNode* node_ = nullptr;
  bool is_map_ = false;
  std::string what_;  // "the entry of rms_norm", for messages
  std::set<std::string, std::less<>> asked_;
};

// An item of a list of strings.
struct YamlWord {
  std::string text;
  YamlPosition position;
};

class YamlReader {
 public:
  explicit YamlReader(std::string_view file) : file_(file) {}

  bool ok() const { return faults_.empty(); }
  // How many faults there are so far: a caller that depends on what it read compares before and
  // after.
  size_t faults() const { return faults_.size(); }
  // All faults, in the order in which they stand in the file.
  Error error() const;
  void Fail(YamlPosition position, std::string message, std::string hint = "");
  std::string Place(YamlPosition position) const;

  // Checks that `node` is a map without duplicate keys.
  YamlMap Map(const YamlNode& node, std::string_view what);
  // nullptr if the map has no such key; of duplicate keys the first.
  const YamlNode* Find(YamlMap& map, std::string_view key);
  const YamlNode* Require(YamlMap& map, std::string_view key);
  // Fails on keys that were never asked for, naming the nearest ones that were.
  void Finish(const YamlMap& map);

  std::string String(const YamlNode& node, std::string_view what);
  int64_t Integer(const YamlNode& node, std::string_view what);
  bool OnOff(const YamlNode& node, std::string_view what);
  // A list of non-empty strings without repeats; faulty items are left out.
  std::vector<std::string> Strings(const YamlNode& node, std::string_view what, bool may_be_empty);
  std::vector<YamlWord> Words(const YamlNode& node, std::string_view what, bool may_be_empty);

 private:
  struct Fault {
    YamlPosition position;
    Error error;
  };

  std::string file_;
  std::vector<Fault> faults_;
};

}  // namespace liger
