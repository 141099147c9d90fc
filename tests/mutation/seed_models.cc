#include "seed_models.h"

#include <gtest/gtest.h>
#include <onnx/defs/parser.h>

#include <algorithm>
#include <random>
#include <regex>
#include <set>
#include <utility>
#include <vector>

#include "tensor.h"

namespace liger::test {
namespace {

constexpr const char* kRope = R"(
  angles = MatMul (positions, w_frequencies)
  both = Concat <axis = -1> (angles, angles)
  cos_f32 = Cos (both)
  sin_f32 = Sin (both)
  cos_t = Cast <to = $N> (cos_f32)
  sin_t = Cast <to = $N> (sin_f32)
  cos = Unsqueeze (cos_t, #[1])
  sin = Unsqueeze (sin_t, #[1])
)";
constexpr const char* kHalfTables = R"(
  angles = MatMul (positions, w_frequencies)
  cos_f32 = Cos (angles)
  sin_f32 = Sin (angles)
  cos_t = Cast <to = $N> (cos_f32)
  sin_t = Cast <to = $N> (sin_f32)
  cos = Unsqueeze (cos_t, #[1])
  sin = Unsqueeze (sin_t, #[1])
)";
constexpr const char* kRopeInputs =
    "($T[2,4,5,8] q, $T[2,2,5,8] k, float[1,5,1] positions, float[1,1,4] w_frequencies) => ";

std::string RotateHalf(const std::string& x, const std::string& y) {
  return std::string(x + "_low = Slice (" + x + ", #[0], #[4], #[3])\n") + x + "_high = Slice (" +
         x + ", #[4], #[9223372036854775807], #[3])\n" + x + "_minus = Neg (" + x + "_high)\n" + x +
         "_turned = Concat <axis = -1> (" + x + "_minus, " + x + "_low)\n" + x +
         "_straight = Mul (" + x + ", cos)\n" + x + "_crossed = Mul (" + x + "_turned, sin)\n" + y +
         " = Add (" + x + "_straight, " + x + "_crossed)\n";
}

std::string TwoTerms(const std::string& x, const std::string& y) {
  return x + "_low, " + x + "_high = Split <axis = -1, num_outputs = 2> (" + x + ")\n" + x +
         "_a = Mul (" + x + "_low, cos)\n" + x + "_b = Mul (" + x + "_high, sin)\n" + x +
         "_first = Sub (" + x + "_a, " + x + "_b)\n" + x + "_c = Mul (" + x + "_high, cos)\n" + x +
         "_d = Mul (" + x + "_low, sin)\n" + x + "_second = Add (" + x + "_c, " + x + "_d)\n" + y +
         " = Concat <axis = -1> (" + x + "_first, " + x + "_second)\n";
}

const std::string kGateUp =
    "($T[2,5,8] x, $T[8,16] w_gate, $T[8,16] w_up, $T[16,8] w_down) => ($T[2,5,8] y) {\n"
    "gate = MatMul (x, w_gate)\nup = MatMul (x, w_up)\n";
const std::string kPacked =
    "($T[2,5,8] x, $T[8,32] w_both, $T[16,8] w_down) => ($T[2,5,8] y) {\n"
    "both = MatMul (x, w_both)\n";
const std::string kDown = "y = MatMul (product, w_down)\n}";
const std::string kNorm = "($T[2,5,16] x, $T[2,5,16] residual, $T[16] w_scale, $T[16] w_bias) => ";

std::vector<SeedModel> MakeSeeds() {
  const std::string tanh_gelu = R"(
    cube = Pow (gate, #3)
    bent = Mul (#0.044715, cube)
    sum = Add (gate, bent)
    inner = Mul (#0.7978845608028654, sum)
    tanh = Tanh (inner)
    gain = Add (tanh, #1)
    half = Mul (gate, #0.5)
    activated = Mul (half, gain)
  )";
  const std::string clamp = R"(
    bounded = Clip (gate, , #0.7)
    scaled = Mul (bounded, #1.702)
    sigmoid = Sigmoid (scaled)
    activated = Mul (bounded, sigmoid)
    within = Clip (up, #-0.7, #0.7)
    shifted = Add (within, #1)
    product = Mul (activated, shifted)
  )";
  const std::string silu = R"(
    sigmoid = Sigmoid (gate)
    activated = Mul (gate, sigmoid)
    product = Mul (activated, up)
  )";
  const std::string rms = R"(
    wide = Cast <to = 1> (h)
    square = Pow (wide, ##2)
    mean = ReduceMean <keepdims = 1> (square, #[-1])
    variance = Add (mean, ##0.01)
    root = Sqrt (variance)
  )";
  const std::string centred = R"(
    mean = ReduceMean <keepdims = 1> (h, #[-1])
    centred = Sub (h, mean)
    square = Pow (centred, #2)
    mean_square = ReduceMean <keepdims = 1> (square, #[-1])
    variance = Add (mean_square, #0.01)
    root = Sqrt (variance)
  )";
  const std::string pairs = R"(
    even = Slice (q, #[0], #[9223372036854775807], #[3], #[2])
    odd = Slice (q, #[1], #[9223372036854775807], #[3], #[2])
  )";
  const std::string group_inputs =
      "($T[2,8,3,3] x, $T[8] w_scale, $T[8] w_bias) => ($T[2,8,3,3] y) {\n";
  return {
      {"rms_llama", 18,
       kNorm + "($T[2,5,16] y) {\nh = Abs (x)\n" + rms +
           "inverse = Reciprocal (root)\nn = Mul (wide, inverse)\nrounded = Cast <to = $N> (n)\n"
           "y = Mul (w_scale, rounded)\n}"},
      {"rms_gemma", 18,
       kNorm + "($T[2,5,16] y) {\nh = Abs (x)\n" + rms +
           "n = Div (wide, root)\nwide_scale = Cast <to = 1> (w_scale)\n"
           "weight = Add (wide_scale, ##1)\nscaled = Mul (n, weight)\n"
           "y = Cast <to = $N> (scaled)\n}"},
      {"rms_expanded", 18,
       kNorm + "($T[2,5,16] y) {\nh = Abs (x)\n" + rms +
           "n = Div (wide, root)\nwide_scale = Cast <to = 1> (w_scale)\n"
           "scaled = Mul (n, wide_scale)\nshifted = Add (scaled, n)\n"
           "y = Cast <to = $N> (shifted)\n}"},
      {"add_rms", 18,
       kNorm + "($T[2,5,16] y, $T[2,5,16] z) {\nh = Add (x, residual)\n" + rms +
           "n = Div (wide, root)\nrounded = Cast <to = $N> (n)\n"
           "y = Mul (rounded, w_scale)\nz = Add (h, y)\n}"},
      {"rms_native_power", 18,
       kNorm + "($T[2,5,16] y) {\nsquare = Mul (x, x)\nmean = ReduceMean (square, #[-1])\n"
               "variance = Add (mean, #0.01)\ninverse = Pow (variance, #-0.5)\n"
               "n = Mul (x, inverse)\ny = Mul (n, w_scale)\n}"},
      {"rms_of_sums", 18,
       kNorm + "($T[2,5,16] y) {\nsquare = Mul (x, x)\ntotal = ReduceSum (square, #[-1])\n"
               "mean = Div (total, #16)\nvariance = Add (mean, #0.01)\nroot = Sqrt (variance)\n"
               "n = Div (x, root)\ny = Mul (n, w_scale)\n}"},
      {"rms_normalization", 23,
       kNorm + "($T[2,5,16] y, $T[2,5,16] z) {\nh = Add (x, residual)\n"
               "y = RMSNormalization <axis = -1, epsilon = 0.01> (h, w_scale)\nz = Add (h, y)\n}"},
      {"simplified_layer_norm", 18,
       kNorm + "($T[2,5,16] y, $T[2,5,16] z) {\nh = Add (x, residual)\n"
               "y = SimplifiedLayerNormalization <axis = -1, epsilon = 0.01, stash_type = 1>"
               " (h, w_scale)\nz = Add (h, y)\n}"},
      {"skip_simplified", 18,
       kNorm + "($T[2,5,16] y, $T[2,5,16] z) {\n"
               "y, none, other, h = com.microsoft.SkipSimplifiedLayerNormalization"
               " <epsilon = 0.01> (x, residual, w_scale)\nz = Add (h, y)\n}"},
      {"skip_layer_norm", 18,
       kNorm + "($T[2,5,16] y, $T[2,5,16] z) {\n"
               "y, none, other, h = com.microsoft.SkipLayerNormalization <epsilon = 0.01>"
               " (x, residual, w_scale, w_bias)\nz = Add (h, y)\n}"},
      {"layer_norm", 18,
       kNorm + "($T[2,5,16] y) {\nh = Abs (x)\n"
               "y = LayerNormalization <axis = -1, epsilon = 0.01> (h, w_scale, w_bias)\n}"},
      {"layer_norm_without_bias", 18,
       kNorm + "($T[2,5,16] y) {\nh = Abs (x)\n"
               "y = LayerNormalization <axis = -1, epsilon = 0.01> (h, w_scale)\n}"},
      {"add_layer_norm", 17,
       kNorm + "($T[2,5,16] y, $T[2,5,16] z) {\nh = Add (x, residual)\n"
               "y = LayerNormalization <axis = -1, epsilon = 0.01> (h, w_scale, w_bias)\n"
               "z = Add (h, y)\n}"},
      {"layer_norm_decomposed", 18,
       kNorm + "($T[2,5,16] y) {\nh = Abs (x)\n" + centred +
           "n = Div (centred, root)\nscaled = Mul (n, w_scale)\ny = Add (scaled, w_bias)\n}"},
      {"add_layer_norm_decomposed", 18,
       kNorm + "($T[2,5,16] y, $T[2,5,16] z) {\nh = Add (x, residual)\n" + centred +
           "n = Div (centred, root)\nscaled = Mul (n, w_scale)\ny = Add (scaled, w_bias)\n"
           "z = Add (h, y)\n}"},
      {"layer_norm_weightless", 18,
       kNorm + "($T[2,5,16] y) {\nh = Abs (x)\n" + centred + "y = Div (centred, root)\n}"},
      {"layer_norm_gain", 18,
       kNorm + "($T[2,5,16] y) {\nh = Abs (x)\n" + centred +
           "inverse = Reciprocal (root)\ngain = Mul (inverse, w_scale)\n"
           "mean_gain = Mul (mean, gain)\nshift = Sub (w_bias, mean_gain)\n"
           "scaled = Mul (h, gain)\ny = Add (scaled, shift)\n}"},
      {"layer_norm_squares", 18,
       kNorm + "($T[2,5,16] y) {\nmean = ReduceMean (x, #[-1])\nsquare = Mul (x, x)\n"
               "mean_square = ReduceMean (square, #[-1])\nsquare_mean = Mul (mean, mean)\n"
               "spread = Sub (mean_square, square_mean)\nvariance = Add (spread, #0.01)\n"
               "root = Sqrt (variance)\ncentred = Sub (x, mean)\nn = Div (centred, root)\n"
               "scaled = Mul (n, w_scale)\ny = Add (scaled, w_bias)\n}"},
      {"rope_half", 18,
       kRopeInputs + std::string("($T[2,4,5,8] y, $T[2,2,5,8] z) {") + kRope +
           RotateHalf("q", "y") + RotateHalf("k", "z") + "}"},
      {"rope_two_term", 18,
       kRopeInputs + std::string("($T[2,4,5,8] y, $T[2,2,5,8] z) {") + kHalfTables +
           TwoTerms("q", "y") + TwoTerms("k", "z") + "}"},
      {"rope_pairs", 18,
       kRopeInputs + std::string("($T[2,4,5,8] y) {") + kHalfTables + pairs +
           "a = Mul (even, cos)\nb = Mul (odd, sin)\nfirst = Sub (a, b)\n"
           "c = Mul (odd, cos)\nd = Mul (even, sin)\nsecond = Add (c, d)\n"
           "u = Unsqueeze (first, #[-1])\nv = Unsqueeze (second, #[-1])\n"
           "w = Concat <axis = -1> (u, v)\ny = Reshape (w, #[2,4,5,8])\n}"},
      {"rope_rotate_pairs", 18,
       kRopeInputs + std::string("($T[2,4,5,8] y) {") +
           "angles = MatMul (positions, w_frequencies)\nup = Unsqueeze (angles, #[-1])\n"
           "twice = Concat <axis = -1> (up, up)\nboth = Reshape (twice, #[1,5,8])\n"
           "cos_f32 = Cos (both)\nsin_f32 = Sin (both)\ncos_t = Cast <to = $N> (cos_f32)\n"
           "sin_t = Cast <to = $N> (sin_f32)\ncos = Unsqueeze (cos_t, #[1])\n"
           "sin = Unsqueeze (sin_t, #[1])\n" +
           pairs +
           "minus = Neg (odd)\nu = Unsqueeze (minus, #[-1])\nv = Unsqueeze (even, #[-1])\n"
           "w = Concat <axis = -1> (u, v)\nturned = Reshape (w, #[2,4,5,8])\n"
           "straight = Mul (q, cos)\ncrossed = Mul (turned, sin)\ny = Add (straight, crossed)\n}"},
      {"rope_leading", 18,
       "($T[2,4,5,12] all, float[1,5,1] positions, float[1,1,4] w_frequencies) => "
       "($T[2,4,5,12] y) {" +
           std::string(kRope) +
           "q = Slice (all, #[0], #[8], #[3])\nrest = Slice (all, #[8], #[12], #[3])\n" +
           RotateHalf("q", "turned") + "y = Concat <axis = -1> (turned, rest)\n}"},
      {"rope_trailing", 18,
       "($T[2,4,5,12] all, float[1,5,1] positions, float[1,1,4] w_frequencies) => "
       "($T[2,4,5,12] y) {" +
           std::string(kHalfTables) + "rest, q = Split <axis = -1> (all, #[4, 8])\n" +
           TwoTerms("q", "turned") + "y = Concat <axis = -1> (rest, turned)\n}"},
      {"rope_by_sequence", 18,
       "($T[2,5,4,8] q, float[1,5,1] positions, float[1,1,4] w_frequencies) => "
       "($T[2,5,4,8] y) {" +
           std::regex_replace(std::string(kRope), std::regex("#\\[1\\]"), "#[2]") +
           RotateHalf("q", "y") + "}"},
      {"swiglu", 18, kGateUp + silu + kDown},
      {"swiglu_alpha", 18,
       kGateUp +
           "scaled = Mul (gate, #1.3)\nsigmoid = Sigmoid (scaled)\n"
           "activated = Mul (gate, sigmoid)\nproduct = Mul (activated, up)\n" +
           kDown},
      {"swiglu_multiplier", 18,
       kGateUp +
           "g = Mul (gate, #0.35)\nsigmoid = Sigmoid (g)\n"
           "activated = Mul (g, sigmoid)\nproduct = Mul (activated, up)\n" +
           kDown},
      {"swiglu_packed", 18,
       kPacked + "gate, up = Split <axis = -1, num_outputs = 2> (both)\n" + silu + kDown},
      {"swiglu_packed_up_first", 18,
       kPacked +
           "up = Slice (both, #[0], #[16], #[-1])\n"
           "gate = Slice (both, #[16], #[9223372036854775807], #[-1])\n" +
           silu + kDown},
      {"swiglu_interleaved", 18,
       kPacked +
           "gate = Slice (both, #[0], #[9223372036854775807], #[2], #[2])\n"
           "up = Slice (both, #[1], #[9223372036854775807], #[2], #[2])\n" +
           silu + kDown},
      {"swiglu_clamped", 18, kGateUp + clamp + kDown},
      {"swiglu_clamped_interleaved", 18,
       kPacked +
           "gate = Slice (both, #[0], #[9223372036854775807], #[2], #[2])\n"
           "up = Slice (both, #[1], #[9223372036854775807], #[2], #[2])\n" +
           clamp + kDown},
      {"swiglu_clamped_packed", 18,
       kPacked + "gate, up = Split <axis = -1, num_outputs = 2> (both)\n" + clamp + kDown},
      {"geglu_tanh", 18, kGateUp + tanh_gelu + "product = Mul (activated, up)\n" + kDown},
      {"geglu_tanh_factored", 18,
       kGateUp +
           "square = Mul (gate, gate)\nbent = Mul (#0.044715, square)\n"
           "factor = Add (#1, bent)\nscaled = Mul (#0.7978845608028654, gate)\n"
           "inner = Mul (scaled, factor)\ntanh = Tanh (inner)\ngain = Add (tanh, #1)\n"
           "half = Mul (#0.5, gate)\nactivated = Mul (half, gain)\n"
           "product = Mul (activated, up)\n" +
           kDown},
      {"geglu_exact", 18,
       kGateUp +
           "inner = Div (gate, #1.4142135623730951)\nerf = Erf (inner)\n"
           "gain = Add (erf, #1)\ndoubled = Mul (gate, gain)\n"
           "activated = Mul (doubled, #0.5)\nproduct = Mul (up, activated)\n" +
           kDown},
      {"geglu_sigmoid", 18,
       kGateUp +
           "scaled = Mul (#1.702, gate)\nsigmoid = Sigmoid (scaled)\n"
           "activated = Mul (gate, sigmoid)\nproduct = Mul (activated, up)\n" +
           kDown},
      {"geglu_op_exact", 20,
       kGateUp + "activated = Gelu (gate)\nproduct = Mul (activated, up)\n" + kDown},
      {"geglu_op_tanh", 20,
       kPacked +
           "gate, up = Split <axis = -1, num_outputs = 2> (both)\n"
           "activated = Gelu <approximate = \"tanh\"> (gate)\n"
           "product = Mul (activated, up)\n" +
           kDown},
      {"geglu_interleaved", 18,
       kPacked +
           "gate = Slice (both, #[0], #[9223372036854775807], #[2], #[2])\n"
           "up = Slice (both, #[1], #[9223372036854775807], #[2], #[2])\n" +
           tanh_gelu + "product = Mul (activated, up)\n" + kDown},
      {"geglu_contrib_exact", 18,
       kGateUp + "activated = com.microsoft.Gelu (gate)\nproduct = Mul (activated, up)\n" + kDown},
      {"geglu_contrib_quick", 18,
       kGateUp +
           "activated = com.microsoft.QuickGelu <alpha = 1.702> (gate)\n"
           "product = Mul (activated, up)\n" +
           kDown},
      {"geglu_contrib_fast", 18,
       kGateUp + "activated = com.microsoft.FastGelu (gate)\nproduct = Mul (activated, up)\n" +
           kDown},
      {"softmax", 18,
       "($T[2,4,5,8] x, $T[8,8] w_k) => ($T[2,4,5,8] y) {\nscores = MatMul (x, w_k)\n"
       "wide = Cast <to = 1> (scores)\nshare = Softmax <axis = -1> (wide)\n"
       "back = Cast <to = $N> (share)\ny = Mul (back, x)\n}"},
      {"softmax_native", 18,
       "($T[2,4,5,8] x, $T[8,8] w_k) => ($T[2,4,5,8] y) {\nscores = MatMul (x, w_k)\n"
       "scaled = Mul (scores, #2)\ny = Softmax <axis = -1> (scaled)\n}"},
      {"group_norm", 21,
       group_inputs + "h = Neg (x)\ny = GroupNormalization <num_groups = 2, epsilon = 0.01>"
                      " (h, w_scale, w_bias)\n}"},
      {"group_norm_reshaped", 18,
       group_inputs + "grouped = Reshape (x, #[0,4,-1])\nmean = ReduceMean (grouped, #[-1])\n"
                      "centred = Sub (grouped, mean)\nsquare = Pow (centred, #2)\n"
                      "mean_square = ReduceMean (square, #[-1])\n"
                      "variance = Add (mean_square, #0.01)\nroot = Sqrt (variance)\n"
                      "n = Div (centred, root)\nrows = Reshape (n, #[2,8,3,3])\n"
                      "scale_column = Unsqueeze (w_scale, #[1,2])\n"
                      "scaled = Mul (rows, scale_column)\n"
                      "bias_column = Unsqueeze (w_bias, #[1,2])\n"
                      "y = Add (scaled, bias_column)\n}"},
  };
}

std::string Replaced(std::string text, const std::string& from, const std::string& to) {
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
  }
  return text;
}

onnx::TensorProto Encoded(const std::string& name, const Tensor& tensor) {
  onnx::TensorProto proto;
  proto.set_name(name);
  proto.set_data_type(static_cast<int32_t>(tensor.dtype));
  for (int64_t d : tensor.shape) proto.add_dims(d);
  proto.set_raw_data(
      std::string(reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size()));
  return proto;
}

// Takes the constants out of a text and puts their names in place.
std::vector<onnx::TensorProto> TakeConstants(std::string& text, DType dtype) {
  static const std::regex pattern(R"((##?)(\[[-0-9, ]*\]|-?[0-9.]+))");
  std::vector<onnx::TensorProto> constants;
  std::string rest = text;
  std::string done;
  std::smatch match;
  while (std::regex_search(rest, match, pattern)) {
    const std::string name = "constant_" + std::to_string(constants.size());
    const std::string value = match[2];
    done += match.prefix().str() + name;
    if (value.front() == '[') {
      onnx::TensorProto tensor;
      tensor.set_name(name);
      tensor.set_data_type(onnx::TensorProto::INT64);
      static const std::regex number("-?[0-9]+");
      for (auto it = std::sregex_iterator(value.begin(), value.end(), number);
           it != std::sregex_iterator(); ++it) {
        tensor.add_int64_data(std::stoll(it->str()));
      }
      tensor.add_dims(tensor.int64_data_size());
      constants.push_back(tensor);
    } else {
      const DType type = match[1] == "##" ? DType::kF32 : dtype;
      constants.push_back(Encoded(name, Tensor::FromDoubles(type, {}, {std::stod(value)})));
    }
    rest = match.suffix();
  }
  text = done + rest;
  return constants;
}

}  // namespace

std::span<const SeedModel> SeedModels() {
  static const std::vector<SeedModel> seeds = MakeSeeds();
  return seeds;
}

onnx::ModelProto BuildSeed(const SeedModel& seed, DType dtype) {
  std::string text = Replaced(seed.graph, "$T", dtype == DType::kF16 ? "float16" : "float");
  text = Replaced(text, "$N", std::to_string(static_cast<int>(dtype)));
  const std::vector<onnx::TensorProto> constants = TakeConstants(text, dtype);
  text = "<ir_version: 10, opset_import: [\"\" : " + std::to_string(seed.opset) +
         ", \"com.microsoft\" : 1]>\nseed " + text;
  onnx::ModelProto model;
  onnx::OnnxParser parser(text.c_str());
  const auto status = parser.Parse(model);
  EXPECT_TRUE(status.IsOK()) << seed.name << ": " << status.ErrorMessage() << "\n" << text;
  auto& graph = *model.mutable_graph();
  for (const auto& constant : constants) *graph.add_initializer() = constant;
  std::mt19937_64 random(7);
  auto inputs = graph.input();
  graph.clear_input();
  for (const auto& input : inputs) {
    if (!input.name().starts_with("w_")) {
      *graph.add_input() = input;
      continue;
    }
    std::vector<int64_t> shape;
    int64_t count = 1;
    for (const auto& dim : input.type().tensor_type().shape().dim()) {
      shape.push_back(dim.dim_value());
      count *= dim.dim_value();
    }
    std::vector<double> values;
    for (int64_t i = 0; i < count; ++i) {
      values.push_back(static_cast<double>(random() % 2001) / 1000 - (shape.size() == 1 ? 0.3 : 1));
    }
    const auto type = static_cast<DType>(input.type().tensor_type().elem_type());
    *graph.add_initializer() = Encoded(input.name(), Tensor::FromDoubles(type, shape, values));
  }
  for (auto& node : *graph.mutable_node()) node.set_name(node.output(0));
  return model;
}

}  // namespace liger::test
