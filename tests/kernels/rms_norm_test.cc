#include "liger/rms_norm.h"

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
  std::optional<Tensor> residual;
  std::optional<Tensor> scale;
  RmsNormOptions options;
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
  std::optional<Buffer> residual, scale, sum;
  if (c.residual) residual.emplace(*c.residual);
  if (c.scale) scale.emplace(*c.scale);
  if (c.wants_sum) sum.emplace(c.x.dtype, c.x.shape);
  LigerRmsNormArgs args{};
  args.x = x.data();
  args.residual = residual ? residual->data() : nullptr;
  args.scale = scale ? scale->data() : nullptr;
  args.y = y.data();
  args.sum = sum ? sum->data() : nullptr;
  args.hidden_size = c.x.shape.back();
  args.rows = 1;
  for (size_t i = 0; i + 1 < c.x.shape.size(); ++i) args.rows *= c.x.shape[i];
  args.dtype = static_cast<int32_t>(c.x.dtype);
  args.scale_dtype = static_cast<int32_t>(c.scale ? c.scale->dtype : c.x.dtype);
  args.stash_type = static_cast<int32_t>(c.stash_type);
  args.scale_type = static_cast<int32_t>(c.options.scale_type);
  args.epsilon = c.options.epsilon;
  args.offset = c.options.offset;
  table.rms_norm(args, 0, args.rows / 2);
  table.rms_norm(args, args.rows / 2, args.rows);
  Output output{y.Read(), {}};
  if (sum) output.sum = sum->Read();
  return output;
}

