// What somebody asked the numbers of a run to be: --strict, --expect, `expect:` in a patch map.
//
//   Result<std::vector<WantedCount>> wanted = ParseExpect({"rms_norm=65", "rope>=64"});
//   AddExpectations(*wanted, strict, report);
//   if (Status status = CheckExpectations(report); !status) return status;   // kExpectation
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "patchmap/user_map.h"
#include "report/report.h"

namespace liger {

struct WantedCount {
  std::string module;
  CountWish wish;
};

// Values of --expect: `module=N` or `module>=N`, several with commas between them. `known` are the
// names that a module may have.
Result<std::vector<WantedCount>> ParseExpect(std::span<const std::string> texts,
                                             std::span<const std::string> known);

// Adds to the report what is wanted and whether it is met. What counts as fused is what the report
// shows: patched now or before. With `strict` each module that is on has to have all of its expected
// instances; a number from config.json alone, or none, is not judged.
void AddExpectations(std::span<const WantedCount> wanted, bool strict, Report& report);

// An Error (kExpectation) that names each expectation of the report that is not met.
Status CheckExpectations(const Report& report);

}  // namespace liger
