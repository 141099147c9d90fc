// The ops of libliger_ort one by one: every dtype tuple against the oracle, every form of the
// attributes, and the kernel against the function body that ONNX Runtime runs without the library.
#include <gtest/gtest.h>
#include <onnx/onnx_pb.h>

#include <cmath>
#include <limits>

#include "kernel_test.h"
#include "library_testing.h"
#include "oracle.h"

namespace liger::test {
namespace {

constexpr const char* kLayerNorm = R"(
  g (%T[N,M,H] x, %S[H] scale, %S[H] bias) => (%T[N,M,H] y) {
    y = liger.LigerLayerNorm <epsilon: float = 1e-6, stash_type: int = %stash,
                              scale_type: int = %stash> (x, scale, bias)
  })";
constexpr const char* kAddLayerNorm = R"(
  g (%T[N,M,H] x, %T[N,M,H] residual, %S[H] scale, %S[H] bias) => (%T[N,M,H] y, %T[N,M,H] sum) {
    y, sum = liger.LigerAddLayerNorm <epsilon: float = 1e-6, stash_type: int = %stash,
               scale_type: int = %stash> (x, residual, scale, bias)
  })";
constexpr const char* kGroupNorm = R"(
  g (%T[N,C,H,W] x, %S[C] scale, %S[C] bias) => (%T[N,C,H,W] y) {
    y = liger.LigerGroupNorm <num_groups: int = 3, epsilon: float = 1e-6, stash_type: int = %stash,
                              scale_type: int = %stash> (x, scale, bias)
  })";
constexpr const char* kGeGlu = R"(
  g (%T[N,W] gate, %T[N,W] up) => (%T[N,W] y) {
    y = liger.LigerGeGLU <approximate: string = "tanh", limit: float = 0.0, up_offset: float = 0.0,
          packed: string = "none", stash_type: int = %stash> (gate, up)
  })";
constexpr const char* kPackedGeGlu = R"(
  g (%T[N,V] gate) => (%T[N,W] y) {
    y = liger.LigerGeGLU <approximate: string = "tanh", limit: float = 0.0, up_offset: float = 0.0,
          packed: string = "gate_up", stash_type: int = %stash> (gate)
  })";
constexpr const char* kSoftmax = R"(
  g (%T[N,M,W] x) => (%T[N,M,W] y) { y = liger.LigerSoftmax <stash_type: int = %stash> (x) })";
constexpr const char* kSwiGlu = R"(
  g (%T[N,W] gate, %T[N,W] up) => (%T[N,W] y) {
    y = liger.LigerSwiGLU <alpha: float = 1.702, gate_multiplier: float = 0.5, limit: float = 1.5,
          up_offset: float = 1.0, packed: string = "none", stash_type: int = %stash> (gate, up)
  })";
constexpr const char* kPackedSwiGlu = R"(
  g (%T[N,V] gate) => (%T[N,W] y) {
    y = liger.LigerSwiGLU <alpha: float = 1.702, gate_multiplier: float = 0.5, limit: float = 1.5,
          up_offset: float = 1.0, packed: string = "none", stash_type: int = %stash> (gate)
  })";

