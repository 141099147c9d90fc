// What patching made, taken back or made anew.
//
//   PatchOutcome reverted = RevertModel({.input = "model.liger.onnx"});
//   PatchOutcome refreshed = RefreshModel({.input = "model.liger.fp16.onnx"});
//
// Revert: a model without our ops, and without own ops of users' patch maps, that computes the same.
// Calls become the nodes of their bodies; functions, imports, stamps (metadata `liger.*`) go, and
// the IR version is what it was. Patching the result fuses the same places again.
//
// Refresh: after another tool has changed dtypes or operator set versions, or has dropped functions,
// calls get the bodies, and the model the stamps, that patching would have given them
// (rewrite/refresh.h). Texts of own ops come from `patches`.
//
// Where there is nothing to do the report's status is "nothing_to_do" and no file is written. As
// with PatchModel the report exists whatever happens, and the input is overwritten only if it is
// named as the output.
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <span>
#include <vector>

#include "api/patch_model.h"
#include "model/external_data.h"

namespace liger {

struct RebuildOptions {
  std::filesystem::path input;
  // The model itself, instead of the file at `input`, which then only says where external data is.
  std::optional<std::span<const std::byte>> bytes;
  // Default: <stem>.reverted.onnx or <stem>.refreshed.onnx beside the input.
  std::optional<std::filesystem::path> output;
  std::optional<int> output_fd;  // an open file instead
  std::vector<std::filesystem::path> patches;
  std::optional<std::filesystem::path> patches_dir;
  ExternalDataMode external_data = ExternalDataMode::kAuto;
  bool dry_run = false;
  bool check = false;
};

PatchOutcome RevertModel(const RebuildOptions& options);
PatchOutcome RefreshModel(const RebuildOptions& options);

}  // namespace liger
