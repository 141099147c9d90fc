#include "ort_session.h"

#include <dlfcn.h>
#include <onnxruntime_c_api.h>

#include <cstdlib>
#include <cstring>

#if defined(__SANITIZE_ADDRESS__)
// ONNX Runtime keeps the status with which a custom op refuses a node: not a leak of ours.
extern "C" [[gnu::visibility("default")]] const char* __lsan_default_suppressions() {  // NOLINT
  return "leak:libonnxruntime.so\n";
}
#endif

namespace liger::test {
namespace {

namespace fs = std::filesystem;

// The runtime of this process, loaded once and never unloaded.
struct Runtime {
  const OrtApiBase* base = nullptr;
  const OrtApi* api = nullptr;
  OrtEnv* env = nullptr;
  std::string version;
  std::string missing;  // why there is none
};

fs::path FindLibrary() {
  if (const char* named = std::getenv("LIGER_TEST_ORT")) return named;
  std::error_code ignored;
  for (const auto& python : fs::directory_iterator(fs::path(LIGER_TEST_VENV) / "lib", ignored)) {
    const fs::path capi = python.path() / "site-packages" / "onnxruntime" / "capi";
    for (const auto& file : fs::directory_iterator(capi, ignored)) {
      if (file.path().filename().string().starts_with("libonnxruntime.so.1.")) return file.path();
    }
  }
  return {};
}

Runtime LoadRuntime() {
  Runtime runtime;
  const fs::path path = FindLibrary();
  if (path.empty()) {
    runtime.missing = "no ONNX Runtime library in " + std::string(LIGER_TEST_VENV) +
                      "; set LIGER_TEST_ORT to a libonnxruntime.so";
    return runtime;
  }
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    runtime.missing = dlerror();
    return runtime;
  }
  using GetApiBase = const OrtApiBase* (*)();
  const auto get_api_base = reinterpret_cast<GetApiBase>(dlsym(library, "OrtGetApiBase"));
  if (get_api_base == nullptr) {
    runtime.missing = path.string() + " has no OrtGetApiBase";
    return runtime;
  }
  runtime.base = get_api_base();
  runtime.api = runtime.base->GetApi(ORT_API_VERSION);
  runtime.version = runtime.base->GetVersionString();
  if (runtime.api == nullptr) {
    runtime.missing = "ONNX Runtime " + runtime.version + " is older than the headers";
    return runtime;
  }
  if (OrtStatus* status =
          runtime.api->CreateEnv(ORT_LOGGING_LEVEL_ERROR, "liger-tests", &runtime.env)) {
    runtime.missing = runtime.api->GetErrorMessage(status);
    runtime.api->ReleaseStatus(status);
    runtime.api = nullptr;
  }
  return runtime;
}

const Runtime& GetRuntime() {
  static const Runtime runtime = LoadRuntime();
  return runtime;
}

const OrtApi& Api() { return *GetRuntime().api; }

Status Check(OrtStatus* status) {
  if (status == nullptr) return {};
  Error error{ErrorCode::kInternal, Api().GetErrorMessage(status), "", ""};
  Api().ReleaseStatus(status);
  return error;
}

// A handle of ONNX Runtime with its release function.
template <typename Handle>
using Owned = std::unique_ptr<Handle, void(ORT_API_CALL*)(Handle*)>;

Owned<OrtValue> OwnValue(OrtValue* value = nullptr) { return {value, Api().ReleaseValue}; }

Result<Owned<OrtValue>> MakeValue(const OrtMemoryInfo* memory, const Tensor& tensor) {
  OrtValue* value = nullptr;
  // The value only borrows the bytes and inputs are not written.
  auto* bytes = const_cast<std::byte*>(tensor.bytes.data());
  if (Status status = Check(Api().CreateTensorWithDataAsOrtValue(
          memory, bytes, tensor.bytes.size(), tensor.shape.data(), tensor.shape.size(),
          static_cast<ONNXTensorElementDataType>(tensor.dtype), &value));
      !status) {
    return std::move(status).error();
  }
  return OwnValue(value);
}

Result<Tensor> ReadValue(OrtValue* value) {
  const OrtApi& api = Api();
  OrtTensorTypeAndShapeInfo* raw = nullptr;
  if (Status status = Check(api.GetTensorTypeAndShape(value, &raw)); !status) {
    return std::move(status).error();
  }
  const Owned<OrtTensorTypeAndShapeInfo> info(raw, api.ReleaseTensorTypeAndShapeInfo);
  size_t rank = 0;
  ONNXTensorElementDataType type = ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED;
  void* data = nullptr;
  Tensor tensor;
  if (Status status = Check(api.GetDimensionsCount(raw, &rank)); !status) {
    return std::move(status).error();
  }
  tensor.shape.resize(rank);
  if (Status status = Check(api.GetDimensions(raw, tensor.shape.data(), rank)); !status) {
    return std::move(status).error();
  }
  if (Status status = Check(api.GetTensorElementType(raw, &type)); !status) {
    return std::move(status).error();
  }
  if (Status status = Check(api.GetTensorMutableData(value, &data)); !status) {
    return std::move(status).error();
  }
  tensor.dtype = static_cast<DType>(type);
  tensor.bytes.resize(static_cast<size_t>(tensor.size() * DTypeSize(tensor.dtype)));
  if (!tensor.bytes.empty()) std::memcpy(tensor.bytes.data(), data, tensor.bytes.size());
  return tensor;
}

Result<ValueInfo> ReadInfo(std::string name, OrtTypeInfo* raw_type) {
  const OrtApi& api = Api();
  const Owned<OrtTypeInfo> type(raw_type, api.ReleaseTypeInfo);
  const OrtTensorTypeAndShapeInfo* info = nullptr;
  if (Status status = Check(api.CastTypeInfoToTensorInfo(raw_type, &info)); !status) {
    return std::move(status).error();
  }
  ValueInfo value{std::move(name), DType::kUndefined, {}};
  if (info == nullptr) return value;  // a sequence, map or optional
  ONNXTensorElementDataType element = ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED;
  size_t rank = 0;
  if (Status status = Check(api.GetTensorElementType(info, &element)); !status) {
    return std::move(status).error();
  }
  if (Status status = Check(api.GetDimensionsCount(info, &rank)); !status) {
    return std::move(status).error();
  }
  std::vector<int64_t> dims(rank);
  std::vector<const char*> symbols(rank);
  if (Status status = Check(api.GetDimensions(info, dims.data(), rank)); !status) {
    return std::move(status).error();
  }
  if (Status status = Check(api.GetSymbolicDimensions(info, symbols.data(), rank)); !status) {
    return std::move(status).error();
  }
  value.dtype = static_cast<DType>(element);
  for (size_t i = 0; i < rank; ++i) {
    if (dims[i] >= 0) {
      value.dims.push_back(std::to_string(dims[i]));
    } else {
      value.dims.push_back(*symbols[i] == '\0' ? "?" : symbols[i]);
    }
  }
  return value;
}

Result<std::vector<ValueInfo>> ReadInfos(const ::OrtSession* session, bool outputs) {
  const OrtApi& api = Api();
  OrtAllocator* allocator = nullptr;
  size_t count = 0;
  if (Status status = Check(api.GetAllocatorWithDefaultOptions(&allocator)); !status) {
    return std::move(status).error();
  }
  if (Status status = Check(outputs ? api.SessionGetOutputCount(session, &count)
                                    : api.SessionGetInputCount(session, &count));
      !status) {
    return std::move(status).error();
  }
  std::vector<ValueInfo> infos;
  for (size_t i = 0; i < count; ++i) {
    char* raw_name = nullptr;
    OrtTypeInfo* type = nullptr;
    if (Status status = Check(outputs ? api.SessionGetOutputName(session, i, allocator, &raw_name)
                                      : api.SessionGetInputName(session, i, allocator, &raw_name));
        !status) {
      return std::move(status).error();
    }
    std::string name = raw_name;
    if (Status status = Check(api.AllocatorFree(allocator, raw_name)); !status) {
      return std::move(status).error();
    }
    if (Status status = Check(outputs ? api.SessionGetOutputTypeInfo(session, i, &type)
                                      : api.SessionGetInputTypeInfo(session, i, &type));
        !status) {
      return std::move(status).error();
    }
    Result<ValueInfo> info = ReadInfo(std::move(name), type);
    if (!info) return info.error();
    infos.push_back(*std::move(info));
  }
  return infos;
}

Status Configure(OrtSessionOptions* options, const SessionConfig& config) {
  const OrtApi& api = Api();
  if (Status status = Check(api.SetIntraOpNumThreads(options, config.threads)); !status)
    return status;
  if (Status status = Check(api.SetSessionGraphOptimizationLevel(
          options, static_cast<GraphOptimizationLevel>(config.optimisation_level)));
      !status) {
    return status;
  }
  for (const auto& [key, value] : config.entries) {
    if (Status status = Check(api.AddSessionConfigEntry(options, key.c_str(), value.c_str()));
        !status) {
      return status;
    }
  }
  if (!config.profile_prefix.empty()) {
    if (Status status = Check(api.EnableProfiling(options, config.profile_prefix.c_str()));
        !status) {
      return status;
    }
  }
  if (!config.optimised_model_path.empty()) {
    if (Status status =
            Check(api.SetOptimizedModelFilePath(options, config.optimised_model_path.c_str()));
        !status) {
      return status;
    }
  }
  if (config.library.empty()) return {};
  return Check(api.RegisterCustomOpsLibrary_V2(options, config.library.c_str()));
}

}  // namespace