std::string Replace(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

LayerNormOptions ScaleType(DType dtype) {
  LayerNormOptions options;
  options.scale_type = dtype;
  return options;
}

TEST_F(OrtLibrary, LayerNormMatchesOracleForEveryTuple) {
  ForEachTuple("LigerLayerNorm", [](DType t, DType s) {
    const Tensor x = RandomTensor(t, {2, 3, 33}, 1);
    const Tensor scale = RandomTensor(s, {33}, 2), bias = RandomTensor(s, {33}, 3);
    const Tensor y = Get(
        MustRun(Model(Instantiate(kLayerNorm, t, s)), {{"x", x}, {"scale", scale}, {"bias", bias}}),
        "y");
    ExpectMatches(y, OracleLayerNorm(x, {}, scale, bias, ScaleType(s)).y, 33);
    EXPECT_EQ(y.shape, x.shape);
    EXPECT_EQ(y.dtype, t);
  });
}

TEST_F(OrtLibrary, AddLayerNormMatchesOracleForEveryTuple) {
  ForEachTuple("LigerAddLayerNorm", [](DType t, DType s) {
    const Tensor x = RandomTensor(t, {2, 3, 33}, 1), residual = RandomTensor(t, {2, 3, 33}, 2);
    const Tensor scale = RandomTensor(s, {33}, 3), bias = RandomTensor(s, {33}, 4);
    const NamedTensors y =
        MustRun(Model(Instantiate(kAddLayerNorm, t, s)),
                {{"x", x}, {"residual", residual}, {"scale", scale}, {"bias", bias}});
    const RmsNormResult expected = OracleLayerNorm(x, residual, scale, bias, ScaleType(s));
    ExpectMatches(Get(y, "y"), expected.y, 33);
    EXPECT_EQ(Get(y, "sum").ToDoubles(), expected.sum);
  });
}

// Inputs that are left out: at the end, or as an empty name in front of another.
TEST_F(OrtLibrary, LayerNormsWorkWithoutScaleOrBias) {
  for (const bool adds : {false, true}) {
    ForEachTuple(adds ? "LigerAddLayerNorm" : "LigerLayerNorm", [adds](DType t, DType s) {
      const Tensor x = RandomTensor(t, {1, 2, 20}, 1), residual = RandomTensor(t, {1, 2, 20}, 2);
      const Tensor scale = RandomTensor(s, {20}, 3), bias = RandomTensor(s, {20}, 4);
      for (int present = 0; present < 3; ++present) {
        SCOPED_TRACE(present);
        const bool has_scale = present == 1, has_bias = present == 2;
        onnx::ModelProto model = Model(Instantiate(adds ? kAddLayerNorm : kLayerNorm, t, s));
        onnx::NodeProto& node = *model.mutable_graph()->mutable_node(0);
        const int first = adds ? 2 : 1;
        if (has_bias) {
          node.set_input(first, "");
        } else {
          node.mutable_input()->RemoveLast();
          if (!has_scale) node.mutable_input()->RemoveLast();
        }
        auto& inputs = *model.mutable_graph()->mutable_input();
        if (!has_bias) inputs.RemoveLast();
        if (!has_scale) inputs.DeleteSubrange(first, 1);
        NamedTensors tensors = {{"x", x}};
        if (adds) tensors["residual"] = residual;
        if (has_scale) tensors["scale"] = scale;
        if (has_bias) tensors["bias"] = bias;
        const RmsNormResult expected =
            OracleLayerNorm(x, adds ? std::optional(residual) : std::nullopt,
                            has_scale ? std::optional(scale) : std::nullopt,
                            has_bias ? std::optional(bias) : std::nullopt, ScaleType(s));
        ExpectMatches(Get(MustRun(model, tensors), "y"), expected.y, 20);
      }
    });
  }
}

TEST_F(OrtLibrary, GroupNormMatchesOracleForEveryTuple) {
  ForEachTuple("LigerGroupNorm", [](DType t, DType s) {
    const Tensor x = RandomTensor(t, {2, 6, 3, 5}, 1);
    const Tensor scale = RandomTensor(s, {6}, 2), bias = RandomTensor(s, {6}, 3);
    const Tensor y = Get(
        MustRun(Model(Instantiate(kGroupNorm, t, s)), {{"x", x}, {"scale", scale}, {"bias", bias}}),
        "y");
    ExpectMatches(y, OracleGroupNorm(x, scale, bias, 3, ScaleType(s)), 30);
    EXPECT_EQ(y.shape, x.shape);
  });
}

TEST_F(OrtLibrary, SoftmaxMatchesOracleForEveryTuple) {
  ForEachTuple("LigerSoftmax", [](DType t, DType s) {
    const Tensor x = RandomTensor(t, {2, 3, 33}, 1, 4);
    ExpectMatches(Get(MustRun(Model(Instantiate(kSoftmax, t, s)), {{"x", x}}), "y"),
                  OracleSoftmax(x), 33);
  });
}

struct Packed {
  const char* name;
  Packing packing;
};

constexpr Packed kPackings[] = {{"none", Packing::kNone},
                                {"gate_up", Packing::kGateUp},
                                {"up_gate", Packing::kUpGate},
                                {"interleaved", Packing::kInterleaved}};

TEST_F(OrtLibrary, GeGluMatchesOracleForEveryTupleFormAndPacking) {
  const std::pair<const char*, Gelu> forms[] = {
      {"tanh", Gelu::kTanh}, {"none", Gelu::kExact}, {"sigmoid", Gelu::kSigmoid}};
  ForEachTuple("LigerGeGLU", [&](DType t, DType s) {
    const Tensor gate = RandomTensor(t, {3, 34}, 1, 2), up = RandomTensor(t, {3, 34}, 2);
    for (const auto& [form_name, form] : forms) {
      for (const Packed& packed : kPackings) {
        for (const bool plain : {true, false}) {
          SCOPED_TRACE(std::string(form_name) + " " + packed.name);
          GeGluOptions options;
          options.form = form;
          options.packing = packed.packing;
          options.stash_type = s;
          const bool is_packed = packed.packing != Packing::kNone;
          std::string text = Instantiate(is_packed ? kPackedGeGlu : kGeGlu, t, s);
          text = Replace(text, "\"tanh\"", "\"" + std::string(form_name) + "\"");
          text = Replace(text, is_packed ? "\"gate_up\"" : "\"none\"",
                         "\"" + std::string(packed.name) + "\"");
          if (!plain) {
            options.limit = 1.5f;
            options.up_offset = 1;
            text = Replace(text, "limit: float = 0.0", "limit: float = 1.5");
            text = Replace(text, "up_offset: float = 0.0", "up_offset: float = 1.0");
          }
          NamedTensors inputs = {{"gate", gate}};
          if (!is_packed) inputs["up"] = up;
          const Tensor y = Get(MustRun(Model(text), inputs), "y");
          EXPECT_EQ(y.shape, (std::vector<int64_t>{3, is_packed ? 17 : 34}));
          ExpectMatches(y, OracleGeGlu(gate, up, options), static_cast<size_t>(y.size()), 0.01);
        }
      }
    }
  });
}

TEST_F(OrtLibrary, SwiGluAppliesItsAttributesForEveryTupleAndPacking) {
  ForEachTuple("LigerSwiGLU", [](DType t, DType s) {
    const Tensor gate = RandomTensor(t, {3, 34}, 1, 2), up = RandomTensor(t, {3, 34}, 2, 2);
    for (const Packed& packed : kPackings) {
      SCOPED_TRACE(packed.name);
      const bool is_packed = packed.packing != Packing::kNone;
      const std::string text = Replace(Instantiate(is_packed ? kPackedSwiGlu : kSwiGlu, t, s),
                                       "\"none\"", "\"" + std::string(packed.name) + "\"");
      SwiGluOptions options;
      options.alpha = 1.702f;
      options.gate_multiplier = 0.5f;
      options.limit = 1.5f;
      options.up_offset = 1;
      options.packing = packed.packing;
      NamedTensors inputs = {{"gate", gate}};
      if (!is_packed) inputs["up"] = up;
      const Tensor y = Get(MustRun(Model(text), inputs), "y");
      ExpectMatches(y, OracleSwiGlu(gate, up, options), static_cast<size_t>(y.size()), 0.01);
    }
  });
}

// Every layout with every kind of table and part of a head, in every tuple.
TEST_F(OrtLibrary, RopeMatchesOracleForEveryForm) {
  struct Form {
    const char* layout;
    std::vector<int64_t> x;       // without its last dimension
    std::vector<int64_t> table;   // likewise
    std::vector<int64_t> oracle;  // batch and sequence of the table
  };
  const Form forms[] = {
      {"BNSD", {2, 3, 5}, {5}, {1, 5}},       {"BNSD", {2, 3, 5}, {1, 1, 5}, {1, 5}},
      {"BNSD", {2, 3, 5}, {2, 1, 5}, {2, 5}}, {"BNSD", {2, 3, 5}, {1, 5}, {1, 5}},
      {"BSND", {2, 5, 3}, {5, 1}, {1, 5}},    {"BSND", {2, 5, 3}, {2, 5, 1}, {2, 5}},
      {"SND", {5, 3}, {5, 1}, {1, 5}},
  };
  struct Part {
    int64_t head_dim, rotary_dim, rotary_offset;
  };
  const Part parts[] = {{8, 0, 0}, {16, 6, 0}, {16, 6, 10}, {20, 8, 3}};
  ForEachTuple("LigerRope", [&](DType t, DType s) {
    for (const Form& form : forms) {
      for (const Part& part : parts) {
        for (const bool interleaved : {false, true}) {
          for (const bool full : {false, true}) {
            const int64_t rotary = part.rotary_dim == 0 ? part.head_dim : part.rotary_dim;
            const int64_t width = full ? rotary : rotary / 2;
            SCOPED_TRACE(std::string(form.layout) + " head " + std::to_string(part.head_dim) +
                         " part " + std::to_string(part.rotary_dim) + " interleaved " +
                         std::to_string(interleaved) + " full " + std::to_string(full));
            std::vector<int64_t> x_shape = form.x, table_shape = form.table;
            x_shape.push_back(part.head_dim);
            table_shape.push_back(width);
            const auto dims = [](const std::vector<int64_t>& shape) {
              std::string text;
              for (const int64_t dim : shape)
                text += (text.empty() ? "" : ",") + std::to_string(dim);
              return "[" + text + "]";
            };
            const std::string table_type = "%S" + dims(table_shape);
            const std::string text =
                "g (%T" + dims(x_shape) + " x, " + table_type + " cos, " + table_type +
                " sin) => (%T" + dims(x_shape) +
                " y) { y = liger.LigerRope <interleaved: int = " + std::to_string(interleaved) +
                ", rotary_dim: int = " + std::to_string(part.rotary_dim) +
                ", rotary_offset: int = " + std::to_string(part.rotary_offset) +
                ", layout: string = \"" + form.layout + "\", table: string = \"" +
                (full ? "full" : "half") + "\", stash_type: int = %stash> (x, cos, sin) }";
            Tensor x = RandomTensor(t, x_shape, 1);
            // A row whose values stand twice where the table is full.
            const auto table = [&](uint32_t seed) {
              Tensor half = RandomTensor(s, {form.oracle[0] * form.oracle[1], rotary / 2}, seed);
              const std::vector<double> values = half.ToDoubles();
              std::vector<double> rows;
              for (int64_t row = 0; row < half.shape[0]; ++row) {
                for (int64_t i = 0; i < width; ++i) {
                  const int64_t pair = !full ? i : interleaved ? i / 2 : i % (rotary / 2);
                  rows.push_back(values[static_cast<size_t>(row * rotary / 2 + pair)]);
                }
              }
              return Tensor::FromDoubles(s, table_shape, rows);
            };
            Tensor cos = table(2), sin = table(3);
            const Tensor y =
                Get(MustRun(Model(Instantiate(text, t, s)), {{"x", x}, {"cos", cos}, {"sin", sin}}),
                    "y");
            RopeOptions options;
            options.interleaved = interleaved;
            options.full_table = full;
            options.heads_first = std::string(form.layout) == "BNSD";
            options.rotary_dim = rotary;
            options.rotary_offset = part.rotary_offset;
            if (x.shape.size() == 3) x.shape.insert(x.shape.begin(), 1);
            cos.shape = sin.shape = {form.oracle[0], form.oracle[1], width};
            ExpectMatches(y, OracleRope(x, cos, sin, options), static_cast<size_t>(part.head_dim));
          }
        }
      }
    }
  });
}

// Kernels against bodies.

struct Body {
  const char* node;
  const char* function;
  std::map<std::string, std::vector<int64_t>> inputs;
  bool f64 = true;  // whether ONNX Runtime has all of it in f64 on the CPU
};

constexpr const char* kLayerNormBody = R"(
  <domain: "liger", opset_import: ["": 18]>
  LigerLayerNorm <epsilon, stash_type, scale_type> (x, scale, bias) => (y) {
    wide = Cast <to: int = @stash_type> (x)
    axes = Constant <value_ints = [-1]> ()
    mean = ReduceMean (wide, axes)
    centred = Sub (wide, mean)
    square = Mul (centred, centred)
    mean_square = ReduceMean (square, axes)
    eps_f32 = Constant <value_float: float = @epsilon> ()
    eps = Cast <to: int = @stash_type> (eps_f32)
    variance = Add (mean_square, eps)
    deviation = Sqrt (variance)
    normalised = Div (centred, deviation)
    rounded = Cast <to: int = @scale_type> (normalised)
    wide_scale = Cast <to: int = @scale_type> (scale)
    scaled = Mul (rounded, wide_scale)
    wide_bias = Cast <to: int = @scale_type> (bias)
    shifted = Add (scaled, wide_bias)
    y = CastLike (shifted, x)
  })";
