#include "model/edit.h"

#include <onnx/onnx_pb.h>

#include <algorithm>
#include <unordered_set>

#include "ops/op_contract.h"

namespace liger {
namespace {

using Names = std::unordered_set<std::string>;

// All graphs of the model in the order of GraphModel::graphs.
void CollectGraphs(onnx::GraphProto& graph, std::vector<onnx::GraphProto*>& graphs) {
  graphs.push_back(&graph);
  for (auto& node : *graph.mutable_node()) {
    for (auto& attribute : *node.mutable_attribute()) {
      if (attribute.type() == onnx::AttributeProto::GRAPH) {
        CollectGraphs(*attribute.mutable_g(), graphs);
      }
    }
  }
}

// Names that the graph's nodes and their bodies read, and its outputs.
void CollectUses(const onnx::GraphProto& graph, Names& names) {
  for (const auto& output : graph.output()) names.insert(output.name());
  for (const auto& node : graph.node()) {
    names.insert(node.input().begin(), node.input().end());
    for (const auto& attribute : node.attribute()) {
      if (attribute.type() == onnx::AttributeProto::GRAPH) CollectUses(attribute.g(), names);
    }
  }
}

void SetAttribute(const Attribute& attribute, onnx::AttributeProto& proto) {
  proto.set_name(attribute.name);
  if (const auto* i = std::get_if<int64_t>(&attribute.value)) {
    proto.set_type(onnx::AttributeProto::INT);
    proto.set_i(*i);
  } else if (const auto* f = std::get_if<float>(&attribute.value)) {
    proto.set_type(onnx::AttributeProto::FLOAT);
    proto.set_f(*f);
  } else if (const auto* s = std::get_if<std::string>(&attribute.value)) {
    proto.set_type(onnx::AttributeProto::STRING);
    proto.set_s(*s);
  } else if (const auto* ints = std::get_if<std::vector<int64_t>>(&attribute.value)) {
    proto.set_type(onnx::AttributeProto::INTS);
    proto.mutable_ints()->Assign(ints->begin(), ints->end());
  } else if (const auto* tensor = std::get_if<Tensor>(&attribute.value);
             tensor != nullptr && tensor->dtype == DType::kI64) {
    proto.set_type(onnx::AttributeProto::TENSOR);
    onnx::TensorProto& stored = *proto.mutable_t();
    stored.set_data_type(onnx::TensorProto::INT64);
    stored.mutable_dims()->Assign(tensor->dims.begin(), tensor->dims.end());
    stored.mutable_int64_data()->Assign(tensor->ints.begin(), tensor->ints.end());
  } else {
    LIGER_CHECK(!"attribute kind of a fused op");
  }
}

onnx::NodeProto MakeNode(const NewNode& node, const std::string& overload) {
  onnx::NodeProto proto;
  proto.set_op_type(node.op_type);
  if (!node.domain.empty()) proto.set_domain(node.domain);
  proto.set_name(node.name);
  if (!overload.empty()) proto.set_overload(overload);
  for (const std::string& input : node.inputs) proto.add_input(input);
  for (const std::string& output : node.outputs) proto.add_output(output);
  for (const Attribute& attribute : node.attributes)
    SetAttribute(attribute, *proto.add_attribute());
  for (const auto& [key, value] : node.metadata) {
    auto& entry = *proto.add_metadata_props();
    entry.set_key(key);
    entry.set_value(value);
  }
  return proto;
}

// Adds the functions that the model lacks; the overload of each, in the order of the edit.
Result<std::vector<std::string>> AddFunctions(const ModelEdit& edit, onnx::ModelProto& model) {
  std::vector<std::string> overloads;
  for (const FunctionSpec& spec : edit.functions) {
    auto made = MakeFunction(spec);
    if (!made) return std::move(made).error();
    onnx::FunctionProto function = *std::move(made);
    Names taken;
    std::optional<std::string> equal;
    for (const auto& existing : model.functions()) {
      if (existing.domain() != function.domain() || existing.name() != function.name()) continue;
      taken.insert(existing.overload());
      function.clear_overload();
      if (!existing.overload().empty()) function.set_overload(existing.overload());
      if (existing.SerializeAsString() == function.SerializeAsString()) equal = existing.overload();
    }
    std::string overload = equal.value_or("");
    for (int n = 1; !equal && taken.contains(overload); ++n) {
      overload = spec.tag + (n > 1 ? "_" + std::to_string(n) : "");
    }
    overloads.push_back(overload);
    if (equal) continue;
    function.clear_overload();
    if (!overload.empty()) function.set_overload(overload);
    *model.add_functions() = std::move(function);
  }
  return overloads;
}

void Declare(const std::string& name, const ValueType& type, onnx::GraphProto& graph) {
  onnx::ValueInfoProto& info = *graph.add_value_info();
  info.set_name(name);
  *info.mutable_type() = TypeProtoOf(type);
}

void EditGraph(const ModelEdit& edit, const GraphEdit& change,
               const std::vector<std::string>& overloads, onnx::GraphProto& graph,
               Names& no_longer_read) {
  std::vector<onnx::NodeProto*> old(graph.node_size());
  graph.mutable_node()->ExtractSubrange(0, graph.node_size(), old.data());
  std::vector<bool> kept(old.size(), false);
  Names defined;
  for (const EditedNode& entry : change.nodes) {
    if (entry.is_new) {
      const NewNode& node = edit.new_nodes[entry.index];
      *graph.add_node() = MakeNode(node, node.function == kNone ? "" : overloads[node.function]);
    } else {
      kept[entry.index] = true;
      graph.mutable_node()->AddAllocated(old[entry.index]);
    }
  }
  Names removed_values;
  for (size_t i = 0; i < old.size(); ++i) {
    if (kept[i]) continue;
    no_longer_read.insert(old[i]->input().begin(), old[i]->input().end());
    removed_values.insert(old[i]->output().begin(), old[i]->output().end());
    delete old[i];
  }
  Names typed;
  for (const auto& info : graph.output()) typed.insert(info.name());
  for (const auto& node : graph.node()) {
    for (const auto& output : node.output()) removed_values.erase(output);
  }
  auto& infos = *graph.mutable_value_info();
  infos.erase(
      std::remove_if(infos.begin(), infos.end(),
                     [&](const auto& info) { return removed_values.contains(info.name()); }),
      infos.end());
  for (const auto& info : infos) typed.insert(info.name());
  for (const EditedNode& entry : change.nodes) {
    if (!entry.is_new) continue;
    const NewNode& node = edit.new_nodes[entry.index];
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      const ValueType& type = node.output_types[i];
      if (node.outputs[i].empty() || type.dtype == DType::kUndefined ||
          !typed.insert(node.outputs[i]).second) {
        continue;
      }
      Declare(node.outputs[i], type, graph);
    }
  }
}

onnx::StringStringEntryProto* FindMetadata(const std::string& key, onnx::ModelProto& model) {
  auto& entries = *model.mutable_metadata_props();
  const auto found = std::find_if(entries.begin(), entries.end(),
                                  [&](const auto& entry) { return entry.key() == key; });
  return found != entries.end() ? &*found : nullptr;
}

void SetMetadata(const std::string& key, const std::string& value, onnx::ModelProto& model) {
  onnx::StringStringEntryProto* found = FindMetadata(key, model);
  onnx::StringStringEntryProto& entry = found != nullptr ? *found : *model.add_metadata_props();
  entry.set_key(key);
  entry.set_value(value);
}

void RemoveUnusedInitializers(onnx::GraphProto& graph, const Names& no_longer_read) {
  Names used;
  CollectUses(graph, used);
  for (const auto& input : graph.input()) used.insert(input.name());
  Names removed;
  for (const auto& tensor : graph.initializer()) {
    if (no_longer_read.contains(tensor.name()) && !used.contains(tensor.name())) {
      removed.insert(tensor.name());
    }
  }
  const auto erase = [&](auto& entries) {
    entries.erase(std::remove_if(entries.begin(), entries.end(),
                                 [&](const auto& e) { return removed.contains(e.name()); }),
                  entries.end());
  };
  erase(*graph.mutable_initializer());
  erase(*graph.mutable_value_info());  // exporters type initializers too
}

}  // namespace

