#include "liger/layer_norm.h"

#include <gtest/gtest.h>

#include <limits>

#include "kernel_test.h"
#include "oracle.h"

namespace liger::test {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

struct Case {
  Tensor x;
  std::optional<Tensor> residual, scale, bias;
  LayerNormOptions options;
  DType scale_dtype = DType::kF32;  // of scale and bias
  DType stash_type = DType::kF32;
  bool wants_sum = false;
};

struct Output {
  Tensor y;
  std::optional<Tensor> sum;
};

// All rows by two calls, so that ranges are exercised.
Output RunOn(const cpu::KernelTable& table, const Case& c) {
  Buffer x(c.x), y(c.x.dtype, c.x.shape);
  std::optional<Buffer> residual, scale, bias, sum;
  if (c.residual) residual.emplace(*c.residual);
  if (c.scale) scale.emplace(*c.scale);
  if (c.bias) bias.emplace(*c.bias);
  if (c.wants_sum) sum.emplace(c.x.dtype, c.x.shape);
  LigerLayerNormArgs args{};
  args.x = x.data();
  args.residual = residual ? residual->data() : nullptr;
  args.scale = scale ? scale->data() : nullptr;
  args.bias = bias ? bias->data() : nullptr;
  args.y = y.data();
  args.sum = sum ? sum->data() : nullptr;
  args.hidden_size = c.x.shape.back();
  args.rows = 1;
  for (size_t i = 0; i + 1 < c.x.shape.size(); ++i) args.rows *= c.x.shape[i];
  args.dtype = static_cast<int32_t>(c.x.dtype);
  args.scale_dtype = static_cast<int32_t>(c.scale_dtype);
  args.stash_type = static_cast<int32_t>(c.stash_type);
  args.scale_type = static_cast<int32_t>(c.options.scale_type);
  args.epsilon = c.options.epsilon;
  table.layer_norm(args, 0, args.rows / 2);
  table.layer_norm(args, args.rows / 2, args.rows);
  Output output{y.Read(), {}};
  if (sum) output.sum = sum->Read();
  return output;
}

void ExpectOracle(const Case& c) {
  const RmsNormResult expected = OracleLayerNorm(c.x, c.residual, c.scale, c.bias, c.options);
  ForEachTable([&](const cpu::KernelTable& table) {
    const Output output = RunOn(table, c);
    ExpectMatches(output.y, expected.y, static_cast<size_t>(c.x.shape.back()));
    if (c.wants_sum) {
      EXPECT_EQ(output.sum->ToDoubles(), expected.sum);
    }
  });
}

struct Types {
  DType dtype;
  DType scale_dtype;
  DType stash_type;
  DType scale_type;
};

constexpr Types kTypes[] = {
    {DType::kF32, DType::kF32, DType::kF32, DType::kF32},
    {DType::kF32, DType::kF32, DType::kF64, DType::kF32},
    {DType::kF32, DType::kF32, DType::kF64, DType::kF64},
    {DType::kF16, DType::kF16, DType::kF32, DType::kF16},
    {DType::kF16, DType::kF16, DType::kF32, DType::kF32},
    {DType::kF16, DType::kF16, DType::kF16, DType::kF16},
    {DType::kF16, DType::kF32, DType::kF32, DType::kF32},
    {DType::kF16, DType::kF32, DType::kF32, DType::kF16},
    {DType::kF16, DType::kF16, DType::kF64, DType::kF16},
    {DType::kBF16, DType::kBF16, DType::kF32, DType::kBF16},
    {DType::kBF16, DType::kBF16, DType::kF32, DType::kF32},
    {DType::kBF16, DType::kBF16, DType::kBF16, DType::kBF16},
    {DType::kBF16, DType::kF32, DType::kF32, DType::kF32},
    {DType::kBF16, DType::kF32, DType::kF32, DType::kBF16},
    {DType::kBF16, DType::kBF16, DType::kF64, DType::kBF16},
    {DType::kF64, DType::kF64, DType::kF64, DType::kF64},
    {DType::kF64, DType::kF32, DType::kF64, DType::kF64},
    {DType::kF64, DType::kF32, DType::kF32, DType::kF32},
};

constexpr int64_t kHiddenSizes[] = {1,  2,  3,  5,  7,   8,   9,    15,   16,
                                    17, 31, 33, 64, 100, 128, 2048, 2049, 4101};

std::string Describe(const Types& types, int64_t hidden_size) {
  const auto name = [](DType dtype) { return std::string(DTypeName(dtype)); };
  return "dtype " + name(types.dtype) + ", scale " + name(types.scale_dtype) + ", stash " +
         name(types.stash_type) + ", scale type " + name(types.scale_type) + ", hidden size " +
         std::to_string(hidden_size);
}

Case MakeCase(const Types& types, int64_t rows, int64_t hidden_size) {
  Case c;
  c.x = RandomTensor(types.dtype, {rows, hidden_size}, 1);
  c.scale = RandomTensor(types.scale_dtype, {hidden_size}, 2);
  c.bias = RandomTensor(types.scale_dtype, {hidden_size}, 3);
  c.scale_dtype = types.scale_dtype;
  c.stash_type = types.stash_type;
  c.options.scale_type = types.scale_type;
  return c;
}

TEST(LayerNorm, MatchesOracleForEveryTypeAndSize) {
  for (const Types& types : kTypes) {
    for (const int64_t hidden_size : kHiddenSizes) {
      SCOPED_TRACE(Describe(types, hidden_size));
      ExpectOracle(MakeCase(types, 3, hidden_size));
    }
  }
}

// Widths at which a kernel may change its way of working, for few rows and for many.
TEST(LayerNorm, MatchesOracleForWideRows) {
  for (const int i : {0, 4, 10}) {
    const Types& types = kTypes[i];
    for (const int64_t hidden_size :
         {127,  256,  264,  1000,  1024,  1032,  2048,  2056,  4095,  4096,  4104,
          5120, 8192, 8200, 12288, 16384, 32768, 32776, 40000, 65536, 65544, 131080}) {
      for (const int64_t rows : {1, 3, 300}) {
        const bool is_usual = hidden_size == 1024 || hidden_size == 2048 || hidden_size == 4096;
        if (rows > 3 && !is_usual) continue;  // to save time
        SCOPED_TRACE(Describe(types, hidden_size) + " rows " + std::to_string(rows));
        Case c = MakeCase(types, rows, hidden_size);
        ExpectOracle(c);
        c.residual = RandomTensor(types.dtype, {rows, hidden_size}, 3);
        c.wants_sum = true;
        ExpectOracle(c);
      }
    }
  }
}

// An outlier must cost the others no precision, wherever it stands.
TEST(LayerNorm, MatchesOracleBesideAnOutlier) {
  for (const int i : {0, 4, 10}) {
    const Types& types = kTypes[i];
    for (const int64_t hidden_size : {128, 1000, 4096, 8192, 40000}) {
      for (const int64_t at : {int64_t{0}, hidden_size / 2, hidden_size - 1}) {
        for (const double outlier : {1000.0, -30000.0}) {
          SCOPED_TRACE(Describe(types, hidden_size) + " outlier at " + std::to_string(at));
          Case c = MakeCase(types, 2, hidden_size);
          std::vector<double> values = c.x.ToDoubles();
          values[static_cast<size_t>(at)] = outlier;
          c.x = Tensor::FromDoubles(types.dtype, c.x.shape, values);
          ExpectOracle(c);
        }
      }
    }
  }
}

TEST(LayerNorm, WorksWithoutScaleOrBias) {
  for (const Types& types : kTypes) {
    for (const int64_t hidden_size : {1, 17, 128}) {
      for (int present = 0; present < 3; ++present) {
        SCOPED_TRACE(Describe(types, hidden_size) + " present " + std::to_string(present));
        Case c = MakeCase(types, 2, hidden_size);
        if ((present & 1) == 0) c.scale.reset();
        if ((present & 2) == 0) c.bias.reset();
        ExpectOracle(c);
      }
    }
  }
}

TEST(LayerNorm, NormalisesTheRoundedSum) {
  for (const Types& types : kTypes) {
    for (const int64_t hidden_size : kHiddenSizes) {
      for (const bool wants_sum : {true, false}) {
        SCOPED_TRACE(Describe(types, hidden_size) + (wants_sum ? ", sum wanted" : ""));
        Case c = MakeCase(types, 3, hidden_size);
        c.residual = RandomTensor(types.dtype, {3, hidden_size}, 4, 10);
        c.wants_sum = wants_sum;
        ExpectOracle(c);
      }
    }
  }
}

// Where the mean is a number of few bits and the variance a power of 4, every step is exact but the
// stated roundings.
TEST(LayerNorm, EqualsOracleWhereStatisticsAreExact) {
  std::vector<Types> all(std::begin(kTypes), std::end(kTypes));
  // A residual stream in f32 with products in a half type.
  all.push_back({DType::kF32, DType::kF32, DType::kF32, DType::kF16});
  all.push_back({DType::kF32, DType::kF32, DType::kF32, DType::kBF16});
  for (const Types& types : all) {
    SCOPED_TRACE(Describe(types, 64));
    Case c = MakeCase(types, 2, 64);
    std::vector<double> values(128);
    for (size_t i = 0; i < values.size(); ++i) values[i] = i % 2 == 0 ? -1 : 7;
    c.x = Tensor::FromDoubles(types.dtype, {2, 64}, values);
    c.options.epsilon = 0;
    const RmsNormResult expected = OracleLayerNorm(c.x, {}, c.scale, c.bias, c.options);
    ForEachTable([&](const cpu::KernelTable& table) {
      EXPECT_EQ(RunOn(table, c).y.ToDoubles(), expected.y);
    });
  }
}

// f32 would lose the mean of such rows: its rounding alone is as large as 1e-4 of the deviation.
TEST(LayerNorm, KeepsPrecisionUnderACommonOffset) {
  for (const Types& types : kTypes) {
    if (DTypeSize(types.dtype) == 2) continue;
    for (const double offset : {100.0, -3000.0, 40000.0}) {
      for (const int64_t hidden_size : {5, 64, 1023}) {
        SCOPED_TRACE(Describe(types, hidden_size) + " offset " + std::to_string(offset));
        Case c = MakeCase(types, 3, hidden_size);
        std::vector<double> values = c.x.ToDoubles();
        for (double& value : values) value += offset;
        c.x = Tensor::FromDoubles(types.dtype, {3, hidden_size}, values);
        ExpectOracle(c);
      }
    }
  }
}

TEST(LayerNorm, GivesTheBiasForARowOfEqualValues) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kF64}) {
    for (const int64_t hidden_size : {1, 3, 7, 50, 1000}) {
      Case c = MakeCase({dtype, dtype, DType::kF32, dtype}, 2, hidden_size);
      c.x = Tensor::FromDoubles(dtype, {2, hidden_size},
                                std::vector<double>(static_cast<size_t>(2 * hidden_size), 0.1));
      ForEachTable([&](const cpu::KernelTable& table) {
        const std::vector<double> y = RunOn(table, c).y.ToDoubles(), bias = c.bias->ToDoubles();
        for (size_t i = 0; i < y.size(); ++i) {
          ASSERT_EQ(y[i], bias[i % static_cast<size_t>(hidden_size)]) << DTypeName(dtype);
        }
      });
    }
  }
}

