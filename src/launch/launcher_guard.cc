// The launcher's guard: its findings about GPUs are reported, and what it asks for is done.
#include <algorithm>
#include <utility>

#include "launch/launcher_impl.h"

namespace tandem {

void Launcher::watch_gpus() {
  if (finished_ || given_up_) return;
  std::map<int, DeviceSpec> devices;
  for (const auto& [rank, worker] : workers_)
    if (worker->running() && !(request_.net && rank > 0)) devices[rank] = worker->device();
  const bool going = coordinator_ && coordinator_->started() && !held_by_guard_;
  const RunGuard::News news =
      guard_->look(devices, going ? std::optional(record_->last_step()) : std::optional<int64_t>());
  report_guard(news.lines);
  for (const auto& [rank, why] : news.gone) {
    WorkerHandle& worker = *workers_.at(rank);
    if (!worker.running() || fatal_) continue;
    worker.device_gone = true;
    reap(worker, why);
  }
  if (!coordinator_ || fatal_) return;
  carry_out(coordinator_->want_shares(guard_->shares()));
  if (guard_->holds() != held_by_guard_) {
    held_by_guard_ = guard_->holds();
    carry_out(coordinator_->want_hold(held_by_guard_));
  }
}

void Launcher::report_guard(const std::vector<RunGuard::Line>& lines) {
  guard_lines_.insert(guard_lines_.end(), lines.begin(), lines.end());
  if (!record_ || !said_first_lines_) return;
  for (const RunGuard::Line& line : std::exchange(guard_lines_, {})) {
    if (line.to == RunGuard::Line::To::kWarning) record_->telemetry().warn(line.text);
    if (line.to == RunGuard::Line::To::kTalk) record_->telemetry().say(line.text);
    record_->telemetry().event(line.kind, record_->last_step(), line.text);
  }
}

void Launcher::end_guard() {
  report_guard(guard_->end());
  if (!record_ || !said_first_lines_) return;
  const nlohmann::json figures = guard_->figures();
  if (!figures.contains("energy")) return;
  record_->telemetry().energy(figures["energy"]);
  record_->telemetry().say("energy  " + guard_->energy_text());
}

}  // namespace tandem
