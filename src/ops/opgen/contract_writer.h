// Writes the C++ source of the generated tables.
//
//   std::string source = WriteContracts(ops);             // defines liger::Contracts()
//   std::string source = WriteOpNames(ops, unfused);      // defines liger::OpNames()
//   std::string source = WriteEmbeddedFiles(files);       // defines liger::EmbeddedPatches()
//
// All sort their input first, so that the output depends on the files alone.
#pragma once

#include <string>
#include <vector>

#include "ops/opgen/contract_reader.h"

namespace liger::opgen {

struct FileSource {
  std::string path;
  std::string contents;
};

std::string WriteContracts(std::vector<OpSource> ops);
// An error if two things have one name.
Result<std::string> WriteOpNames(const std::vector<OpSource>& ops,
                                 const std::vector<UnfusedSource>& unfused);
std::string WriteEmbeddedFiles(std::vector<FileSource> files);

}  // namespace liger::opgen