TEST(LayerNorm, DoesNotOverflowWhereHalfSquaresWould) {
  for (const DType scale_type : {DType::kF16, DType::kF32}) {
    Case c = MakeCase({DType::kF16, DType::kF16, DType::kF16, scale_type}, 2, 100);
    c.x = RandomTensor(DType::kF16, {2, 100}, 4, 12000);
    ExpectOracle(c);
  }
}

TEST(LayerNorm, KeepsNanAndInfInTheirRow) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kF64}) {
    for (const double special : {kNan, kInf, -kInf}) {
      for (const int64_t hidden_size : {7, 37, 130}) {
        SCOPED_TRACE(std::string(DTypeName(dtype)) + " " + std::to_string(special));
        Case c = MakeCase({dtype, dtype, DType::kF32, dtype}, 3, hidden_size);
        std::vector<double> values = c.x.ToDoubles();
        values[static_cast<size_t>(hidden_size + 5)] = special;
        c.x = Tensor::FromDoubles(dtype, {3, hidden_size}, values);
        ExpectOracle(c);
      }
    }
  }
}

TEST(LayerNorm, MatchesOracleForLargeTensors) {
  for (const Types& types : kTypes) {
    if (types.stash_type == DType::kF64 && types.dtype != DType::kF64) continue;  // to save time
    SCOPED_TRACE(Describe(types, 2053));
    const int64_t rows = (1 << 20) / (2053 * DTypeSize(types.dtype)) + 1;
    Case c = MakeCase(types, rows, 2053);
    ExpectOracle(c);
    c.residual = RandomTensor(types.dtype, {rows, 2053}, 3);
    ExpectOracle(c);
  }
}

