// Element types. The numbers are those of ONNX's TensorProto.DataType, since attributes such as
// stash_type carry them; formats other than ONNX translate at their border.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace liger {

enum class DType : int32_t {
  kUndefined = 0,
  kF32 = 1,
  kU8 = 2,
  kI8 = 3,
  kU16 = 4,
  kI16 = 5,
  kI32 = 6,
  kI64 = 7,
  kString = 8,
  kBool = 9,
  kF16 = 10,
  kF64 = 11,
  kU32 = 12,
  kU64 = 13,
  kBF16 = 16,
};

// "f32", "f16", "bf16", "f64", "i64", ...; "undefined" for what has no name here.
std::string_view DTypeName(DType dtype);

// The inverse of DTypeName.
std::optional<DType> ParseDType(std::string_view name);

// Bytes per element; 0 where elements have no fixed size in bytes.
int64_t DTypeSize(DType dtype);

inline bool IsFloat(DType d) {
  return d == DType::kF32 || d == DType::kF16 || d == DType::kBF16 || d == DType::kF64;
}

// `value` rounded to the precision of `dtype` (round to nearest even, overflow to infinity).
// Integer and undefined dtypes leave it as it is.
double RoundTo(DType dtype, double value);

}  // namespace liger
