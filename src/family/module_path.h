// Where in the source model a node came from, as the exporter wrote it.
//
//   ModulePathOf(node)     // "model.layers.0.input_layernorm"
//   ModuleScopesOf(node)   // {"", my.Wrapper}, {"model", ...LlamaModel}, ...
//
// Sources: torch's and onnxscript's node metadata (name_scopes with class_hierarchy, or namespace),
// else a node name that is a path ("/model/layers.0/input_layernorm/Pow"), which names no classes.
// Metadata that cannot be parsed counts as absent.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "model/graph.h"

namespace liger {

struct ModuleScope {
  std::string path;        // dotted; empty for the outermost module
  std::string class_name;  // empty if unknown
};

enum class ScopeSource { kUnknown, kMetadata, kNodeName };

struct ModuleScopes {
  ScopeSource source = ScopeSource::kUnknown;
  std::vector<ModuleScope> scopes;  // outermost first; each path extends the one before
};

ModuleScopes ModuleScopesOf(const Node& node);

// The innermost module's path; empty if unknown.
std::string ModulePathOf(const Node& node);

// Whether `path` is the module's own or that of something inside it; everything is inside "".
bool IsInModule(std::string_view path, std::string_view module);

// The items of a Python list of strings as repr() prints it: ['a', "b'c"]. Escapes are undone.
// False if the text is no such list; `items` is then unspecified.
bool ParsePythonStringList(std::string_view text, std::vector<std::string>* items);

}  // namespace liger
