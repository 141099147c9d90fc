// What the tests of src/model share: a folder that vanishes, small files, models from ONNX text.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <onnx/defs/parser.h>
#include <onnx/onnx_pb.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <random>
#include <set>
#include <string>
#include <string_view>

#include "base/error.h"

namespace liger {

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::random_device random;
    path_ = std::filesystem::canonical(std::filesystem::temp_directory_path()) /
            ("liger-test-" + std::to_string(::getpid()) + "-" + std::to_string(random()));
    std::filesystem::create_directory(path_);
    ::chmod(path_.c_str(), 0755);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(std::string_view name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

inline std::filesystem::path WriteFile(const std::filesystem::path& path, std::string_view bytes) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<long>(bytes.size()));
  return path;
}

inline std::string ReadFile(const std::filesystem::path& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

// Names of everything in a folder.
inline std::set<std::string> Listing(const std::filesystem::path& folder) {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    names.insert(entry.path().filename().string());
  }
  return names;
}

inline onnx::ModelProto ModelFromText(const std::string& text) {
  onnx::ModelProto model;
  const auto status = onnx::OnnxParser::Parse(model, text.c_str());
  if (!status.IsOK()) ADD_FAILURE() << status.ErrorMessage();
  return model;
}

inline void SetEntry(onnx::TensorProto& tensor, const std::string& key, const std::string& value) {
  auto* entry = tensor.add_external_data();
  entry->set_key(key);
  entry->set_value(value);
}

// Makes `tensor` external with float32 elements.
inline void MakeExternal(onnx::TensorProto& tensor, const std::string& location,
                         const std::vector<int64_t>& dims, const std::string& offset = "",
                         const std::string& length = "") {
  const std::string name = tensor.name();
  tensor.Clear();
  tensor.set_name(name);
  tensor.set_data_type(onnx::TensorProto::FLOAT);
  for (const int64_t dim : dims) tensor.add_dims(dim);
  tensor.set_data_location(onnx::TensorProto::EXTERNAL);
  SetEntry(tensor, "location", location);
  if (!offset.empty()) SetEntry(tensor, "offset", offset);
  if (!length.empty()) SetEntry(tensor, "length", length);
}

// Acts as a user without privileges while it lives, so that permissions mean something; does
// nothing for a user who has none anyway.
class Unprivileged {
 public:
  Unprivileged() : user_(::geteuid()) {
    if (user_ == 0 && ::seteuid(65534) != 0) ADD_FAILURE() << "seteuid";
  }
  ~Unprivileged() {
    if (user_ == 0 && ::seteuid(0) != 0) ADD_FAILURE() << "seteuid";
  }

 private:
  uid_t user_;
};

#define EXPECT_ERROR(result, expected_code, ...)                                        \
  do {                                                                                  \
    const auto& result_ = (result);                                                     \
    ASSERT_FALSE(static_cast<bool>(result_));                                           \
    EXPECT_EQ(static_cast<int>(result_.error().code), static_cast<int>(expected_code)); \
    EXPECT_THAT(result_.error().message, ::testing::AllOf(__VA_ARGS__));                \
  } while (false)

// A failed EXPECT that shows the error.
#define ASSERT_OK(result)                                                    \
  ASSERT_TRUE(static_cast<bool>(result)) << (result).error().message << "\n" \
                                         << (result).error().hint

}  // namespace liger
