// Thin wrappers over POSIX files for src/model: an owned descriptor, complete reads and writes, and
// a temporary file that is either given its name or removed.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <random>
#include <string>
#include <system_error>
#include <utility>

namespace liger {

// "Permission denied" for EACCES.
inline std::string ErrnoText(int error) { return std::generic_category().message(error); }

// The path between single quotes, for messages.
inline std::string Quoted(const std::filesystem::path& path) {
  std::string text = "'";
  text += path.native();
  text += "'";
  return text;
}

class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~UniqueFd() {
    if (fd_ >= 0) ::close(fd_);
  }

  int get() const { return fd_; }
  bool is_open() const { return fd_ >= 0; }

  // Closes and returns errno, 0 on success: some file systems report a failed write only here.
  int Close() {
    const int fd = std::exchange(fd_, -1);
    return fd < 0 || ::close(fd) == 0 || errno == EINTR ? 0 : errno;
  }

 private:
  int fd_ = -1;
};

// Opens an existing file for reading. A FIFO does not block (O_NONBLOCK means nothing to a file).
inline UniqueFd OpenForReading(const std::filesystem::path& path) {
  int fd = -1;
  do {
    fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  } while (fd < 0 && errno == EINTR);
  return UniqueFd(fd);
}

// Writes everything; errno, 0 on success.
inline int WriteAll(int fd, const void* data, size_t size) {
  const auto* bytes = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t written = ::write(fd, bytes, size);
    if (written < 0) {
      if (errno == EINTR) continue;
      return errno;
    }
    bytes += written;
    size -= static_cast<size_t>(written);
  }
  return 0;
}

// Reads `size` bytes at `offset`, or what there is of them before the end of the file; -1 on error,
// with errno set.
inline ssize_t ReadAt(int fd, void* data, size_t size, off_t offset) {
  auto* bytes = static_cast<char*>(data);
  size_t done = 0;
  while (done < size) {
    const ssize_t got = ::pread(fd, bytes + done, size - done, offset + static_cast<off_t>(done));
    if (got < 0) {
      if (errno == EINTR) continue;
      return -1;
    }
    if (got == 0) break;
    done += static_cast<size_t>(got);
  }
  return static_cast<ssize_t>(done);
}

// A new file beside `target`, under a name nothing else uses. Removed when it goes out of scope,
// unless one of the functions that give it its name succeeded.
class TemporaryFile {
 public:
  // `mode` is narrowed by the umask. If is_open() is false afterwards, error() is errno.
  TemporaryFile(const std::filesystem::path& target, mode_t mode) : target_(target) {
    std::random_device random;
    for (int attempt = 0; attempt < 100; ++attempt) {
      // Short, whatever the name of the target: file systems limit names to 255 bytes.
      path_ = target.parent_path() /
              (".liger-" + std::to_string(::getpid()) + "-" + std::to_string(random()) + ".tmp");
      const int fd = ::open(path_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, mode);
      if (fd >= 0) {
        fd_ = UniqueFd(fd);
        return;
      }
      error_ = errno;
      if (error_ != EEXIST && error_ != EINTR) return;
    }
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  ~TemporaryFile() {
    if (!path_.empty() && (fd_.is_open() || closed_) && !placed_) ::unlink(path_.c_str());
  }

  bool is_open() const { return fd_.is_open(); }
  int error() const { return error_; }
  int fd() const { return fd_.get(); }

  // Gives the file its name, in place of what has that name now. errno, 0 on success.
  int Replace() {
    if (const int error = Close()) return error;
    if (::rename(path_.c_str(), target_.c_str()) != 0) return errno;
    placed_ = true;
    return 0;
  }

  // Gives the file its name unless something has it already (EEXIST). errno, 0 on success.
  int PlaceNew() {
    if (const int error = Close()) return error;
    if (::renameat2(AT_FDCWD, path_.c_str(), AT_FDCWD, target_.c_str(), RENAME_NOREPLACE) == 0) {
      placed_ = true;
      return 0;
    }
    if (errno != EINVAL && errno != ENOSYS) return errno;
    // Not every file system can do that in one step; a hard link never replaces anything either.
    if (::link(path_.c_str(), target_.c_str()) == 0) return 0;  // the other name goes with this
    if (errno == EEXIST) return EEXIST;
    struct stat existing;
    if (::lstat(target_.c_str(), &existing) == 0) return EEXIST;
    if (::rename(path_.c_str(), target_.c_str()) != 0) return errno;
    placed_ = true;
    return 0;
  }

 private:
  int Close() {
    closed_ = true;
    return fd_.Close();
  }

  std::filesystem::path target_;
  std::filesystem::path path_;
  UniqueFd fd_;
  bool closed_ = false;
  bool placed_ = false;
  int error_ = 0;
};

}  // namespace liger
