// libliger_ort.so in ONNX Runtime: numbers, inference, options, errors.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <onnx/defs/parser.h>
#include <onnx/onnx_pb.h>
#include <onnxruntime_c_api.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

#include "kernel_test.h"
#include "library_testing.h"
#include "ops/op_contract.h"
#include "oracle.h"
#include "ort_session.h"

namespace liger::test {
namespace {

namespace fs = std::filesystem;

constexpr const char* kRmsNorm = R"(
  g (%T[N,M,H] x, %S[H] scale) => (%T[N,M,H] y) {
    y = liger.LigerRMSNorm <epsilon: float = 1e-6, offset: float = 1.0, stash_type: int = %stash,
                            scale_type: int = %stash> (x, scale)
  })";
constexpr const char* kAddRmsNorm = R"(
  g (%T[N,M,H] x, %T[N,M,H] residual, %S[H] scale) => (%T[N,M,H] y, %T[N,M,H] sum) {
    y, sum = liger.LigerAddRMSNorm <epsilon: float = 1e-6, offset: float = 0.0,
               stash_type: int = %stash, scale_type: int = %stash> (x, residual, scale)
  })";
constexpr const char* kRope = R"(
  g (%T[B,N,S,D] x, %S[S,D] cos, %S[S,D] sin, %T[B,K,S,D] second_x)
    => (%T[B,N,S,D] y, %T[B,K,S,D] second_y) {
    y, second_y = liger.LigerRope <interleaved: int = 0, rotary_dim: int = 0, rotary_offset: int = 0,
                    layout: string = "BNSD", table: string = "full", stash_type: int = %stash>
                    (x, cos, sin, second_x)
  })";
constexpr const char* kSwiGlu = R"(
  g (%T[N,W] gate, %T[N,W] up) => (%T[N,W] y) {
    y = liger.LigerSwiGLU <alpha: float = 1.0, gate_multiplier: float = 1.0, limit: float = 0.0,
          up_offset: float = 0.0, packed: string = "none", stash_type: int = %stash> (gate, up)
  })";
constexpr const char* kPackedSwiGlu = R"(
  g (%T[N,V] gate) => (%T[N,W] y) {
    y = liger.LigerSwiGLU <alpha: float = 1.0, gate_multiplier: float = 1.0, limit: float = 0.0,
          up_offset: float = 0.0, packed: string = "gate_up", stash_type: int = %stash> (gate)
  })";

TEST_F(OrtLibrary, RmsNormMatchesOracleForEveryTuple) {
  ForEachTuple("LigerRMSNorm", [](DType t, DType s) {
    const Tensor x = RandomTensor(t, {2, 3, 33}, 1), scale = RandomTensor(s, {33}, 2);
    const NamedTensors y =
        MustRun(Model(Instantiate(kRmsNorm, t, s)), {{"x", x}, {"scale", scale}});
    RmsNormOptions options;
    options.offset = 1;
    options.scale_type = s;
    ExpectMatches(Get(y, "y"), OracleRmsNorm(x, {}, scale, options).y, 33);
    EXPECT_EQ(Get(y, "y").shape, x.shape);
    EXPECT_EQ(Get(y, "y").dtype, t);
  });
}

TEST_F(OrtLibrary, AddRmsNormMatchesOracleForEveryTuple) {
  ForEachTuple("LigerAddRMSNorm", [](DType t, DType s) {
    const Tensor x = RandomTensor(t, {2, 3, 33}, 1), residual = RandomTensor(t, {2, 3, 33}, 2);
    const Tensor scale = RandomTensor(s, {33}, 3);
    const NamedTensors y = MustRun(Model(Instantiate(kAddRmsNorm, t, s)),
                                   {{"x", x}, {"residual", residual}, {"scale", scale}});
    RmsNormOptions options;
    options.scale_type = s;
    const RmsNormResult expected = OracleRmsNorm(x, residual, scale, options);
    ExpectMatches(Get(y, "y"), expected.y, 33);
    EXPECT_EQ(Get(y, "sum").ToDoubles(), expected.sum);
  });
}

