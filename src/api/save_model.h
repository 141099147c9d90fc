// The last stages of a run: the changed model is checked, and goes where it was asked for with its
// external data.
//
//   if (Status status = VerifyModel(original, proto, report); !status) return status;
//   SaveTarget target{.output = "b.onnx"};
//   if (Status status = SaveModel(proto, external, target, report); !status) return status;
//
// Both fill the report: `verification`; `output`, `status` and diagnostics. On an Error (kWrite)
// nothing is left behind that was not there before.
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <span>

#include "base/error.h"
#include "model/check.h"
#include "model/external_data.h"
#include "report/report.h"

namespace onnx {
class ModelProto;
}

namespace liger {

// A copy of a model as VerifyModel needs it of the original: large payloads are left out.
onnx::ModelProto CopyToVerify(const onnx::ModelProto& model);

// CheckModel (model/check.h). `original` may be a copy without weights.
Status VerifyModel(const onnx::ModelProto& original, const onnx::ModelProto& rewritten,
                   Report& report, const CheckOptions& options = {});

struct SaveTarget {
  std::filesystem::path output;
  std::optional<int> output_fd;  // an open file instead; external data stays where it is
  ExternalDataMode external_data = ExternalDataMode::kAuto;
  bool dry_run = false;  // everything but writing
  bool check = false;    // the same, wherever the output would go
};

Status SaveModel(const onnx::ModelProto& model, const ExternalData& external,
                 const SaveTarget& target, Report& report);

// A pipe expects a model: one that there is nothing to do for goes through as it is. `bytes` is the
// model instead of the file at `input`.
Status PassThrough(const std::filesystem::path& input,
                   const std::optional<std::span<const std::byte>>& bytes, int output_fd);

}  // namespace liger
