// Device memory for tests: host buffers with a copy on the GPU, between guards.
//
//   DeviceMemory memory(misalign);
//   args.x = memory.Put(host_x, bytes, element_size);
//   ... launch on memory.stream() ...
//   memory.Get(host_y, first_byte, bytes);    // copies back what belongs to the caller
//   memory.ExpectGuards();
#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "liger/types.h"

namespace liger::test {

inline void ExpectCuda(cudaError_t error) {
  ASSERT_EQ(error, cudaSuccess) << cudaGetErrorString(error);
}

class DeviceMemory {
 public:
  // `misalign`: buffers start one element behind a multiple of 256 bytes, else at one.
  explicit DeviceMemory(bool misalign) : misalign_(misalign) {
    ExpectCuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
  }
  ~DeviceMemory() {
    for (const auto& [host, buffer] : buffers_) cudaFree(buffer.base);
    cudaStreamDestroy(stream_);
  }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  cudaStream_t stream() const { return stream_; }

  // The device's copy of a host buffer; the same for the same buffer, so that aliases stay aliases.
  // Null stays null.
  void* Put(const void* host, size_t bytes, size_t element) {
    if (host == nullptr) return nullptr;
    const auto found = buffers_.find(host);
    if (found != buffers_.end()) return found->second.data();
    Buffer buffer;
    buffer.bytes = bytes;
    buffer.lead = kGuard + (misalign_ ? element : 0);
    const std::vector<std::byte> fill(buffer.lead + bytes + kGuard, kFill);
    ExpectCuda(cudaMalloc(&buffer.base, fill.size()));
    ExpectCuda(cudaMemcpy(buffer.base, fill.data(), fill.size(), cudaMemcpyHostToDevice));
    if (bytes > 0) ExpectCuda(cudaMemcpy(buffer.data(), host, bytes, cudaMemcpyHostToDevice));
    return buffers_.emplace(host, buffer).first->second.data();
  }

  // Copies bytes [begin, end) of a buffer back to the host.
  void Get(void* host, size_t begin, size_t end) {
    if (host == nullptr || begin >= end) return;
    const Buffer& buffer = buffers_.at(host);
    ExpectCuda(cudaMemcpy(static_cast<std::byte*>(host) + begin, buffer.data() + begin, end - begin,
                          cudaMemcpyDeviceToHost));
  }

  void ExpectGuards() const {
    for (const auto& [host, buffer] : buffers_) {
      std::vector<std::byte> all(buffer.lead + buffer.bytes + kGuard);
      ExpectCuda(cudaMemcpy(all.data(), buffer.base, all.size(), cudaMemcpyDeviceToHost));
      for (size_t i = 0; i < buffer.lead; ++i) {
        ASSERT_EQ(all[i], kFill) << "written before the buffer";
      }
      for (size_t i = buffer.lead + buffer.bytes; i < all.size(); ++i) {
        ASSERT_EQ(all[i], kFill) << "written behind the buffer";
      }
    }
  }

 private:
  struct Buffer {
    void* base = nullptr;
    size_t lead = 0;
    size_t bytes = 0;
    std::byte* data() const { return static_cast<std::byte*>(base) + lead; }
  };
  static constexpr size_t kGuard = 256;
  static constexpr std::byte kFill{0xa5};

  bool misalign_;
  cudaStream_t stream_ = nullptr;
  std::map<const void*, Buffer> buffers_;
};

}  // namespace liger::test
