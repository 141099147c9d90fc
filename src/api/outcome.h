// The end of a run that failed.
//
//   if (Status status = Run(...); !status) SetError(std::move(status).error(), outcome);
#pragma once

#include "api/patch_model.h"
#include "base/error.h"

namespace liger {

// The error as the outcome's own and in its report: status, exit code, and a diagnostic for it and
// for each of its others.
void SetError(Error error, PatchOutcome& outcome);

}  // namespace liger
