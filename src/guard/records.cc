#include "guard/records.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/errors.h"
#include "telemetry/atomic_file.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

constexpr const char* kRootDir = "/var/lib/tandem/guard";

void pause_before_retry() {
  const timespec moment{0, 5'000'000};
  nanosleep(&moment, nullptr);
}

fs::path record_path(const fs::path& dir, const std::string& uuid) { return dir / (uuid + ".json"); }
fs::path lock_path(const fs::path& dir, const std::string& uuid) { return dir / (uuid + ".lock"); }

std::optional<int> index_of(const Nvml& nvml, const std::string& uuid) {
  for (const GpuFacts& facts : nvml.facts())
    if (facts.uuid == uuid) return facts.index;
  return std::nullopt;
}

std::string name_of(const LimitRecord& record) {
  return record.name.empty() ? fmt::format("GPU {}", record.index)
                             : fmt::format("GPU {} ({})", record.index, record.name);
}

nlohmann::json to_json(const LimitRecord& r) {
  nlohmann::json out{{"format", 1},  {"uuid", r.uuid}, {"name", r.name}, {"index", r.index},
                     {"fan", r.fan}, {"pid", r.pid},   {"boot", r.boot}};
  if (r.found_w) out["found_w"] = *r.found_w;
  if (r.kept_w) out["kept_w"] = *r.kept_w;
  if (r.set_w) out["set_w"] = *r.set_w;
  if (r.found_fan) out["found_fan"] = *r.found_fan;
  return out;
}

// Throws nlohmann::json::exception.
LimitRecord record_from(const nlohmann::json& in) {
  LimitRecord r{.uuid = in.at("uuid"), .name = in.at("name"), .index = in.at("index")};
  r.fan = in.at("fan");
  r.pid = in.at("pid");
  r.boot = in.value("boot", "");
  const auto number = [&](const char* key) {
    return in.contains(key) ? std::optional(in.at(key).get<double>()) : std::nullopt;
  };
  r.found_w = number("found_w");
  r.kept_w = number("kept_w");
  r.set_w = number("set_w");
  if (const auto percent = number("found_fan")) r.found_fan = static_cast<int>(*percent);
  return r;
}

RecordRead read_file(const fs::path& path) {
  RecordRead out{.record = {}, .file = path, .trouble = ""};
  std::error_code none;
  const auto text = read_small_file(path, 1 << 16);
  if (!text) {
    if (fs::exists(fs::symlink_status(path, none))) out.trouble = "it can't be read";
    return out;
  }
  const auto in = nlohmann::json::parse(*text, nullptr, false);
  if (!in.is_object()) {
    out.trouble = "it is no JSON object";
  } else if (const auto format = in.value("format", nlohmann::json()); format != 1) {
    out.trouble = fmt::format("its format is {}, this tandem knows 1", format.dump());
  } else {
    try {
      out.record = record_from(in);
    } catch (const nlohmann::json::exception& error) {
      out.trouble = error.what();
    }
  }
  return out;
}