constexpr const char* kAddLayerNormBody = R"(
  <domain: "liger", opset_import: ["": 18]>
  LigerAddLayerNorm <epsilon, stash_type, scale_type> (x, residual, scale, bias) => (y, sum) {
    sum = Add (x, residual)
    wide = Cast <to: int = @stash_type> (sum)
    axes = Constant <value_ints = [-1]> ()
    mean = ReduceMean (wide, axes)
    centred = Sub (wide, mean)
    square = Mul (centred, centred)
    mean_square = ReduceMean (square, axes)
    eps_f32 = Constant <value_float: float = @epsilon> ()
    eps = Cast <to: int = @stash_type> (eps_f32)
    variance = Add (mean_square, eps)
    deviation = Sqrt (variance)
    normalised = Div (centred, deviation)
    rounded = Cast <to: int = @scale_type> (normalised)
    wide_scale = Cast <to: int = @scale_type> (scale)
    scaled = Mul (rounded, wide_scale)
    wide_bias = Cast <to: int = @scale_type> (bias)
    shifted = Add (scaled, wide_bias)
    y = CastLike (shifted, x)
  })";
constexpr const char* kGroupNormBody = R"(
  <domain: "liger", opset_import: ["": 18]>
  LigerGroupNorm <num_groups, epsilon, stash_type, scale_type> (x, scale, bias) => (y) {
    wide = Cast <to: int = @stash_type> (x)
    same = Constant <value_ints = [0]> ()
    rest = Constant <value_ints = [-1]> ()
    groups_scalar = Constant <value_int: int = @num_groups> ()
    groups = Unsqueeze (groups_scalar, same)
    by_group = Concat <axis = 0> (same, groups, rest)
    grouped = Reshape (wide, by_group)
    mean = ReduceMean (grouped, rest)
    centred = Sub (grouped, mean)
    square = Mul (centred, centred)
    mean_square = ReduceMean (square, rest)
    eps_f32 = Constant <value_float: float = @epsilon> ()
    eps = Cast <to: int = @stash_type> (eps_f32)
    variance = Add (mean_square, eps)
    deviation = Sqrt (variance)
    normalised = Div (centred, deviation)
    channels = Shape (scale)
    by_channel = Concat <axis = 0> (same, channels, rest)
    rows = Reshape (normalised, by_channel)
    rounded = Cast <to: int = @scale_type> (rows)
    second = Constant <value_ints = [1]> ()
    wide_scale = Cast <to: int = @scale_type> (scale)
    scale_column = Unsqueeze (wide_scale, second)
    scaled = Mul (rounded, scale_column)
    wide_bias = Cast <to: int = @scale_type> (bias)
    bias_column = Unsqueeze (wide_bias, second)
    shifted = Add (scaled, bias_column)
    shape = Shape (x)
    original = Reshape (shifted, shape)
    y = CastLike (original, x)
  })";
