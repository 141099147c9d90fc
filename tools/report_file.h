// Reports as files: their formats, and that none of them costs a user another file.
#pragma once

#include <optional>
#include <string>

#include "base/error.h"
#include "report/formats.h"

namespace liger {

// The format of a report file: by its suffix, else `fallback`, else JSON.
ReportFormat FormatOf(const std::string& path, std::optional<ReportFormat> fallback);

// kUsage if a report would take the place of anything but nothing, an empty file or an older
// report: a slip of the hand must not cost a model, its weights or its config.json.
Status CheckReportPath(const std::string& path, const std::string& output);

// Writes the text to the file, or to standard output for "-".
Status WriteReportFile(const std::string& path, const std::string& text);

}  // namespace liger
