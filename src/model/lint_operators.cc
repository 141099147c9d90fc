#include <onnx/defs/schema.h>
#include <onnx/onnx_pb.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <optional>
#include <set>
#include <unordered_map>

#include "model/contrib_op_types.h"
#include "model/lint_rules.h"
#include "model/structure.h"
#include "ops/op_contract.h"

namespace liger {
namespace {

using Severity = LintFinding::Severity;
using Versions = std::map<std::string, int, std::less<>>;

// Operators that ONNX Runtime itself keeps in ONNX's domain, and writes there when it saves a model.
constexpr std::string_view kKeptInDefaultDomain[] = {"Affine",
                                                     "Crop",
                                                     "DynamicSlice",
                                                     "GivenTensorFill",
                                                     "ImageScaler",
                                                     "LayerNormalization",
                                                     "ParametricSoftplus",
                                                     "Scale",
                                                     "ScaledTanh",
                                                     "SimplifiedLayerNormalization",
                                                     "ThresholdedRelu"};

bool IsContribOp(std::string_view op) {
  return std::find(std::begin(kContribOpTypes), std::end(kContribOpTypes), op) !=
         std::end(kContribOpTypes);
}

bool IsKeptInDefaultDomain(std::string_view op) {
  return std::find(std::begin(kKeptInDefaultDomain), std::end(kKeptInDefaultDomain), op) !=
         std::end(kKeptInDefaultDomain);
}

std::string DomainText(std::string_view domain) {
  return domain.empty() ? "the default operator set" : "domain '" + std::string(domain) + "'";
}

// The newest version of a domain that this build's ONNX knows; nothing for the domains of others.
std::optional<int> NewestKnown(std::string_view domain) {
  const auto& map = onnx::OpSchemaRegistry::DomainToVersionRange::Instance().Map();
  const auto found = map.find(std::string(domain));
  return found != map.end() ? std::optional(found->second.second) : std::nullopt;
}

// A kind of fault of many nodes: the first is named, the others are counted.
struct Group {
  std::string place;
  int64_t count = 0;

  void Add(const std::string& at) {
    if (count++ == 0) place = at;
  }
  std::string Nodes() const {
    return count == 1 ? "1 node" : std::to_string(count) + " nodes, the first named";
  }
};

class OperatorLint {
 public:
  OperatorLint(const onnx::ModelProto& model, LintFindings& findings)
      : model_(model), findings_(findings) {
    for (const onnx::FunctionProto& function : model.functions())
      functions_.insert(KeyOf(function));
  }

  void Run() {
    model_versions_ = ReadImports(model_.opset_import(), "");
    const onnx::FunctionProto* function = nullptr;
    ForEachNodeList(model_, [&](const NodeList& list) {
      if (list.function != nullptr && list.function != function) {
        function = list.function;
        const std::string place = "function " + NameOfFunction(KeyOf(*function));
        function_versions_[function] = list.graph == nullptr
                                           ? ReadImports(function->opset_import(), place)
                                           : function_versions_[function];
        if (list.graph == nullptr) CompareWithModel(*function, place);
      }
      const Versions& versions =
          list.function != nullptr ? function_versions_[list.function] : model_versions_;
      for (const onnx::NodeProto& node : *list.nodes) {
        VisitNode(node, versions, list.place.empty() ? "" : " in " + list.place);
      }
    });
    ReportGroups();
    CheckStamp();
  }

 private:
  template <typename Imports>
  Versions ReadImports(const Imports& imports, const std::string& place) {
    Versions versions;
    for (const onnx::OperatorSetIdProto& import : imports) {
      const std::string domain(NormalDomain(import.domain()));
      const int version = static_cast<int>(import.version());
      const auto [known, is_new] = versions.emplace(domain, version);
      if (!is_new) {
        const bool same = known->second == version;
        findings_.Add("duplicate_opset_import", same ? Severity::kWarning : Severity::kError, place,
                      DomainText(domain) + " is imported twice, as version " +
                          std::to_string(known->second) + " and " + std::to_string(version),
                      "keep one opset_import of it: '' and 'ai.onnx' are the same domain");
      }
      const std::optional<int> newest = NewestKnown(domain);
      if (newest && version > *newest) {
        findings_.Add("unknown_opset", place,
                      "version " + std::to_string(version) + " of " + DomainText(domain) +
                          " is newer than the newest known here, " + std::to_string(*newest) +
                          ": its operators were checked as those of that one",
                      "");
      }
    }
    return versions;
  }

