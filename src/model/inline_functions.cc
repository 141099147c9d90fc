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

#include "model/each_node.h"
#include "model/operator_versions.h"
#include "model/structure.h"
#include "ops/op_contract.h"

namespace liger {
namespace {

using Key = std::tuple<std::string, std::string, std::string>;  // domain, name, overload

// Nested calls can multiply: more nodes than this are no model.
constexpr int64_t kMaxNodes = 4'000'000;

Key OwnKey(const onnx::FunctionProto& function) { return Key(KeyOf(function)); }
Key OwnKey(const onnx::NodeProto& call) { return Key(KeyOfCall(call)); }

std::string NameOf(const Key& key) {
  const auto& [domain, name, overload] = key;
  return "'" + domain + "::" + name + (overload.empty() ? "" : ":" + overload) + "'";
}

// Set on the nodes of a body while it is inlined: the number of the call.
constexpr const char* kCallKey = "liger.call";

// The functions that are put in place of their calls: those of fused ops, or all others.
class Selected : public onnx::inliner::FunctionIdSet {
 public:
  Selected(const OwnOpNames& own, bool fused) : own_(own), fused_(fused) {}

  bool Contains(const std::string& domain, const std::string& name) const override {
    const bool is_fused =
        (domain == kOpDomain && FindContract(name) != nullptr) || own_.contains({domain, name});
    return is_fused == fused_;
  }
  bool Contains(const Key& key) const { return Contains(std::get<0>(key), std::get<1>(key)); }
  bool fused() const { return fused_; }

 private:
  const OwnOpNames& own_;
  const bool fused_;
};

class Inliner {
 public:
  Inliner(onnx::ModelProto& model, const Selected& selected)
      : model_(model), selected_(selected), versions_(VersionsOf(model.opset_import())) {}

