// Globs over module paths, as --scope, --skip and the `scope` entries of patch maps take them.
//
//   ModuleGlob glob("model.layers.*.self_attn");
//   glob.Matches("model.layers.3.self_attn")          // true
//   glob.Covers("model.layers.3.self_attn.q_norm")    // true: a module around it matches
//
// Segments are compared one by one; `*`, `?` and `[0-9]` stay inside a segment, and the segment `**`
// stands for any number of segments. A glob speaks of whole paths: "**.norm" finds "model.norm",
// "norm" does not.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace liger {

class ModuleGlob {
 public:
  explicit ModuleGlob(std::string_view glob);

  const std::string& text() const { return text_; }
  bool Matches(std::string_view path) const;
  // Whether the path or that of a module around it matches.
  bool Covers(std::string_view path) const;

 private:
  // For each number of leading segments of the path, whether the whole glob fits them.
  std::vector<bool> Fits(std::string_view path) const;

  std::string text_;
  std::vector<std::string> segments_;
};

// What --scope and --skip leave of a model.
struct ScopeFilter {
  std::vector<ModuleGlob> scopes;  // empty: everything
  std::vector<ModuleGlob> skips;   // win over `scopes`

  bool IsEmpty() const { return scopes.empty() && skips.empty(); }
  // Why a module path is left out: "outside of --scope 'a.*'", "skipped by --skip 'b'"; empty if it
  // is not. Where a path is not known, only --scope leaves it out.
  std::string WhyOutside(std::string_view path) const;
};

}  // namespace liger
