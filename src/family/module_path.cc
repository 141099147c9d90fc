#include "family/module_path.h"

#include <algorithm>
#include <utility>

namespace liger {
namespace {

std::string_view FindMetadata(const Node& node, std::string_view key) {
  for (const auto& [name, value] : node.metadata) {
    if (name == key) return value;
  }
  return "";
}

// "a.b" + "c" = "a.b.c"; empty parts leave no dot.
std::string JoinPath(std::string_view prefix, std::string_view name) {
  if (prefix.empty()) return std::string(name);
  if (name.empty()) return std::string(prefix);
  return std::string(prefix) + "." + std::string(name);
}

bool IsBelow(std::string_view path, std::string_view prefix) {
  return path.size() > prefix.size() + 1 && path.starts_with(prefix) && path[prefix.size()] == '.';
}

// torch closes its lists with the FX node and its ATen op: ['', 'model', 'pow_1'] with
// ['pkg.Wrap', 'pkg.Model', 'aten.pow.Tensor_Scalar']. Lists that were cut to what several nodes
// share close with a module: its path extends the one before it, or, directly below a nameless
// module, its class is no op.
void DropFxNode(std::vector<ModuleScope>* scopes) {
  if (scopes->empty()) return;
  const ModuleScope& last = scopes->back();
  const bool is_op =
      last.class_name.starts_with("aten.") || last.class_name.starts_with("prims.") ||
      last.class_name.starts_with("_operator.") || last.class_name.ends_with(".default");
  bool is_module = last.path.empty();
  if (scopes->size() >= 2) {
    const std::string& outer = (*scopes)[scopes->size() - 2].path;
    is_module = outer.empty() ? !is_op : IsBelow(last.path, outer);
  }
  if (!is_module) scopes->pop_back();
}

// torch writes whole paths: ['', 'model', 'model.layers.0', 'pow_1'].
bool ReadTorchLists(std::string_view names, std::string_view classes,
                    std::vector<ModuleScope>* scopes) {
  std::vector<std::string> paths;
  std::vector<std::string> class_names;
  if (!ParsePythonStringList(names, &paths) || !ParsePythonStringList(classes, &class_names) ||
      paths.size() != class_names.size() || paths.empty()) {
    return false;
  }
  for (size_t i = 0; i < paths.size(); ++i) {
    scopes->push_back({std::move(paths[i]), std::move(class_names[i])});
  }
  DropFxNode(scopes);
  return !scopes->empty();
}

// onnxscript writes each module's own name, ['', 'model', 'layers.0', 'input_layernorm'], and no
// op.
bool ReadOnnxscriptLists(std::string_view names, std::string_view classes,
                         std::vector<ModuleScope>* scopes) {
  std::vector<std::string> parts;
  std::vector<std::string> class_names;
  if (!ParsePythonStringList(names, &parts) || !ParsePythonStringList(classes, &class_names) ||
      parts.size() != class_names.size() || parts.empty()) {
    return false;
  }
  std::string path;
  for (size_t i = 0; i < parts.size(); ++i) {
    path = JoinPath(path, parts[i]);
    scopes->push_back({path, std::move(class_names[i])});
  }
  return true;
}

// torch's namespace, ": pkg.Wrap/model: pkg.Model/model.layers.0: pkg.Layer/pow_1:
// aten.pow.Tensor_Scalar".
bool ReadNamespace(std::string_view text, std::vector<ModuleScope>* scopes) {
  while (true) {
    const size_t slash = text.find('/');
    const std::string_view item = text.substr(0, slash);
    const size_t colon = item.find(": ");
    if (colon == std::string_view::npos) return false;
    scopes->push_back({std::string(item.substr(0, colon)), std::string(item.substr(colon + 2))});
    if (slash == std::string_view::npos) break;
    text.remove_prefix(slash + 1);
  }
  DropFxNode(scopes);
  return !scopes->empty();
}

// "/model/layers.0/input_layernorm/Pow". ONNX Runtime's fusions append their own name and a slash
// to that of a node that they replace: "/model/norm/Mul_1/SimplifiedLayerNormFusion/".
bool ReadNodeName(std::string_view name, std::vector<ModuleScope>* scopes) {
  const bool fused = name.ends_with('/');
  while (name.ends_with('/')) name.remove_suffix(1);
  for (int last = fused ? 2 : 1; last > 0; --last) {
    const size_t slash = name.find_last_of('/');
    if (slash == std::string_view::npos) return false;
    name = name.substr(0, slash);
  }
  if (name.starts_with('/')) name.remove_prefix(1);
  if (name.empty()) return false;
  // A word glued to the path of another node or value: "InsertedPrecisionFreeCast_/model/norm/Mul".
  if (name.substr(0, name.find('/')).ends_with('_')) return false;
  std::string path;
  while (true) {
    const size_t slash = name.find('/');
    const std::string_view part = name.substr(0, slash);
    if (part.empty()) return false;
    path = JoinPath(path, part);
    scopes->push_back({path, ""});
    if (slash == std::string_view::npos) return true;
    name.remove_prefix(slash + 1);
  }
}

}  // namespace

bool ParsePythonStringList(std::string_view text, std::vector<std::string>* items) {
  items->clear();
  size_t i = 0;
  const auto skip_spaces = [&] {
    while (i < text.size() && (text[i] == ' ' || text[i] == '\n' || text[i] == '\t')) ++i;
  };
  skip_spaces();
  if (i >= text.size() || (text[i] != '[' && text[i] != '(')) return false;
  const char close = text[i] == '[' ? ']' : ')';
  ++i;
  while (true) {
    skip_spaces();
    if (i >= text.size()) return false;
    if (text[i] == close) break;
    const char quote = text[i];
    if (quote != '\'' && quote != '"') return false;
    ++i;
    std::string item;
    while (true) {
      const size_t end = text.find(quote, i);
      if (end == std::string_view::npos) return false;
      const size_t escape = text.substr(0, end).find('\\', i);
      const size_t special = std::min(end, escape);
      item.append(text, i, special - i);
      i = special;
      if (text[i] == quote) break;
      if (++i >= text.size()) return false;
      switch (text[i]) {
        case 'n':
          item += '\n';
          break;
        case 't':
          item += '\t';
          break;
        case 'r':
          item += '\r';
          break;
        case '\\':
        case '\'':
        case '"':
          item += text[i];
          break;
        default:  // \x41, \u00e9: kept as written
          item += '\\';
          item += text[i];
          break;
      }
      ++i;
    }
    ++i;
    items->push_back(std::move(item));
    skip_spaces();
    if (i < text.size() && text[i] == ',') {
      ++i;
    } else if (i >= text.size() || text[i] != close) {
      return false;
    }
  }
  ++i;
  skip_spaces();
  return i == text.size();
}

namespace {

// ONNX Runtime's optimiser names nodes "/SimplifiedLayerNormFusion/": no module of the model.
bool IsNameOfFusion(std::string_view name) {
  if (!name.starts_with('/')) return false;
  return name.substr(1, name.find('/', 1) - 1).ends_with("Fusion");
}

}  // namespace

ModuleScopes ModuleScopesOf(const Node& node) {
  ModuleScopes result;
  const auto try_metadata = [&](auto read, auto... texts) {
    if (result.source != ScopeSource::kUnknown || (texts.empty() || ...)) return;
    result.scopes.clear();
    if (read(texts..., &result.scopes)) result.source = ScopeSource::kMetadata;
  };
  if (!node.metadata.empty()) {
    try_metadata(ReadTorchLists, FindMetadata(node, "pkg.torch.onnx.name_scopes"),
                 FindMetadata(node, "pkg.torch.onnx.class_hierarchy"));
    try_metadata(ReadOnnxscriptLists, FindMetadata(node, "pkg.onnxscript.name_scopes"),
                 FindMetadata(node, "pkg.onnxscript.class_hierarchy"));
    try_metadata(ReadNamespace, FindMetadata(node, "namespace"));
  }
  if (result.source == ScopeSource::kUnknown) {
    result.scopes.clear();
    if (!IsNameOfFusion(node.name) && ReadNodeName(node.name, &result.scopes)) {
      result.source = ScopeSource::kNodeName;
    } else {
      result.scopes.clear();
    }
  }
  return result;
}

bool IsInModule(std::string_view path, std::string_view module) {
  return module.empty() || path == module ||
         (path.starts_with(module) && path[module.size()] == '.');
}

std::string ModulePathOf(const Node& node) {
  ModuleScopes scopes = ModuleScopesOf(node);
  return scopes.scopes.empty() ? "" : std::move(scopes.scopes.back().path);
}

}  // namespace liger
