#include "report/escape.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>

namespace liger {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

// The longest name in Markdown; GitHub takes 65536 characters in a comment.
constexpr size_t kLongestName = 200;

struct Character {
  size_t size = 0;  // 0: the byte belongs to no character
  uint32_t code = 0;
};

// The character at the start of `text`, which is not empty (Unicode, table 3-7).
Character FirstCharacter(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t lead = byte(0);
  if (lead < 0x80) return {1, lead};
  if (lead < 0xC2 || lead > 0xF4) return {};
  const size_t size = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  if (text.size() < size) return {};
  uint32_t code = lead & (0xFFU >> (size + 1));
  for (size_t i = 1; i < size; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return {};
    code = code << 6 | (byte(i) & 0x3FU);
  }
  const bool is_overlong = (size == 3 && code < 0x800) || (size == 4 && code < 0x10000);
  const bool is_surrogate = code >= 0xD800 && code <= 0xDFFF;
  if (is_overlong || is_surrogate || code > 0x10FFFF) return {};
  return {size, code};
}

// Calls `visit(bytes, code)` for each character; those that are none come as U+FFFD.
template <typename Visit>
void ForEachCharacter(std::string_view text, const Visit& visit) {
  while (!text.empty()) {
    const Character character = FirstCharacter(text);
    if (character.size == 0) {
      visit(kReplacement, 0xFFFD);
      text.remove_prefix(1);
      continue;
    }
    visit(text.substr(0, character.size), character.code);
    text.remove_prefix(character.size);
  }
}

bool IsInvisible(uint32_t code) {
  return code < 0x20 || (code >= 0x7F && code <= 0x9F)  // C0, DEL, C1
         || code == 0x2028 || code == 0x2029            // line and paragraph separators
         || code == 0x200E || code == 0x200F            // marks of direction
         || (code >= 0x202A && code <= 0x202E)          // embeddings and overrides
         || (code >= 0x2066 && code <= 0x2069)          // isolates
         || code == 0xFFFE || code == 0xFFFF;           // no characters, and not in XML
}

std::string Shown(uint32_t code) {
  if (code == '\n') return "\\n";
  if (code == '\r') return "\\r";
  if (code == '\t') return "\\t";
  char buffer[16];
  std::snprintf(buffer, sizeof(buffer), code < 0x100 ? "\\x%02x" : "\\u%04x", code);
  return buffer;
}

size_t LongestRun(std::string_view text, char wanted) {
  size_t longest = 0;
  size_t run = 0;
  for (const char c : text) {
    run = c == wanted ? run + 1 : 0;
    longest = std::max(longest, run);
  }
  return longest;
}

bool IsWordCharacter(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
         static_cast<uint8_t>(c) >= 0x80;
}

std::string Shortened(const std::string& text) {
  if (text.size() <= kLongestName) return text;
  const size_t half = kLongestName / 2;
  // The cuts may fall into characters; their halves go.
  std::string begin = text.substr(0, half);
  std::string end = text.substr(text.size() - half);
  while (!begin.empty() && (static_cast<uint8_t>(begin.back()) & 0x80) != 0) begin.pop_back();
  while (!end.empty() && (static_cast<uint8_t>(end.front()) & 0xC0) == 0x80) end.erase(0, 1);
  return begin + "..." + end;
}

std::string GitHubEscaped(std::string_view text, bool is_property) {
  std::string result;
  ForEachCharacter(text, [&](std::string_view bytes, uint32_t code) {
    switch (code) {
      case '%':
        result += "%25";
        break;
      case '\r':
        result += "%0D";
        break;
      case '\n':
        result += "%0A";
        break;
      case ':':
        result += is_property ? "%3A" : ":";
        break;
      case ',':
        result += is_property ? "%2C" : ",";
        break;
      default:
        result += IsInvisible(code) ? Shown(code) : std::string(bytes);
    }
  });
  return result;
}

}  // namespace

