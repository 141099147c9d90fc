// Reads the contract part of a patches/ops/*.yaml file.
//
//   Result<OpSource> op = ReadContract("patches/ops/rope.yaml", text);
//
// Only op, since_version, module, algebra, inputs, outputs, attributes, kernels and names are read; other
// top-level keys (texts, presets, guards) belong to other readers. Every mistake in the part that
// is read is an Error with file:line:column, unknown and duplicate keys included.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/dtype.h"
#include "base/error.h"

namespace liger::opgen {

struct PortSource {
  std::string name;
  std::string type_symbol;
  bool optional = false;
};

struct AttributeSource {
  std::string name;
  std::string kind;  // int, float, string, dtype
  std::vector<std::string> values;
};

struct TupleSource {
  std::string provider;  // cpu, cuda
  std::vector<std::pair<std::string, DType>> types;
};

// A further name of an op, `names:` in its file, with the attribute values that it stands for.
struct NameSource {
  std::string name;
  std::vector<std::pair<std::string, std::string>> implies;
};

// Names that patch maps know and cannot use.
struct UnfusedSource {
  std::vector<std::string> names;
  std::string reason;
};

struct OpSource {
  std::string op_type;
  int since_version = 0;
  std::string module;
  std::string algebra;
  std::vector<PortSource> inputs;
  std::vector<PortSource> outputs;
  std::vector<AttributeSource> attributes;
  std::vector<TupleSource> kernels;
  std::vector<NameSource> names;
};

Result<OpSource> ReadContract(std::string_view file_name, const std::string& text);

// Reads patches/unfused_names.yaml.
Result<std::vector<UnfusedSource>> ReadUnfusedNames(std::string_view file_name,
                                                    const std::string& text);

}  // namespace liger::opgen