constexpr const char* kGeGluBody = R"(
  <domain: "liger", opset_import: ["": 18]>
  LigerGeGLU <approximate, limit, up_offset, packed, stash_type> (gate, up) => (y) {
    wide = Cast <to: int = @stash_type> (gate)
    square = Mul (wide, wide)
    cube = Mul (square, wide)
    a_f64 = Constant <value = double {0.044715}> ()
    a = Cast <to: int = @stash_type> (a_f64)
    b_f64 = Constant <value = double {0.7978845608028654}> ()
    b = Cast <to: int = @stash_type> (b_f64)
    one_f64 = Constant <value = double {1.0}> ()
    one = Cast <to: int = @stash_type> (one_f64)
    half_f64 = Constant <value = double {0.5}> ()
    half = Cast <to: int = @stash_type> (half_f64)
    bent = Mul (a, cube)
    sum = Add (wide, bent)
    inner = Mul (b, sum)
    tanh = Tanh (inner)
    gain = Add (one, tanh)
    halved = Mul (half, wide)
    gelu = Mul (halved, gain)
    activated = CastLike (gelu, gate)
    y = Mul (activated, up)
  })";
constexpr const char* kExactGeGluBody = R"(
  <domain: "liger", opset_import: ["": 18]>
  LigerGeGLU <approximate, limit, up_offset, packed, stash_type> (gate, up) => (y) {
    wide = Cast <to: int = @stash_type> (gate)
    root_f64 = Constant <value = double {1.4142135623730951}> ()
    root = Cast <to: int = @stash_type> (root_f64)
    one_f64 = Constant <value = double {1.0}> ()
    one = Cast <to: int = @stash_type> (one_f64)
    half_f64 = Constant <value = double {0.5}> ()
    half = Cast <to: int = @stash_type> (half_f64)
    inner = Div (wide, root)
    erf = Erf (inner)
    gain = Add (one, erf)
    halved = Mul (half, wide)
    gelu = Mul (halved, gain)
    activated = CastLike (gelu, gate)
    y = Mul (activated, up)
  })";
