// ONNX Runtime for tests: a session that is made, run and thrown away, on the library of the wheel.
//
//   if (!OrtIsAvailable()) GTEST_SKIP() << OrtMissingText();
//   SessionConfig config;
//   config.library = LigerLibraryPath();               // or empty: no custom-op library
//   Result<OrtSession> session = OrtSession::FromBytes(model_bytes, config);
//   Result<NamedTensors> y = session->Run({{"x", x}});
//
// The library is loaded at run time: libonnxruntime.so.1.* of the virtual environment below the
// source folder's build/, or the file that the environment variable LIGER_TEST_ORT names. Every
// failure of ONNX Runtime is an Error with its text. Sessions may be run by several threads at
// once.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "tensor.h"

struct OrtApiBase;

namespace liger::test {

bool OrtIsAvailable();
std::string OrtMissingText();
std::string OrtVersion();     // "1.23.2"; empty where it is missing
const OrtApiBase* OrtBase();  // null where it is missing

// libliger_ort.so of this build.
std::string LigerLibraryPath();

struct SessionConfig {
  std::string library;  // custom-op library; empty: none
  std::map<std::string, std::string>
      entries;                  // session config entries, set before the library is loaded
  int optimisation_level = 99;  // 0 none, 1 basic, 2 extended, 99 all
  int threads = 1;              // intra-op
  std::string profile_prefix;   // profiling is on if not empty
  std::filesystem::path optimised_model_path;  // where the runtime saves its optimised graph
};

struct ValueInfo {
  std::string name;
  DType dtype = DType::kUndefined;
  std::vector<std::string> dims;  // "4", "batch", or "?" where nothing is known
};

// Inputs that are made once and run many times: for benchmarks.
class BoundRun {
 public:
  BoundRun(BoundRun&&) noexcept;
  BoundRun& operator=(BoundRun&&) noexcept;
  ~BoundRun();
  Status Run();  // outputs are allocated by the runtime and dropped

 private:
  friend class OrtSession;
  struct State;
  explicit BoundRun(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

class OrtSession {
 public:
  static Result<OrtSession> FromBytes(std::string_view model, const SessionConfig& config);
  static Result<OrtSession> FromFile(const std::filesystem::path& path,
                                     const SessionConfig& config);

  OrtSession(OrtSession&&) noexcept;
  OrtSession& operator=(OrtSession&&) noexcept;
  ~OrtSession();

  const std::vector<ValueInfo>& inputs() const;
  const std::vector<ValueInfo>& outputs() const;

  // All outputs, or those named.
  Result<NamedTensors> Run(const NamedTensors& inputs,
                           const std::vector<std::string>& output_names = {}) const;

  // The session must outlive the result.
  Result<BoundRun> Bind(const NamedTensors& inputs) const;

  // Ends profiling and gives the path of the JSON file.
  Result<std::string> EndProfiling();

 private:
  struct State;
  explicit OrtSession(std::unique_ptr<State> state);
  static Result<OrtSession> Make(const std::string* bytes, const std::filesystem::path* path,
                                 const SessionConfig& config);
  std::unique_ptr<State> state_;
};

}  // namespace liger::test
