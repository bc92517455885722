#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <deque>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/clock.h"
#include "base/cores.h"
#include "base/errors.h"
#include "base/fault_points.h"
#include "base/shell_word.h"
#include "fleet/coordinator.h"
#include "fleet/messages.h"
#include "fleet/snapshot_pace.h"
#include "kernels/peer_sum.h"
#include "launch/channel.h"
#include "launch/fault_book.h"
#include "launch/launcher_impl.h"
#include "launch/local_worker_handle.h"
#include "launch/membership_requests.h"
#include "launch/oom_count.h"
#include "launch/remote_worker_handle.h"
#include "launch/rendezvous.h"
#include "launch/requests.h"
#include "launch/run_record.h"
#include "launch/signal_queue.h"
#include "launch/snapshot_pool.h"
#include "launch/speedometer.h"
#include "launch/stall_watch.h"
#include "launch/worker_handle.h"
#include "reduce/plane.h"

namespace tandem {
namespace {

// How long a worker may be quiet; a test may be less patient.
double frozen_seconds() {
  const char* text = std::getenv("TANDEM_FROZEN_SECONDS");
  return text && std::atof(text) > 0 ? std::atof(text) : 15;
}

std::string ranges_text(const std::vector<ShardAssignment>& members) {
  std::vector<std::string> parts;
  for (const ShardAssignment& a : members)
    parts.push_back(a.range.size() == 1 ? fmt::format("rank {}: {}", a.rank, a.range.first)
                                        : fmt::format("rank {}: {}-{}", a.rank, a.range.first, a.range.last - 1));
  return fmt::format("{}", fmt::join(parts, ", "));
}

void refuse_too_many(size_t workers) {
  const Plane plane = plane_asked_for();
  if ((plane != Plane::kPeer && plane != Plane::kPinned) || workers <= static_cast<size_t>(kMostPeers)) return;
  throw ConfigError(fmt::format("TANDEM_PLANE={} with {} workers", name_of(plane), workers),
                    fmt::format("a kernel sums over {} GPUs at most", kMostPeers),
                    "leave TANDEM_PLANE out: other ways give the same bits, more slowly");
}

}  // namespace

// ---- start ----

Launcher::Launcher(const LaunchRequest& request)
    : request_(request),
      recipe_(request.recipe_toml),
      oom_kills_before_(kernel_oom_kills()),
      membership_(request, workers_,
                  {.add_worker = [this](DeviceSpec device) -> WorkerHandle& { return add_worker(device); },
                   .carry_out = [this](std::vector<Action> actions) { carry_out(std::move(actions)); }}),
      stalls_(frozen_seconds()),
      live_(request.run_dir),
      faults_(request.program, request.run_dir) {
  refuse_too_many(request.devices.size());
  arm_faults(-1);
  begin_ = last_tick_ = monotonic_seconds();
  requests_ = std::make_unique<RequestBox>(request.run_dir);
  guard_ = std::make_unique<RunGuard>(*request.settings, request.run_dir);
  const int workers = request.net ? 1 : static_cast<int>(request.devices.size());
  cores_of_worker_ = cores_of_worker(workers, request.net ? static_cast<int>(request.devices.size()) : 0);
  const bool on_gpu = std::any_of(request.devices.begin(), request.devices.end(),
                                  [](const DeviceSpec& d) { return d.kind == DeviceSpec::Kind::kCuda; });
  if (request.trial_seconds > 0) trial_clock_.emplace(request.trial_seconds, trial_rule(on_gpu));
  const LoaderSettings& loader = request.settings->loader;
  loader_threads_ = loader_size(loader.threads, loader.prefetch, on_gpu, cores_of_worker_).threads;
  for (const DeviceSpec& device : request.devices) add_worker(device).start(false);
}

WorkerHandle& Launcher::add_worker(DeviceSpec device) {
  const int rank = next_rank_++;
  // A CPU worker keeps the number it was named by (a set numbers its own), unless another one has it.
  const auto same = [&](const auto& other) { return other.second->device().name() == device.name(); };
  if (device.kind == DeviceSpec::Kind::kCpu && std::any_of(workers_.begin(), workers_.end(), same)) device.index = rank;
  const std::filesystem::path log = request_.run_dir / "logs" / fmt::format("rank-{}.log", rank);
  if (request_.net && rank > 0) {
    workers_[rank] = std::make_unique<RemoteWorkerHandle>(rank, device, request_.net->link(rank),
                                                          request_.net->host(rank), recipe_.text(), log);
    return *workers_[rank];
  }
  WorkerCommand command{.program = request_.worker,
                        .arguments = {"work", request_.run_dir.string()},
                        .environment = {{"OMP_NUM_THREADS", "1"},
                                        {"MKL_NUM_THREADS", "1"},
                                        {kWorkerCores, std::to_string(cores_of_worker_)}},
                        .inherit = {{PinnedRecipe::kVariable, recipe_.fd()}}};
  workers_[rank] = std::make_unique<LocalWorkerHandle>(rank, device, std::move(command), log);
  return *workers_[rank];
}

std::string Launcher::device_names() const {
  std::vector<std::string> names;
  for (const auto& [rank, worker] : workers_) names.push_back(worker->device().name());
  return fmt::format("{}", fmt::join(names, " "));
}

// ---- what the coordinator says ----

void Launcher::carry_out(std::vector<Action> actions) {
  if (given_up_) return;
  for (const Action& action : actions) std::visit([this](const auto& a) { carry_out(a); }, action);
}

void Launcher::carry_out(const StartGeneration& action) {
  const GenerationStart& start = action.start;
  fault_point("launcher-order", record_->last_step());
  const bool same_phase = start.from == GenerationStart::From::kSamePhase;
  for (const auto& [rank, worker] : workers_)
    if (worker->running()) worker->revoke(start.generation - 1, same_phase ? start.cut : -1);
  transport_->wake();
  if (const auto buffer = pool_->abandon()) transport_->abandoned(*buffer);
  transport_->begin(start, pool_->base());
  pairs_.begin(start.generation);
  snapshots_in_generation_ = 0;
  target_posted_ = false;
  snapshot_asked_ = false;
  move_began_ = std::exchange(hold_began_, 0);
  part_seconds_ = 0;
  post_next_target();
  for (const ShardAssignment& a : start.members) {
    WorkerHandle& worker = *workers_.at(a.rank);
    usage_.holds(a.rank, a.range.size());
    transport_->give(worker, {{"order", to_json(start)}, {"base", pool_->base()}, {"speed", worker.device().speed}});
  }
  stalls_.reset();
  speedometer_.reset();
  last_snapshot_ = monotonic_seconds();

  const std::string plan =
      plan_text(static_cast<int>(request_.settings->shards), start.members, coordinator_->speeds(), {});
  record_->telemetry().event("plan", record_->last_step(),
                             fmt::format("generation {}: {} ({})", start.generation, plan, ranges_text(start.members)));
  if (!said_first_lines_) {
    said_first_lines_ = true;
    record_->first_lines(device_names(), plan);
    if (request_.net) record_->telemetry().say("ranks   " + request_.net->describe());
    return;
  }
  const std::string text = same_phase ? fmt::format("its shards are taken over and the phase is run again ({})", plan)
                           : start.from == GenerationStart::From::kSnapshot
                               ? fmt::format("everybody goes on from step {} ({})", start.snapshot_step, plan)
                               : fmt::format("everybody begins anew ({})", plan);
  last_change_text_ = text;
  if (!reaping_)
    record_->telemetry().say(start.from == GenerationStart::From::kSnapshot
                                 ? fmt::format("plan    from step {} on: {}", start.snapshot_step, plan)
                                 : "plan    " + text);
}

void Launcher::post_next_target() {
  if (target_posted_ || !coordinator_) return;
  const std::optional<int> buffer = pool_->begin();
  if (!buffer) return;  // the disk is behind: workers wait at their next snapshot
  target_posted_ = true;
  transport_->reuse(*buffer);
  for (const ShardAssignment& a : coordinator_->current().members)
    workers_.at(a.rank)->post_target(coordinator_->current().generation, snapshots_in_generation_ + 1,
                                     static_cast<unsigned>(*buffer));
}

void Launcher::carry_out(const AskSnapshot& action) {
  snapshot_asked_ = true;
  for (const int rank : coordinator_->members())
    workers_.at(rank)->post_request(SnapshotRequest{action.serial, action.hold}.packed());
}

void Launcher::carry_out(const SnapshotWhole& action) {
  drain_rings();
  pool_->whole(action.step);
  transport_->whole(pool_->base());
  mesh_failures_ = 0;
  ++snapshots_in_generation_;
  target_posted_ = false;
  snapshot_asked_ = false;
  last_snapshot_ = monotonic_seconds();
  const double stall = part_seconds_;
  snapshot_cost_.took(stall);
  deaths_since_snapshot_ = std::max(0, deaths_since_snapshot_ - 1);
  record_->add_stall(part_seconds_);
  snapshot_total_ += part_seconds_;
  part_seconds_ = 0;
  faults_.got_past(action.step);
  const bool by_steps = record_->writer().wants(action.step);
  const int64_t end = record_->facts().total_steps;
  const bool ends = stop_code_ != 0 || (end > 0 && action.step >= end);  // end() saves it: not twice
  const bool wanted = save_asked_ || (!ends && (checkpoint_due_ || record_->writer().nearly_due(last_snapshot_)));
  // Those by steps are all kept, and the best so far: while the disk is behind, workers wait for a free buffer at their
  // next snapshot.
  if (by_steps || (action.step == best_step_ && !ends) || (wanted && !record_->writer().busy() && saves_.empty())) {
    saves_.push_back({pool_->base(), stall, save_asked_});
    pool_->lease(pool_->base());
    checkpoint_due_ = save_asked_ = false;
    save_when_gathered();
  }
  if (action.generation == coordinator_->current().generation)
    post_next_target();  // else the generation that follows does
}

// At once, unless parts of it are on other machines: they are fetched while training goes on.
void Launcher::save_when_gathered() {
  if (saves_.empty() || record_->writer().busy() || !transport_->gathered(saves_.front().buffer)) return;
  const Save save = saves_.front();
  saves_.pop_front();
  record_->start_checkpoint(*pool_, save.buffer, save.stall, monotonic_seconds(), save.asked);
}

void Launcher::carry_out(const Fence& action) { reap(*workers_.at(action.rank), action.why); }

void Launcher::carry_out(const Dismiss& action) {
  WorkerHandle& worker = *workers_.at(action.rank);
  worker.leaving = true;
  if (worker.running()) worker.send({{"end", true}});
}

void Launcher::carry_out(const Finished&) { finished_ = true; }

void Launcher::carry_out(const GiveUp& action) {
  if (!fatal_)
    fatal_.emplace(
        ExitCode::kPeerLost, action.what, action.why,
        fmt::format("see {}, then go on with `{} resume`", (request_.run_dir / "logs").string(), request_.program));
}

// ---- time ----

void Launcher::tick() {
  const double now = monotonic_seconds();
  if (now - last_tick_ > 1) stalls_.reset();  // this process itself was stopped, or the machine slept
  last_tick_ = now;
  drain_rings();
  watch_for_frozen(now);
  if (live_.due(now)) show(now);
  watch_gpus();
  if (!coordinator_ || fatal_) return;
  record_->report_checkpoints(*pool_);
  save_when_gathered();
  post_next_target();
  if (!coordinator_->started()) return;
  if (request_.max_seconds > 0 && now - begin_ >= request_.max_seconds && stop_code_ == 0)
    stop_with(static_cast<int>(ExitCode::kResumable));
  if (trial_clock_ && trial_clock_->is_over(record_->last_step(), now) && stop_code_ == 0)
    stop_with(static_cast<int>(ExitCode::kResumable));
  const double left = seconds_left(record_->last_step_seconds());
  if (record_->writer().due(now, left)) checkpoint_due_ = true;
  const double interval = snapshot_interval(snapshot_cost_.seconds(), deaths_since_snapshot_);
  const bool wanted =
      checkpoint_due_ || save_asked_ || worth_it(now - last_snapshot_, left, interval, kSnapshotSeconds);
  if (wanted && !snapshot_asked_ && target_posted_) carry_out(coordinator_->want_snapshot());
  measure(now);
  watch_speed(now);
}

// How fast each member computes; the coordinator moves shards if that pays.
void Launcher::measure(double now) {
  std::map<int, Progress> workers;
  for (const int rank : coordinator_->members()) workers[rank] = workers_.at(rank)->progress();
  if (const auto reading = speedometer_.read(now, record_->last_step(), record_->facts().training_phases, workers))
    carry_out(coordinator_->measured(reading->speeds, reading->step_seconds, move_seconds_,
                                     seconds_left(reading->step_seconds)));
}

// By where the members are: after a death they are behind what was reported.
double Launcher::seconds_left(double step_seconds) const {
  int64_t step = record_->last_step();
  for (const int rank : coordinator_->members()) step = std::min(step, workers_.at(rank)->progress().step);
  return record_->seconds_left(step, step_seconds);
}

// For those who watch.
void Launcher::show(double now) {
  static const std::vector<std::string> none;
  std::vector<const WorkerHandle*> workers;
  for (const auto& [rank, worker] : workers_) workers.push_back(worker.get());
  live_.write(now, record_ ? record_->last_step() : 0, record_ ? record_->facts().phases : none,
              record_ ? record_->facts().training_phases : 1,
              coordinator_ && coordinator_->started() ? &coordinator_->current() : nullptr, workers);
}

// ---- signals ----

void Launcher::stop_with(int code) {
  if (stop_code_ == 0) stop_code_ = code;
  if (coordinator_) carry_out(coordinator_->want_stop());
}

void Launcher::handle(int signal) {
  const auto say = [&](const std::string& text) {
    if (record_)
      record_->telemetry().say(text);
    else if (!request_.quiet)
      fmt::print(stderr, "{}\n", text);
  };
  switch (signal) {
    case SIGINT:
      if (++interrupts_ > 1) {
        kill_now_ = true;
        return;
      }
      say(stop_words() + (begun() ? "; Ctrl-C again stops at once" : ""));
      stop_with(static_cast<int>(ExitCode::kInterrupted));
      break;
    case SIGTERM:
    case SIGHUP:
      say(stop_words());
      stop_with(static_cast<int>(ExitCode::kTerminated));
      break;
    case SIGUSR1:
      save_asked_ = true;
      break;
    case SIGTSTP:  // the workers are not in the terminal's group: Ctrl-Z reaches us alone
      for (const auto& [rank, worker] : workers_)
        if (worker->running()) worker->pause(true);
      raise(SIGSTOP);
      for (const auto& [rank, worker] : workers_)
        if (worker->running()) worker->pause(false);
      stalls_.reset();
      last_tick_ = monotonic_seconds();
      break;
    default:
      break;
  }
}

// ---- the loop ----

nlohmann::json Launcher::figures() const {
  const double seconds = monotonic_seconds() - begin_;
  nlohmann::json out = {{"workers", coordinator_ ? coordinator_->members().size() : 0},
                        {"generations", coordinator_ ? coordinator_->current().generation : 0},
                        {"deaths", faults_.deaths()},
                        {"frozen", frozen_},
                        {"snapshot_share", seconds > 0 ? snapshot_total_ / seconds : 0}};
  out["usage"] = usage_.to_json();
  if (record_) {
    out["state"] = state_bytes(record_->facts().layout, record_->facts().floats);
    if (!record_->facts().every.empty()) out["every"] = record_->facts().every;
    if (request_.forecast && !request_.resume)
      out.update(outcome_of(*request_.forecast, seconds, record_->last_step(), out["usage"]));
  }
  if (!pairs_.empty()) out["combine"] = pairs_.to_json();
  out.update(guard_->figures());
  return out;
}

int Launcher::watch() {
  while (!finished_) {
    std::vector<pollfd> waits{{signals_.fd(), POLLIN, 0}, {requests_->fd(), POLLIN, 0}};
    if (record_) waits.push_back({record_->writer().event_fd(), POLLIN, 0});
    if (gate_.fd() >= 0) waits.push_back({gate_.fd(), POLLIN, 0});
    for (const auto& [rank, worker] : workers_) {
      if (!worker->running()) continue;
      for (const int fd : worker->poll_fds()) waits.push_back({fd, POLLIN, 0});
    }
    poll(waits.data(), waits.size(), kLauncherTickMs);
    while (const auto signal = signals_.next()) handle(*signal);
    if (kill_now_) {
      workers_.clear();
      end_guard();
      if (record_ && said_first_lines_)
        return record_->finish(static_cast<int>(ExitCode::kInterrupted), "stopped", nullptr, figures());
      return static_cast<int>(ExitCode::kInterrupted);
    }
    const bool may_begin = gate_.open();
    if (gate_.lost() && stop_code_ == 0) stop_code_ = static_cast<int>(ExitCode::kTerminated);
    if (stop_code_ != 0 && !may_begin) {  // it never began: there is nothing to save
      workers_.clear();
      end_guard();
      return stop_code_;
    }
    watch_hosts();
    let_begin();
    if (stop_code_ != 0 && !begun() && !fatal_) return end_unbegun();
    if (fatal_) give_up(*fatal_);
    std::vector<int> ranks;
    for (const auto& [rank, worker] : workers_) ranks.push_back(rank);
    for (const int rank : ranks) {
      WorkerHandle& worker = *workers_.at(rank);
      if (worker.running()) read_channel(worker);
      if (worker.running() && worker.has_ended() && !finished_) reap(worker, "");
      if (fatal_) give_up(*fatal_);
    }
    if (waits[1].revents & POLLIN)
      for (const Request& request : requests_->take())
        requests_->reply(request.id, membership_.answer(request.body, coordinator_ ? &*coordinator_ : nullptr,
                                                        record_.get(), finished_ || stop_code_ != 0));
    if (!finished_) tick();
    if (fatal_) give_up(*fatal_);
  }
  return end();
}

int Launcher::run() {
  try {
    return watch();
  } catch (const Error& error) {
    if (given_up_) throw;
    give_up(error);
  } catch (const std::exception& error) {  // ours, or a library's: the run ends as failed, not as if it still went on
    give_up(Error(ExitCode::kFailed, "the launcher failed", error.what(),
                  fmt::format("go on with `{} resume {}`, and please report it", request_.program,
                              shell_word(request_.run_dir.string()))));
  }
}

int launch(const LaunchRequest& request) {
  Launcher launcher(request);
  return launcher.run();
}

}  // namespace tandem
