#include <algorithm>
#include <string_view>

#include "report/escape.h"
#include "report/facts.h"

namespace liger {
namespace {

// Entries of a list that are printed without --explain.
constexpr size_t kShortList = 8;
constexpr size_t kShortInputs = 4;

constexpr std::string_view kBold = "\033[1m";
constexpr std::string_view kPlain = "\033[0m";
static_assert(kBold.size() == kPlain.size());

std::string Joined(const std::vector<std::string>& names, size_t most) {
  std::string text;
  for (size_t i = 0; i < names.size() && i < most; ++i) text += (i > 0 ? ", " : "") + names[i];
  if (names.size() > most) text += " and " + std::to_string(names.size() - most) + " more";
  return text;
}

class TextWriter {
 public:
  TextWriter(const Report& report, const TextOptions& options)
      : report_(report), options_(options) {}

  std::string Write() {
    if (!report_.family.empty()) WriteFamily();
    WriteStage();
    WriteScopes();
    WriteSymbols();
    WriteModules();
    WriteExpectations();
    WriteMisses("missed", report_.missed);
    WriteMisses("degraded", report_.degraded);
    if (options_.explain) WriteExplanation();
    WriteLosses();
    WriteOutput();
    return std::move(text_);
  }

 private:
  // Names from the model may hold escape sequences and line breaks: only what Bold() put there acts.
  void Line(const std::string& line) {
    std::string_view rest = line;
    while (!rest.empty()) {
      const size_t mark =
          options_.color ? std::min(rest.find(kBold), rest.find(kPlain)) : rest.npos;
      text_ += Printable(rest.substr(0, mark));
      if (mark == rest.npos) break;
      text_ += rest.substr(mark, kBold.size());
      rest.remove_prefix(mark + kBold.size());
    }
    text_ += "\n";
  }

  std::string Bold(const std::string& text) const {
    return options_.color ? std::string(kBold) + text + std::string(kPlain) : text;
  }

  static std::string Pad(std::string text, size_t width) {
    if (text.size() < width) text.resize(width, ' ');
    return text;
  }

  void WriteFamily() {
    std::string why;
    for (const EvidenceReport& e : report_.evidence) {
      if (e.decided) {
        why = e.source + (e.key.empty() ? "" : ": " + e.key + " = " + e.value);
      }
    }
    if (why.empty()) why = report_.family_decided_by;
    Line("family   " + Bold(report_.family) + (why.empty() ? "" : " (" + why + ")"));
    Line("route    " + report_.route + ", map " + report_.helper);
  }

  void WriteStage() {
    if (report_.stage.name.empty()) return;
    Line("STAGE    " + Bold(report_.stage.note.empty() ? report_.stage.name : report_.stage.note));
    for (const StageReport::Change& change : report_.stage.changes) {
      Line("  " + change.module + "  " + change.change);
    }
  }

  void WriteScopes() {
    for (const ScopeReport& scope : report_.scopes) {
      Line("limits   " + scope.option + " " + scope.glob + "  " +
           CountOf(scope.paths, "module path"));
    }
  }

  void WriteSymbols() {
    if (report_.symbols.empty()) return;
    Line("patch map");
    size_t width = 0;
    for (const SymbolReport& symbol : report_.symbols) {
      width = std::max(width, SymbolText(symbol).size());
    }
    for (const SymbolReport& symbol : report_.symbols) {
      const int64_t fused = symbol.patched + symbol.already_fused;
      std::string line = "  " + Pad(SymbolText(symbol), width + 2) +
                         Bold(std::to_string(fused) + " of " + std::to_string(symbol.instances));
      if (symbol.already_fused > 0) {
        line += "   " + std::to_string(symbol.already_fused) + " already fused";
      }
      for (const std::string& note : symbol.notes) line += "; " + note;
      Line(line +
           (options_.explain ? "  (" + symbol.place + ", module " + symbol.module + ")" : ""));
    }
  }

  static std::string SymbolText(const SymbolReport& symbol) {
    constexpr std::string_view kOurs = "liger.";
    const bool is_ours = symbol.op.starts_with(kOurs);
    return symbol.kind + " " + symbol.symbol + " -> " +
           (is_ours ? symbol.op.substr(kOurs.size()) : symbol.op);
  }

