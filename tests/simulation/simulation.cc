#include "simulation.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "launcher.h"

namespace tandem::simulation {
namespace {

enum class Trouble {
  kKill,
  kFreeze,
  kFalseAlarm,
  kFlip,
  kLauncherDies,
  kJoin,
  kLeave,
  kMeasure,
  kShare,
  kHold,
  kGo,
  kSnapshot,
  kStop
};

struct Planned {
  uint64_t at = 0;  // tick
  Trouble what = Trouble::kKill;
  int stage = -1;  // hits a worker in this stage, if one comes there soon
};

Job draw_job(Dice& dice, int workers) {
  constexpr int kShards[] = {1, 6, 24, 64, 96};
  Job job;
  job.shards = kShards[workers > 24 ? dice.between(2, 4) : dice.below(5)];
  job.phases = dice.between(1, 3);
  job.steps = workers > 24 ? dice.between(3, 8) : workers > 8 ? dice.between(5, 15) : dice.between(5, 40);
  job.stateful = dice.chance(50);
  job.gpus = dice.chance(50);
  job.fused_steps = job.gpus && job.stateful && dice.chance(50);
  job.snapshot_every = dice.between(2, 9);
  job.check_every = dice.between(2, 6);
  return job;
}

int draw_workers(Dice& dice) {
  const int size = dice.below(100);
  return size < 75 ? dice.between(1, 8) : size < 96 ? dice.between(9, 24) : dice.between(25, 64);
}

class Schedule {
 public:
  Schedule(Dice dice, const Job& job, int workers, const Options& options)
      : workers_(workers), world_(job, dice.next(), options.mutant, options.verbose) {
    plan_trouble();
    begin();
  }

  void run() {
    const uint64_t limit = 200'000 + 400 * usual_ticks();
    while (!ended()) {
      if (++world_.tick > limit) throw Violation("no end in sight: too many actions");
      if (!trouble() && !something()) unstick();
    }
  }
  ScheduleResult outcome() {
    collect();
    outcome_.ticks = world_.tick;
    for (const Event& event : world_.events) outcome_.events.push_back(text(event));
    return outcome_;
  }

 private:
  uint64_t usual_ticks() const { return static_cast<uint64_t>(world_.job.sequences()) * workers_ * 7 + 100; }
  Dice& dice() { return world_.dice; }

  void plan_trouble() {
    constexpr Trouble kAll[] = {Trouble::kKill,   Trouble::kKill,       Trouble::kKill,     Trouble::kFreeze,
                                Trouble::kFreeze, Trouble::kFalseAlarm, Trouble::kFlip,     Trouble::kLauncherDies,
                                Trouble::kJoin,   Trouble::kJoin,       Trouble::kLeave,    Trouble::kMeasure,
                                Trouble::kShare,  Trouble::kHold,       Trouble::kSnapshot, Trouble::kStop};
    // Troubles seldom come alone: every other one follows the one before within a few actions. In a storm all do, and
    // somebody dies each time.
    const bool storm = dice().chance(30);
    uint64_t at = 0;
    for (int left = dice().between(0, 12); left > 0; --left) {
      at += dice().chance(storm ? 80 : 50) ? dice().below(60) : dice().next() % (usual_ticks() / 4);
      const Trouble what = storm && dice().chance(80) ? Trouble::kKill : kAll[dice().below(std::size(kAll))];
      planned_.push_back({at, what, dice().chance(60) ? dice().below(kStages) : -1});
    }
  }

  // ---- lives of the launcher ----

  void begin() { launcher_ = std::make_unique<Launcher>(world_, dice().between(1, workers_), workers_); }
  void collect() {
    outcome_.generations += launcher_->generations, outcome_.gone_on += launcher_->gone_on;
    outcome_.restores += launcher_->restores, outcome_.snapshots += launcher_->snapshots;
    outcome_.fences += launcher_->fences, outcome_.joins += launcher_->joins;
  }
  // Everything in memory is gone; what reached the disk is not.
  void restart() {
    ++outcome_.restarts;
    collect();
    launcher_.reset();
    world_.segments.clear();
    world_.parts.clear();
    world_.whole = disk_;
    if (world_.whole) world_.whole->handled = 0;  // requests are counted anew by every launcher
    world_.newest_generation = 0;
    world_.tell("begins again at step", -1, disk_ ? disk_->step : 0);
    begin();
  }
  bool ended() {
    if (launcher_->end() == Launcher::End::kNone) return false;
    if (launcher_->end() == Launcher::End::kFinished) {
      if (launcher_->end_step() != (world_.whole ? world_.whole->step : -1))
        throw Violation(fmt::format("finished at step {} without its snapshot", launcher_->end_step()));
      disk_ = world_.whole;                                       // the launcher waits for its writer before it ends
      if (disk_ && disk_->step == world_.job.steps) return true;  // assemble() has compared it with the reference
    }
    restart();
    return false;
  }

