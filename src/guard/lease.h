// guard/lease.h -- power limits and fans as something borrowed: they are given back, whatever happens to the borrower.
//
// Before a limit is changed, a record of what was found is on disk (a file per GPU), its lock is held, and a watchdog
// process waits on a pipe whose other end this process has. When this process ends, however it ends, the pipe closes
// and the watchdog puts back what the records say; if the watchdog is killed it is started again; if both are killed at
// once, or the power fails, the next guard or `tandem guard restore` reads the records (guard/records.h). What can't be
// put back is not taken.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "guard/records.h"
#include "hardware/nvml.h"

namespace tandem {

struct GuardAnswer {
  bool ok = true;
  std::string what, why, todo;
  bool for_good = false;  // not ok, and asking again is of no use: no permission, or the GPU can't
  static GuardAnswer good(std::string what = "") { return {true, std::move(what), "", "", false}; }
  std::string text() const;  // "could not: ...; cause: ...; do: ..."
};

// NVML's answer to an action, with the command that has the right to do it.
GuardAnswer explained(const NvmlStatus& status, const std::string& what, const std::string& sudo_command);

class Lease {
 public:
  struct Options {
    std::filesystem::path dir = guard_state_dir();
    std::vector<std::string> watchdog = {"/proc/self/exe", kWatchdogWord};  // the folder and our pid are added
  };
  Lease(Nvml& nvml, Options options) : nvml_(nvml), options_(std::move(options)) {}
  ~Lease() { give_all_back(); }
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;

  // `from_w`: what the limit was when this was decided; if it is another by now, nothing is done.
  GuardAnswer set_power(const GpuFacts& facts, double watts, std::optional<double> from_w = {});
  GuardAnswer give_power_back(const GpuFacts& facts);
  GuardAnswer set_fan(const GpuFacts& facts, int percent);
  GuardAnswer give_fan_back(const GpuFacts& facts);
  std::vector<std::string> give_all_back();  // what went wrong
  // Now and then: a watchdog that died, or could not be started, is started again as long as anything is borrowed.
  // Until it lives nothing more is changed.
  GuardAnswer look_after_watchdog();
  pid_t watchdog() const { return watchdog_; }

  static constexpr const char* kWatchdogWord = "__guard-watchdog";

 private:
  struct Held {
    std::unique_ptr<RecordLock> lock;
    LimitRecord record;
    double base_w = 0;  // what is given back: the kept limit, or the one that was found
  };
  GuardAnswer take(const GpuFacts& facts, Held*& held);
  GuardAnswer refresh_base(const GpuFacts& facts, Held& held);
  GuardAnswer note(const LimitRecord& record, const std::string& what);  // on disk, before it is so
  GuardAnswer start_watchdog();
  void settle(const std::string& uuid);  // the record goes, or becomes the kept one again

  Nvml& nvml_;
  Options options_;
  std::map<std::string, Held> held_;
  pid_t watchdog_ = -1;
  int life_ = -1;
};

// The watchdog's main(): reads stdin until it ends, then restores what this guard left (0: anybody). Deaf to Ctrl-C,
// SIGTERM and SIGHUP.
int guard_watchdog(const std::filesystem::path& dir, int64_t guard);

}  // namespace tandem
