// The runner's moves: which job's process is started where, who joins, who leaves.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/errors.h"
#include "hardware/machine.h"
#include "jobs/runner_impl.h"
#include "launch/requests.h"
#include "runs/recipe_file.h"
#include "telemetry/atomic_file.h"

namespace tandem {
namespace {

constexpr double kReadySeconds = 5;    // before a core is free the next job's process is started: it loads meanwhile
constexpr double kUnusedSeconds = 30;  // for one whose set was killed to save and leave its folder
constexpr double kAnswerSeconds = 3;   // for a job to answer a request
constexpr double kRetrySeconds = 1;    // after it refused

}  // namespace

std::vector<PlannedJob> SetRunner::planned() const {
  std::vector<PlannedJob> jobs;
  for (size_t j = 0; j < request_.jobs.size(); ++j) {
    const SetJob& job = request_.jobs[j];
    const JobStatus& status = status_[j];
    const LiveJob& live = live_[j];
    const double save = j < request_.save_seconds.size() ? request_.save_seconds[j] : 0;
    PlannedJob one{.work = static_cast<double>(std::max<int64_t>(job.steps - status.step, 1)) *
                               request_.estimate.step_seconds(static_cast<int>(j)) +
                           save,
                   .shards = job.shards,
                   .pin = live.ready_for >= 0 ? live.ready_for : job.pin,
                   .begun = live.runs(),
                   .done = only_saves(j) ||
                           (status.state != JobStatus::State::kWaiting && status.state != JobStatus::State::kRunning),
                   .devices = live.devices};
    if (one.begun && live.first_step_after < 0)
      one.start_left = live.was_ready ? 0.1 : std::max(0.1, request_.schedule.start_seconds - (now() - live.started));
    one.joining = live.joining;
    for (auto& joining : one.joining) joining.left = std::max(0.05, joining.left - now());  // kept as points in time
    jobs.push_back(std::move(one));
  }
  return jobs;
}

void SetRunner::plan() {
  planned_ = now();
  request_.schedule.combine_share = request_.estimate.combine_share();
  for (const Leave& one : burdens(planned(), request_.estimate.speeds(), request_.schedule))
    if (speed_now(one.job) > 0)  // measured as they are now, not guessed
      leave(one.job, one.devices, "the others are done sooner without");
  drop_what_is_ready_elsewhere();
  for (const JobMove& move : next_moves(planned(), request_.estimate.speeds(), request_.schedule)) {
    if (move.join)
      join(move.job, move.devices);
    else
      start(move.job, move.devices);
  }
  make_ready();
}

// Two are up until the first one has ended: what the next one takes is not known, but hardly twice as much as this one.
bool SetRunner::has_room_beside(const LiveJob& live) const {
  const std::optional<uint64_t> taken = live.process->memory_bytes(), room = usable_memory_bytes(memory_facts());
  return taken && room && *room > 2 * *taken;
}

// A core that will soon be free finds its next job up and waiting. A GPU does not: the memory is still taken.
void SetRunner::make_ready() {
  if (request_.schedule.strategy != Strategy::kAgents) return;
  for (size_t j = 0; j < live_.size(); ++j) {
    const LiveJob& live = live_[j];
    const double speed = live.runs() ? speed_now(static_cast<int>(j)) : 0;
    if (speed <= 0 || live.devices.size() != 1 || !live.joining.empty()) continue;
    const int device = live.devices[0];
    const auto left = static_cast<double>(request_.jobs[j].steps - status_[j].step) / speed;
    if (left > kReadySeconds || left <= 0 ||
        request_.devices[static_cast<size_t>(device)].kind != DeviceSpec::Kind::kCpu ||
        std::ranges::any_of(live_, [&](const LiveJob& other) { return other.ready_for == device; }) ||
        !has_room_beside(live))
      continue;
    std::vector<PlannedJob> then = planned();
    then[j].done = true;
    for (const JobMove& move : next_moves(then, request_.estimate.speeds(), request_.schedule)) {
      if (move.join || move.devices != std::vector<int>{device} || !live_[static_cast<size_t>(move.job)].may_be_early)
        continue;
      try {
        open_process(move.job, move.devices, true);
      } catch (const Error&) {  // its folder is in use, or there is no room for it: there is no hurry
        continue;
      }
      display_.say(fmt::format("{} gets ready for {}", request_.jobs[static_cast<size_t>(move.job)].name,
                               device_names(move.devices)));
    }
  }
}

// A device that is free now would do nothing while the only jobs that wait are ready for others: it takes one of them.
void SetRunner::drop_what_is_ready_elsewhere() {
  const std::vector<bool> busy = busy_devices(live_, request_.devices.size());
  const bool some_free = std::ranges::find(busy, false) != busy.end();
  for (size_t j = 0; j < live_.size(); ++j)
    if (status_[j].state == JobStatus::State::kWaiting && live_[j].ready_for < 0) return;
  if (!some_free) return;
  std::vector<PlannedJob> jobs = planned();
  for (size_t j = 0; j < jobs.size(); ++j) jobs[j].pin = request_.jobs[j].pin;
  for (const JobMove& move : next_moves(jobs, request_.estimate.speeds(), request_.schedule)) {
    LiveJob& live = live_[static_cast<size_t>(move.job)];
    if (!move.join && live.ready_for >= 0 && busy[static_cast<size_t>(live.ready_for)]) live.drop();
  }
}

void SetRunner::note_device(int j, int device) {
  std::vector<std::string>& names = status_[static_cast<size_t>(j)].devices;
  const std::string name = request_.devices[static_cast<size_t>(device)].name();
  if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
}

void SetRunner::open_process(int j, const std::vector<int>& devices, bool wait) {
  const SetJob& job = request_.jobs[static_cast<size_t>(j)];
  LiveJob& live = live_[static_cast<size_t>(j)];
  wait_until_unused(job.dir, wait ? 0 : kUnusedSeconds);
  if (!job.recipe_toml.empty() &&
      !same_but_for_place(read_small_file(job.dir / "recipe.toml", 1 << 20).value_or(""), job.recipe_toml))
    if (const std::string words = put_recipe_right(job.dir, job.recipe_toml, "the set"); !words.empty())
      display_.warn(fmt::format("{}: {}", job.name, words));
  live.process = std::make_unique<JobProcess>(job, request_.program, specs(devices), request_.unset_variables,
                                              request_.dir / "logs" / (job.name + ".log"), wait);
  live.ready_for = wait ? devices[0] : -1;
}

void SetRunner::start(int j, const std::vector<int>& devices) {
  const SetJob& job = request_.jobs[static_cast<size_t>(j)];
  LiveJob& live = live_[static_cast<size_t>(j)];
  JobStatus& status = status_[static_cast<size_t>(j)];
  if (live.ready_for >= 0 && devices != std::vector<int>{live.ready_for}) live.drop();
  live.tail.look(status);  // what an earlier process recorded is no step of this one
  status.step = std::min(status.step, saved_step(job));
  try {
    if (live.ready_for >= 0)
      live.process->go();
    else
      open_process(j, devices, false);
  } catch (const Error& error) {
    status.state = JobStatus::State::kFailed;
    status.exit_code = static_cast<int>(error.code());
    status.failure = fmt::format("{} ({})", error.what(), error.why());
    display_.warn(fmt::format("{} can't be started: {}", job.name, status.failure));
    return;
  }
  status.state = JobStatus::State::kRunning;
  live.begin(devices, now());
  for (const int device : devices) note_device(j, device);
  display_.say(fmt::format("{} {} on {}", job.name, status.step > 0 ? "goes on" : "begins", device_names(devices)));
}

void SetRunner::join(int j, const std::vector<int>& devices) {
  const SetJob& job = request_.jobs[static_cast<size_t>(j)];
  LiveJob& live = live_[static_cast<size_t>(j)];
  if (now() < live.asked_again || !live.joining.empty()) return;
  live.asked_again = now() + kRetrySeconds;
  live.asked = {.at = now(),
                .step = status_[static_cast<size_t>(j)].step,
                .joined_before = joined_so_far(job.dir),
                .steps_per_second = speed_now(j),
                .devices = {}};
  nlohmann::json answer;
  try {
    answer =
        ask_run(job.dir, {{"do", "join"}, {"devices", devices_text(specs(devices))}, {"version", request_.version}},
                kAnswerSeconds);
  } catch (const std::exception&) {  // it ends just now, or has no ear yet: asked again, or not needed any more
    return;
  }
  if (answer.contains("error")) return;
  const auto ranks = answer.value("ranks", std::vector<int>());
  live.asked.devices = devices;
  ++outcome_.joins;
  display_.say(fmt::format("{} {} {}", device_names(devices), devices.size() == 1 ? "joins" : "join", job.name));
  for (size_t i = 0; i < devices.size(); ++i) {
    live.joining.push_back({devices[i], now() + request_.schedule.join_seconds});
    live.since[devices[i]] = now();
    if (i < ranks.size()) live.ranks[devices[i]] = ranks[i];
    note_device(j, devices[i]);
  }
}

// Its devices are free from now on.
void SetRunner::release(int j) {
  LiveJob& live = live_[static_cast<size_t>(j)];
  for (const auto& [device, begin] : live.since) outcome_.course.push_back({device, j, begin, now()});
  live.since.clear();
  live.devices.clear();
  live.joining.clear();
}

// They are free for other jobs from now on; this one is held for a moment and goes on without them.
void SetRunner::leave(int j, const std::vector<int>& devices, const std::string& why) {
  LiveJob& live = live_[static_cast<size_t>(j)];
  const SetJob& job = request_.jobs[static_cast<size_t>(j)];
  std::vector<int> left;
  for (const int device : devices) {
    const auto rank = live.ranks.find(device);
    if (rank == live.ranks.end()) continue;
    try {
      const nlohmann::json request = {{"do", "leave"}, {"rank", rank->second}, {"version", request_.version}};
      if (!ask_run(job.dir, request, kAnswerSeconds).contains("error")) left.push_back(device);
    } catch (const std::exception&) {  // it ends just now
    }
  }
  if (left.empty()) return;
  for (const auto& [device, since] : live.give_up(left)) outcome_.course.push_back({device, j, since, now()});
  live.asked.devices.clear();
  live.measure_anew(now());
  display_.say(fmt::format("{} leave{} {}: {}", device_names(left), left.size() == 1 ? "s" : "", job.name, why));
}

}  // namespace tandem
