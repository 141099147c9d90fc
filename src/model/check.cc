#include "model/check.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>
#include <onnx/checker.h>
#include <onnx/onnx_pb.h>
#include <onnx/shape_inference/implementation.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "model/structure.h"

namespace liger {
namespace {

namespace pb = google::protobuf;
using pb::FieldDescriptor;

// --- A copy without weights ---------------------------------------------------------------------

// Scalars and small vectors stay in copies that are checked: the checker looks into sparse indices,
// inference into values.
constexpr int64_t kKeepBytes = 256;

// What a tensor without its payload looks like.
enum class StrippedForm {
  kTyped,  // dtype and dims, for shape inference
  kEmpty,  // dims [0]: ONNX's checker wants a payload, or a file, for every element
};

bool IsInteger(int32_t dtype) {
  switch (dtype) {
    case onnx::TensorProto::UINT8:
    case onnx::TensorProto::INT8:
    case onnx::TensorProto::UINT16:
    case onnx::TensorProto::INT16:
    case onnx::TensorProto::INT32:
    case onnx::TensorProto::INT64:
    case onnx::TensorProto::UINT32:
    case onnx::TensorProto::UINT64:
    case onnx::TensorProto::BOOL:
      return true;
    default:
      return false;
  }
}

int64_t InlineBytes(const onnx::TensorProto& tensor) {
  int64_t bytes = static_cast<int64_t>(tensor.raw_data().size()) +
                  int64_t{4} * (tensor.float_data_size() + tensor.int32_data_size()) +
                  int64_t{8} * (tensor.int64_data_size() + tensor.double_data_size() +
                                tensor.uint64_data_size());
  for (const std::string& s : tensor.string_data()) bytes += static_cast<int64_t>(s.size());
  return bytes;
}

bool HasNoElements(const onnx::TensorProto& tensor) {
  return std::find(tensor.dims().begin(), tensor.dims().end(), 0) != tensor.dims().end();
}

bool IsExternal(const onnx::TensorProto& tensor) {
  return tensor.data_location() == onnx::TensorProto::EXTERNAL;
}

// Marks a value_info that stands for an initializer whose elements shape inference would read if it
// had any.
constexpr char kHiddenInitializer[] = "liger.initializer_without_payload";

// Fields whose messages can hold tensors. All others are copied as they are.
bool MayHoldTensors(const pb::Descriptor* type) {
  static const std::unordered_set<const pb::Descriptor*> kTypes = {
      onnx::GraphProto::descriptor(),        onnx::NodeProto::descriptor(),
      onnx::AttributeProto::descriptor(),    onnx::TensorProto::descriptor(),
      onnx::SparseTensorProto::descriptor(), onnx::FunctionProto::descriptor(),
      onnx::TrainingInfoProto::descriptor()};
  return kTypes.contains(type);
}

bool HoldsTensors(const onnx::NodeProto& node) {
  return std::any_of(node.attribute().begin(), node.attribute().end(),
                     [](const onnx::AttributeProto& attribute) {
                       return attribute.has_t() || attribute.has_g() ||
                              attribute.has_sparse_tensor() || !attribute.tensors().empty() ||
                              !attribute.graphs().empty() || !attribute.sparse_tensors().empty();
                     });
}

void CopyScalars(const pb::Message& from, const FieldDescriptor* field, pb::Message* to) {
  const pb::Reflection& source = *from.GetReflection();
  const pb::Reflection& target = *to->GetReflection();
  const int count = field->is_repeated() ? source.FieldSize(from, field) : 1;
  for (int i = 0; i < count; ++i) {
    switch (field->cpp_type()) {
#define LIGER_COPY_FIELD(cpp_type, Name)                                     \
  case FieldDescriptor::cpp_type:                                            \
    if (field->is_repeated()) {                                              \
      target.Add##Name(to, field, source.GetRepeated##Name(from, field, i)); \
    } else {                                                                 \
      target.Set##Name(to, field, source.Get##Name(from, field));            \
    }                                                                        \
    break;
      LIGER_COPY_FIELD(CPPTYPE_INT32, Int32)
      LIGER_COPY_FIELD(CPPTYPE_INT64, Int64)
      LIGER_COPY_FIELD(CPPTYPE_UINT32, UInt32)
      LIGER_COPY_FIELD(CPPTYPE_UINT64, UInt64)
      LIGER_COPY_FIELD(CPPTYPE_DOUBLE, Double)
      LIGER_COPY_FIELD(CPPTYPE_FLOAT, Float)
      LIGER_COPY_FIELD(CPPTYPE_BOOL, Bool)
      LIGER_COPY_FIELD(CPPTYPE_ENUM, EnumValue)
      LIGER_COPY_FIELD(CPPTYPE_STRING, String)
#undef LIGER_COPY_FIELD
      case FieldDescriptor::CPPTYPE_MESSAGE:
        break;
    }
  }
}

// Copies by reflection, so that fields which later versions of ONNX add are copied too. Recursion
// is as deep as messages nest, which a parsed file bounds at 100.
class Stripper {
 public:
  Stripper(StrippedForm form, int64_t keep_bytes) : form_(form), keep_bytes_(keep_bytes) {}