  InlinedFunctions Run() {
    if (std::none_of(model_.functions().begin(), model_.functions().end(),
                     [&](const auto& function) { return selected_.Contains(OwnKey(function)); })) {
      return {};
    }
    for (const onnx::FunctionProto& function : model_.functions()) {
      functions_.emplace(OwnKey(function), &function);
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
      onnx::inliner::InlineSelectedLocalFunctions(copy, selected_);
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
    const auto found = functions_.find(OwnKey(node));
    return found != functions_.end() ? found->second : nullptr;
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
      if (!selected_.Contains(key) || IsHidden(key)) continue;
      const auto is_call = [&](const onnx::NodeProto& node) { return Callee(node) != nullptr; };
      if (SameOperators(*function, versions_, is_call)) {
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
      found = found || chosen_.contains(OwnKey(node));
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
        const Key key = OwnKey(call);
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
      const auto version = versions_.find(std::string(NormalDomain(import.domain())));
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

  void Inherit(const onnx::NodeProto& call, onnx::NodeProto& node) const {
    if (!call.name().empty()) {
      // The call of a module's function is named after the module, a fused op after one of its nodes.
      const char* separator = selected_.fused() ? "_" : "/";
      node.set_name(call.name() + separator + (node.name().empty() ? node.op_type() : node.name()));
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
      if (callee != nullptr && needed.insert(OwnKey(node)).second) open.push_back(callee);
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
      const Key key = OwnKey(function);
      // Functions that were never called stay with those that cannot be inlined.
      if (!needed.contains(key) && (called_.contains(key) || chosen_.contains(key))) continue;
      *copy.add_functions() = function;
      used.insert(std::get<0>(key));
      ForEachNode(function.node(),
                  [&](const onnx::NodeProto& node) { used.emplace(NormalDomain(node.domain())); });
    }
    ForEachNode(copy.graph().node(),
                [&](const onnx::NodeProto& node) { used.emplace(NormalDomain(node.domain())); });
    std::set<std::string> gone;
    for (const Key& key : called_) {
      if (!used.contains(std::get<0>(key))) gone.insert(std::get<0>(key));
      if (!needed.contains(key)) ++result_.functions;
    }
    auto& imports = *copy.mutable_opset_import();
    imports.erase(std::remove_if(imports.begin(), imports.end(),
                                 [&](const auto& import) {
                                   return gone.contains(std::string(NormalDomain(import.domain())));
                                 }),
                  imports.end());
  }

  onnx::ModelProto& model_;
  const Selected& selected_;
  const Versions versions_;
  std::map<Key, const onnx::FunctionProto*> functions_;
  std::set<Key> chosen_;         // to be inlined
  std::set<Key> called_;         // that were
  std::vector<int64_t> around_;  // of each call: the one in whose body it stands, 0 for none
  InlinedFunctions result_;
};

// Functions that nothing calls any more go, and the imports of domains that nothing uses.
void RemoveUncalled(onnx::ModelProto& model, const Selected& selected) {
  std::set<Key> called;
  std::set<std::string, std::less<>> used;
  const auto note = [&](const onnx::NodeProto& node) {
    called.insert(OwnKey(node));
    used.emplace(NormalDomain(node.domain()));
  };
  ForEachNode(model.graph().node(), note);
  for (const onnx::FunctionProto& function : model.functions()) ForEachNode(function.node(), note);
  std::set<std::string, std::less<>> domains = {std::string(kOpDomain)};
  auto& functions = *model.mutable_functions();
  functions.erase(std::remove_if(functions.begin(), functions.end(),
                                 [&](const onnx::FunctionProto& function) {
                                   const Key key = OwnKey(function);
                                   if (selected.Contains(key)) domains.insert(std::get<0>(key));
                                   return selected.Contains(key) && !called.contains(key);
                                 }),
                  functions.end());
  for (const onnx::FunctionProto& function : functions) {
    used.emplace(NormalDomain(function.domain()));
  }
  auto& imports = *model.mutable_opset_import();
  imports.erase(std::remove_if(imports.begin(), imports.end(),
                               [&](const onnx::OperatorSetIdProto& import) {
                                 const auto domain = NormalDomain(import.domain());
                                 return domains.contains(domain) && !used.contains(domain);
                               }),
                imports.end());
}

}  // namespace

InlinedFunctions InlineFunctions(onnx::ModelProto& model, const OwnOpNames& kept) {
  return Inliner(model, Selected(kept, false)).Run();
}

InlinedFunctions InlineFusedOps(onnx::ModelProto& model, const OwnOpNames& own) {
  const Selected selected(own, true);
  InlinedFunctions all;
  const auto take = [&](InlinedFunctions part) {
    all.calls += part.calls;
    all.notes.insert(all.notes.end(), part.notes.begin(), part.notes.end());
    all.places.insert(all.places.end(), part.places.begin(), part.places.end());
  };
  std::vector<onnx::FunctionProto*> staying;
  onnx::ModelProto part;  // of one function that stays, with those that it may call
  for (onnx::FunctionProto& function : *model.mutable_functions()) {
    if (selected.Contains(OwnKey(function))) {
      *part.add_functions() = function;
    } else {
      staying.push_back(&function);
    }
  }
  for (onnx::FunctionProto* function : staying) {
    onnx::ModelProto body = part;
    *body.mutable_opset_import() = function->opset_import();
    body.mutable_graph()->mutable_node()->Swap(function->mutable_node());
    for (const std::string& input : function->input()) {
      body.mutable_graph()->add_input()->set_name(input);
    }
    take(Inliner(body, selected).Run());
    function->mutable_node()->Swap(body.mutable_graph()->mutable_node());
    function->mutable_opset_import()->Swap(body.mutable_opset_import());
  }
  take(Inliner(model, selected).Run());
  RemoveUncalled(model, selected);
  all.functions =
      part.functions_size() -
      std::count_if(model.functions().begin(), model.functions().end(),
                    [&](const auto& function) { return selected.Contains(OwnKey(function)); });
  return all;
}

}  // namespace liger
