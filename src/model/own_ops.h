// The own ops of users' patch maps that stand in a model, as its metadata names them. Their
// functions are what patching made and stay calls, as those of our own domain do.
//
//   model.metadata["liger.own_ops"]   // "my.domain.SoftCap, my.domain.Gate"
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <utility>

namespace onnx {
class ModelProto;
}

namespace liger {

inline constexpr std::string_view kOwnOpsKey = "liger.own_ops";

// (domain, op type) of each; the last dot of a name parts them.
using OwnOpNames = std::set<std::pair<std::string, std::string>>;

OwnOpNames ParseOwnOps(std::string_view text);
// Those that the model's metadata names.
OwnOpNames OwnOpsOf(const onnx::ModelProto& model);
std::string ToText(const OwnOpNames& names);

}  // namespace liger
