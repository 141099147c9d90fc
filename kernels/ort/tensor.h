// Inputs and outputs of a running node.
//
//   InputTensor x;
//   if (Status status = ReadInput(context, 0, x); !status) return status;
//   Result<void*> y = MakeOutput(context, 0, x.dims());
//
// Nothing here allocates: with the API 24 shape reference the dimensions are the runtime's own,
// otherwise they are copied into the InputTensor.
#pragma once

#include <onnxruntime_c_api.h>

#include <cstdint>
#include <span>
#include <string>

#include "base/error.h"

namespace liger::ort {

class InputTensor {
 public:
  static constexpr size_t kMaxCopiedRank = 16;

  InputTensor() = default;
  InputTensor(const InputTensor&) = delete;
  InputTensor& operator=(const InputTensor&) = delete;

  bool present() const { return present_; }
  const void* data() const { return data_; }
  std::span<const int64_t> dims() const { return {dims_, rank_}; }
  size_t rank() const { return rank_; }
  // The dimension `i` places from the end.
  int64_t FromEnd(size_t i) const { return dims_[rank_ - 1 - i]; }

 private:
  friend Status ReadInput(OrtKernelContext* context, size_t index, InputTensor& tensor);

  bool present_ = false;
  const void* data_ = nullptr;
  const int64_t* dims_ = nullptr;
  size_t rank_ = 0;
  int64_t copied_[kMaxCopiedRank];
};

// Leaves `tensor` absent where the node has no such input.
Status ReadInput(OrtKernelContext* context, size_t index, InputTensor& tensor);

// The data of output `index`, or null where the node does not want it (`wanted` is set then).
struct OutputTensor {
  bool wanted = false;
  void* data = nullptr;
};
Result<OutputTensor> MakeOutput(OrtKernelContext* context, size_t index,
                                std::span<const int64_t> dims);

bool SameDims(std::span<const int64_t> a, std::span<const int64_t> b);

// The product of `dims`, 1 for none.
int64_t Count(std::span<const int64_t> dims);

// "[2,3,4]"
std::string DimsText(std::span<const int64_t> dims);

}  // namespace liger::ort