  void Copy(const pb::Message& from, pb::Message* to) const {
    const pb::Descriptor* type = from.GetDescriptor();
    if (type == onnx::TensorProto::descriptor()) {
      return CopyTensor(static_cast<const onnx::TensorProto&>(from),
                        static_cast<onnx::TensorProto*>(to));
    }
    if (type == onnx::SparseTensorProto::descriptor()) {
      return CopySparse(static_cast<const onnx::SparseTensorProto&>(from),
                        static_cast<onnx::SparseTensorProto*>(to));
    }
    if (type == onnx::NodeProto::descriptor() &&
        !HoldsTensors(static_cast<const onnx::NodeProto&>(from))) {
      return to->CheckTypeAndMergeFrom(from);
    }
    CopyFields(from, to);
    if (type == onnx::GraphProto::descriptor()) {
      onnx::GraphProto& graph = *static_cast<onnx::GraphProto*>(to);
      if (form_ == StrippedForm::kTyped) {
        HideUnknownShapes(graph);
      } else {
        RestoreUnknownShapes(graph);
      }
    }
  }

 private:
  bool Keeps(const onnx::TensorProto& tensor) const {
    if (IsExternal(tensor)) return false;
    const int64_t bytes = InlineBytes(tensor);
    // Elements without a payload: `tensor` comes from a model that was stripped before.
    if (bytes == 0 && tensor.string_data().empty() && !HasNoElements(tensor)) return false;
    return bytes <= keep_bytes_ || (IsInteger(tensor.data_type()) && bytes <= kKeepIntegerBytes);
  }

  template <typename Skip>
  void CopyFields(const pb::Message& from, pb::Message* to, const Skip& skip) const {
    const pb::Reflection& source = *from.GetReflection();
    const pb::Reflection& target = *to->GetReflection();
    std::vector<const FieldDescriptor*> fields;
    source.ListFields(from, &fields);
    for (const FieldDescriptor* field : fields) {
      if (skip(field)) continue;
      if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) {
        CopyScalars(from, field, to);
        continue;
      }
      const bool walk = MayHoldTensors(field->message_type());
      const int count = field->is_repeated() ? source.FieldSize(from, field) : 1;
      for (int i = 0; i < count; ++i) {
        const pb::Message& value = field->is_repeated() ? source.GetRepeatedMessage(from, field, i)
                                                        : source.GetMessage(from, field);
        pb::Message* copy =
            field->is_repeated() ? target.AddMessage(to, field) : target.MutableMessage(to, field);
        if (walk) {
          Copy(value, copy);
        } else {
          copy->CheckTypeAndMergeFrom(value);
        }
      }
    }
    target.MutableUnknownFields(to)->MergeFrom(source.GetUnknownFields(from));
  }

  void CopyFields(const pb::Message& from, pb::Message* to) const {
    CopyFields(from, to, [](const FieldDescriptor*) { return false; });
  }

  void CopyTensor(const onnx::TensorProto& from, onnx::TensorProto* to) const {
    if (Keeps(from)) {
      to->MergeFrom(from);
    } else {
      StripTensor(from, to);
    }
  }

