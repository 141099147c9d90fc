#include "patchmap/yaml_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace liger {
namespace {

using testing::HasSubstr;

// Reads `text` as a map with the keys `name` (required) and `count`.
std::optional<Error> ReadPair(std::string_view text) {
  Result<YamlNode> root = ParseYaml("m.yaml", text);
  if (!root) return root.error();
  YamlReader reader("m.yaml");
  YamlMap map = reader.Map(*root, "the map");
  if (const YamlNode* name = reader.Require(map, "name")) reader.String(*name, "name");
  if (const YamlNode* count = reader.Find(map, "count")) reader.Integer(*count, "count");
  reader.Finish(map);
  if (!reader.ok()) return reader.error();
  return std::nullopt;
}

TEST(YamlReader, AcceptsWhatWasAskedFor) {
  EXPECT_EQ(ReadPair("name: a\ncount: 3\n"), std::nullopt);
  EXPECT_EQ(ReadPair("# words\nname: \"a b\"\n"), std::nullopt);
}

struct BadCase {
  const char* text;
  const char* location;
  const char* message;
};

class YamlReaderRefuses : public testing::TestWithParam<BadCase> {};

TEST_P(YamlReaderRefuses, WithPlaceAndReason) {
  const std::optional<Error> error = ReadPair(GetParam().text);
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->code, ErrorCode::kUsage);
  EXPECT_EQ(error->location, GetParam().location);
  EXPECT_THAT(error->message, HasSubstr(GetParam().message));
}

INSTANTIATE_TEST_SUITE_P(
    Cases, YamlReaderRefuses,
    testing::Values(BadCase{"name: a\nname: b\n", "m.yaml:2:1",
                            "'name' stands twice in the map, first in line 1"},
                    BadCase{"{name: a, name: a}", "m.yaml:1:11", "stands twice"},
                    BadCase{"name: a\ncuont: 3\n", "m.yaml:2:1", "unknown key 'cuont' in the map"},
                    BadCase{"count: 3\n", "m.yaml:1:1", "lacks the key 'name'"},
                    BadCase{"name:\n", "m.yaml:1:1", "name has to be a word"},
                    BadCase{"name: [a]\n", "m.yaml:1:7", "name has to be a word"},
                    BadCase{"name: a\ncount: 3x\n", "m.yaml:2:8", "count has to be an integer"},
                    BadCase{"name: a\ncount: '3'\n", "m.yaml:2:8", "count has to be an integer"},
                    BadCase{"name: a\ncount: 99999999999999999999\n", "m.yaml:2:8",
                            "has to be an integer"},
                    BadCase{"- name\n", "m.yaml:1:1", "has to be a map"},
                    BadCase{"", "m.yaml:1:1", "the file is empty"},
                    BadCase{"# only words\n", "m.yaml:1:1", "the file is empty"},
                    BadCase{"name: &x a\n", "m.yaml:1:7", "anchors"},
                    BadCase{"name: *x\n", "m.yaml:1:7", "anchor"},
                    BadCase{"name: !!int 3\n", "m.yaml:1:7", "tags"},
                    BadCase{"name: a\n---\nname: b\n", "m.yaml:3:1", "a second YAML document"},
                    BadCase{"name: [a\n", "m.yaml:2:1", "not valid YAML"},
                    BadCase{"name: a\n\tcount: 3\n", "m.yaml:2:1", "not valid YAML"},
                    BadCase{"[a]: b\n", "m.yaml:1:1", "a key has to be a plain word"}));

TEST(YamlReader, NamesTheNearestKey) {
  const std::optional<Error> error = ReadPair("name: a\ncuont: 3\n");
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->hint, "did you mean count?");
}

TEST(YamlReader, CollectsFaultsInTheOrderOfTheFile) {
  const std::optional<Error> error = ReadPair("cuont: 3\nname: [a]\nname: b\ncount: x\ncuont: 4\n");
  ASSERT_TRUE(error.has_value());
  std::vector<std::string> faults = {error->location + " " + error->message};
  for (const Error& other : error->others) faults.push_back(other.location + " " + other.message);
  EXPECT_THAT(faults,
              testing::ElementsAre(
                  "m.yaml:1:1 unknown key 'cuont' in the map", "m.yaml:2:7 name has to be a word",
                  "m.yaml:3:1 key 'name' stands twice in the map, first in line 2",
                  "m.yaml:4:8 count has to be an integer",
                  "m.yaml:5:1 key 'cuont' stands twice in the map, first in line 1"));
}

// A map that is none has no keys that could lack.
TEST(YamlReader, SaysNothingTwice) {
  const std::optional<Error> error = ReadPair("[name, count]\n");
  ASSERT_TRUE(error.has_value());
  EXPECT_TRUE(error->others.empty());
}

TEST(YamlReader, RefusesBinaryInput) {
  const std::optional<Error> error = ReadPair(std::string_view("name: a\nco\0unt", 14));
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->location, "m.yaml:2:1");
  EXPECT_THAT(error->message, HasSubstr("zero byte"));
}

TEST(YamlReader, RefusesDeepNesting) {
  for (const char* open : {"[", "{a: ", "- "}) {
    std::string text;
    for (int i = 0; i < 100000; ++i) text += open;
    EXPECT_TRUE(ReadPair(text).has_value()) << open;
  }
}

TEST(YamlReader, ChecksLists) {
  const Result<YamlNode> root = ParseYaml("m.yaml", "a: [x, y]\nb: []\nc: [x, x]\nd: [x, [y]]\n");
  ASSERT_TRUE(root);
  const auto read = [&](const char* key, bool may_be_empty, Error* error) {
    YamlReader reader("m.yaml");
    YamlMap map = reader.Map(*root, "the map");
    std::vector<std::string> list = reader.Strings(*reader.Require(map, key), key, may_be_empty);
    if (!reader.ok()) *error = reader.error();
    return list;
  };
  Error error;
  EXPECT_THAT(read("a", false, &error), testing::ElementsAre("x", "y"));
  EXPECT_THAT(read("b", true, &error), testing::IsEmpty());
  EXPECT_EQ(error.message, "");
  read("b", false, &error);
  EXPECT_EQ(error.location, "m.yaml:2:4");
  read("c", false, &error);
  EXPECT_EQ(error.location, "m.yaml:3:8");
  EXPECT_THAT(error.message, HasSubstr("'x' stands twice in c"));
  read("d", false, &error);
  EXPECT_EQ(error.location, "m.yaml:4:8");
}

}  // namespace
}  // namespace liger
