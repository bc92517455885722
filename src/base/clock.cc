#include "base/clock.h"

#include <chrono>
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

}  // namespace

double monotonic_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double thread_cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

std::string utc_stamp() { return format_now("%Y-%m-%dT%H:%M:%SZ"); }

std::string utc_file_stamp() { return format_now("%Y%m%d-%H%M%S"); }

}  // namespace tandem
