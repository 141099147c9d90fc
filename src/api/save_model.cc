#include "api/save_model.h"

#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "model/model_file.h"

namespace liger {

onnx::ModelProto CopyToVerify(const onnx::ModelProto& model) {
  constexpr int64_t kKeepBytes = 1024;
  return StripWeights(model, kKeepBytes);
}

Status VerifyModel(const onnx::ModelProto& original, const onnx::ModelProto& rewritten,
                   Report& report, const CheckOptions& options) {
  auto checked = CheckModel(original, rewritten, options);
  if (!checked) return std::move(checked).error();
  report.verification.push_back(
      checked->notes.empty()
          ? "ONNX checker and shape inference accept the result; inputs and outputs are unchanged"
          : "inputs and outputs are unchanged; the checks found besides:");
  for (const std::string& note : checked->notes) report.verification.push_back(note);
  return {};
}

Status SaveModel(const onnx::ModelProto& model, const ExternalData& external,
                 const SaveTarget& target, Report& report) {
  if (target.check) {
    report.status = "checked";
    return {};
  }
  if (target.output_fd && !target.dry_run) {
    auto saved = WriteModel(model, *target.output_fd, "standard output");
    if (!saved) return std::move(saved).error();
    report.output = FileReport{"-", saved->sha256};
    return {};
  }
  if (target.output_fd) {
    report.status = "dry_run";
    report.diagnostics.push_back(
        {Diagnostic::Severity::kNote, "dry run: standard output was not written"});
    return {};
  }
  auto placement = PlanExternalData(external, target.output, target.external_data);
  if (!placement) return std::move(placement).error();
  for (const std::string& note : placement->notes) {
    report.diagnostics.push_back({Diagnostic::Severity::kWarning, note});
  }
  if (target.dry_run) {
    report.status = "dry_run";
    report.diagnostics.push_back(
        {Diagnostic::Severity::kNote, "dry run: '" + target.output.string() + "' was not written"});
    return {};
  }
  auto files = ApplyExternalData(*placement);
  if (!files) return std::move(files).error();
  auto saved = SaveModelFile(model, target.output);
  if (!saved) {
    RemoveCreated(*files);
    return std::move(saved).error();
  }
  report.output = FileReport{saved->path.string(), saved->sha256};
  return {};
}

Status PassThrough(const std::filesystem::path& input,
                   const std::optional<std::span<const std::byte>>& bytes, int output_fd) {
  if (bytes) return WriteBytes(*bytes, output_fd, "standard output");
  std::ifstream file(input, std::ios::binary);
  const std::vector<char> text{std::istreambuf_iterator<char>(file),
                               std::istreambuf_iterator<char>()};
  return WriteBytes(std::as_bytes(std::span(text)), output_fd, "standard output");
}

}  // namespace liger
