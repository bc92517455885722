// tools/guard/guard_watch.cc -- `tandem guard`: watches all GPUs of this machine, whoever uses them, until Ctrl-C.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/errors.h"
#include "command/sources.h"
#include "config/units.h"
#include "guard/effect.h"
#include "guard/fault_watch.h"
#include "guard/gpu_log.h"
#include "guard/gpu_sampler.h"
#include "guard/policy.h"
#include "launch/signal_queue.h"
#include "telemetry/human.h"
#include "telemetry/progress.h"
#include "tools/guard/guard.h"
#include "tools/guard/guard_runs.h"

namespace tandem {
namespace {

using Kind = GuardAction::Kind;

constexpr double kLineSeconds = 10;  // between lines where stderr is no terminal
constexpr double kRunsSeconds = 10;  // between looks for runs

struct WatchOptions {
  GuardOptions options;
  double interval_s = 1, for_s = 0;
};

WatchOptions watch_options_of(const Arguments& arguments) {
  WatchOptions asked_for;
  if (!arguments.power.empty()) {
    asked_for.options.power = parse_power(arguments.power);
    if (!asked_for.options.power)
      throw ConfigError(fmt::format("--power {}: no limit", arguments.power),
                        "it is how far a hot GPU's limit may be lowered", "write --power 80%, or --power 180W");
  }
  if (arguments.target) {
    if (!(*arguments.target >= 30 && *arguments.target <= 100))
      throw ConfigError(fmt::format("--target {:g} is no temperature to aim at", *arguments.target),
                        "30 to 100 C make sense", "write --target 80");
    asked_for.options.target_c = *arguments.target;
    asked_for.options.warn_c = *arguments.target + 5;
    asked_for.options.act_c = *arguments.target + 10;
  }
  if (arguments.interval) {
    asked_for.interval_s = parse_duration(*arguments.interval).value_or(0);
    if (!(asked_for.interval_s >= 0.1 && asked_for.interval_s <= 60))
      throw ConfigError(fmt::format("--interval {}: no time between readings", *arguments.interval),
                        "0.1 s to 60 s make sense", "write --interval 1");
  }
  if (arguments.for_time) {
    asked_for.for_s = parse_duration(*arguments.for_time).value_or(0);
    if (!(asked_for.for_s > 0))
      throw ConfigError(fmt::format("--for {}: no time", *arguments.for_time), "the guard ends after it",
                        "write --for 90s, 10m or 2h");
  }
  return asked_for;
}

// "0: 71 C 198/220 W 97 %"
std::string live_line(const GuardSample& sample) {
  std::vector<std::string> parts;
  for (const GpuReading& now : sample.gpus) {
    std::string part = fmt::format("{}:", now.index);
    if (now.lost) part += " lost";
    if (now.temperature_c) part += fmt::format(" {} C", *now.temperature_c);
    if (now.power_w) part += fmt::format(" {:.0f}", *now.power_w);
    if (now.power_w && now.power_limit_w) part += fmt::format("/{:.0f}", *now.power_limit_w);
    if (now.power_w) part += " W";
    if (now.fan_percent) part += fmt::format(" fan {} %", *now.fan_percent);
    if (now.utilisation_percent) part += fmt::format(" busy {} %", *now.utilisation_percent);
    parts.push_back(part);
  }
  return fmt::format("{}", fmt::join(parts, "   "));
}

class MachineGuard {
 public:
  MachineGuard(const Command& command, const WatchOptions& asked_for)
      : command_(command),
        options_(asked_for),
        policy_(asked_for.options),
        faults_(asked_for.options),
        tty_(isatty(2) == 1) {}

  int watch() {
    SignalQueue signals;
    GpuSamplerOptions asked;
    asked.interval_s = options_.interval_s;
    asked.wanted.all = true;
    asked.restores = false;  // done already
    GpuSampler sampler(asked);
    const double begin = monotonic_seconds();
    int code = 0;
    for (bool over = false; !over;) {
      pollfd wait{signals.fd(), POLLIN, 0};
      poll(&wait, 1, 50);
      while (const auto signal = signals.next()) {
        if (*signal == SIGINT) code = static_cast<int>(ExitCode::kInterrupted), over = true;
        if (*signal == SIGTERM || *signal == SIGHUP) code = static_cast<int>(ExitCode::kTerminated), over = true;
      }
      if (options_.for_s > 0 && (monotonic_seconds() - begin) * guard_speed() >= options_.for_s) over = true;
      hear(sampler);
      const auto samples = sampler.take();
      for (const GuardSample& sample : samples) see(sample, &sample == &samples.back(), sampler);
      if (const auto silence = faults_.silence(sampler.quiet_seconds())) report(silence->id, silence->text(), true);
    }
    const bool answered = sampler.end();
    clear();
    hear(sampler);
    if (actions_ > 0 || effects_.saved_joules() > 0)
      report("end",
             fmt::format(
                 "{} action{} taken{}{}", actions_, actions_ == 1 ? "" : "s",
                 effects_.saved_joules() > 0 ? fmt::format(", {:.3g} Wh saved", effects_.saved_joules() / 3600) : "",
                 sampler.gave_all_back() ? "; limits and fans are as they were before"
                                         : "; NOT all limits and fans are as they were before"),
             !sampler.gave_all_back());
    if (!answered) report("end", "the driver does not answer: the watchdog puts limits and fans back", true);
    return code;
  }

