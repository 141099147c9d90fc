#include "pattern/lowering.h"

#include <algorithm>

#include "model/onnx_graph.h"
#include "patchmap/yaml_reader.h"

namespace liger {
namespace {

// Reads one file: schema_version, then a list `lowerings` of {op, domain?, min_opset?, where?,
// last_axis_only?, mixed_types?, outputs?, text} and a list `already_fused` of {op, domain?, module,
// instances?, where?, reason?}.
class LoweringReader {
 public:
  LoweringReader(std::string_view file, std::vector<Lowering>& lowerings,
                 std::vector<FusedElsewhere>& fused)
      : reader_(file), lowerings_(lowerings), fused_(fused) {}

  Status Read(const YamlNode& root) {
    YamlMap map = reader_.Map(root, "the lowering file");
    reader_.Require(map, "schema_version");
    const YamlNode* lowerings = reader_.Find(map, "lowerings");
    const YamlNode* fused = reader_.Find(map, "already_fused");
    reader_.Finish(map);
    if (lowerings != nullptr) {
      for (const YamlNode& item : lowerings->items) ReadLowering(item);
    }
    if (fused != nullptr) {
      for (const YamlNode& item : fused->items) ReadFused(item);
    }
    if (!reader_.ok()) return reader_.error();
    return {};
  }

 private:
  std::string String(YamlMap& entry, std::string_view key, bool required) {
    const YamlNode* node = required ? reader_.Require(entry, key) : reader_.Find(entry, key);
    return node != nullptr ? reader_.String(*node, key) : std::string();
  }

  bool Flag(YamlMap& entry, std::string_view key) {
    const YamlNode* node = reader_.Find(entry, key);
    return node != nullptr && reader_.OnOff(*node, key);
  }

  // Attribute values: whole numbers and words.
  AttributeEnv Where(YamlMap& entry) {
    AttributeEnv where;
    const YamlNode* node = reader_.Find(entry, "where");
    if (node == nullptr) return where;
    YamlMap map = reader_.Map(*node, "where");
    for (const auto& [name, value] : node->entries) {
      reader_.Find(map, name.scalar);
      const bool is_number = !value.scalar.empty() &&
                             value.scalar.find_first_not_of("0123456789") == std::string::npos;
      where[name.scalar] = is_number ? Attribute::Value(reader_.Integer(value, name.scalar))
                                     : Attribute::Value(reader_.String(value, name.scalar));
    }
    reader_.Finish(map);
    return where;
  }

  void ReadLowering(const YamlNode& item) {
    const size_t before = reader_.faults();
    YamlMap entry = reader_.Map(item, "the lowering");
    Lowering lowering;
    lowering.op_type = String(entry, "op", true);
    lowering.domain = String(entry, "domain", false);
    if (const YamlNode* node = reader_.Find(entry, "min_opset")) {
      lowering.min_opset = reader_.Integer(*node, "min_opset");
    }
    lowering.last_axis_only = Flag(entry, "last_axis_only");
    lowering.mixed_types = Flag(entry, "mixed_types");
    lowering.where = Where(entry);
    if (const YamlNode* node = reader_.Find(entry, "outputs")) {
      for (const YamlNode& position : node->items) {
        lowering.outputs.push_back(static_cast<size_t>(reader_.Integer(position, "outputs")));
      }
    }
    const std::string source = String(entry, "text", true);
    reader_.Finish(entry);
    if (reader_.faults() != before) return;
    auto text = ParseFunctionText(source);
    if (!text) {
      reader_.Fail(item.position,
                   "the lowering of " + lowering.op_type + ": " + text.error().message,
                   text.error().hint);
      return;
    }
    lowering.body = std::move(text->graph);
    lowering.opsets = std::move(text->opsets);
    for (Attribute& attribute : text->defaults) {
      lowering.defaults[attribute.name] = std::move(attribute.value);
    }
    if (lowering.outputs.empty()) {
      for (size_t i = 0; i < lowering.body.outputs.size(); ++i) lowering.outputs.push_back(i);
    }
    if (lowering.outputs.size() != lowering.body.outputs.size()) {
      reader_.Fail(item.position, "`outputs` must name one position for each output of the text");
      return;
    }
    lowerings_.push_back(std::move(lowering));
  }

  void ReadFused(const YamlNode& item) {
    YamlMap entry = reader_.Map(item, "the fused operator");
    FusedElsewhere fused;
    fused.op_type = String(entry, "op", true);
    fused.domain = String(entry, "domain", false);
    fused.module = String(entry, "module", true);
    fused.reason = String(entry, "reason", false);
    if (const YamlNode* node = reader_.Find(entry, "instances")) {
      fused.instances = static_cast<int>(reader_.Integer(*node, "instances"));
    }
    fused.where = Where(entry);
    reader_.Finish(entry);
    fused_.push_back(std::move(fused));
  }

  YamlReader reader_;
  std::vector<Lowering>& lowerings_;
  std::vector<FusedElsewhere>& fused_;
};

// Whether the node's attributes, or else their defaults, have the values of `where`.
bool Holds(const AttributeEnv& where, const Node& node, const AttributeEnv& defaults,
           const AttributeEnv* env) {
  return std::all_of(where.begin(), where.end(), [&](const auto& wanted) {
    const Attribute* attribute = node.FindAttribute(wanted.first);
    if (attribute == nullptr) {
      const auto value = defaults.find(wanted.first);
      return value != defaults.end() && value->second == wanted.second;
    }
    if (const auto* ref = std::get_if<AttributeRef>(&attribute->value); ref != nullptr && env) {
      const auto value = env->find(ref->name);
      return value != env->end() && value->second == wanted.second;
    }
    return attribute->value == wanted.second;
  });
}

}  // namespace

Result<LoweringSet> LoweringSet::Load(std::span<const EmbeddedFile> files) {
  LoweringSet set;
  for (const EmbeddedFile& file : files) {
    if (!file.path.starts_with("lowerings/")) continue;
    auto root = ParseYaml(file.shown(), file.contents);
    if (!root) return std::move(root).error();
    Status status = LoweringReader(file.shown(), set.lowerings_, set.fused_).Read(*root);
    if (!status) return std::move(status).error();
  }
  return set;
}

const Lowering* LoweringSet::Find(const Node& node, int64_t opset, const AttributeEnv* env) const {
  size_t given = node.inputs.size();
  while (given > 0 && node.inputs[given - 1] == kNone) --given;
  for (const Lowering& lowering : lowerings_) {
    if (lowering.op_type == node.op_type && lowering.domain == node.domain &&
        opset >= lowering.min_opset && lowering.body.inputs.size() == given &&
        Holds(lowering.where, node, lowering.defaults, env)) {
      return &lowering;
    }
  }
  return nullptr;
}

const FusedElsewhere* LoweringSet::FindFused(const Node& node) const {
  for (const FusedElsewhere& fused : fused_) {
    if (fused.op_type == node.op_type && fused.domain == node.domain &&
        Holds(fused.where, node, {}, nullptr)) {
      return &fused;
    }
  }
  return nullptr;
}

}  // namespace liger
