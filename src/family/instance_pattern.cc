#include "family/instance_pattern.h"

#include <algorithm>
#include <set>
#include <unordered_map>

namespace liger {
namespace {

// The last dotted segment of `text`, which is cut off.
std::string_view PopSegment(std::string_view* text) {
  const size_t dot = text->find_last_of('.');
  const std::string_view segment = dot == std::string_view::npos ? *text : text->substr(dot + 1);
  *text = dot == std::string_view::npos ? std::string_view() : text->substr(0, dot);
  return segment;
}

bool IsNumber(std::string_view segment) {
  return !segment.empty() &&
         std::all_of(segment.begin(), segment.end(), [](char c) { return c >= '0' && c <= '9'; });
}

bool HasStar(std::string_view pattern) { return pattern.find('*') != std::string_view::npos; }

}  // namespace

std::optional<std::string> MatchPattern(std::string_view pattern, std::string_view path) {
  while (!pattern.empty()) {
    if (path.empty()) return std::nullopt;
    const std::string_view wanted = PopSegment(&pattern);
    const std::string_view found = PopSegment(&path);
    if (wanted == "*" ? !IsNumber(found) : wanted != found) return std::nullopt;
  }
  return std::string(path);
}

std::vector<std::string> MatchPatterns(std::span<const std::string> patterns,
                                       std::span<const std::string> paths) {
  // Paths are compared only with the patterns that end like them: models have many more paths than
  // hits.
  std::unordered_map<std::string_view, std::vector<const std::string*>> by_last_segment;
  for (const std::string& pattern : patterns) {
    std::string_view rest = pattern;
    by_last_segment[PopSegment(&rest)].push_back(&pattern);
  }
  const bool any_star = std::any_of(patterns.begin(), patterns.end(),
                                    [](const std::string& p) { return HasStar(p); });
  std::set<std::string, std::less<>> prefixes;
  std::vector<bool> hit(paths.size(), false);
  for (int pass = 0; pass < 2; ++pass) {  // patterns with `*` first: they find the prefixes
    for (size_t i = 0; i < paths.size(); ++i) {
      std::string_view rest = paths[i];
      const std::string_view last = PopSegment(&rest);
      for (const std::string_view key : {last, std::string_view("*")}) {
        const auto candidates = by_last_segment.find(key);
        if (candidates == by_last_segment.end()) continue;
        for (const std::string* pattern : candidates->second) {
          if (HasStar(*pattern) != (pass == 0)) continue;
          const std::optional<std::string> prefix = MatchPattern(*pattern, paths[i]);
          if (!prefix) continue;
          if (pass == 0) {
            prefixes.insert(*prefix);
            hit[i] = true;
          } else if (!any_star || prefixes.contains(*prefix)) {
            hit[i] = true;
          }
        }
      }
    }
  }
  std::vector<std::string> matched;
  for (size_t i = 0; i < paths.size(); ++i) {
    if (hit[i]) matched.push_back(paths[i]);
  }
  return matched;
}

}  // namespace liger