void ExpectOracle(const Case& c) {
  const RmsNormResult expected = OracleRmsNorm(c.x, c.residual, c.scale, c.options);
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

// The casting modes of the families (llama: product in the dtype; gemma: in f32; none: all in the
// dtype), the mixed scale dtypes, and arithmetic in f64 around narrower data.
constexpr Types kTypes[] = {
    {DType::kF32, DType::kF32, DType::kF32, DType::kF32},
    {DType::kF32, DType::kF32, DType::kF64, DType::kF32},
    {DType::kF32, DType::kF32, DType::kF64, DType::kF64},
    {DType::kF16, DType::kF16, DType::kF32, DType::kF16},
    {DType::kF16, DType::kF16, DType::kF32, DType::kF32},
    {DType::kF16, DType::kF16, DType::kF16, DType::kF16},
    {DType::kF16, DType::kF32, DType::kF32, DType::kF32},
    {DType::kF16, DType::kF32, DType::kF32, DType::kF16},
    {DType::kF16, DType::kF16, DType::kF64, DType::kF64},
    {DType::kF16, DType::kF16, DType::kF64, DType::kF16},
    {DType::kF16, DType::kF16, DType::kF64, DType::kF32},
    {DType::kBF16, DType::kBF16, DType::kF32, DType::kBF16},
    {DType::kBF16, DType::kBF16, DType::kF32, DType::kF32},
    {DType::kBF16, DType::kBF16, DType::kBF16, DType::kBF16},
    {DType::kBF16, DType::kF32, DType::kF32, DType::kF32},
    {DType::kBF16, DType::kF32, DType::kF32, DType::kBF16},
    {DType::kBF16, DType::kBF16, DType::kF64, DType::kBF16},
    {DType::kF64, DType::kF64, DType::kF64, DType::kF64},
    {DType::kF64, DType::kF32, DType::kF64, DType::kF64},
    {DType::kF64, DType::kF32, DType::kF32, DType::kF32},
    {DType::kF64, DType::kF64, DType::kF64, DType::kF16},
};

constexpr int64_t kHiddenSizes[] = {1,  2,  3,  5,  7,   8,   9,    15,   16,
                                    17, 31, 33, 64, 100, 128, 2048, 2049, 4101};

std::string Describe(const Types& types, int64_t hidden_size) {
  const auto name = [](DType dtype) { return std::string(DTypeName(dtype)); };
  return "dtype " + name(types.dtype) + ", scale " + name(types.scale_dtype) + ", stash " +
         name(types.stash_type) + ", scale type " + name(types.scale_type) + ", hidden size " +
         std::to_string(hidden_size);
}

Case MakeCase(const Types& types, int64_t rows, int64_t hidden_size, float offset) {
  Case c;
  c.x = RandomTensor(types.dtype, {rows, hidden_size}, 1);
  c.scale = RandomTensor(types.scale_dtype, {hidden_size}, 2);
  c.stash_type = types.stash_type;
  c.options.scale_type = types.scale_type;
  c.options.offset = offset;
  return c;
}

TEST(RmsNorm, MatchesOracleForEveryTypeAndSize) {
  for (const Types& types : kTypes) {
    for (const int64_t hidden_size : kHiddenSizes) {
      SCOPED_TRACE(Describe(types, hidden_size));
      ExpectOracle(MakeCase(types, 3, hidden_size, 0));
    }
  }
}

// Widths at which a kernel may change its way of working, for few rows and for many.
TEST(RmsNorm, MatchesOracleForWideRows) {
  for (const int i : {0, 4, 6, 12}) {
    const Types& types = kTypes[i];
    for (const int64_t hidden_size :
         {127,  256,  264,  1000,  1024,  1032,  2048,  2056,  4095,  4096,  4104,
          5120, 8192, 8200, 12288, 16384, 32768, 32776, 40000, 65536, 65544, 131080}) {
      for (const int64_t rows : {1, 3, 300}) {
        const bool is_usual = hidden_size == 1024 || hidden_size == 2048 || hidden_size == 4096;
        if (rows > 3 && !is_usual) continue;  // to save time
        SCOPED_TRACE(Describe(types, hidden_size) + " rows " + std::to_string(rows));
        Case c = MakeCase(types, rows, hidden_size, 0);
        ExpectOracle(c);
        c.residual = RandomTensor(types.dtype, {rows, hidden_size}, 3);
        c.wants_sum = true;
        ExpectOracle(c);
      }
    }
  }
}

TEST(RmsNorm, AddsOffsetToScaleInTheScaleType) {
  for (const Types& types : kTypes) {
    for (const int64_t hidden_size : {1, 17, 128}) {
      SCOPED_TRACE(Describe(types, hidden_size));
      ExpectOracle(MakeCase(types, 2, hidden_size, 1));
      ExpectOracle(MakeCase(types, 2, hidden_size, 0.3f));
    }
  }
}

TEST(RmsNorm, WorksWithoutScale) {
  for (const Types& types : kTypes) {
    for (const int64_t hidden_size : {1, 17, 128}) {
      SCOPED_TRACE(Describe(types, hidden_size));
      Case c = MakeCase(types, 2, hidden_size, 0);
      c.scale.reset();
      ExpectOracle(c);
    }
  }
}

TEST(RmsNorm, NormalisesTheRoundedSum) {
  for (const Types& types : kTypes) {
    for (const int64_t hidden_size : kHiddenSizes) {
      for (const bool wants_sum : {true, false}) {
        SCOPED_TRACE(Describe(types, hidden_size) + (wants_sum ? ", sum wanted" : ""));
        Case c = MakeCase(types, 3, hidden_size, 0);
        c.residual = RandomTensor(types.dtype, {3, hidden_size}, 3, 10);
        c.wants_sum = wants_sum;
        ExpectOracle(c);
      }
    }
  }
}

// Where mean(x^2) is a power of 4 every step is exact but the stated roundings.
TEST(RmsNorm, EqualsOracleWhereStatisticsAreExact) {
  for (const Types& types : kTypes) {
    SCOPED_TRACE(Describe(types, 64));
    Case c = MakeCase(types, 2, 64, 1);
    std::vector<double> values(128);
    for (size_t i = 0; i < values.size(); ++i) values[i] = i % 3 == 0 ? -4 : 4;
    c.x = Tensor::FromDoubles(types.dtype, {2, 64}, values);
    c.options.epsilon = 0;
    const RmsNormResult expected = OracleRmsNorm(c.x, {}, c.scale, c.options);
    ForEachTable([&](const cpu::KernelTable& table) {
      EXPECT_EQ(RunOn(table, c).y.ToDoubles(), expected.y);
    });
  }
}

TEST(RmsNorm, DoesNotOverflowWhereHalfSquaresWould) {
  for (const DType scale_type : {DType::kF16, DType::kF32}) {
    Case c = MakeCase({DType::kF16, DType::kF16, DType::kF16, scale_type}, 2, 100, 0);
    c.x = RandomTensor(DType::kF16, {2, 100}, 4, 20000);
    ExpectOracle(c);
  }
}

TEST(RmsNorm, KeepsNanAndInfInTheirRow) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kF64}) {
    SCOPED_TRACE(DTypeName(dtype));
    for (const double special : {kNan, kInf, -kInf}) {
      Case c = MakeCase({dtype, dtype, DType::kF32, dtype}, 3, 37, 0);
      std::vector<double> values = c.x.ToDoubles();
      values[37 + 5] = special;
      c.x = Tensor::FromDoubles(dtype, {3, 37}, values);
      ExpectOracle(c);
    }
  }
}

