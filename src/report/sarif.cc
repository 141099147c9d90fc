// SARIF 2.1.0 (OASIS), as GitHub's code scanning reads it: one run for all models, each miss, unmet
// expectation, loss, gap and diagnostic a result with its node and module path.

#include <array>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>

#include "report/escape.h"
#include "report/facts.h"

namespace liger {
namespace {

using Json = nlohmann::ordered_json;

struct Rule {
  const char* id;
  const char* name;
  const char* level;
  const char* summary;
  const char* help;
};

// Their order is that of `ruleIndex`.
constexpr std::array kRules = {
    Rule{
        "missed", "MissedFusion", "warning", "An expected instance of a module was not fused.",
        "The message names the guard that refused. --explain shows the nodes as they stand; export "
        "the model so that they take a known form, or describe them in a patch map."},
    Rule{"degraded", "DegradedFusion", "warning",
         "Only a smaller form than expected fits, so nothing was fused.",
         "A weight or bias that the module has is not applied where it is looked for. --explain "
         "shows the nodes."},
    Rule{"expectation", "UnmetExpectation", "error",
         "Another number of instances is fused than was asked for.",
         "Asked for by --expect, --strict or `expect:` in a patch map. The results of the rule "
         "`missed` say what is missing."},
    Rule{"loss-excluded", "ExcludedLoss", "note", "A loss of the graph was left as it is.",
         "Losses are excluded by default; --exclude none lifts it for the modules that the family "
         "accepts."},
    Rule{"runtime-gap", "RuntimeGap", "note", "Something is needed, or lacking, at run time.",
         "The message says what."},
    Rule{"diagnostic", "Diagnostic", "note", "What the run has to say of the model or its options.",
         "The message says what to do."},
};

size_t RuleIndex(std::string_view id) {
  size_t index = 0;
  while (index + 1 < kRules.size() && kRules[index].id != id) ++index;
  return index;
}

// FNV-1a; a fingerprint only has to stay the same from run to run.
std::string Fingerprint(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325U;
  for (const char c : text) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3U;
  char buffer[17];
  std::snprintf(buffer, sizeof(buffer), "%016llx", static_cast<unsigned long long>(hash));
  return buffer;
}

// "[text](1)" in a message is a link to a location of the result.
std::string PlainMessage(std::string_view message) {
  std::string text = Printable(message);
  for (size_t at = text.find("]("); at != std::string::npos; at = text.find("](", at)) {
    text.insert(at + 1, " ");
  }
  return text;
}

class SarifWriter {
 public:
  std::string Write(std::span<const Report> reports) {
    for (const Report& report : reports) Add(report);
    Json driver = {{"name", "liger-patch"}};
    if (!version_.empty()) driver["version"] = driver["semanticVersion"] = version_;
    driver["rules"] = Rules();
    Json run;
    run["tool"]["driver"] = std::move(driver);
    run["automationDetails"]["id"] = "liger-patch/";
    run["columnKind"] = "utf16CodeUnits";
    run["invocations"] =
        Json::array({{{"executionSuccessful", succeeded_}, {"exitCode", WorstExitCode(reports)}}});
    run["artifacts"] = std::move(artifacts_);
    run["results"] = std::move(results_);
    Json json;
    json["$schema"] = "https://json.schemastore.org/sarif-2.1.0.json";
    json["version"] = "2.1.0";
    json["runs"] = Json::array({std::move(run)});
    return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
  }

 private:
  static Json Rules() {
    Json rules = Json::array();
    for (const Rule& rule : kRules) {
      rules.push_back({{"id", rule.id},
                       {"name", rule.name},
                       {"shortDescription", {{"text", rule.summary}}},
                       {"fullDescription", {{"text", rule.summary}}},
                       {"help", {{"text", rule.help}}},
                       {"defaultConfiguration", {{"level", rule.level}}}});
    }
    return rules;
  }

