#include "liger/softmax.h"

#include <gtest/gtest.h>

#include <limits>

#include "kernel_test.h"
#include "oracle.h"

namespace liger::test {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

void ExpectOracle(const Tensor& x_tensor, DType stash_type) {
  const std::vector<double> expected = OracleSoftmax(x_tensor);
  LigerSoftmaxArgs args{};
  args.width = x_tensor.shape.back();
  args.rows = x_tensor.shape[0];
  args.dtype = static_cast<int32_t>(x_tensor.dtype);
  args.stash_type = static_cast<int32_t>(stash_type);
  ForEachTable([&](const cpu::KernelTable& table) {
    for (const bool in_place : {false, true}) {
      Buffer x(x_tensor), y(x_tensor.dtype, x_tensor.shape);
      args.x = x.data();
      args.y = in_place ? x.data() : y.data();
      table.softmax(args, 0, args.rows / 2);
      table.softmax(args, args.rows / 2, args.rows);
      ExpectMatches((in_place ? x : y).Read(), expected,
                    static_cast<size_t>(std::max<int64_t>(args.width, 1)));
    }
  });
}

struct Types {
  DType dtype;
  DType stash_type;
};

constexpr Types kTypes[] = {
    {DType::kF32, DType::kF32},  {DType::kF32, DType::kF64},  {DType::kF16, DType::kF16},
    {DType::kF16, DType::kF32},  {DType::kF16, DType::kF64},  {DType::kBF16, DType::kBF16},
    {DType::kBF16, DType::kF32}, {DType::kBF16, DType::kF64}, {DType::kF64, DType::kF64},
};

TEST(Softmax, MatchesOracleForEveryTypeAndWidth) {
  for (const Types& types : kTypes) {
    for (const int64_t width : {1, 2, 3, 7, 8, 9, 16, 31, 33, 64, 100, 2049, 30001}) {
      for (const double scale : {1.0, 20.0}) {
        SCOPED_TRACE(std::string(DTypeName(types.dtype)) + " width " + std::to_string(width));
        ExpectOracle(RandomTensor(types.dtype, {3, width}, 1, scale), types.stash_type);
      }
    }
  }
}

// Widths at which a kernel may change its way of working, with rows that give NaN and rows with
// masked elements between ordinary ones.
TEST(Softmax, MatchesOracleForWideRows) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (const int64_t width : {256, 264, 1024, 1032, 4096, 8192, 8200, 16384, 16392, 32000, 65536,
                                65544, 128256, 200000, 262152}) {
      SCOPED_TRACE(std::string(DTypeName(dtype)) + " width " + std::to_string(width));
      const int64_t rows = 7;
      std::vector<double> values = RandomNormals(static_cast<size_t>(rows * width), 1, 3);
      const auto at = [&](int64_t row, int64_t i) -> double& {
        return values[static_cast<size_t>(row * width + i)];
      };
      at(1, width / 3) = kNan;
      at(2, width - 1) = kInf;
      for (int64_t i = 0; i < width; ++i) {
        at(3, i) = -kInf;
        if (i > width / 5) at(4, i) = -kInf;
        at(5, i) -= 1000;
      }
      at(4, 0) = -kInf;
      ExpectOracle(Tensor::FromDoubles(dtype, {rows, width}, values), DType::kF32);
    }
  }
}

// The largest element decides, however large all are; what lies far below it is 0.
TEST(Softmax, DoesNotOverflow) {
  for (const Types& types : kTypes) {
    const double huge = types.dtype == DType::kF16 ? 60000 : 1e30;
    std::vector<double> values(5 * 19, -huge);
    for (size_t i = 0; i < values.size(); i += 6) values[i] = huge;
    for (size_t i = 1; i < values.size(); i += 6) values[i] = -kInf;
    ExpectOracle(Tensor::FromDoubles(types.dtype, {5, 19}, values), types.stash_type);
  }
}

TEST(Softmax, GivesNanWhereTheFormulaDoes) {
  for (const Types& types : kTypes) {
    for (const int64_t width : {1, 5, 16, 37}) {
      SCOPED_TRACE(std::string(DTypeName(types.dtype)) + " width " + std::to_string(width));
      const size_t size = static_cast<size_t>(width);
      std::vector<double> values = RandomNormals(5 * size, 1);
      for (size_t i = 0; i < size; ++i) values[size + i] = -kInf;
      values[2 * size] = kNan;
      values[4 * size - 1] = kInf;
      ExpectOracle(Tensor::FromDoubles(types.dtype, {5, width}, values), types.stash_type);
    }
  }
}

// A masked row: nothing but -inf beside some elements.
TEST(Softmax, GivesZeroForMaskedElements) {
  for (const Types& types : kTypes) {
    std::vector<double> values = RandomNormals(4 * 45, 1);
    for (size_t i = 0; i < values.size(); ++i) {
      if (i % 45 > i / 45 * 10) values[i] = -kInf;
    }
    ExpectOracle(Tensor::FromDoubles(types.dtype, {4, 45}, values), types.stash_type);
  }
}

TEST(Softmax, AcceptsEmptyTensors) {
  for (const Types& types : kTypes) {
    ExpectOracle(RandomTensor(types.dtype, {0, 8}, 1), types.stash_type);
    ExpectOracle(RandomTensor(types.dtype, {3, 0}, 1), types.stash_type);
  }
}

TEST(Softmax, RefusesBadArguments) {
  float x[4] = {}, y[4] = {};
  LigerSoftmaxArgs good{};
  good.x = x;
  good.y = y;
  good.rows = good.width = 2;
  good.dtype = good.stash_type = LIGER_F32;
  EXPECT_EQ(LigerCpuSoftmax(&good, 0, 2), LIGER_OK);
  EXPECT_EQ(LigerCpuSoftmax(&good, 0, 3), LIGER_BAD_SHAPE);
  const auto status = [&](auto change) {
    LigerSoftmaxArgs args = good;
    change(args);
    return LigerCpuSoftmax(&args, 0, 0);
  };
  EXPECT_EQ(status([](auto& a) { a.width = -1; }), LIGER_BAD_SHAPE);
  EXPECT_EQ(status([](auto& a) { a.stash_type = 2; }), LIGER_BAD_DTYPE);
  EXPECT_EQ(status([](auto& a) { a.x = nullptr; }), LIGER_BAD_ARGUMENT);
}

}  // namespace
}  // namespace liger::test
