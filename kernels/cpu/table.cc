// The kernel table of one instruction set, with the probes that tests use.
#include "table.h"

#include "geglu.h"
#include "group_norm.h"
#include "layer_norm.h"
#include "rms_norm.h"
#include "rope.h"
#include "simd.h"
#include "softmax.h"
#include "swiglu.h"

namespace liger::cpu::LIGER_ISA {
namespace {

template <typename A, typename T, typename Function>
void MapAll(const A* x, A* y, int64_t size, Function function) {
  constexpr int kLanes = Simd<A>::kLanes;
  const T* from = reinterpret_cast<const T*>(x);
  T* to = reinterpret_cast<T*>(y);
  for (int64_t i = 0; i < size; i += kLanes) {
    const int n = static_cast<int>(size - i < kLanes ? size - i : kLanes);
    StorePart<A>(to + i, function(LoadPart<A>(from + i, n)), n);
  }
}

template <typename A, typename T>
void ExpAll(const A* x, A* y, int64_t size) {
  MapAll<A, T>(x, y, size, [](typename Simd<A>::Vec v) {
    return ExpOfNonPositive<A>(v, Broadcast(kLowestExponent<A>));
  });
}

template <typename A, typename T>
void NormalCdfAll(const A* x, A* y, int64_t size) {
  MapAll<A, T>(x, y, size, [](typename Simd<A>::Vec v) { return NormalCdf<A>(v); });
}

template <typename A, typename From, typename To>
void ConvertAll(const void* x, void* y, int64_t size) {
  constexpr int kLanes = Simd<A>::kLanes;
  const From* from = static_cast<const From*>(x);
  To* to = static_cast<To*>(y);
  for (int64_t i = 0; i < size; i += kLanes) {
    const int n = static_cast<int>(size - i < kLanes ? size - i : kLanes);
    StorePart<A>(to + i, LoadPart<A>(from + i, n), n);
  }
}

template <typename A, typename From>
void ConvertTo(const void* x, void* y, int32_t to, int64_t size) {
  switch (to) {
    case LIGER_F16:
      return ConvertAll<A, From, F16>(x, y, size);
    case LIGER_BF16:
      return ConvertAll<A, From, BF16>(x, y, size);
    case LIGER_F32:
      return ConvertAll<A, From, F32>(x, y, size);
    default:
      return ConvertAll<double, From, F64>(x, y, size);
  }
}

void Convert(const void* x, int32_t from, void* y, int32_t to, int64_t size) {
  switch (from) {
    case LIGER_F16:
      return ConvertTo<float, F16>(x, y, to, size);
    case LIGER_BF16:
      return ConvertTo<float, BF16>(x, y, to, size);
    case LIGER_F32:
      return ConvertTo<float, F32>(x, y, to, size);
    default:
      return ConvertTo<double, F64>(x, y, to, size);
  }
}

#define LIGER_STRING_(text) #text
#define LIGER_STRING(text) LIGER_STRING_(text)

}  // namespace

const KernelTable kTable = {
    LIGER_STRING(LIGER_ISA),
    RmsNorm,
    Rope,
    SwiGlu,
    LayerNorm,
    GroupNorm,
    GeGlu,
    Softmax,
    ExpAll<float, F32>,
    ExpAll<double, F64>,
    NormalCdfAll<float, F32>,
    NormalCdfAll<double, F64>,
    Convert,
};

}  // namespace liger::cpu::LIGER_ISA