TEST_F(OrtLibrary, RopeMatchesOracleForEveryTuple) {
  ForEachTuple("LigerRope", [](DType t, DType s) {
    const Tensor x = RandomTensor(t, {2, 3, 5, 8}, 1), second = RandomTensor(t, {2, 1, 5, 8}, 2);
    Tensor cos = RandomTensor(s, {5, 8}, 3), sin = RandomTensor(s, {5, 8}, 4);
    const NamedTensors y = MustRun(Model(Instantiate(kRope, t, s)),
                                   {{"x", x}, {"cos", cos}, {"sin", sin}, {"second_x", second}});
    RopeOptions options;
    options.rotary_dim = 8;
    cos.shape = sin.shape = {1, 5, 8};
    ExpectMatches(Get(y, "y"), OracleRope(x, cos, sin, options), 8);
    ExpectMatches(Get(y, "second_y"), OracleRope(second, cos, sin, options), 8);
  });
}

TEST_F(OrtLibrary, SwiGluMatchesOracleForEveryTuple) {
  ForEachTuple("LigerSwiGLU", [](DType t, DType s) {
    const Tensor gate = RandomTensor(t, {3, 34}, 1), up = RandomTensor(t, {3, 34}, 2);
    ExpectMatches(
        Get(MustRun(Model(Instantiate(kSwiGlu, t, s)), {{"gate", gate}, {"up", up}}), "y"),
        OracleSwiGlu(gate, up, {}), 34);
    SwiGluOptions options;
    options.packing = Packing::kGateUp;
    const Tensor y = Get(MustRun(Model(Instantiate(kPackedSwiGlu, t, s)), {{"gate", gate}}), "y");
    EXPECT_EQ(y.shape, (std::vector<int64_t>{3, 17}));
    ExpectMatches(y, OracleSwiGlu(gate, up, options), 17);
  });
}

struct TableShape {
  const char* layout;
  std::vector<int64_t> x;
  std::vector<int64_t> table;
};

// Which x and table shapes go together: the table as the graph has it against what the oracle is
// given.
TEST_F(OrtLibrary, RopeAcceptsTablesAsGraphsHaveThem) {
  const TableShape cases[] = {
      {"BNSD", {2, 3, 5, 8}, {5, 8}},       {"BNSD", {2, 3, 5, 8}, {1, 5, 8}},
      {"BNSD", {2, 3, 5, 8}, {1, 1, 5, 8}}, {"BNSD", {2, 3, 5, 8}, {2, 1, 5, 8}},
      {"BNSD", {2, 3, 5, 8}, {2, 1, 1, 8}}, {"BNSD", {2, 3, 5, 8}, {8}},
      {"BSND", {2, 5, 3, 8}, {5, 1, 8}},    {"BSND", {2, 5, 3, 8}, {1, 5, 1, 8}},
      {"BSND", {2, 5, 3, 8}, {2, 5, 1, 8}}, {"BSND", {2, 5, 3, 8}, {2, 1, 1, 8}},
      {"SND", {5, 3, 8}, {5, 1, 8}},        {"SND", {5, 3, 8}, {1, 1, 8}},
      {"SND", {5, 3, 8}, {1, 8}},
  };
  for (const TableShape& c : cases) {
    SCOPED_TRACE(std::string(c.layout) + " with " + std::to_string(c.table.size()) + " table dims");
    const std::string letters = "ABCD";
    std::string x_dims, table_dims;
    for (size_t i = 0; i < c.x.size(); ++i) x_dims += (i ? "," : "") + std::string(1, letters[i]);
    for (const int64_t dim : c.table)
      table_dims += (table_dims.empty() ? "" : ",") + std::to_string(dim);
    const onnx::ModelProto model =
        Model("g (float[" + x_dims + "] x, float[" + table_dims + "] cos, float[" + table_dims +
              "] sin) => (float[" + x_dims +
              "] y) { y = liger.LigerRope <interleaved: int = 0, rotary_dim: int = 0, "
              "rotary_offset: int = 0, "
              "layout: string = \"" +
              c.layout + "\", table: string = \"full\", stash_type: int = 1> (x, cos, sin) }");
    Tensor x = RandomTensor(DType::kF32, c.x, 1);
    Tensor cos = RandomTensor(DType::kF32, c.table, 2), sin = RandomTensor(DType::kF32, c.table, 3);
    const NamedTensors y = MustRun(model, {{"x", x}, {"cos", cos}, {"sin", sin}});

    RopeOptions options;
    options.rotary_dim = 8;
    options.heads_first = std::string(c.layout) == "BNSD";
    if (x.shape.size() == 3) x.shape.insert(x.shape.begin(), 1);
    std::vector<int64_t> table = c.table;
    while (table.size() < 4) table.insert(table.begin(), 1);
    cos.shape =
        sin.shape = {table[0], table[1] * table[2], table[3]};  // one of them is the heads' 1
    ExpectMatches(Get(y, "y"), OracleRope(x, cos, sin, options), 8);
  }
}

