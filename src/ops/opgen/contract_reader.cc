#include "ops/opgen/contract_reader.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cctype>
#include <initializer_list>
#include <set>

namespace liger::opgen {
namespace {

// Thrown and caught inside this file only: yaml-cpp reports by exceptions as well.
struct ReadError {
  YAML::Mark mark;
  std::string message;
};

[[noreturn]] void Fail(const YAML::Node& node, std::string message) {
  throw ReadError{node.Mark(), std::move(message)};
}

// yaml-cpp keeps the first of two equal keys without a word.
void CheckMap(const YAML::Node& node, std::string_view what) {
  if (!node.IsMap()) Fail(node, std::string(what) + " must be a map");
  std::set<std::string> seen;
  for (const auto& entry : node) {
    if (!entry.first.IsScalar())
      Fail(entry.first, std::string(what) + " has a key that is no word");
    if (!seen.insert(entry.first.Scalar()).second) {
      Fail(entry.first, "key '" + entry.first.Scalar() + "' stands twice in " + std::string(what));
    }
  }
}

void CheckKeys(const YAML::Node& node, std::string_view what,
               std::initializer_list<std::string_view> known) {
  CheckMap(node, what);
  for (const auto& entry : node) {
    const std::string& key = entry.first.Scalar();
    if (std::find(known.begin(), known.end(), key) == known.end()) {
      Fail(entry.first, "unknown key '" + key + "' in " + std::string(what));
    }
  }
}

YAML::Node Required(const YAML::Node& map, const std::string& key, std::string_view what) {
  const YAML::Node value = map[key];
  if (!value) Fail(map, std::string(what) + " lacks the key '" + key + "'");
  return value;
}

std::string Word(const YAML::Node& node, std::string_view what) {
  if (!node.IsScalar() || node.Scalar().empty()) Fail(node, std::string(what) + " must be a word");
  return node.Scalar();
}

bool IsIdentifier(const std::string& text) {
  return !text.empty() && !std::isdigit(static_cast<unsigned char>(text[0])) &&
         std::all_of(text.begin(), text.end(),
                     [](unsigned char c) { return std::isalnum(c) != 0 || c == '_'; });
}

std::string Identifier(const YAML::Node& node, std::string_view what) {
  std::string word = Word(node, what);
  if (!IsIdentifier(word)) Fail(node, std::string(what) + " '" + word + "' is not an identifier");
  return word;
}

void CheckSequence(const YAML::Node& node, std::string_view what, bool may_be_empty) {
  if (!node.IsSequence()) Fail(node, std::string(what) + " must be a list");
  if (!may_be_empty && node.size() == 0) Fail(node, std::string(what) + " must not be empty");
}

std::vector<PortSource> ReadPorts(const YAML::Node& node, std::string_view what) {
  CheckSequence(node, what, false);
  std::vector<PortSource> ports;
  for (const YAML::Node& item : node) {
    CheckKeys(item, what, {"name", "type", "optional"});
    PortSource port;
    port.name = Identifier(Required(item, "name", what), "name");
    port.type_symbol = Identifier(Required(item, "type", what), "type");
    if (const YAML::Node optional = item["optional"]) {
      if (!YAML::convert<bool>::decode(optional, port.optional)) {
        Fail(optional, "optional must be true or false");
      }
    }
    // The i-th tensor of a node is the i-th port: only the end of the list can be left out.
    if (!port.optional && !ports.empty() && ports.back().optional) {
      Fail(item, "'" + port.name + "' is required but stands behind an optional entry");
    }
    for (const PortSource& other : ports) {
      if (other.name == port.name)
        Fail(item, "'" + port.name + "' stands twice in " + std::string(what));
    }
    ports.push_back(std::move(port));
  }
  if (ports.front().optional) Fail(node, "the first of " + std::string(what) + " must be required");
  return ports;
}

std::vector<AttributeSource> ReadAttributes(const YAML::Node& node) {
  CheckSequence(node, "attributes", true);
  std::vector<AttributeSource> attributes;
  for (const YAML::Node& item : node) {
    CheckKeys(item, "attributes", {"name", "type", "values"});
    AttributeSource attribute;
    attribute.name = Identifier(Required(item, "name", "attributes"), "name");
    const YAML::Node kind = Required(item, "type", "attributes");
    attribute.kind = Word(kind, "type");
    if (attribute.kind != "int" && attribute.kind != "float" && attribute.kind != "string" &&
        attribute.kind != "dtype") {
      Fail(kind, "attribute type '" + attribute.kind + "' is none of int, float, string, dtype");
    }
    if (const YAML::Node values = item["values"]) {
      if (attribute.kind != "string") Fail(values, "values are for attributes of type string");
      CheckSequence(values, "values", false);
      for (const YAML::Node& value : values) attribute.values.push_back(Word(value, "value"));
    }
    for (const AttributeSource& other : attributes) {
      if (other.name == attribute.name)
        Fail(item, "attribute '" + attribute.name + "' stands twice");
    }
    attributes.push_back(std::move(attribute));
  }
  return attributes;
}

std::vector<TupleSource> ReadKernels(const YAML::Node& node, const OpSource& op) {
  std::set<std::string> symbols;
  for (const PortSource& port : op.inputs) symbols.insert(port.type_symbol);
  for (const PortSource& port : op.outputs) symbols.insert(port.type_symbol);

  CheckKeys(node, "kernels", {"cpu", "cuda"});
  std::vector<TupleSource> tuples;
  for (const auto& entry : node) {
    const std::string provider = entry.first.Scalar();
    if (entry.second.IsScalar()) {  // names the provider above that has the same kernels
      const std::vector<TupleSource> above = tuples;
      for (TupleSource tuple : above) {
        if (tuple.provider != entry.second.Scalar()) continue;
        tuple.provider = provider;
        tuples.push_back(std::move(tuple));
      }
      if (tuples.size() == above.size()) {
        Fail(entry.second, "no kernels of '" + entry.second.Scalar() + "' stand above");
      }
      continue;
    }
    CheckSequence(entry.second, "kernels of " + provider, false);
    for (const YAML::Node& item : entry.second) {
      CheckMap(item, "a kernel");
      TupleSource tuple{provider, {}};
      for (const auto& binding : item) {
        const std::string symbol = binding.first.Scalar();
        if (!symbols.contains(symbol)) {
          Fail(binding.first, "type symbol '" + symbol + "' is used by no input or output");
        }
        const std::string name = Word(binding.second, "dtype");
        const std::optional<DType> dtype = ParseDType(name);
        if (!dtype) Fail(binding.second, "'" + name + "' is not a dtype");
        tuple.types.emplace_back(symbol, *dtype);
      }
      if (tuple.types.size() != symbols.size()) Fail(item, "a kernel must bind every type symbol");
      std::sort(tuple.types.begin(), tuple.types.end());
      for (const TupleSource& other : tuples) {
        if (other.provider == provider && other.types == tuple.types) {
          Fail(item, "this kernel stands twice");
        }
      }
      tuples.push_back(std::move(tuple));
    }
  }
  // A registered library has no fall-back to the body: a schema without a CPU kernel would break
  // every session on a machine without the other provider.
  if (std::none_of(tuples.begin(), tuples.end(),
                   [](const TupleSource& tuple) { return tuple.provider == "cpu"; })) {
    Fail(node, "kernels lacks the key 'cpu'");
  }
  for (const TupleSource& tuple : tuples) {
    const bool on_cpu = std::any_of(tuples.begin(), tuples.end(), [&](const TupleSource& other) {
      return other.provider == "cpu" && other.types == tuple.types;
    });
    if (!on_cpu)
      Fail(node, "every kernel of " + tuple.provider + " needs its counterpart under cpu");
  }
  return tuples;
}

std::vector<NameSource> ReadNames(const YAML::Node& node, const OpSource& op) {
  CheckSequence(node, "names", false);
  std::vector<NameSource> names;
  for (const YAML::Node& item : node) {
    CheckMap(item, "a name");
    NameSource source;
    source.name = Identifier(Required(item, "name", "a name"), "name");
    for (const auto& entry : item) {
      const std::string& key = entry.first.Scalar();
      if (key == "name") continue;
      const auto attribute =
          std::find_if(op.attributes.begin(), op.attributes.end(),
                       [&](const AttributeSource& candidate) { return candidate.name == key; });
      if (attribute == op.attributes.end())
        Fail(entry.first, "the op has no attribute '" + key + "'");
      const std::string value = Word(entry.second, key);
      float number = 0;
      const bool fits = attribute->kind == "string"
                            ? std::find(attribute->values.begin(), attribute->values.end(),
                                        value) != attribute->values.end()
                            : YAML::convert<float>::decode(entry.second, number);
      if (!fits) Fail(entry.second, "'" + value + "' is no value for the attribute '" + key + "'");
      source.implies.emplace_back(key, value);
    }
    names.push_back(std::move(source));
  }
  return names;
}

OpSource ReadOp(const YAML::Node& root) {
  CheckMap(root, "the file");
  OpSource op;
  const YAML::Node op_type = Required(root, "op", "the file");
  op.op_type = Identifier(op_type, "op");
  if (!op.op_type.starts_with("Liger")) Fail(op_type, "op types start with 'Liger'");
  const YAML::Node since = Required(root, "since_version", "the file");
  if (!YAML::convert<int>::decode(since, op.since_version) || op.since_version < 1) {
    Fail(since, "since_version must be a positive integer");
  }
  op.module = Identifier(Required(root, "module", "the file"), "module");
  op.algebra = Word(Required(root, "algebra", "the file"), "algebra");
  op.inputs = ReadPorts(Required(root, "inputs", "the file"), "inputs");
  op.outputs = ReadPorts(Required(root, "outputs", "the file"), "outputs");
  op.attributes = ReadAttributes(Required(root, "attributes", "the file"));
  op.kernels = ReadKernels(Required(root, "kernels", "the file"), op);
  if (const YAML::Node names = root["names"]) op.names = ReadNames(names, op);
  return op;
}

Error At(std::string_view file_name, const YAML::Mark& mark, std::string message) {
  std::string location(file_name);
  if (!mark.is_null()) {
    location += ":" + std::to_string(mark.line + 1) + ":" + std::to_string(mark.column + 1);
  }
  return {ErrorCode::kUsage, std::move(message), std::move(location), ""};
}

}  // namespace

Result<OpSource> ReadContract(std::string_view file_name, const std::string& text) {
  try {
    return ReadOp(YAML::Load(text));
  } catch (const ReadError& error) {
    return At(file_name, error.mark, error.message);
  } catch (const YAML::Exception& error) {
    return At(file_name, error.mark, error.msg);
  }
}

Result<std::vector<UnfusedSource>> ReadUnfusedNames(std::string_view file_name,
                                                    const std::string& text) {
  try {
    const YAML::Node root = YAML::Load(text);
    CheckKeys(root, "the file", {"schema_version", "unfused"});
    const YAML::Node list = Required(root, "unfused", "the file");
    CheckSequence(list, "unfused", false);
    std::vector<UnfusedSource> sources;
    for (const YAML::Node& item : list) {
      CheckKeys(item, "unfused", {"reason", "names"});
      UnfusedSource source;
      source.reason = Word(Required(item, "reason", "unfused"), "reason");
      const YAML::Node names = Required(item, "names", "unfused");
      CheckSequence(names, "names", false);
      for (const YAML::Node& name : names) source.names.push_back(Identifier(name, "name"));
      sources.push_back(std::move(source));
    }
    return sources;
  } catch (const ReadError& error) {
    return At(file_name, error.mark, error.message);
  } catch (const YAML::Exception& error) {
    return At(file_name, error.mark, error.msg);
  }
}

}  // namespace liger::opgen
