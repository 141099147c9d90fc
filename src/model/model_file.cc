#include "model/model_file.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <limits>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "model/posix_file.h"
#include "model/sha256.h"

namespace liger {
namespace {

namespace fs = std::filesystem;
namespace io = google::protobuf::io;

// Protobuf's limit for one message, also ONNX Runtime's.
constexpr int64_t kMaxModelBytes = std::numeric_limits<int32_t>::max();
constexpr int kStreamBlock = 1 << 20;

// Nesting of messages: protobuf's default, which ONNX Runtime keeps; each body of an If, Loop or
// Scan takes three levels. The larger number only serves to tell deep nesting from a damaged file.
constexpr int kMaxNesting = 100;
constexpr int kMaxNestingProbe = 1'000;

Error Invalid(std::string message, std::string hint) {
  return Error{ErrorCode::kInvalidModel, std::move(message), "", std::move(hint)};
}

Error WriteError(const fs::path& path, std::string_view what, std::string hint) {
  return Error{ErrorCode::kWrite, "cannot write " + Quoted(path) + ": " + std::string(what), "",
               std::move(hint)};
}

std::string ExportHint() { return "name an ONNX model (.onnx) in protobuf form"; }

// What a file is that is no ONNX protobuf, from its first bytes.
struct FileKind {
  std::string what;
  std::string hint;
};

// Printable characters in UTF-8; the last one may be cut off.
bool IsText(std::string_view head) {
  int continuation = 0;  // bytes that must still follow
  for (const char c : head) {
    const auto byte = static_cast<unsigned char>(c);
    if (continuation > 0) {
      if ((byte & 0xc0) != 0x80) return false;
      --continuation;
    } else if (byte >= 0x80) {
      continuation = byte >= 0xf0 ? 3 : byte >= 0xe0 ? 2 : 1;
      if (byte < 0xc2 || byte > 0xf4) return false;
    } else if (std::isprint(byte) == 0 && c != '\n' && c != '\r' && c != '\t') {
      return false;
    }
  }
  return true;
}

std::optional<FileKind> RecogniseOtherFormat(std::string_view head, std::string_view file_name) {
  const auto starts = [&](std::string_view s, size_t at = 0) {
    return head.size() >= at && head.substr(at).starts_with(s);
  };
  using namespace std::string_view_literals;
  if (starts("version https://git-lfs.github.com/spec/")) {
    return FileKind{"is a Git LFS pointer, not the model itself",
                    "fetch the file with 'git lfs pull', or download it again"};
  }
  if (starts("PK\x03\x04")) {
    return FileKind{"is a zip archive (PyTorch checkpoints are such archives)",
                    "unpack it, or export the model to ONNX first"};
  }
  if (starts("\x1f\x8b")) return FileKind{"is a gzip archive", "unpack it first"};
  if (starts("\x80\x02"sv) || starts("\x80\x04"sv)) {
    return FileKind{"is a Python pickle", "export the model to ONNX first"};
  }
  if (starts("\x89HDF")) {
    return FileKind{"is an HDF5 file (Keras)",
                    "convert it to ONNX first, for instance with tf2onnx"};
  }
  if (starts("GGUF")) return FileKind{"is a GGUF file", "export the model to ONNX first"};
  if (starts("ORTM", 4)) {
    return FileKind{"is in ONNX Runtime's own format (.ort)",
                    "name the .onnx file from which it was made"};
  }
  if (starts("{", 8) && head.size() > 8 && !IsText(head.substr(0, 8))) {
    return FileKind{"is a safetensors file, which holds weights without a graph",
                    "export the model to ONNX first"};
  }
  // A SavedModel starts with schema version 1, then a meta graph; as an ONNX model that would be
  // ir_version 1 and a producer name.
  if (file_name == "saved_model.pb" || starts("\x08\x01\x12"sv)) {
    return FileKind{"is a TensorFlow SavedModel",
                    "convert it to ONNX first: python -m tf2onnx.convert --saved-model FOLDER "
                    "--output model.onnx"};
  }
  if (head.empty() || !IsText(head)) return std::nullopt;

  const size_t first = head.find_first_not_of(" \t\r\n");
  const std::string_view text = first == std::string_view::npos ? "" : head.substr(first);
  if (text.starts_with("<!") || text.starts_with("<html") || text.starts_with("<HTML")) {
    return FileKind{"is an HTML page, as a failed download leaves it", "download the model again"};
  }
  if (text.starts_with("{") || text.starts_with("[")) {
    return FileKind{"is JSON text, not a protobuf", ExportHint()};
  }
  if (text.starts_with("<") || text.starts_with("ir_version")) {
    return FileKind{"is ONNX text, not a protobuf",
                    "save it in protobuf form: onnx.save(onnx.parser.parse_model(text), path) for "
                    "ONNX's text syntax, onnx.load(path, format='textproto') for protobuf text"};
  }
  return FileKind{"is a text file, not an ONNX model", ExportHint()};
}

// Reads a descriptor, and hashes and counts what went through.
class HashingInput : public io::CopyingInputStream {
 public:
  explicit HashingInput(int fd) : fd_(fd) {}

