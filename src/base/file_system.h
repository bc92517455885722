// base/file_system.h -- every call that makes state durable, behind one interface.
//
// Code that must survive a full disk or a power cut takes a FileSystem& and uses nothing else, so a test can make the
// Nth call fail (base/faulty_file_system.h) or forget what was never fsynced. All calls throw IoError, which keeps
// errno and names the path. Thread-safe as far as the kernel is: no state here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tandem {

struct FileHandle {
  int fd = -1;
  std::filesystem::path path;  // for messages
};

class FileSystem {
 public:
  virtual ~FileSystem() = default;
  static FileSystem& real();

  virtual FileHandle open_new(const std::filesystem::path& path);   // for writing; EEXIST if it is there
  virtual FileHandle open_read(const std::filesystem::path& path);  // a regular file: a pipe or device is refused
  virtual std::size_t write(const FileHandle& file, std::span<const std::byte> bytes);  // may write fewer, never 0 of n
  virtual std::size_t read(const FileHandle& file, std::span<std::byte> bytes);         // 0 at the end
  virtual std::uint64_t size(const FileHandle& file);
  // Reserves room for a file of this size, so that a full disk is met before the first byte. Where the file system
  // cannot reserve, it does nothing and the write itself fails later.
  virtual void allocate(const FileHandle& file, std::uint64_t bytes);
  virtual void fsync(const FileHandle& file);
  virtual void close(const FileHandle& file);  // the descriptor is gone even if this throws

  virtual void rename(const std::filesystem::path& from, const std::filesystem::path& to);
  // A second name for a file; a copy of it, made durable, where the file system has no hard links.
  virtual void link(const std::filesystem::path& from, const std::filesystem::path& to);
  virtual void mkdir(const std::filesystem::path& path);  // and its parents; no error if it is there
  virtual void remove_all(const std::filesystem::path& path);
  virtual void fsync_dir(const std::filesystem::path& path);

  virtual bool exists(const std::filesystem::path& path);
  virtual std::vector<std::string> list(const std::filesystem::path& dir);  // names, sorted
  virtual std::uint64_t free_bytes(const std::filesystem::path& dir);       // for a user without privileges
  // Locks a folder against other opens of it, until close(). Empty handle (fd -1) where locks are not supported.
  // Throws IoError with EWOULDBLOCK if somebody holds it.
  virtual FileHandle lock_dir(const std::filesystem::path& dir);
};

// A handle that closes itself. close() reports a failed close, the destructor cannot.
class OpenFile {
 public:
  OpenFile() = default;
  OpenFile(FileSystem& fs, FileHandle handle) : fs_(&fs), handle_(std::move(handle)) {}
  OpenFile(OpenFile&& other) noexcept;
  OpenFile& operator=(OpenFile&& other) noexcept;
  ~OpenFile();
  const FileHandle& handle() const { return handle_; }
  void write_all(std::span<const std::byte> bytes);
  void close();

 private:
  void close_quietly() noexcept;
  FileSystem* fs_ = nullptr;
  FileHandle handle_;
};

// The bytes of one file; not zeroed first, which would cost as much as reading.
struct FileBytes {
  std::unique_ptr<std::byte[]> data;
  std::size_t size = 0;
  std::span<const std::byte> span() const { return {data.get(), size}; }
  std::string_view text() const { return {reinterpret_cast<const char*>(data.get()), size}; }
};

// Reads to the end; throws IoError (EFBIG) if the file is larger than `limit`.
FileBytes read_whole_file(FileSystem& fs, const std::filesystem::path& path, std::uint64_t limit = UINT64_MAX);

// Puts a small file in place, whole or not at all: written as ".tmp-<name>" beside it, fsynced, renamed, folder
// fsynced.
void replace_file(FileSystem& fs, const std::filesystem::path& path, std::string_view text);

}  // namespace tandem
