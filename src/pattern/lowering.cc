#include "pattern/lowering.h"

#include "model/onnx_graph.h"
#include "patchmap/yaml_reader.h"

namespace liger {

// The file: schema_version, then a list `lowerings` of {op, domain?, opset, last_axis_only?, text}.
Result<LoweringSet> LoweringSet::Load(std::span<const EmbeddedFile> files) {
  LoweringSet set;
  for (const EmbeddedFile& file : files) {
    if (!file.path.starts_with("lowerings/")) continue;
    auto root = ParseYaml(file.shown(), file.contents);
    if (!root) return std::move(root).error();
    YamlReader reader(file.shown());
    YamlMap map = reader.Map(*root, "the lowering file");
    reader.Require(map, "schema_version");
    const YamlNode* list = reader.Require(map, "lowerings");
    reader.Finish(map);
    if (!reader.ok()) return reader.error();
    for (const YamlNode& item : list->items) {
      YamlMap entry = reader.Map(item, "the lowering");
      Lowering lowering;
      const auto string = [&](std::string_view key, bool required) {
        const YamlNode* node = required ? reader.Require(entry, key) : reader.Find(entry, key);
        return node != nullptr ? reader.String(*node, key) : std::string();
      };
      lowering.op_type = string("op", true);
      lowering.domain = string("domain", false);
      if (const YamlNode* node = reader.Find(entry, "min_opset")) {
        lowering.min_opset = reader.Integer(*node, "min_opset");
      }
      if (const YamlNode* node = reader.Find(entry, "last_axis_only")) {
        lowering.last_axis_only = reader.OnOff(*node, "last_axis_only");
      }
      const std::string source = string("text", true);
      reader.Finish(entry);
      if (!reader.ok()) return reader.error();
      auto text = ParseFunctionText(source);
      if (!text) {
        Error error = std::move(text).error().WithContext("the lowering of " + lowering.op_type);
        error.location = reader.Place(item.position);
        return error;
      }
      lowering.body = std::move(text->graph);
      lowering.opsets = std::move(text->opsets);
      for (Attribute& attribute : text->defaults) {
        lowering.defaults[attribute.name] = std::move(attribute.value);
      }
      set.lowerings_.push_back(std::move(lowering));
    }
  }
  return set;
}

const Lowering* LoweringSet::Find(const Node& node, int64_t opset) const {
  for (const Lowering& lowering : lowerings_) {
    if (lowering.op_type == node.op_type && lowering.domain == node.domain &&
        opset >= lowering.min_opset) {
      return &lowering;
    }
  }
  return nullptr;
}

}  // namespace liger
