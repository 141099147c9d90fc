// Rows that are too wide for registers, streamed through shared memory: they are read from device
// memory once, although a row is passed over two or three times.
//
// A block takes one row after the other. One warp, the producer, fills a ring of chunks by bulk
// copies; the other threads, the consumers, hold one vector of 16 bytes of each chunk. The first
// chunks of a row go into registers and give their place in the ring free at once; the others stay
// until the last pass over them. So the next row flows in while this one is written, and a row may
// be larger than the shared memory by what the registers hold.
//
//   StreamRows<T>(x, y, rows, vecs, slots, body)   body: how a row is reduced and written, see below
//
// Bulk copies need compute capability 9.0; the host asks FitsStream before it launches.
#pragma once

#include <cuda_runtime.h>

#include "launch.h"
#include "reduce.cuh"
#include "vec.cuh"

namespace liger::cuda {

inline constexpr int kConsumers = 640;
inline constexpr int kConsumerWarps = kConsumers / kWarp;
inline constexpr int kStreamThreads = kConsumers + kWarp;
inline constexpr int kChunkBytes = kConsumers * 16;
inline constexpr int kHeldChunks = 12;  // of each row, in registers
inline constexpr int kMaxSlots = 24;

// What stands in front of the ring in dynamic shared memory.
struct StreamState {
  uint64_t full[kMaxSlots];   // a chunk has arrived
  uint64_t empty[kMaxSlots];  // every consumer warp has read it for the last time
  float2 partials[2][kWarp];
};
inline constexpr int kRingOffset = (static_cast<int>(sizeof(StreamState)) + 127) / 128 * 128;

inline int64_t ChunksOf(int64_t vecs) { return (vecs + kConsumers - 1) / kConsumers; }

// Chunks that fit into the shared memory of a block; 0 where there are no bulk copies.
inline int StreamSlots(const Device& device) {
  if (device.major < 9) return 0;
  const int slots = (device.shared_bytes - kRingOffset) / kChunkBytes;
  return slots < kMaxSlots ? slots : kMaxSlots;
}

inline bool FitsStream(const Device& device, int64_t vecs) {
  const int slots = StreamSlots(device);
  return slots > kHeldChunks && ChunksOf(vecs) <= slots + kHeldChunks;
}

inline int StreamBytes(int slots) { return kRingOffset + slots * kChunkBytes; }

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

__device__ __forceinline__ uint32_t SharedAddress(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

__device__ __forceinline__ void InitBarrier(uint64_t* barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(SharedAddress(barrier)),
               "r"(arrivals));
}

__device__ __forceinline__ void Arrive(uint64_t* barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(SharedAddress(barrier)) : "memory");
}

__device__ __forceinline__ void ArriveExpecting(uint64_t* barrier, uint32_t bytes) {
  asm volatile(
      "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(SharedAddress(barrier)),
      "r"(bytes)
      : "memory");
}

// Until the phase of this parity is complete.
__device__ __forceinline__ void Wait(uint64_t* barrier, uint32_t parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again;\n"
      "}\n" ::"r"(SharedAddress(barrier)),
      "r"(parity)
      : "memory");
}

__device__ __forceinline__ void CopyChunk(void* to, const void* from, uint32_t bytes,
                                          uint64_t* barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(SharedAddress(to)),
      "l"(from), "r"(bytes), "r"(SharedAddress(barrier))
      : "memory");
}

// A barrier of the consumers alone.
__device__ __forceinline__ void SyncConsumers() {
  __syncwarp();
  asm volatile("bar.sync 1, %0;" ::"n"(kConsumers) : "memory");
}

// A position in the ring: which slot, and the parity of its current phase.
struct RingPlace {
  int slot = 0;
  uint32_t parity = 0;

  __device__ __forceinline__ void Next(int slots) {
    if (++slot == slots) {
      slot = 0;
      parity ^= 1;
    }
  }
};

// The producer's whole work, on one thread.
__device__ inline void ProduceRows(const char* x, int64_t rows, int64_t vecs, int slots,
                                   StreamState* state, char* ring) {
  RingPlace place;
  bool is_first_round = true;  // nothing has to be freed yet
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const char* from = x + row * vecs * 16;
    for (int64_t left = vecs; left > 0; left -= kConsumers) {
      if (!is_first_round) Wait(&state->empty[place.slot], place.parity ^ 1);
      const uint32_t bytes = static_cast<uint32_t>(left < kConsumers ? left : kConsumers) * 16;
      ArriveExpecting(&state->full[place.slot], bytes);
      CopyChunk(ring + place.slot * kChunkBytes, from, bytes, &state->full[place.slot]);
      from += bytes;
      place.Next(slots);
      if (place.slot == 0) is_first_round = false;
    }
  }
}