TEST_F(OrtLibrary, GivesTheSameBitsOnSeveralThreads) {
  const Tensor x = RandomTensor(DType::kF32, {1, 300, 513}, 1),
               scale = RandomTensor(DType::kF32, {513}, 2);
  const Tensor gate = RandomTensor(DType::kF16, {7, 10001}, 3),
               up = RandomTensor(DType::kF16, {7, 10001}, 4);
  const onnx::ModelProto norm = Model(Instantiate(kRmsNorm, DType::kF32, DType::kF32));
  const onnx::ModelProto gated = Model(Instantiate(kSwiGlu, DType::kF16, DType::kF16));
  SessionConfig threaded = WithLibrary();
  threaded.threads = 3;
  EXPECT_EQ(Get(MustRun(norm, {{"x", x}, {"scale", scale}}), "y").bytes,
            Get(MustRun(norm, {{"x", x}, {"scale", scale}}, threaded), "y").bytes);
  EXPECT_EQ(Get(MustRun(gated, {{"gate", gate}, {"up", up}}), "y").bytes,
            Get(MustRun(gated, {{"gate", gate}, {"up", up}}, threaded), "y").bytes);
}

TEST_F(OrtLibrary, OneSessionServesSeveralCallers) {
  Result<OrtSession> session = Load(Model(Instantiate(kRmsNorm, DType::kF32, DType::kF32)));
  ASSERT_TRUE(session) << session.error().message;
  const Tensor scale = RandomTensor(DType::kF32, {64}, 1);
  std::vector<std::thread> callers;
  std::vector<std::string> errors(4);
  for (size_t caller = 0; caller < errors.size(); ++caller) {
    callers.emplace_back([&, caller] {
      const int64_t rows = static_cast<int64_t>(caller) + 1;
      const Tensor x = RandomTensor(DType::kF32, {1, rows, 64}, 2);
      RmsNormOptions options;
      options.offset = 1;
      const std::vector<double> expected = OracleRmsNorm(x, {}, scale, options).y;
      for (int i = 0; i < 50; ++i) {
        Result<NamedTensors> y = session->Run({{"x", x}, {"scale", scale}});
        if (!y) {
          errors[caller] = y.error().message;
        } else {
          const std::vector<double> values = y->at("y").ToDoubles();
          for (size_t j = 0; j < values.size(); ++j) {
            if (!(std::abs(values[j] - expected[j]) <= 1e-5)) errors[caller] = "wrong values";
          }
        }
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  for (const std::string& error : errors) EXPECT_EQ(error, "");
}

TEST_F(OrtLibrary, AcceptsEmptyTensors) {
  const NamedTensors y = MustRun(
      Model(Instantiate(kRmsNorm, DType::kF16, DType::kF32)),
      {{"x", Tensor{DType::kF16, {2, 0, 8}, {}}}, {"scale", RandomTensor(DType::kF32, {8}, 1)}});
  EXPECT_EQ(Get(y, "y").shape, (std::vector<int64_t>{2, 0, 8}));
  const NamedTensors z = MustRun(Model(Instantiate(kPackedSwiGlu, DType::kF32, DType::kF32)),
                                 {{"gate", Tensor{DType::kF32, {0, 8}, {}}}});
  EXPECT_EQ(Get(z, "y").shape, (std::vector<int64_t>{0, 4}));
}

TEST_F(OrtLibrary, RmsNormWorksWithoutScale) {
  const onnx::ModelProto model = Model(R"(
    g (float[N,H] x) => (float[N,H] y) {
      y = liger.LigerRMSNorm <epsilon: float = 1e-6, offset: float = 0.0, stash_type: int = 1,
                              scale_type: int = 1> (x)
    })");
  const Tensor x = RandomTensor(DType::kF32, {3, 20}, 1);
  ExpectMatches(Get(MustRun(model, {{"x", x}}), "y"), OracleRmsNorm(x, {}, {}, {}).y, 20);
}

TEST_F(OrtLibrary, AddRmsNormWorksWhereNobodyReadsTheSum) {
  onnx::ModelProto model = Model(Instantiate(kAddRmsNorm, DType::kF32, DType::kF32));
  model.mutable_graph()->mutable_output()->RemoveLast();
  const Tensor x = RandomTensor(DType::kF32, {1, 2, 20}, 1);
  const Tensor residual = RandomTensor(DType::kF32, {1, 2, 20}, 2);
  const Tensor scale = RandomTensor(DType::kF32, {20}, 3);
  const NamedTensors y = MustRun(model, {{"x", x}, {"residual", residual}, {"scale", scale}});
  ExpectMatches(Get(y, "y"), OracleRmsNorm(x, residual, scale, {}).y, 20);
}

// Inference.

TEST_F(OrtLibrary, InfersSymbolicDimensionsForEveryDtype) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kF64}) {
    SCOPED_TRACE(DTypeName(dtype));
    EXPECT_EQ(InferredDims(Model(Instantiate(kRmsNorm, dtype, dtype))),
              (std::vector<Dims>{{"N", "M", "H"}}));
    EXPECT_EQ(InferredDims(Model(Instantiate(kAddRmsNorm, dtype, dtype))),
              (std::vector<Dims>{{"N", "M", "H"}, {"N", "M", "H"}}));
    // Older releases cannot be told the shape of an optional output (infer.h).
    const bool told = std::stoi(OrtVersion().substr(2)) >= 32;
    EXPECT_EQ(InferredDims(Model(Instantiate(kRope, dtype, dtype))),
              (std::vector<Dims>{{"B", "N", "S", "D"}, told ? Dims{"B", "K", "S", "D"} : Dims()}));
    EXPECT_EQ(InferredDims(Model(Instantiate(kSwiGlu, dtype, dtype))),
              (std::vector<Dims>{{"N", "W"}}));
    const std::vector<Dims> packed = InferredDims(Model(Instantiate(kPackedSwiGlu, dtype, dtype)));
    ASSERT_EQ(packed.size(), 1u);
    ASSERT_EQ(packed[0].size(), 2u);
    EXPECT_EQ(packed[0][0], "N");
    EXPECT_TRUE(packed[0][1].starts_with("liger_unknown_")) << packed[0][1];
  }
}

TEST_F(OrtLibrary, InfersHalfOfAKnownPackedWidth) {
  onnx::ModelProto model = Model(Instantiate(kPackedSwiGlu, DType::kF16, DType::kF16));
  model.mutable_graph()
      ->mutable_input(0)
      ->mutable_type()
      ->mutable_tensor_type()
      ->mutable_shape()
      ->mutable_dim(1)
      ->set_dim_value(34);
  EXPECT_EQ(InferredDims(model), (std::vector<Dims>{{"N", "17"}}));
}

// Of an unknown rank nothing may be claimed, and an unknown dimension without a name stays one: a
// later node must still load and run.
TEST_F(OrtLibrary, ClaimsNothingAboutUnknownShapes) {
  for (const bool known_rank : {false, true}) {
    onnx::ModelProto model = Model(R"(
      g (float[N,M,H] x, float[H] scale, float[8,2] weight) => (float[A,B,C] z) {
        y = liger.LigerRMSNorm <epsilon: float = 1e-6, offset: float = 0.0, stash_type: int = 1,
                                scale_type: int = 1> (x, scale)
        z = MatMul(y, weight)
      })");
    auto* type = model.mutable_graph()->mutable_input(0)->mutable_type()->mutable_tensor_type();
    if (known_rank) {
      for (auto& dim : *type->mutable_shape()->mutable_dim()) dim.Clear();
    } else {
      type->clear_shape();
    }
    const NamedTensors z = MustRun(model, {{"x", RandomTensor(DType::kF32, {2, 3, 8}, 1)},
                                           {"scale", RandomTensor(DType::kF32, {8}, 2)},
                                           {"weight", RandomTensor(DType::kF32, {8, 2}, 3)}});
    EXPECT_EQ(Get(z, "z").shape, (std::vector<int64_t>{2, 3, 2}));
  }
}

// Which implementation runs.

// A model whose function body adds 1000, so that one sees what ran.
onnx::ModelProto WithTellTaleBody() {
  return Model(R"(
    g (float[N,H] x, float[H] scale) => (float[N,H] y) {
      y = liger.LigerRMSNorm <epsilon: float = 1e-6, offset: float = 0.0, stash_type: int = 1,
                              scale_type: int = 1> (x, scale)
    }
    <domain: "liger", opset_import: ["": 18]>
    LigerRMSNorm <epsilon, offset, stash_type, scale_type> (x, scale) => (y) {
      thousand = Constant <value: tensor = float {1000.0}> ()
      y = Add(x, thousand)
    })");
}

const NamedTensors& SmallInputs() {
  static const NamedTensors inputs = {{"x", Tensor::FromDoubles(DType::kF32, {1, 2}, {1, 1})},
                                      {"scale", Tensor::FromDoubles(DType::kF32, {2}, {1, 1})}};
  return inputs;
}

TEST_F(OrtLibrary, KernelIsPreferredToTheBody) {
  SessionConfig without;
  EXPECT_EQ(Get(MustRun(WithTellTaleBody(), SmallInputs(), without), "y").ToDoubles(),
            (std::vector<double>{1001, 1001}));
  EXPECT_NEAR(Get(MustRun(WithTellTaleBody(), SmallInputs()), "y").ToDoubles()[0], 1, 1e-5);
}

TEST_F(OrtLibrary, DisabledOpFallsBackToTheBody) {
  SessionConfig config = WithLibrary();
  config.entries["liger.disable"] = " LigerRope ,LigerRMSNorm,";
  EXPECT_EQ(Get(MustRun(WithTellTaleBody(), SmallInputs(), config), "y").ToDoubles(),
            (std::vector<double>{1001, 1001}));
  // The other ops, and options made later, are not affected.
  config.entries["liger.disable"] = "LigerRope";
  EXPECT_NEAR(Get(MustRun(WithTellTaleBody(), SmallInputs(), config), "y").ToDoubles()[0], 1, 1e-5);
  EXPECT_NEAR(Get(MustRun(WithTellTaleBody(), SmallInputs()), "y").ToDoubles()[0], 1, 1e-5);
}

TEST_F(OrtLibrary, UnknownOpInDisableIsAnError) {
  SessionConfig config = WithLibrary();
  config.entries["liger.disable"] = "LigerRope,RMSNorm";
  Result<OrtSession> session = Load(WithTellTaleBody(), config);
  ASSERT_FALSE(session);
  EXPECT_NE(
      session.error().message.find("session config entry 'liger.disable': unknown op 'RMSNorm'"),
      std::string::npos)
      << session.error().message;
  EXPECT_NE(session.error().message.find("LigerRMSNorm, LigerRope"), std::string::npos);
}

TEST_F(OrtLibrary, ProfileNamesTheKernel) {
  const fs::path folder = fs::path(testing::TempDir()) / "liger_ort_profile";
  fs::create_directories(folder);
  SessionConfig config = WithLibrary();
  config.profile_prefix = (folder / "run").string();
  Result<OrtSession> session = Load(WithTellTaleBody(), config);
  ASSERT_TRUE(session) << session.error().message;
  ASSERT_TRUE(session->Run(SmallInputs()));
  Result<std::string> path = session->EndProfiling();
  ASSERT_TRUE(path) << path.error().message;
  std::ifstream in(*path);
  const std::string profile(std::istreambuf_iterator<char>(in), {});
  EXPECT_NE(profile.find("\"op_name\" : \"LigerRMSNorm\""), std::string::npos) << profile;
  fs::remove_all(folder);
}

// Errors.

TEST_F(OrtLibrary, NamesWrongAttributes) {
  const BadAttribute cases[] = {
      {kRmsNorm, "epsilon: float = 1e-6, ", "", "attribute 'epsilon' is missing or not a float"},
      {kRmsNorm, "epsilon: float = 1e-6", "epsilon: int = 1",
       "attribute 'epsilon' is missing or not a float"},
      {kRmsNorm, "epsilon: float = 1e-6", "epsilon: float = -1.0",
       "attribute 'epsilon' is negative"},
      {kRmsNorm, "scale_type: int = 1", "scale_type: int = 7",
       "attribute 'scale_type' is 7, expected a float type: 1 (f32), 10 (f16), 11 (f64) or 16 "
       "(bf16)"},
      {kRope, "layout: string = \"BNSD\"", "layout: string = \"BDNS\"",
       "attribute 'layout' is 'BDNS', expected one of BNSD, BSND, SND"},
      {kRope, "interleaved: int = 0", "interleaved: int = 2",
       "attribute 'interleaved' is 2, expected 0 or 1"},
      {kRope, "rotary_dim: int = 0", "rotary_dim: int = 3",
       "attribute 'rotary_dim' is 3, expected an even"},
      {kRope, "rotary_offset: int = 0", "rotary_offset: int = 4", "attribute 'rotary_offset' is 4"},
      {kSwiGlu, "limit: float = 0.0", "limit: float = -2.0", "attribute 'limit' is negative"},
      {kSwiGlu, "packed: string = \"none\"", "packed: string = \"up\"",
       "attribute 'packed' is 'up', expected one of none, gate_up, up_gate, interleaved"},
  };
  ExpectBadAttributes(cases);
}

TEST_F(OrtLibrary, AddRmsNormWantsTheSumNamed) {
  onnx::ModelProto model = Model(Instantiate(kAddRmsNorm, DType::kF32, DType::kF32));
  model.mutable_graph()->mutable_output()->RemoveLast();
  model.mutable_graph()->mutable_node(0)->mutable_output()->RemoveLast();
  EXPECT_FALSE(Load(model));
}

TEST_F(OrtLibrary, RopeWantsSecondInputAndOutputTogether) {
  for (const bool has_input : {true, false}) {
    onnx::ModelProto model = Model(Instantiate(kRope, DType::kF32, DType::kF32));
    if (has_input) {
      model.mutable_graph()->mutable_output()->RemoveLast();
      model.mutable_graph()->mutable_node(0)->mutable_output()->RemoveLast();
    } else {
      model.mutable_graph()->mutable_node(0)->mutable_input()->RemoveLast();
    }
    Result<OrtSession> session = Load(model);
    ASSERT_FALSE(session);
    EXPECT_NE(session.error().message.find(has_input ? "input 'second_x' but no output 'second_y'"
                                                     : "output 'second_y' but no input 'second_x'"),
              std::string::npos)
        << session.error().message;
  }
}

TEST_F(OrtLibrary, NamesWrongShapes) {
  const BadShapes cases[] = {
      {kRmsNorm,
       {{"x", {1, 2, 8}}, {"scale", {9}}},
       "LigerRMSNorm (node 'n1'): input 'scale' has shape [9], expected [8], the last dimension of "
       "'x', [1,2,8]"},
      {kAddRmsNorm,
       {{"x", {1, 2, 8}}, {"residual", {1, 1, 8}}, {"scale", {8}}},
       "LigerAddRMSNorm (node 'n1'): input 'residual' has shape [1,1,8], expected that of 'x', "
       "[1,2,8]"},
      {kRope,
       {{"x", {1, 2, 5, 8}}, {"second_x", {1, 1, 5, 8}}, {"cos", {4, 8}}, {"sin", {5, 8}}},
       "LigerRope (node 'n1'): input 'cos' has shape [4,8], which does not broadcast over the "
       "heads of 'x', "
       "[1,2,5,8], with rows of 8 values"},
      {kRope,
       {{"x", {1, 2, 5, 8}}, {"second_x", {1, 1, 5, 8}}, {"cos", {5, 8}}, {"sin", {5, 4}}},
       "LigerRope (node 'n1'): input 'sin' has shape [5,4]"},
      {kRope,
       {{"x", {1, 2, 5, 7}}, {"second_x", {1, 1, 5, 7}}, {"cos", {5, 7}}, {"sin", {5, 7}}},
       "cannot hold 7 rotated columns in pairs"},
      {kRope,
       {{"x", {1, 2, 5, 8}}, {"second_x", {1, 1, 4, 8}}, {"cos", {5, 8}}, {"sin", {5, 8}}},
       "LigerRope (node 'n1'): input 'second_x' has shape [1,1,4,8], which differs from that of "
       "'x', [1,2,5,8]"},
      {kSwiGlu,
       {{"gate", {2, 8}}, {"up", {2, 9}}},
       "LigerSwiGLU (node 'n1'): input 'up' has shape [2,9], expected that of 'gate', [2,8]"},
      {kPackedSwiGlu,
       {{"gate", {2, 7}}},
       "LigerSwiGLU (node 'n1'): input 'gate' has shape [2,7], expected an even last dimension"},
  };
  ExpectBadShapes(cases);
}

// Hosts.

// A host of another age: the real one behind an OrtApiBase that lies about its version.
template <uint32_t kNewestApi>
const OrtApiBase* HostOfApi() {
  static const std::string version = "1." + std::to_string(kNewestApi) + ".0";
  static const OrtApiBase base = {
      [](uint32_t wanted) noexcept -> const OrtApi* {
        return wanted <= kNewestApi ? OrtBase()->GetApi(wanted) : nullptr;
      },
      []() noexcept { return version.c_str(); },
  };
  return &base;
}

// Registers the library with `base` as its host; returns the error's text.
std::string RegisterWith(const OrtApiBase* base) {
  // The path is that of the sessions, hence the library is the same instance as theirs.
  void* library = dlopen(LigerLibraryPath().c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return dlerror();
  using RegisterFn = OrtStatus* (*)(OrtSessionOptions*, const OrtApiBase*);
  const auto register_ops = reinterpret_cast<RegisterFn>(dlsym(library, "RegisterCustomOps"));
  const OrtApi* api = OrtBase()->GetApi(ORT_API_VERSION);
  OrtSessionOptions* options = nullptr;
  OrtStatus* status = api->CreateSessionOptions(&options);
  if (status == nullptr) status = register_ops(options, base);
  std::string text;
  if (status != nullptr) {
    text = api->GetErrorMessage(status);
    api->ReleaseStatus(status);
  }
  api->ReleaseSessionOptions(options);
  dlclose(library);
  return text;
}

TEST_F(OrtLibrary, HostOlderThanTheHeadersIsAnError) {
  const std::string text = RegisterWith(HostOfApi<20>());
  EXPECT_NE(text.find("libliger_ort needs ONNX Runtime 1.21 or newer; this is 1.20.0"),
            std::string::npos)
      << text;
}

TEST_F(OrtLibrary, ReadsShapesByTheOldCallsOnOlderHosts) {
  Result<OrtSession> session = Load(Model(Instantiate(kRope, DType::kF32, DType::kF32)));
  ASSERT_TRUE(session) << session.error().message;
  NamedTensors inputs = {{"x", RandomTensor(DType::kF32, {2, 3, 5, 8}, 1)},
                         {"second_x", RandomTensor(DType::kF32, {2, 1, 5, 8}, 2)},
                         {"cos", RandomTensor(DType::kF32, {5, 8}, 3)},
                         {"sin", RandomTensor(DType::kF32, {5, 8}, 4)}};
  Result<NamedTensors> before = session->Run(inputs);
  EXPECT_EQ(RegisterWith(HostOfApi<23>()), "");
  Result<NamedTensors> after = session->Run(inputs);
  EXPECT_EQ(RegisterWith(OrtBase()), "");
  ASSERT_TRUE(before) << before.error().message;
  ASSERT_TRUE(after) << after.error().message;
  EXPECT_EQ(before->at("y").bytes, after->at("y").bytes);
  EXPECT_EQ(before->at("second_y").bytes, after->at("second_y").bytes);
}

}  // namespace
}  // namespace liger::test
