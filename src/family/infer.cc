#include "family/infer.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <system_error>
#include <unordered_set>
#include <utility>

#include "family/instance_pattern.h"
#include "family/module_path.h"
#include "patchmap/nearest.h"

namespace liger {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kStampKey = "liger.family";
constexpr std::string_view kTransformersModels = "transformers.models.";

// Names in genai_config.json's model.type that say how a model is run, not what it is.
bool IsPipelineType(std::string_view type) {
  return type == "decoder" || type == "decoder-pipeline";
}

// A package of classes serves several model types (gemma3 and gemma3_text), so a package that no
// family map claims does not contradict a type that extends its name.
bool Disagrees(const Evidence& evidence, std::string_view family) {
  if (evidence.family.empty() || evidence.family == family) return false;
  const bool extends = !evidence.known && family.size() > evidence.family.size() + 1 &&
                       family.starts_with(evidence.family) && family[evidence.family.size()] == '_';
  return !extends;
}

// "layers.0.norm" for "layers.17.norm".
std::string WithoutNumbers(std::string_view name) {
  std::string text;
  while (true) {
    const size_t dot = name.find('.');
    const std::string_view segment = name.substr(0, dot);
    const bool is_number =
        !segment.empty() &&
        std::all_of(segment.begin(), segment.end(), [](char c) { return c >= '0' && c <= '9'; });
    text += is_number ? "0" : segment;
    if (dot == std::string_view::npos) return text;
    text += '.';
    name.remove_prefix(dot + 1);
  }
}

class Inference {
 public:
  Inference(const GraphModel& model, const fs::path& model_path, const FamilyRegistry& registry)
      : model_(model), registry_(registry) {
    if (!model_path.empty()) {
      // The name as given, links not followed: in a Hugging Face cache the model is a link into a
      // folder of blobs, and config.json stands beside the link.
      std::error_code code;
      const fs::path absolute = fs::absolute(model_path, code).lexically_normal();
      if (!code) folder_ = absolute.parent_path();
      shown_folder_ = model_path.parent_path();
    }
  }

  FamilyInfo Run() {
    LookAtStamp();
    LookAtGenaiConfig();
    LookAtConfig();
    LookAtMetadata();
    LookAtClasses();
    LookAtParameters();
    Decide();
    return std::move(info_);
  }

 private:
  Evidence& AddEvidence(std::string source, std::string place, std::string key,
                        std::string_view value) {
    info_.evidence.push_back({std::move(source), std::move(place), std::move(key), Shortened(value),
                              "", false, false, ""});
    return info_.evidence.back();
  }

  // A file may hold anything; what is quoted in messages is short.
  static std::string Shortened(std::string_view text) {
    constexpr size_t kLongest = 80;
    return std::string(text.substr(0, kLongest)) + (text.size() > kLongest ? "..." : "");
  }

  // `head` is the family that has the evidence's value as a name; if there is none, `name` is a
  // family that nobody here knows.
  static void SpeaksFor(Evidence* evidence, const FamilyHead* head, std::string_view name) {
    evidence->known = head != nullptr;
    evidence->family = head != nullptr ? head->family : Shortened(name);
  }

  void LookAtStamp() {
    const auto it = model_.metadata.find(std::string(kStampKey));
    if (it == model_.metadata.end() || it->second.empty()) {
      AddEvidence("metadata", "", std::string(kStampKey), "").note = "not there";
      return;
    }
    Evidence& evidence = AddEvidence("metadata", "", it->first, it->second);
    if (it->second == "any") {
      evidence.note = "patched by structure alone, which names no family";
    } else {
      SpeaksFor(&evidence, registry_.Find(it->second), it->second);
    }
  }

  // The file if it exists, even if it is unreadable.
  std::optional<fs::path> FindFile(const fs::path& folder, const char* name) const {
    std::error_code code;
    const fs::path path = folder / name;
    if (!fs::exists(fs::symlink_status(path, code))) return std::nullopt;
    return path;
  }

  void LookAtGenaiConfig() {
    if (folder_.empty()) return;
    const std::optional<fs::path> path = FindFile(folder_, "genai_config.json");
    if (!path) {
      AddEvidence("genai_config.json", Shown(folder_), "model.type", "").note =
          "no such file beside the model";
      return;
    }
    Result<ModelConfig> config = ReadGenaiConfig(*path);
    if (!config) {
      AddEvidence("genai_config.json", path->string(), "model.type", "").note =
          config.error().message;
      return;
    }
    Evidence& evidence =
        AddEvidence("genai_config.json", path->string(), "model.type", config->model_type);
    if (config->model_type.empty()) {
      evidence.note = "does not say";
    } else if (IsPipelineType(config->model_type)) {
      evidence.note = "names a way to run the model, not a family";
    } else {
      const FamilyHead* head = registry_.FindGenaiType(config->model_type);
      if (head == nullptr) head = registry_.Find(config->model_type);
      SpeaksFor(&evidence, head, config->model_type);
    }
    info_.config = *std::move(config);
  }

