#include "ops/opgen/contract_writer.h"

#include <algorithm>
#include <map>
#include <sstream>
#include <string_view>

namespace liger::opgen {
namespace {

// A C++ literal of any bytes. Octal escapes end after three digits, hexadecimal ones do not.
std::string Literal(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n\"\n    \"";
    } else if (byte < 0x20 || byte >= 0x7f) {
      out += '\\';
      out += static_cast<char>('0' + (byte >> 6));
      out += static_cast<char>('0' + ((byte >> 3) & 7));
      out += static_cast<char>('0' + (byte & 7));
    } else {
      out += c;
    }
  }
  return out + "\"";
}

std::string DTypeConstant(DType dtype) {
  return "static_cast<DType>(" + std::to_string(static_cast<int>(dtype)) + ")";
}

std::string KindConstant(const std::string& kind) {
  if (kind == "int") return "AttributeKind::kInt";
  if (kind == "float") return "AttributeKind::kFloat";
  if (kind == "string") return "AttributeKind::kString";
  return "AttributeKind::kDType";
}

void WritePorts(std::ostream& out, const std::string& name, const std::vector<PortSource>& ports) {
  out << "constexpr Port " << name << "[] = {\n";
  for (const PortSource& port : ports) {
    out << "    {" << Literal(port.name) << ", " << Literal(port.type_symbol) << ", "
        << (port.optional ? "true" : "false") << "},\n";
  }
  out << "};\n";
}

void WriteOp(std::ostream& out, const OpSource& op) {
  const std::string& prefix = op.op_type;
  WritePorts(out, "k" + prefix + "Inputs", op.inputs);
  WritePorts(out, "k" + prefix + "Outputs", op.outputs);
  for (const AttributeSource& attribute : op.attributes) {
    if (attribute.values.empty()) continue;
    out << "constexpr std::string_view k" << prefix << "_" << attribute.name << "[] = {";
    for (const std::string& value : attribute.values) out << Literal(value) << ", ";
    out << "};\n";
  }
  if (!op.attributes.empty()) {
    out << "constexpr AttributeSpec k" << prefix << "Attributes[] = {\n";
    for (const AttributeSource& attribute : op.attributes) {
      out << "    {" << Literal(attribute.name) << ", " << KindConstant(attribute.kind) << ", "
          << (attribute.values.empty() ? "{}" : "k" + prefix + "_" + attribute.name) << "},\n";
    }
    out << "};\n";
  }
  for (size_t i = 0; i < op.kernels.size(); ++i) {
    out << "constexpr TypeBinding k" << prefix << "Types" << i << "[] = {";
    for (const auto& [symbol, dtype] : op.kernels[i].types) {
      out << "{" << Literal(symbol) << ", " << DTypeConstant(dtype) << "}, ";
    }
    out << "};\n";
  }
  out << "constexpr TypeTuple k" << prefix << "Kernels[] = {\n";
  for (size_t i = 0; i < op.kernels.size(); ++i) {
    out << "    {" << (op.kernels[i].provider == "cuda" ? "Provider::kCuda" : "Provider::kCpu")
        << ", k" << prefix << "Types" << i << "},\n";
  }
  out << "};\n\n";
}

}  // namespace

std::string WriteContracts(std::vector<OpSource> ops) {
  std::sort(ops.begin(), ops.end(),
            [](const OpSource& a, const OpSource& b) { return a.op_type < b.op_type; });
  std::ostringstream out;
  out << "// Generated from patches/ops/*.yaml.\n#include \"ops/op_contract.h\"\n\n"
         "namespace liger {\nnamespace {\n\n";
  for (const OpSource& op : ops) WriteOp(out, op);
  out << "constexpr OpContract kContracts[] = {\n";
  for (const OpSource& op : ops) {
    const std::string& prefix = op.op_type;
    out << "    {" << Literal(prefix) << ", " << op.since_version << ", " << Literal(op.module)
        << ",\n     " << Literal(op.algebra) << ",\n     k" << prefix << "Inputs, k" << prefix
        << "Outputs, " << (op.attributes.empty() ? "{}" : "k" + prefix + "Attributes") << ", k"
        << prefix << "Kernels},\n";
  }
  out << "};\n\n}  // namespace\n\n"
         "std::span<const OpContract> Contracts() { return kContracts; }\n\n}  // namespace "
         "liger\n";
  return out.str();
}

Result<std::string> WriteOpNames(const std::vector<OpSource>& ops,
                                 const std::vector<UnfusedSource>& unfused) {
  std::map<std::string, std::string> entries;  // by name: the rest of its row
  std::ostringstream implied;
  std::string twice;
  const auto add = [&](const std::string& name, const std::string& row) {
    if (!entries.try_emplace(name, row).second) twice = name;
  };
  for (const OpSource& op : ops) {
    add(op.op_type, Literal(op.op_type) + ", {}, {}");
    for (const NameSource& name : op.names) {
      std::string values = "{}";
      if (!name.implies.empty()) {
        values = "k" + name.name;
        implied << "constexpr ImpliedAttribute " << values << "[] = {";
        for (const auto& [attribute, value] : name.implies) {
          implied << "{" << Literal(attribute) << ", " << Literal(value) << "}, ";
        }
        implied << "};\n";
      }
      add(name.name, Literal(op.op_type) + ", " + values + ", {}");
    }
  }
  for (const UnfusedSource& source : unfused) {
    for (const std::string& name : source.names) add(name, "{}, {}, " + Literal(source.reason));
  }
  if (!twice.empty()) {
    return Error{ErrorCode::kUsage, "two ops have the name '" + twice + "'", "names", ""};
  }
  std::ostringstream out;
  out << "// Generated from patches/ops/*.yaml and patches/unfused_names.yaml.\n"
         "#include \"patchmap/op_names.h\"\n\nnamespace liger {\nnamespace {\n\n"
      << implied.str() << "\nconstexpr OpName kNames[] = {\n";
  for (const auto& [name, row] : entries) out << "    {" << Literal(name) << ", " << row << "},\n";
  out << "};\n\n}  // namespace\n\n"
         "std::span<const OpName> OpNames() { return kNames; }\n\n}  // namespace liger\n";
  return out.str();
}

std::string WriteEmbeddedFiles(std::vector<FileSource> files) {
  std::sort(files.begin(), files.end(),
            [](const FileSource& a, const FileSource& b) { return a.path < b.path; });
  std::ostringstream out;
  out << "// Generated from patches/.\n#include \"ops/embedded_patches.h\"\n\n"
         "namespace liger {\nnamespace {\n\nconstexpr EmbeddedFile kFiles[] = {\n";
  for (const FileSource& file : files) {
    // The size is given, since a file may hold a zero byte.
    out << "    {" << Literal(file.path) << ", std::string_view(" << Literal(file.contents) << ", "
        << file.contents.size() << ")},\n";
  }
  out << "};\n\n}  // namespace\n\n"
         "std::span<const EmbeddedFile> EmbeddedPatches() { return kFiles; }\n\n}  // namespace "
         "liger\n";
  return out.str();
}

}  // namespace liger::opgen