bool OrtIsAvailable() { return GetRuntime().api != nullptr; }
std::string OrtMissingText() { return GetRuntime().missing; }
const OrtApiBase* OrtBase() { return GetRuntime().base; }
std::string OrtVersion() { return GetRuntime().version; }
std::string LigerLibraryPath() { return LIGER_TEST_LIBRARY; }

struct OrtSession::State {
  Owned<::OrtSession> session{nullptr, Api().ReleaseSession};
  Owned<OrtMemoryInfo> memory{nullptr, Api().ReleaseMemoryInfo};
  std::vector<ValueInfo> inputs;
  std::vector<ValueInfo> outputs;
};

struct BoundRun::State {
  const ::OrtSession* session = nullptr;
  std::vector<std::string> names;
  std::vector<Tensor> tensors;  // whose bytes the values borrow
  std::vector<Owned<OrtValue>> values;
  std::vector<const char*> input_names;
  std::vector<const OrtValue*> inputs;
  std::vector<const char*> output_names;
};

OrtSession::OrtSession(std::unique_ptr<State> state) : state_(std::move(state)) {}
OrtSession::OrtSession(OrtSession&&) noexcept = default;
OrtSession& OrtSession::operator=(OrtSession&&) noexcept = default;
OrtSession::~OrtSession() = default;

