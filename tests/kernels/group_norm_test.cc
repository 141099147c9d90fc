#include "liger/group_norm.h"

#include <gtest/gtest.h>

#include <limits>

#include "kernel_test.h"
#include "oracle.h"

namespace liger::test {
namespace {

struct Types {
  DType dtype;
  DType scale_dtype;
  DType stash_type;
  DType scale_type;
};

constexpr Types kTypes[] = {
    {DType::kF32, DType::kF32, DType::kF32, DType::kF32},
    {DType::kF32, DType::kF32, DType::kF64, DType::kF32},
    {DType::kF16, DType::kF16, DType::kF32, DType::kF16},
    {DType::kF16, DType::kF16, DType::kF16, DType::kF16},
    {DType::kF16, DType::kF32, DType::kF32, DType::kF32},
    {DType::kF16, DType::kF16, DType::kF64, DType::kF32},
    {DType::kBF16, DType::kBF16, DType::kF32, DType::kBF16},
    {DType::kBF16, DType::kF32, DType::kF32, DType::kF32},
    {DType::kF64, DType::kF64, DType::kF64, DType::kF64},
    {DType::kF64, DType::kF32, DType::kF64, DType::kF64},
};

struct Case {
  Tensor x, scale, bias;
  int64_t num_groups = 1;
  Types types;
};

Case MakeCase(const Types& types, std::vector<int64_t> shape, int64_t num_groups) {
  const int64_t channels = shape[1];
  return {RandomTensor(types.dtype, std::move(shape), 1),
          RandomTensor(types.scale_dtype, {channels}, 2),
          RandomTensor(types.scale_dtype, {channels}, 3), num_groups, types};
}

void ExpectOracle(const Case& c) {
  LayerNormOptions options;
  options.scale_type = c.types.scale_type;
  const std::vector<double> expected = OracleGroupNorm(c.x, c.scale, c.bias, c.num_groups, options);
  LigerGroupNormArgs args{};
  args.batch = c.x.shape[0];
  args.channels = c.x.shape[1];
  args.spatial = 1;
  for (size_t i = 2; i < c.x.shape.size(); ++i) args.spatial *= c.x.shape[i];
  args.num_groups = c.num_groups;
  args.dtype = static_cast<int32_t>(c.types.dtype);
  args.scale_dtype = static_cast<int32_t>(c.types.scale_dtype);
  args.stash_type = static_cast<int32_t>(c.types.stash_type);
  args.scale_type = static_cast<int32_t>(c.types.scale_type);
  args.epsilon = options.epsilon;
  ForEachTable([&](const cpu::KernelTable& table) {
    Buffer x(c.x), scale(c.scale), bias(c.bias), y(c.x.dtype, c.x.shape);
    args.x = x.data();
    args.scale = scale.data();
    args.bias = bias.data();
    args.y = y.data();
    const int64_t groups = args.batch * args.num_groups;
    const int64_t cuts[] = {0, groups / 3, groups - groups / 4, groups};
    for (int i = 0; i < 3; ++i) table.group_norm(args, cuts[i], cuts[i + 1]);
    const int64_t group = args.channels / args.num_groups * args.spatial;
    ExpectMatches(y.Read(), expected, static_cast<size_t>(std::max<int64_t>(group, 1)));
  });
}

TEST(GroupNorm, MatchesOracleForEveryTypeAndShape) {
  struct Shape {
    std::vector<int64_t> x;
    int64_t num_groups;
  };
  const Shape shapes[] = {
      {{2, 6, 5}, 3},     {{1, 4, 3, 7}, 2},    {{2, 8, 4, 4}, 8},    {{3, 6, 1}, 1},
      {{2, 32}, 4},       {{2, 32, 1, 1}, 8},   {{1, 12, 17}, 1},     {{1, 1, 33}, 1},
      {{2, 10, 2, 3}, 5}, {{1, 64, 16, 9}, 32}, {{2, 6, 1, 2, 3}, 2},
  };
  for (const Types& types : kTypes) {
    for (const Shape& shape : shapes) {
      SCOPED_TRACE(std::string(DTypeName(types.dtype)) + " scale type " +
                   std::string(DTypeName(types.scale_type)) + " channels " +
                   std::to_string(shape.x[1]) + " groups " + std::to_string(shape.num_groups));
      ExpectOracle(MakeCase(types, shape.x, shape.num_groups));
    }
  }
}

// Sizes of a group at which a kernel may change its way of working.
TEST(GroupNorm, MatchesOracleForLargeGroups) {
  for (const int i : {0, 2, 4, 6, 7}) {
    for (const int64_t spatial : {8, 24, 64, 256, 1000, 1024, 1032, 4096, 4100, 8192, 32776}) {
      for (const int64_t channels_of_group : {2, 16}) {
        const int64_t batch = spatial < 300 ? 9 : 2;
        SCOPED_TRACE("types " + std::to_string(i) + " spatial " + std::to_string(spatial) +
                     " channels " + std::to_string(channels_of_group));
        ExpectOracle(MakeCase(kTypes[i], {batch, 3 * channels_of_group, spatial}, 3));
      }
    }
  }
}

TEST(GroupNorm, KeepsPrecisionUnderACommonOffset) {
  Case c = MakeCase(kTypes[0], {2, 8, 13}, 2);
  std::vector<double> values = c.x.ToDoubles();
  for (double& value : values) value += 5000;
  c.x = Tensor::FromDoubles(DType::kF32, c.x.shape, values);
  ExpectOracle(c);
}

TEST(GroupNorm, DoesNotOverflowWhereHalfSquaresWould) {
  Case c = MakeCase({DType::kF16, DType::kF16, DType::kF16, DType::kF16}, {1, 8, 25}, 2);
  c.x = RandomTensor(DType::kF16, {1, 8, 25}, 4, 12000);
  ExpectOracle(c);
}

TEST(GroupNorm, KeepsNanAndInfInTheirGroup) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kF64}) {
    for (const double special :
         {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity(),
          -std::numeric_limits<double>::infinity()}) {
      Case c = MakeCase({dtype, dtype, DType::kF32, dtype}, {2, 6, 11}, 3);
      std::vector<double> values = c.x.ToDoubles();
      values[30] = special;
      c.x = Tensor::FromDoubles(dtype, c.x.shape, values);
      ExpectOracle(c);
    }
  }
}

