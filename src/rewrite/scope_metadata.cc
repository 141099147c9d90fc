#include "rewrite/scope_metadata.h"

#include <algorithm>
#include <map>

#include "family/module_path.h"

namespace liger {
namespace {

bool IsScopeList(const std::string& key) {
  return key.ends_with(".class_hierarchy") || key.ends_with(".name_scopes");
}

std::vector<std::string> SplitNamespace(const std::string& text) {
  std::vector<std::string> items;
  size_t begin = 0;
  while (begin <= text.size()) {
    const size_t end = std::min(text.find('/', begin), text.size());
    items.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return items;
}

std::string JoinNamespace(const std::vector<std::string>& items) {
  std::string text;
  for (const std::string& item : items) text += (text.empty() ? "" : "/") + item;
  return text;
}

// As Python's repr() prints a list of strings without quotes in them.
std::string JoinList(const std::vector<std::string>& items) {
  std::string text = "[";
  for (const std::string& item : items) text += (text.size() > 1 ? ", '" : "'") + item + "'";
  return text + "]";
}

void KeepCommonBeginning(std::vector<std::string>& items, const std::vector<std::string>& other) {
  const auto end = std::mismatch(items.begin(), items.end(), other.begin(), other.end()).first;
  items.erase(end, items.end());
}

}  // namespace

std::vector<std::pair<std::string, std::string>> CommonMetadata(
    const std::vector<const Node*>& nodes) {
  std::map<std::string, std::vector<std::string>> lists;
  std::map<std::string, std::string> plain;
  std::map<std::string, bool> disagree;
  for (const Node* node : nodes) {
    for (const auto& [key, value] : node->metadata) {
      std::vector<std::string> items;
      const bool is_list =
          IsScopeList(key) ? ParsePythonStringList(value, &items) : key == "namespace";
      if (is_list) {
        if (key == "namespace") items = SplitNamespace(value);
        const auto [found, is_new] = lists.try_emplace(key, items);
        if (!is_new) KeepCommonBeginning(found->second, items);
        continue;
      }
      const auto [found, is_new] = plain.try_emplace(key, value);
      if (!is_new && found->second != value) disagree[key] = true;
    }
  }
  std::vector<std::pair<std::string, std::string>> common;
  for (const auto& [key, items] : lists) {
    if (!items.empty()) {
      common.emplace_back(key, key == "namespace" ? JoinNamespace(items) : JoinList(items));
    }
  }
  for (const auto& [key, value] : plain) {
    if (!disagree[key]) common.emplace_back(key, value);
  }
  return common;
}

}  // namespace liger
