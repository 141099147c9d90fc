// Build-time generator of src/ops:
//   liger_opgen contracts OUT.cc OP.yaml...       tables behind op_contract.h
//   liger_opgen names OUT.cc UNFUSED.yaml OP.yaml...  table behind patchmap/op_names.h
//   liger_opgen embed OUT.cc ROOT FILE...         tables behind embedded_patches.h, paths relative
//   to ROOT
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "ops/opgen/contract_reader.h"
#include "ops/opgen/contract_writer.h"

namespace {

using liger::Error;
using liger::ErrorCode;
using liger::Result;
using liger::Status;

Result<std::string> ReadFile(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(in), {}};
  if (!in) return Error{ErrorCode::kUsage, "cannot read the file", path, ""};
  return text;
}

Status WriteFile(const std::string& path, const std::string& text) {
  std::ofstream out(path, std::ios::binary);
  out << text << std::flush;
  if (!out) return Error{ErrorCode::kWrite, "cannot write the file", path, ""};
  return {};
}

Result<std::vector<liger::opgen::OpSource>> ReadOps(const std::vector<std::string>& paths) {
  std::vector<liger::opgen::OpSource> ops;
  std::set<std::string> seen;
  for (const std::string& path : paths) {
    Result<std::string> text = ReadFile(path);
    if (!text) return text.error();
    Result<liger::opgen::OpSource> op = liger::opgen::ReadContract(path, *text);
    if (!op) return op.error();
    if (!seen.insert(op->op_type).second) {
      return Error{ErrorCode::kUsage, "op '" + op->op_type + "' is defined by another file", path,
                   ""};
    }
    ops.push_back(*std::move(op));
  }
  return ops;
}

Status GenerateContracts(const std::string& out, const std::vector<std::string>& paths) {
  Result<std::vector<liger::opgen::OpSource>> ops = ReadOps(paths);
  if (!ops) return ops.error();
  return WriteFile(out, liger::opgen::WriteContracts(*std::move(ops)));
}

Status GenerateNames(const std::string& out, const std::string& unfused_path,
                     const std::vector<std::string>& paths) {
  Result<std::vector<liger::opgen::OpSource>> ops = ReadOps(paths);
  if (!ops) return ops.error();
  Result<std::string> text = ReadFile(unfused_path);
  if (!text) return text.error();
  Result<std::vector<liger::opgen::UnfusedSource>> unfused =
      liger::opgen::ReadUnfusedNames(unfused_path, *text);
  if (!unfused) return unfused.error();
  Result<std::string> source = liger::opgen::WriteOpNames(*ops, *unfused);
  if (!source) return source.error();
  return WriteFile(out, *source);
}

Status GenerateEmbedded(const std::string& out, const std::string& root,
                        const std::vector<std::string>& paths) {
  std::vector<liger::opgen::FileSource> files;
  for (const std::string& path : paths) {
    Result<std::string> text = ReadFile(path);
    if (!text) return text.error();
    files.push_back(
        {std::filesystem::path(path).lexically_relative(root).generic_string(), *std::move(text)});
  }
  return WriteFile(out, liger::opgen::WriteEmbeddedFiles(std::move(files)));
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> args(argv + 1, argv + argc);
  std::optional<Status> status;
  if (args.size() > 2 && args[0] == "contracts") {
    status = GenerateContracts(args[1], {args.begin() + 2, args.end()});
  } else if (args.size() > 3 && args[0] == "names") {
    status = GenerateNames(args[1], args[2], {args.begin() + 3, args.end()});
  } else if (args.size() > 3 && args[0] == "embed") {
    status = GenerateEmbedded(args[1], args[2], {args.begin() + 3, args.end()});
  }
  if (!status) {
    std::cerr << "usage: liger_opgen contracts OUT.cc OP.yaml...\n"
                 "       liger_opgen names OUT.cc UNFUSED.yaml OP.yaml...\n"
                 "       liger_opgen embed OUT.cc ROOT FILE...\n";
    return 2;
  }
  if (!*status) {
    std::cerr << status->error().location << ": " << status->error().message << "\n";
    return static_cast<int>(status->error().code);
  }
  return 0;
}