TEST(RmsNorm, KeepsPrecisionOfLongRows) {
  ExpectOracle(MakeCase({DType::kF32, DType::kF32, DType::kF32, DType::kF32}, 1, 1 << 20, 0));
  // All squares equal: a single f32 accumulator would stop growing near 2^24 of them.
  Case c = MakeCase({DType::kF32, DType::kF32, DType::kF32, DType::kF32}, 1, 1 << 20, 0);
  c.x = Tensor::FromDoubles(DType::kF32, {1, 1 << 20}, std::vector<double>(1 << 20, 0.1));
  c.options.epsilon = 0;
  c.scale.reset();
  ForEachTable([&](const cpu::KernelTable& table) {
    for (const double value : RunOn(table, c).y.ToDoubles()) ASSERT_NEAR(value, 1, 1.5e-7);
  });
}

// Tensors of a megabyte and more take another way through memory.
TEST(RmsNorm, MatchesOracleForLargeTensors) {
  for (const Types& types : kTypes) {
    if (types.stash_type == DType::kF64 && types.dtype != DType::kF64) continue;  // to save time
    SCOPED_TRACE(Describe(types, 2053));
    const int64_t rows = (1 << 20) / (2053 * DTypeSize(types.dtype)) + 1;
    Case c = MakeCase(types, rows, 2053, 0);
    ExpectOracle(c);
    c.residual = RandomTensor(types.dtype, {rows, 2053}, 3);
    ExpectOracle(c);
  }
}

TEST(RmsNorm, AcceptsEmptyTensors) {
  for (const Types& types : kTypes) {
    ExpectOracle(MakeCase(types, 0, 16, 0));
    ExpectOracle(MakeCase(types, 4, 0, 0));
  }
}

TEST(RmsNorm, MayWriteOverItsInputs) {
  for (const DType dtype : {DType::kF32, DType::kF16}) {
    const Tensor x = RandomTensor(dtype, {2, 37}, 1);
    const Tensor residual = RandomTensor(dtype, {2, 37}, 2);
    RmsNormOptions options;
    options.scale_type = dtype;
    const RmsNormResult expected = OracleRmsNorm(x, residual, {}, options);
    ForEachTable([&](const cpu::KernelTable& table) {
      Buffer first(x), second(residual);
      LigerRmsNormArgs args{};
      args.x = first.data();
      args.residual = second.data();
      args.y = first.data();
      args.sum = second.data();
      args.rows = 2;
      args.hidden_size = 37;
      args.dtype = args.scale_dtype = args.scale_type = static_cast<int32_t>(dtype);
      args.stash_type = LIGER_F32;
      args.epsilon = options.epsilon;
      table.rms_norm(args, 0, 2);
      ExpectMatches(first.Read(), expected.y, 37);
      EXPECT_EQ(second.Read().ToDoubles(), expected.sum);
    });
  }
}

TEST(RmsNorm, RefusesBadArguments) {
  float x[4] = {1, 2, 3, 4}, scale[2] = {1, 1}, y[4] = {};
  LigerRmsNormArgs good{};
  good.x = x;
  good.scale = scale;
  good.y = y;
  good.rows = 2;
  good.hidden_size = 2;
  good.dtype = good.scale_dtype = good.stash_type = good.scale_type = LIGER_F32;
  EXPECT_EQ(LigerCpuRmsNorm(&good, 0, 2), LIGER_OK);
  EXPECT_EQ(LigerCpuRmsNorm(&good, 1, 1), LIGER_OK);

  const auto status = [&](auto change, int64_t begin = 0, int64_t end = 2) {
    LigerRmsNormArgs args = good;
    change(args);
    return LigerCpuRmsNorm(&args, begin, end);
  };
  const auto nothing = [](LigerRmsNormArgs&) {};
  EXPECT_EQ(status(nothing, 0, 3), LIGER_BAD_SHAPE);
  EXPECT_EQ(status(nothing, -1, 1), LIGER_BAD_SHAPE);
  EXPECT_EQ(status(nothing, 2, 1), LIGER_BAD_SHAPE);
  EXPECT_EQ(status([](auto& a) { a.hidden_size = -1; }), LIGER_BAD_SHAPE);
  EXPECT_EQ(status([](auto& a) { a.dtype = 7; }), LIGER_BAD_DTYPE);
  EXPECT_EQ(status([](auto& a) { a.scale_dtype = LIGER_F16; }), LIGER_BAD_DTYPE);
  EXPECT_EQ(status([](auto& a) { a.scale_type = 0; }), LIGER_BAD_DTYPE);
  EXPECT_EQ(status([](auto& a) { a.x = nullptr; }), LIGER_BAD_ARGUMENT);
  EXPECT_EQ(status([](auto& a) { a.epsilon = -1; }), LIGER_BAD_ARGUMENT);
  EXPECT_EQ(status([&](auto& a) { a.sum = y; }), LIGER_BAD_ARGUMENT);
  EXPECT_EQ(status([](auto& a) { a.scale = nullptr, a.offset = 1; }), LIGER_BAD_ARGUMENT);
}

}  // namespace
}  // namespace liger::test
