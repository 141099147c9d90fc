#include "model/external_data.h"

#include <linux/fs.h>
#include <onnx/onnx_pb.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <system_error>

#include "model/posix_file.h"

namespace liger {
namespace {

namespace fs = std::filesystem;

constexpr size_t kCopyBuffer = 1 << 20;

Error Invalid(std::string message, std::string hint) {
  return Error{ErrorCode::kInvalidModel, std::move(message), "", std::move(hint)};
}

Error WriteError(std::string message, std::string hint) {
  return Error{ErrorCode::kWrite, std::move(message), "", std::move(hint)};
}

std::string SizeText(int64_t bytes) {
  if (bytes < 10'000) return std::to_string(bytes) + " bytes";
  static constexpr std::string_view kUnits[] = {"kB", "MB", "GB", "TB"};
  double value = static_cast<double>(bytes) / 1000;
  size_t unit = 0;
  while (value >= 1000 && unit + 1 < std::size(kUnits)) {
    value /= 1000;
    ++unit;
  }
  char text[32];
  std::snprintf(text, sizeof(text), value < 10 ? "%.1f " : "%.0f ", value);
  return text + std::string(kUnits[unit]);
}

fs::path CurrentIfEmpty(const fs::path& folder) { return folder.empty() ? fs::path(".") : folder; }

// Without links where that can be found out, else as it is.
fs::path WithoutLinks(const fs::path& path) {
  std::error_code error;
  fs::path resolved = fs::weakly_canonical(fs::absolute(path, error), error);
  return error ? path : resolved;
}

// --- The tensors of a model ---------------------------------------------------------------------

using TensorVisitor = std::function<void(const onnx::TensorProto&, const std::string& place)>;

// Graphs and functions are visited from a worklist: how deep bodies nest is up to the model.
class TensorWalk {
 public:
  explicit TensorWalk(TensorVisitor visit) : visit_(std::move(visit)) {}

  void Run(const onnx::ModelProto& model) {
    graphs_.push_back(&model.graph());
    for (const onnx::TrainingInfoProto& training : model.training_info()) {
      graphs_.push_back(&training.initialization());
      graphs_.push_back(&training.algorithm());
    }
    DrainGraphs();
    for (const onnx::FunctionProto& function : model.functions()) {
      for (const onnx::AttributeProto& attribute : function.attribute_proto()) {
        Visit(attribute, "function '" + function.name() + "'");
      }
      for (const onnx::NodeProto& node : function.node()) Visit(node);
      DrainGraphs();
    }
  }

 private:
  void DrainGraphs() {
    while (!graphs_.empty()) {
      const onnx::GraphProto& graph = *graphs_.front();
      graphs_.pop_front();
      for (const onnx::TensorProto& tensor : graph.initializer()) visit_(tensor, "initializer");
      for (const onnx::SparseTensorProto& sparse : graph.sparse_initializer()) {
        Visit(sparse, "sparse initializer '" + sparse.values().name() + "'");
      }
      for (const onnx::NodeProto& node : graph.node()) Visit(node);
    }
  }

  void Visit(const onnx::SparseTensorProto& sparse, const std::string& place) {
    if (sparse.has_values()) visit_(sparse.values(), place);
    if (sparse.has_indices()) visit_(sparse.indices(), place);
  }

  void Visit(const onnx::NodeProto& node) {
    for (const onnx::AttributeProto& attribute : node.attribute()) {
      const std::string& name =
          !node.name().empty() || node.output().empty() ? node.name() : node.output(0);
      Visit(attribute, node.op_type() + " node '" + name + "'");
    }
  }

  void Visit(const onnx::AttributeProto& attribute, const std::string& owner) {
    const auto place = [&] { return owner + ", attribute '" + attribute.name() + "'"; };
    if (attribute.has_t()) visit_(attribute.t(), place());
    for (const onnx::TensorProto& tensor : attribute.tensors()) visit_(tensor, place());
    if (attribute.has_sparse_tensor()) Visit(attribute.sparse_tensor(), place());
    for (const onnx::SparseTensorProto& sparse : attribute.sparse_tensors()) Visit(sparse, place());
    if (attribute.has_g()) graphs_.push_back(&attribute.g());
    for (const onnx::GraphProto& graph : attribute.graphs()) graphs_.push_back(&graph);
  }

  TensorVisitor visit_;
  std::deque<const onnx::GraphProto*> graphs_;
};

std::optional<int64_t> ParseCount(const std::string& text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0) return std::nullopt;
  return value;
}

std::string Subject(const ExternalTensor& tensor) {
  return "tensor '" + tensor.name + "'" +
         (tensor.place == "initializer" ? "" : " (" + tensor.place + ")");
}

Result<ExternalTensor> ReadEntry(const onnx::TensorProto& proto, const std::string& place) {
  ExternalTensor tensor;
  tensor.name = proto.name();
  tensor.place = place;
  tensor.onnx_dtype = proto.data_type();
  tensor.dims.assign(proto.dims().begin(), proto.dims().end());
  tensor.bytes = PayloadBytes(tensor.onnx_dtype, tensor.dims);
  bool has_location = false;
  for (const onnx::StringStringEntryProto& entry : proto.external_data()) {
    if (entry.key() == "location") {
      tensor.location = entry.value();
      has_location = true;
    } else if (entry.key() == "offset" || entry.key() == "length") {
      const std::optional<int64_t> count = ParseCount(entry.value());
      if (!count) {
        return Invalid(Subject(tensor) + ": the " + entry.key() + " of its external data is '" +
                           entry.value() + "', not a number of bytes",
                       "export or save the model again");
      }
      (entry.key() == "offset" ? tensor.offset : tensor.length.emplace()) = *count;
    }
  }
  if (!has_location || tensor.location.empty()) {
    return Invalid(Subject(tensor) + " is stored outside the model, but names no file",
                   "export or save the model again");
  }
  if (proto.data_type() == onnx::TensorProto::STRING) {
    return Invalid(Subject(tensor) + " holds strings, which cannot be external data",
                   "save the model with this tensor inline");
  }
  return tensor;
}

// --- Locations ----------------------------------------------------------------------------------

// Why a location cannot be used: what is wrong, to stand behind "tensor 'w' ", and the remedy.
struct Refusal {
  std::string what;
  std::string hint;
};

struct Resolved {
  fs::path real_path;
  int64_t size = 0;
};

std::variant<Resolved, Refusal> Resolve(const ModelFolder& folder, const std::string& location) {
  const std::string in_place = "has its data in '" + location + "', ";
  const std::string move_hint =
      "move the data file into the model's folder and save the model with that location; ONNX "
      "Runtime from 1.24 on reads nothing outside it";
  const fs::path relative(location);
  if (location.find('\0') != std::string::npos) {
    return Refusal{"names a data file with a NUL character", "export or save the model again"};
  }
  if (relative.is_absolute()) return Refusal{in_place + "an absolute path", move_hint};
  const fs::path normal = relative.lexically_normal();
  if (normal.begin() != normal.end() && *normal.begin() == "..") {
    return Refusal{in_place + "which leads out of the model's folder", move_hint};
  }

  fs::path path = folder.given / relative;
  std::error_code error;
  fs::path real_path = fs::canonical(path, error);
  if (error && folder.real != folder.given) {
    std::error_code error_beside_real;
    const fs::path beside_real = folder.real / relative;
    const fs::path found = fs::canonical(beside_real, error_beside_real);
    if (!error_beside_real) {
      path = beside_real;
      real_path = found;
      error.clear();
    }
  }
  if (error) {
    std::error_code ignored;
    if (fs::is_symlink(path, ignored)) {
      return Refusal{in_place + "a link to " + Quoted(fs::read_symlink(path, ignored)) +
                         ", which cannot be followed: " + error.message(),
                     "download or restore the file it leads to"};
    }
    if (error == std::errc::no_such_file_or_directory) {
      return Refusal{in_place + "a file that is not in " + Quoted(folder.given),
                     "put " + Quoted(normal) +
                         " beside the model: it is a part of it, and must keep its name"};
    }
    return Refusal{in_place + "which cannot be reached: " + error.message(),
                   "check the permissions of the file and of the folders above it"};
  }

  if (!IsInside(real_path, WithoutLinks(folder.given)) && !IsInside(real_path, folder.real)) {
    return Refusal{in_place + "a link to " + Quoted(real_path) + ", outside the model's folder",
                   "put the file itself, or a hard link to it, in the place of the link; ONNX "
                   "Runtime from 1.24 on reads nothing outside the folder"};
  }
  struct stat info;
  if (::stat(real_path.c_str(), &info) != 0) {
    return Refusal{in_place + "which cannot be reached: " + ErrnoText(errno),
                   "check the permissions of the file and of the folders above it"};
  }
  if (!S_ISREG(info.st_mode)) {
    return Refusal{in_place + "which is not a regular file", "put the data file in its place"};
  }
  return Resolved{std::move(real_path), info.st_size};
}

Error Refuse(const ExternalTensor& tensor, const Refusal& refusal, int64_t more_tensors) {
  std::string subject = Subject(tensor);
  if (more_tensors > 0) {
    subject += " (and " + std::to_string(more_tensors) +
               (more_tensors == 1 ? " more tensor there)" : " more tensors there)");
  }
  return Invalid(subject + " " + refusal.what, refusal.hint);
}

Status CheckRange(const ExternalTensor& tensor, int64_t file_size) {
  const std::string place = "'" + tensor.location + "'";
  if (tensor.length && tensor.bytes >= 0 && *tensor.length != tensor.bytes) {
    return Invalid(Subject(tensor) + " needs " + std::to_string(tensor.bytes) +
                       " bytes for its dtype and dims, but the model says that " +
                       std::to_string(*tensor.length) + " of " + place + " belong to it",
                   "export or save the model again");
  }
  const int64_t length = tensor.length ? *tensor.length : std::max<int64_t>(tensor.bytes, 0);
  if (tensor.offset > file_size || length > file_size - tensor.offset) {
    return Invalid(
        Subject(tensor) + " needs bytes " + std::to_string(tensor.offset) + " to " +
            std::to_string(static_cast<uint64_t>(tensor.offset) + static_cast<uint64_t>(length)) +
            " of " + place + ", which has only " + std::to_string(file_size),
        "the data file is cut off, belongs to another model, or is a Git LFS pointer: "
        "download or export it again");
  }
  return {};
}

// --- Making files -------------------------------------------------------------------------------

// Bytes [begin, end) from one file to the same place in another, in the kernel where it can do
// that. Adds to `copied`. errno, 0 on success; ESTALE if the source ended early.
int CopyRange(int source, int target, off_t begin, off_t end, int64_t& copied) {
  while (begin < end) {
    const size_t wanted = static_cast<size_t>(std::min<off_t>(end - begin, off_t{1} << 30));
    off_t from = begin;
    off_t to = begin;
    const ssize_t done = ::copy_file_range(source, &from, target, &to, wanted, 0);
    if (done < 0 && errno == EINTR) continue;
    if (done < 0 && (errno == ENOSPC || errno == EDQUOT || errno == EIO || errno == EFBIG)) {
      return errno;
    }
    if (done <= 0) break;  // not between these file systems, or not for this file: by hand
    begin += done;
    copied += done;
  }
  if (begin == end) return 0;

  std::vector<char> buffer(kCopyBuffer);
  while (begin < end) {
    const size_t wanted = static_cast<size_t>(std::min<off_t>(end - begin, kCopyBuffer));
    const ssize_t got = ReadAt(source, buffer.data(), wanted, begin);
    if (got < 0) return errno;
    if (got == 0) return ESTALE;
    for (ssize_t written = 0; written < got;) {
      const ssize_t n = ::pwrite(target, buffer.data() + written,
                                 static_cast<size_t>(got - written), begin + written);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return errno;
      written += n;
    }
    begin += got;
    copied += got;
  }
  return 0;
}

// The contents of `source`, holes kept as holes where the file systems know them.
int CopyContents(int source, int target, off_t size, int64_t& copied) {
  if (::ioctl(target, FICLONE, source) == 0) return 0;
  if (::ftruncate(target, size) != 0) return errno;
  for (off_t offset = 0; offset < size;) {
    off_t data = ::lseek(source, offset, SEEK_DATA);
    off_t hole = size;
    if (data < 0 && errno == ENXIO) break;  // a hole up to the end
    if (data < 0) {
      data = offset;  // the file system cannot say
    } else {
      const off_t found = ::lseek(source, data, SEEK_HOLE);
      if (found > data) hole = std::min(found, size);
    }
    if (data >= size) break;
    if (const int error = CopyRange(source, target, data, hole, copied)) return error;
    offset = hole;
  }
  return 0;
}

std::string MakingHint(int error) {
  switch (error) {
    case ENOSPC:
    case EDQUOT:
      return "free some space, choose another folder with -o, or use --external-data hardlink on "
             "the same file system";
    case EACCES:
    case EPERM:
    case EROFS:
      return "choose a folder you may write to with -o";
    default:
      return "choose another folder with -o";
  }
}

Error CannotMake(const ExternalDataStep& step, const std::string& what, std::string hint) {
  return WriteError(
      "cannot bring " + Quoted(step.source) + " along as " + Quoted(step.target) + ": " + what,
      std::move(hint));
}

Error InTheWay(const ExternalDataStep& step, const std::string& what) {
  return WriteError(
      "the model needs its data as " + Quoted(step.target) + ", where " + what,
      "remove it if it is not needed, or choose another folder with -o; existing files are not "
      "replaced");
}

Status Copy(const ExternalDataStep& step, int64_t& copied) {
  const UniqueFd source = OpenForReading(step.source);
  struct stat before;
  if (!source.is_open() || ::fstat(source.get(), &before) != 0) {
    return CannotMake(step, ErrnoText(errno), "check the permissions of the data file");
  }
  // Weights that others may not read stay so; the writer itself must be able to.
  TemporaryFile temporary(step.target, (before.st_mode & 0666) | 0600);
  if (!temporary.is_open()) {
    return CannotMake(step, ErrnoText(temporary.error()), MakingHint(temporary.error()));
  }
  int error = CopyContents(source.get(), temporary.fd(), before.st_size, copied);
  struct stat after;
  if (error == ESTALE ||
      (error == 0 && (::fstat(source.get(), &after) != 0 || after.st_size != before.st_size ||
                      after.st_mtim.tv_sec != before.st_mtim.tv_sec ||
                      after.st_mtim.tv_nsec != before.st_mtim.tv_nsec))) {
    return CannotMake(step, "it changed while it was being copied",
                      "wait until the file is complete and run again");
  }
  if (error == 0) error = temporary.PlaceNew();
  if (error == EEXIST) return InTheWay(step, "another program has just made a file");
  if (error != 0) return CannotMake(step, ErrnoText(error), MakingHint(error));
  return {};
}

Status Hardlink(const ExternalDataStep& step) {
  if (::link(step.source.c_str(), step.target.c_str()) == 0) return {};
  switch (errno) {
    case EEXIST:
      return InTheWay(step, "another program has just made a file");
    case EXDEV:
      return CannotMake(step, "a hard link cannot lead to another file system",
                        "use --external-data copy");
    case EPERM:
    case EOPNOTSUPP:
    case EMLINK:
      return CannotMake(step, "no hard link can be made to this file (" + ErrnoText(errno) + ")",
                        "use --external-data copy");
    default:
      return CannotMake(step, ErrnoText(errno), MakingHint(errno));
  }
}

// `what` is what stands in the way if the contents differ.
Status Compare(const ExternalDataStep& step, const std::string& what) {
  const UniqueFd source = OpenForReading(step.source);
  const UniqueFd target = OpenForReading(step.target);
  if (!source.is_open() || !target.is_open()) {
    return CannotMake(step, ErrnoText(errno), "check the permissions of both files");
  }
  struct stat a_info;
  struct stat b_info;
  if (::fstat(source.get(), &a_info) == 0 && ::fstat(target.get(), &b_info) == 0 &&
      a_info.st_dev == b_info.st_dev && a_info.st_ino == b_info.st_ino) {
    return {};
  }
  std::vector<char> a(kCopyBuffer);
  std::vector<char> b(kCopyBuffer);
  for (off_t offset = 0;;) {
    const ssize_t got_a = ReadAt(source.get(), a.data(), a.size(), offset);
    const ssize_t got_b = ReadAt(target.get(), b.data(), b.size(), offset);
    if (got_a < 0 || got_b < 0) {
      return CannotMake(step, ErrnoText(errno), "check the disk");
    }
    if (got_a != got_b || std::memcmp(a.data(), b.data(), static_cast<size_t>(got_a)) != 0) {
      return InTheWay(step, what);
    }
    if (got_a == 0) return {};
    offset += got_a;
  }
}

Result<ExternalDataPlan> Plan(const ExternalData& data, const fs::path& output,
                              ExternalDataMode mode) {
  ExternalDataPlan plan;
  if (data.files.empty()) return plan;

  const fs::path folder = CurrentIfEmpty(output.parent_path());
  std::error_code error;
  const fs::path real_folder = fs::canonical(folder, error);
  if (error || !fs::is_directory(real_folder, error)) {
    return WriteError(
        "cannot write " + Quoted(output) + ": the folder " + Quoted(folder) + " does not exist",
        "create the folder first");
  }

  std::vector<const ExternalFile*> missing;
  int64_t missing_bytes = 0;
  std::set<fs::path> new_folders;
  for (const ExternalFile& file : data.files) {
    ExternalDataStep step;
    step.location = file.location;
    step.source = file.real_path;
    step.target = folder / file.location;
    step.size = file.size;

    if (fs::path(file.location) == output.filename() ||
        fs::equivalent(output, file.real_path, error)) {
      return WriteError("the output " + Quoted(output) + " has the name of the model's data file",
                        "choose another name with -o");
    }
    struct stat source_info;
    struct stat info;
    if (::stat(step.source.c_str(), &source_info) != 0) {
      return CannotMake(step, ErrnoText(errno), "restore the data file");
    }
    const fs::path beside = data.folder.given / file.location;
    if (mode == ExternalDataMode::kCarried && fs::equivalent(beside, file.real_path, error)) {
      plan.steps.push_back(std::move(step));
      continue;
    }
    const fs::path real_target = WithoutLinks(step.target);
    if (::lstat(step.target.c_str(), &info) == 0) {
      if (!IsInside(real_target, real_folder) && S_ISLNK(info.st_mode)) {
        return WriteError(
            Quoted(step.target) + " is a link to " + Quoted(real_target) +
                ", which ONNX Runtime refuses for a model that is no link itself",
            "write to another folder: -o FOLDER/" + output.filename().string() +
                (mode == ExternalDataMode::kAuto
                     ? " with --external-data copy, or hardlink on the same file system"
                     : "; the link itself is not replaced"));
      }
      if (::stat(step.target.c_str(), &info) != 0) {
        return InTheWay(step, "a link that leads nowhere is");
      }
      if (info.st_dev == source_info.st_dev && info.st_ino == source_info.st_ino) {
        plan.steps.push_back(std::move(step));
        continue;
      }
      if (!S_ISREG(info.st_mode)) return InTheWay(step, "something is that is no regular file");
      if (info.st_size != file.size) {
        return InTheWay(step, "another file is (" + SizeText(info.st_size) + " instead of " +
                                  SizeText(file.size) + ")");
      }
      step.kind = ExternalDataStep::Kind::kCompare;
      plan.steps.push_back(std::move(step));
      continue;
    }
    if (errno != ENOENT && errno != ENOTDIR) {
      return CannotMake(step, ErrnoText(errno), MakingHint(errno));
    }
    if (!IsInside(real_target, real_folder)) {
      return WriteError(Quoted(step.target.parent_path()) + " leads out of " + Quoted(folder) +
                            ", where ONNX Runtime reads no data",
                        "choose another folder with -o");
    }

    if (mode == ExternalDataMode::kAuto) {
      missing.push_back(&file);
      missing_bytes += file.size;
      continue;
    }
    step.kind = mode == ExternalDataMode::kHardlink ? ExternalDataStep::Kind::kHardlink
                                                    : ExternalDataStep::Kind::kCopy;
    if (mode == ExternalDataMode::kHardlink && ::stat(real_folder.c_str(), &info) == 0 &&
        info.st_dev != source_info.st_dev) {
      return CannotMake(step, "a hard link cannot lead to another file system",
                        "use --external-data copy");
    }
    // Every folder the location passes through has to be there, also the "sub" of "sub/../w".
    for (const ExternalTensor& tensor : data.tensors) {
      if (fs::path(tensor.location).lexically_normal() != file.location) continue;
      fs::path so_far = folder;
      for (const fs::path& part : fs::path(tensor.location).parent_path()) {
        so_far = (so_far / part).lexically_normal();
        if (so_far.filename().empty()) so_far = so_far.parent_path();  // "out/a/b/.." is "out/a/"
        if (!fs::exists(so_far, error)) new_folders.insert(so_far);
      }
    }
    plan.steps.push_back(std::move(step));
  }

  if (!missing.empty()) {
    std::string names = "'" + missing.front()->location + "'";
    if (missing.size() > 1) names += " and " + std::to_string(missing.size() - 1) + " more";
    // Beside data files that are links out of their folder the model would not find them either.
    const fs::path given = WithoutLinks(data.folder.given);
    const bool lies_there =
        std::all_of(data.files.begin(), data.files.end(),
                    [&](const ExternalFile& file) { return IsInside(file.real_path, given); });
    const std::string beside = !lies_there ? ""
                                           : ", or write beside the data: -o " +
                                                 (data.folder.given / output.filename()).string();
    return WriteError("a model in " + Quoted(folder) + " would not find its data: " + names + " (" +
                          SizeText(missing_bytes) + ") would have to be there too",
                      "add --external-data copy (shares the blocks where the file system can) or "
                      "--external-data hardlink (same file system only)" +
                          beside);
  }
  plan.folders.assign(new_folders.begin(), new_folders.end());
  const bool linked = std::any_of(plan.steps.begin(), plan.steps.end(), [](const auto& step) {
    return step.kind == ExternalDataStep::Kind::kHardlink;
  });
  if (linked) {
    plan.notes.push_back(
        "data files are hard links: a change in one place shows in the other, and ONNX's own "
        "checker "
        "(not ONNX Runtime) refuses data files with more than one name");
  }
  return plan;
}

// A file that was planned to be made, and that another thread has made since.
bool IsThereByNow(const ExternalDataStep& step) {
  const bool is_new =
      step.kind == ExternalDataStep::Kind::kCopy || step.kind == ExternalDataStep::Kind::kHardlink;
  struct stat info;
  return is_new && ::lstat(step.target.c_str(), &info) == 0 && S_ISREG(info.st_mode);
}

Result<ExternalDataFiles> Apply(const ExternalDataPlan& plan) {
  static std::mutex one_at_a_time;
  const std::lock_guard lock(one_at_a_time);
  ExternalDataFiles files;
  Status status;
  for (const fs::path& folder : plan.folders) {
    std::error_code error;
    if (fs::create_directory(folder, error)) files.created_folders.push_back(folder);
    if (error) {
      status = WriteError("cannot make the folder " + Quoted(folder) + ": " + error.message(),
                          MakingHint(error.value()));
      break;
    }
  }
  for (const ExternalDataStep& step : plan.steps) {
    if (!status) break;
    if (IsThereByNow(step)) {
      status = Compare(step, "another program has just made a file");
      continue;
    }
    switch (step.kind) {
      case ExternalDataStep::Kind::kKeep:
        break;
      case ExternalDataStep::Kind::kCompare:
        status = Compare(step, "a file with other contents is");
        break;
      case ExternalDataStep::Kind::kCopy:
        status = Copy(step, files.copied_bytes);
        if (status) files.created.push_back(step.target);
        break;
      case ExternalDataStep::Kind::kHardlink:
        status = Hardlink(step);
        if (status) files.created.push_back(step.target);
        break;
    }
  }
  if (!status) {
    RemoveCreated(files);
    return std::move(status).error();
  }
  return files;
}

template <typename Function>
auto CatchingExceptions(ErrorCode code, const Function& function) -> decltype(function()) {
  try {
    return function();
  } catch (const std::exception& e) {
    return Error{code, std::string("external data: ") + e.what(), "", ""};
  }
}

}  // namespace

bool IsInside(const fs::path& path, const fs::path& folder) {
  const auto [in_folder, in_path] =
      std::mismatch(folder.begin(), folder.end(), path.begin(), path.end());
  return in_folder == folder.end();
}

ModelFolder::ModelFolder(const fs::path& folder)
    : given(CurrentIfEmpty(folder)), real(WithoutLinks(given)) {}

ModelFolder ModelFolder::Of(const fs::path& model_path) {
  return {CurrentIfEmpty(model_path.parent_path()), WithoutLinks(model_path).parent_path()};
}

int64_t PayloadBytes(int32_t onnx_dtype, const std::vector<int64_t>& dims) {
  int bits = 0;
  switch (onnx_dtype) {
    case onnx::TensorProto::UINT2:
    case onnx::TensorProto::INT2:
      bits = 2;
      break;
    case onnx::TensorProto::UINT4:
    case onnx::TensorProto::INT4:
    case onnx::TensorProto::FLOAT4E2M1:
      bits = 4;
      break;
    case onnx::TensorProto::FLOAT6E2M3:
    case onnx::TensorProto::FLOAT6E3M2:
      bits = 6;
      break;
    case onnx::TensorProto::UINT8:
    case onnx::TensorProto::INT8:
    case onnx::TensorProto::BOOL:
    case onnx::TensorProto::FLOAT8E4M3FN:
    case onnx::TensorProto::FLOAT8E4M3FNUZ:
    case onnx::TensorProto::FLOAT8E5M2:
    case onnx::TensorProto::FLOAT8E5M2FNUZ:
    case onnx::TensorProto::FLOAT8E8M0:
      bits = 8;
      break;
    case onnx::TensorProto::UINT16:
    case onnx::TensorProto::INT16:
    case onnx::TensorProto::FLOAT16:
    case onnx::TensorProto::BFLOAT16:
      bits = 16;
      break;
    case onnx::TensorProto::FLOAT:
    case onnx::TensorProto::INT32:
    case onnx::TensorProto::UINT32:
      bits = 32;
      break;
    case onnx::TensorProto::DOUBLE:
    case onnx::TensorProto::INT64:
    case onnx::TensorProto::UINT64:
    case onnx::TensorProto::COMPLEX64:
      bits = 64;
      break;
    case onnx::TensorProto::COMPLEX128:
      bits = 128;
      break;
    default:
      return -1;
  }
  int64_t count = 1;
  for (const int64_t dim : dims) {
    if (dim < 0 || __builtin_mul_overflow(count, dim, &count)) return -1;
  }
  int64_t total_bits = 0;
  if (__builtin_mul_overflow(count, bits, &total_bits) ||
      __builtin_add_overflow(total_bits, 7, &total_bits)) {
    return -1;
  }
  return total_bits / 8;
}

Result<std::vector<ExternalTensor>> ListExternalTensors(const onnx::ModelProto& model) {
  std::vector<ExternalTensor> tensors;
  std::optional<Error> error;
  TensorWalk([&](const onnx::TensorProto& proto, const std::string& place) {
    if (error || proto.data_location() != onnx::TensorProto::EXTERNAL) return;
    Result<ExternalTensor> tensor = ReadEntry(proto, place);
    if (tensor) {
      tensors.push_back(*std::move(tensor));
    } else {
      error = std::move(tensor).error();
    }
  }).Run(model);
  if (error) return *std::move(error);
  return tensors;
}

namespace {

// `faults` gets one Error for each data file that cannot be used, and for each tensor that does not
// fit into its file. Stops at the first one unless `all` is set.
Result<ExternalData> LookAtExternalData(const onnx::ModelProto& model, const ModelFolder& folder,
                                        bool all, std::vector<Error>& faults) {
  Result<std::vector<ExternalTensor>> tensors = ListExternalTensors(model);
  if (!tensors) return std::move(tensors).error();

  ExternalData data;
  data.folder = folder;
  data.tensors = *std::move(tensors);
  std::map<std::string, int64_t> tensors_at;
  for (const ExternalTensor& tensor : data.tensors) ++tensors_at[tensor.location];
  std::map<std::string, std::variant<Resolved, Refusal>> resolved;  // by location as written
  std::map<std::string, ExternalFile> files;                        // by normalised location
  for (const ExternalTensor& tensor : data.tensors) {
    if (!all && !faults.empty()) break;
    auto found = resolved.find(tensor.location);
    if (found == resolved.end()) {
      found = resolved.emplace(tensor.location, Resolve(folder, tensor.location)).first;
      if (const auto* refusal = std::get_if<Refusal>(&found->second)) {
        faults.push_back(Refuse(tensor, *refusal, tensors_at[tensor.location] - 1));
        faults.back().location = tensor.location;
      } else {
        const std::string normal = fs::path(tensor.location).lexically_normal().string();
        const auto& file = std::get<Resolved>(found->second);
        files.try_emplace(normal, ExternalFile{normal, file.real_path, file.size});
      }
    }
    const auto* file = std::get_if<Resolved>(&found->second);
    if (file == nullptr) continue;
    if (Status in_range = CheckRange(tensor, file->size); !in_range) {
      faults.push_back(std::move(in_range).error());
      faults.back().location = tensor.location;
    }
  }
  for (auto& [location, file] : files) data.files.push_back(std::move(file));
  return data;
}

}  // namespace

Result<ExternalData> FindExternalData(const onnx::ModelProto& model, const ModelFolder& folder) {
  return CatchingExceptions(ErrorCode::kInvalidModel, [&]() -> Result<ExternalData> {
    std::vector<Error> faults;
    Result<ExternalData> data = LookAtExternalData(model, folder, /*all=*/false, faults);
    if (faults.empty()) return data;
    faults.front().location.clear();
    return std::move(faults.front());
  });
}

Result<ExternalFindings> CheckExternalData(const onnx::ModelProto& model,
                                           const ModelFolder& folder) {
  return CatchingExceptions(ErrorCode::kInvalidModel, [&]() -> Result<ExternalFindings> {
    ExternalFindings findings;
    Result<ExternalData> data = LookAtExternalData(model, folder, /*all=*/true, findings.faults);
    if (!data) return std::move(data).error();
    findings.data = *std::move(data);
    return findings;
  });
}

Result<std::vector<std::byte>> ExternalReader::ReadRange(const std::string& location,
                                                         int64_t offset, int64_t length,
                                                         std::string_view tensor) {
  return CatchingExceptions(ErrorCode::kInvalidModel, [&]() -> Result<std::vector<std::byte>> {
    ExternalTensor wanted;
    wanted.name = tensor;
    wanted.place = "initializer";
    wanted.location = location;
    wanted.offset = offset;
    wanted.length = length;
    if (offset < 0 || length < 0) {
      return Invalid(Subject(wanted) + ": no bytes at offset " + std::to_string(offset) +
                         " with length " + std::to_string(length),
                     "export or save the model again");
    }
    auto result = Resolve(folder_, location);
    if (const auto* refusal = std::get_if<Refusal>(&result)) return Refuse(wanted, *refusal, 0);
    const Resolved& file = std::get<Resolved>(result);
    if (Status in_range = CheckRange(wanted, file.size); !in_range) {
      return std::move(in_range).error();
    }

    std::vector<std::byte> bytes(static_cast<size_t>(length));
    if (length > 0) {
      const UniqueFd fd = OpenForReading(file.real_path);
      const ssize_t got =
          fd.is_open() ? ReadAt(fd.get(), bytes.data(), bytes.size(), offset) : ssize_t{-1};
      if (got != length) {
        return Invalid(Subject(wanted) + " cannot be read from " + Quoted(file.real_path) + ": " +
                           (got < 0 ? ErrnoText(errno) : "the file ends early"),
                       "check the permissions of the data file and the disk");
      }
    }
    reads_.push_back({wanted.name, location, length});
    return bytes;
  });
}

Result<std::vector<std::byte>> ExternalReader::Read(const onnx::TensorProto& tensor) {
  Result<ExternalTensor> entry = ReadEntry(tensor, "initializer");
  if (!entry) return std::move(entry).error();
  if (entry->bytes < 0) {
    return Invalid(Subject(*entry) + " has a dtype or dims of unknown size", "");
  }
  return ReadRange(entry->location, entry->offset, entry->bytes, entry->name);
}

std::optional<ExternalDataMode> ParseExternalDataMode(std::string_view name) {
  if (name == "auto") return ExternalDataMode::kAuto;
  if (name == "copy") return ExternalDataMode::kCopy;
  if (name == "hardlink") return ExternalDataMode::kHardlink;
  return std::nullopt;
}

bool ExternalDataPlan::nothing_to_do() const {
  return std::all_of(steps.begin(), steps.end(), [](const ExternalDataStep& step) {
    return step.kind == ExternalDataStep::Kind::kKeep;
  });
}

Result<ExternalDataPlan> PlanExternalData(const ExternalData& data, const fs::path& output,
                                          ExternalDataMode mode) {
  return CatchingExceptions(ErrorCode::kWrite, [&] { return Plan(data, output, mode); });
}

Result<ExternalDataFiles> ApplyExternalData(const ExternalDataPlan& plan) {
  return CatchingExceptions(ErrorCode::kWrite, [&] { return Apply(plan); });
}

void RemoveCreated(const ExternalDataFiles& files) {
  std::error_code ignored;
  for (const fs::path& file : files.created) fs::remove(file, ignored);
  for (auto folder = files.created_folders.rbegin(); folder != files.created_folders.rend();
       ++folder) {
    fs::remove(*folder, ignored);  // fails, as it should, if something else is in it by now
  }
}

}  // namespace liger