  // A runtime may put a body in place of the call: its operators must mean the same there.
  void CompareWithModel(const onnx::FunctionProto& function, const std::string& place) {
    const Versions& own = function_versions_[&function];
    for (const onnx::NodeProto& node : function.node()) {
      const std::string domain(NormalDomain(node.domain()));
      const auto in_body = own.find(domain);
      const auto in_model = model_versions_.find(domain);
      if (in_body == own.end() || in_model == model_versions_.end() ||
          in_body->second == in_model->second || functions_.contains(KeyOfCall(node))) {
        continue;
      }
      const auto* a = Schema(node.op_type(), in_body->second, domain);
      const auto* b = Schema(node.op_type(), in_model->second, domain);
      if (a == b || a == nullptr) continue;
      findings_.Add("function_opset", place,
                    "its " + node.op_type() + " is that of version " +
                        std::to_string(in_body->second) + " of " + DomainText(domain) +
                        ", which has another meaning at version " +
                        std::to_string(in_model->second) + " of the model",
                    "convert the model before functions are made, or patch the original again at "
                    "the wanted opset");
      return;
    }
  }

  static const onnx::OpSchema* Schema(const std::string& op, int version,
                                      const std::string& domain) {
    return onnx::OpSchemaRegistry::Schema(op, version, domain);
  }

  void VisitNode(const onnx::NodeProto& node, const Versions& versions, const std::string& where) {
    const std::string domain(NormalDomain(node.domain()));
    const bool is_call = functions_.contains(KeyOfCall(node));
    const auto place = [&] { return NodeText(node) + where; };
    if (domain == kOpDomain) {
      has_fused_nodes_ = true;
      VisitFusedOp(node, is_call, place());
      return;
    }
    if (is_call) return;
    const auto version = versions.find(domain);
    if (!NewestKnown(domain)) {
      const bool is_runtime = domain.starts_with("com.microsoft") ||
                              domain.starts_with("com.ms.") || domain == "ai.onnx.contrib";
      if (!is_runtime) without_body_[{domain, node.op_type()}].Add(place());
      return;
    }
    if (version == versions.end()) {
      // Reported as a missing import; whether the operator exists at all is still worth saying.
      if (onnx::OpSchemaRegistry::Schema(node.op_type(), domain) == nullptr) {
        unknown_[{domain, node.op_type()}].Add(place());
      }
      return;
    }
    const onnx::OpSchema* schema = Schema(node.op_type(), version->second, domain);
    if (schema == nullptr) {
      const bool exists = onnx::OpSchemaRegistry::Schema(node.op_type(), domain) != nullptr;
      (exists ? later_ : unknown_)[{domain, node.op_type()}].Add(place());
      versions_used_[{domain, node.op_type()}] = version->second;
      return;
    }
    if (schema->Deprecated()) {
      removed_[{domain, node.op_type()}].Add(place());
      versions_used_[{domain, node.op_type()}] = version->second;
      return;
    }
    try {
      schema->Verify(node);
    } catch (const std::exception& e) {
      findings_.Add("operator_attribute", place(), OneLine(e.what()),
                    "write the operator as version " + std::to_string(version->second) + " of " +
                        DomainText(domain) + " has it, or import the version that it was made for");
    }
  }

  static std::string OneLine(std::string text) {
    std::replace(text.begin(), text.end(), '\n', ' ');
    while (!text.empty() && text.back() == ' ') text.pop_back();
    return text;
  }

