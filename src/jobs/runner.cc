#include "jobs/runner.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <signal.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/errors.h"
#include "jobs/runner_impl.h"
#include "jobs/set_end.h"

namespace tandem {
namespace {

constexpr int kTickMs = 100;
constexpr double kLookSeconds = 0.1;    // between two looks at the records of the jobs
constexpr double kPlanSeconds = 0.5;    // between two questions to the schedule
constexpr double kNoteSeconds = 5;      // between two notes of how all stands
constexpr double kSettleSeconds = 1.5;  // after a change of devices, before speed is measured again
constexpr double kMeasureSeconds = 3;   // the shortest that counts as measured
constexpr double kJoinPatience = 60;    // for a joiner that its job's launcher has promised
constexpr double kWorse = 0.97;         // of its speed before: those who joined are sent away again
constexpr double kNewestWeight = 0.5;   // weight of the newest in what starts and joins cost
constexpr int kMostRestarts = 3;

void mix(double& known, double reading) { known += kNewestWeight * (reading - known); }

}  // namespace

SetRunner::SetRunner(SetRequest request)
    : request_(std::move(request)),
      display_({.quiet = request_.quiet, .color = request_.color, .title = request_.title}) {
  for (const SetJob& job : request_.jobs) {
    JobStatus status;
    const bool said_done = is_done(job), done = said_done && end_is_whole(job);
    if (said_done && !done)
      display_.say(fmt::format("{}: its newest checkpoint is damaged; it goes on from the one before", job.name));
    if (done) status.state = JobStatus::State::kDone;
    read_job(job, status);
    if (!done) status.step = std::min(status.step, saved_step(job));  // what came after it is made again
    status_.push_back(status);
    live_.push_back({.process = nullptr, .tail = MetricsTail(job.dir / "metrics.jsonl")});
  }
}

std::string SetRunner::device_names(const std::vector<int>& devices) const {
  std::vector<std::string> names;
  for (const int device : devices) names.push_back(request_.devices[static_cast<size_t>(device)].name());
  return fmt::format("{}", fmt::join(names, " "));
}

std::vector<DeviceSpec> SetRunner::specs(const std::vector<int>& devices) const {
  std::vector<DeviceSpec> specs;
  for (const int device : devices) specs.push_back(request_.devices[static_cast<size_t>(device)]);
  return specs;
}

bool SetRunner::any_running() const {
  return std::any_of(live_.begin(), live_.end(), [](const LiveJob& live) { return live.runs(); });
}

// All its steps are made, by this process of it: what an earlier one recorded may have to be made again. A core is free
// for the next job then; a GPU is not: its memory is still taken.
bool SetRunner::only_saves(size_t j) const {
  return live_[j].runs() && live_[j].first_step_after >= 0 && status_[j].step >= request_.jobs[j].steps &&
         std::ranges::all_of(live_[j].devices, [&](int device) {
           return request_.devices[static_cast<size_t>(device)].kind == DeviceSpec::Kind::kCpu;
         });
}

// Steps a second of those who work on it now; 0 where that was not measured yet.
double SetRunner::speed_now(int j) const {
  return live_[static_cast<size_t>(j)].steps_per_second(status_[static_cast<size_t>(j)].step, now(), kMeasureSeconds);
}

// ---- how far they are ----

// True when those who were asked for work. What it took is what the next join is thought to take.
bool SetRunner::look_for_joiners(int j) {
  LiveJob& live = live_[static_cast<size_t>(j)];
  if (live.joining.empty()) return false;
  const int came = joined_so_far(request_.jobs[static_cast<size_t>(j)].dir) - live.asked.joined_before;
  const double took = now() - live.asked.at;
  const bool all = came >= static_cast<int>(live.joining.size());
  if (!all && took < kJoinPatience) return false;
  for (const auto& joiner : live.joining) live.devices.push_back(joiner.device);
  live.joining.clear();
  if (!all) return true;
  mix(request_.schedule.join_seconds, took);
  if (live.asked.steps_per_second > 0) {
    const auto steps = static_cast<double>(status_[static_cast<size_t>(j)].step - live.asked.step);
    mix(request_.schedule.hold_seconds, std::clamp(took - steps / live.asked.steps_per_second, 0.0, took));
  }
  return true;
}

void SetRunner::look_at(int j) {
  LiveJob& live = live_[static_cast<size_t>(j)];
  JobStatus& status = status_[static_cast<size_t>(j)];
  const int64_t before = status.step;
  const bool cut = live.tail.look(status);  // back to its checkpoint: no step of this process
  if (live.first_step_after < 0) {
    if (cut || status.step <= before || now() - live.started < 0.1) return;
    live.first_step_after = now() - live.started;
    if (!live.was_ready) mix(request_.schedule.start_seconds, live.first_step_after);
    live.measure_anew(now());
  }
  if (look_for_joiners(j)) live.measure_anew(now());
  if (live.window_step < 0) {
    if (now() - live.window < kSettleSeconds || status.step == before) return;
    live.window = now();
    live.window_step = status.step;
    return;
  }
  // Records come in batches, so only a look that brought some ends a measurement.
  if (status.step == before || now() - live.window < kMeasureSeconds || !live.joining.empty()) return;
  const double rate = static_cast<double>(status.step - live.window_step) / (now() - live.window);
  request_.estimate.measured(j, live.devices, rate);
  send_away(j, rate);
}

// Those who made the job slower than it was without them: more agreeing than help.
void SetRunner::send_away(int j, double steps_per_second) {
  LiveJob& live = live_[static_cast<size_t>(j)];
  const double before = live.asked.steps_per_second;
  if (live.asked.devices.empty() || !(steps_per_second < kWorse * before)) return;
  leave(j, std::exchange(live.asked.devices, {}),
        fmt::format("{:.1f} steps/s with it, {:.1f} without", steps_per_second, before));
}

void SetRunner::look() {
  looked_ = now();
  for (size_t j = 0; j < live_.size(); ++j) {
    if (!live_[j].runs()) continue;
    look_at(static_cast<int>(j));
    if (!only_saves(j) || live_[j].devices.empty()) continue;
    release(static_cast<int>(j));
    planned_ = -1;
  }
  add_forecast();
}

// As `train --dry-run` counts it: with the saves, and with what comes after the last run.
double SetRunner::seconds_left() const {
  return forecast(planned(), request_.estimate.speeds(), request_.schedule).seconds + request_.seconds_beside;
}

// The forecast that counts is made once all that began first are measured.
void SetRunner::add_forecast() {
  if (forecast_made_ || stop_code_ != 0) return;
  for (size_t j = 0; j < live_.size(); ++j)
    if (live_[j].runs() && (live_[j].window_step < 0 || now() - live_[j].window < kMeasureSeconds + 1)) return;
  if (!any_running()) return;
  forecast_made_ = true;
  outcome_.forecast_seconds = now() + seconds_left();
  display_.say(fmt::format("forecast: all done {} after the start", duration_words(outcome_.forecast_seconds)));
}

void SetRunner::reap(int j) {
  const SetJob& job = request_.jobs[static_cast<size_t>(j)];
  LiveJob& live = live_[static_cast<size_t>(j)];
  JobStatus& status = status_[static_cast<size_t>(j)];
  const JobEnd end = live.process->reap();
  const bool was_early = live.ready_for >= 0;
  live.drop();
  const std::vector<int> devices = live.devices;
  release(j);
  status.exit_code = end.code;
  if (end.code == 0 && is_done(job)) {
    status.state = JobStatus::State::kDone;
    read_job(job, status);
    display_.say(done_line(job, status));
    return;
  }
  if (stop_code_ != 0) {
    status.state = JobStatus::State::kStopped;
    read_job(job, status);
    return;
  }
  if (was_early) {  // two were up at once, and that may be why: it is started again when its slot is free, as ever
    live.may_be_early = false;
    display_.warn(fmt::format("{} could not get ready early: {}", job.name, end.reason));
    return;
  }
  status.failure = end.code == 0 ? "its process ended before its last step" : end.reason;
  if (!end.is_final() && status.restarts < kMostRestarts) {
    ++status.restarts;
    status.state = JobStatus::State::kWaiting;
    status.step = saved_step(job);
    const std::string from = status.step > 0 ? fmt::format("goes on from step {}", status.step) : "begins anew";
    display_.warn(
        fmt::format("{}: {}; it {} ({} of {} times)", job.name, end.reason, from, status.restarts, kMostRestarts));
    if (!devices.empty()) start(j, devices);  // else it died while it saved: when a device is free again
    return;
  }
  status.state = JobStatus::State::kFailed;
  read_job(job, status);
  display_.warn(fmt::format("{} has failed: {}; the others go on", job.name, status.failure));
}

// ---- signals ----

void SetRunner::stop(int code, const std::string& why) {
  if (stop_code_ != 0) return;
  stop_code_ = code;
  display_.say(why);
  for (const LiveJob& live : live_)
    if (live.process) live.process->send(SIGTERM);
}

void SetRunner::handle(int signal) {
  switch (signal) {
    case SIGINT:
      if (++interrupts_ > 1) {
        for (const LiveJob& live : live_)
          if (live.process) live.process->kill();
        stop_code_ = static_cast<int>(ExitCode::kInterrupted);
        return;
      }
      stop(static_cast<int>(ExitCode::kInterrupted),
           "stopping: every agent finishes its step and saves; Ctrl-C again stops at once");
      break;
    case SIGTERM:
    case SIGHUP:
      stop(static_cast<int>(ExitCode::kTerminated), "stopping: every agent finishes its step and saves");
      break;
    case SIGUSR1:
      for (const LiveJob& live : live_)
        if (live.process) live.process->send(SIGUSR1);
      break;
    case SIGTSTP:  // each has a group of its own: Ctrl-Z reaches us alone
      for (const LiveJob& live : live_)
        if (live.process) live.process->send(SIGTSTP);
      raise(SIGSTOP);
      for (const LiveJob& live : live_)
        if (live.process) live.process->send(SIGCONT);
      break;
    default:
      break;
  }
}

// ---- the loop ----

void SetRunner::draw(bool last) {
  std::vector<std::string> places;
  const std::vector<double> speeds = request_.estimate.speeds();
  std::vector<double> left;
  for (size_t j = 0; j < live_.size(); ++j) {
    std::vector<int> devices = live_[j].devices;
    for (const auto& joining : live_[j].joining) devices.push_back(joining.device);
    places.push_back(only_saves(j) ? "saves" : device_names(devices));
    std::vector<double> used;
    for (const int device : live_[j].devices) used.push_back(speeds[static_cast<size_t>(device)]);
    const double work = static_cast<double>(request_.jobs[j].steps - status_[j].step) *
                        request_.estimate.step_seconds(static_cast<int>(j));
    left.push_back(live_[j].process && !used.empty() && live_[j].first_step_after >= 0
                       ? work / work_rate(request_.jobs[j].shards, used, request_.schedule.combine_share)
                       : kAbsent);
  }
  display_.draw(request_.jobs, status_, places, left, last);
}

SetOutcome SetRunner::run() {
  outcome_.first_forecast_seconds = outcome_.forecast_seconds = seconds_left();
  const auto to_do = [&] {
    return std::ranges::any_of(live_, [](const LiveJob& live) { return live.process != nullptr; }) ||
           std::ranges::any_of(status_, [&](const JobStatus& status) {
             return status.state == JobStatus::State::kRunning ||
                    (stop_code_ == 0 && status.state == JobStatus::State::kWaiting);
           });
  };
  while (to_do()) {
    if (stop_code_ == 0 && (planned_ < 0 || now() - planned_ >= kPlanSeconds)) plan();
    std::vector<pollfd> waits{{signals_.fd(), POLLIN, 0}};
    for (const LiveJob& live : live_)
      if (live.process) waits.push_back({live.process->pidfd(), POLLIN, 0});
    poll(waits.data(), waits.size(), kTickMs);
    while (const auto signal = signals_.next()) handle(*signal);
    for (size_t j = 0; j < live_.size(); ++j) {
      if (!live_[j].process || !live_[j].process->ended()) continue;
      reap(static_cast<int>(j));
      planned_ = -1;  // a device is free: at once
    }
    if (now() - looked_ >= kLookSeconds) look();
    if (request_.max_seconds > 0 && now() >= request_.max_seconds)
      stop(static_cast<int>(ExitCode::kResumable), "stopping: the time is up; every agent saves");
    draw(false);
    if (request_.note && now() - noted_ >= kNoteSeconds) {
      noted_ = now();
      request_.note(status_, outcome_.course);
    }
  }
  draw(true);
  outcome_.seconds = now();
  outcome_.models = request_.estimate.models();
  request_.schedule.combine_share = request_.estimate.combine_share();
  outcome_.schedule = request_.schedule;
  conclude(status_, stop_code_, outcome_);
  if (request_.note) request_.note(status_, outcome_.course);
  return outcome_;
}

SetOutcome run_set(SetRequest request) { return SetRunner(std::move(request)).run(); }

}  // namespace tandem