std::string ValidUtf8(std::string_view text) {
  std::string result;
  ForEachCharacter(text, [&](std::string_view bytes, uint32_t) { result += bytes; });
  return result;
}

std::string Printable(std::string_view text) {
  std::string result;
  ForEachCharacter(text, [&](std::string_view bytes, uint32_t code) {
    if (IsInvisible(code)) {
      result += Shown(code);
    } else {
      result += bytes;
    }
  });
  return result;
}

std::string XmlText(std::string_view text) {
  std::string result;
  for (const char c : Printable(text)) {
    switch (c) {
      case '&':
        result += "&amp;";
        break;
      case '<':
        result += "&lt;";
        break;
      case '>':  // "]]>" may not stand in text
        result += "&gt;";
        break;
      case '"':
        result += "&quot;";
        break;
      default:
        result += c;
    }
  }
  return result;
}

std::string MarkdownText(std::string_view text) {
  const std::string line = Printable(text);
  std::string result;
  for (size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    const char before = i > 0 ? line[i - 1] : ' ';
    const char after = i + 1 < line.size() ? line[i + 1] : ' ';
    switch (c) {
      case '&':
        result += "&amp;";
        break;
      case '<':
        result += "&lt;";
        break;
      case '>':
        result += "&gt;";
        break;
      case '|':  // splits cells, also behind a backslash
        result += "&#124;";
        break;
      case '@':  // a comment inside keeps it from being a mention, or a reference to an issue
      case '#':
        result += c;
        if (IsWordCharacter(after)) result += "<!-- -->";
        break;
      case '_':  // means nothing inside a word
        result += IsWordCharacter(before) && IsWordCharacter(after) ? "_" : "\\_";
        break;
      case '\\':
      case '`':
      case '*':
      case '[':
      case ']':
      case '~':
      case '$':
        result += '\\';
        result += c;
        break;
      default:
        result += c;
    }
  }
  return result;
}

std::string MarkdownCode(std::string_view text) {
  const std::string name = Shortened(Printable(text));
  if (name.empty()) return "";
  const bool is_plain =
      name.find_first_of("`|\\") == std::string::npos && name.front() != ' ' && name.back() != ' ';
  if (is_plain) return "`" + name + "`";
  // A code span cannot hold every pipe in a table, HTML can.
  std::string html = "<code>";
  for (const char c : name) {
    const bool is_markup = std::string_view("`|\\*_<>&[]~$#@!\"'").find(c) != std::string::npos;
    html += is_markup ? "&#" + std::to_string(static_cast<int>(c)) + ";" : std::string(1, c);
  }
  return html + "</code>";
}

std::string MarkdownBlock(const std::string& lines, std::string_view language) {
  std::string fence(std::max<size_t>(3, LongestRun(lines, '`') + 1), '`');
  return fence + std::string(language) + "\n" + lines + (lines.ends_with("\n") ? "" : "\n") +
         fence + "\n";
}

std::string GitHubMessage(std::string_view text) { return GitHubEscaped(text, false); }

std::string GitHubProperty(std::string_view text) { return GitHubEscaped(text, true); }

std::string FileUri(std::string_view path) {
  std::string uri = path.starts_with("/") ? "file://" : "";
  // In front of a first segment with a colon, which would be a scheme.
  const size_t slash = std::min(path.find('/'), path.size());
  if (path.substr(0, slash).find(':') != std::string_view::npos) uri = "./";
  constexpr std::string_view kPlain = "-._~/:+=,@";
  for (const char c : path) {
    const bool is_plain = (static_cast<uint8_t>(c) < 0x80 && IsWordCharacter(c)) ||
                          kPlain.find(c) != std::string_view::npos;
    if (is_plain) {
      uri += c;
    } else {
      char buffer[8];
      std::snprintf(buffer, sizeof(buffer), "%%%02X",
                    static_cast<unsigned>(static_cast<uint8_t>(c)));
      uri += buffer;
    }
  }
  return uri;
}

}  // namespace liger