  void VisitFusedOp(const onnx::NodeProto& node, bool is_call, const std::string& place) {
    const OpContract* contract = FindContract(node.op_type());
    if (contract == nullptr) {
      if (!is_call) newer_[node.op_type()].Add(place);
      return;
    }
    if (!is_call) bodiless_[node.op_type()].Add(place);
    CheckPorts(node, *contract, place);
    std::set<std::string_view> given;
    for (const onnx::AttributeProto& attribute : node.attribute()) {
      given.insert(attribute.name());
      const AttributeSpec* spec = contract->FindAttribute(attribute.name());
      const std::string wrong =
          spec != nullptr ? WrongValue(attribute, *spec) : "is none of the op's attributes";
      if (wrong.empty()) continue;
      findings_.Add("fused_op_attribute", place, "attribute '" + attribute.name() + "' " + wrong,
                    kPatchAgain);
    }
    for (const AttributeSpec& spec : contract->attributes) {
      if (given.contains(spec.name)) continue;
      findings_.Add("fused_op_attribute", place,
                    "attribute '" + std::string(spec.name) + "' is not set", kPatchAgain);
    }
  }

  void CheckPorts(const onnx::NodeProto& node, const OpContract& contract,
                  const std::string& place) {
    for (size_t i = 0; i < contract.inputs.size(); ++i) {
      const int at = static_cast<int>(i);
      const bool present = at < node.input_size() && !node.input(at).empty();
      if (present || contract.inputs[i].optional) continue;
      findings_.Add("call_signature", place,
                    "input '" + std::string(contract.inputs[i].name) + "' is left out",
                    kPatchAgain);
    }
    if (node.input_size() > static_cast<int>(contract.inputs.size()) && !IsCallOf(node)) {
      findings_.Add("call_signature", place,
                    "it has " + std::to_string(node.input_size()) + " inputs; the op has " +
                        std::to_string(contract.inputs.size()),
                    kPatchAgain);
    }
  }

  // Then its signature is compared with that of the function.
  bool IsCallOf(const onnx::NodeProto& node) const { return functions_.contains(KeyOfCall(node)); }

  // Why the value is not one that the op takes; empty if it is.
  static std::string WrongValue(const onnx::AttributeProto& attribute, const AttributeSpec& spec) {
    if (!attribute.ref_attr_name().empty()) return "";
    using Type = onnx::AttributeProto;
    switch (spec.kind) {
      case AttributeKind::kFloat: {
        if (attribute.type() != Type::FLOAT) return "is no float";
        if (!std::isfinite(attribute.f())) return "is not finite";
        const bool is_bound = spec.name == "epsilon" || spec.name == "limit";
        return is_bound && attribute.f() < 0 ? "is negative" : "";
      }
      case AttributeKind::kInt: {
        if (attribute.type() != Type::INT) return "is no int";
        if (attribute.i() < 0) return "is negative";
        return spec.name == "interleaved" && attribute.i() > 1 ? "is neither 0 nor 1" : "";
      }
      case AttributeKind::kDType:
        if (attribute.type() != Type::INT) return "is no int";
        return attribute.i() < 0 || attribute.i() > onnx::TensorProto::DataType_MAX ||
                       !IsFloat(static_cast<DType>(attribute.i()))
                   ? "is " + std::to_string(attribute.i()) +
                         ", no floating-point type that the op computes in"
                   : "";
      case AttributeKind::kString: {
        if (attribute.type() != Type::STRING) return "is no string";
        if (spec.values.empty() ||
            std::find(spec.values.begin(), spec.values.end(), attribute.s()) != spec.values.end()) {
          return "";
        }
        std::string allowed;
        for (const std::string_view value : spec.values) {
          allowed += (allowed.empty() ? "" : ", ") + std::string(value);
        }
        return "is '" + attribute.s() + "', none of " + allowed;
      }
    }
    return "";
  }

