#include "model/own_ops.h"

#include <onnx/onnx_pb.h>

namespace liger {

OwnOpNames ParseOwnOps(std::string_view text) {
  OwnOpNames names;
  while (!text.empty()) {
    const size_t comma = text.find(',');
    std::string_view name = text.substr(0, comma);
    text = comma == std::string_view::npos ? "" : text.substr(comma + 1);
    while (name.starts_with(' ')) name.remove_prefix(1);
    while (name.ends_with(' ')) name.remove_suffix(1);
    const size_t dot = name.rfind('.');
    if (dot == std::string_view::npos || dot == 0 || dot + 1 == name.size()) continue;
    names.emplace(name.substr(0, dot), name.substr(dot + 1));
  }
  return names;
}

OwnOpNames OwnOpsOf(const onnx::ModelProto& model) {
  for (const onnx::StringStringEntryProto& entry : model.metadata_props()) {
    if (entry.key() == kOwnOpsKey) return ParseOwnOps(entry.value());
  }
  return {};
}

std::string ToText(const OwnOpNames& names) {
  std::string text;
  for (const auto& [domain, op_type] : names) {
    text += (text.empty() ? "" : ", ") + domain + "." + op_type;
  }
  return text;
}

}  // namespace liger