  void StripTensor(const onnx::TensorProto& from, onnx::TensorProto* to) const {
    CopyFields(from, to, [](const FieldDescriptor* field) {
      switch (field->number()) {
        case onnx::TensorProto::kRawDataFieldNumber:
        case onnx::TensorProto::kFloatDataFieldNumber:
        case onnx::TensorProto::kInt32DataFieldNumber:
        case onnx::TensorProto::kInt64DataFieldNumber:
        case onnx::TensorProto::kDoubleDataFieldNumber:
        case onnx::TensorProto::kUint64DataFieldNumber:
        case onnx::TensorProto::kStringDataFieldNumber:
        case onnx::TensorProto::kExternalDataFieldNumber:
        case onnx::TensorProto::kDataLocationFieldNumber:
          return true;
        default:
          return false;
      }
    });
    if (form_ == StrippedForm::kEmpty) {
      to->clear_dims();
      to->add_dims(0);
    }
  }

  // Values and indices stay or go together: indices belong to values one by one.
  void CopySparse(const onnx::SparseTensorProto& from, onnx::SparseTensorProto* to) const {
    if (Keeps(from.values()) && Keeps(from.indices())) {
      to->MergeFrom(from);
      return;
    }
    CopyFields(from, to, [](const FieldDescriptor* field) {
      return field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE;
    });
    if (from.has_values()) StripTensor(from.values(), to->mutable_values());
    if (from.has_indices() && form_ == StrippedForm::kTyped) {
      StripTensor(from.indices(), to->mutable_indices());
    }
  }

  // What inference would read: shapes, axes and the like.
  static bool IsUnknownShape(const onnx::TensorProto& tensor) {
    if (tensor.data_type() != onnx::TensorProto::INT64 &&
        tensor.data_type() != onnx::TensorProto::INT32) {
      return false;
    }
    const int64_t elements = tensor.dims().empty() ? 1 : tensor.dims(0);
    return tensor.dims_size() <= 1 && elements > 0 && elements <= kKeepIntegerBytes / 4 &&
           InlineBytes(tensor) == 0;
  }

  static void HideUnknownShapes(onnx::GraphProto& graph) {
    if (std::none_of(graph.initializer().begin(), graph.initializer().end(), IsUnknownShape)) {
      return;
    }
    std::unordered_set<std::string> inputs;
    for (const onnx::ValueInfoProto& value : graph.input()) inputs.insert(value.name());
    std::unordered_map<std::string, onnx::ValueInfoProto*> infos;
    for (onnx::ValueInfoProto& value : *graph.mutable_value_info()) infos[value.name()] = &value;
    pb::RepeatedPtrField<onnx::TensorProto> kept;
    for (onnx::TensorProto& tensor : *graph.mutable_initializer()) {
      if (!IsUnknownShape(tensor)) {
        kept.Add(std::move(tensor));
        continue;
      }
      if (inputs.contains(tensor.name())) continue;
      onnx::ValueInfoProto*& value = infos[tensor.name()];
      if (value == nullptr) {
        value = graph.add_value_info();
        value->set_name(tensor.name());
        onnx::TypeProto_Tensor* type = value->mutable_type()->mutable_tensor_type();
        type->set_elem_type(tensor.data_type());
        type->mutable_shape();
        for (const int64_t dim : tensor.dims())
          type->mutable_shape()->add_dim()->set_dim_value(dim);
      }
      onnx::StringStringEntryProto* mark = value->add_metadata_props();
      mark->set_key(kHiddenInitializer);
    }
    graph.mutable_initializer()->Swap(&kept);
  }

  // The checker wants to see where each value comes from.
  static void RestoreUnknownShapes(onnx::GraphProto& graph) {
    for (const onnx::ValueInfoProto& value : graph.value_info()) {
      for (const onnx::StringStringEntryProto& entry : value.metadata_props()) {
        if (entry.key() != kHiddenInitializer) continue;
        onnx::TensorProto* tensor = graph.add_initializer();
        tensor->set_name(value.name());
        tensor->set_data_type(value.type().tensor_type().elem_type());
        tensor->add_dims(0);
      }
    }
  }

