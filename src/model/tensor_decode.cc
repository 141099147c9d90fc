#include "model/tensor_decode.h"

#include <onnx/onnx_pb.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

namespace liger {
namespace {

double HalfToDouble(uint16_t bits) {
  const int exponent = bits >> 10 & 0x1f;
  const int mantissa = bits & 0x3ff;
  const double sign = (bits & 0x8000) != 0 ? -1.0 : 1.0;
  if (exponent == 0) return sign * std::ldexp(mantissa, -24);
  if (exponent == 31) {
    return mantissa != 0 ? std::numeric_limits<double>::quiet_NaN()
                         : sign * std::numeric_limits<double>::infinity();
  }
  return sign * std::ldexp(mantissa + 1024, exponent - 25);
}

double BFloat16ToDouble(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

template <typename T>
T Load(std::span<const std::byte> raw, int64_t index) {
  T value;
  std::memcpy(&value, raw.data() + index * static_cast<int64_t>(sizeof(T)), sizeof(T));
  return value;
}

}  // namespace

int64_t ElementCount(const onnx::TensorProto& tensor) {
  int64_t count = 1;
  for (int64_t dim : tensor.dims()) {
    if (dim < 0 || __builtin_mul_overflow(count, dim, &count)) return -1;
  }
  return count;
}

int64_t TensorBytes(const onnx::TensorProto& tensor) {
  const int64_t count = ElementCount(tensor);
  const int64_t size = DTypeSize(static_cast<DType>(tensor.data_type()));
  int64_t bytes = 0;
  if (count < 0 || size == 0 || __builtin_mul_overflow(count, size, &bytes)) return -1;
  return bytes;
}

std::optional<Tensor> DecodeRaw(DType dtype, std::vector<int64_t> dims,
                                std::span<const std::byte> raw) {
  Tensor tensor{dtype, std::move(dims), {}, {}};
  const int64_t count = tensor.size();
  const int64_t size = DTypeSize(dtype);
  if (size == 0 || count < 0 || static_cast<int64_t>(raw.size()) != count * size) {
    return std::nullopt;
  }
  (IsFloat(dtype) ? static_cast<void>(tensor.floats.reserve(count))
                  : static_cast<void>(tensor.ints.reserve(count)));
  for (int64_t i = 0; i < count; ++i) {
    switch (dtype) {
      case DType::kF32:
        tensor.floats.push_back(Load<float>(raw, i));
        break;
      case DType::kF64:
        tensor.floats.push_back(Load<double>(raw, i));
        break;
      case DType::kF16:
        tensor.floats.push_back(HalfToDouble(Load<uint16_t>(raw, i)));
        break;
      case DType::kBF16:
        tensor.floats.push_back(BFloat16ToDouble(Load<uint16_t>(raw, i)));
        break;
      case DType::kI8:
        tensor.ints.push_back(Load<int8_t>(raw, i));
        break;
      case DType::kBool:
      case DType::kU8:
        tensor.ints.push_back(Load<uint8_t>(raw, i));
        break;
      case DType::kI16:
        tensor.ints.push_back(Load<int16_t>(raw, i));
        break;
      case DType::kU16:
        tensor.ints.push_back(Load<uint16_t>(raw, i));
        break;
      case DType::kI32:
        tensor.ints.push_back(Load<int32_t>(raw, i));
        break;
      case DType::kU32:
        tensor.ints.push_back(Load<uint32_t>(raw, i));
        break;
      case DType::kI64:
      case DType::kU64:
        tensor.ints.push_back(Load<int64_t>(raw, i));
        break;
      default:
        return std::nullopt;
    }
  }
  return tensor;
}

std::optional<Tensor> DecodeTensor(const onnx::TensorProto& proto) {
  const auto dtype = static_cast<DType>(proto.data_type());
  std::vector<int64_t> dims(proto.dims().begin(), proto.dims().end());
  const int64_t count = ElementCount(proto);
  if (count < 0 || proto.data_location() == onnx::TensorProto::EXTERNAL) return std::nullopt;
  if (proto.has_raw_data()) {
    return DecodeRaw(dtype, std::move(dims), std::as_bytes(std::span(proto.raw_data())));
  }
  Tensor tensor{dtype, std::move(dims), {}, {}};
  const auto copy = [&](const auto& field, auto convert, auto& target) {
    if (field.size() != count) return false;
    for (const auto element : field) target.push_back(convert(element));
    return true;
  };
  const auto as_int = [](auto v) { return static_cast<int64_t>(v); };
  const auto as_double = [](auto v) { return static_cast<double>(v); };
  bool ok = false;
  switch (dtype) {
    case DType::kF32:
      ok = copy(proto.float_data(), as_double, tensor.floats);
      break;
    case DType::kF64:
      ok = copy(proto.double_data(), as_double, tensor.floats);
      break;
    case DType::kF16:
      ok = copy(
          proto.int32_data(), [](int32_t v) { return HalfToDouble(static_cast<uint16_t>(v)); },
          tensor.floats);
      break;
    case DType::kBF16:
      ok = copy(
          proto.int32_data(), [](int32_t v) { return BFloat16ToDouble(static_cast<uint16_t>(v)); },
          tensor.floats);
      break;
    case DType::kI64:
      ok = copy(proto.int64_data(), as_int, tensor.ints);
      break;
    case DType::kU32:
    case DType::kU64:
      ok = copy(proto.uint64_data(), as_int, tensor.ints);
      break;
    case DType::kI8:
    case DType::kU8:
    case DType::kI16:
    case DType::kU16:
    case DType::kI32:
    case DType::kBool:
      ok = copy(proto.int32_data(), as_int, tensor.ints);
      break;
    default:
      break;
  }
  return ok ? std::optional(std::move(tensor)) : std::nullopt;
}

}  // namespace liger