constexpr const char* kSigmoidGeGluBody = R"(
  <domain: "liger", opset_import: ["": 18]>
  LigerGeGLU <approximate, limit, up_offset, packed, stash_type> (gate) => (y) {
    two = Constant <value_ints = [2]> ()
    zero = Constant <value_ints = [0]> ()
    one = Constant <value_ints = [1]> ()
    last = Constant <value_ints = [-1]> ()
    end = Constant <value_ints = [1000000]> ()
    g = Slice (gate, zero, end, last, two)
    u = Slice (gate, one, end, last, two)
    limit_f32 = Constant <value_float: float = @limit> ()
    most = CastLike (limit_f32, gate)
    least = Neg (most)
    offset_f32 = Constant <value_float: float = @up_offset> ()
    offset = CastLike (offset_f32, gate)
    g_limited = Min (g, most)
    u_below = Min (u, most)
    u_limited = Max (u_below, least)
    wide = Cast <to: int = @stash_type> (g_limited)
    alpha_f64 = Constant <value = double {1.702}> ()
    alpha = Cast <to: int = @stash_type> (alpha_f64)
    scaled = Mul (alpha, wide)
    sigmoid = Sigmoid (scaled)
    gelu = Mul (wide, sigmoid)
    activated = CastLike (gelu, gate)
    shifted = Add (u_limited, offset)
    y = Mul (activated, shifted)
  })";
constexpr const char* kSoftmaxBody = R"(
  <domain: "liger", opset_import: ["": 18]>
  LigerSoftmax <stash_type> (x) => (y) {
    wide = Cast <to: int = @stash_type> (x)
    share = Softmax <axis = -1> (wide)
    y = CastLike (share, x)
  })";

std::string GeGluNode(const char* base, const char* form, const char* packing, bool limited) {
  std::string text = Replace(base, "\"tanh\"", "\"" + std::string(form) + "\"");
  if (std::string(packing) != "none") {
    text = Replace(text, "\"gate_up\"", "\"" + std::string(packing) + "\"");
  }
  if (limited) {
    text = Replace(text, "limit: float = 0.0", "limit: float = 1.5");
    text = Replace(text, "up_offset: float = 0.0", "up_offset: float = 1.0");
  }
  return text;
}

