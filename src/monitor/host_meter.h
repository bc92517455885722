// monitor/host_meter.h -- how busy this machine is, and how busy single processes are, from /proc.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "monitor/sample.h"

namespace tandem {

class HostMeter {
 public:
  // Shares of time need two looks: the first has none.
  HostReading read();
  struct Process {
    std::optional<double> cpu_percent;
    std::optional<uint64_t> memory_bytes;
  };
  Process read_process(int64_t pid, double now);  // monotonic seconds
  void forget_unread();                           // processes that nobody asked for since the last call

 private:
  struct Before {
    double ticks = 0, at = 0;
    bool fresh = true;
  };
  double busy_ = -1, total_ = -1;
  std::string name_;
  std::map<int64_t, Before> processes_;
};

}  // namespace tandem
