#include "guard/lease.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <signal.h>
#include <spawn.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/errors.h"
#include "telemetry/atomic_file.h"

extern char** environ;

namespace tandem {
namespace {

namespace fs = std::filesystem;

constexpr double kSameWatts = 1;
constexpr double kLockSeconds = 5;  // that the watchdog waits for the dead guard's locks

constexpr double kBusySeconds = 1;

void pause_a_moment() {
  const timespec moment{0, 5'000'000};
  nanosleep(&moment, nullptr);
}

fs::path record_path(const fs::path& dir, const std::string& uuid) { return dir / (uuid + ".json"); }

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
  nlohmann::json out{{"format", 1},      {"uuid", r.uuid}, {"name", r.name},
                     {"index", r.index}, {"fan", r.fan},   {"pid", r.pid}};
  if (r.found_w) out["found_w"] = *r.found_w;
  if (r.kept_w) out["kept_w"] = *r.kept_w;
  if (r.set_w) out["set_w"] = *r.set_w;
  return out;
}

std::optional<LimitRecord> record_from(const std::string& text) {
  const auto in = nlohmann::json::parse(text, nullptr, false);
  if (!in.is_object() || in.value("format", nlohmann::json()) != 1) return std::nullopt;
  try {
    LimitRecord r{.uuid = in.at("uuid"), .name = in.at("name"), .index = in.at("index")};
    r.fan = in.at("fan");
    r.pid = in.at("pid");
    const auto number = [&](const char* key) {
      return in.contains(key) ? std::optional(in.at(key).get<double>()) : std::nullopt;
    };
    r.found_w = number("found_w");
    r.kept_w = number("kept_w");
    r.set_w = number("set_w");
    return r;
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  }
}

std::string limit_command(int gpu, double watts) { return fmt::format("sudo nvidia-smi -i {} -pl {:.0f}", gpu, watts); }

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
  if (record.set_w && record.found_w) {
    const double back = record.kept_w && !kept_too ? *record.kept_w : *record.found_w;
    const auto now = nvml.reading(*gpu, false).power_limit_w;
    if (!now) {
      out.ok = false;
      said.push_back("its power limit can't be read");
    } else if (std::abs(*now - *record.set_w) >= kSameWatts) {
      said.push_back(
          fmt::format("its power limit is {:.0f} W, not the {:.0f} W that was set here: somebody else changed "
                      "it, it stays",
                      *now, *record.set_w));
    } else if (std::abs(*now - back) >= kSameWatts) {
      const NvmlStatus status = nvml.set_power_limit(*gpu, back);
      out.ok = status.ok();
      said.push_back(status.ok() ? fmt::format("its power limit is {:.0f} W again", back)
                                 : fmt::format("its power limit could not be put back: {}; do: {}", status.words,
                                               limit_command(*gpu, back)));
    }
  }
  if (record.fan) {
    const NvmlStatus status = nvml.set_fan_auto(*gpu);
    if (status.ok()) record.fan = false;
    out.ok = out.ok && status.ok();
    said.push_back(status.ok() ? "its fans are the driver's again"
                               : "its fans could not be given back: " + status.words);
  }
  out.text =
      fmt::format("{}: {}", name_of(record), said.empty() ? "nothing to do" : fmt::format("{}", fmt::join(said, "; ")));
  if (!out.ok) return out;
  if (record.kept_w && !kept_too) {
    record.set_w = record.kept_w;
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
  if (geteuid() == 0) return "/var/lib/tandem/guard";
  if (const char* state = std::getenv("XDG_STATE_HOME"); state && *state) return fs::path(state) / "tandem" / "guard";
  const char* home = std::getenv("HOME");
  return fs::path(home && *home ? home : "/tmp") / ".local" / "state" / "tandem" / "guard";
}

GuardAnswer explained(const NvmlStatus& status, const std::string& what, const std::string& sudo_command) {
  if (status.ok()) return GuardAnswer::good(what);
  GuardAnswer answer{false, "could not: " + what, status.words, ""};
  if (status.kind == NvmlStatus::Kind::kNoPermission) {
    answer.why += ": only root may set limits and fans";
    answer.todo = sudo_command;
  } else if (status.kind == NvmlStatus::Kind::kNotSupported || status.kind == NvmlStatus::Kind::kNoFunction) {
    answer.todo = "nothing: this card or driver does not offer it; the guard does without";
  } else {
    answer.todo = "try it by hand: " + sudo_command;
  }
  return answer;
}

// ---- records ----

std::unique_ptr<RecordLock> RecordLock::take(const fs::path& dir, const std::string& uuid, std::string* trouble) {
  std::error_code none;
  fs::create_directories(dir, none);
  const fs::path path = dir / (uuid + ".lock");
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (fd < 0) {
    if (trouble) *trouble = fmt::format("cannot write {}: {}", path.string(), strerror(errno));
    return nullptr;
  }
  if (flock(fd, LOCK_EX | LOCK_NB) == 0) return std::unique_ptr<RecordLock>(new RecordLock(fd));
  close(fd);
  return nullptr;
}

RecordLock::~RecordLock() { close(fd_); }

std::vector<LimitRecord> read_records(const fs::path& dir) {
  std::vector<LimitRecord> records;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(dir, none)) {
    if (entry.path().extension() != ".json") continue;
    if (auto record = record_from(read_small_file(entry.path(), 1 << 16).value_or("")))
      records.push_back(std::move(*record));
  }
  std::sort(records.begin(), records.end(), [](const auto& a, const auto& b) { return a.index < b.index; });
  return records;
}

