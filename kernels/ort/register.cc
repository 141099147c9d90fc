// RegisterCustomOps, the one symbol the library exports.
#include <onnxruntime_c_api.h>

#include <algorithm>
#include <deque>
#include <exception>
#include <map>
#include <mutex>
#include <set>
#include <string>

#include "custom_op.h"
#include "host.h"
#include "ops/op_contract.h"

namespace liger::ort {
namespace {

// The last column: which output may take the memory of which input, {input, output}.
constexpr OpBinding kOps[] = {
    {"LigerAddLayerNorm", MakeAddLayerNorm, InferTwoLikeFirst, InPlace<{0, 0}, {1, 1}>},
    {"LigerAddRMSNorm", MakeAddRmsNorm, InferTwoLikeFirst, InPlace<{0, 0}, {1, 1}>},
    {"LigerGeGLU", MakeGeGlu, InferGated, InPlace<{0, 0}, {1, 0}>},
    {"LigerGroupNorm", MakeGroupNorm, InferLikeFirst, InPlace<{0, 0}>},
    {"LigerLayerNorm", MakeLayerNorm, InferLikeFirst, InPlace<{0, 0}>},
    {"LigerRMSNorm", MakeRmsNorm, InferLikeFirst, InPlace<{0, 0}>},
    {"LigerRope", MakeRope, InferRope, InPlace<{0, 0}, {3, 1}>},
    {"LigerSoftmax", MakeSoftmax, InferLikeFirst, InPlace<{0, 0}>},
    {"LigerSwiGLU", MakeSwiGlu, InferGated, InPlace<{0, 0}, {1, 0}>},
};

// One row per name under which ONNX Runtime knows a provider.
std::span<const ProviderBinding> Providers() {
  static const ProviderBinding kProviders[] = {
    {Provider::kCpu, "CPUExecutionProvider", CpuLaunchers()},
#if defined(LIGER_HAS_CUDA)
    {Provider::kCuda, "CUDAExecutionProvider", CudaLaunchers()},
    {Provider::kCuda, "CudaPluginExecutionProvider", CudaLaunchers()},
#endif
  };
  return kProviders;
}

// Comma-separated names of ops that are not registered, so that sessions use the functions' bodies.
constexpr const char* kDisableKey = "liger.disable";

Result<std::string> ConfigEntry(const OrtSessionOptions* options, const char* key) {
  const OrtApi& api = Api();
  int found = 0;
  if (Status status = FromOrt(api.HasSessionConfigEntry(options, key, &found)); !status) {
    return std::move(status).error();
  }
  if (found == 0) return std::string();
  size_t size = 0;
  if (Status status = FromOrt(api.GetSessionConfigEntry(options, key, nullptr, &size)); !status) {
    return std::move(status).error();
  }
  std::string value(size, '\0');  // size counts the terminating zero
  if (Status status = FromOrt(api.GetSessionConfigEntry(options, key, value.data(), &size));
      !status) {
    return std::move(status).error();
  }
  value.resize(size > 0 ? size - 1 : 0);
  return value;
}

std::string Trim(const std::string& text) {
  const size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string::npos) return "";
  return text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

Result<std::set<std::string>> ParseDisabled(const std::string& list) {
  std::set<std::string> disabled;
  for (size_t begin = 0; begin <= list.size();) {
    const size_t end = std::min(list.find(',', begin), list.size());
    std::string name = Trim(list.substr(begin, end - begin));
    begin = end + 1;
    if (name.empty()) continue;
    if (FindContract(name) == nullptr) {
      std::string known;
      for (const OpContract& contract : Contracts()) {
        known += (known.empty() ? "" : ", ") + std::string(contract.op_type);
      }
      return Error{ErrorCode::kUsage, "unknown op '" + name + "'",
                   "session config entry '" + std::string(kDisableKey) + "'", "Known are " + known};
    }
    disabled.insert(std::move(name));
  }
  return disabled;
}

// Domains and entries live as long as the library is loaded, since sessions hold pointers to them.
// Options that disable the same ops share a domain.
class Registry {
 public:
  ~Registry() {
    for (const auto& [disabled, domain] : domains_) Api().ReleaseCustomOpDomain(domain);
  }

  Result<OrtCustomOpDomain*> Domain(const std::set<std::string>& disabled) {
    const std::lock_guard lock(mutex_);
    if (const auto found = domains_.find(disabled); found != domains_.end()) return found->second;
    if (entries_.empty()) {
      if (Status status = MakeEntries(); !status) return std::move(status).error();
    }
    OrtCustomOpDomain* domain = nullptr;
    const std::string name(kOpDomain);
    if (Status status = FromOrt(Api().CreateCustomOpDomain(name.c_str(), &domain)); !status) {
      return std::move(status).error();
    }
    domains_[disabled] = domain;
    for (const CustomOp& entry : entries_) {
      if (disabled.contains(entry.name)) continue;
      if (Status status = FromOrt(Api().CustomOpDomain_Add(domain, &entry)); !status) {
        return std::move(status).error();
      }
    }
    return domain;
  }

 private:
  Status MakeEntries() {
    for (const OpContract& contract : Contracts()) {
      const auto op = std::find_if(std::begin(kOps), std::end(kOps), [&](const OpBinding& binding) {
        return binding.op_type == contract.op_type;
      });
      if (op == std::end(kOps)) {
        return Error{ErrorCode::kInternal, "no kernel is bound to " + std::string(contract.op_type),
                     "", ""};
      }
      for (const ProviderBinding& provider : Providers()) {
        for (const TypeTuple& types : contract.kernels) {
          if (types.provider == provider.provider) {
            entries_.emplace_back(contract, types, provider, *op);
          }
        }
      }
    }
    return {};
  }

  std::mutex mutex_;
  std::deque<CustomOp> entries_;  // never moves its elements
  std::map<std::set<std::string>, OrtCustomOpDomain*> domains_;
};

Status Register(OrtSessionOptions* options) {
  static Registry registry;
  Result<std::string> list = ConfigEntry(options, kDisableKey);
  if (!list) return list.error();
  Result<std::set<std::string>> disabled = ParseDisabled(*list);
  if (!disabled) return disabled.error();
  Result<OrtCustomOpDomain*> domain = registry.Domain(*disabled);
  if (!domain) return domain.error();
  return FromOrt(Api().AddCustomOpDomain(options, *domain));
}

}  // namespace
}  // namespace liger::ort

extern "C" __attribute__((visibility("default"))) OrtStatus* ORT_API_CALL
RegisterCustomOps(OrtSessionOptions* options, const OrtApiBase* base) {
  using namespace liger;
  // Version 1 is there in every host: it makes the status of hosts that lack the version we need.
  const OrtApi* api = base->GetApi(1);
  if (api == nullptr)
    return nullptr;  // no such host exists; without an API there is no error to make
  try {
    Status status = ort::ConnectHost(base);
    if (status) status = ort::Register(options);
    return status ? nullptr : ort::ToOrt(*api, status.error());
  } catch (const std::exception& exception) {
    return api->CreateStatus(ORT_FAIL, exception.what());
  } catch (...) {
    return api->CreateStatus(ORT_FAIL, "unknown exception in libliger_ort");
  }
}