Status ApplyEdit(const ModelEdit& edit, onnx::ModelProto& model) {
  auto overloads = AddFunctions(edit, model);
  if (!overloads) return std::move(overloads).error();

  std::vector<onnx::GraphProto*> graphs;
  CollectGraphs(*model.mutable_graph(), graphs);
  Names no_longer_read;
  for (const GraphEdit& change : edit.graphs) {
    EditGraph(edit, change, *overloads, *graphs[change.graph], no_longer_read);
  }
  graphs.clear();  // bodies may have moved with their nodes
  CollectGraphs(*model.mutable_graph(), graphs);
  for (onnx::GraphProto* graph : graphs) RemoveUnusedInitializers(*graph, no_longer_read);

  for (const NewNode& node : edit.new_nodes) {
    const auto& imports = model.opset_import();
    if (node.domain.empty() || std::any_of(imports.begin(), imports.end(), [&](const auto& import) {
          return import.domain() == node.domain;
        })) {
      continue;
    }
    auto& import = *model.add_opset_import();
    import.set_domain(node.domain);
    import.set_version(kOpDomainVersion);
  }
  const bool overloaded =
      std::any_of(overloads->begin(), overloads->end(),
                  [](const std::string& overload) { return !overload.empty(); });
  const int64_t needed = overloaded ? kIrWithOverloads : kIrWithFunctions;
  if (!edit.functions.empty() && model.ir_version() < needed) {
    const std::string key(kIrVersionKey);
    // Of two runs the first saw the model as it was.
    if (FindMetadata(key, model) == nullptr) {
      SetMetadata(key, std::to_string(model.ir_version()), model);
    }
    model.set_ir_version(needed);
  }
  for (const auto& [key, value] : edit.metadata) SetMetadata(key, value, model);
  return {};
}

