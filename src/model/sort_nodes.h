// Nodes in topological order, which ONNX demands and not every tool keeps.
//
//   Result<int64_t> moved = SortNodes(file.proto);
//   if (!moved) return moved.error();   // a cycle, with a node on it
//   if (*moved > 0) ...
//
// A graph that is in order is not touched. In one that is not, a node moves only if it stands behind
// a node that needs it: it comes to stand right in front of the first of these. Bodies of If, Loop
// and Scan and local functions are sorted too; what a body reads from outside counts for the node
// that holds it. Names that nothing defines are left for others to report.
#pragma once

#include <cstdint>

#include "base/error.h"

namespace onnx {
class ModelProto;
}

namespace liger {

// How many nodes were moved.
Result<int64_t> SortNodes(onnx::ModelProto& model);

}  // namespace liger