// One consumer's view of the row that flows through: its vectors, pass by pass.
class RowStream {
 public:
  __device__ RowStream(StreamState* state, char* ring, int slots, int64_t vecs)
      : state_(state),
        ring_(ring),
        slots_(slots),
        chunks_(static_cast<int>((vecs + kConsumers - 1) / kConsumers)),
        is_in_last_((chunks_ - 1) * kConsumers + static_cast<int>(threadIdx.x) <
                    static_cast<int>(vecs)) {}

  // The first element of the row, to all threads, when it has arrived. Before FirstPass.
  template <typename T>
  __device__ __forceinline__ T First() const {
    Wait(&state_->full[place_.slot], place_.parity);
    return *reinterpret_cast<const T*>(ring_ + place_.slot * kChunkBytes);
  }

  // Calls body(bits, vec) for this thread's vectors of the row as they arrive. Once a row.
  template <typename Body>
  __device__ __forceinline__ void FirstPass(Body body) {
    start_ = place_;
#pragma unroll
    for (int i = 0; i < kHeldChunks; ++i) {
      if (i < chunks_) {
        Wait(&state_->full[place_.slot], place_.parity);
        if (Exists(i)) {
          held_[i] = Read(place_);
          body(held_[i], VecOf(i));
        }
        Free(place_);
        place_.Next(slots_);
      }
    }
    for (int i = kHeldChunks; i < chunks_; ++i) {
      Wait(&state_->full[place_.slot], place_.parity);
      if (Exists(i)) body(Read(place_), VecOf(i));
      place_.Next(slots_);
    }
  }

  // The same vectors again.
  template <typename Body>
  __device__ __forceinline__ void NextPass(Body body) {
    Pass<false>(body);
  }

  // And for the last time: places in the ring become free.
  template <typename Body>
  __device__ __forceinline__ void LastPass(Body body) {
    Pass<true>(body);
  }

 private:
  __device__ __forceinline__ uint32_t VecOf(int chunk) const {
    return static_cast<uint32_t>(chunk) * kConsumers + threadIdx.x;
  }
  // Only the last chunk may be shorter.
  __device__ __forceinline__ bool Exists(int chunk) const {
    return chunk + 1 < chunks_ || is_in_last_;
  }
  __device__ __forceinline__ uint4 Read(const RingPlace& place) const {
    return *reinterpret_cast<const uint4*>(ring_ + place.slot * kChunkBytes + threadIdx.x * 16);
  }
  // Stands behind the last use of what was read: a read that is still on its way would be overtaken by
  // the copy engine's next write.
  __device__ __forceinline__ void Free(const RingPlace& place) const {
    __syncwarp();
    if (threadIdx.x % kWarp == 0) Arrive(&state_->empty[place.slot]);
  }

  template <bool kLast, typename Body>
  __device__ __forceinline__ void Pass(Body body) {
#pragma unroll
    for (int i = 0; i < kHeldChunks; ++i) {
      if (i < chunks_ && Exists(i)) body(held_[i], VecOf(i));
    }
    RingPlace place = start_;
    place.slot += kHeldChunks;  // there are more slots than that
    if (place.slot >= slots_) place.slot -= slots_;
    for (int i = kHeldChunks; i < chunks_; ++i) {
      if (Exists(i)) body(Read(place), VecOf(i));
      if constexpr (kLast) Free(place);
      place.Next(slots_);
    }
  }

  StreamState* state_;
  char* ring_;
  int slots_;
  int chunks_;
  bool is_in_last_;
  RingPlace place_;
  RingPlace start_;  // of the row
  uint4 held_[kHeldChunks];
};

// Sets the ring up, runs the producer, and calls consume(stream, row) on the consumers for each row
// of this block. Dynamic shared memory: StreamBytes(slots).
template <typename Consume>
__device__ __forceinline__ void StreamRows(const void* x, int64_t rows, int64_t vecs, int slots,
                                           Consume consume) {
  extern __shared__ __align__(128) char shared[];
  StreamState* state = reinterpret_cast<StreamState*>(shared);
  char* ring = shared + kRingOffset;
  if (threadIdx.x == 0) {
    for (int i = 0; i < slots; ++i) {
      InitBarrier(&state->full[i], 1);
      InitBarrier(&state->empty[i], kConsumerWarps);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  }
  __syncthreads();
  if (threadIdx.x >= kConsumers) {
    if (threadIdx.x == kConsumers) {
      ProduceRows(static_cast<const char*>(x), rows, vecs, slots, state, ring);
    }
    return;
  }
  RowStream stream(state, ring, slots, vecs);
  int turn = 0;
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x, turn ^= 1) {
    consume(stream, row, state->partials[turn]);
  }
}

#endif  // __CUDA_ARCH__

}  // namespace liger::cuda
