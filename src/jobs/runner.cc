#include "jobs/runner.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/clock.h"
#include "base/errors.h"
#include "jobs/job_process.h"
#include "jobs/set_display.h"
#include "launch/requests.h"
#include "launch/signal_queue.h"

namespace tandem {
namespace {

constexpr int kTickMs = 100;
constexpr double kLookSeconds = 0.25;   // between two looks at the records of the jobs
constexpr double kPlanSeconds = 0.5;    // between two questions to the schedule
constexpr double kNoteSeconds = 5;      // between two notes of how all stands
constexpr double kSettleSeconds = 1.5;  // after a change of devices, before speed is measured again
constexpr double kMeasureSeconds = 3;   // the shortest that counts as measured
constexpr double kAnswerSeconds = 3;    // for a job to answer a request
constexpr double kRetrySeconds = 1;     // after it refused
constexpr double kJoinPatience = 60;    // for a joiner that its job's launcher has promised
constexpr double kWorse = 0.97;         // of its speed before: those who joined are sent away again
constexpr double kNewReading = 0.5;     // weight of the newest in what starts and joins cost
constexpr int kMostRestarts = 3;

struct Live {  // beside the JobStatus of a job
  std::unique_ptr<JobProcess> process;
  MetricsTail tail;
  std::vector<int> devices;
  std::vector<PlannedJob::Joining> joining = {};
  double started = 0;  // this start of it
  double window = 0;   // since when `devices` alone are at work
  int64_t window_step = -1;
  double asked_again = 0;            // not before this time
  double first_step_after = -1;      // seconds from its start
  std::map<int, double> since = {};  // device -> when it came

  struct Asked {  // the last request for joiners
    double at = 0;
    int64_t step = 0;
    int joined_before = 0;            // as joined_so_far() counts
    double steps_per_second;          // at that time; 0: not measured
    std::vector<int> devices, ranks;  // that came then; none any more once they were sent away
  };
  Asked asked = {};
};

void mix(double& known, double reading) { known += kNewReading * (reading - known); }

class SetRunner {
 public:
  explicit SetRunner(SetRequest request);
  SetOutcome run();

 private:
  double now() const { return monotonic_seconds() - begin_; }
  std::vector<PlannedJob> planned() const;
  void plan();
  void start(int j, const std::vector<int>& devices);
  void join(int j, const std::vector<int>& devices);
  void release(int j);
  void note_device(int j, int device);
  void look();
  void look_at(int j);
  bool look_for_joiners(int j);
  void send_away(int j, double steps_per_second);
  void bury(int j);
  void handle(int signal);
  void stop(int code, const std::string& why);
  void draw(bool last);
  void add_forecast();
  bool any_running() const;
  bool only_saves(size_t j) const;
  std::string device_names(const std::vector<int>& devices) const;
  std::vector<DeviceSpec> specs(const std::vector<int>& devices) const;