  void WriteExpectations() {
    if (report_.expectations.empty()) return;
    Line("expected");
    for (const ExpectationReport& e : report_.expectations) {
      Line("  " + e.module + " " + e.wanted + " (" + e.source + ")  " +
           (e.met ? "met" : Bold("NOT MET: " + std::to_string(e.found) + " fused")));
    }
  }

  void WriteModules() {
    if (report_.modules.empty()) return;
    size_t width = 0;
    for (const ModuleReport& module : report_.modules) width = std::max(width, module.name.size());
    Line("modules");
    for (const ModuleReport& module : report_.modules) {
      std::string line = "  " + Pad(module.name, width + 2);
      if (!module.enabled) {
        Line(line + module.reason);
        continue;
      }
      const int64_t fused = module.patched + module.already_fused;
      line += Bold(std::to_string(fused) +
                   (module.expected ? " of " + std::to_string(*module.expected) : ""));
      std::string details;
      const auto add = [&](const std::string& text) {
        details += (details.empty() ? "" : ", ") + text;
      };
      for (const auto& [op, count] : module.ops) add(std::to_string(count) + " " + op);
      if (module.already_fused > 0) add(std::to_string(module.already_fused) + " already fused");
      if (module.degraded > 0) add(std::to_string(module.degraded) + " degraded");
      if (module.missed > 0) add(std::to_string(module.missed) + " missed");
      if (module.additional > 0) add(std::to_string(module.additional) + " more elsewhere");
      if (module.unaccounted > 0) add(std::to_string(module.unaccounted) + " unaccounted for");
      if (!module.expected) add("expected number unknown");
      Line(line + (details.empty() ? "" : "   " + details));
    }
  }

  // Whether --explain GLOB, if there is one, takes the place in.
  bool Shows(const std::string& module, const std::string& path, const std::string& node) const {
    return !options_.explain || !options_.shows || options_.shows(module, path, node);
  }

  void WriteMisses(const std::string& title, std::vector<MissReport> misses) {
    std::erase_if(
        misses, [&](const MissReport& miss) { return !Shows(miss.module, miss.path, miss.node); });
    if (misses.empty()) return;
    Line(title);
    const size_t shown = options_.explain ? misses.size() : std::min(misses.size(), kShortList);
    for (size_t i = 0; i < shown; ++i) WriteMiss(misses[i]);
    if (shown < misses.size()) {
      Line("  ... and " + std::to_string(misses.size() - shown) + " more (--explain lists them)");
    }
  }

  void WriteMiss(const MissReport& miss) {
    std::string where = miss.path.empty() ? miss.node : miss.path;
    if (!miss.path.empty() && !miss.node.empty()) where += " at " + miss.node;
    Line("  " + miss.module + "  " + where + ": " + miss.reason +
         (miss.guard.empty() ? "" : " [" + miss.guard + "]"));
    if (!options_.explain) return;
    if (!miss.closest.empty()) Line("    closest  " + miss.closest);
    if (!miss.values.empty()) Line("    seen     " + Joined(miss.values, miss.values.size()));
    for (size_t i = 0; i < miss.chain.size(); ++i) {
      Line((i == 0 ? "    nodes    " : "             ") + miss.chain[i]);
    }
  }

  void WriteExplanation() {
    Line("evidence");
    for (const EvidenceReport& e : report_.evidence) {
      std::string line = "  " + e.source;
      if (!e.place.empty() && e.place != e.source) line += " (" + e.place + ")";
      if (!e.key.empty()) line += ": " + e.key + (e.value.empty() ? "" : " = " + e.value);
      if (!e.family.empty()) line += " -> " + e.family;
      if (!e.note.empty()) line += "; " + e.note;
      Line(line + (e.decided ? "  (decides)" : ""));
    }
    bool is_first = true;
    for (const PatchedReport& p : report_.patched) {
      const bool shown = Shows(p.module, "", p.node) ||
                         std::any_of(p.paths.begin(), p.paths.end(), [&](const std::string& path) {
                           return Shows(p.module, path, p.node);
                         });
      if (!shown) continue;
      if (is_first) Line("patched");
      is_first = false;
      std::string line = "  " + p.op + "  " + p.node + ": " + p.form + ", " + p.precision;
      for (const auto& [name, value] : p.attributes)
        line += ", " + name + "=" + AttributeText(value);
      Line(line + "; replaces " + std::to_string(p.replaced.size()) + " nodes");
    }
    for (const FusedReport& fused : report_.already_fused) {
      if (fused.reason.empty() || !Shows(fused.module, fused.path, fused.node)) continue;
      Line("  left as it is  " + fused.op + "  " + fused.node + ": " + fused.reason);
    }
    for (const PlaceReport& place : report_.explained) {
      Line("nodes of " + place.place);
      for (const std::string& node : place.nodes) Line("  " + node);
    }
    WriteMisses("near misses (places that resemble an op and are none)", report_.near_misses);
    if (!report_.op_counts.empty()) Line("operators");
    for (const auto& [op, counts] : report_.op_counts) {
      Line("  " + Pad(op, 28) + std::to_string(counts.first) + " -> " +
           std::to_string(counts.second));
    }
  }