TEST_F(OrtLibrary, ComputesWhatTheBodiesDo) {
  const std::string exact = GeGluNode(kGeGlu, "none", "none", false);
  const std::string sigmoid = GeGluNode(kPackedGeGlu, "sigmoid", "interleaved", true);
  const std::map<std::string, std::vector<int64_t>> norm = {
      {"x", {2, 3, 48}}, {"scale", {48}}, {"bias", {48}}};
  std::map<std::string, std::vector<int64_t>> add_norm = norm;
  add_norm["residual"] = {2, 3, 48};
  const Body bodies[] = {
      {kLayerNorm, kLayerNormBody, norm},
      {kAddLayerNorm, kAddLayerNormBody, add_norm},
      {kGroupNorm, kGroupNormBody, {{"x", {2, 6, 4, 5}}, {"scale", {6}}, {"bias", {6}}}},
      {kGeGlu, kGeGluBody, {{"gate", {5, 40}}, {"up", {5, 40}}}},
      {exact.c_str(), kExactGeGluBody, {{"gate", {5, 40}}, {"up", {5, 40}}}, false},
      {sigmoid.c_str(), kSigmoidGeGluBody, {{"gate", {5, 80}}}},
      {kSoftmax, kSoftmaxBody, {{"x", {3, 4, 50}}}},
  };
  struct Types {
    DType t, s;
    double tolerance;  // relative L2: the roundings of the body, in half types of each of its nodes
  };
  const Types types[] = {{DType::kF32, DType::kF32, 1e-6},
                         {DType::kF64, DType::kF64, 1e-14},
                         {DType::kF16, DType::kF32, 2e-3},
                         {DType::kF16, DType::kF16, 5e-3}};
  for (const Body& body : bodies) {
    for (const Types& type : types) {
      if (type.t == DType::kF64 && !body.f64) continue;
      SCOPED_TRACE(std::string(body.node) + std::string(DTypeName(type.t)));
      NamedTensors inputs;
      uint32_t seed = 1;
      for (const auto& [name, shape] : body.inputs) {
        const bool is_parameter = name == "scale" || name == "bias";
        inputs[name] = RandomTensor(is_parameter ? type.s : type.t, shape, seed++, 1.5);
      }
      const onnx::ModelProto model =
          Model(Instantiate(body.node, type.t, type.s) + std::string(body.function));
      const NamedTensors with = MustRun(model, inputs), without = MustRun(model, inputs, {});
      ASSERT_EQ(with.size(), without.size());
      for (const auto& [name, expected] : without) {
        const std::vector<double> a = Get(with, name).ToDoubles(), b = expected.ToDoubles();
        ASSERT_EQ(a.size(), b.size());
        double difference = 0, size = 0;
        for (size_t i = 0; i < a.size(); ++i) {
          difference += (a[i] - b[i]) * (a[i] - b[i]);
          size += b[i] * b[i];
        }
        EXPECT_LE(std::sqrt(difference), type.tolerance * std::sqrt(size)) << name;
        EXPECT_GT(size, 0) << name;
      }
    }
  }
}

TEST_F(OrtLibrary, KernelsTreatSpecialValuesAsTheBodiesDo) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double inf = std::numeric_limits<double>::infinity();
  const std::vector<double> gates = {0.0, -0.0, nan, inf, -inf, 20, -20, 88, -88, 1e4, -1e4};
  const int64_t size = static_cast<int64_t>(gates.size());
  const Tensor gate = Tensor::FromDoubles(DType::kF32, {1, size}, gates);
  const Tensor up = RandomTensor(DType::kF32, {1, size}, 1);
  std::vector<double> rows = RandomNormals(static_cast<size_t>(5 * size), 2);
  for (size_t i = 0; i < static_cast<size_t>(size); ++i) rows[i] = -inf;
  rows[static_cast<size_t>(size) + 2] = nan;
  rows[static_cast<size_t>(2 * size) + 3] = inf;
  rows[static_cast<size_t>(3 * size) + 4] = -inf;
  const Tensor x = Tensor::FromDoubles(DType::kF32, {1, 5, size}, rows);
  const std::string exact = GeGluNode(kGeGlu, "none", "none", false);
  const struct {
    std::string node;
    const char* function;
    NamedTensors inputs;
  } cases[] = {
      {kGeGlu, kGeGluBody, {{"gate", gate}, {"up", up}}},
      {exact, kExactGeGluBody, {{"gate", gate}, {"up", up}}},
      {kSoftmax, kSoftmaxBody, {{"x", x}}},
      {kLayerNorm,
       kLayerNormBody,
       {{"x", x},
        {"scale", RandomTensor(DType::kF32, {size}, 3)},
        {"bias", RandomTensor(DType::kF32, {size}, 4)}}},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.node);
    const onnx::ModelProto model =
        Model(Instantiate(c.node, DType::kF32, DType::kF32) + std::string(c.function));
    const std::vector<double> with = Get(MustRun(model, c.inputs), "y").ToDoubles();
    const std::vector<double> without = Get(MustRun(model, c.inputs, {}), "y").ToDoubles();
    ASSERT_EQ(with.size(), without.size());
    for (size_t i = 0; i < with.size(); ++i) {
      if (std::isfinite(without[i])) {
        EXPECT_NEAR(with[i], without[i], 1e-5 * std::max(1.0, std::abs(without[i]))) << i;
      } else if (std::isnan(without[i])) {
        EXPECT_TRUE(std::isnan(with[i])) << i << ": " << with[i];
      } else {
        EXPECT_EQ(with[i], without[i]) << i;
      }
    }
  }
}

// Inference, options, errors.

