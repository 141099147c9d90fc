#include "api/runtime_gaps.h"

#include <elf.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <set>
#include <string_view>
#include <utility>

namespace liger {
namespace {

namespace fs = std::filesystem;

constexpr const char* kLibraryVariable = "LIGER_ORT_LIBRARY";
constexpr const char* kLibraryName = "libliger_ort.so";
// Folders between a program in a build tree and the source tree, at most.
constexpr int kMaxFoldersUp = 4;
// Notes are some dozens of bytes.
constexpr uint64_t kMaxNoteBytes = 1 << 16;

// --- The library as a file ----------------------------------------------------------------------

template <typename T>
bool ReadAt(std::ifstream& file, uint64_t offset, T& value) {
  file.clear();
  file.seekg(static_cast<std::streamoff>(offset));
  return static_cast<bool>(file.read(reinterpret_cast<char*>(&value), sizeof(value)));
}

uint64_t Aligned(uint64_t size) { return (size + 3) / 4 * 4; }

// The text of the note "liger" among the notes of one segment.
std::optional<std::string> FindNote(const std::string& notes) {
  uint64_t at = 0;
  while (at + sizeof(Elf64_Nhdr) <= notes.size()) {
    Elf64_Nhdr head;
    std::memcpy(&head, notes.data() + at, sizeof(head));
    const uint64_t name = at + sizeof(head);
    const uint64_t text = name + Aligned(head.n_namesz);
    at = text + Aligned(head.n_descsz);
    if (at > notes.size()) break;
    if (std::string_view(notes.data() + name, head.n_namesz) != std::string_view("liger\0", 6)) {
      continue;
    }
    const std::string_view value(notes.data() + text, head.n_descsz);
    return std::string(value.substr(0, value.find('\0')));
  }
  return std::nullopt;
}

struct ElfNote {
  bool is_library = false;
  std::optional<std::string> text;
};

ElfNote ReadNote(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  Elf64_Ehdr head;
  if (!ReadAt(file, 0, head) || std::memcmp(head.e_ident, ELFMAG, SELFMAG) != 0 ||
      head.e_ident[EI_CLASS] != ELFCLASS64 || head.e_type != ET_DYN) {
    return {};
  }
  ElfNote note{.is_library = true, .text = {}};
  for (uint64_t i = 0; i < head.e_phnum; ++i) {
    Elf64_Phdr segment;
    if (!ReadAt(file, head.e_phoff + i * head.e_phentsize, segment)) return {};
    if (segment.p_type != PT_NOTE || segment.p_filesz > kMaxNoteBytes) continue;
    std::string notes(segment.p_filesz, '\0');
    file.seekg(static_cast<std::streamoff>(segment.p_offset));
    if (!file.read(notes.data(), static_cast<std::streamsize>(notes.size()))) return {};
    if ((note.text = FindNote(notes))) break;
  }
  return note;
}

std::vector<Provider> ParseProviders(const std::string& list) {
  std::vector<Provider> providers;
  for (size_t begin = 0; begin <= list.size();) {
    const size_t end = std::min(list.find(',', begin), list.size());
    if (const auto provider = ParseProvider(list.substr(begin, end - begin))) {
      providers.push_back(*provider);
    }
    begin = end + 1;
  }
  return providers;
}

// --- Where things are ---------------------------------------------------------------------------

fs::path ProgramPath() {
  std::error_code error;
  const fs::path path = fs::read_symlink("/proc/self/exe", error);
  return error ? fs::path() : path;
}

bool IsFile(const fs::path& path) {
  std::error_code error;
  return fs::is_regular_file(path, error);
}

// As it is written in the current folder: relative if it lies below, else absolute.
std::string Shown(const fs::path& path) {
  std::error_code error;
  const fs::path here = fs::current_path(error);
  if (error) return path.string();
  const fs::path relative = path.lexically_relative(here);
  const bool is_below = !relative.empty() && *relative.begin() != "..";
  return is_below ? relative.string() : path.string();
}

// The program by its bare name, if a shell would find this one by it.
std::string ProgramCommand(const fs::path& program) {
  std::string name = program.filename().string();
  const char* variable = std::getenv("PATH");
  std::string_view folders = variable != nullptr ? variable : "";
  while (!folders.empty()) {
    const size_t end = std::min(folders.find(':'), folders.size());
    const fs::path found = fs::path(folders.substr(0, end)) / name;
    folders.remove_prefix(std::min(end + 1, folders.size()));
    if (!IsFile(found)) continue;
    std::error_code error;
    if (fs::equivalent(found, program, error)) return name;
    break;
  }
  const std::string shown = Shown(program);
  return shown.find('/') == std::string::npos ? "./" + shown : shown;
}

RuntimeLibrary FindLibrary(const fs::path& program) {
  if (const char* named = std::getenv(kLibraryVariable); named != nullptr && *named != '\0') {
    RuntimeLibrary library = InspectLibrary(named);
    library.by_environment = true;
    return library;
  }
  const fs::path prefix = program.parent_path().parent_path();
  for (const char* folder : {"lib", "lib64", "lib/x86_64-linux-gnu", "lib/aarch64-linux-gnu"}) {
    const fs::path path = prefix / folder / kLibraryName;
    if (IsFile(path)) return InspectLibrary(Shown(path));
  }
  return InspectLibrary(Shown(prefix / "lib" / kLibraryName));
}

// --- Sentences ----------------------------------------------------------------------------------

bool IsOurs(const std::string& op) { return FindContract(op) != nullptr; }

bool HasFusedNodes(const Report& report) {
  const auto is_ours = [](const auto& entry) { return IsOurs(entry.op); };
  return std::any_of(report.patched.begin(), report.patched.end(), is_ours) ||
         std::any_of(report.already_fused.begin(), report.already_fused.end(), is_ours);
}

void AddLibraryGaps(const RuntimeLibrary& library, std::vector<std::string>& gaps) {
  gaps.emplace_back(
      "with libliger_ort.so registered ONNX Runtime uses the fused kernels; without it the same "
      "file runs from the function bodies");
  const std::string path = "'" + library.path.string() + "'";
  if (!library.found()) {
    gaps.push_back("libliger_ort.so: " + path + " " + library.problem +
                   (library.by_environment
                        ? " (LIGER_ORT_LIBRARY names it); correct or unset the variable"
                        : "; build the target liger_ort, install the library, or name it in "
                          "LIGER_ORT_LIBRARY"));
    return;
  }
  if (library.providers && std::find(library.providers->begin(), library.providers->end(),
                                     Provider::kCuda) == library.providers->end()) {
    gaps.push_back(path +
                   " has CPU kernels only: do not register it in a session with CUDA, where each "
                   "fused node would run on the CPU, with copies; the function bodies run on the "
                   "GPU");
  }
}

// One sentence for each missing kernel: the refusals name op, dtypes and provider.
void AddKernelGaps(const Report& report, std::vector<std::string>& gaps) {
  std::map<std::string, std::set<std::string>> places;  // refusal to nodes
  for (const auto* misses : {&report.missed, &report.degraded, &report.near_misses}) {
    for (const MissReport& miss : *misses) {
      if (miss.guard == "kernel") places[miss.reason].insert(miss.node + "\n" + miss.path);
    }
  }
  for (const auto& [reason, nodes] : places) {
    gaps.push_back(reason + ": not fused in " + std::to_string(nodes.size()) +
                   (nodes.size() == 1 ? " place" : " places") + ", since --providers asks for it");
  }
}

void AddOwnOps(const Report& report, std::vector<std::string>& gaps) {
  std::set<std::string> names;
  for (const PatchedReport& patched : report.patched) {
    if (!IsOurs(patched.op)) names.insert(patched.op);
  }
  std::string list;
  for (const std::string& name : names) list += (list.empty() ? "" : ", ") + name;
  if (list.empty()) return;
  gaps.push_back(list + (names.size() == 1 ? " is an op" : " are ops") +
                 " of the patch map: libliger_ort.so has no kernel for " +
                 (names.size() == 1 ? "it" : "them") +
                 ", the function bodies run unless a library of your own is registered");
}

// --- Commands -----------------------------------------------------------------------------------

// A path as a word that is no option.
std::string PathWord(const std::string& path) {
  return ShellWord(path.starts_with("-") ? "./" + path : path);
}

// In double quotes, as Python reads it.
std::string PythonText(const std::string& text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += c == '\n' ? std::string("\\n") : std::string(1, c);
  }
  return quoted + "\"";
}

}  // namespace

