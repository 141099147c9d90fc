#include "model/contrib_shapes.h"

#include <onnx/defs/schema.h>
#include <onnx/defs/shape_inference.h>
#include <onnx/onnx_pb.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ops/op_contract.h"

namespace liger {
namespace {

using Context = onnx::InferenceContext;
using Dimension = onnx::TensorShapeProto_Dimension;
using OnnxShape = onnx::TensorShapeProto;
using Rule = void (*)(Context&);

// --- What the rules are made of -----------------------------------------------------------------

int64_t Int(const Context& ctx, const std::string& name, int64_t otherwise) {
  const onnx::AttributeProto* attribute = ctx.getAttribute(name);
  return attribute != nullptr && attribute->type() == onnx::AttributeProto::INT ? attribute->i()
                                                                                : otherwise;
}

// Null if unknown.
const OnnxShape* ShapeOf(const Context& ctx, size_t input) {
  return onnx::hasInputShape(ctx, input) ? &onnx::getInputShape(ctx, input) : nullptr;
}

int32_t ElementType(const Context& ctx, size_t input) {
  if (input >= ctx.getNumInputs() || ctx.getInputType(input) == nullptr) return 0;
  return ctx.getInputType(input)->tensor_type().elem_type();
}

void SetElementType(Context& ctx, size_t output, int32_t type) {
  if (output >= ctx.getNumOutputs() || type == 0) return;
  ctx.getOutputType(output)->mutable_tensor_type()->set_elem_type(type);
}

void SetShape(Context& ctx, size_t output, const OnnxShape& shape) {
  if (output >= ctx.getNumOutputs()) return;
  *ctx.getOutputType(output)->mutable_tensor_type()->mutable_shape() = shape;
}

Dimension Known(int64_t value) {
  Dimension dim;
  dim.set_dim_value(value);
  return dim;
}

Dimension Times(const Dimension& dim, int64_t factor) {
  return dim.has_dim_value() ? Known(dim.dim_value() * factor) : Dimension();
}

Dimension DividedBy(const Dimension& dim, int64_t divisor) {
  if (!dim.has_dim_value() || divisor <= 0 || dim.dim_value() % divisor != 0) return {};
  return Known(dim.dim_value() / divisor);
}

OnnxShape Dims(std::vector<Dimension> dims) {
  OnnxShape shape;
  for (Dimension& dim : dims) *shape.add_dim() = std::move(dim);
  return shape;
}

const Dimension& Last(const OnnxShape& shape) { return shape.dim(shape.dim_size() - 1); }

// Dtype and shape of one input.
void Like(Context& ctx, size_t output, size_t input) {
  SetElementType(ctx, output, ElementType(ctx, input));
  if (const OnnxShape* shape = ShapeOf(ctx, input)) SetShape(ctx, output, *shape);
}

// One statistic a row, in f32.
void RowStatistics(Context& ctx, size_t output, size_t input, int64_t axis) {
  SetElementType(ctx, output, onnx::TensorProto::FLOAT);
  const OnnxShape* shape = ShapeOf(ctx, input);
  if (shape == nullptr) return;
  if (axis < 0) axis += shape->dim_size();
  OnnxShape reduced = *shape;
  for (int64_t i = std::max<int64_t>(axis, 0); i < reduced.dim_size(); ++i) {
    *reduced.mutable_dim(static_cast<int>(i)) = Known(1);
  }
  SetShape(ctx, output, reduced);
}

// --- Rules --------------------------------------------------------------------------------------

void LikeFirst(Context& ctx) { Like(ctx, 0, 0); }

void HalfOfLastAxis(Context& ctx) {
  SetElementType(ctx, 0, ElementType(ctx, 0));
  const OnnxShape* shape = ShapeOf(ctx, 0);
  if (shape == nullptr || shape->dim_size() == 0) return;
  OnnxShape half = *shape;
  *half.mutable_dim(half.dim_size() - 1) = DividedBy(Last(*shape), 2);
  SetShape(ctx, 0, half);
}

// (x, scale[, bias]) -> (y, statistics...): y has the scale's dtype.
void Normalization(Context& ctx) {
  const int32_t scale = ElementType(ctx, 1);
  Like(ctx, 0, 0);
  SetElementType(ctx, 0, scale);
  for (size_t i = 1; i < ctx.getNumOutputs(); ++i) RowStatistics(ctx, i, 0, Int(ctx, "axis", -1));
}

// (x, skip, ...) -> (y, mean, inv_std_var, sum).
void SkipNormalization(Context& ctx) {
  Like(ctx, 0, 0);
  RowStatistics(ctx, 1, 0, -1);
  RowStatistics(ctx, 2, 0, -1);
  Like(ctx, 3, 0);
}

void SkipGroupNorm(Context& ctx) {
  Like(ctx, 0, 0);
  Like(ctx, 1, 0);
}

// (input_ids [B, S], segment_ids, word_embedding [V, H], ...) -> (y [B, S, H], mask_index, sum).
void EmbedLayerNormalization(Context& ctx) {
  for (const size_t output : {0, 2}) SetElementType(ctx, output, ElementType(ctx, 2));
  SetElementType(ctx, 1, onnx::TensorProto::INT32);
  const OnnxShape* ids = ShapeOf(ctx, 0);
  const OnnxShape* table = ShapeOf(ctx, 2);
  if (ids == nullptr || table == nullptr || ids->dim_size() != 2 || table->dim_size() != 2) return;
  const OnnxShape shape = Dims({ids->dim(0), ids->dim(1), table->dim(1)});
  SetShape(ctx, 0, shape);
  SetShape(ctx, 1, Dims({ids->dim(0)}));
  SetShape(ctx, 2, shape);
}

// (emb, q, q_rot, k, k_rot) -> (q, k).
void GemmaRotaryEmbedding(Context& ctx) {
  Like(ctx, 0, 1);
  Like(ctx, 1, 3);
}

// The dimensions in front of the last two, broadcast; none if that fails.
std::optional<std::vector<Dimension>> BroadcastBatch(const OnnxShape& a, const OnnxShape& b) {
  OnnxShape left = a;
  OnnxShape right = b;
  for (OnnxShape* shape : {&left, &right}) {
    shape->mutable_dim()->RemoveLast();
    shape->mutable_dim()->RemoveLast();
  }
  OnnxShape result;
  onnx::bidirectionalBroadcastShapeInference(left, right, result);
  return std::vector<Dimension>(result.dim().begin(), result.dim().end());
}

void Swap(OnnxShape& shape, bool swap) {
  if (swap && shape.dim_size() >= 2) {
    shape.mutable_dim()->SwapElements(shape.dim_size() - 2, shape.dim_size() - 1);
  }
}

// With transBatch the first axis stands in front of the last: [B, ..., M, K] is stored
// [M, B, ..., K]. Turns what is stored into what is multiplied.
void UndoBatchTranspose(OnnxShape& shape, bool transposed) {
  if (!transposed) return;
  for (int i = 0; i + 2 < shape.dim_size(); ++i) shape.mutable_dim()->SwapElements(i, i + 1);
}

void MatMul(Context& ctx) {
  SetElementType(ctx, 0, ElementType(ctx, 0));
  const OnnxShape* first = ShapeOf(ctx, 0);
  const OnnxShape* second = ShapeOf(ctx, 1);
  if (first == nullptr || second == nullptr) return;
  OnnxShape a = *first;
  OnnxShape b = *second;
  if (a.dim_size() < 2 || b.dim_size() < 2) return;
  UndoBatchTranspose(a, Int(ctx, "transBatchA", 0) != 0);
  UndoBatchTranspose(b, Int(ctx, "transBatchB", 0) != 0);
  Swap(a, Int(ctx, "transA", 0) != 0);
  Swap(b, Int(ctx, "transB", 0) != 0);
  auto dims = BroadcastBatch(a, b);
  if (!dims) return;
  dims->push_back(a.dim(a.dim_size() - 2));
  dims->push_back(Last(b));
  SetShape(ctx, 0, Dims(*std::move(dims)));
}

// Products of quantized factors: the result has the dtype of the first factor's scale, or is f32.
void MatMulIntegerToFloat(Context& ctx) {
  MatMul(ctx);
  SetElementType(ctx, 0, ElementType(ctx, 2));
}

// (x [..., K], packed weights, ...) with attribute N -> [..., N].
void MatMulWithPackedWeights(Context& ctx) {
  SetElementType(ctx, 0, ElementType(ctx, 0));
  const OnnxShape* shape = ShapeOf(ctx, 0);
  const int64_t columns = Int(ctx, "N", -1);
  if (shape == nullptr || shape->dim_size() == 0 || columns < 0) return;
  OnnxShape result = *shape;
  *result.mutable_dim(result.dim_size() - 1) = Known(columns);
  SetShape(ctx, 0, result);
}

void Gemm(Context& ctx) {
  SetElementType(ctx, 0, ElementType(ctx, 0));
  const OnnxShape* first = ShapeOf(ctx, 0);
  const OnnxShape* second = ShapeOf(ctx, 1);
  if (first == nullptr || second == nullptr) return;
  if (first->dim_size() != 2 || second->dim_size() != 2) return;
  SetShape(ctx, 0,
           Dims({first->dim(Int(ctx, "transA", 0) != 0 ? 1 : 0),
                 second->dim(Int(ctx, "transB", 0) != 0 ? 0 : 1)}));
}

// (data, indices, scales, ...) -> Gather of the dequantized data, in the dtype of the scales. Bytes
// hold several elements side by side on the last axis.
void GatherBlockQuantized(Context& ctx) {
  SetElementType(ctx, 0, ElementType(ctx, 2));
  const OnnxShape* data = ShapeOf(ctx, 0);
  const OnnxShape* indices = ShapeOf(ctx, 1);
  if (data == nullptr || indices == nullptr || data->dim_size() == 0) return;
  const int64_t bits = Int(ctx, "bits", 4);
  const bool bytes = ElementType(ctx, 0) == onnx::TensorProto::UINT8;
  const int64_t packed = bytes && bits > 0 && bits < 8 ? 8 / bits : 1;
  int64_t axis = Int(ctx, "gather_axis", 0);
  if (axis < 0) axis += data->dim_size();
  std::vector<Dimension> dims;
  for (int i = 0; i < data->dim_size(); ++i) {
    if (i == axis) {
      dims.insert(dims.end(), indices->dim().begin(), indices->dim().end());
    } else if (i == data->dim_size() - 1) {
      dims.push_back(packed == 1 ? data->dim(i) : Times(data->dim(i), packed));
    } else {
      dims.push_back(data->dim(i));
    }
  }
  SetShape(ctx, 0, Dims(std::move(dims)));
}

void DequantizeLinear(Context& ctx) {
  Like(ctx, 0, 0);
  SetElementType(ctx, 0, ElementType(ctx, 1));
}

void QuantizeLinear(Context& ctx) {
  Like(ctx, 0, 0);
  const int32_t zero_point = ElementType(ctx, 2);
  SetElementType(ctx, 0, zero_point != 0 ? zero_point : onnx::TensorProto::UINT8);
}

// (input [B, S, H], weights [H, 3 * hidden], bias, ...) -> (y [B, S, hidden_v], present).
void Attention(Context& ctx) {
  SetElementType(ctx, 0, ElementType(ctx, 0));
  SetElementType(ctx, 1, ElementType(ctx, 0));
  const OnnxShape* shape = ShapeOf(ctx, 0);
  if (shape == nullptr || shape->dim_size() != 3) return;
  Dimension hidden;
  const onnx::AttributeProto* sizes = ctx.getAttribute("qkv_hidden_sizes");
  const OnnxShape* weights = ShapeOf(ctx, 1);
  if (sizes != nullptr && sizes->ints_size() == 3) {
    hidden = Known(sizes->ints(2));
  } else if (weights != nullptr && weights->dim_size() == 2) {
    hidden = DividedBy(weights->dim(1), 3);
  }
  SetShape(ctx, 0, Dims({shape->dim(0), shape->dim(1), hidden}));
}

// Keys and values so far: [B, heads, total length, head size].
void SetPresent(Context& ctx, const Dimension& batch, const Dimension& heads,
                const Dimension& head_size) {
  for (const size_t output : {1, 2}) {
    SetElementType(ctx, output, ElementType(ctx, 0));
    SetShape(ctx, output, Dims({batch, heads, {}, head_size}));
  }
}

// query [B, S, heads * head size], or [B, S, heads, 3, head size] with keys and values in it; value
// [B, L, hidden_v] or [B, heads, L, head size]; keys and values in one are [B, L, heads, 2, head
// size].
void MultiHeadAttention(Context& ctx) {
  SetElementType(ctx, 0, ElementType(ctx, 0));
  const OnnxShape* query = ShapeOf(ctx, 0);
  if (query == nullptr) return;
  const int64_t heads = Int(ctx, "num_heads", 0);
  if (query->dim_size() == 5) {
    SetShape(ctx, 0, Dims({query->dim(0), query->dim(1), Times(query->dim(4), heads)}));
    return SetPresent(ctx, query->dim(0), Known(heads), query->dim(4));
  }
  if (query->dim_size() != 3) return;
  const bool has_value = ctx.hasInput(2);
  const OnnxShape* value = has_value ? ShapeOf(ctx, 2) : nullptr;
  Dimension hidden;
  if (!has_value) hidden = query->dim(2);
  if (value != nullptr && value->dim_size() == 3) hidden = value->dim(2);
  if (value != nullptr && value->dim_size() == 4) hidden = Times(value->dim(3), heads);
  SetShape(ctx, 0, Dims({query->dim(0), query->dim(1), hidden}));
  SetPresent(ctx, query->dim(0), Known(heads), DividedBy(query->dim(2), heads));
  // The values' heads may have a width of their own.
  if (ctx.getNumOutputs() > 2) {
    SetShape(ctx, 2, Dims({query->dim(0), Known(heads), {}, DividedBy(hidden, heads)}));
  }
}

// query [B, S, heads * head size], or with the keys and values behind it where there is no key.
void GroupQueryAttention(Context& ctx) {
  SetElementType(ctx, 0, ElementType(ctx, 0));
  const OnnxShape* query = ShapeOf(ctx, 0);
  if (query == nullptr || query->dim_size() != 3) return;
  const int64_t heads = Int(ctx, "num_heads", 0);
  const int64_t kv_heads = Int(ctx, "kv_num_heads", 0);
  const bool packed = !ctx.hasInput(1);
  const Dimension head_size = DividedBy(query->dim(2), packed ? heads + 2 * kv_heads : heads);
  SetShape(ctx, 0,
           Dims({query->dim(0), query->dim(1), packed ? Times(head_size, heads) : query->dim(2)}));
  SetPresent(ctx, query->dim(0), Known(kv_heads), head_size);
  // The cache has a dtype of its own where it is quantized.
  for (const size_t past : {3, 4}) {
    if (ElementType(ctx, past) == ElementType(ctx, 0) || !ctx.hasInput(past)) continue;
    const size_t output = past - 2;
    if (output >= ctx.getNumOutputs()) continue;
    ctx.getOutputType(output)->Clear();
    SetElementType(ctx, output, ElementType(ctx, past));
  }
}

// Our own ops, for files that have lost the functions with their bodies.
void FusedOp(Context& ctx) {
  const onnx::AttributeProto* packed = ctx.getAttribute("packed");
  if (packed != nullptr && packed->s() != "none") return HalfOfLastAxis(ctx);
  Like(ctx, 0, 0);
}

void FusedAddNorm(Context& ctx) {
  Like(ctx, 0, 0);
  Like(ctx, 1, 0);
}

void FusedRope(Context& ctx) {
  Like(ctx, 0, 0);
  Like(ctx, 1, 3);
}

// --- The table ----------------------------------------------------------------------------------

constexpr char kMicrosoft[] = "com.microsoft";

struct Entry {
  const char* op_type;
  Rule rule;
  const char* domain = kMicrosoft;
};

constexpr Entry kEntries[] = {
    // Before ONNX had it, ONNX Runtime kept its own in the default domain.
    {"LayerNormalization", Normalization, ""},
    {"SimplifiedLayerNormalization", Normalization, ""},

    {"Attention", Attention},
    {"BiasAdd", LikeFirst},
    {"BiasGelu", LikeFirst},
    {"BiasSoftmax", LikeFirst},
    {"BiasSplitGelu", HalfOfLastAxis},
    {"DecoderMaskedMultiHeadAttention", MultiHeadAttention},
    {"DequantizeLinear", DequantizeLinear},
    {"DynamicQuantizeMatMul", MatMul},
    {"EmbedLayerNormalization", EmbedLayerNormalization},
    {"FastGelu", LikeFirst},
    {"FusedGemm", Gemm},
    {"FusedMatMul", MatMul},
    {"GatherBlockQuantized", GatherBlockQuantized},
    {"Gelu", LikeFirst},
    {"GemmaRotaryEmbedding", GemmaRotaryEmbedding},
    {"GroupNorm", LikeFirst},
    {"GroupQueryAttention", GroupQueryAttention},
    {"MatMulBnb4", MatMulWithPackedWeights},
    {"MatMulIntegerToFloat", MatMulIntegerToFloat},
    {"MatMulNBits", MatMulWithPackedWeights},
    {"MoE", LikeFirst},
    {"MultiHeadAttention", MultiHeadAttention},
    {"QMoE", LikeFirst},
    {"QuantizeLinear", QuantizeLinear},
    {"QuickGelu", LikeFirst},
    {"RotaryEmbedding", LikeFirst},
    {"SkipGroupNorm", SkipGroupNorm},
    {"SkipLayerNormalization", SkipNormalization},
    {"SkipSimplifiedLayerNormalization", SkipNormalization},
    {"TransposeMatMul", MatMul},
    {"Trilu", LikeFirst},
};

using Schemas = std::map<std::pair<std::string, std::string>, onnx::OpSchema, std::less<>>;

void Add(Schemas& schemas, std::string_view domain, std::string_view op_type, Rule rule) {
  onnx::OpSchema& schema = schemas[{std::string(domain), std::string(op_type)}];
  schema.SetName(std::string(op_type)).SetDomain(std::string(domain)).SinceVersion(1);
  schema.TypeAndShapeInferenceFunction(rule);
}

Schemas MakeSchemas() {
  Schemas schemas;
  for (const Entry& entry : kEntries) Add(schemas, entry.domain, entry.op_type, entry.rule);
  for (const OpContract& op : Contracts()) {
    if (op.inputs.empty() || op.outputs.empty()) continue;
    if (op.inputs[0].type_symbol != op.outputs[0].type_symbol) continue;
    if (op.module == "cross_entropy" || op.module == "fused_linear_cross_entropy") continue;
    const Rule rule = op.outputs.size() == 1 ? FusedOp
                      : op.module == "rope"  ? FusedRope
                                             : FusedAddNorm;
    Add(schemas, kOpDomain, op.op_type, rule);
  }
  return schemas;
}

}  // namespace

const onnx::OpSchema* FindContribSchema(std::string_view domain, std::string_view op_type) {
  static const Schemas schemas = MakeSchemas();
  const auto found = schemas.find(std::pair(std::string(domain), std::string(op_type)));
  return found != schemas.end() ? &found->second : nullptr;
}

}  // namespace liger
