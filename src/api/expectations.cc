#include "api/expectations.h"

#include <algorithm>

#include "patchmap/nearest.h"

namespace liger {
namespace {

std::vector<std::string> SplitAtCommas(const std::string& text) {
  std::vector<std::string> parts;
  size_t begin = 0;
  while (true) {
    const size_t comma = text.find(',', begin);
    parts.push_back(text.substr(begin, comma - begin));
    if (comma == std::string::npos) return parts;
    begin = comma + 1;
  }
}

}  // namespace

Result<std::vector<WantedCount>> ParseExpect(std::span<const std::string> texts,
                                             std::span<const std::string> known) {
  std::vector<WantedCount> wanted;
  for (const std::string& text : texts) {
    for (const std::string& part : SplitAtCommas(text)) {
      const size_t sign = part.find_first_of("=<>");
      const std::string module = part.substr(0, sign);
      const auto wish =
          sign == std::string::npos ? std::nullopt : ParseCountWish(part.substr(sign));
      if (!wish) {
        return Error{ErrorCode::kUsage, "--expect: '" + part + "' is no expectation", "",
                     "write module=N or 'module>=N', as in --expect rms_norm=65"};
      }
      if (std::find(known.begin(), known.end(), module) == known.end()) {
        const std::vector<std::string> nearest = NearestNames(module, known);
        return Error{ErrorCode::kUsage, "unknown module '" + module + "' in --expect", "",
                     nearest.empty() ? "known modules: " + JoinNames(known)
                                     : "did you mean " + JoinAlternatives(nearest) + "?"};
      }
      wanted.push_back({module, *wish});
    }
  }
  return wanted;
}

void AddExpectations(std::span<const WantedCount> wanted, bool strict, Report& report) {
  for (const WantedCount& want : wanted) {
    int64_t found = 0;
    for (const ModuleReport& module : report.modules) {
      if (module.name == want.module) found = module.patched + module.already_fused;
    }
    report.expectations.push_back({want.module, want.wish.ToText(), "--expect", found,
                                   want.wish.Met(found), want.wish.count});
  }
  if (!strict) return;
  for (const ModuleReport& module : report.modules) {
    if (!module.enabled || !module.expected || module.expected_source == "config") continue;
    const int64_t wish = *module.expected - module.excluded;
    const int64_t found = module.patched + module.already_fused;
    report.expectations.push_back(
        {module.name, "all " + std::to_string(wish), "--strict", found, found >= wish, wish});
  }
  const bool judges =
      std::any_of(report.expectations.begin(), report.expectations.end(),
                  [](const ExpectationReport& wish) { return wish.source == "--strict"; });
  if (!judges) {
    report.diagnostics.push_back(
        {Diagnostic::Severity::kWarning,
         "--strict judges nothing here: of no module that is on the number of instances is known "
         "from the model itself; --expect asks for numbers"});
  }
}

Status CheckExpectations(const Report& report) {
  std::optional<Error> error;
  for (const ExpectationReport& wish : report.expectations) {
    if (wish.met) continue;
    Error unmet{ErrorCode::kExpectation,
                wish.module + ": " + wish.wanted + " wanted by " +
                    (wish.source.starts_with("--") ? wish.source : "the patch map") + ", " +
                    std::to_string(wish.found) + " fused",
                wish.source.starts_with("--") ? "" : wish.source,
                wish.found < wish.count
                    ? "the report names what was missed and why; --explain shows "
                      "the nodes"
                    : "more are there than wanted: if that is right, ask for " +
                          std::to_string(wish.found)};
    if (!error) {
      error = std::move(unmet);
    } else {
      error->others.push_back(std::move(unmet));
    }
  }
  if (!error) return {};
  return *std::move(error);
}

}  // namespace liger