  SetRequest request_;
  SignalQueue signals_;
  std::vector<JobStatus> status_;
  std::vector<Live> live_;
  SetOutcome outcome_;
  SetDisplay display_;
  double begin_ = monotonic_seconds(), looked_ = -1, planned_ = -1, noted_ = 0;
  int interrupts_ = 0, stop_code_ = 0;
  bool forecast_made_ = false;
};

SetRunner::SetRunner(SetRequest request)
    : request_(std::move(request)),
      display_({.quiet = request_.quiet, .color = request_.color, .title = request_.title}) {
  for (const SetJob& job : request_.jobs) {
    JobStatus status;
    if (is_done(job)) status.state = JobStatus::State::kDone;
    read_job(job, status);
    status_.push_back(status);
    live_.push_back({.process = nullptr, .tail = MetricsTail(job.dir / "metrics.jsonl"), .devices = {}});
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
  return std::any_of(live_.begin(), live_.end(), [](const Live& live) { return live.process != nullptr; });
}

// All its steps are made. A core is free for the next job then; a card is not: its memory is still taken.
bool SetRunner::only_saves(size_t j) const {
  return live_[j].process && status_[j].step >= request_.jobs[j].steps &&
         std::ranges::all_of(live_[j].devices, [&](int device) {
           return request_.devices[static_cast<size_t>(device)].kind == DeviceSpec::Kind::kCpu;
         });
}

// ---- who runs where ----

std::vector<PlannedJob> SetRunner::planned() const {
  std::vector<PlannedJob> jobs;
  for (size_t j = 0; j < request_.jobs.size(); ++j) {
    const SetJob& job = request_.jobs[j];
    const JobStatus& status = status_[j];
    const Live& live = live_[j];
    PlannedJob one{.work = static_cast<double>(std::max<int64_t>(job.steps - status.step, 1)) *
                           request_.estimate.step_seconds(static_cast<int>(j)),
                   .shards = job.shards,
                   .pin = job.pin,
                   .begun = live.process != nullptr,
                   .done = only_saves(j) ||
                           (status.state != JobStatus::State::kWaiting && status.state != JobStatus::State::kRunning),
                   .devices = live.devices};
    if (one.begun && live.first_step_after < 0)
      one.start_left = std::max(0.1, request_.schedule.start_seconds - (now() - live.started));
    one.joining = live.joining;
    for (auto& joining : one.joining) joining.left = std::max(0.05, joining.left - now());  // kept as points in time
    jobs.push_back(std::move(one));
  }
  return jobs;
}

void SetRunner::plan() {
  planned_ = now();
  request_.schedule.combine_share = request_.estimate.combine_share();
  for (const Move& move : next_moves(planned(), request_.estimate.speeds(), request_.schedule)) {
    if (move.join)
      join(move.job, move.devices);
    else
      start(move.job, move.devices);
  }
}

void SetRunner::note_device(int j, int device) {
  std::vector<std::string>& names = status_[static_cast<size_t>(j)].devices;
  const std::string name = request_.devices[static_cast<size_t>(device)].name();
  if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
}

void SetRunner::start(int j, const std::vector<int>& devices) {
  const SetJob& job = request_.jobs[static_cast<size_t>(j)];
  Live& live = live_[static_cast<size_t>(j)];
  JobStatus& status = status_[static_cast<size_t>(j)];
  try {
    wait_until_unused(job.dir, 30);
    live.process = std::make_unique<JobProcess>(job, request_.program, specs(devices), request_.unset_variables,
                                                request_.dir / "logs" / (job.name + ".log"));
  } catch (const Error& error) {
    status.state = JobStatus::State::kFailed;
    status.exit_code = static_cast<int>(error.code());
    status.failure = fmt::format("{} ({})", error.what(), error.why());
    display_.warn(fmt::format("{} can't be started: {}", job.name, status.failure));
    return;
  }
  status.state = JobStatus::State::kRunning;
  live.devices = devices;
  live.started = live.window = now();
  live.window_step = -1;
  live.first_step_after = -1;
  live.joining.clear();
  for (const int device : devices) {
    live.since[device] = now();
    note_device(j, device);
  }
  display_.say(fmt::format("{} {} on {}", job.name, status.step > 0 ? "goes on" : "begins", device_names(devices)));
}

void SetRunner::join(int j, const std::vector<int>& devices) {
  const SetJob& job = request_.jobs[static_cast<size_t>(j)];
  Live& live = live_[static_cast<size_t>(j)];
  if (now() < live.asked_again || !live.joining.empty()) return;
  live.asked_again = now() + kRetrySeconds;
  const JobStatus& before = status_[static_cast<size_t>(j)];
  const double window = now() - live.window;
  live.asked = {now(),
                before.step,
                joined_so_far(job.dir),
                live.window_step >= 0 && window >= kMeasureSeconds
                    ? static_cast<double>(before.step - live.window_step) / window
                    : 0,
                devices,
                {}};
  nlohmann::json answer;
  try {
    answer =
        ask_run(job.dir, {{"do", "join"}, {"devices", devices_text(specs(devices))}, {"version", request_.version}},
                kAnswerSeconds);
  } catch (const std::exception&) {  // it ends just now, or has no ear yet: asked again, or not needed any more
    return;
  }
  if (answer.contains("error")) return;
  live.asked.ranks = answer.value("ranks", std::vector<int>());
  ++outcome_.joins;
  display_.say(fmt::format("{} {} {}", device_names(devices), devices.size() == 1 ? "joins" : "join", job.name));
  for (const int device : devices) {
    live.joining.push_back({device, now() + request_.schedule.join_seconds});
    live.since[device] = now();
    note_device(j, device);
  }
}

// Its devices are free from now on.
void SetRunner::release(int j) {
  Live& live = live_[static_cast<size_t>(j)];
  for (const auto& [device, begin] : live.since) outcome_.course.push_back({device, j, begin, now()});
  live.since.clear();
  live.devices.clear();
  live.joining.clear();
}

// ---- how far they are ----

// True when those who were asked for work. What it took is what the next join is thought to take.
bool SetRunner::look_for_joiners(int j) {
  Live& live = live_[static_cast<size_t>(j)];
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
  Live& live = live_[static_cast<size_t>(j)];
  JobStatus& status = status_[static_cast<size_t>(j)];
  const int64_t before = status.step;
  live.tail.look(status);
  if (live.first_step_after < 0) {
    if (status.step <= before || now() - live.started < 0.1) return;
    live.first_step_after = now() - live.started;
    mix(request_.schedule.start_seconds, live.first_step_after);
    live.window = now();
    live.window_step = -1;
  }
  if (look_for_joiners(j)) live.window = now(), live.window_step = -1;
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
  Live& live = live_[static_cast<size_t>(j)];
  if (live.asked.ranks.empty() || !(steps_per_second < kWorse * live.asked.steps_per_second)) return;
  const SetJob& job = request_.jobs[static_cast<size_t>(j)];
  for (const int rank : std::exchange(live.asked.ranks, {})) {
    try {
      const nlohmann::json request = {{"do", "leave"}, {"rank", rank}, {"version", request_.version}};
      if (ask_run(job.dir, request, kAnswerSeconds).contains("error")) return;
    } catch (const std::exception&) {  // it ends just now
      return;
    }
  }
  for (const int device : live.asked.devices) {
    outcome_.course.push_back({device, j, live.since[device], now()});
    live.since.erase(device);
    std::erase(live.devices, device);
  }
  live.window = now();
  live.window_step = -1;
  display_.say(fmt::format("{} leave{} {}: {:.1f} steps/s with it, {:.1f} without", device_names(live.asked.devices),
                           live.asked.devices.size() == 1 ? "s" : "", job.name, steps_per_second,
                           live.asked.steps_per_second));
}

void SetRunner::look() {
  looked_ = now();
  for (size_t j = 0; j < live_.size(); ++j) {
    if (!live_[j].process) continue;
    look_at(static_cast<int>(j));
    if (!only_saves(j) || live_[j].devices.empty()) continue;
    release(static_cast<int>(j));
    planned_ = -1;
  }
  add_forecast();
}

// The forecast that counts is made once all that began first are measured.
void SetRunner::add_forecast() {
  if (forecast_made_ || stop_code_ != 0) return;
  for (size_t j = 0; j < live_.size(); ++j)
    if (live_[j].process && (live_[j].window_step < 0 || now() - live_[j].window < kMeasureSeconds + 1)) return;
  if (!any_running()) return;
  forecast_made_ = true;
  outcome_.forecast_seconds = now() + forecast(planned(), request_.estimate.speeds(), request_.schedule).seconds;
  display_.say(fmt::format("forecast: all done {} after the start", duration_words(outcome_.forecast_seconds)));
}

void SetRunner::bury(int j) {
  const SetJob& job = request_.jobs[static_cast<size_t>(j)];
  Live& live = live_[static_cast<size_t>(j)];
  JobStatus& status = status_[static_cast<size_t>(j)];
  const JobEnd end = live.process->reap();
  live.process.reset();
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
  status.failure = end.code == 0 ? "its process ended before its last step" : end.reason;
  if (!end.is_final() && status.restarts < kMostRestarts) {
    ++status.restarts;
    status.state = JobStatus::State::kWaiting;
    display_.warn(fmt::format("{}: {}; it goes on from its last checkpoint ({} of {} times)", job.name, end.reason,
                              status.restarts, kMostRestarts));
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
  for (const Live& live : live_)
    if (live.process) live.process->send(SIGTERM);
}

void SetRunner::handle(int signal) {
  switch (signal) {
    case SIGINT:
      if (++interrupts_ > 1) {
        for (const Live& live : live_)
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
      for (const Live& live : live_)
        if (live.process) live.process->send(SIGUSR1);
      break;
    case SIGTSTP:  // each has a group of its own: Ctrl-Z reaches us alone
      for (const Live& live : live_)
        if (live.process) live.process->send(SIGTSTP);
      raise(SIGSTOP);
      for (const Live& live : live_)
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
  outcome_.first_forecast_seconds = outcome_.forecast_seconds =
      forecast(planned(), request_.estimate.speeds(), request_.schedule).seconds;
  const auto to_do = [&] {
    return std::any_of(status_.begin(), status_.end(), [&](const JobStatus& status) {
      return status.state == JobStatus::State::kRunning ||
             (stop_code_ == 0 && status.state == JobStatus::State::kWaiting);
    });
  };
  while (to_do()) {
    if (stop_code_ == 0 && (planned_ < 0 || now() - planned_ >= kPlanSeconds)) plan();
    std::vector<pollfd> waits{{signals_.fd(), POLLIN, 0}};
    for (const Live& live : live_)
      if (live.process) waits.push_back({live.process->pidfd(), POLLIN, 0});
    poll(waits.data(), waits.size(), kTickMs);
    while (const auto signal = signals_.next()) handle(*signal);
    for (size_t j = 0; j < live_.size(); ++j) {
      if (!live_[j].process || !live_[j].process->ended()) continue;
      bury(static_cast<int>(j));
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
  outcome_.code = stop_code_;
  outcome_.status = stop_code_ ? "stopped" : "done";
  bool all_done = true;
  for (JobStatus& status : status_) {
    all_done = all_done && status.state == JobStatus::State::kDone;
    if (status.state == JobStatus::State::kWaiting) status.state = JobStatus::State::kStopped;
    if (status.state != JobStatus::State::kFailed || stop_code_ != 0) continue;
    outcome_.status = "failed";
    if (outcome_.code == 0) outcome_.code = status.exit_code > 0 && status.exit_code < 128 ? status.exit_code : 1;
  }
  if (all_done) outcome_.code = 0, outcome_.status = "done";
  outcome_.jobs = status_;
  if (request_.note) request_.note(status_, outcome_.course);
  return outcome_;
}

}  // namespace

SetOutcome run_set(SetRequest request) { return SetRunner(std::move(request)).run(); }

}  // namespace tandem
