// The launcher's eye on speed: where each worker's time goes is kept, and a slow-down that lasts is named.
#include <fmt/format.h>

#include "base/clock.h"
#include "explain/read_run.h"
#include "launch/launcher_impl.h"
#include "telemetry/atomic_file.h"
#include "telemetry/human.h"

namespace tandem {
namespace {

constexpr int64_t kFirstSteps = 3;  // they choose and allocate
constexpr double kLookSeconds = 0.5;

}  // namespace

TimesLine Launcher::times_now() const {
  TimesLine line{.time = unix_now(), .step = record_->last_step(), .generation = coordinator_->current().generation};
  std::map<int, int> shards;
  for (const ShardAssignment& a : coordinator_->current().members) shards[a.rank] = a.range.size();
  for (const auto& [rank, worker] : workers_) {
    if (!worker->running() || !worker->arrived || worker->joining || (worker->leaving && !shards.contains(rank)))
      continue;
    line.ranks.push_back({.rank = rank,
                          .device = worker->device().name(),
                          .gpu = guard_->gpu_number(worker->device()),
                          .on_gpu = worker->device().kind == DeviceSpec::Kind::kCuda,
                          .pinned = worker->device().core >= 0,
                          .shards = shards.contains(rank) ? shards[rank] : 0,
                          .times = worker->times()});
  }
  line.loader_threads = loader_threads_;
  return line;
}

void Launcher::watch_speed(double now) {
  const double wait = kLookSeconds / explain_speed();
  if (now < speed_at_ + wait || record_->last_step() < record_->first_step() + kFirstSteps || held_by_guard_) return;
  speed_at_ = now;
  if (!times_) {
    times_ = std::make_unique<TimesLog>(request_.run_dir / "ranks.jsonl");
    slow_watch_ = std::make_unique<LiveWatch>(request_.run_dir, request_.run_dir.filename().string(), explain_speed());
  }
  TimesLine line = times_->add_up(times_now());
  crowd_.add_to(line, now);
  times_->write(line, now);
  if (const auto found = slow_watch_->look(line, now)) {
    const std::string text = fmt::format("{}; why: {}; do: {}{}", found->text, found->why, found->remedy,
                                         found->command.empty() ? "" : ": " + found->command);
    record_->telemetry().say("slow    " + text);
    record_->telemetry().event("slow", record_->last_step(), text);
  }
}

// The whole run, for its report and for `runs show`; `tandem explain` looks for itself.
void Launcher::end_speed() {
  if (!record_ || !coordinator_ || !times_) return;
  TimesLine last = times_->add_up(times_now());
  crowd_.add_to(last, monotonic_seconds());
  times_->write(last, monotonic_seconds(), true);
  Evidence evidence = read_evidence(request_.run_dir, request_.run_dir.filename().string());
  evidence.dir = request_.run_dir.string();
  evidence.done = stop_code_ == 0 && !given_up_;
  const Explanation all = explain(evidence);
  if (!all.enough) return;
  try {
    write_file_atomically(request_.run_dir / "explain.json",
                          to_json(all).dump(1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n",
                          Durability::kProcessDeath);
  } catch (const Error&) {
    return;  // a full disk costs this page, not the run
  }
}

}  // namespace tandem
