#include "tensor.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "base/error.h"

namespace liger::test {
namespace {

template <typename E>
double DecodeAs(const std::byte* element) {
  E value;
  std::memcpy(&value, element, sizeof(value));
  return static_cast<double>(value);
}

template <typename E>
void EncodeAs(double value, std::byte* element) {
  const E stored = static_cast<E>(value);
  std::memcpy(element, &stored, sizeof(stored));
}

// A 16-bit float with `fraction_bits` bits of fraction and the rest, less the sign, of exponent.
double DecodeHalf(uint16_t bits, int fraction_bits) {
  const int exponent_bits = 15 - fraction_bits;
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = (bits & 0x7fff) >> fraction_bits;
  const int fraction = bits & ((1 << fraction_bits) - 1);
  double value = 0;
  if (exponent == (1 << exponent_bits) - 1) {
    value = fraction == 0 ? std::numeric_limits<double>::infinity()
                          : std::numeric_limits<double>::quiet_NaN();
  } else if (exponent == 0) {
    value = std::ldexp(fraction, 1 - bias - fraction_bits);
  } else {
    value = std::ldexp((1 << fraction_bits) + fraction, exponent - bias - fraction_bits);
  }
  return (bits & 0x8000) != 0 ? -value : value;
}

// `value` has been rounded to the format already.
uint16_t EncodeHalf(double value, int fraction_bits) {
  const int exponent_bits = 15 - fraction_bits;
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int special = ((1 << exponent_bits) - 1) << fraction_bits;
  const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const double magnitude = std::abs(value);
  if (std::isnan(value)) return static_cast<uint16_t>(special | (1 << (fraction_bits - 1)));
  if (std::isinf(value)) return static_cast<uint16_t>(sign | special);
  if (magnitude == 0) return sign;
  int exponent = 0;
  std::frexp(magnitude, &exponent);
  exponent = std::max(exponent - 1, 1 - bias);
  const int scaled = static_cast<int>(std::ldexp(magnitude, fraction_bits - exponent));
  // A subnormal lacks the leading bit, which then makes its exponent field 0.
  return static_cast<uint16_t>(sign | (((exponent + bias - 1) << fraction_bits) + scaled));
}

}  // namespace

double DecodeElement(DType dtype, const std::byte* element) {
  switch (dtype) {
    case DType::kF32:
      return DecodeAs<float>(element);
    case DType::kF64:
      return DecodeAs<double>(element);
    case DType::kF16:
      return DecodeHalf(static_cast<uint16_t>(DecodeAs<uint16_t>(element)), 10);
    case DType::kBF16:
      return DecodeHalf(static_cast<uint16_t>(DecodeAs<uint16_t>(element)), 7);
    case DType::kI64:
      return DecodeAs<int64_t>(element);
    case DType::kI32:
      return DecodeAs<int32_t>(element);
    case DType::kU8:
      return DecodeAs<uint8_t>(element);
    case DType::kBool:
      return DecodeAs<bool>(element);
    default:
      Fatal(__FILE__, __LINE__, "tests have no use for this element type");
  }
}

void EncodeElement(DType dtype, double value, std::byte* element) {
  switch (dtype) {
    case DType::kF32:
      return EncodeAs<float>(value, element);
    case DType::kF64:
      return EncodeAs<double>(value, element);
    case DType::kF16: {
      const uint16_t bits = EncodeHalf(RoundTo(DType::kF16, value), 10);
      std::memcpy(element, &bits, sizeof(bits));
      return;
    }
    case DType::kBF16: {
      const uint16_t bits = EncodeHalf(RoundTo(DType::kBF16, value), 7);
      std::memcpy(element, &bits, sizeof(bits));
      return;
    }
    case DType::kI64:
      return EncodeAs<int64_t>(value, element);
    case DType::kI32:
      return EncodeAs<int32_t>(value, element);
    case DType::kU8:
      return EncodeAs<uint8_t>(value, element);
    case DType::kBool:
      return EncodeAs<bool>(value, element);
    default:
      Fatal(__FILE__, __LINE__, "tests have no use for this element type");
  }
}

int64_t Tensor::size() const {
  int64_t count = 1;
  for (const int64_t dim : shape) count *= dim;
  return count;
}

Tensor Tensor::FromDoubles(DType dtype, std::vector<int64_t> shape,
                           std::span<const double> values) {
  Tensor tensor{dtype, std::move(shape), {}};
  LIGER_CHECK(tensor.size() == static_cast<int64_t>(values.size()));
  const size_t width = static_cast<size_t>(DTypeSize(dtype));
  tensor.bytes.resize(values.size() * width);
  for (size_t i = 0; i < values.size(); ++i) {
    EncodeElement(dtype, values[i], tensor.bytes.data() + i * width);
  }
  return tensor;
}

std::vector<double> Tensor::ToDoubles() const {
  const size_t width = static_cast<size_t>(DTypeSize(dtype));
  std::vector<double> values(static_cast<size_t>(size()));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = DecodeElement(dtype, bytes.data() + i * width);
  }
  return values;
}

}  // namespace liger::test
