#include "guard/lease.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>

#include "base/clock.h"
#include "base/errors.h"

extern char** environ;

namespace tandem {
namespace {

namespace fs = std::filesystem;

constexpr double kLockSeconds = 5;  // that the watchdog waits for the dead guard's locks
constexpr double kBusySeconds = 1;

void pause_a_moment() {
  const timespec moment{0, 5'000'000};
  nanosleep(&moment, nullptr);
}

}  // namespace

std::string GuardAnswer::text() const { return fmt::format("{}; cause: {}; do: {}", what, why, todo); }

GuardAnswer explained(const NvmlStatus& status, const std::string& what, const std::string& sudo_command) {
  if (status.ok()) return GuardAnswer::good(what);
  GuardAnswer answer{false, "could not: " + what, status.words, "", false};
  answer.for_good = status.kind == NvmlStatus::Kind::kNoPermission || status.kind == NvmlStatus::Kind::kNotSupported ||
                    status.kind == NvmlStatus::Kind::kNoFunction;
  if (status.kind == NvmlStatus::Kind::kNoPermission) {
    answer.why += ": only root may set limits and fans";
    answer.todo = sudo_command;
  } else if (status.kind == NvmlStatus::Kind::kNotSupported || status.kind == NvmlStatus::Kind::kNoFunction) {
    answer.todo = "nothing: this GPU or driver does not offer it; the guard does without";
  } else {
    answer.todo = "try it yourself: " + sudo_command;
  }
  return answer;
}

// ---- the borrower ----

GuardAnswer Lease::take(const GpuFacts& facts, Held*& held) {
  const std::string what = fmt::format("could not: change limits of GPU {}", facts.index);
  if (!facts.uuid) return {false, what, "the driver does not report its uuid", "update the driver", true};
  if (const auto found = held_.find(*facts.uuid); found != held_.end()) {
    held = &found->second;
    return look_after_watchdog();
  }
  std::string trouble;
  // A dead guard's watchdog may be at work.
  auto lock = RecordLock::take(options_.dir, *facts.uuid, &trouble, kBusySeconds);
  if (!lock && !trouble.empty())
    return {false, what, trouble + "; limits are only changed where they can be put back",
            "give a folder that can be written: TANDEM_STATE_DIR=/some/where"};
  if (!lock) return {false, what, "another guard holds this GPU", "see who: tandem guard status"};
  // What one who is gone left is put back first, so that what we find is what was there before.
  if (const auto left = restore_left(options_.dir, nvml_, *facts.uuid); left && !left->ok)
    return {false, what, "what was changed here before could not be put back: " + left->text,
            "sudo tandem guard restore"};
  Held mine{.lock = std::move(lock), .record = {}};
  if (const auto kept = read_record(options_.dir, *facts.uuid).record) mine.record = *kept;
  mine.record.uuid = *facts.uuid;
  mine.record.name = facts.name.value_or("");
  mine.record.index = facts.index;
  mine.record.pid = getpid();
  mine.record.boot.clear();
  mine.record.set_w.reset();
  if (const GuardAnswer started = start_watchdog(); !started.ok) return started;
  held = &held_.emplace(*facts.uuid, std::move(mine)).first->second;
  return GuardAnswer::good();
}

// As long as the limit is not ours, what it is now is what is given back.
GuardAnswer Lease::refresh_base(const GpuFacts& facts, Held& held) {
  if (held.record.set_w) return GuardAnswer::good();
  const auto now = nvml_.reading(facts.index, false).power_limit_w;
  if (!now)
    return {false, fmt::format("could not: change the power limit of GPU {}", facts.index),
            "what it is now can't be read; limits are only changed where they can be put back",
            fmt::format("look at nvidia-smi -i {} -q -d POWER", facts.index)};
  const bool kept = held.record.kept_w && std::abs(*now - *held.record.kept_w) < kSameWatts;
  if (!kept) held.record.kept_w.reset();
  if (!kept || !held.record.found_w) held.record.found_w = *now;
  held.base_w = *now;
  return GuardAnswer::good();
}

GuardAnswer Lease::note(const LimitRecord& record, const std::string& what) {
  try {
    write_record(options_.dir, record);
    return GuardAnswer::good();
  } catch (const Error& error) {
    return {
        false, "could not: " + what,
        fmt::format("no record can be written to {} ({}); limits are only changed where they can be put back",
                    options_.dir.string(), error.why()),
        fmt::format("free space in {}, or give another folder: TANDEM_STATE_DIR=/some/where", options_.dir.string())};
  }
}

GuardAnswer Lease::set_power(const GpuFacts& facts, double watts, std::optional<double> from_w) {
  Held* held = nullptr;
  if (GuardAnswer taken = take(facts, held); !taken.ok) return taken;
  const LimitRecord before = held->record;
  if (GuardAnswer known = refresh_base(facts, *held); !known.ok) {
    settle(before.uuid);
    return known;
  }
  const std::string what = fmt::format("power limit of GPU {} to {:.0f} W", facts.index, watts);
  if (const double now = held->record.set_w.value_or(held->base_w); from_w && std::abs(now - *from_w) >= kSameWatts) {
    settle(before.uuid);
    return {false, "could not: " + what,
            fmt::format("it was {:.0f} W when that was decided and is {:.0f} W now", *from_w, now),
            "nothing: it is computed anew"};
  }
  const LimitRecord refreshed = held->record;
  held->record.set_w = watts;
  if (GuardAnswer noted = note(held->record, what); !noted.ok) {
    held->record = before;
    settle(before.uuid);
    return noted;
  }
  const NvmlStatus status = nvml_.set_power_limit(facts.index, watts);
  if (status.ok()) return GuardAnswer::good(what);
  held->record = refreshed;
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
  const LimitRecord before = held->record;
  if (!before.fan) held->record.found_fan = nvml_.manual_fan_percent(facts.index);
  held->record.fan = true;
  if (GuardAnswer noted = note(held->record, what); !noted.ok) {
    held->record = before;
    settle(before.uuid);
    return noted;
  }
  // Giving back is tried first: fans that would stay at full speed for ever are not touched.
  NvmlStatus status;
  if (!before.fan) status = give_fans_back(nvml_, facts.index, held->record.found_fan);
  if (status.ok()) {
    status = nvml_.set_fan(facts.index, percent);
    if (status.ok()) return GuardAnswer::good(what);
    // One of several fans may have taken it.
    if (!before.fan && !give_fans_back(nvml_, facts.index, held->record.found_fan).ok() &&
        status.kind != NvmlStatus::Kind::kNoPermission)
      return explained(status, what, "run it as root: sudo tandem guard");  // the record stays
  }
  held->record = before;
  settle(before.uuid);
  return explained(status, what, "run it as root: sudo tandem guard");
}

GuardAnswer Lease::give_fan_back(const GpuFacts& facts) {
  const auto found = held_.find(facts.uuid.value_or(""));
  if (found == held_.end() || !found->second.record.fan) return GuardAnswer::good();
  const auto percent = found->second.record.found_fan;
  const std::string what = percent ? fmt::format("fans of GPU {} back to {} %", facts.index, *percent)
                                   : fmt::format("fans of GPU {} back to the driver", facts.index);
  const NvmlStatus status = give_fans_back(nvml_, facts.index, percent);
  if (!status.ok()) return explained(status, what, "run it as root: sudo tandem guard restore");
  found->second.record.fan = false;
  found->second.record.found_fan.reset();
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
      if (!answer.ok) troubles.push_back(answer.text());
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

GuardAnswer Lease::look_after_watchdog() {
  if (watchdog_ > 0 && waitpid(watchdog_, nullptr, WNOHANG) != 0) watchdog_ = -1;
  return held_.empty() ? GuardAnswer::good() : start_watchdog();
}

GuardAnswer Lease::start_watchdog() {
  if (watchdog_ > 0) return GuardAnswer::good();
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0)
    return {false, "could not start the guard's watchdog",
            fmt::format("{}; without it limits are not lowered further", strerror(errno)),
            "close other programs; it is tried again"};
  std::vector<std::string> words = options_.watchdog;
  words.push_back(options_.dir.string());
  words.push_back(std::to_string(getpid()));
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
    return {false, "could not start the guard's watchdog",
            fmt::format("{}: {}; without it limits are not lowered further", words[0], strerror(error)),
            "close other programs; it is tried again"};
  }
  if (life_ >= 0) close(life_);
  life_ = ends[1];
  watchdog_ = pid;
  return GuardAnswer::good();
}

// ---- the watchdog ----

int guard_watchdog(const fs::path& dir, int64_t guard) {
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGTSTP, SIGPIPE})
    signal(number, SIG_IGN);
  char byte = 0;
  for (;;) {
    const ssize_t got = read(STDIN_FILENO, &byte, 1);
    if (got == 0 || (got < 0 && errno != EINTR)) break;
  }
  const auto ours = [&](const LimitRecord& record) { return guard == 0 || record.pid == guard; };
  const auto records = read_records(dir);
  if (std::none_of(records.begin(), records.end(), ours)) return 0;
  const auto nvml = Nvml::open();
  if (!nvml->status().ok()) return 1;
  bool all = true;
  for (const double end = monotonic_seconds() + kLockSeconds;;) {
    all = true;
    // A lock that is still held may be the dead one's: its files close one after the other.
    for (const Restored& one : restore_records(dir, *nvml, false)) all = all && (one.ok || !ours(one.record));
    if (all || monotonic_seconds() > end) break;
    pause_a_moment();
  }
  return all ? 0 : 1;
}

}  // namespace tandem
