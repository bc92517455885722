#include "base/clock.h"

#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <ctime>

namespace tandem {
namespace {

std::string format_now(const char* pattern) {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  char text[32];
  return std::string(text, std::strftime(text, sizeof text, pattern, &parts));
}

// Open for as long as its thread lives: a look is one call to the system.
struct ThreadFile {
  const int fd = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
  ~ThreadFile() {
    if (fd >= 0) close(fd);
  }
};

}  // namespace

double monotonic_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double thread_cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

double thread_wait_seconds() {
  thread_local const ThreadFile file;
  char text[96];
  const ssize_t got = file.fd >= 0 ? pread(file.fd, text, sizeof text - 1, 0) : -1;
  if (got <= 0) return 0;
  text[got] = 0;
  char* end = nullptr;
  std::strtoull(text, &end, 10);                                       // ns on a core
  return static_cast<double>(std::strtoull(end, nullptr, 10)) * 1e-9;  // ns of waiting for one
}

bool thread_waits_are_known() {
  static const bool known = [] {
    const ThreadFile file;
    char text[96] = {};
    return file.fd >= 0 && pread(file.fd, text, sizeof text - 1, 0) > 0 && std::strtoull(text, nullptr, 10) > 0;
  }();
  return known;
}

std::string utc_stamp() { return format_now("%Y-%m-%dT%H:%M:%SZ"); }

std::string utc_file_stamp() { return format_now("%Y%m%d-%H%M%S"); }

}  // namespace tandem