  StrippedForm form_;
  int64_t keep_bytes_;
};

onnx::ModelProto StrippedCopy(const onnx::ModelProto& model, StrippedForm form,
                              int64_t keep_bytes) {
  onnx::ModelProto copy;
  Stripper(form, keep_bytes).Copy(model, &copy);
  return copy;
}

// --- What ONNX's own checks say -----------------------------------------------------------------

// The message of a library on one line, of bounded length.
std::string OneLine(std::string_view message) {
  constexpr size_t kMax = 400;
  std::string line;
  for (const char c : message) {
    if (c != '\n' && c != '\r' && c != '\t') {
      line += c;
    } else if (!line.empty() && line.back() != ' ') {
      line += ' ';
    }
  }
  while (!line.empty() && line.back() == ' ') line.pop_back();
  if (line.size() > kMax) line = line.substr(0, kMax) + " ...";
  return line;
}

// The message of the exception that `function` throws; nullopt if it throws none.
template <typename Function>
std::optional<std::string> Failure(const Function& function) {
  try {
    function();
    return std::nullopt;
  } catch (const std::exception& e) {
    return OneLine(e.what());
  }
}

std::optional<std::string> CheckerFailure(const onnx::ModelProto& without_weights) {
  return Failure([&] { onnx::checker::check_model(without_weights); });
}

std::optional<std::string> InferenceFailure(onnx::ModelProto& without_weights, bool strict,
                                            bool data_propagation) {
  return Failure([&] {
    onnx::shape_inference::InferShapes(
        without_weights, onnx::OpSchemaRegistry::Instance(),
        onnx::ShapeInferenceOptions(/*check_type=*/strict, /*error_mode=*/strict ? 1 : 0,
                                    data_propagation));
  });
}

template <typename Visit>
void ForEachGraph(const onnx::ModelProto& model, const Visit& visit) {
  std::vector<const onnx::GraphProto*> pending = {&model.graph()};
  const auto add_bodies = [&](const onnx::NodeProto& node) {
    for (const onnx::AttributeProto& attribute : node.attribute()) {
      if (attribute.has_g()) pending.push_back(&attribute.g());
      for (const onnx::GraphProto& graph : attribute.graphs()) pending.push_back(&graph);
    }
  };
  for (const onnx::FunctionProto& function : model.functions()) {
    for (const onnx::NodeProto& node : function.node()) add_bodies(node);
  }
  while (!pending.empty()) {
    const onnx::GraphProto* graph = pending.back();
    pending.pop_back();
    visit(*graph);
    for (const onnx::NodeProto& node : graph->node()) add_bodies(node);
  }
}

// What ONNX's checker has against the nodes and functions of `rewritten` that `original` does not
// have: what counts when it refuses the original too, and so stops before it gets to them. Nodes
// with bodies are left out, since they need the names around them; the nodes in the bodies are not.
std::optional<std::string> CheckerFailureOfNewParts(const onnx::ModelProto& original,
                                                    const onnx::ModelProto& rewritten) {
  std::unordered_set<std::string> known;
  ForEachGraph(original, [&](const onnx::GraphProto& graph) {
    for (const onnx::NodeProto& node : graph.node()) known.insert(node.SerializeAsString());
  });
  std::unordered_set<std::string> known_functions;
  for (const onnx::FunctionProto& function : original.functions()) {
    known_functions.insert(function.SerializeAsString());
  }

  onnx::checker::CheckerContext context;
  context.set_ir_version(static_cast<int>(rewritten.ir_version()));
  std::unordered_map<std::string, int> imports;
  for (const onnx::OperatorSetIdProto& opset : rewritten.opset_import()) {
    imports[opset.domain()] = static_cast<int>(opset.version());
  }
  context.set_opset_imports(imports);
  const onnx::checker::LexicalScopeContext no_names;
  return Failure([&] {
    ForEachGraph(rewritten, [&](const onnx::GraphProto& graph) {
      for (const onnx::NodeProto& node : graph.node()) {
        const bool has_bodies = std::any_of(
            node.attribute().begin(), node.attribute().end(),
            [](const auto& attribute) { return attribute.has_g() || attribute.graphs_size() > 0; });
        if (has_bodies || known.contains(node.SerializeAsString())) continue;
        onnx::checker::check_node(node, context, no_names);
      }
    });
    for (const onnx::FunctionProto& function : rewritten.functions()) {
      if (known_functions.contains(function.SerializeAsString())) continue;
      onnx::checker::check_function(function, context, no_names);
    }
  });
}

// --- What ONNX's checker does not look at -------------------------------------------------------

// The first fault that only `rewritten` has.
std::optional<std::string> NewStructuralFault(const onnx::ModelProto& original,
                                              const onnx::ModelProto& rewritten) {
  const std::vector<StructuralFault> faults = FindStructuralFaults(rewritten);
  if (faults.empty()) return std::nullopt;
  std::unordered_set<std::string> before;
  for (StructuralFault& fault : FindStructuralFaults(original)) {
    before.insert(std::move(fault.message));
  }
  for (const StructuralFault& fault : faults) {
    if (!before.contains(fault.message)) return fault.message;
  }
  return std::nullopt;
}

// --- Types --------------------------------------------------------------------------------------

std::string DTypeText(int32_t dtype) {
  return onnx::TensorProto::DataType_IsValid(dtype)
             ? onnx::TensorProto::DataType_Name(static_cast<onnx::TensorProto::DataType>(dtype))
             : "dtype " + std::to_string(dtype);
}

std::map<std::string_view, const onnx::TypeProto*> TypesOf(const onnx::GraphProto& graph) {
  std::map<std::string_view, const onnx::TypeProto*> types;
  for (const auto* values : {&graph.value_info(), &graph.input(), &graph.output()}) {
    for (const onnx::ValueInfoProto& value : *values) types[value.name()] = &value.type();
  }
  return types;
}

// The first value of the main graph that both models have with types that exclude each other.
std::optional<std::string> ChangedType(const onnx::ModelProto& original,
                                       const onnx::ModelProto& rewritten) {
  const auto before = TypesOf(original.graph());
  for (const auto& [name, type] : TypesOf(rewritten.graph())) {
    const auto found = before.find(name);
    if (found != before.end() && Contradicts(*found->second, *type)) {
      return "value '" + std::string(name) + "' was " + TypeText(*found->second) + " and is now " +
             TypeText(*type);
    }
  }
  return std::nullopt;
}

Error Fault(std::string message) {
  return Error{ErrorCode::kInternal, "the rewritten model is invalid: " + std::move(message), "",
               "please report this, with the model if you can; --skip leaves single modules alone"};
}

Status CompareValues(std::string_view kind,
                     const pb::RepeatedPtrField<onnx::ValueInfoProto>& before,
                     const pb::RepeatedPtrField<onnx::ValueInfoProto>& after) {
  if (before.size() != after.size()) {
    return Fault("it has " + std::to_string(after.size()) + " graph " + std::string(kind) +
                 "s instead of " + std::to_string(before.size()));
  }
  for (int i = 0; i < before.size(); ++i) {
    if (before[i].name() != after[i].name()) {
      return Fault("graph " + std::string(kind) + " " + std::to_string(i) + " is '" +
                   after[i].name() + "' instead of '" + before[i].name() + "'");
    }
    if (before[i].type().SerializeAsString() != after[i].type().SerializeAsString()) {
      return Fault("graph " + std::string(kind) + " '" + before[i].name() + "' is " +
                   TypeText(after[i].type()) + " instead of " + TypeText(before[i].type()));
    }
  }
  return {};
}

Result<CheckReport> Check(const onnx::ModelProto& original, const onnx::ModelProto& rewritten,
                          const CheckOptions& options) {
  CheckReport report;
  if (Status same = CheckInterfaceUnchanged(original, rewritten); !same) {
    return std::move(same).error();
  }
  {
    const auto before = StrippedCopy(original, StrippedForm::kEmpty, kKeepBytes);
    const auto after = StrippedCopy(rewritten, StrippedForm::kEmpty, kKeepBytes);
    if (auto fault = NewStructuralFault(before, after)) return Fault(*fault);
    if (auto failure = CheckerFailure(after)) {
      const auto original_failure = CheckerFailure(before);
      if (!original_failure) return Fault("ONNX's checker: " + *failure);
      if (auto ours = CheckerFailureOfNewParts(before, after)) {
        return Fault("ONNX's checker: " + *ours);
      }
      report.notes.push_back("ONNX's checker refuses the input as well: " + *original_failure);
    }
  }
  if (options.inference == CheckOptions::Inference::kOff) return report;

  const bool propagate = options.data_propagation;
  const auto typed_copy = [&](const onnx::ModelProto& model) {
    return StrippedCopy(model, StrippedForm::kTyped, kKeepBytes);
  };
  auto rewritten_types = typed_copy(rewritten);
  if (auto failure = InferenceFailure(rewritten_types, /*strict=*/true, propagate)) {
    auto original_types = typed_copy(original);
    if (auto before = InferenceFailure(original_types, /*strict=*/true, propagate)) {
      report.notes.push_back("shape inference fails on the input as well: " + *before);
    } else if (options.inference == CheckOptions::Inference::kRequire) {
      return Fault("shape inference: " + *failure);
    } else {
      report.notes.push_back("shape inference: " + *failure);
    }
    // What it finds of the rest still counts.
    rewritten_types = typed_copy(rewritten);
    if (InferenceFailure(rewritten_types, /*strict=*/false, propagate)) return report;
  }
  auto original_types = typed_copy(original);
  if (InferenceFailure(original_types, /*strict=*/false, propagate)) return report;
  if (auto changed = ChangedType(original_types, rewritten_types)) return Fault(*changed);
  return report;
}

}  // namespace

