// Elements of small ONNX tensors, whatever field of the protobuf they are stored in.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "model/graph.h"

namespace onnx {
class TensorProto;
}

namespace liger {

// Product of the dims; -1 if it overflows or a dim is negative.
int64_t ElementCount(const onnx::TensorProto& tensor);

// Bytes of the elements; -1 for strings, sub-byte types, and sizes that overflow.
int64_t TensorBytes(const onnx::TensorProto& tensor);

// The elements of an inline tensor; nullopt if the payload does not fit dtype and dims.
std::optional<Tensor> DecodeTensor(const onnx::TensorProto& tensor);

// The same from little-endian raw bytes.
std::optional<Tensor> DecodeRaw(DType dtype, std::vector<int64_t> dims,
                                std::span<const std::byte> raw);

}  // namespace liger
