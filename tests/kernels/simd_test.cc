// The pieces under the kernels: exp and the conversions between storage types.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "kernel_test.h"

namespace liger::test {
namespace {

TEST(Simd, ExpOfF32IsWithinTwoUlp) {
  // Every 4999th float of negative sign, with NaN, -inf, and the borders of the result's range.
  std::vector<float> x = {0.0f, -0.0f, -87.33654f, -88.0f, -103.9f, -104.1f, -1e30f};
  for (uint64_t bits = 0x80000000u; bits <= 0xffffffffu; bits += 4999) {
    x.push_back(std::bit_cast<float>(static_cast<uint32_t>(bits)));
  }
  x.push_back(-std::numeric_limits<float>::infinity());
  ForEachTable([&](const cpu::KernelTable& table) {
    std::vector<float> y(x.size());
    table.exp_f32(x.data(), y.data(), static_cast<int64_t>(x.size()));
    for (size_t i = 0; i < x.size(); ++i) {
      const double expected = std::exp(static_cast<double>(x[i]));
      if (std::isnan(expected)) {
        ASSERT_TRUE(std::isnan(y[i])) << x[i];
      } else {
        ASSERT_NEAR(y[i], expected, 2 * Ulp(DType::kF32, expected)) << x[i];
      }
    }
    EXPECT_EQ(y.back(), 0);
  });
}

TEST(Simd, ExpOfF64HasRelativeErrorBelow1e15) {
  std::vector<double> x = {0.0, -0.0, -708.3, std::numeric_limits<double>::quiet_NaN(),
                           -std::numeric_limits<double>::infinity()};
  std::mt19937_64 engine(1);
  std::uniform_real_distribution<double> wide(-708, 0), narrow(-2, 0);
  for (int i = 0; i < 200000; ++i) {
    x.push_back(wide(engine));
    x.push_back(narrow(engine));
  }
  ForEachTable([&](const cpu::KernelTable& table) {
    std::vector<double> y(x.size());
    table.exp_f64(x.data(), y.data(), static_cast<int64_t>(x.size()));
    for (size_t i = 0; i < x.size(); ++i) {
      const double expected = std::exp(x[i]);
      if (std::isnan(expected)) {
        ASSERT_TRUE(std::isnan(y[i])) << x[i];
      } else {
        ASSERT_NEAR(y[i], expected, 1e-15 * expected) << x[i];
      }
    }
  });
}

// The factor of x in its exact GELU. What would be a subnormal number may be 0.
TEST(Simd, NormalCdfOfF32HasRelativeErrorBelow5e7) {
  std::vector<float> x = {0.0f,
                          -0.0f,
                          1e-30f,
                          -1e-30f,
                          std::numeric_limits<float>::infinity(),
                          -std::numeric_limits<float>::infinity(),
                          std::numeric_limits<float>::quiet_NaN(),
                          1e30f,
                          -1e30f,
                          -14.2f,
                          -15.0f};
  for (float value = -13; value <= 13; value += 1e-4f) x.push_back(value);
  ForEachTable([&](const cpu::KernelTable& table) {
    std::vector<float> y(x.size());
    table.normal_cdf_f32(x.data(), y.data(), static_cast<int64_t>(x.size()));
    for (size_t i = 0; i < x.size(); ++i) {
      const double expected = std::erfc(-static_cast<double>(x[i]) / std::sqrt(2.0)) / 2;
      if (std::isnan(x[i])) {
        ASSERT_TRUE(std::isnan(y[i]));
      } else {
        ASSERT_NEAR(y[i], expected, 5e-7 * expected + 3e-45) << x[i];
      }
    }
  });
}

TEST(Simd, NormalCdfOfF64HasRelativeErrorBelow2e15) {
  std::vector<double> x = {0.0,
                           -0.0,
                           1e-300,
                           -1e-300,
                           std::numeric_limits<double>::infinity(),
                           -std::numeric_limits<double>::infinity(),
                           1e300,
                           -1e300,
                           -38,
                           -40};
  for (double value = -37; value <= 37; value += 1e-4) x.push_back(value);
  ForEachTable([&](const cpu::KernelTable& table) {
    std::vector<double> y(x.size());
    table.normal_cdf_f64(x.data(), y.data(), static_cast<int64_t>(x.size()));
    for (size_t i = 0; i < x.size(); ++i) {
      const double expected =
          static_cast<double>(std::erfc(-static_cast<long double>(x[i]) / std::sqrt(2.0L)) / 2);
      ASSERT_NEAR(y[i], expected, 2e-15 * expected + 1e-310) << x[i];
    }
  });
}

// `values` converted from one type to the other, as doubles.
std::vector<double> Convert(const cpu::KernelTable& table, const Tensor& from, DType to) {
  Tensor out{to, from.shape, {}};
  out.bytes.resize(static_cast<size_t>(out.size() * DTypeSize(to)));
  table.convert(from.bytes.data(), static_cast<int32_t>(from.dtype), out.bytes.data(),
                static_cast<int32_t>(to), from.size());
  return out.ToDoubles();
}

void ExpectSame(const std::vector<double>& actual, const std::vector<double>& expected,
                const std::vector<double>& x) {
  for (size_t i = 0; i < actual.size(); ++i) {
    if (std::isnan(expected[i])) {
      ASSERT_TRUE(std::isnan(actual[i])) << x[i];
    } else {
      ASSERT_EQ(actual[i], expected[i]) << x[i];
      ASSERT_EQ(std::signbit(actual[i]), std::signbit(expected[i])) << x[i];
    }
  }
}

TEST(Simd, WidensEveryHalfExactly) {
  for (const DType half : {DType::kF16, DType::kBF16}) {
    Tensor all{half, {65536}, std::vector<std::byte>(2 * 65536)};
    for (uint32_t bits = 0; bits < 65536; ++bits) {
      const uint16_t narrow = static_cast<uint16_t>(bits);
      std::memcpy(all.bytes.data() + 2 * bits, &narrow, 2);
    }
    ForEachTable([&](const cpu::KernelTable& table) {
      ExpectSame(Convert(table, all, DType::kF32), all.ToDoubles(), all.ToDoubles());
      ExpectSame(Convert(table, all, half), all.ToDoubles(), all.ToDoubles());
    });
  }
}

TEST(Simd, NarrowsToNearestEven) {
  std::vector<double> x;
  for (uint64_t bits = 0; bits <= 0xffffffffu; bits += 9973) {
    x.push_back(static_cast<double>(std::bit_cast<float>(static_cast<uint32_t>(bits))));
  }
  // Midpoints between neighbours, and their neighbours, of both half types; the border of overflow.
  for (double base :
       {1.0, 0x1p-14, 0x1p-15, 0x1p-24, 0x1p-25, 0x1p-133, 65504.0, 65519.996, 65520.0}) {
    for (double step : {0.0, 0x1p-11, 0x1p-12, 0x1p-8, 0x1p-9, 0x3p-11, 0x3p-8}) {
      const float middle = static_cast<float>(base * (1 + step));
      for (const float near :
           {std::nextafter(middle, 0.0f), middle, std::nextafter(middle, 1e30f)}) {
        x.push_back(static_cast<double>(near));
        x.push_back(-static_cast<double>(near));
      }
    }
  }
  const int64_t size = static_cast<int64_t>(x.size());
  for (const DType half : {DType::kF16, DType::kBF16}) {
    std::vector<double> expected;
    for (const double value : x) expected.push_back(RoundTo(half, value));
    ForEachTable([&](const cpu::KernelTable& table) {
      ExpectSame(Convert(table, Tensor::FromDoubles(DType::kF32, {size}, x), half), expected, x);
      ExpectSame(Convert(table, Tensor::FromDoubles(DType::kF64, {size}, x), half), expected, x);
    });
  }
}

// A double just beside the midpoint of two halves must not be moved onto it by way of f32.
TEST(Simd, NarrowsF64WithOneRounding) {
  std::vector<double> x, f16, bf16;
  for (const double tiny : {0x1p-40, -0x1p-40, 0x1p-30, -0x1p-30}) {
    for (const double base : {1.0, 3.0, 1.0 + 0x1p-10, 0x1p-10}) {
      x.push_back(base * (1 + 0x1p-11) + tiny);
      x.push_back(base * (1 + 0x1p-8) + tiny);
      x.push_back(-x.back());
    }
  }
  for (const double value : x) {
    f16.push_back(RoundTo(DType::kF16, value));
    bf16.push_back(RoundTo(DType::kBF16, value));
  }
  const Tensor from = Tensor::FromDoubles(DType::kF64, {static_cast<int64_t>(x.size())}, x);
  ForEachTable([&](const cpu::KernelTable& table) {
    ExpectSame(Convert(table, from, DType::kF16), f16, x);
    ExpectSame(Convert(table, from, DType::kBF16), bf16, x);
  });
}

}  // namespace
}  // namespace liger::test
