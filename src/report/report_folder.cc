#include "report/report_folder.h"

#include <algorithm>
#include <array>
#include <set>
#include <system_error>

#include "model/posix_file.h"

namespace liger {
namespace {

namespace fs = std::filesystem;

// The path of each report's model below the folder that all of them share.
std::vector<fs::path> ModelPaths(std::span<const Report> reports) {
  std::vector<fs::path> paths;
  for (const Report& report : reports) {
    const bool has_name = !report.input.path.empty() && report.input.path != "-";
    fs::path path = fs::absolute(has_name ? report.input.path : "model").lexically_normal();
    if (!path.has_filename()) path = path.parent_path();  // a folder, of a run that failed early
    paths.push_back(std::move(path));
  }
  if (paths.empty()) return paths;
  fs::path shared = paths.front().parent_path();
  for (const fs::path& path : paths) {
    const fs::path folder = path.parent_path();
    const auto [end, unused] =
        std::mismatch(shared.begin(), shared.end(), folder.begin(), folder.end());
    fs::path common;
    for (auto part = shared.begin(); part != end; ++part) common /= *part;
    shared = std::move(common);
  }
  for (fs::path& path : paths) path = path.lexically_relative(shared);
  return paths;
}

Status CheckFile(const fs::path& path) {
  std::error_code ignored;
  if (!fs::exists(fs::symlink_status(path, ignored))) return {};
  const UniqueFd file = fs::is_regular_file(path, ignored) ? OpenForReading(path) : UniqueFd();
  std::array<char, kReportStart> start{};
  const ssize_t size = file.is_open() ? ReadAt(file.get(), start.data(), start.size(), 0) : -1;
  if (size >= 0 && MayBeReport({start.data(), static_cast<size_t>(size)})) return {};
  return Error{
      ErrorCode::kUsage,
      "the report would overwrite " + Quoted(path) + ", which is no report of this program", "",
      "give --report another folder, or remove that file first"};
}

Error CannotWrite(const fs::path& path, const std::string& why) {
  return Error{ErrorCode::kWrite, "the report " + Quoted(path) + " cannot be written: " + why, "",
               "give --report a folder you may write to"};
}

}  // namespace

std::vector<ReportFile> RenderFolder(ReportFormat format, std::span<const Report> reports,
                                     const RenderOptions& options) {
  const std::string suffix(ReportSuffix(format));
  const fs::path summary = "summary" + suffix;
  std::set<fs::path> taken = {summary};
  std::vector<ReportFile> files;
  const std::vector<fs::path> paths = ModelPaths(reports);
  RenderOptions single = options;
  single.many = false;
  for (size_t i = 0; i < reports.size(); ++i) {
    fs::path path = paths[i].string() + suffix;
    for (int n = 2; !taken.insert(path).second; ++n) {
      path = paths[i].string() + "-" + std::to_string(n) + suffix;
    }
    files.push_back({path, Render(format, reports.subspan(i, 1), single)});
  }
  RenderOptions many = options;
  many.many = true;
  files.push_back({summary, Render(format, reports, many)});
  return files;
}

bool IsReportFolder(const std::string& path) {
  std::error_code ignored;
  return path.ends_with('/') || fs::is_directory(path, ignored);
}

Status WriteReportFolder(const fs::path& folder, ReportFormat format,
                         std::span<const Report> reports, const RenderOptions& options) {
  const std::vector<ReportFile> files = RenderFolder(format, reports, options);
  for (const ReportFile& file : files) {
    if (Status status = CheckFile(folder / file.path); !status) return status;
  }
  for (const ReportFile& file : files) {
    const fs::path path = folder / file.path;
    std::error_code error;
    fs::create_directories(path.parent_path(), error);
    if (error) return CannotWrite(path, error.message());
    TemporaryFile temporary(path, 0666);
    if (!temporary.is_open()) return CannotWrite(path, ErrnoText(temporary.error()));
    int failed = WriteAll(temporary.fd(), file.text.data(), file.text.size());
    if (failed == 0) failed = temporary.Replace();
    if (failed != 0) return CannotWrite(path, ErrnoText(failed));
  }
  return {};
}

}  // namespace liger