TEST_F(OrtLibrary, InfersShapesOfTheNormsGatesAndSoftmax) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kF64}) {
    SCOPED_TRACE(DTypeName(dtype));
    const auto dims = [&](const char* text) {
      return InferredDims(Model(Instantiate(text, dtype, dtype)));
    };
    EXPECT_EQ(dims(kLayerNorm), (std::vector<Dims>{{"N", "M", "H"}}));
    EXPECT_EQ(dims(kAddLayerNorm), (std::vector<Dims>{{"N", "M", "H"}, {"N", "M", "H"}}));
    EXPECT_EQ(dims(kGroupNorm), (std::vector<Dims>{{"N", "C", "H", "W"}}));
    EXPECT_EQ(dims(kSoftmax), (std::vector<Dims>{{"N", "M", "W"}}));
    EXPECT_EQ(dims(kGeGlu), (std::vector<Dims>{{"N", "W"}}));
    onnx::ModelProto packed = Model(Instantiate(kPackedGeGlu, dtype, dtype));
    auto* type = packed.mutable_graph()->mutable_input(0)->mutable_type()->mutable_tensor_type();
    type->mutable_shape()->mutable_dim(1)->set_dim_value(34);
    EXPECT_EQ(InferredDims(packed), (std::vector<Dims>{{"N", "17"}}));
  }
}

// Each op of the contract can be switched off; its body then adds 1000 to the first input.
TEST_F(OrtLibrary, EveryOpCanBeDisabled) {
  const struct {
    const char* op_type;
    const char* node;
    const char* signature;  // of the body
    std::map<std::string, std::vector<int64_t>> inputs;
  } cases[] = {
      {"LigerLayerNorm",
       kLayerNorm,
       "LigerLayerNorm <epsilon, stash_type, scale_type> (x, scale, bias) => (y)",
       {{"x", {1, 2, 4}}, {"scale", {4}}, {"bias", {4}}}},
      {"LigerAddLayerNorm",
       kAddLayerNorm,
       "LigerAddLayerNorm <epsilon, stash_type, scale_type> (x, residual, scale, bias) => (y, sum)",
       {{"x", {1, 2, 4}}, {"residual", {1, 2, 4}}, {"scale", {4}}, {"bias", {4}}}},
      {"LigerGroupNorm",
       kGroupNorm,
       "LigerGroupNorm <num_groups, epsilon, stash_type, scale_type> (x, scale, bias) => (y)",
       {{"x", {1, 3, 2, 2}}, {"scale", {3}}, {"bias", {3}}}},
      {"LigerGeGLU",
       kGeGlu,
       "LigerGeGLU <approximate, limit, up_offset, packed, stash_type> (x, up) => (y)",
       {{"gate", {1, 4}}, {"up", {1, 4}}}},
      {"LigerSoftmax", kSoftmax, "LigerSoftmax <stash_type> (x) => (y)", {{"x", {1, 2, 4}}}},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.op_type);
    const std::string sum =
        std::string(c.signature).find("sum") == std::string::npos ? "" : "sum = Add(x, thousand)\n";
    const onnx::ModelProto model =
        Model(Instantiate(c.node, DType::kF32, DType::kF32) +
              "\n<domain: \"liger\", opset_import: [\"\": 18]>\n" + c.signature + " {\n" +
              "thousand = Constant <value: tensor = float {1000.0}> ()\ny = Add(x, thousand)\n" +
              sum + "}");
    NamedTensors inputs;
    for (const auto& [name, shape] : c.inputs) inputs[name] = RandomTensor(DType::kF32, shape, 1);
    const auto first = [&](const SessionConfig& config) {
      return Get(MustRun(model, inputs, config), "y").ToDoubles().at(0);
    };
    SessionConfig disabled = WithLibrary();
    disabled.entries["liger.disable"] = c.op_type;
    EXPECT_LT(std::abs(first(WithLibrary())), 100);
    EXPECT_GT(first(disabled), 900);
    EXPECT_LT(std::abs(first(WithLibrary())), 100);
  }
}

TEST_F(OrtLibrary, NormsGatesAndSoftmaxAcceptEmptyTensors) {
  const auto empty = [](std::vector<int64_t> shape) {
    return Tensor{DType::kF32, std::move(shape), {}};
  };
  const auto shape_of = [](const char* text, const NamedTensors& inputs) {
    return Get(MustRun(Model(Instantiate(text, DType::kF32, DType::kF32)), inputs), "y").shape;
  };
  const Tensor row = RandomTensor(DType::kF32, {8}, 1),
               channels = RandomTensor(DType::kF32, {6}, 1);
  using Shape = std::vector<int64_t>;
  EXPECT_EQ(shape_of(kLayerNorm, {{"x", empty({2, 0, 8})}, {"scale", row}, {"bias", row}}),
            (Shape{2, 0, 8}));
  EXPECT_EQ(
      shape_of(kGroupNorm, {{"x", empty({2, 6, 0, 3})}, {"scale", channels}, {"bias", channels}}),
      (Shape{2, 6, 0, 3}));
  EXPECT_EQ(shape_of(kPackedGeGlu, {{"gate", empty({0, 8})}}), (Shape{0, 4}));
  EXPECT_EQ(shape_of(kSoftmax, {{"x", empty({2, 3, 0})}}), (Shape{2, 3, 0}));
}