onnx::TypeProto TypeProtoOf(const ValueType& type) {
  onnx::TypeProto proto;
  auto& tensor = *proto.mutable_tensor_type();
  tensor.set_elem_type(static_cast<int32_t>(type.dtype));
  if (!type.shape) return proto;
  tensor.mutable_shape();
  for (const Dim& dim : *type.shape) {
    auto& d = *tensor.mutable_shape()->add_dim();
    if (dim.is_known()) d.set_dim_value(dim.value);
    if (!dim.is_known() && !dim.symbol.empty()) d.set_dim_param(dim.symbol);
  }
  return proto;
}

void DeclareTypes(const std::map<int, std::map<std::string, ValueType>>& values,
                  onnx::ModelProto& model) {
  std::vector<onnx::GraphProto*> graphs;
  CollectGraphs(*model.mutable_graph(), graphs);
  for (const auto& [graph, types] : values) {
    Names declared;
    for (const auto& info : graphs[graph]->output()) declared.insert(info.name());
    for (onnx::ValueInfoProto& info : *graphs[graph]->mutable_value_info()) {
      declared.insert(info.name());
      const auto type = types.find(info.name());
      if (type == types.end() || !info.type().has_tensor_type()) continue;
      auto& tensor = *info.mutable_type()->mutable_tensor_type();
      tensor.set_elem_type(static_cast<int32_t>(type->second.dtype));
    }
    for (const auto& [name, type] : types) {
      if (!declared.contains(name)) Declare(name, type, *graphs[graph]);
    }
  }
}

}  // namespace liger
