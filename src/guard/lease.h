// guard/lease.h -- power limits and fans as something borrowed: they are given back, whatever happens to the borrower.
//
// Before a limit is changed, a record of what was found is on disk (a file per GPU), its lock is held, and a watchdog
// process waits on a pipe whose other end this process has. When this process ends, however it ends, the pipe closes
// and the watchdog puts back what the records say; if the watchdog is killed it is started again; if both are killed at
// once, or the power fails, the next guard or `tandem guard restore` reads the records. A limit that is no longer what
// we set it to was changed by somebody else, and is never touched.
//
// `guard set` leaves a record without a holder ("kept"): such a limit stays until `guard restore`.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "hardware/nvml.h"

namespace tandem {

// TANDEM_STATE_DIR, or /var/lib/tandem for root, or ~/.local/state/tandem.
std::filesystem::path guard_state_dir();

struct LimitRecord {
  std::string uuid, name;
  int index = 0;
  std::optional<double> found_w;  // the limit before anybody of us touched it
  std::optional<double> kept_w;   // what `guard set` made of it, to stay
  std::optional<double> set_w;    // what it should be now
  bool fan = false;               // its fans are ours
  int64_t pid = 0;                // of the guard, for messages; who holds the lock is alive
};

struct GuardAnswer {
  bool ok = true;
  std::string what, why, todo;
  static GuardAnswer good(std::string what = "") { return {true, std::move(what), "", ""}; }
};

// What NVML said to an order, with the command that has the right to give it.
GuardAnswer explained(const NvmlStatus& status, const std::string& what, const std::string& sudo_command);

// The lock of one GPU's record, for as long as it lives.
class RecordLock {
 public:
  // Null if somebody else holds it, or the folder can't be written (`trouble` says so then).
  static std::unique_ptr<RecordLock> take(const std::filesystem::path& dir, const std::string& uuid,
                                          std::string* trouble = nullptr);
  ~RecordLock();

 private:
  explicit RecordLock(int fd) : fd_(fd) {}
  int fd_;
};

std::vector<LimitRecord> read_records(const std::filesystem::path& dir);
void write_record(const std::filesystem::path& dir, const LimitRecord& record);  // durable; throws IoError
void remove_record(const std::filesystem::path& dir, const std::string& uuid);

struct Restored {
  LimitRecord record;
  bool ok = true;
  bool busy = false;  // a living guard holds it
  std::string text;
};
// Puts back every record whose holder is gone. Kept ones stay, unless `kept_too`.
std::vector<Restored> restore_records(const std::filesystem::path& dir, Nvml& nvml, bool kept_too);

class Lease {
 public:
  struct Options {
    std::filesystem::path dir = guard_state_dir();
    std::vector<std::string> watchdog = {"/proc/self/exe", kWatchdogWord};  // the folder is added
  };
  Lease(Nvml& nvml, Options options) : nvml_(nvml), options_(std::move(options)) {}
  ~Lease() { give_all_back(); }
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;

  GuardAnswer set_power(const GpuFacts& facts, double watts);
  GuardAnswer give_power_back(const GpuFacts& facts);
  GuardAnswer set_fan(const GpuFacts& facts, int percent);
  GuardAnswer give_fan_back(const GpuFacts& facts);
  std::vector<std::string> give_all_back();  // what went wrong
  // Now and then: a watchdog that died is started again. True if it had to be.
  bool look_after_watchdog();
  pid_t watchdog() const { return watchdog_; }

  static constexpr const char* kWatchdogWord = "__guard-watchdog";

 private:
  struct Held {
    std::unique_ptr<RecordLock> lock;
    LimitRecord record;
    double base_w = 0;  // what is given back: the kept limit, or the one that was found
  };
  GuardAnswer take(const GpuFacts& facts, Held*& held);
  GuardAnswer start_watchdog();
  void settle(const std::string& uuid);  // the record goes, or becomes the kept one again

  Nvml& nvml_;
  Options options_;
  std::map<std::string, Held> held_;
  pid_t watchdog_ = -1;
  int life_ = -1;
};

// The watchdog's main(): reads stdin until it ends, then restores. Deaf to Ctrl-C, SIGTERM and SIGHUP.
int guard_watchdog(const std::filesystem::path& dir);

}  // namespace tandem
