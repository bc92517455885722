// guard/records.h -- what limits and fans were before tandem changed them: a file per GPU, and its lock.
//
// Who holds the lock is alive and gives back what it took. A record without a holder is of one who died (it is put
// back by the next who comes) or of `guard set` ("kept": it stays until `guard restore`). A limit that is no longer
// what we set it to was changed by somebody else, and is never touched. A record that can't be read is never
// overwritten: it may be the only one who knows what was there before.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "hardware/nvml.h"

namespace tandem {

constexpr double kSameWatts = 1;  // limits that differ by less are the same

// TANDEM_STATE_DIR, or /var/lib/tandem for root, or ~/.local/state/tandem.
std::filesystem::path guard_state_dir();
// Where to look for what others did: the same, and root's for everybody else, if it is there.
std::vector<std::filesystem::path> guard_state_dirs();
// What becomes of the records here, where that is worth a warning: in a container whose files die with it.
std::string state_dir_warning();

struct LimitRecord {
  std::string uuid, name;
  int index = 0;
  std::optional<double> found_w;  // the limit before anybody of us touched it
  std::optional<double> kept_w;   // what `guard set` made of it, to stay
  std::optional<double> set_w;    // what it should be now
  bool fan = false;               // its fans are ours
  std::optional<int> found_fan;   // the percent that a user had set; absent: the driver controlled them
  int64_t pid = 0;                // of the guard, for messages; who holds the lock is alive
  std::string boot;               // of the machine's start: limits do not outlive it
  bool before_restart() const;    // the machine was started anew since
  bool only_kept() const { return kept_w && set_w == kept_w && !fan; }
};

// The lock of one GPU's record, for as long as it lives.
class RecordLock {
 public:
  enum class Seen { kFree, kHeld, kUnknown };
  // Null if somebody else holds it for longer than `patience_s`, or the folder can't be written (`trouble` says so
  // then).
  static std::unique_ptr<RecordLock> take(const std::filesystem::path& dir, const std::string& uuid,
                                          std::string* trouble = nullptr, double patience_s = 0);
  // Looks without writing. `trouble`: why it is not known.
  static Seen look(const std::filesystem::path& dir, const std::string& uuid, std::string* trouble = nullptr);
  ~RecordLock();

 private:
  explicit RecordLock(int fd) : fd_(fd) {}
  int fd_;
};

struct RecordRead {
  std::optional<LimitRecord> record;  // absent without trouble: there is none
  std::filesystem::path file;
  std::string trouble;  // it is there and can't be understood
};
RecordRead read_record(const std::filesystem::path& dir, const std::string& uuid);
std::vector<LimitRecord> read_records(const std::filesystem::path& dir, std::vector<RecordRead>* unread = nullptr);
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
// The same for one GPU whose lock the caller holds: absent if there was nothing to put back. Not ok: its record is
// still needed.
std::optional<Restored> restore_left(const std::filesystem::path& dir, Nvml& nvml, const std::string& uuid);

NvmlStatus give_fans_back(Nvml& nvml, int gpu, const std::optional<int>& percent);
std::string limit_command(int gpu, double watts);  // "sudo nvidia-smi -i 0 -pl 220"
std::string boot_id();

}  // namespace tandem
