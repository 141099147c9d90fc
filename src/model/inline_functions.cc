#include "model/inline_functions.h"

#include <onnx/checker.h>
#include <onnx/defs/schema.h>
#include <onnx/inliner/inliner.h>
#include <onnx/onnx_pb.h>

#include <algorithm>
#include <map>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>

#include "ops/op_contract.h"

namespace liger {
namespace {

using Key = std::tuple<std::string, std::string, std::string>;  // domain, name, overload
using Versions = std::map<std::string, int>;

// Nested calls can multiply: more nodes than this are no model.
constexpr int64_t kMaxNodes = 4'000'000;

std::string NormalDomain(const std::string& domain) {
  return domain == onnx::AI_ONNX_DOMAIN ? "" : domain;
}

Key KeyOf(const onnx::FunctionProto& function) {
  return {NormalDomain(function.domain()), function.name(), function.overload()};
}

Key KeyOf(const onnx::NodeProto& node) {
  return {NormalDomain(node.domain()), node.op_type(), node.overload()};
}

std::string NameOf(const Key& key) {
  const auto& [domain, name, overload] = key;
  return "'" + domain + "::" + name + (overload.empty() ? "" : ":" + overload) + "'";
}

// Set on the nodes of a body while it is inlined: the number of the call.
constexpr const char* kCallKey = "liger.call";

bool IsFusedOp(const OwnOpNames& kept, const std::string& domain, const std::string& name) {
  return (domain == kOpDomain && FindContract(name) != nullptr) || kept.contains({domain, name});
}

template <typename Imports>
Versions VersionsOf(const Imports& imports) {
  Versions versions;
  for (const onnx::OperatorSetIdProto& import : imports) {
    versions[NormalDomain(import.domain())] = static_cast<int>(import.version());
  }
  return versions;
}

// Visits nodes and those in their bodies.
template <typename Nodes, typename Visit>
void ForEachNode(Nodes& nodes, const Visit& visit) {
  for (auto& node : nodes) {
    visit(node);
    for (const onnx::AttributeProto& attribute : node.attribute()) {
      if (attribute.has_g()) ForEachNode(attribute.g().node(), visit);
      for (const onnx::GraphProto& graph : attribute.graphs()) ForEachNode(graph.node(), visit);
    }
  }
}

template <typename Visit>
void ForEachMutableNode(google::protobuf::RepeatedPtrField<onnx::NodeProto>& nodes,
                        const Visit& visit) {
  for (onnx::NodeProto& node : nodes) {
    visit(node);
    for (onnx::AttributeProto& attribute : *node.mutable_attribute()) {
      if (attribute.has_g()) ForEachMutableNode(*attribute.mutable_g()->mutable_node(), visit);
      for (onnx::GraphProto& graph : *attribute.mutable_graphs()) {
        ForEachMutableNode(*graph.mutable_node(), visit);
      }
    }
  }
}

// All that are to be inlined; the others were taken out of the model before.
class NotFused : public onnx::inliner::FunctionIdSet {
 public:
  explicit NotFused(const OwnOpNames& kept) : kept_(kept) {}
  bool Contains(const std::string& domain, const std::string& name) const override {
    return !IsFusedOp(kept_, domain, name);
  }

 private:
  const OwnOpNames& kept_;
};

class Inliner {
 public:
  Inliner(onnx::ModelProto& model, const OwnOpNames& kept)
      : model_(model), kept_(kept), versions_(VersionsOf(model.opset_import())) {}

  InlinedFunctions Run() {
    if (std::all_of(model_.functions().begin(), model_.functions().end(),
                    [&](const auto& function) {
                      return IsFusedOp(kept_, function.domain(), function.name());
                    })) {
      return {};
    }
    for (const onnx::FunctionProto& function : model_.functions()) {
      functions_.emplace(KeyOf(function), &function);
    }
    try {
      onnx::checker::check_function_call_cycles(model_);
    } catch (const std::exception&) {
      return Left("the local functions call each other in a circle; they were not looked into");
    }
    ChooseFunctions();
    if (!CallsAny(model_.graph().node())) return std::move(result_);
    // Weights are not copied; their names are what the inliner needs of them.
    google::protobuf::RepeatedPtrField<onnx::TensorProto> weights;
    weights.Swap(model_.mutable_graph()->mutable_initializer());
    onnx::ModelProto copy = model_;
    for (const onnx::TensorProto& tensor : weights) {
      copy.mutable_graph()->add_initializer()->set_name(tensor.name());
    }
    const std::string failure = Inline(copy);
    onnx::ModelProto& result = failure.empty() ? copy : model_;
    result.mutable_graph()->mutable_initializer()->Swap(&weights);
    if (!failure.empty()) return Left(failure);
    CollectPlaces(copy);
    Finish(copy);
    model_ = std::move(copy);
    return std::move(result_);
  }

