// The report of a run as a value; text, JSON and other formats (report/formats.h) are made from it
// afterwards.
//
//   Report report = ...;
//   std::cout << ToText(report, {.explain = true});
//   file << ToJson(report);
//
// A report exists for every run, also for one that failed: what is not known yet is empty. Counts
// are module instances (one norm, one gated MLP, one rotary application to one tensor).
//   expected = patched + already_fused + degraded + missed + excluded + unaccounted
// where `expected` is known.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "model/graph.h"

namespace liger {

struct Diagnostic {
  enum class Severity { kNote, kWarning, kError };
  Severity severity = Severity::kNote;
  std::string message;
  std::string location{};
  std::string hint{};
};

struct FileReport {
  std::string path;
  std::string sha256;
};

struct EvidenceReport {
  std::string source, place, key, value, family, note;
  bool decided = false;
};

struct ModuleReport {
  std::string name;
  bool enabled = false;
  std::string reason;
  std::optional<int64_t> expected;
  std::string expected_source;
  int64_t patched = 0;
  int64_t already_fused = 0;
  int64_t degraded = 0;
  int64_t missed = 0;
  int64_t excluded = 0;
  int64_t unaccounted = 0;
  int64_t additional = 0;  // fused beyond what was expected, and not counted in the others
  std::map<std::string, int64_t> ops;  // fused op type to number of new nodes
};

struct PatchedReport {
  std::string module, op, node, form, precision;
  std::vector<std::string> paths;  // one per instance, "" where unknown
  std::map<std::string, Attribute::Value> attributes;
  std::vector<std::string> replaced;  // names of removed nodes
};

struct FusedReport {
  std::string module, op, node, path;
  int64_t instances = 1;
  std::string reason;  // why an operator of another domain was not taken over
};

// Of a degraded or missed instance, or of a near miss.
struct MissReport {
  std::string module, path, node, reason, guard;
  // Filled for what --explain asks for, else empty.
  std::string closest{};  // op, text and preset that came nearest: "LigerRMSNorm pow/llama"
  std::vector<std::string> chain{};  // the nodes as they stand, result first, one line each
  std::vector<std::string>
      values{};  // what the guard saw: "epsilon = 1e-06", "x: f32[batch,seq,64]"
};

// The nodes of a place that --explain GLOB names.
struct PlaceReport {
  std::string place;  // module path or node name
  std::vector<std::string> nodes;
};

// A loss that is in the graph and stays as it is: an operator, or several that compute one.
struct LossOpReport {
  std::string op;                     // "SoftmaxCrossEntropyLoss", "LogSoftmax + GatherElements"
  std::string node;                   // the first of `nodes`
  std::string path{};                 // module path, where known
  std::string module{};               // the module that would fuse it: "cross_entropy", ...
  std::string reason{};               // why it stays
  std::vector<std::string> nodes{};   // names of its nodes, from the logits to the loss
  std::vector<std::string> inputs{};  // value names: logits (or hidden and weight), target, weights
};

// What --stage did to a module, or that it did nothing.
struct StageReport {
  struct Change {
    std::string module, change;  // "fused_linear_cross_entropy", "turned off: dpo needs the logits"
  };
  std::string name;  // empty if no stage was given
  std::vector<Change> changes;
  std::string note;  // one sentence: what follows from it
};

// A number that somebody asked for.
struct ExpectationReport {
  std::string module;
  std::string wanted;  // "65", ">=65", "all"
  std::string source;  // "--expect", "--strict", or the place in a patch map, file:line:column
  int64_t found = 0;
  bool met = false;
  int64_t count = 0;  // the number in `wanted`
};

// An entry of a user's patch map and what became of it.
struct SymbolReport {
  std::string module;
  std::string kind;    // class, function, scope or match
  std::string symbol;  // as written; the pattern's name for match
  std::string op;      // "liger.LigerRMSNorm", "my.domain.SoftCap"
  std::string place;   // file:line:column of the entry
  // Module instances in the graph: of match the places that the pattern fits; a class that holds
  // several of the op (attention: two rotations) counts as so many.
  int64_t instances = 0;
  int64_t patched = 0;
  int64_t already_fused = 0;
  std::vector<std::string>
      notes{};  // an alias that disagrees with the graph, "optional and absent"
};

struct ScopeReport {
  std::string option;  // --scope or --skip
  std::string glob;
  int64_t paths = 0;  // module paths of the model that it takes in
};

struct Report {
  std::string status = "ok";  // ok, nothing_to_do, dry_run, checked, expectation_failed, error
  int exit_code = 0;          // docs/exit-codes.md
  std::vector<Diagnostic> diagnostics;
  std::string tool_version;
  FileReport input;
  std::optional<FileReport> output;  // absent if nothing was written
  std::string route;                 // official, custom, composite, structural
  std::string family;
  std::string family_decided_by;
  std::vector<EvidenceReport> evidence;
  std::string helper;  // the map that was used; on the custom routes the user's files as well
  StageReport stage;
  std::vector<ScopeReport> scopes;
  std::vector<SymbolReport> symbols;
  std::vector<ExpectationReport> expectations;
  std::vector<ModuleReport> modules;
  std::vector<PatchedReport> patched;
  std::vector<FusedReport> already_fused;
  std::vector<MissReport> degraded;
  std::vector<MissReport> missed;
  std::vector<MissReport>
      near_misses;  // places that resemble an op; not all were expected to be one
  std::vector<PlaceReport> explained;  // of --explain GLOB
  std::vector<std::string> excluded_modules;
  std::vector<LossOpReport> loss_ops;
  std::vector<WeightRead> weights_read;
  std::vector<std::string> verification;  // what was checked, with notes
  std::vector<std::string> validation_commands;
  std::vector<std::string> runtime_gaps;  // what the result needs, or lacks, at run time
  std::map<std::string, std::pair<int64_t, int64_t>>
      op_counts;  // before and after, where they differ
};

struct TextOptions {
  bool explain = false;  // near misses, evidence, attributes
  bool color = false;
  // With `explain`: whether a place of this module, path and node is shown; empty: all are.
  std::function<bool(const std::string&, const std::string&, const std::string&)> shows{};
};

std::string ToText(const Report& report, const TextOptions& options);

// Pretty-printed; docs/report.schema.json describes it.
std::string ToJson(const Report& report);

}  // namespace liger