  // ---- one action ----

  bool something() {
    for (int tries = 0; tries < 4; ++tries) {
      const int kind = dice().below(100);
      if (kind < 55   ? some_worker_acts(true)
          : kind < 75 ? carry_out()
          : kind < 85 ? some_link()
          : kind < 95 ? hear()
                      : reap())
        return true;
      if (kind == 99 && write_disk()) return true;
    }
    return carry_out() || some_worker_acts(false) || some_link() || hear() || reap();
  }

  template <class F>
  bool somebody(F&& does) {
    auto& all = launcher_->workers();
    auto next = std::next(all.begin(), dice().below(static_cast<int>(all.size())));
    for (size_t i = 0; i < all.size(); ++i, ++next) {
      if (next == all.end()) next = all.begin();
      if (does(*next)) return true;
    }
    return false;
  }
  bool some_worker_acts(bool paced) {
    return somebody([&](Worker& worker) {
      if (!worker.alive) return worker.act_dead();
      if (worker.frozen || (paced && worker.pace < 100 && !dice().chance(worker.pace))) return false;
      return acts(worker);
    });
  }
  // What a zombie finds where others have gone on may be anything: it may crash over it, and nobody else may notice.
  static bool acts(Worker& worker) try { return worker.act(); } catch (const Violation&) {
    if (!worker.fenced) throw;
    worker.alive = false;
    return true;
  }
  bool some_link() {
    return somebody([](Worker& worker) { return worker.alive && worker.receive(); });
  }
  bool carry_out() { return launcher_->carry_out(); }
  bool hear() {
    if (launcher_->busy()) return false;
    return somebody([&](Worker& worker) {
      if (worker.to_launcher.empty() || (!worker.alive && worker.fenced)) return false;
      launcher_->hear(worker);
      return true;
    });
  }
  bool reap() {
    if (launcher_->busy()) return false;
    return somebody([&](Worker& worker) { return launcher_->reap(worker); });
  }
  bool write_disk() {
    if (launcher_->to_disk.empty()) return false;
    disk_ = launcher_->to_disk.front();
    launcher_->to_disk.pop_front();
    return true;
  }

  // Nobody can act. Then somebody is frozen, and the launcher sees that nothing moves; or it is our fault.
  void unstick() {
    const bool fenced = somebody([&](Worker& worker) {
      if (!worker.alive || !worker.frozen || worker.fenced) return false;
      launcher_->fence(worker);
      return true;
    });
    if (fenced) return;
    if (planned_.empty()) throw Violation("hang: nobody can act");
    planned_.front().at = 0;
  }

  // ---- trouble ----

  bool trouble() {
    if (planned_.empty() || planned_.front().at > world_.tick) return false;
    const Planned now = planned_.front();
    if (is_fault(now.what)) {
      Worker* victim = find_victim(now.stage);
      if (victim == nullptr && now.stage >= 0 && world_.tick < now.at + 300 && now.at > 0)
        return false;  // wait for one
      if (victim == nullptr) victim = find_victim(-1);
      planned_.pop_front();
      return victim != nullptr && hit(*victim, now.what);
    }
    if (launcher_->busy() && now.what != Trouble::kLauncherDies) return false;
    planned_.pop_front();
    return event(now.what);
  }
  static bool is_fault(Trouble what) {
    return what == Trouble::kKill || what == Trouble::kFreeze || what == Trouble::kFalseAlarm || what == Trouble::kFlip;
  }

  Worker* find_victim(int stage) {
    Worker* victim = nullptr;
    somebody([&](Worker& worker) {
      if (!worker.alive || worker.frozen || worker.fenced || flip_needs(worker)) return false;
      if (stage >= 0 && worker.stage != static_cast<Stage>(stage)) return false;
      victim = &worker;
      return true;
    });
    return victim;
  }
  // A wrong state can be noticed only while the one who has it can be compared with another. (If it dies first, its
  // wrong contributions stay: no protocol of this kind sees that.)
  bool flip_needs(const Worker& worker) { return worker.flipped || (flip_unnoticed() && healthy_members() <= 2); }
  int healthy_members() {
    int count = 0;
    for (const Worker& worker : launcher_->workers())
      if (worker.alive && !worker.frozen && !worker.fenced && launcher_->coordinator().is_member(worker.rank)) ++count;
    return count;
  }
  bool flip_unnoticed() {
    return somebody([](Worker& worker) { return worker.flipped && worker.alive && !worker.fenced; });
  }

