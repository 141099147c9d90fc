#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "report/facts.h"

namespace liger {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kReportSchemaVersion = 1;

const char* SeverityName(Diagnostic::Severity severity) {
  switch (severity) {
    case Diagnostic::Severity::kNote:
      return "note";
    case Diagnostic::Severity::kWarning:
      return "warning";
    case Diagnostic::Severity::kError:
      return "error";
  }
  return "";
}

Json File(const FileReport& file) { return {{"path", file.path}, {"sha256", file.sha256}}; }

Json Attributes(const std::map<std::string, Attribute::Value>& attributes) {
  Json result = Json::object();
  for (const auto& [name, value] : attributes) {
    if (const auto* i = std::get_if<int64_t>(&value)) result[name] = *i;
    if (const auto* f = std::get_if<float>(&value)) {
      // JSON has no number for these.
      const bool is_number = std::isfinite(*f);
      result[name] = is_number ? Json(*f) : Json(std::isnan(*f) ? "nan" : *f > 0 ? "inf" : "-inf");
    }
    if (const auto* s = std::get_if<std::string>(&value)) result[name] = *s;
  }
  return result;
}

Json Misses(const std::vector<MissReport>& misses) {
  Json list = Json::array();
  for (const MissReport& miss : misses) {
    list.push_back({{"module", miss.module},
                    {"path", miss.path},
                    {"node", miss.node},
                    {"reason", miss.reason},
                    {"guard", miss.guard},
                    {"closest", miss.closest},
                    {"chain", miss.chain},
                    {"values", miss.values}});
  }
  return list;
}

Json Modules(const std::vector<ModuleReport>& modules) {
  Json result = Json::object();
  for (const ModuleReport& module : modules) {
    result[module.name] = {{"enabled", module.enabled},
                           {"reason", module.reason},
                           {"expected", module.expected ? Json(*module.expected) : Json(nullptr)},
                           {"expected_source", module.expected_source},
                           {"patched", module.patched},
                           {"already_fused", module.already_fused},
                           {"degraded", module.degraded},
                           {"missed", module.missed},
                           {"excluded", module.excluded},
                           {"unaccounted", module.unaccounted},
                           {"additional", module.additional}};
  }
  return result;
}

Json Stage(const StageReport& stage) {
  Json changes = Json::array();
  for (const StageReport::Change& change : stage.changes) {
    changes.push_back({{"module", change.module}, {"change", change.change}});
  }
  return {{"name", stage.name}, {"changes", std::move(changes)}, {"note", stage.note}};
}

Json Scopes(const std::vector<ScopeReport>& scopes) {
  Json list = Json::array();
  for (const ScopeReport& scope : scopes) {
    list.push_back({{"option", scope.option}, {"glob", scope.glob}, {"paths", scope.paths}});
  }
  return list;
}

Json Symbols(const std::vector<SymbolReport>& symbols) {
  Json list = Json::array();
  for (const SymbolReport& symbol : symbols) {
    list.push_back({{"module", symbol.module},
                    {"kind", symbol.kind},
                    {"symbol", symbol.symbol},
                    {"op", symbol.op},
                    {"place", symbol.place},
                    {"instances", symbol.instances},
                    {"patched", symbol.patched},
                    {"already_fused", symbol.already_fused},
                    {"notes", symbol.notes}});
  }
  return list;
}

Json Expectations(const std::vector<ExpectationReport>& expectations) {
  Json list = Json::array();
  for (const ExpectationReport& expectation : expectations) {
    list.push_back({{"module", expectation.module},
                    {"wanted", expectation.wanted},
                    {"source", expectation.source},
                    {"found", expectation.found},
                    {"met", expectation.met}});
  }
  return list;
}

Json Losses(const std::vector<LossOpReport>& losses) {
  Json list = Json::array();
  for (const LossOpReport& loss : losses) {
    list.push_back({{"op", loss.op},
                    {"node", loss.node},
                    {"path", loss.path},
                    {"module", loss.module},
                    {"reason", loss.reason},
                    {"nodes", loss.nodes},
                    {"inputs", loss.inputs}});
  }
  return list;
}

Json Tool(const std::string& version) { return {{"name", "liger-patch"}, {"version", version}}; }

Json Summary(std::span<const Report> reports) {
  std::map<std::string, int64_t> statuses;
  Json models = Json::array();
  for (const Report& report : reports) {
    ++statuses[report.status];
    models.push_back({{"path", report.input.path},
                      {"output", report.output ? Json(report.output->path) : Json(nullptr)},
                      {"status", report.status},
                      {"exit_code", report.exit_code},
                      {"line", VerdictLine(report)},
                      {"modules", CountsLine(report)}});
  }
  return {{"models", reports.size()},
          {"exit_code", WorstExitCode(reports)},
          {"line", SummaryLine(reports)},
          {"by_status", statuses},
          {"per_model", std::move(models)}};
}

std::string Dump(const Json& json) {
  // Names in a model may hold bytes that are no UTF-8.
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

Json ToJsonValue(const Report& report) {
  Json json;
  json["schema_version"] = kReportSchemaVersion;
  json["status"] = report.status;
  json["exit_code"] = report.exit_code;
  json["diagnostics"] = Json::array();
  for (const Diagnostic& d : report.diagnostics) {
    json["diagnostics"].push_back({{"severity", SeverityName(d.severity)},
                                   {"message", d.message},
                                   {"location", d.location},
                                   {"hint", d.hint}});
  }
  json["tool"] = Tool(report.tool_version);
  json["input"] = File(report.input);
  json["output"] = report.output ? File(*report.output) : Json(nullptr);
  json["route"] = report.route;
  json["family"] = {{"name", report.family}, {"decided_by", report.family_decided_by}};
  json["family"]["evidence"] = Json::array();
  for (const EvidenceReport& e : report.evidence) {
    json["family"]["evidence"].push_back({{"source", e.source},
                                          {"place", e.place},
                                          {"key", e.key},
                                          {"value", e.value},
                                          {"family", e.family},
                                          {"decided", e.decided},
                                          {"note", e.note}});
  }
  json["helper"] = report.helper;
  json["stage"] = Stage(report.stage);
  json["scopes"] = Scopes(report.scopes);
  json["symbols"] = Symbols(report.symbols);
  json["expectations"] = Expectations(report.expectations);
  json["modules"] = Modules(report.modules);
  json["patched"] = Json::array();
  for (const PatchedReport& p : report.patched) {
    json["patched"].push_back({{"module", p.module},
                               {"op", p.op},
                               {"node", p.node},
                               {"path", p.paths.empty() ? "" : p.paths.front()},
                               {"paths", p.paths},
                               {"form", p.form},
                               {"attributes", Attributes(p.attributes)},
                               {"replaced", p.replaced},
                               {"precision", p.precision}});
  }
  json["already_fused"] = Json::array();
  for (const FusedReport& f : report.already_fused) {
    json["already_fused"].push_back({{"module", f.module},
                                     {"op", f.op},
                                     {"node", f.node},
                                     {"path", f.path},
                                     {"instances", f.instances},
                                     {"reason", f.reason}});
  }
  json["degraded"] = Misses(report.degraded);
  json["missed"] = Misses(report.missed);
  json["near_misses"] = Misses(report.near_misses);
  json["explained"] = Json::array();
  for (const PlaceReport& place : report.explained) {
    json["explained"].push_back({{"place", place.place}, {"nodes", place.nodes}});
  }
  json["excluded"] = {{"modules", report.excluded_modules}, {"loss_ops", Losses(report.loss_ops)}};
  json["weights_read"] = Json::array();
  for (const WeightRead& read : report.weights_read) {
    json["weights_read"].push_back(
        {{"tensor", read.tensor}, {"file", read.file}, {"bytes", read.bytes}});
  }
  json["verification"] = report.verification;
  json["validation_commands"] = report.validation_commands;
  json["runtime_gaps"] = report.runtime_gaps;
  json["op_counts"] = Json::object();
  for (const auto& [op, counts] : report.op_counts) {
    json["op_counts"][op] = {{"before", counts.first}, {"after", counts.second}};
  }
  return json;
}

}  // namespace

std::string ToJson(const Report& report) { return Dump(ToJsonValue(report)); }

std::string JsonOf(std::span<const Report> reports, bool many) {
  if (!many) return ToJson(reports[0]);
  Json json;
  json["schema_version"] = kReportSchemaVersion;
  json["tool"] = Tool(reports.empty() ? "" : reports[0].tool_version);
  json["summary"] = Summary(reports);
  json["reports"] = Json::array();
  for (const Report& report : reports) json["reports"].push_back(ToJsonValue(report));
  return Dump(json);
}

}  // namespace liger