  void LookAtConfig() {
    if (folder_.empty()) return;
    std::vector<fs::path> folders = {folder_};
    if (folder_.has_parent_path() && folder_.parent_path() != folder_) {
      folders.push_back(folder_.parent_path());
    }
    bool found = false;
    for (const fs::path& folder : folders) {
      const std::optional<fs::path> path = FindFile(folder, "config.json");
      if (!path) continue;
      found = true;
      Result<ModelConfig> config = ReadConfigJson(*path);
      if (!config) {
        AddEvidence("config.json", path->string(), "model_type", "").note = config.error().message;
        continue;
      }
      if (TakeConfig(*path, *std::move(config))) return;
    }
    if (!found) {
      AddEvidence("config.json", Shown(folder_), "model_type", "").note =
          "no such file beside the model or in the folder above";
    }
  }

  // False if the file says nothing of a family.
  bool TakeConfig(const fs::path& path, ModelConfig config) {
    const std::string place = path.string();
    if (!config.model_type.empty()) {
      SpeaksFor(&AddEvidence("config.json", place, "model_type", config.model_type),
                registry_.Find(config.model_type), config.model_type);
    }
    if (!config.text_model_type.empty()) {
      Evidence& evidence =
          AddEvidence("config.json", place, "text_config.model_type", config.text_model_type);
      const FamilyHead* head = registry_.Find(config.text_model_type);
      // A part of a larger model: never the family of the whole.
      evidence.note = head == nullptr
                          ? "the text part of a larger model"
                          : "the text part of a larger model; of family " + head->family;
      if (head != nullptr) part_families_.push_back(head->family);
    }
    for (const std::string& type : {config.text_model_type, config.vision_model_type}) {
      const FamilyHead* head = type.empty() ? nullptr : registry_.Find(type);
      if (head != nullptr) info_.parts.push_back(head->family);
    }
    if (!config.architectures.empty()) {
      const std::string& name = config.architectures.front();
      Evidence& evidence = AddEvidence("config.json", place, "architectures", name);
      const FamilyHead* head = registry_.FindArchitecture(name);
      if (head != nullptr || config.model_type.empty()) {
        SpeaksFor(&evidence, head, name);
      } else {
        evidence.note = "no known family has this class";
      }
    }
    const bool speaks = !config.model_type.empty() || !config.architectures.empty();
    if (!speaks) AddEvidence("config.json", place, "model_type", "").note = "does not say";
    if (speaks || !config.text_model_type.empty()) {
      for (const auto& [key, value] : info_.config.integers) config.integers.emplace(key, value);
      info_.config = std::move(config);
    }
    return speaks;
  }

  void LookAtMetadata() {
    bool found = false;
    for (const char* key : {"model_type", "architectures", "architecture"}) {
      const auto it = model_.metadata.find(key);
      if (it == model_.metadata.end() || it->second.empty()) continue;
      found = true;
      Evidence& evidence = AddEvidence("metadata", "", key, it->second);
      std::vector<std::string> names;
      if (!ParsePythonStringList(it->second, &names) || names.empty()) names = {it->second};
      const FamilyHead* head = registry_.Find(names.front());
      if (head == nullptr) head = registry_.FindArchitecture(names.front());
      SpeaksFor(&evidence, head, names.front());
    }
    if (!found) AddEvidence("metadata", "", "model_type", "").note = "not there";
  }

  // The family in whose package a class lives, and whether the class is a whole model or a layer of
  // it.
  struct ClassMeaning {
    const FamilyHead* head = nullptr;
    // "internvl" of transformers.models.internvl..., or the package of a known family; empty if the
    // class is of no model package. Families may share one: gemma3 and gemma3_text.
    std::string package;
    std::string name;  // the family, also if nobody here knows it
    bool decides = false;
  };

  ClassMeaning MeaningOf(std::string_view class_name) const {
    ClassMeaning meaning;
    for (const FamilyHead& head : registry_.heads()) {
      if (class_name.size() <= head.package.size() + 1 || !class_name.starts_with(head.package) ||
          class_name[head.package.size()] != '.') {
        continue;
      }
      const std::string_view name = class_name.substr(head.package.size() + 1);
      meaning.head = &head;
      meaning.package = head.package;
      meaning.name = head.family;
      meaning.decides = std::find(head.architectures.begin(), head.architectures.end(), name) !=
                            head.architectures.end() ||
                        std::find(head.layer_classes.begin(), head.layer_classes.end(), name) !=
                            head.layer_classes.end();
      // Two families may share a package (gemma3 and gemma3_text); the one that names the class has
      // it.
      if (meaning.decides) return meaning;
    }
    if (meaning.head == nullptr && class_name.starts_with(kTransformersModels)) {
      std::string_view rest = class_name.substr(kTransformersModels.size());
      const size_t dot = rest.find('.');
      if (dot != std::string_view::npos) {
        meaning.package = rest.substr(0, dot);
        meaning.name = meaning.package;
        // Another file in the folder of a known family holds none of its models.
        meaning.head = registry_.Find(meaning.package);
        meaning.decides = meaning.head == nullptr;
      }
    }
    return meaning;
  }

