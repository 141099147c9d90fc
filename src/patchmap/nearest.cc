#include "patchmap/nearest.h"

#include <algorithm>
#include <utility>

namespace liger {
namespace {

constexpr size_t kLongestName = 128;

// Edits that lead from `a` to `b`: characters inserted, dropped, replaced, or two neighbours
// swapped.
size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<size_t> before(b.size() + 1), above(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) above[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = above[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({replaced, above[j] + 1, row[j - 1] + 1});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], before[j - 2] + 1);
      }
    }
    before.swap(above);
    above.swap(row);
  }
  return above[b.size()];
}

}  // namespace

std::vector<std::string> NearestNames(std::string_view name, std::span<const std::string> known,
                                      size_t limit) {
  std::vector<std::pair<size_t, std::string>> ranked;
  for (const std::string& candidate : known) {
    if (name.empty() || candidate.empty()) continue;
    if (name.size() > kLongestName || candidate.size() > kLongestName) continue;
    const size_t shorter = std::min(name.size(), candidate.size());
    const bool one_begins_with_other =
        shorter >= 3 && name.substr(0, shorter) == std::string_view(candidate).substr(0, shorter);
    const size_t distance = EditDistance(name, candidate);
    if (one_begins_with_other) {
      ranked.emplace_back(0, candidate);
    } else if (3 * distance <= std::max(name.size(), candidate.size()) + 1) {
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