void write_record(const fs::path& dir, const LimitRecord& record) {
  write_file_atomically(record_path(dir, record.uuid), to_json(record).dump(1) + "\n", Durability::kPowerCut);
}

void remove_record(const fs::path& dir, const std::string& uuid) {
  std::error_code none;
  fs::remove(record_path(dir, uuid), none);
}

std::vector<Restored> restore_records(const fs::path& dir, Nvml& nvml, bool kept_too) {
  std::vector<Restored> all;
  for (const LimitRecord& seen : read_records(dir)) {
    if (seen.kept_w && !kept_too && seen.set_w == seen.kept_w && !seen.fan) continue;
    const auto lock = RecordLock::take(dir, seen.uuid);
    if (!lock) {
      all.push_back({.record = seen,
                     .ok = false,
                     .busy = true,
                     .text = fmt::format("{} is held by a guard that is alive (process {}): it gives back what it took "
                                         "when it ends",
                                         name_of(seen), seen.pid)});
      continue;
    }
    const auto record = record_from(read_small_file(record_path(dir, seen.uuid), 1 << 16).value_or(""));
    if (!record) continue;  // its holder was just about to end
    try {
      all.push_back(restore_one(dir, nvml, *record, kept_too));
    } catch (const Error& error) {
      all.push_back({.record = *record, .ok = false, .text = fmt::format("{} ({})", error.what(), error.why())});
    }
  }
  return all;
}

// ---- the borrower ----

GuardAnswer Lease::take(const GpuFacts& facts, Held*& held) {
  const std::string what = fmt::format("change limits of GPU {}", facts.index);
  if (!facts.uuid) return {false, "could not: " + what, "the driver does not tell its uuid", "update the driver"};
  if (const auto found = held_.find(*facts.uuid); found != held_.end()) {
    held = &found->second;
    look_after_watchdog();
    return GuardAnswer::good();
  }
  std::string trouble;
  auto lock = RecordLock::take(options_.dir, *facts.uuid, &trouble);
  for (const double end = monotonic_seconds() + kBusySeconds; !lock && trouble.empty() && monotonic_seconds() < end;) {
    pause_a_moment();  // a dead guard's watchdog may be at work
    lock = RecordLock::take(options_.dir, *facts.uuid, &trouble);
  }
  if (!lock && !trouble.empty())
    return {false, "could not: " + what, trouble + "; limits are only changed where they can be put back",
            "give a folder that can be written: TANDEM_STATE_DIR=/some/where"};
  if (!lock) return {false, "could not: " + what, "another guard holds this GPU", "see who: tandem guard status"};
  Held mine{.lock = std::move(lock), .record = {}};
  const auto now = nvml_.reading(facts.index, false).power_limit_w;
  if (const auto left = record_from(read_small_file(record_path(options_.dir, *facts.uuid), 1 << 16).value_or(""))) {
    // Of one who is gone: put back first, so that what we find is what was there before.
    if (!left->kept_w || left->set_w != left->kept_w || left->fan) restore_one(options_.dir, nvml_, *left, false);
    if (left->kept_w && now && std::abs(*now - *left->kept_w) < kSameWatts) mine.record = *left;
  }
  mine.record.uuid = *facts.uuid;
  mine.record.name = facts.name.value_or("");
  mine.record.index = facts.index;
  mine.record.pid = getpid();
  const auto base = nvml_.reading(facts.index, false).power_limit_w;
  if (!mine.record.found_w) mine.record.found_w = base;
  mine.base_w = mine.record.kept_w.value_or(base.value_or(0));
  if (const GuardAnswer started = start_watchdog(); !started.ok) return started;
  held = &held_.emplace(*facts.uuid, std::move(mine)).first->second;
  return GuardAnswer::good();
}

