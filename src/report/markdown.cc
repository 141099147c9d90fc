// Markdown for a comment on a pull request: verdict, table of modules, what is missing and why.
//
// GitHub takes 65536 characters in a comment, so lists are cut, and of many models those that no
// longer fit have a line of the summary only. The first line lets a script find its own comment.

#include <algorithm>
#include <array>
#include <functional>

#include "report/escape.h"
#include "report/facts.h"

namespace liger {
namespace {

// Lists longer than this are folded; those longer than the other are cut.
constexpr size_t kOpenList = 5;
constexpr size_t kLongestText = 1000;
constexpr size_t kLongestComment = 60000;
// Of these the first that makes the report fit.
constexpr std::array<size_t, 4> kLongestLists = {40, 10, 3, 1};

class MarkdownWriter {
 public:
  MarkdownWriter(const Report& report, bool many, size_t longest_list)
      : report_(report), many_(many), longest_list_(longest_list) {}

  std::string Write() {
    WriteVerdict();
    WriteModules();
    WriteExpectations();
    WriteSymbols();
    WriteMisses("Not fused", report_.missed);
    WriteMisses("Degraded: only a smaller form fits", report_.degraded);
    WriteLosses();
    WriteRuntime();
    return std::move(text_);
  }

 private:
  void Line(const std::string& line) { text_ += line + "\n"; }

  // A paragraph, a list or a table starts behind an empty line.
  void Gap() {
    if (!text_.empty()) text_ += "\n";
  }

  // Text of a message, which may quote names of any length.
  static std::string Text(const std::string& text) {
    std::string shown = text.substr(0, kLongestText);
    if (shown.size() < text.size()) shown += "...";
    return MarkdownText(shown);
  }

  void WriteVerdict() {
    Line((many_ ? "#### " : "### liger-patch: ") + MarkdownCode(ModelName(report_)) + ": " +
         MarkdownText(VerdictLine(report_)));
    size_t count = 0;
    for (const Diagnostic* d : OwnDiagnostics(report_)) {
      if (d->severity == Diagnostic::Severity::kNote || ++count > longest_list_) continue;
      Gap();
      Line((d->severity == Diagnostic::Severity::kError ? "**Error:** " : "**Warning:** ") +
           Text(d->message) +
           (d->location.empty() ? "" : " (at " + MarkdownCode(d->location) + ")"));
      if (!d->hint.empty()) Line("Hint: " + Text(d->hint));
    }
    if (count > longest_list_) {
      Gap();
      Line("... and " + std::to_string(count - longest_list_) + " more");
    }
    if (!report_.family.empty()) {
      Gap();
      Line("Family " + MarkdownCode(report_.family) + ", route " + report_.route + ", map " +
           MarkdownCode(report_.helper) +
           (report_.output ? ", written to " + MarkdownCode(report_.output->path) : "") + ".");
    }
    if (!report_.stage.name.empty()) {
      Gap();
      Line("**Stage:** " +
           Text(report_.stage.note.empty() ? report_.stage.name : report_.stage.note));
    }
    for (const ScopeReport& scope : report_.scopes) {
      Gap();
      Line(MarkdownCode(scope.option + " " + scope.glob) + " takes in " +
           CountOf(scope.paths, "module path") + ".");
    }
  }

  void WriteModules() {
    std::vector<const ModuleReport*> on;
    std::string off;
    for (const ModuleReport& module : report_.modules) {
      if (module.enabled) {
        on.push_back(&module);
      } else {
        off += "\n- " + MarkdownCode(module.name) + ": " + Text(module.reason);
      }
    }
    if (!on.empty()) {
      Gap();
      Line("| module | fused | expected | missed |");
      Line("| --- | ---: | ---: | --- |");
      for (const ModuleReport* module : on) {
        Line("| " + MarkdownCode(module->name) + " | " + std::to_string(Fused(*module)) + " | " +
             (module->expected ? std::to_string(*module->expected) : "unknown") + " | " +
             Missing(*module) + " |");
      }
    }
    if (!off.empty()) Fold("Modules that are off", off.substr(1) + "\n");
  }

  static std::string Missing(const ModuleReport& module) {
    std::string text;
    const auto add = [&](int64_t count, const std::string& what) {
      if (count > 0) text += (text.empty() ? "" : ", ") + std::to_string(count) + what;
    };
    add(module.missed, "");
    add(module.degraded, " degraded");
    add(module.unaccounted, " unaccounted for");
    add(module.excluded, " excluded");
    add(module.additional, " more elsewhere");
    return text.empty() ? "0" : text;
  }

  void Fold(const std::string& summary, const std::string& body) {
    Gap();
    Line("<details><summary>" + summary + "</summary>");
    Line("");
    text_ += body;
    Line("");
    Line("</details>");
  }

  // A list of `count` items under a title, folded if it is long. `item` writes one of them.
  void List(const std::string& title, size_t count,
            const std::function<std::string(size_t)>& item) {
    if (count == 0) return;
    std::string body;
    for (size_t i = 0; i < count && i < longest_list_; ++i) body += "- " + item(i) + "\n";
    if (count > longest_list_) {
      body += "- ... and " + std::to_string(count - longest_list_) + " more\n";
    }
    if (count > kOpenList) {
      Fold(title + " (" + std::to_string(count) + ")", body);
      return;
    }
    Gap();
    Line("**" + title + "**");
    Line("");
    text_ += body;
  }

