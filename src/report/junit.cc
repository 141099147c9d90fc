// JUnit XML as the common readers of it take it (Jenkins, GitLab, GitHub actions): a suite for each
// model, in it a case for each module that is on, for each expectation, and for a run that failed.

#include <algorithm>
#include <cstdint>
#include <utility>

#include "report/escape.h"
#include "report/facts.h"

namespace liger {
namespace {

struct Counts {
  int64_t tests = 0;
  int64_t failures = 0;
  int64_t errors = 0;
  int64_t skipped = 0;

  std::string Attributes() const {
    return " tests=\"" + std::to_string(tests) + "\" failures=\"" + std::to_string(failures) +
           "\" errors=\"" + std::to_string(errors) + "\" skipped=\"" + std::to_string(skipped) +
           "\"";
  }
};

// Lines inside a text node: each is escaped, the breaks between them stay.
class XmlLines {
 public:
  void Add(const std::string& line) { text_ += (text_.empty() ? "" : "\n") + XmlText(line); }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

class SuiteWriter {
 public:
  explicit SuiteWriter(const Report& report) : report_(report), suite_(ModelName(report)) {}

  std::string Write(Counts& total) {
    for (const ModuleReport& module : report_.modules) {
      if (module.enabled) WriteModule(module);
    }
    for (const ExpectationReport& expectation : report_.expectations) Write(expectation);
    if (RunFailed(report_)) WriteFailedRun();
    total.tests += counts_.tests;
    total.failures += counts_.failures;
    total.errors += counts_.errors;
    total.skipped += counts_.skipped;
    return "  <testsuite name=\"" + XmlText(suite_) + "\"" + counts_.Attributes() + ">\n" +
           Properties() + cases_ + Output("system-out", CaseNotes()) +
           Output("system-err", Messages()) + "  </testsuite>\n";
  }

 private:
  std::string Properties() const {
    std::string text;
    const auto add = [&](const std::string& name, const std::string& value) {
      if (value.empty()) return;
      text += "      <property name=\"" + name + "\" value=\"" + XmlText(value) + "\"/>\n";
    };
    add("status", report_.status);
    add("exit_code", std::to_string(report_.exit_code));
    add("family", report_.family);
    add("route", report_.route);
    add("helper", report_.helper);
    add("stage", report_.stage.name);
    add("output", report_.output ? report_.output->path : "");
    add("sha256", report_.input.sha256);
    add("tool_version", report_.tool_version);
    return "    <properties>\n" + text + "    </properties>\n";
  }

  void Case(const std::string& name, const std::string& body) {
    ++counts_.tests;
    cases_ += "    <testcase classname=\"" + XmlText(suite_) + "\" name=\"" + XmlText(name) + "\"" +
              (body.empty() ? "/>\n" : ">\n" + body + "    </testcase>\n");
  }

  static std::string Element(const std::string& tag, const std::string& type,
                             const std::string& message, const std::string& escaped_text) {
    return "      <" + tag + " message=\"" + XmlText(message) + "\" type=\"" + XmlText(type) +
           "\">" + escaped_text + "</" + tag + ">\n";
  }

  static std::string Output(const std::string& tag, const XmlLines& lines) {
    if (lines.text().empty()) return "";
    return "    <" + tag + ">" + lines.text() + "</" + tag + ">\n";
  }

  // A case fails where an expectation on the module is not met. What is missing without anybody
  // having asked for it is a skipped case.
  void WriteModule(const ModuleReport& module) {
    std::string unmet;
    bool is_asked = false;
    for (const ExpectationReport& e : report_.expectations) {
      if (e.module != module.name) continue;
      is_asked = true;
      if (!e.met) unmet += (unmet.empty() ? "" : ", ") + e.wanted + " (" + e.source + ")";
    }
    const std::string fused = std::to_string(Fused(module)) + " fused" +
                              (module.expected ? " of " + std::to_string(*module.expected) : "");
    std::string body;
    if (!unmet.empty()) {
      ++counts_.failures;
      body = Element("failure", "expectation", fused + ", wanted " + unmet, WhatIsMissing(module));
    } else if (!is_asked && NotFused(module) > 0) {
      ++counts_.skipped;
      body = "      <skipped message=\"" + XmlText(fused) + "\"/>\n" + "      <system-out>" +
             WhatIsMissing(module) + "</system-out>\n";
    }
    Case(module.name, body);
  }

  std::string WhatIsMissing(const ModuleReport& module) const {
    XmlLines lines;
    for (const auto& [what, misses] :
         {std::pair("missed", &report_.missed), std::pair("degraded", &report_.degraded)}) {
      for (const MissReport& miss : *misses) {
        if (miss.module == module.name) {
          lines.Add(std::string(what) + ": " + PlaceOf(miss) + ": " + WhyOf(miss));
        }
      }
    }
    if (module.unaccounted > 0) {
      lines.Add(std::to_string(module.unaccounted) + " are unaccounted for");
    }
    return lines.text();
  }

  void Write(const ExpectationReport& e) {
    std::string body;
    if (!e.met) {
      ++counts_.failures;
      body = Element("failure", "expectation",
                     e.wanted + " wanted, " + std::to_string(e.found) + " fused",
                     XmlText("asked for by " + e.source));
    }
    Case("expectation: " + e.module + " " + e.wanted + " (" + e.source + ")", body);
  }

  void WriteFailedRun() {
    ++counts_.errors;
    std::string message = "the run failed";
    XmlLines lines;
    bool is_first = true;
    // Where there is no error, as in a model with faults that do not keep it from running, warnings
    // are the reason.
    const bool has_errors =
        std::any_of(report_.diagnostics.begin(), report_.diagnostics.end(),
                    [](const Diagnostic& d) { return d.severity == Diagnostic::Severity::kError; });
    const auto why = has_errors ? Diagnostic::Severity::kError : Diagnostic::Severity::kWarning;
    for (const Diagnostic& d : report_.diagnostics) {
      if (d.severity != why) continue;
      if (std::exchange(is_first, false)) message = d.message;
      lines.Add(d.message);
      if (!d.location.empty()) lines.Add("at: " + d.location);
      if (!d.hint.empty()) lines.Add("hint: " + d.hint);
    }
    Case("run",
         Element("error", "exit code " + std::to_string(report_.exit_code), message, lines.text()));
  }

  XmlLines CaseNotes() const {
    XmlLines lines;
    for (const LossOpReport& loss : report_.loss_ops) {
      lines.Add("loss left as it is: " + loss.op + " at " + loss.node +
                (loss.reason.empty() ? "" : ": " + loss.reason));
    }
    for (const std::string& gap : report_.runtime_gaps) lines.Add("at run time: " + gap);
    for (const std::string& command : report_.validation_commands)
      lines.Add("validate: " + command);
    return lines;
  }

  XmlLines Messages() const {
    XmlLines lines;
    for (const Diagnostic* d : OwnDiagnostics(report_)) {
      if (d->severity == Diagnostic::Severity::kWarning) lines.Add("warning: " + d->message);
    }
    return lines;
  }

  const Report& report_;
  std::string suite_;
  std::string cases_;
  Counts counts_;
};

}  // namespace

std::string JUnitOf(std::span<const Report> reports) {
  Counts total;
  std::string suites;
  for (const Report& report : reports) suites += SuiteWriter(report).Write(total);
  return "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"liger-patch\"" +
         total.Attributes() + ">\n" + suites + "</testsuites>\n";
}

}  // namespace liger
