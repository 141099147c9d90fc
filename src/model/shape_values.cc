#include "model/shape_values.h"

#include <onnx/defs/schema.h>
#include <onnx/defs/shape_inference.h>
#include <onnx/onnx_pb.h>

#include <algorithm>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "model/tensor_decode.h"

namespace liger {
namespace {

using Context = onnx::DataPropagationContext;

// Longer tensors are data, not shapes.
constexpr int64_t kMaxElements = 1024;

// One element: a number, the number that the symbol of a dimension stands for, or unknown.
struct Element {
  std::optional<int64_t> number;
  std::string symbol;

  // Known to be equal; two unknown ones may be anything.
  bool SameAs(const Element& other) const {
    return number ? number == other.number : !symbol.empty() && symbol == other.symbol;
  }
};

Element Number(int64_t value) { return {value, ""}; }

using Elements = std::vector<Element>;

// --- Reading and writing ------------------------------------------------------------------------

bool IsInteger(int32_t dtype) {
  return dtype == onnx::TensorProto::INT64 || dtype == onnx::TensorProto::INT32;
}

bool IsLogical(int32_t dtype) { return dtype == onnx::TensorProto::BOOL; }

// Null unless the input is a tensor of known rank.
const onnx::TypeProto_Tensor* TensorType(const Context& ctx, size_t input) {
  if (input >= ctx.getNumInputs()) return nullptr;
  const onnx::TypeProto* type = ctx.getInputType(input);
  if (type == nullptr || !type->has_tensor_type() || !type->tensor_type().has_shape()) {
    return nullptr;
  }
  return &type->tensor_type();
}

int Rank(const Context& ctx, size_t input) { return TensorType(ctx, input)->shape().dim_size(); }

int32_t DTypeOf(const Context& ctx, size_t input) { return TensorType(ctx, input)->elem_type(); }

// A small tensor, its elements in row-major order.
struct Values {
  std::vector<int64_t> dims;
  Elements elements;
};

// Tensors of several axes are read only where they come from a list of known length.
std::optional<Values> ReadTensor(Context& ctx, size_t input) {
  const onnx::TypeProto_Tensor* type = TensorType(ctx, input);
  if (type == nullptr) return std::nullopt;
  if (!IsInteger(type->elem_type()) && !IsLogical(type->elem_type())) return std::nullopt;
  const auto& dims = type->shape().dim();
  if (dims.size() == 1 && dims[0].dim_value() > kMaxElements) return std::nullopt;
  const onnx::TensorShapeProto* data = ctx.getInputData(input);
  if (data == nullptr || data->dim_size() > kMaxElements) return std::nullopt;
  Values result;
  if (dims.size() == 1) {
    result.dims = {data->dim_size()};
  } else {
    int64_t count = 1;
    for (const auto& dim : dims) {
      if (!dim.has_dim_value() || dim.dim_value() > kMaxElements) return std::nullopt;
      result.dims.push_back(dim.dim_value());
      count = std::min(count * dim.dim_value(), 2 * kMaxElements);
    }
    if (count != data->dim_size()) return std::nullopt;
  }
  for (const auto& dim : data->dim()) {
    Element element;
    if (dim.has_dim_value()) element.number = dim.dim_value();
    if (dim.has_dim_param()) element.symbol = dim.dim_param();
    result.elements.push_back(std::move(element));
  }
  return result;
}

// The elements of a scalar or a list; none if it is no such thing, or too long, or of unknown
// length.
std::optional<Elements> Read(Context& ctx, size_t input) {
  auto values = ReadTensor(ctx, input);
  if (!values || values->dims.size() > 1) return std::nullopt;
  return std::move(values->elements);
}

// All of them as numbers.
std::optional<std::vector<int64_t>> ReadNumbers(Context& ctx, size_t input) {
  const auto elements = Read(ctx, input);
  if (!elements) return std::nullopt;
  std::vector<int64_t> numbers;
  for (const Element& element : *elements) {
    if (!element.number) return std::nullopt;
    numbers.push_back(*element.number);
  }
  return numbers;
}

std::optional<int64_t> ReadNumber(Context& ctx, size_t input) {
  const auto numbers = ReadNumbers(ctx, input);
  return numbers && numbers->size() == 1 ? std::optional((*numbers)[0]) : std::nullopt;
}

int64_t Int(const Context& ctx, const std::string& name, int64_t otherwise) {
  const onnx::AttributeProto* attribute = ctx.getAttribute(name);
  return attribute != nullptr && attribute->type() == onnx::AttributeProto::INT ? attribute->i()
                                                                                : otherwise;
}

void Write(Context& ctx, const Elements& elements) {
  onnx::TensorShapeProto data;
  for (const Element& element : elements) {
    auto& dim = *data.add_dim();
    if (element.number) {
      dim.set_dim_value(*element.number);
    } else if (!element.symbol.empty()) {
      dim.set_dim_param(element.symbol);
    }
  }
  ctx.addOutputData(0, std::move(data));
}

// --- Element by element -------------------------------------------------------------------------

using Binary = Element (*)(const Element&, const Element&);

// Lists of equal length, or one of them of one element.
const Element& At(const Elements& elements, size_t i) {
  return elements[elements.size() == 1 ? 0 : i];
}

std::optional<size_t> BroadcastSize(std::initializer_list<const Elements*> operands) {
  size_t size = 1;
  for (const Elements* operand : operands) {
    if (operand->size() == 1) continue;
    if (size != 1 && size != operand->size()) return std::nullopt;
    size = operand->size();
  }
  return size;
}

// What does not fit into the dtype is not known.
void Bound(Elements& elements, int32_t dtype) {
  if (dtype != onnx::TensorProto::INT32) return;
  for (Element& element : elements) {
    if (element.number && (*element.number > std::numeric_limits<int32_t>::max() ||
                           *element.number < std::numeric_limits<int32_t>::min())) {
      element = {};
    }
  }
}

std::optional<Elements> Apply(Context& ctx, Binary operation) {
  const auto a = Read(ctx, 0);
  const auto b = Read(ctx, 1);
  if (!a || !b) return std::nullopt;
  const auto size = BroadcastSize({&*a, &*b});
  if (!size) return std::nullopt;
  Elements result;
  for (size_t i = 0; i < *size; ++i) result.push_back(operation(At(*a, i), At(*b, i)));
  Bound(result, DTypeOf(ctx, 0));
  return result;
}

Element Add(const Element& a, const Element& b) {
  if (a.number == 0) return b;
  if (b.number == 0) return a;
  int64_t sum = 0;
  if (!a.number || !b.number || __builtin_add_overflow(*a.number, *b.number, &sum)) return {};
  return Number(sum);
}

Element Subtract(const Element& a, const Element& b) {
  if (b.number == 0) return a;
  if (a.SameAs(b)) return Number(0);
  int64_t difference = 0;
  if (!a.number || !b.number || __builtin_sub_overflow(*a.number, *b.number, &difference)) {
    return {};
  }
  return Number(difference);
}

Element Multiply(const Element& a, const Element& b) {
  if (a.number == 0 || b.number == 0) return Number(0);
  if (a.number == 1) return b;
  if (b.number == 1) return a;
  int64_t product = 0;
  if (!a.number || !b.number || __builtin_mul_overflow(*a.number, *b.number, &product)) return {};
  return Number(product);
}

bool Divisible(const Element& a, const Element& b) {
  return a.number && b.number && *b.number != 0 &&
         !(*a.number == std::numeric_limits<int64_t>::min() && *b.number == -1);
}

// ONNX leaves open how a negative quotient is rounded.
Element Divide(const Element& a, const Element& b) {
  if (b.number == 1) return a;
  if (!Divisible(a, b)) return {};
  if ((*a.number < 0) != (*b.number < 0) && *a.number % *b.number != 0) return {};
  return Number(*a.number / *b.number);
}

// The remainder has the sign of the divisor.
Element Remainder(const Element& a, const Element& b) {
  if (!Divisible(a, b)) return {};
  const int64_t remainder = *a.number % *b.number;
  return Number(remainder != 0 && (remainder < 0) != (*b.number < 0) ? remainder + *b.number
                                                                     : remainder);
}

Element Minimum(const Element& a, const Element& b) {
  if (a.SameAs(b)) return a;
  return a.number && b.number ? Number(std::min(*a.number, *b.number)) : Element{};
}

Element Maximum(const Element& a, const Element& b) {
  if (a.SameAs(b)) return a;
  return a.number && b.number ? Number(std::max(*a.number, *b.number)) : Element{};
}

// A symbol stands for the length of an axis, which is not negative.
bool Differ(const Element& a, const Element& b) {
  if (a.number && b.number) return *a.number != *b.number;
  return (a.number && *a.number < 0 && !b.symbol.empty()) ||
         (b.number && *b.number < 0 && !a.symbol.empty());
}

Element Equal(const Element& a, const Element& b) {
  if (a.SameAs(b)) return Number(1);
  return Differ(a, b) ? Number(0) : Element{};
}

Element Less(const Element& a, const Element& b) {
  if (a.number && b.number) return Number(*a.number < *b.number ? 1 : 0);
  if (a.SameAs(b)) return Number(0);
  if (a.number && *a.number < 0 && !b.symbol.empty()) return Number(1);
  if (b.number && *b.number <= 0 && !a.symbol.empty()) return Number(0);
  return {};
}

Element Not(const Element& a) { return a.number ? Number(*a.number == 0 ? 1 : 0) : Element{}; }

Element Greater(const Element& a, const Element& b) { return Less(b, a); }
Element LessOrEqual(const Element& a, const Element& b) { return Not(Less(b, a)); }
Element GreaterOrEqual(const Element& a, const Element& b) { return Not(Less(a, b)); }

Element And(const Element& a, const Element& b) {
  if (a.number == 0 || b.number == 0) return Number(0);
  return a.number && b.number ? Number(1) : Element{};
}

Element Or(const Element& a, const Element& b) {
  if ((a.number && *a.number != 0) || (b.number && *b.number != 0)) return Number(1);
  return a.number && b.number ? Number(0) : Element{};
}

template <Binary operation>
std::optional<Elements> Elementwise(Context& ctx) {
  return Apply(ctx, operation);
}

// Min and Max take any number of operands.
template <Binary operation>
std::optional<Elements> Fold(Context& ctx) {
  auto result = Read(ctx, 0);
  for (size_t i = 1; result && i < ctx.getNumInputs(); ++i) {
    const auto operand = Read(ctx, i);
    if (!operand) return std::nullopt;
    const auto size = BroadcastSize({&*result, &*operand});
    if (!size) return std::nullopt;
    Elements next;
    for (size_t k = 0; k < *size; ++k) next.push_back(operation(At(*result, k), At(*operand, k)));
    result = std::move(next);
  }
  return result;
}

std::optional<Elements> NotRule(Context& ctx) {
  auto elements = Read(ctx, 0);
  if (!elements) return std::nullopt;
  for (Element& element : *elements) element = Not(element);
  return elements;
}

std::optional<Elements> Negate(Context& ctx) {
  auto elements = Read(ctx, 0);
  if (!elements) return std::nullopt;
  for (Element& element : *elements) element = Subtract(Number(0), element);
  Bound(*elements, DTypeOf(ctx, 0));
  return elements;
}

std::optional<Elements> Where(Context& ctx) {
  const auto condition = Read(ctx, 0);
  const auto yes = Read(ctx, 1);
  const auto no = Read(ctx, 2);
  if (!condition || !yes || !no) return std::nullopt;
  const auto size = BroadcastSize({&*condition, &*yes, &*no});
  if (!size) return std::nullopt;
  Elements result;
  for (size_t i = 0; i < *size; ++i) {
    const Element& choice = At(*condition, i);
    if (choice.number) {
      result.push_back(At(*choice.number != 0 ? *yes : *no, i));
    } else {
      result.push_back(At(*yes, i).SameAs(At(*no, i)) ? At(*yes, i) : Element{});
    }
  }
  return result;
}

// The same elements, in another shape at most.
std::optional<Elements> Same(Context& ctx) {
  auto values = ReadTensor(ctx, 0);
  if (!values) return std::nullopt;
  return std::move(values->elements);
}

std::optional<Elements> Cast(Context& ctx) {
  auto elements = Same(ctx);
  const int64_t to = Int(ctx, "to", 0);
  if (!elements) return std::nullopt;
  if (IsInteger(static_cast<int32_t>(to))) {
    Bound(*elements, static_cast<int32_t>(to));
    return elements;
  }
  if (!IsLogical(static_cast<int32_t>(to))) return std::nullopt;
  for (Element& element : *elements) {
    element = element.number ? Number(*element.number != 0 ? 1 : 0) : Element{};
  }
  return elements;
}

// --- Lists --------------------------------------------------------------------------------------

std::optional<Elements> ConstantOfShape(Context& ctx) {
  const auto shape = ReadNumbers(ctx, 0);
  if (!shape || shape->size() > 1) return std::nullopt;
  const int64_t size = shape->empty() ? 1 : (*shape)[0];
  const onnx::AttributeProto* value = ctx.getAttribute("value");
  if (value == nullptr || size < 0 || size > kMaxElements) return std::nullopt;
  const int32_t dtype = value->t().data_type();
  if (!IsInteger(dtype) && !IsLogical(dtype)) return std::nullopt;
  const auto tensor = DecodeTensor(value->t());
  if (!tensor || tensor->ints.size() != 1) return std::nullopt;
  return Elements(static_cast<size_t>(size), Number(tensor->ints[0]));
}

std::optional<Elements> Expand(Context& ctx) {
  auto elements = Read(ctx, 0);
  const auto shape = ReadNumbers(ctx, 1);
  if (!elements || !shape || shape->size() > 1) return std::nullopt;
  const int64_t size = shape->empty() ? 1 : (*shape)[0];
  const auto have = static_cast<int64_t>(elements->size());
  if (size == have || size == 1) return elements;
  if (have != 1 || size < 0 || size > kMaxElements) return std::nullopt;
  return Elements(static_cast<size_t>(size), (*elements)[0]);
}

std::optional<Elements> Range(Context& ctx) {
  const auto start = ReadNumber(ctx, 0);
  const auto limit = ReadNumber(ctx, 1);
  const auto delta = ReadNumber(ctx, 2);
  if (!start || !limit || !delta || *delta == 0) return std::nullopt;
  Elements result;
  int64_t value = *start;
  while (*delta > 0 ? value < *limit : value > *limit) {
    if (result.size() == static_cast<size_t>(kMaxElements)) return std::nullopt;
    result.push_back(Number(value));
    if (__builtin_add_overflow(value, *delta, &value)) break;
  }
  return result;
}

std::optional<Elements> Gather(Context& ctx) {
  const auto elements = Read(ctx, 0);
  const auto indices = ReadNumbers(ctx, 1);
  if (!elements || !indices || Rank(ctx, 0) != 1) return std::nullopt;
  const auto size = static_cast<int64_t>(elements->size());
  Elements result;
  for (const int64_t index : *indices) {
    if (index < -size || index >= size) return std::nullopt;
    result.push_back((*elements)[static_cast<size_t>(index < 0 ? index + size : index)]);
  }
  return result;
}

std::optional<Elements> Concat(Context& ctx) {
  Elements result;
  for (size_t i = 0; i < ctx.getNumInputs(); ++i) {
    const auto elements = Read(ctx, i);
    if (!elements || Rank(ctx, i) != 1) return std::nullopt;
    result.insert(result.end(), elements->begin(), elements->end());
  }
  if (result.size() > static_cast<size_t>(kMaxElements)) return std::nullopt;
  return result;
}

// Bounds as an operand, or as an attribute (up to opset 9); `otherwise` where there are none.
std::optional<std::vector<int64_t>> Bounds(Context& ctx, size_t input, const std::string& name,
                                           std::vector<int64_t> otherwise) {
  if (const onnx::AttributeProto* attribute = ctx.getAttribute(name)) {
    return std::vector<int64_t>(attribute->ints().begin(), attribute->ints().end());
  }
  if (input >= ctx.getNumInputs()) return otherwise;
  return ReadNumbers(ctx, input);
}

// Of one axis.
std::optional<Elements> Slice(Context& ctx) {
  const auto values = ReadTensor(ctx, 0);
  if (!values) return std::nullopt;
  const auto first = Bounds(ctx, 1, "starts", {});
  const auto last = Bounds(ctx, 2, "ends", {});
  const auto axes = Bounds(ctx, 3, "axes", {0});
  const auto steps = Bounds(ctx, 4, "steps", {1});
  for (const auto* bounds : {&first, &last, &axes, &steps}) {
    if (!*bounds || (*bounds)->size() != 1) return std::nullopt;
  }
  const auto rank = static_cast<int64_t>(values->dims.size());
  const int64_t axis = (*axes)[0] < 0 ? (*axes)[0] + rank : (*axes)[0];
  const int64_t step = (*steps)[0];
  if (axis < 0 || axis >= rank || step == 0) return std::nullopt;
  const int64_t size = values->dims[static_cast<size_t>(axis)];
  const auto clamp = [&](int64_t bound) {
    if (bound < 0) bound += size;
    if (step > 0) return std::clamp<int64_t>(bound, 0, size);
    return std::clamp<int64_t>(bound, -1, std::max<int64_t>(size - 1, -1));
  };
  const int64_t begin = clamp((*first)[0]);
  const int64_t end = clamp((*last)[0]);
  std::vector<int64_t> kept;
  for (int64_t i = begin; step > 0 ? i < end : i > end;) {
    kept.push_back(i);
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  // [outer, size, inner]
  int64_t inner = 1;
  for (int64_t i = axis + 1; i < rank; ++i) inner *= values->dims[static_cast<size_t>(i)];
  const auto count = static_cast<int64_t>(values->elements.size());
  const int64_t outer = count == 0 ? 0 : count / (size * inner);
  Elements result;
  for (int64_t o = 0; o < outer; ++o) {
    for (const int64_t i : kept) {
      const auto at = values->elements.begin() + (o * size + i) * inner;
      result.insert(result.end(), at, at + inner);
    }
  }
  return result;
}

// Of lists, which stay as they are, and of tables.
std::optional<Elements> Transpose(Context& ctx) {
  auto values = ReadTensor(ctx, 0);
  if (!values || values->dims.size() > 2) return std::nullopt;
  const onnx::AttributeProto* perm = ctx.getAttribute("perm");
  const bool turns =
      values->dims.size() == 2 && (perm == nullptr || perm->ints_size() != 2 || perm->ints(0) == 1);
  if (!turns) return std::move(values->elements);
  const auto rows = static_cast<size_t>(values->dims[0]);
  const auto columns = static_cast<size_t>(values->dims[1]);
  Elements result;
  for (size_t c = 0; c < columns; ++c) {
    for (size_t r = 0; r < rows; ++r) result.push_back(values->elements[r * columns + c]);
  }
  return result;
}

std::optional<Elements> ReduceProd(Context& ctx) {
  const auto elements = Read(ctx, 0);
  if (!elements || ctx.getNumInputs() > 1) return std::nullopt;
  if (Int(ctx, "noop_with_empty_axes", 0) != 0) return std::nullopt;
  Element product = Number(1);
  for (const Element& element : *elements) product = Multiply(product, element);
  Elements result = {product};
  Bound(result, DTypeOf(ctx, 0));
  return result;
}

using Rule = std::optional<Elements> (*)(Context&);

const std::map<std::string, Rule, std::less<>>& Rules() {
  static const std::map<std::string, Rule, std::less<>> rules = {
      {"Add", Elementwise<Add>},
      {"And", Elementwise<And>},
      {"Cast", Cast},
      {"Concat", Concat},
      {"ConstantOfShape", ConstantOfShape},
      {"Div", Elementwise<Divide>},
      {"Equal", Elementwise<Equal>},
      {"Expand", Expand},
      {"Gather", Gather},
      {"Greater", Elementwise<Greater>},
      {"GreaterOrEqual", Elementwise<GreaterOrEqual>},
      {"Identity", Same},
      {"Less", Elementwise<Less>},
      {"LessOrEqual", Elementwise<LessOrEqual>},
      {"Max", Fold<Maximum>},
      {"Min", Fold<Minimum>},
      {"Mod", Elementwise<Remainder>},
      {"Mul", Elementwise<Multiply>},
      {"Neg", Negate},
      {"Not", NotRule},
      {"Or", Elementwise<Or>},
      {"Range", Range},
      {"ReduceProd", ReduceProd},
      {"Reshape", Same},
      {"Slice", Slice},
      {"Squeeze", Same},
      {"Sub", Elementwise<Subtract>},
      {"Transpose", Transpose},
      {"Unsqueeze", Same},
      {"Where", Where},
  };
  return rules;
}

// --- Operands that shape inference reads as constants -------------------------------------------

// The context of a node whose computed operands, where all their elements are known, are seen as
// constants.
class KnownOperands : public onnx::InferenceContext {
 public:
  explicit KnownOperands(onnx::InferenceContext& node)
      : node_(node), constants_(node.getNumInputs()) {}

  const onnx::TensorProto* getInputData(size_t index) const override {
    if (const onnx::TensorProto* data = node_.getInputData(index)) return data;
    if (constants_[index] == nullptr) constants_[index] = Constant(index);
    return constants_[index].get();
  }

  const onnx::AttributeProto* getAttribute(const std::string& name) const override {
    return node_.getAttribute(name);
  }
  size_t getNumInputs() const override { return node_.getNumInputs(); }
  const onnx::TypeProto* getInputType(size_t index) const override {
    return node_.getInputType(index);
  }
  bool hasInput(size_t index) const override { return node_.hasInput(index); }
  size_t getNumOutputs() const override { return node_.getNumOutputs(); }
  onnx::TypeProto* getOutputType(size_t index) override { return node_.getOutputType(index); }
  bool hasOutput(size_t index) override { return node_.hasOutput(index); }
  onnx::GraphInferencer* getGraphAttributeInferencer(const std::string& name) override {
    return node_.getGraphAttributeInferencer(name);
  }
  const onnx::SparseTensorProto* getInputSparseData(size_t index) const override {
    return node_.getInputSparseData(index);
  }
  const onnx::TensorShapeProto* getSymbolicInput(size_t index) const override {
    return node_.getSymbolicInput(index);
  }
  std::string getDisplayName() const override { return node_.getDisplayName(); }

 private:
  std::unique_ptr<onnx::TensorProto> Constant(size_t index) const {
    const onnx::TypeProto* type = node_.getInputType(index);
    const onnx::TensorShapeProto* data = node_.getSymbolicInput(index);
    if (type == nullptr || data == nullptr || !type->has_tensor_type()) return nullptr;
    const auto& tensor = type->tensor_type();
    if (!IsInteger(tensor.elem_type()) || !tensor.has_shape()) return nullptr;
    const int rank = tensor.shape().dim_size();
    if (rank > 1 || (rank == 0 && data->dim_size() != 1)) return nullptr;
    auto constant = std::make_unique<onnx::TensorProto>();
    constant->set_data_type(tensor.elem_type());
    if (rank == 1) constant->add_dims(data->dim_size());
    for (const auto& dim : data->dim()) {
      if (!dim.has_dim_value()) return nullptr;
      if (tensor.elem_type() == onnx::TensorProto::INT64) {
        constant->add_int64_data(dim.dim_value());
      } else {
        constant->add_int32_data(static_cast<int32_t>(dim.dim_value()));
      }
    }
    return constant;
  }

  onnx::InferenceContext& node_;
  mutable std::vector<std::unique_ptr<onnx::TensorProto>> constants_;
};

// Operators whose shape inference looks at constants only.
const std::set<std::string_view>& ReadConstants() {
  static const std::set<std::string_view> ops = {"OneHot", "Pad",     "Range", "Resize",   "Slice",
                                                 "Split",  "Squeeze", "Tile",  "Unsqueeze"};
  return ops;
}

using Dimension = onnx::TensorShapeProto_Dimension;

// The elements of a list or scalar operand, whether constant or computed; empty if unknown.
std::vector<Dimension> OperandElements(const onnx::InferenceContext& ctx, size_t input) {
  std::vector<Dimension> result;
  if (input >= ctx.getNumInputs()) return result;
  if (const onnx::TensorProto* data = ctx.getInputData(input)) {
    if (!IsInteger(data->data_type()) || ElementCount(*data) > kMaxElements) return result;
    if (const auto tensor = DecodeTensor(*data)) {
      for (const int64_t value : tensor->ints) result.emplace_back().set_dim_value(value);
    }
  } else if (const onnx::TensorShapeProto* symbolic = ctx.getSymbolicInput(input)) {
    result.assign(symbolic->dim().begin(), symbolic->dim().end());
  }
  return result;
}

std::optional<Dimension> Scalar(const onnx::InferenceContext& ctx, size_t input) {
  const std::vector<Dimension> elements = OperandElements(ctx, input);
  if (elements.size() != 1) return std::nullopt;
  if (!elements[0].has_dim_value() && !elements[0].has_dim_param()) return std::nullopt;
  return elements[0];
}

// A product of lengths: a number times powers of symbols.
class Product {
 public:
  // False if the length is unknown or 0.
  bool Times(const Dimension& dim, int exponent) {
    if (dim.has_dim_param() && !dim.dim_param().empty()) {
      symbols_[dim.dim_param()] += exponent;
      return true;
    }
    if (!dim.has_dim_value() || dim.dim_value() <= 0) return false;
    int64_t& part = exponent > 0 ? numerator_ : denominator_;
    return !__builtin_mul_overflow(part, dim.dim_value(), &part);
  }

  // One number, or one symbol.
  std::optional<Dimension> AsDimension() const {
    if (numerator_ % denominator_ != 0) return std::nullopt;
    Dimension result;
    for (const auto& [symbol, exponent] : symbols_) {
      if (exponent == 0) continue;
      if (exponent != 1 || result.has_dim_param() || numerator_ != denominator_) {
        return std::nullopt;
      }
      result.set_dim_param(symbol);
    }
    if (!result.has_dim_param()) result.set_dim_value(numerator_ / denominator_);
    return result;
  }

 private:
  int64_t numerator_ = 1;
  int64_t denominator_ = 1;
  std::map<std::string, int> symbols_;
};

// The shape that Reshape is told to give. Before opset 14 ONNX's inference looks at constants only.
void TakeTarget(const std::vector<Dimension>& to, const onnx::TensorShapeProto& from,
                bool copies_zero, onnx::TensorShapeProto& shape) {
  for (size_t i = 0; i < to.size(); ++i) {
    Dimension& dim = *shape.add_dim();
    const bool copied = to[i].has_dim_value() && to[i].dim_value() == 0 && copies_zero;
    if (copied) {
      if (static_cast<int>(i) < from.dim_size()) dim = from.dim(static_cast<int>(i));
    } else if (!to[i].has_dim_value() || to[i].dim_value() >= 0) {
      dim = to[i];
    }
  }
}

// The axis that Reshape computes (-1), where the symbols in front of it cancel out:
// [batch, seq, 32] to [batch, seq, -1, 8] is [batch, seq, 4, 8].
void SolveReshape(onnx::InferenceContext& ctx) {
  if (ctx.getNumInputs() != 2 || !onnx::hasInputShape(ctx, 0)) return;
  const onnx::TensorShapeProto& from = onnx::getInputShape(ctx, 0);
  const std::vector<Dimension> to = OperandElements(ctx, 1);
  const onnx::AttributeProto* allow_zero = ctx.getAttribute("allowzero");
  const bool copies_zero = allow_zero == nullptr || allow_zero->i() == 0;
  auto& result = *ctx.getOutputType(0)->mutable_tensor_type();
  if (!result.has_shape() && !to.empty()) {
    TakeTarget(to, from, copies_zero, *result.mutable_shape());
  }
  if (!result.has_shape() || result.shape().dim_size() != static_cast<int>(to.size())) return;
  Product length;
  for (const Dimension& dim : from.dim()) {
    if (!length.Times(dim, 1)) return;
  }
  int computed = -1;
  for (int i = 0; i < result.shape().dim_size(); ++i) {
    const Dimension& dim = to[static_cast<size_t>(i)];
    if (dim.has_dim_value() && dim.dim_value() == -1) {
      if (computed >= 0) return;
      computed = i;
      continue;
    }
    const bool copied = dim.has_dim_value() && dim.dim_value() == 0 && copies_zero;
    if (copied && i >= from.dim_size()) return;
    if (!length.Times(copied ? from.dim(i) : dim, -1)) return;
  }
  if (computed < 0 || result.shape().dim(computed).has_dim_value()) return;
  if (auto dim = length.AsDimension()) *result.mutable_shape()->mutable_dim(computed) = *dim;
}

// Range(0, n, 1) has as many elements as the axis that n is the length of.
void NameLengthOfRange(onnx::InferenceContext& ctx) {
  if (ctx.getNumInputs() != 3) return;
  const auto start = Scalar(ctx, 0);
  const auto limit = Scalar(ctx, 1);
  const auto delta = Scalar(ctx, 2);
  if (!start || !limit || !delta || !limit->has_dim_param()) return;
  if (!start->has_dim_value() || start->dim_value() != 0) return;
  if (!delta->has_dim_value() || delta->dim_value() != 1) return;
  auto& shape = *ctx.getOutputType(0)->mutable_tensor_type()->mutable_shape();
  if (shape.dim_size() == 1 && !shape.dim(0).has_dim_value()) *shape.mutable_dim(0) = *limit;
}

// Axes that Slice leaves alone: those it does not name, and those it takes from 0 to their end.
void KeepWholeAxes(onnx::InferenceContext& ctx) {
  if (ctx.getNumInputs() < 4 || !onnx::hasInputShape(ctx, 0)) return;
  const onnx::TensorShapeProto& from = onnx::getInputShape(ctx, 0);
  const std::vector<Dimension> axes = OperandElements(ctx, 3);
  const std::vector<Dimension> starts = OperandElements(ctx, 1);
  const std::vector<Dimension> ends = OperandElements(ctx, 2);
  const std::vector<Dimension> steps = OperandElements(ctx, 4);
  auto& shape = *ctx.getOutputType(0)->mutable_tensor_type()->mutable_shape();
  if (axes.empty() || shape.dim_size() != from.dim_size()) return;
  std::vector<bool> cut(static_cast<size_t>(from.dim_size()), false);
  for (size_t i = 0; i < axes.size(); ++i) {
    if (!axes[i].has_dim_value()) return;
    const int64_t axis = axes[i].dim_value() + (axes[i].dim_value() < 0 ? from.dim_size() : 0);
    if (axis < 0 || axis >= from.dim_size()) return;
    const Dimension& length = from.dim(static_cast<int>(axis));
    const auto is = [&](const std::vector<Dimension>& values, int64_t value) {
      return i < values.size() && values[i].has_dim_value() && values[i].dim_value() == value;
    };
    const bool to_end =
        i < ends.size() &&
        (ends[i].dim_value() >= std::numeric_limits<int32_t>::max() ||
         (!length.dim_param().empty() && ends[i].dim_param() == length.dim_param()));
    const bool forward = ctx.getNumInputs() < 5 || !ctx.hasInput(4) || is(steps, 1);
    cut[static_cast<size_t>(axis)] = !(is(starts, 0) && to_end && forward);
  }
  for (int i = 0; i < from.dim_size(); ++i) {
    if (!cut[static_cast<size_t>(i)] && !shape.dim(i).has_dim_value()) {
      *shape.mutable_dim(i) = from.dim(i);
    }
  }
}

// What ONNX's inference of the operator leaves open; null for most.
using Refinement = void (*)(onnx::InferenceContext&);

Refinement RefinementOf(std::string_view op_type) {
  if (op_type == "Range") return NameLengthOfRange;
  if (op_type == "Reshape") return SolveReshape;
  if (op_type == "Slice") return KeepWholeAxes;
  return nullptr;
}

std::unique_ptr<onnx::OpSchema> Extended(const onnx::OpSchema& schema) {
  const auto rule = Rules().find(schema.Name());
  const bool reads_constants = ReadConstants().contains(schema.Name());
  const Refinement refine = RefinementOf(schema.Name());
  if (rule == Rules().end() && !reads_constants && refine == nullptr) return nullptr;
  auto extended = std::make_unique<onnx::OpSchema>(schema);
  if (rule != Rules().end()) {
    extended->PartialDataPropagationFunction([propagate = rule->second](Context& ctx) {
      if (const auto elements = propagate(ctx)) Write(ctx, *elements);
    });
  }
  if ((reads_constants || refine != nullptr) && schema.has_type_and_shape_inference_function()) {
    extended->TypeAndShapeInferenceFunction([infer = schema.GetTypeAndShapeInferenceFunction(),
                                             reads_constants, refine](onnx::InferenceContext& ctx) {
      if (reads_constants) {
        KnownOperands known(ctx);
        infer(known);
      } else {
        infer(ctx);
      }
      if (refine != nullptr) refine(ctx);
    });
  }
  return extended;
}

}  // namespace

const onnx::OpSchema* WithShapeValues(const onnx::OpSchema& schema) {
  if (!schema.domain().empty()) return &schema;
  static std::mutex mutex;
  static std::unordered_map<const onnx::OpSchema*, std::unique_ptr<onnx::OpSchema>> extended;
  const std::lock_guard lock(mutex);
  const auto [entry, is_new] = extended.try_emplace(&schema);
  if (is_new) entry->second = Extended(schema);
  return entry->second != nullptr ? entry->second.get() : &schema;
}

}  // namespace liger
