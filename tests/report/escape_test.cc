#include "report/escape.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace liger {
namespace {

using namespace std::string_literals;

struct Case {
  std::string text;
  std::string wanted;
};

TEST(ValidUtf8Test, KeepsCharactersAndReplacesEachByteThatBelongsToNone) {
  const std::vector<Case> cases = {
      {"", ""},
      {"plain\n", "plain\n"},
      {"\xC3\xA4 \xE2\x82\xAC \xF0\x9F\x98\x80", "\xC3\xA4 \xE2\x82\xAC \xF0\x9F\x98\x80"},
      {"\xff", "\xEF\xBF\xBD"},
      {"a\xC3", "a\xEF\xBF\xBD"},                                                // cut off
      {"\xC3z", "\xEF\xBF\xBDz"},                                                // no continuation
      {"\xC0\xAF", "\xEF\xBF\xBD\xEF\xBF\xBD"},                                  // overlong
      {"\xE0\x80\xAF", "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"},                  // overlong
      {"\xED\xA0\x80", "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"},                  // surrogate
      {"\xF4\x90\x80\x80", "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"},  // over U+10FFFF
      {"\x80", "\xEF\xBF\xBD"},
  };
  for (const Case& c : cases) EXPECT_EQ(ValidUtf8(c.text), c.wanted);
}

TEST(PrintableTest, ShowsWhatActsOnATerminalAndKeepsTheRest) {
  const std::vector<Case> cases = {
      {"/model/norm/Mul_1", "/model/norm/Mul_1"},
      {"a\nb\r\tc", "a\\nb\\r\\tc"},
      {"\x1b[31m", "\\x1b[31m"},
      {"nul\0.\x7f"s, "nul\\x00.\\x7f"},
      {"\xC2\x9B", "\\x9b"},        // CSI as one character
      {"\xE2\x80\xAE", "\\u202e"},  // right to left from here on
      {"\xE2\x80\xA8", "\\u2028"},  // line separator
      {"\xC3\xA4\xC2\xA0", "\xC3\xA4\xC2\xA0"},
  };
  for (const Case& c : cases) EXPECT_EQ(Printable(c.text), c.wanted);
}

TEST(XmlTextTest, LeavesNoMarkupAndNoCharacterThatXmlForbids) {
  const std::vector<Case> cases = {
      {"a < b & \"c\" ]]> 'd'", "a &lt; b &amp; &quot;c&quot; ]]&gt; 'd'"},
      {"\x01\x1b", "\\x01\\x1b"},
      {"\xEF\xBF\xBF", "\\uffff"},
      {"a\nb", "a\\nb"},
  };
  for (const Case& c : cases) EXPECT_EQ(XmlText(c.text), c.wanted);
}

TEST(MarkdownTextTest, IsNoMarkup) {
  const std::vector<Case> cases = {
      {"rms_norm of model.layers.0", "rms_norm of model.layers.0"},
      {"a|b", "a&#124;b"},
      {"<b>&amp;", "&lt;b&gt;&amp;amp;"},
      {"**x** _y_ `z`", "\\*\\*x\\*\\* \\_y\\_ \\`z\\`"},
      {"[a](b)", "\\[a\\](b)"},
      {"@user #12 # a", "@<!-- -->user #<!-- -->12 # a"},
      {"a\n- b", "a\\\\n- b"},
  };
  for (const Case& c : cases) EXPECT_EQ(MarkdownText(c.text), c.wanted);
}

TEST(MarkdownCodeTest, HoldsEveryNameAlsoInATable) {
  const std::vector<Case> cases = {
      {"", ""},
      {"/a/b_c.0", "`/a/b_c.0`"},
      {"<b> @user", "`<b> @user`"},
      {"a|b", "<code>a&#124;b</code>"},
      {"`", "<code>&#96;</code>"},
      {" a", "<code> a</code>"},
      {"a\nb", "<code>a&#92;nb</code>"},
  };
  for (const Case& c : cases) EXPECT_EQ(MarkdownCode(c.text), c.wanted);
}

TEST(MarkdownCodeTest, ShortensLongNamesInTheMiddleBetweenCharacters) {
  const std::string name = "begin" + std::string(300, 'x') + "end";
  const std::string code = MarkdownCode(name);
  EXPECT_EQ(code.size(), 205U);
  EXPECT_EQ(code.substr(0, 6), "`begin");
  EXPECT_EQ(code.substr(code.size() - 4), "end`");
  std::string umlauts;
  for (int i = 0; i < 150; ++i) umlauts += "\xC3\xA4";
  for (const std::string& text : {umlauts, "a" + umlauts}) {
    const std::string shown = MarkdownCode(text);
    EXPECT_EQ(ValidUtf8(shown), shown);
  }
}

TEST(MarkdownBlockTest, HasAFenceThatNothingInItCloses) {
  EXPECT_EQ(MarkdownBlock("a\n", "sh"), "```sh\na\n```\n");
  EXPECT_EQ(MarkdownBlock("````", ""), "`````\n````\n`````\n");
}

TEST(GitHubTest, EscapesWhatEndsACommandOrAProperty) {
  EXPECT_EQ(GitHubMessage("50% of a:b,c\r\n::error::x"), "50%25 of a:b,c%0D%0A::error::x");
  EXPECT_EQ(GitHubProperty("50% of a:b,c\r\n::x"), "50%25 of a%3Ab%2Cc%0D%0A%3A%3Ax");
  EXPECT_EQ(GitHubMessage("\x1b[0m\xff"), "\\x1b[0m\xEF\xBF\xBD");
}

TEST(FileUriTest, WritesPathsAsUriReferences) {
  const std::vector<Case> cases = {
      {"out/model.onnx", "out/model.onnx"},  {"a b%.onnx", "a%20b%25.onnx"},
      {"/abs/m.onnx", "file:///abs/m.onnx"}, {"c:m.onnx", "./c:m.onnx"},
      {"d/c:m.onnx", "d/c:m.onnx"},          {"\xC3\xA4\n?#", "%C3%A4%0A%3F%23"},
  };
  for (const Case& c : cases) EXPECT_EQ(FileUri(c.text), c.wanted);
}

}  // namespace
}  // namespace liger
