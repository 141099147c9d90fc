#include "family/module_glob.h"

#include <fnmatch.h>

#include <algorithm>

namespace liger {
namespace {

std::vector<std::string> Segments(std::string_view path) {
  std::vector<std::string> segments;
  while (!path.empty()) {
    const size_t dot = path.find('.');
    segments.emplace_back(path.substr(0, dot));
    if (dot == std::string_view::npos) break;
    path.remove_prefix(dot + 1);
  }
  return segments;
}

}  // namespace

ModuleGlob::ModuleGlob(std::string_view glob) : text_(glob), segments_(Segments(glob)) {}

std::vector<bool> ModuleGlob::Fits(std::string_view path) const {
  const std::vector<std::string> names = Segments(path);
  // fits[n]: the glob's segments so far fit the first n names.
  std::vector<bool> fits(names.size() + 1, false);
  fits[0] = true;
  for (const std::string& segment : segments_) {
    std::vector<bool> next(fits.size(), false);
    for (size_t n = 0; n < fits.size(); ++n) {
      if (segment == "**") {
        next[n] = fits[n] || (n > 0 && next[n - 1]);
      } else if (n > 0 && fits[n - 1]) {
        next[n] = fnmatch(segment.c_str(), names[n - 1].c_str(), 0) == 0;
      }
    }
    fits = std::move(next);
  }
  return fits;
}

bool ModuleGlob::Matches(std::string_view path) const { return Fits(path).back(); }

bool ModuleGlob::Covers(std::string_view path) const {
  const std::vector<bool> fits = Fits(path);
  // The model itself is around everything, but only a glob of nothing but `**` names it.
  const bool only_stars = std::all_of(segments_.begin(), segments_.end(),
                                      [](const std::string& segment) { return segment == "**"; });
  return std::find(fits.begin() + (only_stars ? 0 : 1), fits.end(), true) != fits.end();
}

std::string ScopeFilter::WhyOutside(std::string_view path) const {
  for (const ModuleGlob& skip : skips) {
    if (!path.empty() && skip.Covers(path)) return "skipped by --skip '" + skip.text() + "'";
  }
  if (scopes.empty() || std::any_of(scopes.begin(), scopes.end(), [&](const ModuleGlob& scope) {
        return !path.empty() && scope.Covers(path);
      })) {
    return "";
  }
  std::string globs;
  for (const ModuleGlob& scope : scopes) {
    globs += (globs.empty() ? "'" : ", '") + scope.text() + "'";
  }
  return (path.empty() ? "its module path is not known, and --scope is " : "outside of --scope ") +
         globs;
}

}  // namespace liger