  void WriteLosses() {
    std::string modules;
    bool is_loss = false;
    for (const std::string& name : report_.excluded_modules) {
      modules += (modules.empty() ? "" : ", ") + name;
      is_loss = is_loss || name.ends_with("cross_entropy");
    }
    if (!modules.empty()) {
      Line("excluded " + modules +
           (is_loss && report_.loss_ops.empty() ? " (no loss ops in the graph)" : ""));
    }
    if (!report_.loss_ops.empty()) Line("loss ops left as they are");
    for (const LossOpReport& loss : report_.loss_ops) WriteLoss(loss);
  }

  void WriteLoss(const LossOpReport& loss) {
    std::string line = "  " + loss.op + "  " + loss.node;
    if (!loss.reason.empty()) line += ": " + loss.reason;
    if (options_.explain) {
      Line(line);
      if (!loss.path.empty()) Line("    path     " + loss.path);
      if (!loss.module.empty()) Line("    module   " + loss.module);
      if (!loss.nodes.empty()) Line("    nodes    " + Joined(loss.nodes, loss.nodes.size()));
      if (!loss.inputs.empty()) Line("    inputs   " + Joined(loss.inputs, loss.inputs.size()));
      return;
    }
    if (loss.nodes.size() > 1)
      line += "; " + CountOf(static_cast<int64_t>(loss.nodes.size()), "node");
    if (!loss.inputs.empty()) line += "; inputs " + Joined(loss.inputs, kShortInputs);
    Line(line);
  }

  void WriteOutput() {
    for (const WeightRead& read : report_.weights_read) {
      Line("read     " + std::to_string(read.bytes) + " bytes of '" + read.tensor + "' from " +
           read.file);
    }
    if (report_.output) {
      const std::string& path = report_.output->path;
      Line("wrote    " + Bold(path == "-" ? "standard output" : path));
    }
    if (report_.status == "error") Line("nothing was written");
    for (const std::string& line : report_.verification) Line("checked  " + line);
    for (const std::string& line : report_.runtime_gaps) Line("note     " + line);
    for (const std::string& line : report_.validation_commands) Line("validate " + line);
  }

  const Report& report_;
  const TextOptions& options_;
  std::string text_;
};

}  // namespace

std::string ToText(const Report& report, const TextOptions& options) {
  return TextWriter(report, options).Write();
}

std::string TextOf(std::span<const Report> reports, const RenderOptions& options, bool many) {
  std::string text;
  const auto line = [&](const std::string& content) { text += Printable(content) + "\n"; };
  for (const Report& report : reports) {
    if (many) line("== " + ModelName(report) + ": " + VerdictLine(report));
    text += ToText(report, options.text);
    if (options.diagnostics) {
      for (const Diagnostic& d : report.diagnostics) {
        const bool is_error = d.severity == Diagnostic::Severity::kError;
        const bool is_warning = d.severity == Diagnostic::Severity::kWarning;
        line((is_error ? "error    " : is_warning ? "warning  " : "remark   ") + d.message);
        if (!d.location.empty()) line("  at: " + d.location);
        if (!d.hint.empty()) line("  hint: " + d.hint);
      }
    }
    if (many) text += "\n";
  }
  if (!many) return text;
  size_t width = 0;
  size_t verdict_width = 0;
  for (const Report& report : reports) {
    width = std::max(width, ModelName(report).size());
    verdict_width = std::max(verdict_width, VerdictLine(report).size());
  }
  for (const Report& report : reports) {
    std::string row = ModelName(report);
    row.resize(width + 2, ' ');
    row += VerdictLine(report);
    const std::string counts = CountsLine(report);
    if (!counts.empty()) row.resize(width + verdict_width + 4, ' ');
    line("  " + row + counts);
  }
  line(SummaryLine(reports));
  return text;
}

}  // namespace liger