TEST(LayerNorm, AcceptsEmptyTensors) {
  for (const Types& types : kTypes) {
    ExpectOracle(MakeCase(types, 0, 16));
    ExpectOracle(MakeCase(types, 4, 0));
  }
}

TEST(LayerNorm, MayWriteOverItsInputs) {
  for (const DType dtype : {DType::kF32, DType::kF16}) {
    const Tensor x = RandomTensor(dtype, {2, 37}, 1);
    const Tensor residual = RandomTensor(dtype, {2, 37}, 2);
    LayerNormOptions options;
    options.scale_type = dtype;
    const RmsNormResult expected = OracleLayerNorm(x, residual, {}, {}, options);
    ForEachTable([&](const cpu::KernelTable& table) {
      Buffer first(x), second(residual);
      LigerLayerNormArgs args{};
      args.x = args.y = first.data();
      args.residual = args.sum = second.data();
      args.rows = 2;
      args.hidden_size = 37;
      args.dtype = args.scale_dtype = args.scale_type = static_cast<int32_t>(dtype);
      args.stash_type = LIGER_F32;
      args.epsilon = options.epsilon;
      table.layer_norm(args, 0, 2);
      ExpectMatches(first.Read(), expected.y, 37);
      EXPECT_EQ(second.Read().ToDoubles(), expected.sum);
    });
  }
}

