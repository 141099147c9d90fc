#include "patchmap/scalar_source.h"

#include <algorithm>
#include <string>
#include <utility>

namespace liger {
namespace {

constexpr std::string_view kSpaces = " \t\r\n";
// The yaml library takes the mark off before it counts.
constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

bool IsSpace(char c) { return kSpaces.find(c) != std::string_view::npos; }
// Bytes of UTF-8 behind the first one of a character.
bool IsContinuation(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

// Where the character stands; columns count characters, as the yaml library counts them.
size_t OffsetOf(std::string_view yaml, YamlPosition position) {
  size_t at = 0;
  for (int line = 1; line < position.line; ++line) {
    const size_t newline = yaml.find('\n', at);
    if (newline == std::string_view::npos) return yaml.size();
    at = newline + 1;
  }
  for (int column = 1; column < position.column && at < yaml.size(); ++column) {
    ++at;
    while (at < yaml.size() && IsContinuation(yaml[at])) ++at;
  }
  return at;
}

YamlPosition PositionOf(std::string_view yaml, size_t offset) {
  YamlPosition position{1, 1};
  for (const char c : yaml.substr(0, offset)) {
    if (c == '\n') {
      ++position.line;
      position.column = 1;
    } else if (!IsContinuation(c)) {
      ++position.column;
    }
  }
  return position;
}

// The character that an escape of a double-quoted scalar stands for; 0 for those that are not one
// byte.
char Escaped(char c) {
  switch (c) {
    case 't':
      return '\t';
    case 'n':
      return '\n';
    case 'r':
      return '\r';
    case '"':
    case '\\':
    case '/':
    case ' ':
      return c;
    default:
      return 0;
  }
}

}  // namespace

ScalarSource::ScalarSource(std::string_view yaml, YamlPosition position, std::string_view scalar)
    : yaml_(yaml.starts_with(kByteOrderMark) ? yaml.substr(kByteOrderMark.size()) : yaml),
      scalar_(scalar) {
  size_t at = OffsetOf(yaml_, position);
  if (at >= yaml_.size()) return;
  const char mark = yaml_[at];
  if (mark == '|' || mark == '>') {
    // Behind the indicators and a comment.
    at = std::min(yaml_.find('\n', at), yaml_.size());
  } else if (mark == '"' || mark == '\'') {
    ++at;
  }
  for (const char c : scalar_) {
    if (IsSpace(c)) {
      offsets_.push_back(at);
      continue;
    }
    // Spaces of the file, and escapes that stand for some.
    while (at < yaml_.size()) {
      if (IsSpace(yaml_[at])) {
        ++at;
      } else if (mark == '"' && yaml_[at] == '\\' && at + 1 < yaml_.size() &&
                 (yaml_[at + 1] == '\n' || yaml_[at + 1] == '\r' ||
                  (Escaped(yaml_[at + 1]) != 0 && IsSpace(Escaped(yaml_[at + 1]))))) {
        at += 2;
      } else {
        break;
      }
    }
    if (at >= yaml_.size()) return;
    size_t length = 1;
    char found = yaml_[at];
    if ((mark == '"' && found == '\\') || (mark == '\'' && found == '\'')) {
      const char next = at + 1 < yaml_.size() ? yaml_[at + 1] : '\0';
      found = mark == '"' ? Escaped(next) : next;
      length = 2;
    }
    if (found != c) return;
    offsets_.push_back(at);
    at += length;
  }
}

std::optional<YamlPosition> ScalarSource::At(size_t offset) const {
  size_t next = offset;
  while (next < scalar_.size() && IsSpace(scalar_[next])) ++next;
  if (next < scalar_.size()) {
    if (next >= offsets_.size()) return std::nullopt;
    return PositionOf(yaml_, offsets_[next]);
  }
  size_t last = scalar_.size();
  while (last > 0 && IsSpace(scalar_[last - 1])) --last;
  if (last == 0 || last > offsets_.size()) return std::nullopt;
  return PositionOf(yaml_, offsets_[last - 1] + 1);
}

}  // namespace liger