std::string TypeText(const onnx::TypeProto& type) {
  if (!type.has_tensor_type()) return type.value_case() == 0 ? "no type" : "another type";
  const onnx::TypeProto_Tensor& tensor = type.tensor_type();
  std::string text = DTypeText(tensor.elem_type());
  if (!tensor.has_shape()) return text;
  text += "[";
  for (int i = 0; i < tensor.shape().dim_size(); ++i) {
    const auto& dim = tensor.shape().dim(i);
    if (i > 0) text += ",";
    text += dim.has_dim_value() ? std::to_string(dim.dim_value())
                                : (dim.has_dim_param() ? dim.dim_param() : "?");
  }
  return text + "]";
}

bool Contradicts(const onnx::TypeProto& a, const onnx::TypeProto& b) {
  if (a.value_case() == 0 || b.value_case() == 0) return false;
  if (a.value_case() != b.value_case()) return true;
  if (!a.has_tensor_type()) return false;
  const auto& tensor_a = a.tensor_type();
  const auto& tensor_b = b.tensor_type();
  if (tensor_a.elem_type() != 0 && tensor_b.elem_type() != 0 &&
      tensor_a.elem_type() != tensor_b.elem_type()) {
    return true;
  }
  if (!tensor_a.has_shape() || !tensor_b.has_shape()) return false;
  if (tensor_a.shape().dim_size() != tensor_b.shape().dim_size()) return true;
  for (int i = 0; i < tensor_a.shape().dim_size(); ++i) {
    const auto& dim_a = tensor_a.shape().dim(i);
    const auto& dim_b = tensor_b.shape().dim(i);
    if (dim_a.has_dim_value() && dim_b.has_dim_value() && dim_a.dim_value() != dim_b.dim_value()) {
      return true;
    }
  }
  return false;
}

