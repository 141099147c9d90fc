// Tensors whose payload stands in files beside the model: where they are, whether ONNX Runtime will
// accept them, reading a few bytes of them, and bringing the files along to another folder.
//
//   Result<ExternalData> data = FindExternalData(file.proto, file.folder);
//   Result<ExternalDataPlan> plan = PlanExternalData(*data, "out/model.liger.onnx", mode);
//   Result<ExternalDataFiles> placed = ApplyExternalData(*plan);    // then save the model
//
// FindExternalData and PlanExternalData look at file names and sizes only: no data file is opened.
// Payloads never pass through memory as a whole, and no file that was there before is ever changed,
// replaced or removed. Locations in the model stay as they are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "model/graph.h"

namespace onnx {
class ModelProto;
class TensorProto;
}  // namespace onnx

namespace liger {

// Whether `path` lies in `folder` or is it; both without links and in normal form.
bool IsInside(const std::filesystem::path& path, const std::filesystem::path& folder);

// Where the locations of a model's external data start from. Data is looked for beside the path the
// user gave and, if that path is a link, then beside the file it leads to. A data file must,
// through all links, lie in one of the two folders: that is the rule of ONNX Runtime from 1.24 on,
// and what lets a Hugging Face cache work, where model and data are links into the same folder.
struct ModelFolder {
  std::filesystem::path given;  // the folder of the path the user gave
  std::filesystem::path real;   // the folder of the file that path leads to, without links

  ModelFolder() = default;
  // A folder that is no link's: both are the same.
  ModelFolder(const std::filesystem::path& folder);  // NOLINT: a folder is a ModelFolder
  ModelFolder(std::filesystem::path given_folder, std::filesystem::path real_folder)
      : given(std::move(given_folder)), real(std::move(real_folder)) {}

  // The folder of the model at `model_path`, which must exist.
  static ModelFolder Of(const std::filesystem::path& model_path);
};

// One tensor with external data, as the model declares it.
struct ExternalTensor {
  std::string name;      // of the tensor, or of the place where it has none
  std::string place;     // "initializer", "node 'n' attribute 'value'", ...
  std::string location;  // as written in the model
  int64_t offset = 0;
  std::optional<int64_t> length;  // absent: to the end of what dtype and dims need
  int32_t onnx_dtype = 0;
  std::vector<int64_t> dims;
  int64_t bytes = -1;  // what dtype and dims need; -1 for a dtype of unknown size
};

// One data file. Several locations ("w", "./w") can name the same file.
struct ExternalFile {
  std::string location;             // normalised: "sub/../w" is "w"
  std::filesystem::path real_path;  // without links
  int64_t size = 0;
};

struct ExternalData {
  ModelFolder folder;
  std::vector<ExternalTensor> tensors;  // in the order of the model
  std::vector<ExternalFile> files;      // sorted by location

  bool empty() const { return tensors.empty(); }
};

// Every external tensor of the whole model: initializers, dense and sparse, of all graphs,
// attributes of nodes, functions, training graphs. A malformed entry is an Error (kInvalidModel).
Result<std::vector<ExternalTensor>> ListExternalTensors(const onnx::ModelProto& model);

// The same, each entry checked by ONNX Runtime's rules: the location is relative and stays in the
// folder (see ModelFolder), the file exists and is a regular file, holds offset + length bytes, and
// the length is what dtype and dims need. The Error (kInvalidModel) names tensor, file and remedy.
Result<ExternalData> FindExternalData(const onnx::ModelProto& model, const ModelFolder& folder);

// The same, with everything that is wrong: one Error for each file that cannot be used and for each
// tensor that does not fit into its file, `location` set to that of the file. `data.files` holds
// the files that can be used. Only a malformed entry ends it.
struct ExternalFindings {
  ExternalData data;
  std::vector<Error> faults;
};
Result<ExternalFindings> CheckExternalData(const onnx::ModelProto& model,
                                           const ModelFolder& folder);

// Bytes that dtype and dims need, packed dtypes of 2, 4 and 6 bits included; -1 if there is no such
// number (strings, an unknown dtype, negative dims, overflow).
int64_t PayloadBytes(int32_t onnx_dtype, const std::vector<int64_t>& dims);

// Reads ranges of data files, by the rules of FindExternalData, and remembers each read.
class ExternalReader {
 public:
  explicit ExternalReader(ModelFolder folder) : folder_(std::move(folder)) {}

  // Exactly `length` bytes from `offset` on; fewer in the file are an Error. `tensor` is for the
  // record and for messages.
  Result<std::vector<std::byte>> ReadRange(const std::string& location, int64_t offset,
                                           int64_t length, std::string_view tensor = "");

  // The payload of one external tensor.
  Result<std::vector<std::byte>> Read(const onnx::TensorProto& tensor);

  const std::vector<WeightRead>& reads() const { return reads_; }

 private:
  ModelFolder folder_;
  std::vector<WeightRead> reads_;
};

enum class ExternalDataMode {
  kAuto,      // only what needs no data file to be made
  kCopy,      // copy, sharing the blocks where the file system can
  kHardlink,  // a second name for the same file
  // The caller brings along, at their locations, the files beside the model as it was given; what
  // lies elsewhere is copied.
  kCarried,
};

// "auto", "copy", "hardlink": what a user can choose.
std::optional<ExternalDataMode> ParseExternalDataMode(std::string_view name);

struct ExternalDataStep {
  enum class Kind {
    kKeep,     // the output finds the file at its location already
    kCompare,  // another file of this name and size is there: used if its bytes are the same
    kCopy,
    kHardlink,
  };
  Kind kind = Kind::kKeep;
  std::string location;
  std::filesystem::path source;  // without links
  std::filesystem::path target;
  int64_t size = 0;
};

struct ExternalDataPlan {
  std::vector<ExternalDataStep> steps;         // one per data file, sorted by location
  std::vector<std::filesystem::path> folders;  // to be made first, outer before inner
  std::vector<std::string> notes;              // what the user should know

  // No data file has to be made or compared.
  bool nothing_to_do() const;
};

// What has to happen so that a model written to `output` finds its data. Decides only. Errors
// (kWrite): the folder does not exist; a file must be copied or linked and `mode` is kAuto; a file
// of that name is there with another size; the place is taken by a link that leads out of the
// folder, as in a Hugging Face cache: such a link is never replaced.
Result<ExternalDataPlan> PlanExternalData(const ExternalData& data,
                                          const std::filesystem::path& output,
                                          ExternalDataMode mode);

struct ExternalDataFiles {
  std::vector<std::filesystem::path> created;  // files that were not there before
  std::vector<std::filesystem::path> created_folders;
  int64_t copied_bytes = 0;  // bytes written, holes and shared blocks not counted
};

// Carries out a plan. Each file appears under its name only when it is complete; on an Error
// (kWrite) everything this call made is removed again. Calls from several threads take turns: a file
// that another one has just made is compared, as if it had been there before.
Result<ExternalDataFiles> ApplyExternalData(const ExternalDataPlan& plan);

// Takes back what ApplyExternalData made, for the case that the model could not be written after
// it.
void RemoveCreated(const ExternalDataFiles& files);

}  // namespace liger
