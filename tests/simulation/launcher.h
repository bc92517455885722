// tests/simulation/launcher.h -- the simulated launcher around the real Coordinator.
//
// It does what the real one does: starts workers, reads what they tell, makes sure the lost ones are dead, and carries
// out the coordinator's actions, one memory write or message at a time, with everybody else running in between.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <optional>
#include <vector>

#include "fleet/coordinator.h"
#include "worker.h"

namespace tandem::simulation {

class Launcher {
 public:
  enum class End { kNone, kFinished, kGaveUp };

  // Begins with `workers` ranks, from world.whole if there is one.
  Launcher(World& world, int workers, int most_ranks);

  bool busy() const { return !to_do_.empty(); }
  bool carry_out();            // the next small piece of an action; false if there is none
  void hear(Worker& worker);   // the next thing it told
  bool reap(Worker& worker);   // notices a death; false if there is none to notice
  void fence(Worker& worker);  // frozen, or thought to be
  void start_another();        // a new rank, or one that was lost
  void want_leave();
  void want_stop() { obey(coordinator_.want_stop()); }
  void want_snapshot() { obey(coordinator_.want_snapshot()); }
  void want_hold(bool hold) { obey(coordinator_.want_hold(hold)); }
  void want_shares();  // of a rank that is hot, or was
  void measure();

  const Coordinator& coordinator() const { return coordinator_; }
  std::list<Worker>& workers() { return workers_; }
  End end() const { return end_; }
  int64_t end_step() const { return end_step_; }
  // Whole snapshots that are being copied to disk.
  std::deque<Snapshot> to_disk;
  int generations = 0, restores = 0, gone_on = 0, snapshots = 0, fences = 0, joins = 0;

 private:
  void start(int rank);
  void lose(Worker& worker, bool dead);
  Mark mark_of(const Worker& worker) const;
  Worker* current(int rank);
  void obey(std::vector<Action> actions);
  void start_generation(GenerationStart start);
  void mutate(GenerationStart& start) const;
  void fake_missing_part(int rank, const WorkerReport& report);
  void check(const GenerationStart& start) const;
  void drop_old_segments();
  void post_target(uint64_t generation, uint64_t number);

  World& world_;
  Coordinator coordinator_;
  std::list<Worker> workers_;  // every life, zombies included
  std::map<int, Worker*> current_;
  std::deque<std::function<void()>> to_do_;
  std::deque<uint64_t> kept_;  // generations whose segments are still there to read marks from
  uint64_t snapshots_in_generation_ = 0;
  std::vector<ShardAssignment> members_;
  int most_ranks_;
  End end_ = End::kNone;
  int64_t end_step_ = -1;

  // For mutants: whose death the next generation answers.
  std::optional<Mark> raw_mark_;
  bool losing_ = false;
  std::map<std::pair<uint64_t, int64_t>, std::set<int>> heard_parts_;
};

}  // namespace tandem::simulation