  bool hit(Worker& worker, Trouble what) {
    switch (what) {
      case Trouble::kKill:
        world_.tell("KILLED in stage", worker.rank, static_cast<int64_t>(worker.stage));
        worker.alive = false;
        worker.gpu_goes_on = dice().below(6);
        ++outcome_.deaths;
        return true;
      case Trouble::kFreeze:
        world_.tell("FROZEN in stage", worker.rank, static_cast<int64_t>(worker.stage));
        worker.frozen = true;
        return true;
      case Trouble::kFalseAlarm:
        if (launcher_->busy()) return false;
        launcher_->fence(worker);
        return true;
      default:
        return flip(worker);
    }
  }
  bool flip(Worker& worker) {
    const GenerationStart& start = launcher_->coordinator().current();
    if (outcome_.flips > 0 || start.members.size() < 2 || worker.generation != start.generation) return false;
    if (somebody([](Worker& other) { return (!other.alive || other.frozen) && !other.fenced; })) return false;
    world_.tell("FLIPPED", worker.rank);
    worker.flip();
    ++outcome_.flips;
    return true;
  }

  bool event(Trouble what) {
    switch (what) {
      case Trouble::kLauncherDies:
        world_.tell("LAUNCHER DIES", -1);
        restart();
        return true;
      case Trouble::kJoin:
        launcher_->start_another();
        return true;
      case Trouble::kLeave:
        launcher_->want_leave();
        return true;
      case Trouble::kMeasure:
        launcher_->measure();
        return true;
      case Trouble::kShare:
        launcher_->want_shares();
        return true;
      case Trouble::kHold: {
        launcher_->want_hold(true);
        const Planned go{world_.tick + dice().below(400), Trouble::kGo, -1};
        planned_.insert(std::upper_bound(planned_.begin(), planned_.end(), go,
                                         [](const Planned& a, const Planned& b) { return a.at < b.at; }),
                        go);
        return true;
      }
      case Trouble::kGo:
        launcher_->want_hold(false);
        return true;
      case Trouble::kSnapshot:
        launcher_->want_snapshot();
        return true;
      default:
        launcher_->want_stop();
        return true;
    }
  }

  int workers_;
  World world_;
  std::deque<Planned> planned_;
  std::optional<Snapshot> disk_;
  std::unique_ptr<Launcher> launcher_;
  ScheduleResult outcome_;
};

}  // namespace

ScheduleResult simulate(const Options& options) {
  Dice dice(options.seed);
  const int drawn = draw_workers(dice), workers = options.workers > 0 ? options.workers : drawn;
  const Job job = draw_job(dice, workers);
  std::string violation;
  Schedule schedule(dice, job, workers, options);
  try {
    schedule.run();
  } catch (const Violation& error) {
    violation = error.what();
  }
  ScheduleResult outcome = schedule.outcome();
  outcome.violation = violation;
  outcome.job = fmt::format("{} shards, {} phases, {} steps, {}{}, {} workers", job.shards, job.phases, job.steps,
                            job.stateful ? "stateful" : "stateless",
                            job.fused_steps ? ", fused steps on GPUs"
                            : job.gpus      ? ", summed on GPUs"
                                            : "",
                            workers);
  return outcome;
}

const std::vector<std::pair<std::string, Mutant>>& mutants() {
  static const std::vector<std::pair<std::string, Mutant>> all{
      {"old-messages", Mutant::kOldMessages}, {"missing-part", Mutant::kMissingPart},
      {"cut-high", Mutant::kCutHigh},         {"cut-low", Mutant::kCutLow},
      {"unclipped", Mutant::kUnclipped},      {"forget-restore", Mutant::kForgetRestore},
      {"drop-shard", Mutant::kDropShard},     {"zombie-mark", Mutant::kZombieMark},
      {"host-marks", Mutant::kHostMarks},     {"one-wait", Mutant::kOneWait},
      {"not-held", Mutant::kNotHeld},         {"held-goes-on", Mutant::kHeldGoesOn},
      {"open-marks", Mutant::kOpenMarks}};
  return all;
}

Mutant mutant_named(const std::string& name) {
  for (const auto& [known, mutant] : mutants())
    if (known == name) return mutant;
  return Mutant::kNone;
}

}  // namespace tandem::simulation