TEST(GroupNorm, AcceptsEmptyTensors) {
  for (const Types& types : kTypes) {
    ExpectOracle(MakeCase(types, {0, 4, 3}, 2));
    ExpectOracle(MakeCase(types, {2, 4, 0}, 2));
    ExpectOracle(MakeCase(types, {2, 0, 3}, 2));
  }
}

TEST(GroupNorm, RefusesBadArguments) {
  float x[8] = {}, scale[4] = {}, y[8] = {};
  LigerGroupNormArgs good{};
  good.x = x;
  good.scale = good.bias = scale;
  good.y = y;
  good.batch = 1;
  good.channels = 4;
  good.spatial = 2;
  good.num_groups = 2;
  good.dtype = good.scale_dtype = good.stash_type = good.scale_type = LIGER_F32;
  EXPECT_EQ(LigerCpuGroupNorm(&good, 0, 2), LIGER_OK);
  EXPECT_EQ(LigerCpuGroupNorm(&good, 0, 3), LIGER_BAD_SHAPE);
  const auto status = [&](auto change) {
    LigerGroupNormArgs args = good;
    change(args);
    return LigerCpuGroupNorm(&args, 0, 0);
  };
  EXPECT_EQ(status([](auto& a) { a.num_groups = 3; }), LIGER_BAD_SHAPE);
  EXPECT_EQ(status([](auto& a) { a.num_groups = 0; }), LIGER_BAD_SHAPE);
  EXPECT_EQ(status([](auto& a) { a.spatial = -1; }), LIGER_BAD_SHAPE);
  EXPECT_EQ(status([](auto& a) { a.dtype = 7; }), LIGER_BAD_DTYPE);
  EXPECT_EQ(status([](auto& a) { a.scale_dtype = LIGER_BF16; }), LIGER_BAD_DTYPE);
  EXPECT_EQ(status([](auto& a) { a.bias = nullptr; }), LIGER_BAD_ARGUMENT);
  EXPECT_EQ(status([](auto& a) { a.epsilon = -1; }), LIGER_BAD_ARGUMENT);
}

}  // namespace
}  // namespace liger::test
