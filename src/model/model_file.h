// Model files: reading with clear errors, writing so that no half-written file is ever seen.
//
//   Result<ModelFile> file = LoadModelFile("model.onnx");
//   if (!file) return file.error();
//   ... change file->proto ...
//   Result<SavedFile> saved = SaveModelFile(file->proto, "model.liger.onnx");
//
// External data is neither opened nor checked here (model/external_data.h). Inline payloads are
// held once: the file is read in pieces, not as a whole beside the parsed model.
#pragma once

#include <onnx/onnx_pb.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "base/error.h"
#include "model/external_data.h"

namespace liger {

struct ModelFile {
  onnx::ModelProto proto;
  std::filesystem::path path;       // as given; empty for a model from memory
  std::filesystem::path real_path;  // without links; empty for a model from memory
  ModelFolder folder;               // where external data is
  int64_t size = 0;                 // bytes of the file, without external data
  std::string sha256;               // of these bytes
};

// Reads and parses. Errors are kInvalidModel and say what the file is if it is no ONNX model: a
// folder, empty, text, a Git LFS pointer, another model format, cut off, over 2 GiB. The model has
// a graph, an ir_version and an opset import; nothing else is checked.
Result<ModelFile> LoadModelFile(const std::filesystem::path& path);

// The same from memory. Locations of external data start from `folder`; `name` stands in messages.
Result<ModelFile> ParseModelBytes(std::span<const std::byte> bytes,
                                  const std::filesystem::path& folder,
                                  const std::string& name = "the model in memory");

struct SavedFile {
  std::filesystem::path path;
  int64_t size = 0;
  std::string sha256;
};

struct SaveOptions {
  bool sync = false;  // wait until the bytes are on the disk before the file gets its name
};

// Writes the model to a temporary file in the same folder, which then takes the name `output`. The
// same model always gives the same bytes. If `output` is a link, the link is replaced and what it
// leads to is left alone; an existing file keeps its permissions, a new one follows the umask. On
// an Error (kWrite) `output` is as it was. Whether `output` may be replaced is for the caller to
// decide.
Result<SavedFile> SaveModelFile(const onnx::ModelProto& model, const std::filesystem::path& output,
                                const SaveOptions& options = {});

// The same bytes to an open file, a pipe for instance; `name` stands for it in messages.
Result<SavedFile> WriteModel(const onnx::ModelProto& model, int fd, const std::string& name);

// Bytes as they are to an open file.
Status WriteBytes(std::span<const std::byte> bytes, int fd, const std::string& name);

// The same file, through links and hard links; false if either does not exist.
bool SameFile(const std::filesystem::path& a, const std::filesystem::path& b);

}  // namespace liger
