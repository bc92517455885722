// cli/guard.cc -- `tandem guard set|status|restore`; `tandem guard` itself is in guard_watch.cc.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <time.h>
#include <unistd.h>

#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/errors.h"
#include "cli/commands.h"
#include "cli/guard_runs.h"
#include "cli/sources.h"
#include "config/units.h"
#include "guard/effect.h"
#include "guard/fault_watch.h"
#include "guard/gpu_log.h"
#include "guard/lease.h"
#include "guard/sampler.h"
#include "hardware/nvml.h"

namespace tandem {
namespace {

constexpr double kSettleSeconds = EffectMeter::kSettleSeconds, kWindowSeconds = EffectMeter::kWindowSeconds;

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

// The watts of a wish, or what is wrong with it.
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
  const auto lock = RecordLock::take(dir, *facts.uuid, &trouble);
  if (!lock && !trouble.empty())
    throw Error(ExitCode::kFailed, what, trouble + "; limits are only changed where they can be put back",
                "give a folder that can be written: TANDEM_STATE_DIR=/some/where");
  if (!lock)
    throw Error(ExitCode::kFailed, what, "a guard that is at work holds this GPU",
                "see which: tandem guard status; stop it first");
  LimitRecord record{.uuid = *facts.uuid, .name = facts.name.value_or(""), .index = facts.index};
  record.found_w = facts.power_limit_w;
  bool had_one = false;
  for (const LimitRecord& known : read_records(dir))
    if (known.uuid == record.uuid && known.set_w && facts.power_limit_w &&
        std::abs(*known.set_w - *facts.power_limit_w) < 1)
      record = known, had_one = true;
  const LimitRecord before = record;
  record.kept_w = record.set_w = watts;
  record.pid = 0;
  write_record(dir, record);
  const NvmlStatus status = nvml.set_power_limit(facts.index, watts);
  if (status.ok()) return;
  if (had_one)
    write_record(dir, before);
  else
    remove_record(dir, record.uuid);
  const bool permission = status.kind == NvmlStatus::Kind::kNoPermission;
  throw Error(ExitCode::kFailed, what, status.words + (permission ? ": only root may set limits" : ""),
              permission ? fmt::format("sudo tandem guard set {}={:.0f}W", facts.index, watts)
                         : fmt::format("try it by hand: sudo nvidia-smi -i {} -pl {:.0f}", facts.index, watts));
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
  nlohmann::json out = nlohmann::json::array();
  for (const auto& [facts, watts] : limits) {
    const auto runs = runs_on(runs_root(command.arguments), facts.index);
    const auto power_before = nvml->reading(facts.index, false).power_w;
    std::optional<double> rate_before;
    for (const auto& run : runs)
      if (const auto rate = recent_rate(run / "metrics.jsonl", kWindowSeconds))
        rate_before = rate_before.value_or(0) + *rate;
    keep_limit(*nvml, facts, watts);
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

int restore(const Command& command) {
  const auto dir = guard_state_dir();
  nlohmann::json out = nlohmann::json::array();
  bool all = true;
  if (!read_records(dir).empty()) {
    const auto nvml = open_nvml_or_throw();
    for (const Restored& one : restore_records(dir, *nvml, true)) {
      all = all && one.ok;
      out.push_back({{"gpu", one.record.index}, {"uuid", one.record.uuid}, {"ok", one.ok}, {"text", one.text}});
      if (!command.output.json()) one.ok ? command.output.say(one.text) : command.output.warn(one.text);
    }
  } else {
    command.output.say("nothing to restore: no limit was changed by tandem");
  }
  if (command.output.json()) command.output.object({{"restored", out}, {"ok", all}});
  return static_cast<int>(all ? ExitCode::kOk : ExitCode::kFailed);
}

std::string cell(const auto& value, const char* unit) {
  return value ? fmt::format("{:.0f}{}", static_cast<double>(*value), unit) : "-";
}

int status(const Command& command) {
  const auto nvml = open_nvml_or_throw();
  const GuardOptions options;
  const auto records = read_records(guard_state_dir());
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
    FaultWatch watch(options);
    watch.see(0, {facts}, {now});
    one["notices"] = nlohmann::json::array();
    std::vector<std::string> state;
    for (const GpuNotice& notice : watch.see(FaultWatch::kLongestSeconds, {facts}, {now})) {
      one["notices"].push_back({{"id", notice.id}, {"what", notice.what}, {"why", notice.why}, {"do", notice.todo}});
      lines.push_back(notice.text());
      state.push_back(notice.id);
    }
    table += fmt::format("{:<4} {:<30} {:>6} {:>11} {:>7} {:>12} {:>5} {:>9}  {}\n", facts.index,
                         facts.name.value_or("-").substr(0, 30), cell(now.temperature_c, " C"),
                         fmt::format("{:.0f}/{:.0f} C", limits.warn_c, limits.act_c), cell(now.power_w, " W"),
                         fmt::format("{}/{}", cell(now.power_limit_w, ""), cell(facts.power_default_w, " W")),
                         cell(now.fan_percent, " %"), cell(now.sm_clock_mhz, " MHz"),
                         state.empty() ? "well" : fmt::format("{}", fmt::join(state, " ")));
    gpus.push_back(std::move(one));
  }
  nlohmann::json held = nlohmann::json::array();
  for (const LimitRecord& record : records) {
    const bool alive = !RecordLock::take(guard_state_dir(), record.uuid);
    nlohmann::json one{{"gpu", record.index}, {"uuid", record.uuid}, {"held", alive}, {"fan", record.fan}};
    if (record.found_w) one["found_w"] = *record.found_w;
    if (record.set_w) one["set_w"] = *record.set_w;
    if (alive) one["pid"] = record.pid;
    held.push_back(one);
    lines.push_back(fmt::format("GPU {}: limit {} W, found at {} W; {}", record.index, cell(record.set_w, ""),
                                cell(record.found_w, ""),
                                alive ? fmt::format("held by the guard of process {}", record.pid)
                                      : fmt::format("stays until `{} guard restore`", command.context.program)));
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
