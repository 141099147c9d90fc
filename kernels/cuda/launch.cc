#include "launch.h"

#include <array>
#include <atomic>

namespace liger::cuda {
namespace {

// Threads that ask at the same time write the same values, so no lock is needed.
struct Slot {
  std::atomic<bool> known = false;
  std::atomic<int> multiprocessors, major, shared_bytes, threads;
};

constexpr int kMaxDevices = 64;

LigerStatus Ask(int ordinal, Device& device) {
  const std::pair<cudaDeviceAttr, int*> questions[] = {
      {cudaDevAttrMultiProcessorCount, &device.multiprocessors},
      {cudaDevAttrComputeCapabilityMajor, &device.major},
      {cudaDevAttrMaxSharedMemoryPerBlockOptin, &device.shared_bytes},
      {cudaDevAttrMaxThreadsPerMultiProcessor, &device.threads_of_multiprocessor},
  };
  for (const auto& [attribute, value] : questions) {
    if (const cudaError_t error = cudaDeviceGetAttribute(value, attribute, ordinal)) {
      return ToStatus(error);
    }
  }
  return LIGER_OK;
}

}  // namespace

LigerStatus CurrentDevice(Device& device) {
  static std::array<Slot, kMaxDevices> slots;
  int ordinal = 0;
  if (const cudaError_t error = cudaGetDevice(&ordinal)) return ToStatus(error);
  if (ordinal >= kMaxDevices) return Ask(ordinal, device);
  Slot& slot = slots[static_cast<size_t>(ordinal)];
  if (!slot.known.load(std::memory_order_acquire)) {
    if (const LigerStatus status = Ask(ordinal, device)) return status;
    slot.multiprocessors = device.multiprocessors;
    slot.major = device.major;
    slot.shared_bytes = device.shared_bytes;
    slot.threads = device.threads_of_multiprocessor;
    slot.known.store(true, std::memory_order_release);
    return LIGER_OK;
  }
  device = {slot.multiprocessors, slot.major, slot.shared_bytes, slot.threads};
  return LIGER_OK;
}

}  // namespace liger::cuda