Result<OrtSession> OrtSession::FromBytes(std::string_view model, const SessionConfig& config) {
  const std::string bytes(model);
  return Make(&bytes, nullptr, config);
}

Result<OrtSession> OrtSession::FromFile(const fs::path& path, const SessionConfig& config) {
  return Make(nullptr, &path, config);
}

Result<OrtSession> OrtSession::Make(const std::string* bytes, const fs::path* path,
                                    const SessionConfig& config) {
  if (!OrtIsAvailable()) return Error{ErrorCode::kUsage, OrtMissingText(), "", ""};
  const OrtApi& api = Api();
  OrtSessionOptions* raw_options = nullptr;
  if (Status status = Check(api.CreateSessionOptions(&raw_options)); !status) {
    return std::move(status).error();
  }
  const Owned<OrtSessionOptions> options(raw_options, api.ReleaseSessionOptions);
  if (Status status = Configure(raw_options, config); !status) return std::move(status).error();

  auto state = std::make_unique<State>();
  ::OrtSession* session = nullptr;
  OrtMemoryInfo* memory = nullptr;
  const Runtime& runtime = GetRuntime();
  if (Status status = Check(
          path != nullptr ? api.CreateSession(runtime.env, path->c_str(), raw_options, &session)
                          : api.CreateSessionFromArray(runtime.env, bytes->data(), bytes->size(),
                                                       raw_options, &session));
      !status) {
    return std::move(status).error();
  }
  state->session.reset(session);
  if (Status status = Check(api.CreateCpuMemoryInfo(OrtArenaAllocator, OrtMemTypeDefault, &memory));
      !status) {
    return std::move(status).error();
  }
  state->memory.reset(memory);
  Result<std::vector<ValueInfo>> inputs = ReadInfos(session, false);
  if (!inputs) return inputs.error();
  Result<std::vector<ValueInfo>> outputs = ReadInfos(session, true);
  if (!outputs) return outputs.error();
  state->inputs = *std::move(inputs);
  state->outputs = *std::move(outputs);
  return OrtSession(std::move(state));
}

