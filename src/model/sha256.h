// SHA-256 (FIPS 180-4), for the digests of the model files named in a report.
//
//   Sha256 hash;
//   hash.Update(bytes.data(), bytes.size());
//   std::string digest = hash.HexDigest();   // 64 lower-case hexadecimal digits
//
// Data may come in pieces of any size. Written out here because none of the libraries this project
// uses offers a digest. Processors with SHA instructions use them: that is the difference between a
// digest that costs more than reading a model of 2 GB and one that does not show.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#if defined(__x86_64__) && defined(__GNUC__)
#include <cpuid.h>
#include <immintrin.h>
#define LIGER_SHA256_X86 1
#else
#define LIGER_SHA256_X86 0
#endif

namespace liger {

class Sha256 {
 public:
  // `portable`: plain C++ even where the processor has instructions for the rounds (for tests).
  explicit Sha256(bool portable = false) : use_instructions_(!portable && HasInstructions()) {}

  void Update(const void* data, size_t size) {
    const auto* bytes = static_cast<const uint8_t*>(data);
    total_size_ += size;
    if (pending_size_ > 0) {
      const size_t part = std::min(size, kBlock - pending_size_);
      std::memcpy(pending_.data() + pending_size_, bytes, part);
      pending_size_ += part;
      bytes += part;
      size -= part;
      if (pending_size_ < kBlock) return;
      Process(pending_.data(), 1);
      pending_size_ = 0;
    }
    Process(bytes, size / kBlock);
    pending_size_ = size % kBlock;
    if (pending_size_ > 0)
      std::memcpy(pending_.data(), bytes + (size - pending_size_), pending_size_);
  }

  // Ends the computation: to be called once, and nothing afterwards.
  std::string HexDigest() {
    // The message is followed by a bit 1, zeros, and its length in bits as 64 bits, big-endian.
    const uint64_t bits = total_size_ * 8;
    std::array<uint8_t, 2 * kBlock> tail = {};
    std::memcpy(tail.data(), pending_.data(), pending_size_);
    tail[pending_size_] = 0x80;
    const size_t blocks = pending_size_ + 9 <= kBlock ? 1 : 2;
    for (size_t i = 0; i < 8; ++i) {
      tail[blocks * kBlock - 1 - i] = static_cast<uint8_t>(bits >> (8 * i));
    }
    Process(tail.data(), blocks);

    static constexpr char kDigits[] = "0123456789abcdef";
    std::string digest;
    for (const uint32_t word : state_) {
      for (int shift = 28; shift >= 0; shift -= 4) digest += kDigits[word >> shift & 15];
    }
    return digest;
  }

  static bool HasInstructions() {
#if LIGER_SHA256_X86
    static const bool has = DetectInstructions();
    return has;
#else
    return false;
#endif
  }

 private:
  static constexpr size_t kBlock = 64;

  alignas(16) static constexpr std::array<uint32_t, 64> kRoundConstants = {
      0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4,
      0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe,
      0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f,
      0x4a7484aa, 0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7,
      0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc,
      0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b,
      0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116,
      0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
      0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7,
      0xc67178f2};

  void Process(const uint8_t* blocks, size_t count) {
#if LIGER_SHA256_X86
    if (use_instructions_) return ProcessWithInstructions(blocks, count);
#endif
    for (size_t i = 0; i < count; ++i) ProcessBlock(blocks + i * kBlock);
  }

  void ProcessBlock(const uint8_t* block) {
    std::array<uint32_t, 64> w;  // the message schedule
    for (size_t i = 0; i < 16; ++i) {
      w[i] = static_cast<uint32_t>(block[4 * i]) << 24 |
             static_cast<uint32_t>(block[4 * i + 1]) << 16 |
             static_cast<uint32_t>(block[4 * i + 2]) << 8 | block[4 * i + 3];
    }
    for (size_t i = 16; i < 64; ++i) {
      const uint32_t s0 = std::rotr(w[i - 15], 7) ^ std::rotr(w[i - 15], 18) ^ w[i - 15] >> 3;
      const uint32_t s1 = std::rotr(w[i - 2], 17) ^ std::rotr(w[i - 2], 19) ^ w[i - 2] >> 10;
      w[i] = w[i - 16] + s0 + w[i - 7] + s1;
    }
    auto [a, b, c, d, e, f, g, h] = state_;
    for (size_t i = 0; i < 64; ++i) {
      const uint32_t s1 = std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25);
      const uint32_t choice = (e & f) ^ (~e & g);
      const uint32_t t1 = h + s1 + choice + kRoundConstants[i] + w[i];
      const uint32_t s0 = std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22);
      const uint32_t majority = (a & b) ^ (a & c) ^ (b & c);
      h = g;
      g = f;
      f = e;
      e = d + t1;
      d = c;
      c = b;
      b = a;
      a = t1 + s0 + majority;
    }
    const std::array<uint32_t, 8> added = {a, b, c, d, e, f, g, h};
    for (size_t i = 0; i < 8; ++i) state_[i] += added[i];
  }