  void Add(const Report& report) {
    if (version_.empty()) version_ = report.tool_version;
    model_ = ModelName(report);
    hash_ = report.input.sha256;
    succeeded_ = succeeded_ && report.status != "error";
    for (const ExpectationReport* e : UnmetExpectations(report)) {
      Result("expectation", "error",
             e->module + ": " + e->wanted + " wanted by " + e->source + ", " +
                 std::to_string(e->found) + " fused",
             e->module + e->wanted, {}, e->source);
    }
    AddMisses("missed", report.missed);
    AddMisses("degraded", report.degraded);
    for (const ModuleReport& module : report.modules) {
      if (!module.enabled || module.unaccounted == 0) continue;
      Result("missed", "warning",
             module.name + ": " + std::to_string(module.unaccounted) + " of " +
                 std::to_string(module.expected.value_or(0)) + " are unaccounted for",
             module.name, {});
    }
    for (const LossOpReport& loss : report.loss_ops) {
      Result("loss-excluded", "note",
             loss.op + " is left as it is" + (loss.reason.empty() ? "" : ": " + loss.reason),
             loss.op + loss.node, Places(loss.path, loss.node));
    }
    for (const std::string& gap : report.runtime_gaps) Result("runtime-gap", "note", gap, gap, {});
    for (const Diagnostic* d : OwnDiagnostics(report)) AddDiagnostic(*d);
  }

  void AddMisses(const std::string& rule, const std::vector<MissReport>& misses) {
    for (const MissReport& miss : misses) {
      Result(rule, "warning", miss.module + ": " + WhyOf(miss),
             miss.module + "\n" + miss.path + "\n" + miss.node, Places(miss.path, miss.node));
    }
  }

  void AddDiagnostic(const Diagnostic& d) {
    const bool is_error = d.severity == Diagnostic::Severity::kError;
    const bool is_warning = d.severity == Diagnostic::Severity::kWarning;
    const bool is_file = ParseFilePlace(d.location).has_value() || d.location == model_;
    Result("diagnostic",
           is_error     ? "error"
           : is_warning ? "warning"
                        : "note",
           d.message + (d.hint.empty() ? "" : "; hint: " + d.hint), d.message,
           Places("", is_file ? "" : d.location), d.location);
  }

  // The module path and the node, where known.
  static Json Places(const std::string& path, const std::string& node) {
    Json places = Json::array();
    const auto add = [&](const std::string& name, const std::string& kind) {
      if (name.empty()) return;
      places.push_back({{"name", name}, {"fullyQualifiedName", name}, {"kind", kind}});
    };
    add(node, "node");
    add(path, "module");
    return places;
  }

  int64_t ArtifactIndex(const std::string& path, const std::string& sha256) {
    const std::string uri = FileUri(path);
    const auto [entry, is_new] =
        artifact_index_.emplace(uri, static_cast<int64_t>(artifacts_.size()));
    if (is_new) {
      Json artifact;
      artifact["location"]["uri"] = uri;
      if (!sha256.empty()) artifact["hashes"]["sha-256"] = sha256;
      artifacts_.push_back(std::move(artifact));
    }
    return entry->second;
  }

  void Result(const std::string& rule, const std::string& level, const std::string& message,
              const std::string& key, Json places, const std::string& location = "") {
    const auto file_place = ParseFilePlace(location);
    const std::string file = file_place ? file_place->file : model_;
    const int64_t artifact = ArtifactIndex(file, file == model_ ? hash_ : "");
    // GitHub wants a line also of a file that has none.
    Json region = {{"startLine", file_place ? file_place->line : 1}};
    if (file_place) region["startColumn"] = file_place->column;
    Json place;
    place["physicalLocation"] = {
        {"artifactLocation", {{"uri", FileUri(file)}, {"index", artifact}}},
        {"region", std::move(region)}};
    if (!places.empty()) place["logicalLocations"] = std::move(places);
    Json result;
    result["ruleId"] = rule;
    result["ruleIndex"] = RuleIndex(rule);
    result["level"] = level;
    result["message"]["text"] = PlainMessage(message);
    result["locations"] = Json::array({std::move(place)});
    const std::string identity = rule + "\n" + model_ + "\n" + key;
    result["partialFingerprints"]["ligerPatch/v1"] =
        Fingerprint(identity + "\n" + std::to_string(seen_[identity]++));
    results_.push_back(std::move(result));
  }

  std::string version_;
  std::string model_;
  std::string hash_;
  bool succeeded_ = true;
  Json artifacts_ = Json::array();
  Json results_ = Json::array();
  std::map<std::string, int64_t> artifact_index_;  // by URI
  std::map<std::string, int64_t> seen_;            // equal results, for their fingerprints
};

}  // namespace

std::string SarifOf(std::span<const Report> reports) { return SarifWriter().Write(reports); }

}  // namespace liger
