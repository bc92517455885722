// command/scratch.h -- a folder in TMPDIR that is gone at the end, however the end comes.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <string>

namespace tandem {

// A process of its own waits for the end of this one and tidies up after it: Ctrl-C and SIGTERM between two trials, and
// SIGKILL, leave nothing behind.
class Scratch {
 public:
  explicit Scratch(const std::string& purpose);  // "bench": tandem-bench-0f3a.... Throws IoError
  ~Scratch();
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  void start_tidier();
  void stop_tidier();

  std::filesystem::path path_;
  int alive_ = -1;
  pid_t tidier_ = -1;
};

}  // namespace tandem