 private:
  void hear(GpuSampler& sampler) {
    for (const ActionResult& done : sampler.take_done()) {
      if (!done.answer.ok) {
        if (policy_.refused(done.action, done.answer.text(), done.answer.for_good))
          report("refused", done.answer.text(), true);
        continue;
      }
      ++actions_;
      policy_.done(done.action, done.time);
      if (done.action.kind != Kind::kPower && done.action.kind != Kind::kPowerBack) continue;
      effects_.changed(done.time, done.action.gpu, from_w_[done.action.gpu], done.action.value);
    }
    for (const GuardWord& word : sampler.take_words())
      report(word.trouble ? "trouble" : "guard", word.text, word.trouble);
  }

  void see(const GuardSample& sample, bool newest, GpuSampler& sampler) {
    std::map<int, double> power;
    for (const GpuReading& now : sample.gpus) {
      if (now.power_w) power[now.index] = *now.power_w;
      if (now.power_limit_w) limit_w_[now.index] = *now.power_limit_w;
    }
    const double real = monotonic_seconds();
    effects_.add(sample.time, real, power, progress(real));
    for (const XidEvent& event : sample.xids) {
      const GpuNotice notice = faults_.xid(sample.facts, event);
      report(notice.id, notice.text(), true);
    }
    for (const GpuNotice& notice : faults_.see(sample.time, sample.facts, sample.gpus, policy_.lowered()))
      report(notice.id, notice.text(), !notice.over && notice.weight != GpuNotice::Weight::kNote);
    if (newest)
      for (const GuardAction& action : policy_.step(sample.time, sample.facts, sample.gpus)) {
        from_w_[action.gpu] = limit_w_[action.gpu];
        if (action.kind != Kind::kNote) sampler.submit(action);
        report("order", action.text, action.kind == Kind::kNote);
      }
    for (const Effect& effect : effects_.finished()) report("effect", effect.text("steps"));
    show(sample, real);
  }

  // How far all runs on GPUs are, together.
  std::optional<double> progress(double now) {
    if (now - runs_at_ >= kRunsSeconds) {
      runs_at_ = now;
      runs_ = runs_on(runs_root(command_.arguments), -1);
    }
    std::optional<double> sum;
    for (const auto& run : runs_)
      if (const auto step = newest_step(run / "metrics.jsonl")) sum = sum.value_or(0) + *step;
    return sum;
  }

  void show(const GuardSample& sample, double now) {
    if (command_.output.json()) {
      nlohmann::json line{{"t", unix_now()}, {"gpus", nlohmann::json::array()}};
      for (size_t i = 0; i < sample.gpus.size(); ++i)
        line["gpus"].push_back(reading_json(sample.facts.at(i), sample.gpus[i]));
      command_.output.data(line.dump() + "\n");
      command_.output.flush();
    } else if (tty_ && !command_.output.quiet()) {
      fmt::print(stderr, "\r\x1b[K{}", fit(live_line(sample), std::max(20, stderr_columns() - 1)));
      std::fflush(stderr);
      shown_ = true;
    } else if (now - line_at_ >= kLineSeconds) {
      line_at_ = now;
      command_.output.say(live_line(sample));
    }
  }

  void clear() {
    if (std::exchange(shown_, false)) fmt::print(stderr, "\r\x1b[K");
  }

  void report(const std::string& id, const std::string& text, bool warning = false) {
    clear();
    if (command_.output.json())
      command_.output.data(nlohmann::json{{"t", unix_now()}, {"id", id}, {"text", text}}.dump() + "\n");
    warning ? command_.output.warn(text) : command_.output.say(text);
  }

  const Command& command_;
  WatchOptions options_;
  GuardPolicy policy_;
  FaultWatch faults_;
  EffectMeter effects_;
  std::map<int, double> limit_w_, from_w_;  // as it is, and as it was when the last action was chosen
  std::vector<std::filesystem::path> runs_;
  double runs_at_ = -1e9, line_at_ = -1e9;
  int actions_ = 0;
  bool tty_, shown_ = false;
};

}  // namespace

int guard_machine(const Command& command) {
  const WatchOptions asked_for = watch_options_of(command.arguments);
  {
    const auto nvml = open_nvml_or_throw();
    for (const Restored& one : restore_records(guard_state_dir(), *nvml, false))
      one.ok ? command.output.say(one.text) : command.output.warn(one.text);
    command.output.say(fmt::format("guarding {} GPU{}: {}; Ctrl-C ends it and gives everything back", nvml->count(),
                                   nvml->count() == 1 ? "" : "s", heat_text(asked_for.options, nvml->facts())));
  }
  if (const std::string warning = state_dir_warning(); !warning.empty()) command.output.warn(warning);
  if (geteuid() != 0)
    command.output.say(fmt::format("not root: limits and fans can only be watched, not set; do: sudo {} guard{}{}",
                                   command.context.program, command.arguments.power.empty() ? "" : " --power ",
                                   command.arguments.power));
  return MachineGuard(command, asked_for).watch();
}

}  // namespace tandem
