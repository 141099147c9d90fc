// The CUDA launch functions as kernel tables, so that every test of the CPU kernels also runs on the
// GPU: arguments are copied to the device, everything is computed there, and what belongs to the
// asked range is copied back. Once with aligned buffers, once with buffers that are not.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdio>

#include "base/dtype.h"
#include "device_memory.h"
#include "kernel_test.h"

namespace liger::test {
namespace {

size_t Size(int32_t dtype) { return static_cast<size_t>(DTypeSize(static_cast<DType>(dtype))); }

size_t Bytes(int64_t elements, int32_t dtype) {
  return static_cast<size_t>(elements) * Size(dtype);
}

template <typename Args>
using Launch = LigerStatus (*)(const Args*, LigerCudaStream);

template <typename Args>
void Run(Launch<Args> launch, const Args& args, DeviceMemory& memory) {
  ExpectCuda(cudaDeviceSynchronize());  // the copies are on another stream
  ASSERT_EQ(launch(&args, memory.stream()), LIGER_OK);
  ExpectCuda(cudaStreamSynchronize(memory.stream()));
  memory.ExpectGuards();
}

// RMSNorm and LayerNorm; bias is not among the arguments of the former.
template <typename Args>
Args PutNorm(const Args& host, DeviceMemory& memory) {
  const size_t bytes = Bytes(host.rows * host.hidden_size, host.dtype);
  const auto put = [&](const void* p) { return memory.Put(p, bytes, Size(host.dtype)); };
  const auto put_row = [&](const void* p) {
    return memory.Put(p, Bytes(host.hidden_size, host.scale_dtype), Size(host.scale_dtype));
  };
  Args args = host;
  args.x = put(host.x);
  args.residual = put(host.residual);
  args.scale = put_row(host.scale);
  if constexpr (requires { args.bias; }) args.bias = put_row(host.bias);
  args.y = put(host.y);
  args.sum = put(host.sum);
  return args;
}

template <bool kMisalign, typename Args>
void RowNorm(Launch<Args> launch, const Args& host, int64_t begin, int64_t end) {
  DeviceMemory memory(kMisalign);
  Run(launch, PutNorm(host, memory), memory);
  for (void* output : {host.y, host.sum}) {
    memory.Get(output, Bytes(begin * host.hidden_size, host.dtype),
               Bytes(end * host.hidden_size, host.dtype));
  }
}

template <bool kMisalign>
void RmsNorm(const LigerRmsNormArgs& host, int64_t begin, int64_t end) {
  RowNorm<kMisalign>(LigerCudaRmsNorm, host, begin, end);
}

template <bool kMisalign>
void LayerNorm(const LigerLayerNormArgs& host, int64_t begin, int64_t end) {
  RowNorm<kMisalign>(LigerCudaLayerNorm, host, begin, end);
}

template <bool kMisalign>
void GroupNorm(const LigerGroupNormArgs& host, int64_t begin, int64_t end) {
  DeviceMemory memory(kMisalign);
  LigerGroupNormArgs args = host;
  const int64_t group = host.channels / host.num_groups * host.spatial;
  const size_t bytes = Bytes(host.batch * host.num_groups * group, host.dtype);
  args.x = memory.Put(host.x, bytes, Size(host.dtype));
  args.y = memory.Put(host.y, bytes, Size(host.dtype));
  for (const auto& [from, to] : {std::pair{host.scale, &args.scale}, {host.bias, &args.bias}}) {
    *to = memory.Put(from, Bytes(host.channels, host.scale_dtype), Size(host.scale_dtype));
  }
  Run(LigerCudaGroupNorm, args, memory);
  memory.Get(host.y, Bytes(begin * group, host.dtype), Bytes(end * group, host.dtype));
}

template <bool kMisalign, typename Args>
void Gated(Launch<Args> launch, const Args& host, int64_t begin, int64_t end) {
  DeviceMemory memory(kMisalign);
  Args args = host;
  const int64_t size = host.rows * host.width;
  const int64_t of_gate = host.packed == LIGER_NOT_PACKED ? size : 2 * size;
  args.gate = memory.Put(host.gate, Bytes(of_gate, host.dtype), Size(host.dtype));
  args.up = memory.Put(host.up, Bytes(size, host.dtype), Size(host.dtype));
  args.y = memory.Put(host.y, Bytes(size, host.dtype), Size(host.dtype));
  Run(launch, args, memory);
  memory.Get(host.y, Bytes(begin, host.dtype), Bytes(end, host.dtype));
}

template <bool kMisalign>
void SwiGlu(const LigerSwiGluArgs& host, int64_t begin, int64_t end) {
  Gated<kMisalign>(LigerCudaSwiGlu, host, begin, end);
}

template <bool kMisalign>
void GeGlu(const LigerGeGluArgs& host, int64_t begin, int64_t end) {
  Gated<kMisalign>(LigerCudaGeGlu, host, begin, end);
}

// Elements from the start of a table to the end of its last row.
int64_t TableSize(const LigerRopeArgs& args, int64_t batch_stride, int64_t sequence_stride) {
  const int64_t width = args.full_table != 0 ? args.rotary_dim : args.rotary_dim / 2;
  return std::max<int64_t>(args.batch - 1, 0) * batch_stride +
         std::max<int64_t>(args.sequence - 1, 0) * sequence_stride + width;
}

template <bool kMisalign>
void Rope(const LigerRopeArgs& host, int64_t begin, int64_t end) {
  DeviceMemory memory(kMisalign);
  LigerRopeArgs args = host;
  const int64_t first = host.batch * host.sequence * host.heads;
  const int64_t second = host.batch * host.sequence * host.second_heads;
  const auto put = [&](const void* p, int64_t rows) {
    return memory.Put(p, Bytes(rows * host.head_dim, host.dtype), Size(host.dtype));
  };
  const auto put_table = [&](const void* p, int64_t batch_stride, int64_t sequence_stride) {
    return memory.Put(p, Bytes(TableSize(host, batch_stride, sequence_stride), host.table_dtype),
                      Size(host.table_dtype));
  };
  args.x = put(host.x, first);
  args.second_x = put(host.second_x, second);
  args.cos = put_table(host.cos, host.cos_batch_stride, host.cos_sequence_stride);
  args.sin = put_table(host.sin, host.sin_batch_stride, host.sin_sequence_stride);
  args.y = put(host.y, first);
  args.second_y = put(host.second_y, second);
  Run(LigerCudaRope, args, memory);
  // Rows count on from the first tensor into the second.
  const auto get = [&](void* p, int64_t from, int64_t rows) {
    const int64_t row_begin = std::clamp<int64_t>(begin - from, 0, rows);
    const int64_t row_end = std::clamp<int64_t>(end - from, 0, rows);
    memory.Get(p, Bytes(row_begin * host.head_dim, host.dtype),
               Bytes(row_end * host.head_dim, host.dtype));
  };
  get(host.y, 0, first);
  get(host.second_y, first, second);
}

template <bool kMisalign>
void Softmax(const LigerSoftmaxArgs& host, int64_t begin, int64_t end) {
  DeviceMemory memory(kMisalign);
  LigerSoftmaxArgs args = host;
  const size_t bytes = Bytes(host.rows * host.width, host.dtype);
  args.x = memory.Put(host.x, bytes, Size(host.dtype));
  args.y = memory.Put(host.y, bytes, Size(host.dtype));
  Run(LigerCudaSoftmax, args, memory);
  memory.Get(host.y, Bytes(begin * host.width, host.dtype), Bytes(end * host.width, host.dtype));
}

template <bool kMisalign>
constexpr cpu::KernelTable kTable = {
    kMisalign ? "cuda, unaligned" : "cuda, aligned",
    RmsNorm<kMisalign>,
    Rope<kMisalign>,
    SwiGlu<kMisalign>,
    LayerNorm<kMisalign>,
    GroupNorm<kMisalign>,
    GeGlu<kMisalign>,
    Softmax<kMisalign>,
    nullptr,
    nullptr,
    nullptr,
    nullptr,
    nullptr,
};

// Skips the tests where there is no GPU. Each is a run of its own for ctest, which looks for this
// line to count it as skipped.
class NeedsGpu : public ::testing::Environment {
  void SetUp() override {
    int count = 0;
    if (cudaGetDeviceCount(&count) == cudaSuccess && count > 0) return;
    std::puts("[  SKIPPED ] there is no GPU");
    GTEST_SKIP();
  }
};

[[maybe_unused]] const ::testing::Environment* const kNeedsGpu =
    ::testing::AddGlobalTestEnvironment(new NeedsGpu);

}  // namespace

std::vector<const cpu::KernelTable*> TablesUnderTest() { return {&kTable<false>, &kTable<true>}; }

}  // namespace liger::test