  void WriteExpectations() {
    std::vector<const ExpectationReport*> met;
    for (const ExpectationReport& e : report_.expectations) {
      if (e.met) met.push_back(&e);
    }
    const std::vector<const ExpectationReport*> unmet = UnmetExpectations(report_);
    const auto text = [](const ExpectationReport& e) {
      return MarkdownCode(e.module) + " " + MarkdownText(e.wanted) + ", found " +
             std::to_string(e.found) + " (" + Text(e.source) + ")";
    };
    // Not folded, however many they are.
    if (!unmet.empty()) {
      Gap();
      Line("**Expectations not met**");
      Line("");
      for (size_t i = 0; i < unmet.size() && i < longest_list_; ++i) Line("- " + text(*unmet[i]));
      if (unmet.size() > longest_list_) {
        Line("- ... and " + std::to_string(unmet.size() - longest_list_) + " more");
      }
    }
    List("Expectations met", met.size(), [&](size_t i) { return text(*met[i]); });
  }

  void WriteSymbols() {
    List("Patch map", report_.symbols.size(), [&](size_t i) {
      const SymbolReport& s = report_.symbols[i];
      std::string notes;
      for (const std::string& note : s.notes) notes += "; " + Text(note);
      return MarkdownText(s.kind) + " " + MarkdownCode(s.symbol) + " to " + MarkdownCode(s.op) +
             ": " + std::to_string(s.patched + s.already_fused) + " of " +
             std::to_string(s.instances) + notes;
    });
  }

  void WriteMisses(const std::string& title, const std::vector<MissReport>& misses) {
    List(title, misses.size(), [&](size_t i) {
      const MissReport& miss = misses[i];
      std::string item = MarkdownCode(miss.module);
      if (!miss.path.empty()) item += " " + MarkdownCode(miss.path);
      if (!miss.node.empty()) item += " at node " + MarkdownCode(miss.node);
      return item + ": " + Text(miss.reason) +
             (miss.guard.empty() ? "" : " (guard " + MarkdownCode(miss.guard) + ")");
    });
  }

  void WriteLosses() {
    List("Losses left as they are", report_.loss_ops.size(), [&](size_t i) {
      const LossOpReport& loss = report_.loss_ops[i];
      return MarkdownCode(loss.op) +
             (loss.node.empty() ? "" : " at node " + MarkdownCode(loss.node)) +
             (loss.reason.empty() ? "" : ": " + Text(loss.reason));
    });
  }

  void WriteRuntime() {
    List("At run time", report_.runtime_gaps.size(),
         [&](size_t i) { return Text(report_.runtime_gaps[i]); });
    if (report_.validation_commands.empty()) return;
    std::string commands;
    for (const std::string& command : report_.validation_commands) {
      commands += Printable(command) + "\n";
    }
    Fold("How to validate", MarkdownBlock(commands, "sh"));
  }

  const Report& report_;
  bool many_;
  size_t longest_list_;
  std::string text_;
};

std::string MarkdownOf(const Report& report, bool many) {
  std::string text;
  for (const size_t longest_list : kLongestLists) {
    text = MarkdownWriter(report, many, longest_list).Write();
    if (text.size() < kLongestComment) break;
  }
  return text;
}

std::string Table(std::span<const Report> reports) {
  std::string text = "| model | result | modules |\n| --- | --- | --- |\n";
  for (const Report& report : reports) {
    const std::string row = "| " + MarkdownCode(ModelName(report)) + " | " +
                            MarkdownText(VerdictLine(report)) + " | " +
                            MarkdownText(CountsLine(report)) + " |\n";
    if (text.size() + row.size() > kLongestComment / 2) {
      return text + "\nMore models than fit here.\n";
    }
    text += row;
  }
  return text;
}

}  // namespace

std::string MarkdownOf(std::span<const Report> reports, bool many) {
  std::string text = "<!-- liger-patch -->\n";
  if (!many) return text + MarkdownOf(reports[0], false);
  text += "### liger-patch: " + MarkdownText(SummaryLine(reports)) + "\n\n" + Table(reports);
  // Failed ones first: they are why somebody reads this.
  std::vector<const Report*> order;
  for (const Report& report : reports) order.push_back(&report);
  std::stable_sort(order.begin(), order.end(), [](const Report* a, const Report* b) {
    return (a->exit_code != 0) && b->exit_code == 0;
  });
  size_t left_out = 0;
  for (const Report* report : order) {
    const std::string part = "\n" + MarkdownOf(*report, true);
    if (text.size() + part.size() > kLongestComment) {
      ++left_out;
    } else {
      text += part;
    }
  }
  if (left_out > 0) {
    text += "\nThe details of " + CountOf(static_cast<int64_t>(left_out), "model") +
            " do not fit here; the JSON report has them.\n";
  }
  return text;
}

}  // namespace liger
