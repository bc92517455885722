// tools/guard/guard.cc -- `tandem guard set|status|restore`; `tandem guard` itself is in guard_watch.cc.
#include "tools/guard/guard.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/errors.h"
#include "command/sources.h"
#include "config/units.h"
#include "guard/effect.h"
#include "guard/fault_watch.h"
#include "guard/gpu_log.h"
#include "guard/gpu_sampler.h"
#include "guard/lease.h"
#include "hardware/nvml.h"
#include "tools/gpus/gpus.h"
#include "tools/guard/guard_runs.h"

namespace tandem {
namespace {

constexpr double kSettleSeconds = EffectMeter::kSettleSeconds, kWindowSeconds = EffectMeter::kWindowSeconds;
constexpr double kBusySeconds = 1;  // `guard status` looks at locks, too

struct WantedLimit {
  int gpu = 0;
  PowerLimit limit;
};

[[noreturn]] void refuse_pair(const std::string& pair) {
  throw ConfigError(fmt::format("\"{}\" is no limit", pair), "a limit is a GPU's number and its watts, or a share",
                    "write `tandem guard set 0=180W,1=200W`, or 0=80%");
}

std::vector<WantedLimit> parse_limits(const std::vector<std::string>& subjects) {
  std::vector<WantedLimit> wanted;
  for (const std::string& subject : subjects) {
    std::string_view rest = subject;
    while (!rest.empty()) {
      const size_t comma = rest.find(',');
      const std::string pair(rest.substr(0, comma));
      rest.remove_prefix(comma == std::string_view::npos ? rest.size() : comma + 1);
      const size_t equals = pair.find('=');
      WantedLimit one;
      if (equals == std::string::npos) refuse_pair(pair);
      const auto [end, error] = std::from_chars(pair.data(), pair.data() + equals, one.gpu);
      const auto limit = parse_power(pair.substr(equals + 1));
      if (error != std::errc() || end != pair.data() + equals || one.gpu < 0 || !limit) refuse_pair(pair);
      one.limit = *limit;
      if (std::any_of(wanted.begin(), wanted.end(), [&](const WantedLimit& w) { return w.gpu == one.gpu; }))
        throw ConfigError(fmt::format("GPU {} is given two limits", one.gpu), "a GPU has one",
                          "write each GPU once: `tandem guard set 0=180W,1=200W`");
      wanted.push_back(one);
    }
  }
  if (wanted.empty()) refuse_pair("");
  return wanted;
}

void wait_seconds(double seconds) {
  timespec time{static_cast<time_t>(seconds), static_cast<long>((seconds - std::floor(seconds)) * 1e9)};
  nanosleep(&time, nullptr);
}

// The watts asked for, or what is wrong with the text.
double watts_of(const WantedLimit& wanted, const GpuFacts& facts) {
  const std::string name = gpu_text(facts);
  if (!facts.power_limit_w)
    throw ConfigError(name + " has no power limit", "its driver does not tell one", "leave it out");
  const double base = facts.power_default_w.value_or(*facts.power_limit_w);
  const double watts = wanted.limit.watts > 0 ? wanted.limit.watts : std::round(wanted.limit.share * base);
  const double least = facts.power_min_w.value_or(0), most = facts.power_max_w.value_or(1e9);
  if (watts < least || watts > most)
    throw ConfigError(fmt::format("{} can't have a limit of {:.0f} W", name, watts),
                      fmt::format("its maker allows {:.0f} to {:.0f} W", least, most),
                      fmt::format("write {}={:.0f}W, say", facts.index, std::min(std::max(watts, least), most)));
  return watts;
}

// A limit that stays until `guard restore`; throws Error if it can't be set.
void keep_limit(Nvml& nvml, const GpuFacts& facts, double watts) {
  const auto dir = guard_state_dir();
  const std::string what = fmt::format("cannot set the power limit of {} to {:.0f} W", gpu_text(facts), watts);
  if (!facts.uuid) throw Error(ExitCode::kFailed, what, "the driver does not tell its uuid", "update the driver");
  std::string trouble;
  const auto lock = RecordLock::take(dir, *facts.uuid, &trouble, kBusySeconds);
  if (!lock && !trouble.empty())
    throw Error(ExitCode::kFailed, what, trouble + "; limits are only changed where they can be put back",
                "give a folder that can be written: TANDEM_STATE_DIR=/some/where");
  if (!lock)
    throw Error(ExitCode::kFailed, what, "a guard that is at work holds this GPU",
                "see which: tandem guard status; stop it first");
  if (const auto left = restore_left(dir, nvml, *facts.uuid); left && !left->ok)
    throw Error(ExitCode::kFailed, what, "what was changed here before could not be put back: " + left->text,
                "put that right first: sudo tandem guard restore");
  const auto now = nvml.reading(facts.index, false).power_limit_w;
  if (!now)
    throw Error(ExitCode::kFailed, what,
                "what it is now can't be read; limits are only changed where they can be put back",
                fmt::format("look at nvidia-smi -i {} -q -d POWER", facts.index));
  const auto before = read_record(dir, *facts.uuid).record;
  LimitRecord record{.uuid = *facts.uuid, .name = facts.name.value_or(""), .index = facts.index};
  const bool kept = before && before->kept_w && before->found_w && std::abs(*before->kept_w - *now) < kSameWatts;
  record.found_w = kept ? *before->found_w : *now;
  record.kept_w = record.set_w = watts;
  try {
    write_record(dir, record);
  } catch (const Error& error) {
    throw Error(ExitCode::kFailed, what,
                fmt::format("no record can be written to {} ({}); limits are only changed where they can be put back",
                            dir.string(), error.why()),
                fmt::format("free space in {}, or give another folder: TANDEM_STATE_DIR=/some/where", dir.string()));
  }
  const NvmlStatus status = nvml.set_power_limit(facts.index, watts);
  if (status.ok()) return;
  if (kept)
    write_record(dir, *before);
  else
    remove_record(dir, record.uuid);
  const bool permission = status.kind == NvmlStatus::Kind::kNoPermission;
  throw Error(ExitCode::kFailed, what, status.words + (permission ? ": only root may set limits" : ""),
              permission ? fmt::format("sudo tandem guard set {}={:.0f}W", facts.index, watts)
                         : "try it by hand: " + limit_command(facts.index, watts));
}

int set_limits(const Command& command) {
  const std::vector<WantedLimit> wanted = parse_limits(command.arguments.subjects);
  const auto nvml = open_nvml_or_throw();
  std::vector<std::pair<GpuFacts, double>> limits;  // all are checked before the first is set
  for (const WantedLimit& one : wanted) {
    if (one.gpu >= nvml->count())
      throw ConfigError(fmt::format("there is no GPU {}", one.gpu),
                        fmt::format("this machine has {}, counted from 0", nvml->count()), "see `tandem guard status`");
    const GpuFacts facts = nvml->facts(one.gpu);
    limits.emplace_back(facts, watts_of(one, facts));
  }
  if (const std::string warning = state_dir_warning(); !warning.empty()) command.output.warn(warning);
  nlohmann::json out = nlohmann::json::array();
  for (const auto& [facts, watts] : limits) {
    const auto runs = runs_on(runs_root(command.arguments), facts.index);
    const auto power_before = nvml->reading(facts.index, false).power_w;
    std::optional<double> rate_before;
    for (const auto& run : runs)
      if (const auto rate = recent_rate(run / "metrics.jsonl", kWindowSeconds))
        rate_before = rate_before.value_or(0) + *rate;
    keep_limit(*nvml, facts, watts);
    if (facts.persistence_mode == false)
      command.output.warn(
          fmt::format("{}: persistence is off: the driver forgets this limit when the last program that "
                      "uses the GPU ends; do: sudo nvidia-smi -i {} -pm 1",
                      gpu_text(facts), facts.index));
    nlohmann::json one{{"gpu", facts.index}, {"from_w", *facts.power_limit_w}, {"to_w", watts}};
    command.output.say(fmt::format("{}: power limit {:.0f} -> {:.0f} W; `{} guard restore` puts it back",
                                   gpu_text(facts), *facts.power_limit_w, watts, command.context.program));
    if (rate_before && power_before) {
      command.output.say(fmt::format("measuring what it costs: {:.0f} s", kSettleSeconds + kWindowSeconds));
      wait_seconds((kSettleSeconds + kWindowSeconds) / guard_speed());
      Effect effect{.gpu = facts.index, .from_w = *facts.power_limit_w, .to_w = watts, .before_w = *power_before};
      effect.before_rate = rate_before;
      effect.after_w = nvml->reading(facts.index, false).power_w.value_or(0);
      for (const auto& run : runs)
        if (const auto rate = recent_rate(run / "metrics.jsonl", kWindowSeconds))
          effect.after_rate = effect.after_rate.value_or(0) + *rate;
      command.output.say(effect.text("steps"));
      one["power_before_w"] = effect.before_w;
      one["power_after_w"] = effect.after_w;
      one["rate_before"] = *effect.before_rate;
      if (effect.after_rate) one["rate_after"] = *effect.after_rate;
    }
    out.push_back(std::move(one));
  }
  if (command.output.json()) command.output.object({{"limits", out}});
  return 0;
}

std::string unread_text(const RecordRead& unread) {
  return fmt::format(
      "{} can't be understood: {}; what its GPU's limit was before is not known here; do: read it with "
      "the tandem that wrote it, or set the limit by hand and remove the file",
      unread.file.string(), unread.trouble);
}

int restore(const Command& command) {
  nlohmann::json out = nlohmann::json::array();
  bool all = true;
  std::vector<std::string> looked;
  std::vector<RecordRead> unread;
  std::unique_ptr<Nvml> nvml;
  for (const auto& dir : guard_state_dirs()) {
    looked.push_back(dir.string());
    if (read_records(dir, &unread).empty()) continue;
    if (!nvml) nvml = open_nvml_or_throw();
    for (const Restored& one : restore_records(dir, *nvml, true)) {
      all = all && one.ok;
      out.push_back({{"gpu", one.record.index}, {"uuid", one.record.uuid}, {"ok", one.ok}, {"text", one.text}});
      if (!command.output.json()) one.ok ? command.output.say(one.text) : command.output.warn(one.text);
    }
  }
  for (const RecordRead& one : unread) {
    all = false;
    out.push_back({{"file", one.file.string()}, {"ok", false}, {"text", unread_text(one)}});
    if (!command.output.json()) command.output.warn(unread_text(one));
  }
  if (out.empty())
    command.output.say(fmt::format("nothing to restore: no record of a changed limit in {}{}",
                                   fmt::join(looked, " or "),
                                   geteuid() == 0 ? "" : "; root's are found by root: sudo tandem guard restore"));
  if (command.output.json()) command.output.object({{"restored", out}, {"ok", all}});
  return static_cast<int>(all ? ExitCode::kOk : ExitCode::kFailed);
}

std::string value_with_unit(const auto& value, const char* unit) {
  return value ? fmt::format("{:.0f}{}", static_cast<double>(*value), unit) : "-";
}

// Of one record, for people and programs: who holds it, and whether the limit is still what was set.
nlohmann::json record_state(const std::filesystem::path& dir, const LimitRecord& record, Nvml& nvml,
                            const std::string& program, std::vector<std::string>& lines) {
  std::string trouble, who;
  const RecordLock::Seen seen = RecordLock::look(dir, record.uuid, &trouble);
  nlohmann::json one{{"gpu", record.index}, {"uuid", record.uuid}, {"fan", record.fan}, {"folder", dir.string()}};
  if (seen != RecordLock::Seen::kUnknown) one["held"] = seen == RecordLock::Seen::kHeld;
  if (record.found_w) one["found_w"] = *record.found_w;
  if (record.set_w) one["set_w"] = *record.set_w;
  if (seen == RecordLock::Seen::kHeld) one["pid"] = record.pid;
  std::optional<double> now;
  for (const GpuFacts& facts : nvml.facts())
    if (facts.uuid == record.uuid) now = facts.power_limit_w;
  const bool same = !record.set_w || !now || std::abs(*now - *record.set_w) < kSameWatts;
  if (!same && record.before_restart()) one["lost_with_restart"] = true;
  if (seen == RecordLock::Seen::kUnknown)
    who = fmt::format("whether a guard holds it is not known ({})", trouble);
  else if (seen == RecordLock::Seen::kHeld)
    who = fmt::format("held by the guard of process {}", record.pid);
  else if (!same && record.before_restart())
    who = fmt::format("lost with the restart, it is {:.0f} W now; set it again, or forget it: `{} guard restore`", *now,
                      program);
  else if (!same)
    who = fmt::format("somebody else made it {:.0f} W; `{} guard restore` forgets ours", *now, program);
  else if (record.only_kept())
    who = fmt::format("stays until `{} guard restore`", program);
  else
    who = fmt::format("left by a guard that is gone: `{} guard restore` puts it back", program);
  lines.push_back(fmt::format(
      "GPU {}: limit {}{}; {}", record.index,
      record.set_w ? fmt::format("{:.0f} W, found at {} W", *record.set_w, value_with_unit(record.found_w, ""))
                   : "as it was",
      record.fan ? ", fans raised" : "", who));
  return one;
}

// What a guard that is at work found before it lowered this GPU's limit; absent where the limit is nobody's of us.
std::optional<double> lowered_from(const GpuFacts& facts, const GpuReading& now) {
  if (!facts.uuid || !now.power_limit_w) return std::nullopt;
  for (const auto& dir : guard_state_dirs()) {
    const auto record = read_record(dir, *facts.uuid).record;
    if (!record || !record->set_w || record->only_kept()) continue;
    if (std::abs(*record->set_w - *now.power_limit_w) >= kSameWatts) continue;
    if (RecordLock::look(dir, *facts.uuid) == RecordLock::Seen::kHeld)
      return record->kept_w ? record->kept_w : record->found_w;
  }
  return std::nullopt;
}

// The watts that `guard set` found before it made the limit what it is now; absent where it did not.
std::optional<double> set_from(const GpuFacts& facts, const GpuReading& now) {
  if (!facts.uuid || !now.power_limit_w) return std::nullopt;
  for (const auto& dir : guard_state_dirs()) {
    const auto record = read_record(dir, *facts.uuid).record;
    if (record && record->only_kept() && std::abs(*record->set_w - *now.power_limit_w) < kSameWatts)
      return record->found_w;
  }
  return std::nullopt;
}

// A limit that the user set is no fault: no advice against it.
GpuNotice as_wished(GpuNotice notice, const GpuFacts& facts, const GpuReading& now, const std::string& program) {
  const auto found_w = set_from(facts, now);
  if (!found_w || notice.id != throttle_name(Throttle::kPowerCap)) return notice;
  notice.why = fmt::format("`{} guard set` made its power limit {:.0f} W ({:.0f} W was found)", program,
                           *now.power_limit_w, *found_w);
  notice.todo = fmt::format("nothing, if it is still wanted; else `{} guard restore`", program);
  return notice;
}

int status(const Command& command) {
  const auto nvml = open_nvml_or_throw();
  GuardOptions options;
  options.acts = false;  // this looks, once
  nlohmann::json gpus = nlohmann::json::array();
  std::string table = fmt::format("{:<4} {:<30} {:>6} {:>11} {:>7} {:>12} {:>5} {:>9}  {}\n", "GPU", "NAME", "TEMP",
                                  "WARN/ACT", "POWER", "LIMIT/DEF", "FAN", "CLOCK", "STATE");
  std::vector<std::string> lines;
  for (const GpuFacts& facts : nvml->facts()) {
    const GpuReading now = nvml->reading(facts.index);
    const HeatLimits limits = HeatLimits::of(options, facts);
    nlohmann::json one = reading_json(facts, now);
    if (facts.uuid) one["uuid"] = *facts.uuid;
    if (facts.power_default_w) one["default_w"] = *facts.power_default_w;
    if (facts.power_min_w) one["min_w"] = *facts.power_min_w;
    if (facts.power_max_w) one["max_w"] = *facts.power_max_w;
    one["limits_c"] = {
        {"target", limits.target_c}, {"warn", limits.warn_c}, {"act", limits.act_c}, {"pause", limits.pause_c}};
    one["notices"] = nlohmann::json::array();
    std::vector<std::string> state;
    for (GpuNotice notice : FaultWatch::at_once(options, facts, now, lowered_from(facts, now))) {
      notice = as_wished(std::move(notice), facts, now, command.context.program);
      one["notices"].push_back({{"id", notice.id}, {"what", notice.what}, {"why", notice.why}, {"do", notice.todo}});
      lines.push_back(notice.text());
      state.push_back(notice.id);
    }
    table += fmt::format(
        "{:<4} {:<30} {:>6} {:>11} {:>7} {:>12} {:>5} {:>9}  {}\n", facts.index, facts.name.value_or("-").substr(0, 30),
        value_with_unit(now.temperature_c, " C"), fmt::format("{:.0f}/{:.0f} C", limits.warn_c, limits.act_c),
        value_with_unit(now.power_w, " W"),
        fmt::format("{}/{}", value_with_unit(now.power_limit_w, ""), value_with_unit(facts.power_default_w, " W")),
        value_with_unit(now.fan_percent, " %"), value_with_unit(now.sm_clock_mhz, " MHz"),
        state.empty() ? "well" : fmt::format("{}", fmt::join(state, " ")));
    gpus.push_back(std::move(one));
  }
  nlohmann::json held = nlohmann::json::array();
  std::vector<RecordRead> unread;
  for (const auto& dir : guard_state_dirs())
    for (const LimitRecord& record : read_records(dir, &unread))
      held.push_back(record_state(dir, record, *nvml, command.context.program, lines));
  for (const RecordRead& one : unread) {
    held.push_back({{"file", one.file.string()}, {"trouble", one.trouble}});
    lines.push_back(unread_text(one));
  }
  if (command.output.json()) {
    command.output.object({{"driver", nvml->driver_version().value_or("")}, {"gpus", gpus}, {"records", held}});
    return 0;
  }
  for (const std::string& line : lines) table += line + "\n";
  command.output.data(table);
  return 0;
}

}  // namespace

std::unique_ptr<Nvml> open_nvml_or_throw() {
  auto nvml = Nvml::open_in_time();
  if (nvml->status().kind == NvmlStatus::Kind::kTimeout) throw driver_hangs(nvml->status());
  if (!nvml->status().ok())
    throw Error(ExitCode::kFailed, "there is no NVIDIA driver to ask", nvml->status().words,
                "install NVIDIA's driver (nvidia-smi must answer); training on CPUs works without");
  if (nvml->count() == 0)
    throw Error(ExitCode::kFailed, "there is no GPU here", "the driver is there and names none",
                "look at nvidia-smi and at lspci | grep -i nvidia; training on CPUs works without");
  return nvml;
}

int run_guard(const Command& command) {
  const std::string verb = command.arguments.command.size() > 1 ? command.arguments.command[1] : "";
  if (verb == "set") return set_limits(command);
  if (verb == "status") return status(command);
  if (verb == "restore") return restore(command);
  return guard_machine(command);
}

}  // namespace tandem
