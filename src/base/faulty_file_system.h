// base/faulty_file_system.h -- the real file system with one fault in it; for tests only.
//
// Counts every call that may fail. The call numbered `fail_at` fails with `error_number`; with `persistent`, so does
// every one after it, as on a disk that has died. A write that fails writes the first half of its bytes before, as a
// disk that fills up does. fail_at < 0 fails none and counts: that is how a test learns how many there are.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "base/errors.h"
#include "base/file_system.h"

namespace tandem {

struct Fault {
  int fail_at = -1;
  int error_number = 5;  // EIO
  bool persistent = false;
  bool short_writes = false;  // every write takes at most 7 bytes, which is allowed and no fault
};

class FaultyFileSystem : public FileSystem {
 public:
  using Path = std::filesystem::path;
  explicit FaultyFileSystem(Fault fault = {}) : fault_(fault) {}
  int calls() const { return static_cast<int>(log_.size()); }
  const std::vector<std::string>& log() const { return log_; }
  bool fired() const { return fired_; }

  FileHandle open_new(const Path& p) override { return count("open_new", p), FileSystem::open_new(p); }
  FileHandle open_read(const Path& p) override { return count("open_read", p), FileSystem::open_read(p); }
  std::size_t write(const FileHandle& f, std::span<const std::byte> bytes) override {
    if (next_fails()) FileSystem::write(f, bytes.first(bytes.size() / 2));
    count("write", f.path);
    return FileSystem::write(f, fault_.short_writes ? bytes.first(std::min<std::size_t>(bytes.size(), 7)) : bytes);
  }
  std::size_t read(const FileHandle& f, std::span<std::byte> b) override {
    return count("read", f.path), FileSystem::read(f, b);
  }
  std::uint64_t size(const FileHandle& f) override { return count("size", f.path), FileSystem::size(f); }
  void allocate(const FileHandle& f, std::uint64_t n) override {
    count("allocate", f.path), FileSystem::allocate(f, n);
  }
  void fsync(const FileHandle& f) override { count("fsync", f.path), FileSystem::fsync(f); }
  void close(const FileHandle& f) override {
    FileSystem::close(f);  // the descriptor goes even when the call reports a failure
    count("close", f.path);
  }
  void link(const Path& from, const Path& to) override { count("link", to), FileSystem::link(from, to); }
  void rename(const Path& from, const Path& to) override { count("rename", to), FileSystem::rename(from, to); }
  void mkdir(const Path& p) override { count("mkdir", p), FileSystem::mkdir(p); }
  void remove_all(const Path& p) override { count("remove_all", p), FileSystem::remove_all(p); }
  void fsync_dir(const Path& p) override { count("fsync_dir", p), FileSystem::fsync_dir(p); }
  bool exists(const Path& p) override { return count("exists", p), FileSystem::exists(p); }
  std::vector<std::string> list(const Path& p) override { return count("list", p), FileSystem::list(p); }
  std::uint64_t free_bytes(const Path& p) override { return count("free_bytes", p), FileSystem::free_bytes(p); }
  FileHandle lock_dir(const Path& p) override { return count("lock_dir", p), FileSystem::lock_dir(p); }

 private:
  bool next_fails() const {
    return fault_.fail_at >= 0 && (fault_.persistent ? calls() >= fault_.fail_at : calls() == fault_.fail_at);
  }
  void count(const char* call, const Path& path) {
    const bool fails = next_fails();
    log_.push_back(std::string(call) + " " + path.filename().string());
    if (!fails) return;
    fired_ = true;
    throw IoError("cannot " + log_.back() + " (injected)", fault_.error_number, "nothing: this is a test");
  }
  Fault fault_;
  std::vector<std::string> log_;
  bool fired_ = false;
};

}  // namespace tandem