RuntimeLibrary InspectLibrary(const fs::path& path) {
  RuntimeLibrary library;
  library.path = path;
  std::error_code error;
  if (!fs::exists(path, error)) {
    library.problem = "is not there";
    return library;
  }
  const ElfNote note = IsFile(path) ? ReadNote(path) : ElfNote{};
  if (!note.is_library) {
    library.problem = "is no shared library";
    return library;
  }
  if (note.text) library.providers = ParseProviders(*note.text);
  return library;
}

Installation FindInstallation() {
  Installation installation;
  const fs::path program = ProgramPath();
  installation.library = FindLibrary(program);
  if (program.filename() == "liger-patch") installation.program = ProgramCommand(program);
  fs::path folder = program.parent_path();
  for (int i = 0; i < kMaxFoldersUp && folder.has_relative_path(); ++i) {
    folder = folder.parent_path();
    // The source tree of this program, not another one that has such a script.
    if (!IsFile(folder / "tools" / "compare.py") || !IsFile(folder / "tools" / "liger_patch.cc")) {
      continue;
    }
    installation.compare = Shown(folder / "tools" / "compare.py");
    const fs::path python = folder / "build" / "venv" / "bin" / "python";
    if (IsFile(python)) installation.python = Shown(python);
    return installation;
  }
  const fs::path installed =
      program.parent_path().parent_path() / "share" / "liger-patch" / "compare.py";
  if (IsFile(installed)) installation.compare = Shown(installed);
  return installation;
}

