// The reports of several models as files of one folder.
//
//   for (const ReportFile& file : RenderFolder(ReportFormat::kMarkdown, reports, {})) ...
//       // decoder_model.onnx.md, vision/model.onnx.md, summary.md
//
// Each model's file has its path below the folder that all models share; the summary holds all
// reports in one document. No two files have the same name.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "report/formats.h"

namespace liger {

struct ReportFile {
  std::filesystem::path path;  // relative, inside the folder
  std::string text;
};

// In the order of the reports; the summary is the last.
std::vector<ReportFile> RenderFolder(ReportFormat format, std::span<const Report> reports,
                                     const RenderOptions& options);

// Whether --report means a folder: it ends in '/', or is one.
bool IsReportFolder(const std::string& path);

// Makes the folder, and in it what RenderFolder gives. A file there that is no report is never
// replaced: an Error (kUsage), before anything is written.
Status WriteReportFolder(const std::filesystem::path& folder, ReportFormat format,
                         std::span<const Report> reports, const RenderOptions& options);

}  // namespace liger
