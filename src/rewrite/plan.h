// What is to be rewritten, decided and not done: pure, so that a dry run and an explanation are the
// same path as the real run.
//
//   Result<RewritePlan> plan = MakePlan(model, ops, lowerings, options);
//   for (const PlannedNode& node : plan->nodes) ...
//
// Legality is joint: all accepted matches are replaced in thought, and one that has an inner value
// which is still live is dropped, until nothing changes. A match is never made where the fused op
// is not shown to compute the same function; what stood in the way is in `near_misses`.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "model/graph.h"
#include "pattern/lowering.h"
#include "pattern/matcher.h"
#include "pattern/op_pattern.h"
#include "rewrite/explain.h"
#include "rewrite/order.h"
#include "rewrite/selection.h"

namespace liger {

struct PlanOptions {
  Selection selection;
  std::vector<Provider> providers = {Provider::kCpu, Provider::kCuda};
  bool exact = false;                    // refuse raised precision and re-association
  int64_t only_first = -1;               // replace only the first so many matches; -1: all
  std::optional<ExplainFilter> explain;  // fills chain, closest and values of these near misses
};

enum class Precision { kExact, kRaised, kReassociated };
std::string_view PrecisionName(Precision precision);

// A fused node and what it replaces. A node that serves two applications (a rotation of q and k)
// has two roots.
struct PlannedNode {
  int graph = 0;
  const PatternInstance* instance = nullptr;
  std::string module;
  int target = -1;              // entry of a user's map that asked for it (Selection::targets)
  std::string name;             // of the new node, unique in the model
  std::vector<ValueId> inputs;  // by position in the contract; kNone where left out
  std::vector<ValueId> outputs;
  AttributeEnv attributes;            // all of the op's attributes
  std::map<size_t, InputView> views;  // of inputs, by position, that the graph has otherwise
  std::vector<ValueId> roots;
  std::vector<NodeId> replaced;    // nodes that the rewrite removes
  std::vector<std::string> paths;  // module path of each root, where known
  std::vector<std::pair<std::string, std::string>> metadata;
  Precision precision = Precision::kExact;

  int instances() const { return static_cast<int>(roots.size()); }
};

// A place that looked like the op and was left alone.
struct NearMiss {
  std::string module;
  int target = -1;  // as PlannedNode::target
  std::string op;
  int graph = 0;
  ValueId root = kNone;
  std::string node;   // name of the node where the attempt stood
  std::string path;   // module path, where known
  std::string guard;  // empty if the structure did not fit
  std::string reason;
  int score = 0;                    // operators that fitted
  bool degraded = false;            // a smaller form fits, but not the one that is expected
  std::string closest;              // op, text and preset that came nearest, and the op's file
  std::vector<std::string> values;  // what was bound by then
  std::vector<std::string> chain;   // the nodes as they stand
};

// A fused op that stood in the model before, ours or another's.
struct AlreadyFused {
  std::string module;
  int target = -1;  // as PlannedNode::target
  std::string op;
  int graph = 0;
  std::string node;
  std::string output;  // name of its first output
  std::string path;
  int instances = 1;
  std::string reason;  // why another's was not taken over
};

// A match that is not wanted: its module is off, or it stands outside of --scope. It stays as it is,
// and so do its parts: the tail of a LayerNorm is no RMSNorm, whether LayerNorms are fused or not.
struct OffMatch {
  std::string module;  // of the op
  std::string reason;
  std::string op;
  std::string node;
  std::string path;
};

struct RewritePlan {
  std::shared_ptr<const std::vector<PatternInstance>> instances;  // what the nodes point to
  std::vector<PlannedNode> nodes;
  std::vector<NearMiss> near_misses;
  std::vector<AlreadyFused> already_fused;
  std::vector<OffMatch> off;
  std::vector<std::pair<int, std::vector<OrderedNode>>> order;  // of each graph that changes
};

Result<RewritePlan> MakePlan(const GraphModel& model, const OpPatternSet& ops,
                             const LoweringSet& lowerings, const PlanOptions& options);

}  // namespace liger
