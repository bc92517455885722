// The launcher's workers: what they say, and what becomes of those that die or freeze.
#include <fmt/format.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/clock.h"
#include "base/errors.h"
#include "base/printable.h"
#include "fleet/messages.h"
#include "fleet/snapshot_pace.h"
#include "launch/launcher_impl.h"
#include "launch/oom_count.h"

namespace tandem {
namespace {

constexpr double kWatchSeconds = 0.25;
constexpr double kKillSeconds = 3;

}  // namespace

// The first worker that is up tells what the job is; from then on there is somebody to coordinate.
void Launcher::hello(WorkerHandle& worker, const nlohmann::json& body) {
  if (body.at("hello").get<int>() != kProtocolVersion)
    throw ConfigError("launcher and worker are of different versions",
                      fmt::format("{} speaks protocol {}, this program {}", request_.worker->path().string(),
                                  body.at("hello").dump(), kProtocolVersion),
                      "build both again");
  if (!coordinator_) {
    record_ = std::make_unique<RunRecord>(request_, JobFacts::from(body));
    pool_ = std::make_unique<SnapshotPool>(record_->facts().layout.bytes());
    snapshot_cost_ = SnapshotCost(guessed_snapshot_seconds(record_->facts().layout.bytes()));
    const int64_t step = record_->restore(*pool_);
    coordinator_.emplace(CoordinatorOptions{.shards = static_cast<int>(request_.settings->shards),
                                            .stateful = record_->facts().stateful,
                                            .resume_step = step});
    transport_ = make_transport(step >= 0);
    watched_step_ = record_->last_step();
    if (stop_code_) carry_out(coordinator_->want_stop());
    for (const auto& [rank, other] : workers_)
      if (other->running()) carry_out(coordinator_->expect(rank, other->device().speed));
  } else {
    if (!(SnapshotLayout::from_json(body.at("layout")) == record_->facts().layout))
      throw Error(ExitCode::kFailed, fmt::format("{} built another model than the others", worker.name()),
                  "the recipe's build() depends on something beside its settings",
                  "make it a function of the settings");
    record_->add_kind(worker.name(), body.at("kind"));
  }
  worker.arrived = true;
  usage_.reported(worker.rank(), worker.device().name(), body);
  if (!worker.log_trouble.empty())
    record_->telemetry().warn(fmt::format("what {} says is not kept: {}", worker.name(), worker.log_trouble));
  behind_gate_.push_back(worker.rank());
  let_begin();
}

// Those who are up, once the run may begin.
void Launcher::let_begin() {
  if (behind_gate_.empty() || !gate_.open()) return;
  for (const int rank : std::exchange(behind_gate_, {})) carry_out(coordinator_->arrived(rank));
}

// ---- what workers say ----

void Launcher::read_channel(WorkerHandle& worker) {
  while (std::optional<Message> message = worker.receive()) {
    heard(worker, *message);
    for (const int fd : message->fds) close(fd);
  }
}

// A replacement, or one that joins, while others train.
bool Launcher::starts_beside_others(const WorkerHandle& worker) const {
  return begun() && !worker.arrived && std::any_of(workers_.begin(), workers_.end(), [](const auto& item) {
           return item.second->running() && item.second->arrived && !item.second->leaving;
         });
}

void Launcher::heard(WorkerHandle& worker, Message& message) {
  const nlohmann::json& body = message.body;
  if (body.contains("hello")) {
    if (!given_up_) hello(worker, body);  // else the run is over: its words must not take the place of the reason
    return;
  }
  if (body.contains("fatal") && starts_beside_others(worker)) {  // what ails it does not ail them
    worker.failed_kind = body.at("what");
    worker.failed_why = body.at("why");
    return;
  }
  if (body.contains("fatal")) {
    if (body.contains("equal_at") && (!suspect_ || body.at("equal_at").get<int64_t>() < suspect_->equal_at))
      suspect_ = {body.at("equal_at"), body.at("resume_with")};
    if (!fatal_)
      fatal_.emplace(static_cast<ExitCode>(body.at("fatal").get<int>()), body.at("what").get<std::string>(),
                     body.at("why").get<std::string>(), body.at("do").get<std::string>());
    return;
  }
  if (body.contains("failed")) {
    worker.failed_kind = body.at("failed");
    worker.failed_why = body.at("why");
    return;
  }
  if (!coordinator_ || transport_->heard(worker, body)) return;
  if (body.contains("adopted")) {
    const uint64_t generation = body.at("adopted");
    carry_out(coordinator_->adopted(worker.rank(), generation));
    uint64_t oldest = coordinator_->current().generation;
    for (const int rank : coordinator_->members()) oldest = std::min(oldest, workers_.at(rank)->progress().generation);
    transport_->all_adopted(oldest);
    if (generation == coordinator_->current().generation && std::exchange(worker.joining, false)) {
      record_->telemetry().say(fmt::format("{} joins", worker.name()));
      record_->telemetry().event("plan", record_->last_step(), fmt::format("{} joins", worker.name()));
    }
    if (move_began_ > 0 && generation == coordinator_->current().generation)
      move_seconds_ = monotonic_seconds() - move_began_;
  } else if (body.contains("part")) {
    usage_.reported(worker.rank(), worker.device().name(), body);
    part_seconds_ = std::max(part_seconds_, body.at("seconds").get<double>());
    if (body.value("best", false)) best_step_ = body.at("part");
    if (body.at("hold").get<bool>() && hold_began_ == 0) hold_began_ = monotonic_seconds();
    carry_out(coordinator_->snapshot_part(worker.rank(), body.at("generation"), body.at("part"), body.at("hash"),
                                          body.at("hold"), body.at("final")));
  } else if (body.contains("hash")) {
    carry_out(coordinator_->state_hash(worker.rank(), body.at("generation"), body.at("step"), body.at("hash")));
  } else if (body.contains("mesh_failed")) {
    mesh_failed(worker, body);
  } else if (body.contains("pairs")) {
    drain_rings();
    if (const auto line = pairs_.reported(worker.rank(), body, coordinator_->members().size())) {
      record_->telemetry().say("combine " + *line);
      record_->telemetry().event("combine", record_->last_step(), *line);
    }
  } else if (body.contains("note")) {
    drain_rings();
    record_->telemetry().warn(
        fmt::format("step {}: {}", body.at("step").get<int64_t>(), body.at("note").get<std::string>()));
  }
}

void Launcher::drain_rings() {
  if (!record_ || !coordinator_) return;
  for (const auto& [rank, worker] : workers_) {
    if (!worker->running()) continue;
    while (const auto line = worker->pop_record()) record_->step_reported(*line);
  }
  if (record_->last_step() == watched_step_) return;
  watched_step_ = record_->last_step();
  const JobFacts& facts = record_->facts();
  for (const auto& [name, seconds] : record_->last_record().phase_seconds)
    stalls_.phase_took(phase_number(name, facts.phases, facts.training_phases), seconds);
}

// ---- deaths ----

void Launcher::reap(WorkerHandle& worker, const std::string& fenced_because) {
  std::erase(behind_gate_, worker.rank());
  if (!worker.has_ended()) worker.kill();
  const double killed_at = monotonic_seconds();
  while (!worker.has_ended() && monotonic_seconds() - killed_at < kKillSeconds) {
    const timespec moment{0, 1'000'000};
    nanosleep(&moment, nullptr);
  }
  const bool dead = worker.has_ended();  // one that hangs in the kernel can't die: all it can reach is revoked instead
  watch_hosts();
  read_channel(worker);  // its last words
  if (record_)
    while (const auto line = worker.pop_record()) record_->step_reported(*line);
  const auto oom_kills = kernel_oom_kills();
  const bool oom = oom_kills && oom_kills_before_ && *oom_kills > *oom_kills_before_;
  oom_kills_before_ = oom_kills;
  const std::string position = worker.position(record_ ? record_->facts().phases : std::vector<std::string>{});
  const std::string words = worker.last_words();
  const int64_t step = worker.progress().step;
  const bool was_member = coordinator_ && coordinator_->is_member(worker.rank());
  const bool expected_end = worker.leaving || finished_;
  const bool start_only = starts_beside_others(worker);
  Death death = worker.reap(!fenced_because.empty(), oom);
  death.fenced = !fenced_because.empty();
  const auto lost = [&] {  // who is not dead may still move its mark, so it has none
    carry_out(coordinator_->lost(worker.rank(), dead ? transport_->mark_of(worker.rank()) : std::nullopt));
    const GenerationStart& now = coordinator_->current();
    transport_->decided(now.from == GenerationStart::From::kSamePhase ? now.cut : -1);
  };
  if (finished_ || fatal_) return;
  if (expected_end && death.exit_code == 0 && death.signal == 0) {
    if (was_member) lost();
    record_->telemetry().say(fmt::format("{} has left", worker.name()));
    record_->telemetry().event("plan", record_->last_step(), fmt::format("{} has left", worker.name()));
    return worker.release();
  }
  if (!fenced_because.empty() && !coordinator_) death.cause = "was taken out: " + fenced_because;
  if (!coordinator_) return reap_unborn(worker, death, words);
  const bool alone = std::none_of(workers_.begin(), workers_.end(),
                                  [](const auto& item) { return item.second->running() && !item.second->leaving; });
  fatal_ = faults_.verdict(worker, death, step, {.alone = alone, .start_only = start_only});
  ++deaths_since_snapshot_;
  last_change_text_.clear();
  reaping_ = true;
  if (!fatal_) lost();
  const bool replaced = !fatal_ && replace(worker);
  reaping_ = false;
  std::string line = FaultBook::line(worker, death, position, fenced_because, words);
  if (!last_change_text_.empty()) line += "; " + last_change_text_;
  if (!fatal_) line += replaced ? "; a replacement is on its way" : "; it is not replaced";
  record_->telemetry().warn(line);
  record_->telemetry().event("fault", record_->last_step(), line);
  if (fatal_) return;  // the coordinator does not know: to it, this worker is still a member
  if (!replaced) worker.release();
  if (!replaced) carry_out(coordinator_->nobody_is_coming());
}

// Dead before the first worker was up: tried again, then done without, if there are others.
void Launcher::reap_unborn(WorkerHandle& worker, const Death& death, const std::string& words) {
  if (stop_code_ == 0 && !worker.device_gone && faults_.may_restart(worker, monotonic_seconds())) {
    if (!request_.quiet)
      fmt::print(stderr, "warning: {} {} in its start; it is started again\n", worker.name(), printable(death.cause));
    try {
      return worker.start(true);
    } catch (const Error& error) {
      fmt::print(stderr, "warning: {} cannot be started again: {} ({})\n", worker.name(), printable(error.what()),
                 printable(error.why()));
    }
  }
  if (std::none_of(workers_.begin(), workers_.end(), [](const auto& item) { return item.second->running(); }))
    fatal_ = FaultBook::never_started(worker, death, words);
  else
    fmt::print(stderr, "warning: {} is left out: it {} in its start{}; see {}\n", worker.name(), printable(death.cause),
               worker.device_gone ? "" : ", again and again", printable(worker.log_name()));
}

// Starts another worker for the same device, unless it died too often.
bool Launcher::replace(WorkerHandle& worker) {
  if (worker.leaving || worker.device_gone || !faults_.may_restart(worker, monotonic_seconds())) return false;
  try {
    worker.start(true);
  } catch (const Error& error) {
    record_->telemetry().warn(
        fmt::format("{} cannot be started again: {} ({})", worker.name(), error.what(), error.why()));
    return false;
  }
  carry_out(coordinator_->expect(worker.rank(), worker.device().speed));
  return true;
}

void Launcher::watch_for_frozen(double now) {
  if (now - watched_at_ < kWatchSeconds) return;
  watched_at_ = now;
  std::vector<WorkerFacts> facts;
  for (const auto& [rank, worker] : workers_) {
    if (!worker->running() || worker->leaving) continue;
    const bool member = coordinator_ && coordinator_->is_member(rank);
    WorkerFacts fact = worker->facts(member ? coordinator_->current().generation : 0);
    if (!member && worker->arrived) fact.stage = Stage::kIdle;  // waits to be called
    facts.push_back(fact);
  }
  bool first = true;
  const std::vector<int> frozen = stalls_.frozen(now, facts);
  std::map<int, double> quiet;  // before the first is taken out, which resets the watch
  for (const int rank : frozen) quiet[rank] = stalls_.quiet_seconds(rank, now);
  for (const int rank : frozen) {
    WorkerHandle& worker = *workers_.at(rank);
    // Taking one out may have woken the next: it is out as well only if the system says that it is stopped.
    if (!std::exchange(first, false) && !(worker.running() && worker.facts(0).stopped)) continue;
    ++frozen_;
    reap(worker, fmt::format("no progress for {:.0f} s{}", std::floor(quiet[rank]),
                             worker.facts(0).stopped ? " (the process is stopped)" : ""));
  }
}

}  // namespace tandem
