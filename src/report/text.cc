#include <algorithm>
#include <cstdio>

#include "report/report.h"

namespace liger {
namespace {

// Entries of a list that are printed without --explain.
constexpr size_t kShortList = 8;

class TextWriter {
 public:
  TextWriter(const Report& report, const TextOptions& options)
      : report_(report), options_(options) {}

  std::string Write() {
    if (!report_.family.empty()) WriteFamily();
    WriteModules();
    WriteMisses("missed", report_.missed);
    WriteMisses("degraded", report_.degraded);
    if (options_.explain) WriteExplanation();
    WriteLosses();
    WriteOutput();
    return std::move(text_);
  }

 private:
  void Line(const std::string& line) { text_ += line + "\n"; }

  std::string Bold(const std::string& text) const {
    return options_.color ? "\033[1m" + text + "\033[0m" : text;
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

  void WriteMisses(const std::string& title, const std::vector<MissReport>& misses) {
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
    if (!report_.patched.empty()) Line("patched");
    for (const PatchedReport& p : report_.patched) {
      std::string line = "  " + p.op + "  " + p.node + ": " + p.form + ", " + p.precision;
      for (const auto& [name, value] : p.attributes) line += ", " + name + "=" + ToText(value);
      Line(line + "; replaces " + std::to_string(p.replaced.size()) + " nodes");
    }
    for (const FusedReport& fused : report_.already_fused) {
      if (fused.reason.empty()) continue;
      Line("  left as it is  " + fused.op + "  " + fused.node + ": " + fused.reason);
    }
    WriteMisses("near misses (places that resemble an op and are none)", report_.near_misses);
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
    for (const LossOpReport& loss : report_.loss_ops) Line("  " + loss.op + "  " + loss.node);
  }

  void WriteOutput() {
    for (const WeightRead& read : report_.weights_read) {
      Line("read     " + std::to_string(read.bytes) + " bytes of '" + read.tensor + "' from " +
           read.file);
    }
    if (report_.output) Line("wrote    " + Bold(report_.output->path));
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

std::string ToText(const Attribute::Value& value) {
  if (const auto* i = std::get_if<int64_t>(&value)) return std::to_string(*i);
  if (const auto* s = std::get_if<std::string>(&value)) return *s;
  if (const auto* f = std::get_if<float>(&value)) {
    char buffer[32];
    std::snprintf(buffer, sizeof(buffer), "%.9g", static_cast<double>(*f));
    return buffer;
  }
  return "";
}

std::string ToText(const Report& report, const TextOptions& options) {
  return TextWriter(report, options).Write();
}

}  // namespace liger