// The lock is held. Afterwards the record is gone, or says what is still to be done.
Restored restore_one(const fs::path& dir, Nvml& nvml, LimitRecord record, bool kept_too) {
  Restored out{.record = record, .text = ""};
  const auto gpu = index_of(nvml, record.uuid);
  if (!gpu) {
    out.ok = false;
    out.text = fmt::format("{} is not there now: its record stays ({})", name_of(record),
                           record_path(dir, record.uuid).string());
    return out;
  }
  record.index = *gpu;
  std::vector<std::string> said;
  const auto set = record.set_w ? record.set_w : record.kept_w;
  if (set && record.found_w) {
    const double back = record.kept_w && !kept_too ? *record.kept_w : *record.found_w;
    const auto now = nvml.reading(*gpu, false).power_limit_w;
    if (!now) {
      out.ok = false;
      said.push_back(fmt::format("its power limit can't be read; it was {:.0f} W", back));
    } else if (std::abs(*now - *set) >= kSameWatts) {
      said.push_back(
          record.before_restart()
              ? fmt::format("its power limit is {:.0f} W: the {:.0f} W that were set here were lost with the restart",
                            *now, *set)
              : fmt::format("its power limit is {:.0f} W, not the {:.0f} W that was set here: somebody else changed "
                            "it, it stays",
                            *now, *set));
    } else if (std::abs(*now - back) >= kSameWatts) {
      const NvmlStatus status = nvml.set_power_limit(*gpu, back);
      out.ok = status.ok();
      said.push_back(status.ok() ? fmt::format("its power limit is {:.0f} W again", back)
                                 : fmt::format("its power limit could not be put back: {}; do: {}", status.words,
                                               limit_command(*gpu, back)));
    }
  }
  if (record.fan && record.before_restart()) record.fan = false;  // the driver's own again, as after every start
  if (record.fan) {
    const NvmlStatus status = give_fans_back(nvml, *gpu, record.found_fan);
    if (status.ok()) record.fan = false;
    out.ok = out.ok && status.ok();
    said.push_back(
        !status.ok() ? fmt::format("its fans could not be given back: {}; do: sudo tandem guard restore", status.words)
        : record.found_fan ? fmt::format("its fans are at {} % again", *record.found_fan)
                           : "its fans are the driver's again");
  }
  out.text =
      fmt::format("{}: {}", name_of(record), said.empty() ? "nothing to do" : fmt::format("{}", fmt::join(said, "; ")));
  if (!out.ok) return out;
  if (record.kept_w && !kept_too) {
    record.set_w = record.kept_w;
    record.found_fan.reset();
    record.pid = 0;
    write_record(dir, record);
  } else {
    remove_record(dir, record.uuid);
  }
  return out;
}

}  // namespace

fs::path guard_state_dir() {
  if (const char* given = std::getenv("TANDEM_STATE_DIR"); given && *given) return fs::path(given) / "guard";
  if (geteuid() == 0) return kRootDir;
  if (const char* state = std::getenv("XDG_STATE_HOME"); state && *state) return fs::path(state) / "tandem" / "guard";
  const char* home = std::getenv("HOME");
  return fs::path(home && *home ? home : "/tmp") / ".local" / "state" / "tandem" / "guard";
}

std::vector<fs::path> guard_state_dirs() {
  std::vector<fs::path> dirs = {guard_state_dir()};
  const char* given = std::getenv("TANDEM_STATE_DIR");
  std::error_code none;
  if (!(given && *given) && dirs[0] != kRootDir && fs::is_directory(kRootDir, none)) dirs.emplace_back(kRootDir);
  return dirs;
}

std::string state_dir_warning() {
  const char* given = std::getenv("TANDEM_STATE_DIR");
  std::error_code none;
  const bool container =
      std::getenv("container") || fs::exists("/.dockerenv", none) || fs::exists("/run/.containerenv", none);
  if ((given && *given) || !container) return "";
  return fmt::format(
      "this is a container: what limits were before is written to {}, which dies with it, and who ends the container "
      "ends the watchdog too; do: mount a folder of the host and name it with TANDEM_STATE_DIR",
      guard_state_dir().string());
}

std::string boot_id() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  file >> id;
  return id;
}

bool LimitRecord::before_restart() const {
  const std::string now = boot_id();
  return !boot.empty() && !now.empty() && boot != now;
}

std::string limit_command(int gpu, double watts) { return fmt::format("sudo nvidia-smi -i {} -pl {:.0f}", gpu, watts); }

NvmlStatus give_fans_back(Nvml& nvml, int gpu, const std::optional<int>& percent) {
  return percent ? nvml.set_fan(gpu, *percent) : nvml.set_fan_auto(gpu);
}

