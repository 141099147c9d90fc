#include "patchmap/nearest.h"

#include <algorithm>
#include <utility>

namespace liger {
namespace {

// Levenshtein distance; names longer than 128 characters are compared by their first 128.
size_t EditDistance(std::string_view a, std::string_view b) {
  a = a.substr(0, 128);
  b = b.substr(0, 128);
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t substituted = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({substituted, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

}  // namespace

std::vector<std::string> NearestNames(std::string_view name, std::span<const std::string> known,
                                      size_t limit) {
  std::vector<std::pair<size_t, std::string>> ranked;
  for (const std::string& candidate : known) {
    if (name.empty() || candidate.empty()) continue;
    const size_t shorter = std::min(name.size(), candidate.size());
    const bool one_begins_with_other =
        shorter >= 3 && name.substr(0, shorter) == std::string_view(candidate).substr(0, shorter);
    const size_t distance = EditDistance(name, candidate);
    if (one_begins_with_other) {
      ranked.emplace_back(std::min(distance, size_t{1}), candidate);
    } else if (3 * distance <= std::max(name.size(), candidate.size())) {
      ranked.emplace_back(distance, candidate);
    }
  }
  std::sort(ranked.begin(), ranked.end());
  std::vector<std::string> names;
  for (auto& [distance, candidate] : ranked) {
    if (names.size() == limit) break;
    if (names.empty() || names.back() != candidate) names.push_back(std::move(candidate));
  }
  return names;
}

std::string JoinAlternatives(std::span<const std::string> names) {
  std::string text;
  for (size_t i = 0; i < names.size(); ++i) {
    if (i > 0) text += i + 1 == names.size() ? " or " : ", ";
    text += names[i];
  }
  return text;
}

std::string JoinNames(std::span<const std::string> names) {
  std::string text;
  for (const std::string& name : names) {
    if (!text.empty()) text += ", ";
    text += name;
  }
  return text;
}

}  // namespace liger
