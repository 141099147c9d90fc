#include "host.h"

#include <atomic>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

namespace liger::ort {
namespace {

// Atomic, since options may be made on one thread while sessions run on others; a process has one
// runtime, so the values do not change once they are set.
std::atomic<const OrtApi*> g_api = nullptr;
std::atomic<ShapeReferenceFn> g_shape_reference = nullptr;
std::atomic<uint32_t> g_release = 0;

// OrtApi is a struct of function pointers to which every version appends and in which none ever
// moves; the slot of a function newer than our headers is its place in the newer struct.
constexpr uint32_t kShapeReferenceApi = 24;
constexpr size_t kShapeReferenceSlot = 414;
static_assert(sizeof(OrtApi) / sizeof(void*) < kShapeReferenceSlot || ORT_API_VERSION >= 24,
              "the slot lies behind the end of older structs");

// 24 of "1.24.3". Release 1.N brings API N; asking with GetApi instead would make older hosts print
// an error.
uint32_t ParseRelease(std::string_view version) {
  if (!version.starts_with("1.")) return 0;
  uint32_t minor = 0;
  std::from_chars(version.data() + 2, version.data() + version.size(), minor);
  return minor;
}

}  // namespace

Status ConnectHost(const OrtApiBase* base) {
  const std::string_view version = base->GetVersionString();
  const OrtApi* api = base->GetApi(ORT_API_VERSION);
  if (api == nullptr) {
    return Error{ErrorCode::kUsage,
                 "libliger_ort needs ONNX Runtime 1." + std::to_string(ORT_API_VERSION) +
                     " or newer; this is " + std::string(version),
                 "", "Without the library the model runs on the bodies of its functions."};
  }
  g_api = api;
  ShapeReferenceFn shape_reference = nullptr;
  g_release = ParseRelease(version);
  if (g_release >= kShapeReferenceApi) {
    if (const OrtApi* newer = base->GetApi(kShapeReferenceApi)) {
      const char* slot =
          reinterpret_cast<const char*>(newer) + kShapeReferenceSlot * sizeof(ShapeReferenceFn);
      std::memcpy(&shape_reference, slot, sizeof(shape_reference));
    }
  }
  g_shape_reference = shape_reference;
  return {};
}

const OrtApi& Api() { return *g_api.load(std::memory_order_relaxed); }

uint32_t HostRelease() { return g_release.load(std::memory_order_relaxed); }

ShapeReferenceFn ShapeReference() { return g_shape_reference.load(std::memory_order_relaxed); }

Status FromOrt(OrtStatus* status) {
  if (status == nullptr) return {};
  Error error{ErrorCode::kInternal, Api().GetErrorMessage(status), "", ""};
  Api().ReleaseStatus(status);
  return error;
}

OrtStatus* ToOrt(const OrtApi& api, const Error& error) {
  const OrtErrorCode code = error.code == ErrorCode::kUsage ? ORT_INVALID_ARGUMENT : ORT_FAIL;
  std::string text = error.location.empty() ? "" : error.location + ": ";
  text += error.message;
  if (!error.hint.empty()) text += ". " + error.hint;
  return api.CreateStatus(code, text.c_str());
}

}  // namespace liger::ort
