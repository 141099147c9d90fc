// Workflow commands of GitHub Actions: `::error file=m.onnx,title=liger-patch::message`.
//
// GitHub shows ten annotations of a kind for a step, so places of one reason share a line.

#include <map>
#include <utility>

#include "report/escape.h"
#include "report/facts.h"

namespace liger {
namespace {

// Places named in a line.
constexpr size_t kPlaces = 5;

class GitHubWriter {
 public:
  std::string Write(const Report& report) {
    file_ = report.input.path;
    for (const ExpectationReport* e : UnmetExpectations(report)) {
      Command("error", "liger-patch: " + e->module,
              e->module + ": " + e->wanted + " wanted by " + e->source + ", " +
                  std::to_string(e->found) + " fused",
              e->source);
    }
    for (const Diagnostic* diagnostic : OwnDiagnostics(report)) Write(*diagnostic);
    Write("not fused", report.missed);
    Write("degraded", report.degraded);
    for (const ModuleReport& module : report.modules) {
      if (module.enabled && module.unaccounted > 0) {
        Command("warning", "liger-patch: " + module.name,
                module.name + ": " + std::to_string(module.unaccounted) + " of " +
                    std::to_string(module.expected.value_or(0)) + " are unaccounted for");
      }
    }
    const std::string counts = CountsLine(report);
    Command("notice", "liger-patch",
            ModelName(report) + ": " + VerdictLine(report) + (counts.empty() ? "" : "; " + counts));
    return std::move(text_);
  }

 private:
  void Command(const std::string& kind, const std::string& title, const std::string& message,
               const std::string& location = "") {
    std::string properties;
    const auto add = [&](const std::string& name, const std::string& value) {
      properties += (properties.empty() ? " " : ",") + name + "=" + GitHubProperty(value);
    };
    if (const auto place = ParseFilePlace(location)) {
      add("file", place->file);
      add("line", std::to_string(place->line));
      add("col", std::to_string(place->column));
    } else if (!file_.empty() && file_ != "-") {
      add("file", file_);
    }
    add("title", title);
    text_ += "::" + kind + properties + "::" + GitHubMessage(message) + "\n";
  }

  void Write(const Diagnostic& diagnostic) {
    const bool is_error = diagnostic.severity == Diagnostic::Severity::kError;
    const bool is_warning = diagnostic.severity == Diagnostic::Severity::kWarning;
    std::string message = diagnostic.message;
    if (!diagnostic.location.empty() && !ParseFilePlace(diagnostic.location)) {
      message += "\nat: " + diagnostic.location;
    }
    if (!diagnostic.hint.empty()) message += "\nhint: " + diagnostic.hint;
    Command(is_error     ? "error"
            : is_warning ? "warning"
                         : "notice",
            "liger-patch", message, diagnostic.location);
  }

  void Write(const std::string& what, const std::vector<MissReport>& misses) {
    std::vector<std::pair<std::string, std::string>> order;  // (module, reason)
    std::map<std::pair<std::string, std::string>, std::vector<const MissReport*>> groups;
    for (const MissReport& miss : misses) {
      const std::pair key(miss.module, WhyOf(miss));
      auto& group = groups[key];
      if (group.empty()) order.push_back(key);
      group.push_back(&miss);
    }
    for (const auto& key : order) {
      const auto& group = groups[key];
      std::string message =
          key.first + ": " + std::to_string(group.size()) + " " + what + ": " + key.second;
      for (size_t i = 0; i < group.size() && i < kPlaces; ++i) message += "\n" + PlaceOf(*group[i]);
      if (group.size() > kPlaces) {
        message += "\nand " + std::to_string(group.size() - kPlaces) + " more";
      }
      Command("warning", "liger-patch: " + key.first, message);
    }
  }

  std::string file_;
  std::string text_;
};

}  // namespace

std::string GitHubOf(std::span<const Report> reports) {
  std::string text;
  for (const Report& report : reports) text += GitHubWriter().Write(report);
  return text;
}

}  // namespace liger