  void ReportGroups() {
    for (const auto& [op, group] : unknown_) {
      const auto& [domain, name] = op;
      if (domain.empty() && IsContribOp(name)) {
        const bool kept = IsKeptInDefaultDomain(name);
        findings_.Add(
            "contrib_op_in_default_domain", kept ? Severity::kWarning : Severity::kError,
            group.place,
            name + " is an operator of ONNX Runtime, not of ONNX (" + group.Nodes() + ")" +
                (kept ? ": only ONNX Runtime finds it in the default domain"
                      : ": no runtime finds it in the default domain"),
            kept
                ? "save the model before ONNX Runtime optimises it, if others are to read it"
                : "give these nodes the domain com.microsoft, and the model an opset_import of it");
        continue;
      }
      findings_.Add("unknown_operator", group.place,
                    name + " is no operator of " + DomainText(domain) + " in any version (" +
                        group.Nodes() + ")",
                    "an operator of another domain needs that domain, and a local function or a "
                    "runtime that has it");
    }
    for (const auto& [op, group] : later_) {
      const auto& [domain, name] = op;
      const onnx::OpSchema* schema = onnx::OpSchemaRegistry::Schema(name, domain);
      findings_.Add("operator_not_in_opset", group.place,
                    name + " does not exist in version " + std::to_string(versions_used_[op]) +
                        " of " + DomainText(domain) + " (" + group.Nodes() + ")" +
                        (domain.empty() && IsKeptInDefaultDomain(name)
                             ? "; ONNX Runtime alone accepts it there"
                             : ""),
                    "convert the model to a later opset (its newest form is of version " +
                        std::to_string(schema->since_version()) + "), or write the operator out");
    }
    for (const auto& [op, group] : removed_) {
      const auto& [domain, name] = op;
      findings_.Add("operator_not_in_opset", group.place,
                    name + " was removed by version " + std::to_string(versions_used_[op]) +
                        " of " + DomainText(domain) + " (" + group.Nodes() + ")",
                    "import the version that the model was made for, or convert it with "
                    "onnx.version_converter");
    }
    for (const auto& [op, group] : without_body_) {
      const auto& [domain, name] = op;
      findings_.Add("operator_without_body", group.place,
                    domain + "." + name + " has no function in the model (" + group.Nodes() +
                        "): it runs only where a library with that operator is registered",
                    "");
    }
    for (const auto& [op, group] : bodiless_) {
      findings_.Add("fused_op_without_body", group.place,
                    op + " has lost its function body (" + group.Nodes() +
                        "): the model loads only where libliger_ort.so is registered",
                    kPatchAgain);
    }
    for (const auto& [op, group] : newer_) {
      findings_.Add("fused_op_version", group.place,
                    op + " is no op of this version (" + group.Nodes() + ")",
                    "a later version may have made it; patch the original again with this one");
    }
    const auto liger = model_versions_.find(kOpDomain);
    if (liger != model_versions_.end() && liger->second != kOpDomainVersion) {
      findings_.Add("fused_op_version", "",
                    "domain 'liger' is imported as version " + std::to_string(liger->second) +
                        "; its version is " + std::to_string(kOpDomainVersion),
                    kPatchAgain);
    }
  }

  // What an earlier run wrote into the model's metadata.
  void CheckStamp() {
    if (has_fused_nodes_) return;
    for (const onnx::StringStringEntryProto& entry : model_.metadata_props()) {
      if (entry.key() != "liger.modules" || entry.value().empty()) continue;
      findings_.Add("stale_stamp", "",
                    "the metadata says that " + entry.value() +
                        " were fused, but the model has no fused node",
                    "another tool has taken them out; patch the model again if they are wanted");
    }
  }

  static constexpr const char* kPatchAgain =
      "liger-patch --refresh builds the bodies anew; or patch the original model again";

  using Op = std::pair<std::string, std::string>;  // domain, op type

  const onnx::ModelProto& model_;
  LintFindings& findings_;
  std::set<FunctionKey> functions_;
  Versions model_versions_;
  std::unordered_map<const onnx::FunctionProto*, Versions> function_versions_;
  bool has_fused_nodes_ = false;
  std::map<Op, int> versions_used_;
  std::map<Op, Group> unknown_, later_, removed_, without_body_;
  std::map<std::string, Group> bodiless_, newer_;
};

}  // namespace

void LintOperators(const onnx::ModelProto& model, LintFindings& findings) {
  OperatorLint(model, findings).Run();
}

}  // namespace liger