  static std::string_view ClassListOf(const Node& node) {
    for (const auto& [key, value] : node.metadata) {
      if (key.ends_with(".class_hierarchy")) return value;
    }
    return "";
  }

  void LookAtClasses() {
    struct Outermost {
      std::string class_name;
      std::string node;
      ClassMeaning meaning;
    };
    std::map<std::string, ClassMeaning> meanings;
    std::vector<Outermost> outermost;  // distinct classes, in order of appearance
    std::unordered_set<std::string_view> lists_seen;
    std::set<std::string> class_families;
    bool any_metadata = false;
    for (const Graph& graph : model_.graphs) {
      for (const Node& node : graph.nodes) {
        if (node.metadata.empty()) continue;
        // Lists of classes repeat from layer to layer; each needs to be read once.
        const std::string_view classes = ClassListOf(node);
        if (!classes.empty() && !lists_seen.insert(classes).second) continue;
        const ModuleScopes scopes = ModuleScopesOf(node);
        if (scopes.source != ScopeSource::kMetadata) continue;
        any_metadata = true;
        bool is_inside = false;
        for (const ModuleScope& scope : scopes.scopes) {
          auto it = meanings.find(scope.class_name);
          if (it == meanings.end()) {
            it = meanings.emplace(scope.class_name, MeaningOf(scope.class_name)).first;
          }
          const ClassMeaning& meaning = it->second;
          if (meaning.package.empty()) continue;  // a wrapper, or a class of torch
          if (meaning.head != nullptr && meaning.decides)
            class_families.insert(meaning.head->family);
          if (is_inside) continue;
          is_inside = true;
          const bool seen =
              std::any_of(outermost.begin(), outermost.end(),
                          [&](const Outermost& o) { return o.class_name == scope.class_name; });
          if (!seen) outermost.push_back({scope.class_name, node.name, meaning});
        }
      }
    }
    if (info_.parts.empty()) info_.parts.assign(class_families.begin(), class_families.end());
    if (outermost.empty()) {
      AddEvidence("class names", "", "class_hierarchy", "").note =
          any_metadata ? "no class of a model package" : "no class names in node metadata";
      return;
    }
    std::set<std::string> packages;
    for (const Outermost& o : outermost) packages.insert(o.meaning.package);
    for (const Outermost& o : outermost) {
      Evidence& evidence = AddEvidence("class names", o.node, "class_hierarchy", o.class_name);
      if (packages.size() > 1) {
        evidence.note = "the outermost classes are of several packages";
      } else if (!o.meaning.decides) {
        evidence.note = "part of a model, used by several families";
      } else {
        SpeaksFor(&evidence, o.meaning.head, o.meaning.name);
      }
      if (evidence.family.empty() && o.meaning.head != nullptr) {
        part_families_.push_back(o.meaning.head->family);
      }
    }
  }

  void LookAtParameters() {
    // Layers are alike: one of each name is enough.
    std::set<std::string> names;
    for (const Graph& graph : model_.graphs) {
      for (const Value& value : graph.values) {
        if (value.is_initializer) names.insert(WithoutNumbers(value.name));
      }
    }
    const auto any_matches = [&](const std::string& pattern) {
      return std::any_of(names.begin(), names.end(), [&](const std::string& name) {
        return MatchPattern(pattern, name).has_value();
      });
    };
    for (const FamilyHead& head : registry_.heads()) {
      if (head.structure_present.empty()) continue;
      if (std::all_of(head.structure_present.begin(), head.structure_present.end(), any_matches) &&
          std::none_of(head.structure_absent.begin(), head.structure_absent.end(), any_matches)) {
        structure_families_.push_back(head.family);
      }
    }
    Evidence& evidence =
        AddEvidence("parameter names", "", "structure", JoinNames(structure_families_));
    evidence.note = structure_families_.empty() ? "fit no known family"
                                                : "fit, but other families have the same names";
  }

