// fleet/coordinator.h -- the one place that grants member lists: who works on which shards, from which state.
//
// A pure state machine: events in, actions out; no clock, no socket, no file. The launcher feeds it what happened and
// carries out what it says; a deterministic simulation (tests/simulation) does the same with seeded faults. So what is
// tested by ten thousand simulated schedules is the code that runs.
//
// The rules it keeps:
//   - one member list per generation; generations only grow; what a fenced worker says afterwards is ignored
//   - weights move only by a combine that all members of a generation completed, so a death loses no step:
//     stateless shards run the phase again (From::kSamePhase), stateful ones go back to the last whole snapshot
//   - a snapshot counts once every member of its generation wrote its part, and all replicated state had one hash
//   - members and plan change on purpose (join, leave, another plan) only at a held snapshot
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "fleet/generation.h"
#include "fleet/planner.h"
#include "fleet/speed_track.h"

namespace tandem {

// ---- what it wants done ----

// To every member of the new generation. Whoever is in an older one stops waiting: its generation is revoked. Ranks
// that were members and are not in the new one have been lost or dismissed.
struct StartGeneration {
  GenerationStart start;
};
// All members take a snapshot at the next step boundary they agree on. With hold they then wait for the next
// generation. (The launcher posts serial and hold as a SnapshotRequest; a higher serial replaces a lower one.)
struct AskSnapshot {
  uint64_t serial = 0;
  bool hold = false;
};
// A snapshot is whole: it is what a death goes back to from now on. The one before may be overwritten.
struct SnapshotWhole {
  uint64_t generation = 0;
  int64_t step = 0;
};
// Make sure this rank is dead (kill, wait, or revoke its memory), then call lost() for it.
struct Fence {
  int rank = 0;
  std::string why;
};
// The worker is no longer needed (left, or the run is over): it may end in peace.
struct Dismiss {
  int rank = 0;
};
// The run reached its end, or the stop that was asked for, at this whole snapshot.
struct Finished {
  int64_t step = 0;
};
// Nobody is left and nobody is on the way; or the members' states differ and none can be blamed, again and again.
struct GiveUp {
  std::string what, why;
};
using Action = std::variant<StartGeneration, AskSnapshot, SnapshotWhole, Fence, Dismiss, Finished, GiveUp>;

struct CoordinatorOptions {
  int shards = 1;
  bool stateful = false;     // shards have state of their own, or messages are on their way between phases
  int64_t resume_step = -1;  // >= 0: a snapshot of this step is there from the start (loaded from a checkpoint)
  PlannerOptions planner;
};

class Coordinator {
 public:
  static constexpr double kForEver = 1e300;
  explicit Coordinator(CoordinatorOptions options);

  // ---- what happened ---- (each returns what to do now, in this order)
  // A worker process of this rank was started; it counts as "on the way" until arrived() or lost(). The first
  // generation starts when everybody who was expected before it has arrived or is lost; later ones join.
  std::vector<Action> expect(int rank, double speed);
  std::vector<Action> arrived(int rank);  // it has built its model and can take shards
  // It is dead for certain, or fenced. `mark`: how far it got; nothing if that can't be known (another machine), which
  // sends everybody to the last snapshot.
  std::vector<Action> lost(int rank, std::optional<Mark> mark);
  std::vector<Action> adopted(int rank, uint64_t generation);  // it works in this generation now
  // It wrote its part of the snapshot of `step`, with this hash of the replicated state; `held`: it waits now; `final`:
  // it is at the run's last step.
  std::vector<Action> snapshot_part(int rank, uint64_t generation, int64_t step, uint64_t hash, bool held, bool final);
  std::vector<Action> state_hash(int rank, uint64_t generation, int64_t step, uint64_t hash);  // the check in between
  // The launcher starts nobody any more: GiveUp if there are no members and nobody is on the way. lost() itself never
  // gives up, for a replacement may be expected right after it.
  std::vector<Action> nobody_is_coming();

  // ---- what is wanted ----
  std::vector<Action> want_snapshot();
  std::vector<Action> want_leave(int rank);
  std::vector<Action> want_stop();  // snapshot, then Finished
  // Shards per second of compute, measured; may ask for a held snapshot to move shards: if another plan gains more than
  // the planner's least and more than chance explains, twice in a row.
  std::vector<Action> measured(const std::map<int, double>& speeds, double step_seconds, double move_seconds,
                               double seconds_left = kForEver);  // of the run: a move must pay before its end
  // Of their speed that plans count with, by rank; who is not named has all of it. Shards move away from a rank whose
  // share falls (its GPU is hot) at the next held snapshot, whether or not that is faster.
  std::vector<Action> want_shares(const std::map<int, double>& shares);
  // Everybody waits at the next held snapshot, until it is no longer wanted.
  std::vector<Action> want_hold(bool hold);

  // ---- what is ----
  const GenerationStart& current() const;
  bool is_member(int rank) const;
  std::set<int> members() const;
  std::map<int, double> speeds() const { return speeds_of(members_); }  // measured, or what was said of them
  int64_t snapshot_step() const;                                        // -1: none yet
  bool started() const;                                                 // there has been a generation
  bool holding() const { return holding_; }                             // everybody waits, as was wanted

 private:
  using Actions = std::vector<Action>;
  struct Worker {
    double guess = 1;  // what expect() said
    SpeedTrack measured;
    uint64_t adopted = 0;  // the newest generation it works in
  };
  // What the members of this generation reported about one step.
  struct Reports {
    std::map<int, uint64_t> hashes;  // by rank
    bool held = false, final = false;
  };
  enum class Verdict { kIncomplete, kEqual, kDiffer };

  bool on_hold_wanted() const;
  bool everybody_restored() const;
  std::map<int, Worker> next_members();
  std::map<int, double> speeds_of(const std::map<int, Worker>& workers) const;
  double share_of(int rank) const;
  int64_t effective(const Mark& mark) const;
  Verdict judge(const Reports& reports) const;

  void begin_if_ready(Actions& actions);
  void stop_or_begin(Actions& actions);
  void restore(Actions& actions);
  void same_phase(int64_t cut, Actions& actions);
  void issue(GenerationStart::From from, int64_t cut, Actions& actions);
  void ask_if_wanted(Actions& actions);
  void settle(const Reports& reports, int64_t step, Actions& actions);
  void disagree(const Reports& reports, int64_t step, Actions& actions);
  void finish(Actions& actions);

  CoordinatorOptions options_;
  GenerationStart current_;
  std::vector<int64_t> cuts_{-1};    // by generation: the cut at its start
  uint64_t restore_generation_ = 0;  // the newest that began by restoring state
  int64_t snapshot_step_ = -1;
  // Every living rank is in one of these.
  std::map<int, Worker> on_the_way_, standby_, members_;

  bool stop_wanted_ = false, snapshot_wanted_ = false, move_wanted_ = false, hold_wanted_ = false;
  bool holding_ = false;
  std::map<int, double> shares_;  // below 1, by rank
  std::set<int> leaving_;
  uint64_t serial_ = 0;
  bool asked_ = false, asked_hold_ = false;  // in this generation, and not answered yet

  std::map<int64_t, Reports> parts_, checks_;  // by step, of this generation
  int ties_ = 0;                               // since the last whole snapshot
  int measurements_ = 0;                       // in this generation
  int gains_ = 0;                              // in a row: measurements by which another plan is worth it
  bool over_ = false;
};

}  // namespace tandem
