// A tensor of any fixed-size element type as raw bytes, with conversions for tests.
//
//   Tensor x = Tensor::FromDoubles(DType::kF16, {2, 3}, {0, 1, 2, 3, 4, 5});   // rounds to f16
//   std::vector<double> values = x.ToDoubles();
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/dtype.h"

namespace liger::test {

struct Tensor {
  DType dtype = DType::kUndefined;
  std::vector<int64_t> shape;
  std::vector<std::byte> bytes;

  int64_t size() const;  // elements

  // `values` holds size() numbers; they are rounded to the float types and cut to the integer ones.
  static Tensor FromDoubles(DType dtype, std::vector<int64_t> shape,
                            std::span<const double> values);
  static Tensor FromDoubles(DType dtype, std::vector<int64_t> shape,
                            std::initializer_list<double> values) {
    return FromDoubles(dtype, std::move(shape), std::span(values.begin(), values.size()));
  }
  std::vector<double> ToDoubles() const;
};

using NamedTensors = std::map<std::string, Tensor>;

// One element from its bits and back, exactly as the formats define them.
double DecodeElement(DType dtype, const std::byte* element);
void EncodeElement(DType dtype, double value, std::byte* element);

}  // namespace liger::test