std::unique_ptr<RecordLock> RecordLock::take(const fs::path& dir, const std::string& uuid, std::string* trouble,
                                             double patience_s) {
  std::error_code none;
  fs::create_directories(dir, none);
  const fs::path path = lock_path(dir, uuid);
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (fd < 0) {
    if (trouble) *trouble = fmt::format("cannot write {}: {}", path.string(), strerror(errno));
    return nullptr;
  }
  for (const double end = monotonic_seconds() + patience_s;;) {
    if (flock(fd, LOCK_EX | LOCK_NB) == 0) return std::unique_ptr<RecordLock>(new RecordLock(fd));
    if (monotonic_seconds() >= end) break;
    pause_before_retry();
  }
  close(fd);
  return nullptr;
}

RecordLock::Seen RecordLock::look(const fs::path& dir, const std::string& uuid, std::string* trouble) {
  const fs::path path = lock_path(dir, uuid);
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0 && errno == ENOENT) return Seen::kFree;
  if (fd < 0) {
    if (trouble) *trouble = fmt::format("{}: {}", path.string(), strerror(errno));
    return Seen::kUnknown;
  }
  const bool free = flock(fd, LOCK_SH | LOCK_NB) == 0;
  close(fd);
  return free ? Seen::kFree : Seen::kHeld;
}

RecordLock::~RecordLock() { close(fd_); }

RecordRead read_record(const fs::path& dir, const std::string& uuid) { return read_file(record_path(dir, uuid)); }

std::vector<LimitRecord> read_records(const fs::path& dir, std::vector<RecordRead>* unread) {
  std::vector<LimitRecord> records;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(dir, none)) {
    if (entry.path().extension() != ".json") continue;
    RecordRead read = read_file(entry.path());
    if (read.record) records.push_back(std::move(*read.record));
    if (unread && !read.trouble.empty()) unread->push_back(std::move(read));
  }
  std::sort(records.begin(), records.end(), [](const auto& a, const auto& b) { return a.index < b.index; });
  return records;
}

void write_record(const fs::path& dir, const LimitRecord& record) {
  LimitRecord stamped = record;
  if (stamped.boot.empty()) stamped.boot = boot_id();
  write_file_atomically(record_path(dir, record.uuid), to_json(stamped).dump(1) + "\n", Durability::kPowerCut);
}

void remove_record(const fs::path& dir, const std::string& uuid) {
  std::error_code none;
  fs::remove(record_path(dir, uuid), none);
}

std::vector<Restored> restore_records(const fs::path& dir, Nvml& nvml, bool kept_too) {
  std::vector<Restored> all;
  for (const LimitRecord& seen : read_records(dir)) {
    if (seen.only_kept() && !kept_too) continue;
    std::string trouble;
    const auto lock = RecordLock::take(dir, seen.uuid, &trouble);
    if (!lock) {
      all.push_back(
          {.record = seen,
           .ok = false,
           .busy = trouble.empty(),
           .text = trouble.empty()
                       ? fmt::format("{} is held by a guard that is alive (process {}): it gives back what "
                                     "it took when it ends",
                                     name_of(seen), seen.pid)
                       : fmt::format("{} is not put back: {}; do: sudo tandem guard restore", name_of(seen), trouble)});
      continue;
    }
    const auto record = read_record(dir, seen.uuid).record;
    if (!record) continue;  // its holder was just about to end
    try {
      all.push_back(restore_one(dir, nvml, *record, kept_too));
    } catch (const Error& error) {
      all.push_back({.record = *record, .ok = false, .text = fmt::format("{} ({})", error.what(), error.why())});
    }
  }
  return all;
}

std::optional<Restored> restore_left(const fs::path& dir, Nvml& nvml, const std::string& uuid) {
  const RecordRead left = read_record(dir, uuid);
  if (!left.trouble.empty()) {
    Restored out{.record = {.uuid = uuid, .name = ""}, .ok = false, .text = ""};
    out.text = fmt::format("what it was before can't be read from {}: {}", left.file.string(), left.trouble);
    return out;
  }
  if (!left.record || left.record->only_kept()) return std::nullopt;
  try {
    return restore_one(dir, nvml, *left.record, false);
  } catch (const Error& error) {
    return Restored{.record = *left.record, .ok = false, .text = fmt::format("{} ({})", error.what(), error.why())};
  }
}

}  // namespace tandem