TEST(LayerNorm, RefusesBadArguments) {
  float x[4] = {1, 2, 3, 4}, scale[2] = {1, 1}, y[4] = {};
  LigerLayerNormArgs good{};
  good.x = x;
  good.scale = scale;
  good.y = y;
  good.rows = 2;
  good.hidden_size = 2;
  good.dtype = good.scale_dtype = good.stash_type = good.scale_type = LIGER_F32;
  EXPECT_EQ(LigerCpuLayerNorm(&good, 0, 2), LIGER_OK);
  EXPECT_EQ(LigerCpuLayerNorm(&good, 1, 1), LIGER_OK);
  const auto status = [&](auto change, int64_t begin = 0, int64_t end = 2) {
    LigerLayerNormArgs args = good;
    change(args);
    return LigerCpuLayerNorm(&args, begin, end);
  };
  const auto nothing = [](LigerLayerNormArgs&) {};
  EXPECT_EQ(status(nothing, 0, 3), LIGER_BAD_SHAPE);
  EXPECT_EQ(status(nothing, -1, 1), LIGER_BAD_SHAPE);
  EXPECT_EQ(status([](auto& a) { a.rows = -1; }), LIGER_BAD_SHAPE);
  EXPECT_EQ(status([](auto& a) { a.hidden_size = -1; }), LIGER_BAD_SHAPE);
  EXPECT_EQ(status([](auto& a) { a.dtype = 7; }), LIGER_BAD_DTYPE);
  EXPECT_EQ(status([](auto& a) { a.scale_dtype = LIGER_F16; }), LIGER_BAD_DTYPE);
  EXPECT_EQ(status([](auto& a) { a.stash_type = 0; }), LIGER_BAD_DTYPE);
  EXPECT_EQ(status([](auto& a) { a.y = nullptr; }), LIGER_BAD_ARGUMENT);
  EXPECT_EQ(status([](auto& a) { a.epsilon = -1; }), LIGER_BAD_ARGUMENT);
  EXPECT_EQ(status([&](auto& a) { a.sum = y; }), LIGER_BAD_ARGUMENT);
}

}  // namespace
}  // namespace liger::test
