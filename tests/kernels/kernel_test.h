// What the kernel tests share: buffers that catch writes outside and need no alignment, random
// values, the comparison with the oracle, and the loop over what is under test.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "kernel_table.h"
#include "tensor.h"

namespace liger::test {

// Every instruction set of this machine (cpu_tables.cc); or, in the program for the GPU, adapters
// around the CUDA launch functions (cuda_tables.cc).
std::vector<const cpu::KernelTable*> TablesUnderTest();

// Runs body(table) for each of them.
template <typename Body>
void ForEachTable(Body body) {
  for (const cpu::KernelTable* table : TablesUnderTest()) {
    SCOPED_TRACE(table->name);
    body(*table);
  }
}

inline std::vector<double> RandomNormals(size_t size, uint32_t seed, double scale = 1) {
  std::mt19937 engine(seed);
  std::normal_distribution<double> normal(0, scale);
  std::vector<double> values(size);
  for (double& value : values) value = normal(engine);
  return values;
}

inline Tensor RandomTensor(DType dtype, std::vector<int64_t> shape, uint32_t seed,
                           double scale = 1) {
  Tensor tensor{dtype, std::move(shape), {}};
  return Tensor::FromDoubles(dtype, tensor.shape,
                             RandomNormals(static_cast<size_t>(tensor.size()), seed, scale));
}

// The bytes of a tensor at an odd address, between guards.
class Buffer {
 public:
  explicit Buffer(const Tensor& tensor)
      : tensor_(tensor), storage_(tensor.bytes.size() + 2 * kGuard, kFill) {
    if (!tensor.bytes.empty()) std::memcpy(data(), tensor.bytes.data(), tensor.bytes.size());
  }
  Buffer(DType dtype, std::vector<int64_t> shape) : Buffer(Empty(dtype, std::move(shape))) {}

  std::byte* data() { return storage_.data() + kGuard; }

  // The contents; fails the test where a guard has been written.
  Tensor Read() {
    for (size_t i = 0; i < kGuard; ++i) {
      EXPECT_EQ(storage_[i], kFill) << "written before the buffer";
      EXPECT_EQ(storage_[storage_.size() - 1 - i], kFill) << "written behind the buffer";
    }
    Tensor tensor = tensor_;
    if (!tensor.bytes.empty()) std::memcpy(tensor.bytes.data(), data(), tensor.bytes.size());
    return tensor;
  }

 private:
  static constexpr size_t kGuard = 65;
  static constexpr std::byte kFill{0xa5};

  static Tensor Empty(DType dtype, std::vector<int64_t> shape) {
    Tensor tensor{dtype, std::move(shape), {}};
    tensor.bytes.assign(static_cast<size_t>(tensor.size() * DTypeSize(dtype)), kFill);
    return tensor;
  }

  Tensor tensor_;
  std::vector<std::byte> storage_;
};

// The distance of neighbouring numbers of `dtype` at `value`.
inline double Ulp(DType dtype, double value) {
  int exponent = 0;
  std::frexp(value == 0 ? 1e-300 : value, &exponent);
  switch (dtype) {
    case DType::kF16:
      return std::ldexp(1, std::max(exponent, -13) - 11);
    case DType::kBF16:
      return std::ldexp(1, std::max(exponent, -125) - 8);
    case DType::kF32:
      return std::ldexp(1, std::max(exponent, -125) - 24);
    default:
      return std::ldexp(1, std::max(exponent, -1021) - 53);
  }
}

// Half types: at most a `share` of the elements (one may always differ) differs from the oracle, by
// at most 1 ulp of the row's largest result. f32 and f64: relative L2 over the row of 1e-6 and 1e-14.
// NaN and infinities are equal. `row` is the number of elements of a row.
inline void ExpectMatches(const Tensor& actual, const std::vector<double>& expected, size_t row,
                          double share = 0.001) {
  const std::vector<double> values = actual.ToDoubles();
  ASSERT_EQ(values.size(), expected.size());
  const bool half = actual.dtype == DType::kF16 || actual.dtype == DType::kBF16;
  const double floor = actual.dtype == DType::kF64   ? 1e-300
                       : actual.dtype == DType::kF16 ? 0
                                                     : 1e-36;
  size_t different = 0;
  for (size_t begin = 0; begin < values.size(); begin += row) {
    double largest = 0, difference = 0, norm = 0;
    for (size_t i = begin; i < begin + row; ++i) {
      if (!std::isfinite(expected[i])) {
        const bool same =
            std::isnan(expected[i]) ? std::isnan(values[i]) : values[i] == expected[i];
        ASSERT_TRUE(same) << "at " << i << ": " << values[i] << " instead of " << expected[i];
        continue;
      }
      ASSERT_TRUE(std::isfinite(values[i])) << "at " << i << ": " << values[i];
      largest = std::max(largest, std::abs(expected[i]));
      difference += (values[i] - expected[i]) * (values[i] - expected[i]);
      norm += expected[i] * expected[i];
      if (std::abs(values[i] - expected[i]) > floor) ++different;
    }
    if (half) {
      for (size_t i = begin; i < begin + row; ++i) {
        if (std::isfinite(expected[i])) {
          ASSERT_NEAR(values[i], expected[i], Ulp(actual.dtype, largest) + floor) << "at " << i;
        }
      }
    } else {
      const double tolerance = actual.dtype == DType::kF32 ? 1e-6 : 1e-14;
      ASSERT_LE(std::sqrt(difference), tolerance * std::sqrt(norm) + floor)
          << "in the row at " << begin;
    }
  }
  if (half) {
    EXPECT_LE(static_cast<double>(different), 1 + share * static_cast<double>(values.size()))
        << "of " << values.size();
  }
}

}  // namespace liger::test
