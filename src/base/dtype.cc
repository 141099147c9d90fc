#include "base/dtype.h"

#include <array>
#include <cmath>
#include <limits>
#include <utility>

namespace liger {
namespace {

constexpr std::array<std::pair<DType, std::string_view>, 15> kNames = {{
    {DType::kUndefined, "undefined"},
    {DType::kF32, "f32"},
    {DType::kU8, "u8"},
    {DType::kI8, "i8"},
    {DType::kU16, "u16"},
    {DType::kI16, "i16"},
    {DType::kI32, "i32"},
    {DType::kI64, "i64"},
    {DType::kString, "string"},
    {DType::kBool, "bool"},
    {DType::kF16, "f16"},
    {DType::kF64, "f64"},
    {DType::kU32, "u32"},
    {DType::kU64, "u64"},
    {DType::kBF16, "bf16"},
}};

// Rounds to a format with `digits` significant bits, smallest normal exponent `min_exponent`, and
// largest finite value `max`.
double RoundToFormat(double value, int digits, int min_exponent, double max) {
  if (value == 0 || !std::isfinite(value)) return value;
  int exponent = 0;
  std::frexp(value, &exponent);
  const int scale = digits - std::max(exponent, min_exponent);
  const double rounded = std::ldexp(std::nearbyint(std::ldexp(value, scale)), -scale);
  return std::abs(rounded) > max ? std::copysign(std::numeric_limits<double>::infinity(), rounded)
                                 : rounded;
}

}  // namespace

std::string_view DTypeName(DType dtype) {
  for (const auto& [value, name] : kNames) {
    if (value == dtype) return name;
  }
  return "undefined";
}

std::optional<DType> ParseDType(std::string_view name) {
  for (const auto& [value, known] : kNames) {
    if (known == name && value != DType::kUndefined) return value;
  }
  return std::nullopt;
}

int64_t DTypeSize(DType dtype) {
  switch (dtype) {
    case DType::kU8:
    case DType::kI8:
    case DType::kBool:
      return 1;
    case DType::kU16:
    case DType::kI16:
    case DType::kF16:
    case DType::kBF16:
      return 2;
    case DType::kF32:
    case DType::kI32:
    case DType::kU32:
      return 4;
    case DType::kF64:
    case DType::kI64:
    case DType::kU64:
      return 8;
    default:
      return 0;
  }
}

double RoundTo(DType dtype, double value) {
  switch (dtype) {
    case DType::kF32:
      return static_cast<double>(static_cast<float>(value));
    case DType::kF16:
      return RoundToFormat(value, 11, -13, 65504.0);
    case DType::kBF16:
      return RoundToFormat(value, 8, -125, 3.3895313892515355e38);
    default:
      return value;
  }
}

}  // namespace liger
