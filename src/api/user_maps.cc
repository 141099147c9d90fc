#include "api/user_maps.h"

#include <algorithm>
#include <fstream>
#include <iterator>

#include "api/user_accounting.h"
#include "ops/op_contract.h"
#include "patchmap/nearest.h"
#include "patchmap/op_names.h"

namespace liger {
namespace {

namespace fs = std::filesystem;

// A map is a page of text; more is another file that was named by mistake.
constexpr uintmax_t kMaxMapBytes = 4 << 20;

Result<std::string> ReadText(const fs::path& file) {
  const auto fail = [&](const std::string& why) {
    return Error{ErrorCode::kUsage, "the patch map '" + file.string() + "' " + why, file.string(),
                 "--patches wants a YAML file; docs/patch-maps.md shows what stands in it"};
  };
  std::error_code ec;
  if (!fs::exists(file, ec)) return fail("does not exist");
  if (!fs::is_regular_file(file, ec) && !fs::is_character_file(file, ec) &&
      !fs::is_fifo(file, ec)) {
    return fail("is no file");
  }
  if (fs::is_regular_file(file, ec) && fs::file_size(file, ec) > kMaxMapBytes) {
    return fail("is too large for a patch map");
  }
  std::ifstream stream(file, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
  if (!stream) return fail("cannot be read");
  return text;
}

// Under which its matches stand in the selection.
std::string OpModule(const UserEntry& entry) {
  if (entry.kind == UserEntry::Kind::kMatch) return OpOf(entry);
  return std::string(FindContract(entry.op)->module);
}

Error AbsentSymbol(const UserEntry& entry, const SymbolIndex& index) {
  Error error{ErrorCode::kUsage, Shown(entry) + " is not in the model", entry.place, ""};
  const std::vector<std::string> nearest = index.Nearest(entry);
  if (!nearest.empty()) {
    error.hint = "the model has " + JoinNames(nearest) + "; ";
  } else if (!index.HasAny(entry.kind)) {
    switch (entry.kind) {
      case UserEntry::Kind::kClass:
        error.hint =
            "no node of this model has class names in its metadata (exports by TorchScript have "
            "none): name module paths with `scope:`; ";
        break;
      case UserEntry::Kind::kFunction:
        error.hint = "the model calls no local functions: name a `class:` or a `scope:`; ";
        break;
      default:
        error.hint =
            "no node of this model says what module it is of: describe the nodes with `match:`; ";
    }
  }
  error.hint += "`optional: true` lets the entry pass where the symbol is absent";
  return error;
}

}  // namespace

Result<UserMaps> UserMaps::Load(std::span<const fs::path> files) {
  UserMaps result;
  ErrorList errors;
  for (const fs::path& file : files) {
    auto text = ReadText(file);
    auto map = text ? ParseUserMap(file.string(), *text) : Result<UserMap>(text.error());
    if (!map) {
      errors.Add(std::move(map).error());
      continue;
    }
    if (!map->extends.empty() && !result.extends_.empty() && map->extends != result.extends_) {
      errors.Add({ErrorCode::kUsage,
                  "the patch maps extend two families, " + result.extends_ + " and " + map->extends,
                  map->extends_place,
                  "one run has one family: give the maps to runs of their own"});
    }
    if (!map->extends.empty()) {
      result.extends_ = map->extends;
      result.extends_place_ = map->extends_place;
    }
    for (const UserModule& module : map->modules) {
      for (const UserEntry& entry : module.entries) result.entries_.push_back({module.name, entry});
    }
    result.maps_.push_back(*std::move(map));
  }
  if (Status status = errors.Take(); !status) return std::move(status).error();
  return result;
}

std::string UserMaps::Label() const {
  std::vector<std::string> labels;
  for (const UserMap& map : maps_) {
    if (std::find(labels.begin(), labels.end(), map.family) == labels.end()) {
      labels.push_back(map.family);
    }
  }
  return JoinNames(labels);
}

std::string UserMaps::Files() const {
  std::vector<std::string> files;
  for (const UserMap& map : maps_) files.push_back(map.file);
  return JoinNames(files);
}

std::vector<std::string> UserMaps::ModuleNames() const {
  std::vector<std::string> names;
  for (const Entry& e : entries_) {
    if (std::find(names.begin(), names.end(), e.module) == names.end()) names.push_back(e.module);
  }
  return names;
}

OwnOpNames UserMaps::OwnOps() const {
  OwnOpNames names;
  for (const Entry& e : entries_) {
    if (e.entry.kind == UserEntry::Kind::kMatch) names.emplace(e.entry.domain, e.entry.op);
  }
  return names;
}

Status UserMaps::AddOwnOps(const std::map<std::string, int64_t>& opsets, OpPatternSet& ops) const {
  ErrorList errors;
  for (const auto& [domain, op_type] : OwnOps()) {
    OwnOp own{domain, op_type, {}};
    bool is_optional = true;
    for (const Entry& e : entries_) {
      const UserEntry& entry = e.entry;
      if (entry.domain != domain || entry.op != op_type) continue;
      own.texts.push_back({entry.text, entry.min_opset, entry.max_opset, entry.types, entry.place});
      is_optional = is_optional && entry.optional;
    }
    const int64_t opset = OpsetOf(opsets, "");
    const bool covered = std::any_of(own.texts.begin(), own.texts.end(), [&](const auto& text) {
      return text.min_opset <= opset && opset <= text.max_opset;
    });
    if (!covered && is_optional) continue;
    if (Status status = ops.AddOwn(own, opsets); !status) errors.Add(std::move(status).error());
  }
  return errors.Take();
}

Status UserMaps::Bind(const SymbolIndex& index, std::span<const std::string> excluded,
                      Selection& selection) {
  ErrorList errors;
  const auto is_excluded = [&](const std::string& module) {
    return std::find(excluded.begin(), excluded.end(), module) != excluded.end();
  };
  std::map<std::string, int> own_targets;
  for (Entry& e : entries_) {
    const std::string op_module = OpModule(e.entry);
    e.excluded = is_excluded(e.module) || is_excluded(op_module);
    if (e.excluded) continue;
    UserTarget target{e.module, op_module, {}};
    if (e.entry.kind == UserEntry::Kind::kMatch) {
      // All texts of one op are one pattern.
      const auto [known, is_new] =
          own_targets.try_emplace(op_module, static_cast<int>(selection.targets.size()));
      e.target = known->second;
      if (!is_new) continue;
    } else {
      target.instances = index.Find(e.entry);
      if (target.instances.empty()) {
        if (!e.entry.optional) errors.Add(AbsentSymbol(e.entry, index));
        continue;
      }
      e.target = static_cast<int>(selection.targets.size());
    }
    selection.targets.push_back(std::move(target));
  }
  return errors.Take();
}

void UserMaps::RemoveFrom(ExpectedCounts& expected, const Selection& selection,
                          const RewritePlan& plan) const {
  for (size_t t = 0; t < selection.targets.size(); ++t) {
    const UserTarget& target = selection.targets[t];
    for (ExpectedModule& module : expected.modules) {
      if (module.module != target.op_module || !module.count) continue;
      if (module.instances.empty()) {
        // Only the number is known: what the map took is no longer the family's.
        for (const PlannedNode& node : plan.nodes) {
          if (node.target == static_cast<int>(t)) *module.count -= node.instances();
        }
        module.count = std::max<int64_t>(0, *module.count);
        continue;
      }
      std::erase_if(module.instances, [&](const std::string& path) {
        return std::any_of(
            target.instances.begin(), target.instances.end(), [&](const UserInstance& instance) {
              return instance.values.empty() && instance.Holds(instance.graph, path, "");
            });
      });
      module.count = static_cast<int64_t>(module.instances.size());
    }
  }
}

Status UserMaps::Account(const GraphModel& model, const RewritePlan& plan,
                         const PlanOptions& options, Report& report) const {
  UserAccountant accountant(model, plan, options, report);
  for (const Entry& e : entries_) accountant.Count({e.module, &e.entry, e.target, e.excluded});
  return accountant.Finish();
}

}  // namespace liger
