// Errors as values: what went wrong, where, and what the user can do about it.
//
//   Result<Model> model = LoadModel(path);
//   if (!model) return model.error().WithContext("while reading the input");
//   Use(*model);
//
// Wrong input (a file, a patch map, a model) is an Error. A subgraph that does not match is not:
// that is a value with a reason (see pattern/matcher.h). A broken invariant of this program calls
// Fatal().
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace liger {

// Each code is the exit code of the command-line tool (docs/exit-codes in the README).
enum class ErrorCode {
  kExpectation = 1,   // --strict, --expect, or a verification failed
  kUsage = 2,         // wrong command line or patch map
  kInvalidModel = 3,  // unreadable or invalid model
  kFamily = 4,        // family unknown, or module not accepted by it
  kWrite = 5,         // output could not be written
  kInternal = 70,     // a fault of ours
};

struct Error {
  ErrorCode code = ErrorCode::kInternal;
  std::string message;          // one sentence that names the thing
  std::string location{};       // "file:line:column", or a node or value name; may be empty
  std::string hint{};           // what to do about it; may be empty
  std::vector<Error> others{};  // further ones of the same kind, each without others

  // The error with `context` put in front of its message.
  Error WithContext(std::string_view context) && {
    message = std::string(context) + ": " + message;
    return std::move(*this);
  }
};

// Either a value or an Error. Dereferencing a failed Result is a broken invariant.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::move(value)) {}
  Result(Error error) : state_(std::move(error)) {}

  explicit operator bool() const { return std::holds_alternative<T>(state_); }
  T& operator*() & { return std::get<T>(state_); }
  const T& operator*() const& { return std::get<T>(state_); }
  T&& operator*() && { return std::get<T>(std::move(state_)); }
  T* operator->() { return &std::get<T>(state_); }
  const T* operator->() const { return &std::get<T>(state_); }
  const Error& error() const& { return std::get<Error>(state_); }
  Error&& error() && { return std::get<Error>(std::move(state_)); }

 private:
  std::variant<T, Error> state_;
};

// Success, or an Error.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Error error) : error_(std::move(error)) {}

  explicit operator bool() const { return !error_.has_value(); }
  const Error& error() const& { return *error_; }
  Error&& error() && { return *std::move(error_); }

 private:
  std::optional<Error> error_;
};

// Gathers errors of one kind into one, so that all faults are shown at once.
//
//   ErrorList errors;
//   errors.Add(...);
//   return errors.Take();   // success if there was none
class ErrorList {
 public:
  // Further ones that the error holds are added behind it.
  void Add(Error error);
  Status Take();

 private:
  std::vector<Error> errors_;
};

// Prints `what` with its place and aborts: for invariants of this program, never for user input.
[[noreturn]] void Fatal(const char* file, int line, std::string_view what);

#define LIGER_CHECK(condition)                                        \
  do {                                                                \
    if (!(condition)) ::liger::Fatal(__FILE__, __LINE__, #condition); \
  } while (false)

}  // namespace liger
