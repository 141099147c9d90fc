#include <onnx/onnx_pb.h>

#include <algorithm>
#include <cctype>
#include <set>
#include <system_error>
#include <utility>

#include "model/lint_rules.h"

namespace liger {
namespace {

namespace fs = std::filesystem;
using Severity = LintFinding::Severity;

// Files of a folder that are looked at.
constexpr int kMaxFiles = 10'000;

struct Range {
  int64_t begin = 0;
  int64_t end = 0;
  const ExternalTensor* tensor = nullptr;
};

// Two tensors may share their bytes as a whole (tied weights); a part of them is an accident.
void CheckRanges(const ExternalData& data, LintFindings& findings) {
  std::map<std::string, std::vector<Range>> by_file;
  for (const ExternalTensor& tensor : data.tensors) {
    const std::string location = fs::path(tensor.location).lexically_normal().string();
    if (tensor.bytes <= 0 || tensor.offset > INT64_MAX - tensor.bytes) continue;
    by_file[location].push_back({tensor.offset, tensor.offset + tensor.bytes, &tensor});
  }
  for (auto& [location, ranges] : by_file) {
    std::stable_sort(ranges.begin(), ranges.end(), [](const Range& a, const Range& b) {
      return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
    });
    int64_t unaligned = 0;
    std::string first;
    const Range* last = nullptr;  // of those so far, the one that reaches farthest
    for (const Range& range : ranges) {
      const int64_t size = PayloadBytes(range.tensor->onnx_dtype, {1});
      if (size > 1 && range.begin % size != 0 && unaligned++ == 0) first = range.tensor->name;
      const bool same = last != nullptr && last->begin == range.begin && last->end == range.end;
      if (last != nullptr && !same && range.begin < last->end) {
        findings.Add("overlapping_data", "initializer '" + range.tensor->name + "'",
                     "its bytes " + std::to_string(range.begin) + " to " +
                         std::to_string(range.end) + " of '" + location +
                         "' overlap with those of '" + last->tensor->name + "' (" +
                         std::to_string(last->begin) + " to " + std::to_string(last->end) + ")",
                     "the offsets are wrong, or the data file is another model's: save the model "
                     "again from where both are right");
      }
      if (last == nullptr || range.end > last->end) last = &range;
    }
    if (unaligned > 0) {
      findings.Add(
          "unaligned_data", "initializer '" + first + "'",
          "it starts in '" + location +
              "' at an offset that is no multiple of its element "
              "size" +
              (unaligned > 1 ? " (and " + std::to_string(unaligned - 1) + " more such tensors)"
                             : std::string()),
          "readers that map the file must copy it; saving the model again aligns it");
    }
  }
}

// "weights_00.bin" and "weights_01.bin" are of one kind.
std::string WithoutDigits(const std::string& name) {
  std::string kind;
  for (const char c : name) {
    if (std::isdigit(static_cast<unsigned char>(c)) == 0) {
      kind += c;
    } else if (kind.empty() || kind.back() != '#') {
      kind += '#';
    }
  }
  return kind;
}

// `name` is `base` and an ending of data files: ".data", "_data", ".bin", "_data_1".
bool IsNamedAfter(const std::string& name, const std::string& base) {
  if (base.empty() || name.size() <= base.size() + 1 || !name.starts_with(base)) return false;
  const char joint = name[base.size()];
  const std::string ending = WithoutDigits(name.substr(base.size() + 1));
  static const std::set<std::string> endings = {"data",   "bin",   "weights", "data_#",
                                                "data.#", "bin_#", "data-#",  "weights_#"};
  return (joint == '.' || joint == '_') && endings.contains(ending);
}

struct FolderListing {
  std::map<std::string, int64_t> files;  // name to size
  std::vector<std::string> models;       // other .onnx files
};

FolderListing ListFolder(const LintContext& context) {
  FolderListing listing;
  std::error_code error;
  const fs::path folder = context.folder.given.empty() ? fs::path(".") : context.folder.given;
  fs::directory_iterator entry(folder, error);
  for (int n = 0; !error && entry != fs::directory_iterator() && n < kMaxFiles; ++n) {
    std::error_code ignored;
    const std::string name = entry->path().filename().string();
    if (entry->is_regular_file(ignored)) {
      const auto size = static_cast<int64_t>(entry->file_size(ignored));
      listing.files[name] = ignored ? 0 : size;
      if (name.ends_with(".onnx") && name != context.file.filename())
        listing.models.push_back(name);
    }
    entry.increment(error);
  }
  return listing;
}

void FindUnreferenced(const ExternalData& data, const LintContext& context,
                      const FolderListing& listing, LintFindings& findings) {
  std::set<std::string> used;
  std::set<std::string> kinds;
  for (const ExternalTensor& tensor : data.tensors) {
    used.insert(fs::path(tensor.location).lexically_normal().string());
  }
  for (const std::string& location : used) kinds.insert(WithoutDigits(location));
  const std::string file = context.file.filename().string();
  const std::string stem = context.file.stem().string();
  for (const auto& [name, size] : listing.files) {
    if (used.contains(name) || name == file || name.ends_with(".onnx")) continue;
    const bool is_ours = IsNamedAfter(name, file) || IsNamedAfter(name, stem);
    if (!is_ours && !kinds.contains(WithoutDigits(name))) continue;
    // "model_fp16.onnx_data" is named after "model" and belongs to "model_fp16.onnx".
    const bool is_of_another = std::any_of(
        listing.models.begin(), listing.models.end(), [&, &name = name](const auto& model) {
          const std::string other = fs::path(model).stem().string();
          return IsNamedAfter(name, model) ||
                 (IsNamedAfter(name, other) && other.size() > stem.size());
        });
    if (is_of_another) continue;
    const bool may_be_shared = !listing.models.empty();
    findings.Add("unreferenced_data_file", may_be_shared ? Severity::kNote : Severity::kWarning,
                 "file '" + name + "'",
                 "it is named like data of this model, which has no tensor in it (" +
                     std::to_string(size) + " bytes)",
                 may_be_shared ? "another model of the folder may use it"
                               : "remove it if nothing needs it; if the model lost its weights to "
                                 "it, save the model again");
  }
}

// A file in the folder in which the lost data may be: the model, or the data, was renamed.
std::string RenamedHint(const Error& fault, const ExternalData& data, const LintContext& context,
                        const FolderListing& listing) {
  int64_t needed = 0;
  std::set<std::string> used;
  for (const ExternalTensor& tensor : data.tensors) {
    used.insert(fs::path(tensor.location).lexically_normal().string());
    if (tensor.location == fault.location && tensor.bytes > 0) {
      needed = std::max(needed, tensor.offset + tensor.bytes);
    }
  }
  if (listing.files.contains(fs::path(fault.location).lexically_normal().string())) return "";
  std::string found;
  for (const auto& [name, size] : listing.files) {
    const bool is_data = name.ends_with("data") || name.ends_with(".bin") ||
                         IsNamedAfter(name, context.file.stem().string());
    if (!is_data || used.contains(name) || size < needed) continue;
    if (!found.empty()) return "";
    found = name;
  }
  return found.empty() ? "" : "'" + found + "' is large enough to be it under another name";
}

}  // namespace

void LintExternalData(const onnx::ModelProto& model, const LintContext& context,
                      LintFindings& findings) {
  const auto checked = CheckExternalData(model, context.folder);
  if (!checked) {
    findings.Add("external_data", "", checked.error().message, checked.error().hint);
    return;
  }
  const FolderListing listing = context.file.empty() ? FolderListing() : ListFolder(context);
  for (const Error& fault : checked->faults) {
    const std::string renamed = RenamedHint(fault, checked->data, context, listing);
    findings.Add("external_data", "file '" + fault.location + "'", fault.message,
                 fault.hint + (renamed.empty() ? "" : "; " + renamed));
  }
  CheckRanges(checked->data, findings);
  if (!context.file.empty()) FindUnreferenced(checked->data, context, listing, findings);
}

}  // namespace liger