 private:
  // Why it cannot be done; empty if it was.
  std::string Inline(onnx::ModelProto& copy) {
    try {
      if (!Expand(copy)) {
        return "the local functions hold too many nodes when they are put in place of their calls; "
               "they were not looked into";
      }
      onnx::inliner::InlineSelectedLocalFunctions(copy, NotFused(kept_));
    } catch (const std::exception& e) {
      return "the local functions cannot be inlined, so they were not looked into: " +
             std::string(e.what());
    }
    return "";
  }

  static InlinedFunctions Left(std::string why) {
    InlinedFunctions result;
    result.notes = {std::move(why)};
    return result;
  }

  const onnx::FunctionProto* Callee(const onnx::NodeProto& node) const {
    const auto found = functions_.find(KeyOf(node));
    return found != functions_.end() ? found->second : nullptr;
  }

  // Whether every operator of the function is the same one at the model's versions.
  bool MeansTheSame(const onnx::FunctionProto& function) const {
    const Versions own = VersionsOf(function.opset_import());
    bool same = true;
    ForEachNode(function.node(), [&](const onnx::NodeProto& node) {
      if (functions_.contains(KeyOf(node))) return;
      const std::string domain = NormalDomain(node.domain());
      const auto here = own.find(domain);
      const auto there = versions_.find(domain);
      if (here == own.end()) {
        same = false;
        return;
      }
      if (there == versions_.end() || here->second == there->second) return;
      const auto* a = onnx::OpSchemaRegistry::Schema(node.op_type(), here->second, domain);
      const auto* b = onnx::OpSchemaRegistry::Schema(node.op_type(), there->second, domain);
      same = same && a != nullptr && a == b;
    });
    return same;
  }

  // A function that ONNX has an operator of the same name for is never called.
  bool IsHidden(const Key& key) const {
    const auto version = versions_.find(std::get<0>(key));
    return version != versions_.end() &&
           onnx::OpSchemaRegistry::Schema(std::get<1>(key), version->second, std::get<0>(key)) !=
               nullptr;
  }

  void ChooseFunctions() {
    for (const auto& [key, function] : functions_) {
      if (IsFusedOp(kept_, std::get<0>(key), std::get<1>(key)) || IsHidden(key)) continue;
      if (MeansTheSame(*function)) {
        chosen_.insert(key);
      } else {
        result_.notes.push_back("the local function " + NameOf(key) +
                                " was not looked into: its operators mean something else at the "
                                "versions that the model imports");
      }
    }
  }

  template <typename Nodes>
  bool CallsAny(const Nodes& nodes) const {
    bool found = false;
    ForEachNode(nodes, [&](const onnx::NodeProto& node) {
      found = found || chosen_.contains(KeyOf(node));
    });
    return found;
  }

  // Gives each call a function of its own, which carries the call's metadata and name, and takes the
  // functions that stay as they are out of the inliner's sight. False if that grows too large.
  bool Expand(onnx::ModelProto& copy) {
    copy.clear_functions();
    std::vector<google::protobuf::RepeatedPtrField<onnx::NodeProto>*> open = {
        copy.mutable_graph()->mutable_node()};
    int64_t nodes = 0;
    while (!open.empty()) {
      auto& list = *open.back();
      open.pop_back();
      bool fits = true;
      ForEachMutableNode(list, [&](onnx::NodeProto& call) {
        const Key key = KeyOf(call);
        if (!fits || !chosen_.contains(key)) return;
        const onnx::FunctionProto& function = *functions_.at(key);
        nodes += function.node_size();
        fits = nodes <= kMaxNodes;
        if (!fits) return;
        ++result_.calls;
        called_.insert(key);
        result_.places.push_back({std::get<0>(key) + "::" + std::get<1>(key), call.name(), {}});
        around_.push_back(TakeCall(call));
        onnx::FunctionProto& own = *copy.add_functions();
        own = function;
        own.set_overload("liger_call_" + std::to_string(result_.calls));
        call.set_overload(own.overload());
        Adapt(own);
        ForEachMutableNode(*own.mutable_node(), [&](onnx::NodeProto& node) {
          Inherit(call, node);
          PutAttributes(call, own, node);
          MarkCall(node, result_.calls);
        });
        open.push_back(own.mutable_node());
      });
      if (!fits) return false;
    }
    return true;
  }

  static void MarkCall(onnx::NodeProto& node, int64_t number) {
    onnx::StringStringEntryProto& entry = *node.add_metadata_props();
    entry.set_key(kCallKey);
    entry.set_value(std::to_string(number));
  }

  // The number of the call in whose body the node stands, 0 if it stands in none; takes the mark off.
  static int64_t TakeCall(onnx::NodeProto& node) {
    int64_t number = 0;
    auto& entries = *node.mutable_metadata_props();
    entries.erase(std::remove_if(entries.begin(), entries.end(),
                                 [&](const auto& entry) {
                                   if (entry.key() != kCallKey) return false;
                                   number = std::stoll(entry.value());
                                   return true;
                                 }),
                  entries.end());
    return number;
  }