GuardAnswer Lease::set_power(const GpuFacts& facts, double watts) {
  Held* held = nullptr;
  if (GuardAnswer taken = take(facts, held); !taken.ok) return taken;
  const std::string what = fmt::format("power limit of GPU {} to {:.0f} W", facts.index, watts);
  const LimitRecord before = held->record;
  held->record.set_w = watts;
  try {
    write_record(options_.dir, held->record);
  } catch (const Error& error) {
    held->record = before;
    return {false, "could not: " + what,
            fmt::format("{} ({}); limits are only changed where they can be put back", error.what(), error.why()),
            error.todo()};
  }
  const NvmlStatus status = nvml_.set_power_limit(facts.index, watts);
  if (status.ok()) return GuardAnswer::good(what);
  held->record = before;
  settle(before.uuid);
  return explained(status, what, limit_command(facts.index, watts));
}

GuardAnswer Lease::give_power_back(const GpuFacts& facts) {
  const auto found = held_.find(facts.uuid.value_or(""));
  if (found == held_.end() || !found->second.record.set_w) return GuardAnswer::good();
  Held& held = found->second;
  const std::string what = fmt::format("power limit of GPU {} back to {:.0f} W", facts.index, held.base_w);
  const auto now = nvml_.reading(facts.index, false).power_limit_w;
  if (now && std::abs(*now - *held.record.set_w) >= kSameWatts) {
    const double theirs = *now;
    held.record.set_w.reset();
    settle(held.record.uuid);
    return GuardAnswer::good(
        fmt::format("power limit of GPU {} is {:.0f} W by somebody else, it stays", facts.index, theirs));
  }
  const NvmlStatus status = nvml_.set_power_limit(facts.index, held.base_w);
  if (!status.ok()) return explained(status, what, limit_command(facts.index, held.base_w));
  held.record.set_w.reset();
  settle(held.record.uuid);
  return GuardAnswer::good(what);
}

GuardAnswer Lease::set_fan(const GpuFacts& facts, int percent) {
  Held* held = nullptr;
  if (GuardAnswer taken = take(facts, held); !taken.ok) return taken;
  const std::string what = fmt::format("fans of GPU {} to {} %", facts.index, percent);
  const bool before = std::exchange(held->record.fan, true);
  try {
    write_record(options_.dir, held->record);
  } catch (const Error& error) {
    held->record.fan = before;
    return {false, "could not: " + what, fmt::format("{} ({})", error.what(), error.why()), error.todo()};
  }
  const NvmlStatus status = nvml_.set_fan(facts.index, percent);
  if (status.ok()) return GuardAnswer::good(what);
  nvml_.set_fan_auto(facts.index);  // one of several fans may have taken it
  held->record.fan = before;
  settle(held->record.uuid);
  return explained(status, what, "run it as root: sudo tandem guard");
}

GuardAnswer Lease::give_fan_back(const GpuFacts& facts) {
  const auto found = held_.find(facts.uuid.value_or(""));
  if (found == held_.end() || !found->second.record.fan) return GuardAnswer::good();
  const std::string what = fmt::format("fans of GPU {} back to the driver", facts.index);
  const NvmlStatus status = nvml_.set_fan_auto(facts.index);
  if (!status.ok()) return explained(status, what, "run it as root: sudo tandem guard restore");
  found->second.record.fan = false;
  settle(found->first);
  return GuardAnswer::good(what);
}

