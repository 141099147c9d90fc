#include "report_file.h"

#include <filesystem>
#include <fstream>
#include <iostream>

namespace liger {
namespace fs = std::filesystem;

ReportFormat FormatOf(const std::string& path, std::optional<ReportFormat> fallback) {
  const auto by_suffix = FormatOfFile(path);
  return by_suffix ? *by_suffix : fallback.value_or(ReportFormat::kJson);
}

Status CheckReportPath(const std::string& path, const std::string& output) {
  if (path.empty() || path == "-") return {};
  std::error_code ignored;
  const auto normal = [](const std::string& p) { return fs::absolute(p).lexically_normal(); };
  if (!output.empty() && output != "-" &&
      (normal(path) == normal(output) || fs::equivalent(path, output, ignored))) {
    return Error{ErrorCode::kUsage, "'" + path + "' is named as the output and as the report", "",
                 "give --report another path"};
  }
  if (!fs::is_regular_file(path, ignored)) return {};
  std::ifstream file(path, std::ios::binary);
  std::string start(kReportStart, '\0');
  file.read(start.data(), static_cast<std::streamsize>(start.size()));
  start.resize(static_cast<size_t>(file.gcount()));
  if (MayBeReport(start)) return {};
  return Error{ErrorCode::kUsage,
               "the report would overwrite '" + path + "', which is no report of this program", "",
               "give --report another path, or remove that file first"};
}

Status WriteReportFile(const std::string& path, const std::string& text) {
  if (path == "-") {
    std::cout << text;
    return {};
  }
  if (Status status = CheckReportPath(path, ""); !status) return status;
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << text;
  file.close();
  if (!file) {
    return Error{ErrorCode::kWrite, "the report '" + path + "' cannot be written", path,
                 "check that its folder exists and can be written"};
  }
  return {};
}

}  // namespace liger
