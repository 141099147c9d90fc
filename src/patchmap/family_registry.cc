#include "patchmap/family_registry.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <system_error>
#include <utility>

#include "patchmap/modules.h"
#include "patchmap/nearest.h"

namespace liger {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kFamilyFolder = "families/";
constexpr uintmax_t kMaxFileSize = 1 << 20;

struct Source {
  std::string file;  // for messages
  std::string contents;
  bool user = false;  // from the folder: validated in full
};

std::string FamilyOf(std::string_view path) {
  return std::string(path.substr(0, path.size() - std::string_view(".yaml").size()));
}

Result<std::string> ReadTextFile(const fs::path& path) {
  std::error_code code;
  const uintmax_t size = fs::file_size(path, code);
  if (code || !fs::is_regular_file(path, code)) {
    return Error{ErrorCode::kUsage, "patch map cannot be read", path.string(), ""};
  }
  if (size > kMaxFileSize) {
    return Error{ErrorCode::kUsage, "patch map is larger than 1 MB", path.string(), ""};
  }
  std::ifstream stream(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
  if (!stream) return Error{ErrorCode::kUsage, "patch map cannot be read", path.string(), ""};
  return text;
}

// Puts the folder's files over the embedded ones.
Status ReadFolder(const fs::path& folder, std::map<std::string, Source, std::less<>>* sources) {
  std::error_code code;
  if (!fs::is_directory(folder, code)) {
    return Error{ErrorCode::kUsage, "--patches-dir is not a folder", folder.string(), ""};
  }
  const fs::path families = folder / "families";
  if (!fs::exists(families, code)) {
    if (fs::exists(folder / "ops", code)) return Status();
    return Error{ErrorCode::kUsage,
                 "--patches-dir holds neither a folder families nor a folder ops", folder.string(),
                 "family maps are looked for as families/<family>.yaml in it"};
  }
  std::vector<fs::path> paths;
  fs::directory_iterator iterator(families, code);
  for (; !code && iterator != fs::directory_iterator(); iterator.increment(code)) {
    paths.push_back(iterator->path());
  }
  if (code) {
    return Error{ErrorCode::kUsage, "folder cannot be read: " + code.message(), families.string(),
                 ""};
  }
  std::sort(paths.begin(), paths.end());  // errors do not depend on the order of the folder
  for (const fs::path& path : paths) {
    const std::string name = path.filename().string();
    if (name.starts_with(".")) continue;
    if (path.extension() != ".yaml") {
      return Error{ErrorCode::kUsage, "the folder of family maps holds a file that is not .yaml",
                   path.string(), "family maps are called <family>.yaml"};
    }
    Result<std::string> text = ReadTextFile(path);
    if (!text) return std::move(text).error();
    (*sources)[FamilyOf(name)] = Source{path.string(), *std::move(text), /*user=*/true};
  }
  return Status();
}

}  // namespace

Result<FamilyRegistry> FamilyRegistry::Load(std::span<const EmbeddedFile> embedded,
                                            const std::optional<fs::path>& patches_dir) {
  std::map<std::string, Source, std::less<>> sources;
  for (const EmbeddedFile& file : embedded) {
    if (!file.path.starts_with(kFamilyFolder) || !file.path.ends_with(".yaml")) continue;
    sources[FamilyOf(file.path.substr(kFamilyFolder.size()))] =
        Source{std::string(file.shown()), std::string(file.contents), !file.origin.empty()};
  }
  if (patches_dir) {
    if (Status status = ReadFolder(*patches_dir, &sources); !status)
      return std::move(status).error();
  }

  FamilyRegistry registry;
  for (auto& [family, source] : sources) {
    if (source.user) {
      Result<FamilyMap> map = ParseFamilyMap(source.file, source.contents);
      if (!map) return std::move(map).error();
      registry.heads_.push_back(std::move(map->head));
    } else {
      Result<FamilyHead> head = ReadFamilyHead(source.file, source.contents);
      if (!head) return std::move(head).error();
      registry.heads_.push_back(*std::move(head));
    }
    registry.texts_[family] = Text{source.file, std::move(source.contents)};
  }

  for (size_t i = 0; i < registry.heads_.size(); ++i) {
    const FamilyHead& head = registry.heads_[i];
    const auto claim = [&](std::map<std::string, size_t, std::less<>>& index,
                           const std::string& name, std::string_view what) -> Status {
      const auto [it, inserted] = index.emplace(name, i);
      if (inserted || it->second == i) return Status();
      return Error{ErrorCode::kUsage,
                   std::string(what) + " '" + name + "' is claimed by two families, '" +
                       registry.heads_[it->second].family + "' and '" + head.family + "'",
                   head.file, "the other one stands in " + registry.heads_[it->second].file};
    };
    std::vector<std::string> names = {head.family};
    names.insert(names.end(), head.model_types.begin(), head.model_types.end());
    names.insert(names.end(), head.aliases.begin(), head.aliases.end());
    for (const std::string& name : names) {
      if (Status s = claim(registry.by_name_, name, "the name"); !s) return std::move(s).error();
    }
    for (const std::string& type : head.genai_types) {
      if (Status s = claim(registry.by_genai_type_, type, "genai type"); !s)
        return std::move(s).error();
    }
    for (const std::string& name : head.architectures) {
      if (Status s = claim(registry.by_architecture_, name, "architecture"); !s)
        return std::move(s).error();
    }
  }
  return registry;
}

std::vector<std::string> FamilyRegistry::names() const {
  std::vector<std::string> names;
  for (const FamilyHead& head : heads_) names.push_back(head.family);
  return names;
}

const FamilyHead* FamilyRegistry::Find(std::string_view name) const {
  const auto it = by_name_.find(name);
  return it == by_name_.end() ? nullptr : &heads_[it->second];
}

const FamilyHead* FamilyRegistry::FindGenaiType(std::string_view type) const {
  const auto it = by_genai_type_.find(type);
  return it == by_genai_type_.end() ? nullptr : &heads_[it->second];
}

const FamilyHead* FamilyRegistry::FindArchitecture(std::string_view class_name) const {
  const auto it = by_architecture_.find(class_name);
  return it == by_architecture_.end() ? nullptr : &heads_[it->second];
}

std::vector<std::string> FamilyRegistry::Nearest(std::string_view name, size_t limit) const {
  std::vector<std::string> known;
  for (const auto& [known_name, index] : by_name_) known.push_back(known_name);
  std::vector<std::string> families;
  for (const std::string& nearest : NearestNames(name, known, known.size())) {
    const std::string& family = Find(nearest)->family;
    if (families.size() < limit &&
        std::find(families.begin(), families.end(), family) == families.end()) {
      families.push_back(family);
    }
  }
  return families;
}

Result<FamilyMap> FamilyRegistry::LoadMap(std::string_view name,
                                          std::span<const std::string> parts) const {
  if (name == "any") return StructuralMap();
  const FamilyHead* head = Find(name);
  if (head == nullptr) return UnknownFamilyError(name, *this);
  Result<FamilyMap> map = ParseMap(*head);
  if (!map) return map;
  std::vector<std::string> known;
  for (const std::string& part : map->head.parts) {
    if (std::find(parts.begin(), parts.end(), part) != parts.end()) known.push_back(part);
  }
  const bool is_known = !known.empty();
  for (const std::string& part : is_known ? known : map->head.parts) {
    if (Status status = TakeIn(part, is_known, &*map); !status) return std::move(status).error();
  }
  return map;
}

Result<FamilyMap> FamilyRegistry::ParseMap(const FamilyHead& head) const {
  const Text& text = texts_.find(head.family)->second;
  return ParseFamilyMap(text.file, text.contents);
}

Status FamilyRegistry::TakeIn(std::string_view part, bool is_known, FamilyMap* map) const {
  const FamilyHead* head = Find(part);
  if (head == nullptr) {
    return Error{ErrorCode::kUsage,
                 "part '" + std::string(part) + "' of family " + map->name() + " is not known",
                 map->head.file, ""};
  }
  Result<FamilyMap> taken = ParseMap(*head);
  if (!taken) return std::move(taken).error();
  const auto is_loss = [](const std::string& module) {
    const ModuleKind* kind = FindModule(module);
    return kind == nullptr || kind->is_loss;  // what a part adds stays its own as well
  };
  for (ModuleDefault& module : taken->defaults) {
    if (is_loss(module.name) || map->Accepts(module.name)) continue;
    module.part = head->family;
    map->defaults.push_back(std::move(module));
  }
  for (ModuleMap& module : taken->modules) {
    if (is_loss(module.name)) continue;
    auto own = std::find_if(map->modules.begin(), map->modules.end(),
                            [&](const ModuleMap& m) { return m.name == module.name; });
    if (own == map->modules.end()) {
      own = map->modules.insert(map->modules.end(), ModuleMap{module.name, {}, module.position});
    }
    for (ModuleEntry& entry : module.entries) {
      // config.json cannot tell whether this file holds the part.
      entry.count.reset();
      if (!is_known) {
        entry.scopes.clear();
        entry.weights.clear();
      }
      entry.outside.insert(entry.outside.end(), map->head.parts_outside.begin(),
                           map->head.parts_outside.end());
      own->entries.push_back(std::move(entry));
    }
  }
  return {};
}

Error UnknownFamilyError(std::string_view name, const FamilyRegistry& registry) {
  constexpr size_t kLongestShown = 80;
  Error error;
  error.code = ErrorCode::kFamily;
  error.message = "family '" + std::string(name.substr(0, kLongestShown)) +
                  (name.size() > kLongestShown ? "..." : "") + "' is not known";
  if (const std::vector<std::string> nearest = registry.Nearest(name); !nearest.empty()) {
    error.hint = "did you mean " + JoinAlternatives(nearest) + "? ";
  }
  error.hint += "Known families: " + JoinNames(registry.names()) +
                "; --family any patches by structure alone; a family is added as "
                "DIR/families/<family>.yaml with --patches-dir DIR";
  return error;
}

}  // namespace liger