  // Gives each call the values that the nodes of its body compute, and takes off their marks.
  void CollectPlaces(onnx::ModelProto& copy) {
    ForEachMutableNode(*copy.mutable_graph()->mutable_node(), [&](onnx::NodeProto& node) {
      for (int64_t call = TakeCall(node); call > 0; call = around_[call - 1]) {
        auto& values = result_.places[call - 1].values;
        values.insert(values.end(), node.output().begin(), node.output().end());
      }
    });
  }

  // The versions are those of the model: the operators are the same.
  void Adapt(onnx::FunctionProto& function) const {
    for (onnx::OperatorSetIdProto& import : *function.mutable_opset_import()) {
      const auto version = versions_.find(NormalDomain(import.domain()));
      if (version != versions_.end()) import.set_version(version->second);
    }
  }

  static const onnx::AttributeProto* Find(
      const google::protobuf::RepeatedPtrField<onnx::AttributeProto>& attributes,
      const std::string& name) {
    const auto found = std::find_if(attributes.begin(), attributes.end(),
                                    [&](const auto& a) { return a.name() == name; });
    return found != attributes.end() ? &*found : nullptr;
  }

  // References to the function's attributes become the call's values, or else the defaults; one that
  // has neither is left out. The inliner would forget the defaults.
  static void PutAttributes(const onnx::NodeProto& call, const onnx::FunctionProto& function,
                            onnx::NodeProto& node) {
    google::protobuf::RepeatedPtrField<onnx::AttributeProto> kept;
    for (onnx::AttributeProto& attribute : *node.mutable_attribute()) {
      if (attribute.ref_attr_name().empty()) {
        *kept.Add() = std::move(attribute);
        continue;
      }
      const onnx::AttributeProto* value = Find(call.attribute(), attribute.ref_attr_name());
      if (value == nullptr) value = Find(function.attribute_proto(), attribute.ref_attr_name());
      if (value == nullptr) continue;
      const std::string name = attribute.name();
      *kept.Add() = *value;
      kept.rbegin()->set_name(name);
    }
    node.mutable_attribute()->Swap(&kept);
  }

  static void Inherit(const onnx::NodeProto& call, onnx::NodeProto& node) {
    if (!call.name().empty()) {
      node.set_name(call.name() + "/" + (node.name().empty() ? node.op_type() : node.name()));
    }
    for (const onnx::StringStringEntryProto& entry : call.metadata_props()) {
      const bool has = std::any_of(node.metadata_props().begin(), node.metadata_props().end(),
                                   [&](const auto& own) { return own.key() == entry.key(); });
      if (!has) *node.add_metadata_props() = entry;
    }
  }

  // Puts back the functions that are still called, in their old order, and takes out the imports
  // of domains that nothing uses any more.
  void Finish(onnx::ModelProto& copy) {
    std::set<Key> needed;
    std::vector<const onnx::FunctionProto*> open;
    const auto need = [&](const onnx::NodeProto& node) {
      const onnx::FunctionProto* callee = Callee(node);
      if (callee != nullptr && needed.insert(KeyOf(node)).second) open.push_back(callee);
    };
    ForEachNode(copy.graph().node(), need);
    while (!open.empty()) {
      const onnx::FunctionProto& function = *open.back();
      open.pop_back();
      ForEachNode(function.node(), need);
    }
    copy.clear_functions();
    std::set<std::string> used = {""};
    for (const onnx::FunctionProto& function : model_.functions()) {
      const Key key = KeyOf(function);
      // Functions that were never called stay with those that cannot be inlined.
      if (!needed.contains(key) && (called_.contains(key) || chosen_.contains(key))) continue;
      *copy.add_functions() = function;
      used.insert(std::get<0>(key));
      ForEachNode(function.node(),
                  [&](const onnx::NodeProto& node) { used.insert(NormalDomain(node.domain())); });
    }
    ForEachNode(copy.graph().node(),
                [&](const onnx::NodeProto& node) { used.insert(NormalDomain(node.domain())); });
    std::set<std::string> gone;
    for (const Key& key : called_) {
      if (!used.contains(std::get<0>(key))) gone.insert(std::get<0>(key));
      if (!needed.contains(key)) ++result_.functions;
    }
    auto& imports = *copy.mutable_opset_import();
    imports.erase(std::remove_if(imports.begin(), imports.end(),
                                 [&](const auto& import) {
                                   return gone.contains(NormalDomain(import.domain()));
                                 }),
                  imports.end());
  }

  onnx::ModelProto& model_;
  const OwnOpNames& kept_;
  const Versions versions_;
  std::map<Key, const onnx::FunctionProto*> functions_;
  std::set<Key> chosen_;         // to be inlined
  std::set<Key> called_;         // that were
  std::vector<int64_t> around_;  // of each call: the one in whose body it stands, 0 for none
  InlinedFunctions result_;
};

}  // namespace

InlinedFunctions InlineFunctions(onnx::ModelProto& model, const OwnOpNames& kept) {
  return Inliner(model, kept).Run();
}

}  // namespace liger
