// Reports of runs as they happen, for the tests of the formats.
#pragma once

#include <string>
#include <vector>

#include "report/report.h"

namespace liger {

// Everything is fused; an expectation is met.
Report GoodRun();

// Two norms missed, one degraded, a loss, a stage, a patch map; an expectation is not met.
Report RunWithMisses();

// Misses that nobody asked about.
Report RunWithUnaskedMisses();

// The patch map is wrong in two places.
Report FailedRun();

// Every name is as bad as a model can make it.
Report HostileRun();

// A name with pipes, quotes, line breaks, control characters, bytes that are no UTF-8, a workflow
// command, an end of CDATA, markup of HTML and Markdown, and a character that turns text around.
std::string HostileName();

struct Sample {
  std::string name;
  std::vector<Report> reports;
};

// The runs above, and several models at once.
std::vector<Sample> Samples();

}  // namespace liger