std::vector<std::string> RuntimeGaps(const Report& report, std::span<const Provider> providers,
                                     const RuntimeLibrary& library) {
  std::vector<std::string> gaps;
  if (HasFusedNodes(report)) AddLibraryGaps(library, gaps);
  if (!providers.empty()) AddKernelGaps(report, gaps);
  AddOwnOps(report, gaps);
  return gaps;
}

std::vector<std::string> ValidationCommands(const ValidationTarget& target,
                                            const Installation& installation) {
  const std::string patched = PathWord(target.patched.string());
  std::vector<std::string> commands = {PathWord(installation.program) + " " + patched +
                                       target.choices + " --check   # finds nothing left to do"};
  const RuntimeLibrary& library = installation.library;
  if (!installation.compare.empty() && !target.replaced) {
    commands.push_back(PathWord(installation.python) + " " + PathWord(installation.compare) + " " +
                       PathWord(target.original.string()) + " " + patched +
                       (library.found() ? " --library " + PathWord(library.path.string()) : "") +
                       "   # runs both, compares the outputs");
  }
  if (library.found()) {
    commands.push_back(PathWord(installation.python) + " -c " +
                       ShellWord("import onnxruntime as ort; options = ort.SessionOptions(); "
                                 "options.register_custom_ops_library(" +
                                 PythonText(library.path.string()) + "); ort.InferenceSession(" +
                                 PythonText(target.patched.string()) +
                                 ", options, providers=[\"CPUExecutionProvider\"])") +
                       "   # loads it with the library");
  }
  return commands;
}

std::string ShellWord(const std::string& word) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./,=+:@%";
  if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) return word;
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? "'\\''" : std::string(1, c);
  return quoted + "'";
}

}  // namespace liger