TEST_F(OrtLibrary, NormsGatesAndSoftmaxGiveTheSameBitsOnSeveralThreads) {
  SessionConfig threaded = WithLibrary();
  threaded.threads = 3;
  const auto expect_same = [&](const char* text, DType dtype, const NamedTensors& inputs) {
    SCOPED_TRACE(text);
    const onnx::ModelProto model = Model(Instantiate(text, dtype, dtype));
    EXPECT_EQ(Get(MustRun(model, inputs), "y").bytes,
              Get(MustRun(model, inputs, threaded), "y").bytes);
  };
  const Tensor wide = RandomTensor(DType::kF32, {1, 300, 513}, 1);
  const Tensor row = RandomTensor(DType::kF32, {513}, 2);
  expect_same(kLayerNorm, DType::kF32, {{"x", wide}, {"scale", row}, {"bias", row}});
  expect_same(kSoftmax, DType::kF32, {{"x", wide}});
  const Tensor channels = RandomTensor(DType::kF32, {48}, 3);
  expect_same(kGroupNorm, DType::kF32,
              {{"x", RandomTensor(DType::kF32, {3, 48, 31, 17}, 4)},
               {"scale", channels},
               {"bias", channels}});
  expect_same(kGeGlu, DType::kF16,
              {{"gate", RandomTensor(DType::kF16, {7, 10001}, 5)},
               {"up", RandomTensor(DType::kF16, {7, 10001}, 6)}});
}

TEST_F(OrtLibrary, NamesWrongAttributesOfTheNormsGatesAndSoftmax) {
  const BadAttribute cases[] = {
      {kLayerNorm, "epsilon: float = 1e-6", "epsilon: float = -1.0",
       "attribute 'epsilon' is negative"},
      {kLayerNorm, "scale_type: int = 1", "scale_type: int = 7", "attribute 'scale_type' is 7"},
      {kAddLayerNorm, "stash_type: int = 1,", "",
       "attribute 'stash_type' is missing or not an int"},
      {kGroupNorm, "num_groups: int = 3", "num_groups: int = 0",
       "attribute 'num_groups' is 0, expected at least 1"},
      {kGroupNorm, "epsilon: float = 1e-6, ", "", "attribute 'epsilon' is missing or not a float"},
      {kGeGlu, "\"tanh\"", "\"erf\"",
       "attribute 'approximate' is 'erf', expected one of tanh, none, sigmoid"},
      {kGeGlu, "limit: float = 0.0", "limit: float = -2.0", "attribute 'limit' is negative"},
      {kPackedGeGlu, "\"gate_up\"", "\"both\"",
       "attribute 'packed' is 'both', expected one of none, gate_up, up_gate, interleaved"},
      {kSoftmax, "stash_type: int = 1", "stash_type: int = 6", "attribute 'stash_type' is 6"},
  };
  ExpectBadAttributes(cases);
}

TEST_F(OrtLibrary, NamesWrongShapesOfTheNormsAndGates) {
  const BadShapes cases[] = {
      {kLayerNorm,
       {{"x", {1, 2, 8}}, {"scale", {9}}, {"bias", {8}}},
       "LigerLayerNorm (node 'n1'): input 'scale' has shape [9], expected [8], the last dimension "
       "of 'x', [1,2,8]"},
      {kLayerNorm,
       {{"x", {1, 2, 8}}, {"scale", {8}}, {"bias", {1}}},
       "LigerLayerNorm (node 'n1'): input 'bias' has shape [1], expected [8]"},
      {kAddLayerNorm,
       {{"x", {1, 2, 8}}, {"residual", {1, 1, 8}}, {"scale", {8}}, {"bias", {8}}},
       "LigerAddLayerNorm (node 'n1'): input 'residual' has shape [1,1,8], expected that of 'x', "
       "[1,2,8]"},
      {kGroupNorm,
       {{"x", {1, 8, 2, 2}}, {"scale", {8}}, {"bias", {8}}},
       "LigerGroupNorm (node 'n1'): input 'x' has shape [1,8,2,2], whose 8 channels are no "
       "multiple of 3 groups"},
      {kGroupNorm,
       {{"x", {1, 6, 2, 2}}, {"scale", {6}}, {"bias", {2}}},
       "LigerGroupNorm (node 'n1'): input 'bias' has shape [2], expected [6], the channels of 'x'"},
      {kGeGlu,
       {{"gate", {2, 8}}, {"up", {2, 9}}},
       "LigerGeGLU (node 'n1'): input 'up' has shape [2,9], expected that of 'gate', [2,8]"},
      {kPackedGeGlu,
       {{"gate", {2, 7}}},
       "LigerGeGLU (node 'n1'): input 'gate' has shape [2,7], expected an even last dimension"},
  };
  ExpectBadShapes(cases);
}

}  // namespace
}  // namespace liger::test