  int Read(void* buffer, int size) override {
    const ssize_t got = ReadAt(fd_, buffer, static_cast<size_t>(size), static_cast<off_t>(count_));
    if (got < 0) {
      error_ = errno;
      return -1;
    }
    hash_.Update(buffer, static_cast<size_t>(got));
    count_ += got;
    return static_cast<int>(got);
  }

  int64_t count() const { return count_; }
  int error() const { return error_; }
  std::string HexDigest() { return hash_.HexDigest(); }

 private:
  int fd_;
  Sha256 hash_;
  int64_t count_ = 0;
  int error_ = 0;
};

// Writes to a descriptor, and hashes and counts what went through.
class HashingOutput : public io::CopyingOutputStream {
 public:
  explicit HashingOutput(int fd) : fd_(fd) {}

  bool Write(const void* buffer, int size) override {
    error_ = WriteAll(fd_, buffer, static_cast<size_t>(size));
    if (error_ != 0) return false;
    hash_.Update(buffer, static_cast<size_t>(size));
    count_ += size;
    return true;
  }

  int64_t count() const { return count_; }
  int error() const { return error_; }
  std::string HexDigest() { return hash_.HexDigest(); }

 private:
  int fd_;
  Sha256 hash_;
  int64_t count_ = 0;
  int error_ = 0;
};

bool ParseStream(io::ZeroCopyInputStream& stream, int nesting, onnx::ModelProto& model) {
  io::CodedInputStream coded(&stream);
  coded.SetRecursionLimit(nesting);
  coded.SetTotalBytesLimit(static_cast<int>(kMaxModelBytes));
  return model.ParseFromCodedStream(&coded) && coded.ConsumedEntireMessage();
}

// Why bytes that did not parse, or parsed into something without a graph, are no model.
Error NotAModel(const std::string& subject, std::string_view head, std::string_view file_name,
                std::string_view otherwise, std::string hint) {
  if (auto kind = RecogniseOtherFormat(head, file_name)) {
    return Invalid(subject + " " + kind->what, kind->hint);
  }
  return Invalid(subject + " " + std::string(otherwise), std::move(hint));
}

Status CheckHasModel(const onnx::ModelProto& model, const std::string& subject,
                     std::string_view head, std::string_view file_name) {
  if (!model.has_graph()) {
    return NotAModel(subject, head, file_name, "is a protobuf message, but holds no ONNX graph",
                     "test data (input_0.pb), frozen TensorFlow graphs and files that were cut off "
                     "look like this; " +
                         ExportHint());
  }
  if (model.ir_version() <= 0) {
    return NotAModel(subject, head, file_name, "holds a graph but no ir_version",
                     "write the model again with the exporter's or onnx's own save function");
  }
  if (model.opset_import().empty()) {
    return Invalid(subject + " imports no operator set",
                   "the file was cut off or written by hand: every model names the versions of its "
                   "operator sets in opset_import");
  }
  return {};
}

std::string_view View(const std::vector<char>& bytes) { return {bytes.data(), bytes.size()}; }

// Why a folder is no model, and which file in it may be meant.
Error IsFolder(const fs::path& path) {
  std::error_code ignored;
  std::vector<std::string> models;
  bool saved_model = false;
  for (fs::directory_iterator it(path, ignored), end; !ignored && it != end;
       it.increment(ignored)) {
    if (it->path().extension() == ".onnx") models.push_back(it->path().filename().string());
    if (it->path().filename() == "saved_model.pb") saved_model = true;
  }
  std::sort(models.begin(), models.end());
  std::string hint = "name the .onnx file in it";
  if (models.empty()) {
    hint = saved_model ? RecogniseOtherFormat("", "saved_model.pb")->hint : "name an .onnx file";
  } else {
    constexpr size_t kShown = 5;
    for (size_t i = 0; i < std::min(models.size(), kShown); ++i) {
      hint += (i == 0 ? ": " : ", ") + models[i];
    }
    if (models.size() > kShown) hint += ", ...";
  }
  return Invalid(Quoted(path) + " is a folder" +
                     (saved_model && models.empty() ? " (a TensorFlow SavedModel)" : ""),
                 hint);
}

Error CannotRead(const fs::path& path, int error) {
  const std::string name = Quoted(path);
  if (error == ENOENT) {
    std::error_code ignored;
    if (fs::is_symlink(path, ignored)) {
      return Invalid(name + " is a link to " + Quoted(fs::read_symlink(path, ignored)) +
                         ", which does not exist",
                     "download or restore the file it leads to");
    }
    return Invalid(name + " does not exist", "check the path");
  }
  return Invalid(name + " cannot be read: " + ErrnoText(error),
                 error == EACCES || error == EPERM ? "check the permissions of the file and of the "
                                                     "folders above it"
                                                   : "check the path and the disk");
}

// Parses everything `stream` gives; `reopen` gives the bytes once more, to explain a failure.
template <typename Reopen>
Status ParseModel(io::ZeroCopyInputStream& stream, const std::string& subject,
                  std::string_view head, std::string_view file_name, const Reopen& reopen,
                  onnx::ModelProto& model) {
  if (!ParseStream(stream, kMaxNesting, model)) {
    if (!RecogniseOtherFormat(head, file_name)) {
      model.Clear();
      onnx::ModelProto probe;
      if (reopen([&](io::ZeroCopyInputStream& again) {
            return ParseStream(again, kMaxNestingProbe, probe);
          })) {
        return Invalid(
            subject + " nests graphs deeper than ONNX Runtime can read",
            "protobuf readers stop at 100 nested messages, about 33 nested bodies of If, "
            "Loop or Scan");
      }
    }
    return NotAModel(subject, head, file_name, "is no ONNX model, or is cut off or damaged",
                     "compare its size with the original's and download or export it again");
  }
  return CheckHasModel(model, subject, head, file_name);
}

Result<ModelFile> Load(const fs::path& path) {
  struct stat info;
  if (::stat(path.c_str(), &info) != 0) return CannotRead(path, errno);
  if (S_ISDIR(info.st_mode)) return IsFolder(path);
  const std::string subject = Quoted(path);
  if (!S_ISREG(info.st_mode)) {
    return Invalid(subject + " is not a regular file", "save the model to a file first");
  }
  if (info.st_size == 0) {
    return Invalid(subject + " is empty", "download or export the model again");
  }

  const UniqueFd fd = OpenForReading(path);
  if (!fd.is_open()) return CannotRead(path, errno);
  std::vector<char> head(512);
  const ssize_t head_size = ReadAt(fd.get(), head.data(), head.size(), 0);
  if (head_size < 0) return CannotRead(path, errno);
  head.resize(static_cast<size_t>(head_size));
  const std::string file_name = path.filename().string();

  if (info.st_size > kMaxModelBytes) {
    return NotAModel(subject, View(head), file_name,
                     "has " + std::to_string(info.st_size) +
                         " bytes, more than the 2 GiB that a protobuf can hold",
                     "save the model with its weights as external data: onnx.save(model, path, "
                     "save_as_external_data=True)");
  }

  ModelFile file;
  file.path = path;
  HashingInput input(fd.get());
  io::CopyingInputStreamAdaptor stream(&input, kStreamBlock);
  const auto reopen = [&](const auto& parse) {
    HashingInput again(fd.get());
    io::CopyingInputStreamAdaptor again_stream(&again, kStreamBlock);
    return parse(again_stream);
  };
  const Status parsed = ParseModel(stream, subject, View(head), file_name, reopen, file.proto);
  if (input.error() != 0) return CannotRead(path, input.error());
  if (!parsed) return parsed.error();

  file.size = input.count();
  file.sha256 = input.HexDigest();
  file.real_path = fs::canonical(path);
  file.folder = ModelFolder::Of(path);
  return file;
}

Result<ModelFile> Parse(std::span<const std::byte> bytes, const fs::path& folder,
                        const std::string& subject) {
  if (bytes.empty()) return Invalid(subject + " is empty", "pass the bytes of an ONNX model");
  const std::string_view all(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const std::string_view head = all.substr(0, 512);
  if (static_cast<int64_t>(bytes.size()) > kMaxModelBytes) {
    return NotAModel(subject, head, "",
                     "has " + std::to_string(bytes.size()) +
                         " bytes, more than the 2 GiB that a protobuf can hold",
                     "keep the weights as external data");
  }

  ModelFile file;
  const int size = static_cast<int>(bytes.size());
  io::ArrayInputStream stream(bytes.data(), size);
  const auto reopen = [&](const auto& parse) {
    io::ArrayInputStream again(bytes.data(), size);
    return parse(again);
  };
  if (Status parsed = ParseModel(stream, subject, head, "", reopen, file.proto); !parsed) {
    return std::move(parsed).error();
  }
  Sha256 hash;
  hash.Update(bytes.data(), bytes.size());
  file.size = size;
  file.sha256 = hash.HexDigest();
  file.folder = ModelFolder(folder);
  return file;
}

std::string WriteHint(int error) {
  switch (error) {
    case ENOSPC:
    case EDQUOT:
      return "free some space, or choose another folder with -o";
    case EACCES:
    case EPERM:
    case EROFS:
      return "choose a folder you may write to with -o";
    default:
      return "choose another path with -o";
  }
}

// Writes the model's bytes to an open file.
Result<SavedFile> WriteTo(const onnx::ModelProto& model, int fd, const fs::path& output) {
  const size_t size = model.ByteSizeLong();
  if (size > static_cast<size_t>(kMaxModelBytes)) {
    return WriteError(output,
                      "the model has " + std::to_string(size) +
                          " bytes, more than the 2 GiB that a protobuf can hold",
                      "save the input with its weights as external data first: onnx.save(model, "
                      "path, save_as_external_data=True)");
  }
  HashingOutput destination(fd);
  bool written = false;
  {
    io::CopyingOutputStreamAdaptor stream(&destination, kStreamBlock);
    {
      io::CodedOutputStream coded(&stream);
      coded.SetSerializationDeterministic(true);
      model.SerializeWithCachedSizes(&coded);
      coded.Trim();
      written = !coded.HadError();
    }
    written = stream.Flush() && written;
  }
  if (!written) {
    const int error = destination.error() != 0 ? destination.error() : EIO;
    return WriteError(output, ErrnoText(error), WriteHint(error));
  }
  if (destination.count() != static_cast<int64_t>(size)) {
    return Error{ErrorCode::kInternal,
                 "the model changed while it was being written to " + Quoted(output), "", ""};
  }
  return SavedFile{output, destination.count(), destination.HexDigest()};
}

Result<SavedFile> Save(const onnx::ModelProto& model, const fs::path& output,
                       const SaveOptions& options) {
  if (output.filename().empty()) {
    return WriteError(output, "the path names no file", "name the file to write with -o");
  }
  const fs::path folder = output.parent_path().empty() ? fs::path(".") : output.parent_path();
  struct stat info;
  if (::stat(folder.c_str(), &info) != 0) {
    return errno == ENOENT ? WriteError(output, "the folder " + Quoted(folder) + " does not exist",
                                        "create the folder first")
                           : WriteError(output, ErrnoText(errno), WriteHint(errno));
  }
  if (!S_ISDIR(info.st_mode)) {
    return WriteError(output, Quoted(folder) + " is not a folder", "choose another path with -o");
  }

  mode_t mode = 0666;
  bool keep_mode = false;
  if (::lstat(output.c_str(), &info) == 0) {
    if (S_ISDIR(info.st_mode)) {
      return WriteError(output, "it is a folder", "name a file in that folder");
    }
    if (!S_ISREG(info.st_mode) && !S_ISLNK(info.st_mode)) {
      return WriteError(output, "it is not a regular file", "choose another path with -o");
    }
    if (S_ISREG(info.st_mode)) {
      mode = info.st_mode & 0777;
      keep_mode = true;
    }
  }

  TemporaryFile temporary(output, mode);
  if (!temporary.is_open()) {
    return WriteError(output, ErrnoText(temporary.error()), WriteHint(temporary.error()));
  }
  if (keep_mode) ::fchmod(temporary.fd(), mode);  // the umask narrowed it; best effort

  auto saved = WriteTo(model, temporary.fd(), output);
  if (!saved) return saved;
  if (options.sync && ::fsync(temporary.fd()) != 0) {
    return WriteError(output, ErrnoText(errno), WriteHint(errno));
  }
  if (const int error = temporary.Replace()) {
    return WriteError(output, ErrnoText(error), WriteHint(error));
  }
  return saved;
}

// Runs `function`, turning what libraries may throw (no memory, a path that cannot be resolved)
// into an Error.
template <typename Function>
auto CatchingExceptions(ErrorCode code, const std::string& what, const Function& function)
    -> decltype(function()) {
  try {
    return function();
  } catch (const std::bad_alloc&) {
    return Error{code, what + ": not enough memory", "", "the model is held in memory once"};
  } catch (const std::exception& e) {
    return Error{code, what + ": " + e.what(), "", ""};
  }
}

}  // namespace

Result<ModelFile> LoadModelFile(const fs::path& path) {
  return CatchingExceptions(ErrorCode::kInvalidModel, "cannot read " + Quoted(path),
                            [&] { return Load(path); });
}

Result<ModelFile> ParseModelBytes(std::span<const std::byte> bytes, const fs::path& folder,
                                  const std::string& name) {
  return CatchingExceptions(ErrorCode::kInvalidModel, "cannot read " + name,
                            [&] { return Parse(bytes, folder, name); });
}

Result<SavedFile> SaveModelFile(const onnx::ModelProto& model, const fs::path& output,
                                const SaveOptions& options) {
  return CatchingExceptions(ErrorCode::kWrite, "cannot write " + Quoted(output),
                            [&] { return Save(model, output, options); });
}

Result<SavedFile> WriteModel(const onnx::ModelProto& model, int fd, const std::string& name) {
  return CatchingExceptions(ErrorCode::kWrite, "cannot write " + name,
                            [&] { return WriteTo(model, fd, name); });
}

Status WriteBytes(std::span<const std::byte> bytes, int fd, const std::string& name) {
  HashingOutput destination(fd);
  io::CopyingOutputStreamAdaptor stream(&destination, kStreamBlock);
  const bool written = [&] {
    io::CodedOutputStream coded(&stream);
    coded.WriteRaw(bytes.data(), static_cast<int>(bytes.size()));
    coded.Trim();
    return !coded.HadError();
  }();
  if (written && stream.Flush()) return {};
  const int error = destination.error() != 0 ? destination.error() : EIO;
  return WriteError(name, ErrnoText(error), WriteHint(error));
}

bool SameFile(const fs::path& a, const fs::path& b) {
  struct stat info_a;
  struct stat info_b;
  return ::stat(a.c_str(), &info_a) == 0 && ::stat(b.c_str(), &info_b) == 0 &&
         info_a.st_dev == info_b.st_dev && info_a.st_ino == info_b.st_ino;
}

}  // namespace liger