onnx::ModelProto StripWeights(const onnx::ModelProto& model, int64_t keep_bytes) {
  return StrippedCopy(model, StrippedForm::kTyped, keep_bytes);
}

std::optional<std::string> CheckerVerdict(const onnx::ModelProto& model) {
  return CheckerFailure(StrippedCopy(model, StrippedForm::kEmpty, kKeepBytes));
}

std::optional<std::string> InferenceVerdict(const onnx::ModelProto& model) {
  onnx::ModelProto copy = StrippedCopy(model, StrippedForm::kTyped, kKeepBytes);
  auto& infos = *copy.mutable_graph()->mutable_value_info();
  infos.erase(std::remove_if(infos.begin(), infos.end(),
                             [](const onnx::ValueInfoProto& info) {
                               return std::none_of(
                                   info.metadata_props().begin(), info.metadata_props().end(),
                                   [](const auto& e) { return e.key() == kHiddenInitializer; });
                             }),
              infos.end());
  for (onnx::ValueInfoProto& output : *copy.mutable_graph()->mutable_output()) {
    output.clear_type();
  }
  return InferenceFailure(copy, /*strict=*/true, /*data_propagation=*/true);
}

Status CheckInterfaceUnchanged(const onnx::ModelProto& original,
                               const onnx::ModelProto& rewritten) {
  if (Status same = CompareValues("input", original.graph().input(), rewritten.graph().input());
      !same) {
    return same;
  }
  return CompareValues("output", original.graph().output(), rewritten.graph().output());
}

Result<CheckReport> CheckModel(const onnx::ModelProto& original, const onnx::ModelProto& rewritten,
                               const CheckOptions& options) {
  try {
    return Check(original, rewritten, options);
  } catch (const std::exception& e) {
    return Fault(e.what());
  }
}

}  // namespace liger
