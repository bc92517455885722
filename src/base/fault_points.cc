#include "base/fault_points.h"

#include <fmt/format.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <new>
#include <sstream>
#include <stdexcept>

#include "base/errors.h"

namespace tandem {
namespace fault_detail {
bool armed = false;
}

namespace {

struct PlannedFault {
  std::string point, act = "kill";
  int rank = 0;
  int64_t step = -1;  // any
  bool struck = false;
};
std::vector<PlannedFault> faults;
DeviceFaults device_faults;
constexpr time_t kSlowSeconds = 6;

[[noreturn]] void refuse(const std::string& text, const std::string& why) {
  throw ConfigError(fmt::format("TANDEM_FAULT: \"{}\"", text), why,
                    "write for instance TANDEM_FAULT=\"before-combine rank=1 step=17 do=kill\"");
}

PlannedFault parse(const std::string& text) {
  std::istringstream words(text);
  PlannedFault fault;
  words >> fault.point;
  if (std::find(std::begin(kFaultPoints), std::end(kFaultPoints), fault.point) == std::end(kFaultPoints))
    refuse(text, fmt::format("there is no fault point '{}'", fault.point));
  for (std::string word; words >> word;) {
    if (word.starts_with("rank="))
      fault.rank = std::atoi(word.c_str() + 5);
    else if (word.starts_with("step="))
      fault.step = std::atoll(word.c_str() + 5);
    else if (word.starts_with("do="))
      fault.act = word.substr(3);
    else
      refuse(text, fmt::format("'{}' is not understood", word));
  }
  constexpr std::string_view acts[] = {"kill", "stop", "exit", "abort", "segv", "oom", "flip", "throw", "slow", "hang"};
  if (std::find(std::begin(acts), std::end(acts), fault.act) == std::end(acts))
    refuse(text, fmt::format("there is no act '{}'", fault.act));
  return fault;
}

// true: the caller carries it out
bool carry_out(const PlannedFault& fault) {
  if (fault.act == "flip") return true;
  if (fault.act == "oom") {
    if (device_faults.oom) device_faults.oom();
    throw std::bad_alloc();
  }
  if (fault.act == "hang") {
    if (device_faults.hang) {
      device_faults.hang();
      return false;
    }
    for (volatile bool ever = true; ever;) {
    }
  }
  if (fault.act == "throw") throw std::runtime_error("a planted failure");
  if (fault.act == "slow") {
    const timespec rest{kSlowSeconds, 0};
    nanosleep(&rest, nullptr);
    return false;
  }
  if (fault.act == "exit") _exit(9);
  const int number = fault.act == "stop"    ? SIGSTOP
                     : fault.act == "abort" ? SIGABRT
                     : fault.act == "segv"  ? SIGSEGV
                                            : SIGKILL;
  if (number == SIGABRT || number == SIGSEGV) signal(number, SIG_DFL);
  kill(getpid(), number);
  return false;
}

}  // namespace

void use_device_faults(const DeviceFaults& given) { device_faults = given; }

void arm_faults(int rank) {
  const char* text = std::getenv("TANDEM_FAULT");
  faults.clear();
  fault_detail::armed = false;
  if (!text || !*text) return;
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, ';');) {
    PlannedFault fault = parse(part);
    if (fault.rank == rank) faults.push_back(std::move(fault));
  }
  fault_detail::armed = !faults.empty();
}

bool fault_detail::strike(std::string_view point, int64_t step) {
  for (PlannedFault& fault : faults) {
    if (fault.struck || fault.point != point || (fault.step >= 0 && fault.step != step)) continue;
    fault.struck = true;
    return carry_out(fault);
  }
  return false;
}

}  // namespace tandem