void Lease::settle(const std::string& uuid) {
  const auto found = held_.find(uuid);
  if (found == held_.end()) return;
  LimitRecord record = found->second.record;
  try {
    if (record.set_w || record.fan) {
      write_record(options_.dir, record);
      return;
    }
    if (record.kept_w) {
      record.set_w = record.kept_w;
      record.pid = 0;
      write_record(options_.dir, record);
    } else {
      remove_record(options_.dir, uuid);
    }
  } catch (const Error&) {
    return;  // the record says more than is so; whoever reads it compares before it acts
  }
  held_.erase(found);
}

std::vector<std::string> Lease::give_all_back() {
  std::vector<std::string> troubles;
  std::vector<std::string> uuids;
  for (const auto& [uuid, held] : held_) uuids.push_back(uuid);
  for (const std::string& uuid : uuids) {
    GpuFacts facts;
    facts.uuid = uuid;
    facts.index = held_.at(uuid).record.index;
    for (const GuardAnswer& answer : {give_power_back(facts), give_fan_back(facts)})
      if (!answer.ok) troubles.push_back(fmt::format("{}: {}; do: {}", answer.what, answer.why, answer.todo));
  }
  if (life_ >= 0) close(life_);
  life_ = -1;
  if (watchdog_ > 0) {  // it sees the end of the pipe, finds nothing to do, and ends
    for (const double end = monotonic_seconds() + 1; waitpid(watchdog_, nullptr, WNOHANG) == 0;) {
      if (monotonic_seconds() > end) break;
      pause_a_moment();
    }
  }
  watchdog_ = -1;
  return troubles;
}

bool Lease::look_after_watchdog() {
  if (watchdog_ <= 0 || waitpid(watchdog_, nullptr, WNOHANG) == 0) return false;
  watchdog_ = -1;
  start_watchdog();
  return true;
}

GuardAnswer Lease::start_watchdog() {
  if (watchdog_ > 0) return GuardAnswer::good();
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0)
    return {false, "could not start the watchdog", strerror(errno), "close other programs and try again"};
  std::vector<std::string> words = options_.watchdog;
  words.push_back(options_.dir.string());
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_adddup2(&files, ends[0], STDIN_FILENO);
  posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_addopen(&files, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
#if defined(__GLIBC__) && __GLIBC_PREREQ(2, 34)
  posix_spawn_file_actions_addclosefrom_np(&files, 3);
#endif
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none, usual;
  sigemptyset(&none);
  sigemptyset(&usual);
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGPIPE, SIGCHLD, SIGUSR1, SIGTSTP}) sigaddset(&usual, number);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &usual);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSID);
  pid_t pid = -1;
  const int error = posix_spawn(&pid, arguments[0], &files, &attributes, arguments.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&files);
  close(ends[0]);
  if (error != 0) {
    close(ends[1]);
    return {false, "could not start the watchdog", fmt::format("{}: {}", words[0], strerror(error)),
            "limits are only changed where they can be put back"};
  }
  if (life_ >= 0) close(life_);
  life_ = ends[1];
  watchdog_ = pid;
  return GuardAnswer::good();
}

// ---- the watchdog ----

int guard_watchdog(const fs::path& dir) {
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGTSTP, SIGPIPE})
    signal(number, SIG_IGN);
  char byte = 0;
  for (;;) {
    const ssize_t got = read(STDIN_FILENO, &byte, 1);
    if (got == 0 || (got < 0 && errno != EINTR)) break;
  }
  if (read_records(dir).empty()) return 0;
  const auto nvml = Nvml::open();
  if (!nvml->status().ok()) return 1;
  bool all = true;
  for (const double end = monotonic_seconds() + kLockSeconds;;) {
    all = true;
    // A lock that is still held may be the dead one's: its files close one after the other.
    for (const Restored& one : restore_records(dir, *nvml, false)) all = all && one.ok;
    if (all || monotonic_seconds() > end) break;
    pause_a_moment();
  }
  return all ? 0 : 1;
}

}  // namespace tandem