  void Decide() {
    for (Evidence& evidence : info_.evidence) {
      if (evidence.family.empty()) continue;
      if (info_.decided_by.empty()) {
        evidence.decided = true;
        info_.decided_by = evidence.source;
        info_.named = evidence.family;
        if (evidence.known) info_.family = evidence.family;
      }
    }
    for (const Evidence& evidence : info_.evidence) {
      if (Disagrees(evidence, info_.named)) {
        info_.disagreements.push_back(ToString(evidence) + " speaks for " + evidence.family +
                                      ", not " + info_.named);
      }
    }
    std::vector<std::string> candidates;
    if (!info_.known()) {
      candidates = part_families_;
      const std::vector<std::string> more =
          info_.named.empty() ? structure_families_ : registry_.Nearest(info_.named);
      candidates.insert(candidates.end(), more.begin(), more.end());
    }
    for (std::string& candidate : candidates) {
      if (std::find(info_.candidates.begin(), info_.candidates.end(), candidate) ==
          info_.candidates.end()) {
        info_.candidates.push_back(std::move(candidate));
      }
    }
  }

  std::string Shown(const fs::path& folder) const {
    return shown_folder_.empty() ? folder.string() : shown_folder_.string();
  }

  const GraphModel& model_;
  const FamilyRegistry& registry_;
  fs::path folder_;        // absolute; empty for a model in memory
  fs::path shown_folder_;  // as the user wrote it
  FamilyInfo info_;
  std::vector<std::string> part_families_;       // families of parts: text_config, norms, ...
  std::vector<std::string> structure_families_;  // families whose parameter names fit
};

// Numbers of another family's configuration say nothing about this model.
void DropForeignConfig(FamilyInfo* info, const FamilyRegistry& registry) {
  const auto is_ours = [&](const std::string& type) {
    const FamilyHead* head = registry.Find(type);
    if (head == nullptr) head = registry.FindGenaiType(type);
    return head != nullptr && head->family == info->family;
  };
  const ModelConfig& config = info->config;
  if (config.model_type.empty() || IsPipelineType(config.model_type) ||
      is_ours(config.model_type) || is_ours(config.text_model_type)) {
    return;
  }
  info->config.integers.clear();
  info->config.lists.clear();
  info->config.layer_types.clear();
}

}  // namespace

std::string ToString(const Evidence& evidence) {
  std::string text = evidence.source + " " + evidence.key;
  if (!evidence.value.empty()) text += " = " + evidence.value;
  if (!evidence.place.empty()) text += " (" + evidence.place + ")";
  if (!evidence.note.empty()) text += ": " + evidence.note;
  return text;
}

FamilyInfo InferFamily(const GraphModel& model, const fs::path& model_path,
                       const FamilyRegistry& registry) {
  FamilyInfo info = Inference(model, model_path, registry).Run();
  if (info.known()) DropForeignConfig(&info, registry);
  return info;
}

Result<FamilyInfo> ChooseFamily(std::string_view name, FamilyInfo inferred,
                                const FamilyRegistry& registry) {
  const FamilyHead* head = registry.Find(name);
  if (head == nullptr && name != "any") return UnknownFamilyError(name, registry);
  FamilyInfo info = std::move(inferred);
  info.disagreements.clear();
  info.candidates.clear();
  info.family = head != nullptr ? head->family : "any";
  info.named = info.family;
  info.decided_by = "--family";
  for (Evidence& evidence : info.evidence) {
    evidence.decided = false;
    if (head == nullptr || !Disagrees(evidence, info.family)) continue;
    info.disagreements.push_back(ToString(evidence) + " speaks for " + evidence.family + ", not " +
                                 info.family);
  }
  Evidence option;
  option.source = "command line";
  option.key = "--family";
  option.value = name;
  option.family = info.family;
  option.known = true;
  option.decided = true;
  info.evidence.insert(info.evidence.begin(), std::move(option));
  if (head != nullptr) DropForeignConfig(&info, registry);
  return info;
}

Error UndecidedFamilyError(const FamilyInfo& info, const FamilyRegistry& registry) {
  Error error;
  error.code = ErrorCode::kFamily;
  error.message = info.named.empty() ? "nothing in or beside the model names its family"
                                     : "the model's family '" + info.named + "', named by " +
                                           info.decided_by + ", is not known";
  error.hint = "looked at: ";
  bool first = true;
  for (const Evidence& evidence : info.evidence) {
    if (!first) error.hint += "; ";
    first = false;
    error.hint += ToString(evidence);
  }
  error.hint += ". ";
  if (!info.candidates.empty()) {
    error.hint += info.named.empty() ? "Its structure fits " : "Nearest families: ";
    error.hint += info.named.empty()
                      ? JoinAlternatives(info.candidates) + ", which --family names. "
                      : JoinNames(info.candidates) + ". ";
  }
  error.hint += "Known families: " + JoinNames(registry.names()) +
                "; --family any patches by structure alone; a family is added as "
                "DIR/families/<family>.yaml with --patches-dir DIR";
  return error;
}

}  // namespace liger