#if LIGER_SHA256_X86
  static bool DetectInstructions() {
    // GCC 12 has no name for the SHA extension in __builtin_cpu_supports: CPUID leaf 7, EBX bit 29.
    unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
    if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0) return false;
    return (ebx >> 29 & 1) != 0 && __builtin_cpu_supports("sse4.1");
  }

  // The instructions keep the state as the vectors {A,B,E,F} and {C,D,G,H} (highest element first),
  // and each of them does two rounds on the low two words of `message + constants`.
  __attribute__((target("sha,sse4.1"))) void ProcessWithInstructions(const uint8_t* blocks,
                                                                     size_t count) {
    const __m128i big_endian = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
    __m128i abef = _mm_set_epi32(static_cast<int>(state_[0]), static_cast<int>(state_[1]),
                                 static_cast<int>(state_[4]), static_cast<int>(state_[5]));
    __m128i cdgh = _mm_set_epi32(static_cast<int>(state_[2]), static_cast<int>(state_[3]),
                                 static_cast<int>(state_[6]), static_cast<int>(state_[7]));
    for (; count > 0; --count, blocks += kBlock) {
      const __m128i abef_before = abef;
      const __m128i cdgh_before = cdgh;
      __m128i w[4];  // the last 16 words of the message schedule, as a ring of four vectors
#pragma GCC unroll 16
      for (int group = 0; group < 16; ++group) {
        __m128i& current = w[group % 4];
        if (group < 4) {
          current = _mm_shuffle_epi8(
              _mm_loadu_si128(reinterpret_cast<const __m128i*>(blocks + 16 * group)), big_endian);
        } else {
          // w[t] = s1(w[t-2]) + w[t-7] + s0(w[t-15]) + w[t-16], four words at a time.
          const __m128i back_4 = w[(group + 3) % 4];
          const __m128i back_8 = w[(group + 2) % 4];
          const __m128i back_12 = w[(group + 1) % 4];
          const __m128i with_s0 = _mm_sha256msg1_epu32(current, back_12);
          const __m128i with_w7 = _mm_add_epi32(with_s0, _mm_alignr_epi8(back_4, back_8, 4));
          current = _mm_sha256msg2_epu32(with_w7, back_4);
        }
        const __m128i constants =
            _mm_load_si128(reinterpret_cast<const __m128i*>(kRoundConstants.data() + 4 * group));
        const __m128i sum = _mm_add_epi32(current, constants);
        cdgh = _mm_sha256rnds2_epu32(cdgh, abef, sum);
        abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(sum, 0x0e));
      }
      abef = _mm_add_epi32(abef, abef_before);
      cdgh = _mm_add_epi32(cdgh, cdgh_before);
    }
    alignas(16) std::array<uint32_t, 4> feba;
    alignas(16) std::array<uint32_t, 4> hgdc;
    _mm_store_si128(reinterpret_cast<__m128i*>(feba.data()), abef);
    _mm_store_si128(reinterpret_cast<__m128i*>(hgdc.data()), cdgh);
    state_ = {feba[3], feba[2], hgdc[3], hgdc[2], feba[1], feba[0], hgdc[1], hgdc[0]};
  }
#endif

  bool use_instructions_;
  std::array<uint32_t, 8> state_ = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                    0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<uint8_t, kBlock> pending_ = {};
  size_t pending_size_ = 0;
  uint64_t total_size_ = 0;
};

}  // namespace liger
