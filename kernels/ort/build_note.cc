// An ELF note with the providers that the library has kernels for, so that programs can tell without
// loading it (`readelf --notes libliger_ort.so`): name "liger", type 1, the providers' names with
// commas between.
#include <cstdint>

namespace liger::ort {
namespace {

constexpr char kProviders[] = LIGER_ORT_PROVIDERS;

struct BuildNote {
  uint32_t name_size = 6;
  uint32_t text_size = sizeof(kProviders);
  uint32_t type = 1;
  char name[8] = "liger";
  alignas(4) char text[(sizeof(kProviders) + 3) / 4 * 4] = LIGER_ORT_PROVIDERS;
};

[[gnu::section(".note.liger"), gnu::used]] alignas(4) constexpr BuildNote kBuildNote;

}  // namespace
}  // namespace liger::ort