const std::vector<ValueInfo>& OrtSession::inputs() const { return state_->inputs; }
const std::vector<ValueInfo>& OrtSession::outputs() const { return state_->outputs; }

Result<NamedTensors> OrtSession::Run(const NamedTensors& inputs,
                                     const std::vector<std::string>& output_names) const {
  std::vector<Owned<OrtValue>> values;
  std::vector<const char*> names;
  std::vector<const OrtValue*> raw_inputs;
  for (const auto& [name, tensor] : inputs) {
    Result<Owned<OrtValue>> value = MakeValue(state_->memory.get(), tensor);
    if (!value) return value.error();
    values.push_back(*std::move(value));
    names.push_back(name.c_str());
    raw_inputs.push_back(values.back().get());
  }
  std::vector<const char*> wanted;
  for (const std::string& name : output_names) wanted.push_back(name.c_str());
  if (output_names.empty()) {
    for (const ValueInfo& output : state_->outputs) wanted.push_back(output.name.c_str());
  }
  std::vector<OrtValue*> raw_outputs(wanted.size(), nullptr);
  Status status = Check(Api().Run(state_->session.get(), nullptr, names.data(), raw_inputs.data(),
                                  names.size(), wanted.data(), wanted.size(), raw_outputs.data()));
  std::vector<Owned<OrtValue>> outputs;
  for (OrtValue* value : raw_outputs) outputs.push_back(OwnValue(value));
  if (!status) return status.error();

  NamedTensors result;
  for (size_t i = 0; i < wanted.size(); ++i) {
    Result<Tensor> tensor = ReadValue(outputs[i].get());
    if (!tensor) return tensor.error();
    result[wanted[i]] = *std::move(tensor);
  }
  return result;
}

Result<BoundRun> OrtSession::Bind(const NamedTensors& inputs) const {
  auto state = std::make_unique<BoundRun::State>();
  state->session = state_->session.get();
  for (const auto& [name, tensor] : inputs) {
    state->names.push_back(name);
    state->tensors.push_back(tensor);
  }
  for (size_t i = 0; i < state->tensors.size(); ++i) {
    Result<Owned<OrtValue>> value = MakeValue(state_->memory.get(), state->tensors[i]);
    if (!value) return value.error();
    state->inputs.push_back(value->get());
    state->values.push_back(*std::move(value));
    state->input_names.push_back(state->names[i].c_str());
  }
  for (const ValueInfo& output : state_->outputs)
    state->output_names.push_back(output.name.c_str());
  return BoundRun(std::move(state));
}

Result<std::string> OrtSession::EndProfiling() {
  OrtAllocator* allocator = nullptr;
  char* path = nullptr;
  if (Status status = Check(Api().GetAllocatorWithDefaultOptions(&allocator)); !status) {
    return std::move(status).error();
  }
  if (Status status = Check(Api().SessionEndProfiling(state_->session.get(), allocator, &path));
      !status) {
    return std::move(status).error();
  }
  std::string result = path;
  if (Status status = Check(Api().AllocatorFree(allocator, path)); !status) {
    return std::move(status).error();
  }
  return result;
}

BoundRun::BoundRun(std::unique_ptr<State> state) : state_(std::move(state)) {}
BoundRun::BoundRun(BoundRun&&) noexcept = default;
BoundRun& BoundRun::operator=(BoundRun&&) noexcept = default;
BoundRun::~BoundRun() = default;

Status BoundRun::Run() {
  std::vector<OrtValue*> outputs(state_->output_names.size(), nullptr);
  // Only the session's own state changes in a run, which takes a pointer to non-const.
  Status status =
      Check(Api().Run(const_cast<::OrtSession*>(state_->session), nullptr,
                      state_->input_names.data(), state_->inputs.data(), state_->inputs.size(),
                      state_->output_names.data(), outputs.size(), outputs.data()));
  for (OrtValue* value : outputs) Api().ReleaseValue(value);
  return status;
}

}  // namespace liger::test
