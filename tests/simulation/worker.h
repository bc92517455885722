// tests/simulation/worker.h -- one life of a worker process, cut into the actions that others can see.
//
// It follows the protocol of fleet/generation.h: compute, publish, wait, reduce, mark done, wait, apply; at a step
// boundary perhaps a part of a snapshot. Where GPUs sum by themselves (reduce/peer_link.h), its GPU does all that,
// flags its part as done, and leaves a wait that takes long; the host looks for an abandoned combine only then,
// launches it again, and marks what has been applied. A launch is one combine, or all of a step. It looks for a new
// generation only where a real one does: when idle, holding, or when its combine was abandoned. Between any two actions
// it may be killed, frozen, or overtaken by anybody.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <variant>
#include <vector>

#include "world.h"

namespace tandem::simulation {

enum class Stage {
  kBooting,
  kIdle,
  kComputing,
  kPublishing,
  kWaitingForParts,
  kReducing,
  kMarking,
  kWaitingForMarks,
  kApplying,
  kWritingPart,
  kReportingPart,
  kHolding,
  kAbandoned,
  kRestoring,
  kAdopting,
  kLaunchingAgain,
  kMarkingApplied,
};
constexpr int kStages = 17;

// worker -> launcher
struct WorkerReport {
  enum class What { kArrived, kAdopted, kPart, kHash };
  What what = What::kArrived;
  uint64_t generation = 0;
  int64_t step = 0;
  uint64_t hash = 0;
  bool held = false, final = false;
};
struct Leave {};

class Worker {
 public:
  Worker(int rank, World& world) : rank(rank), world_(world) {}

  bool act();       // the next action; false if it has to wait
  bool act_dead();  // what its GPU still does after its death; false if nothing
  bool receive();   // the next thing the launcher sent; false if there is none
  void flip() { weights_ ^= 1, taint_ |= kFlipped, flipped = true; }

  const int rank;
  Stage stage = Stage::kBooting;
  bool alive = true, frozen = false;
  bool fenced = false;      // lost to the launcher; if still alive it is a zombie
  bool flipped = false;     // and nobody has noticed
  uint64_t generation = 0;  // that it works in
  int pace = 100;           // percent of its turns that it takes
  int gpu_goes_on = 0;      // actions of its GPU after its death

  // Its page: written by the launcher at once.
  uint64_t revoked_generation = 0;
  int64_t revoked_cut = -1;
  uint64_t request = 0;
  uint64_t target_generation = 0, target_number = 0;  // there is memory for the n-th snapshot of the generation
  // The two directions of its link: first in, first out, at any later time.
  std::deque<std::variant<GenerationStart, Leave>> from_launcher;
  std::deque<WorkerReport> to_launcher;

 private:
  bool abandoned() const {
    return generation <= revoked_generation && world_.job.end_of_launch(sequence_) > revoked_cut;
  }
  bool wait_for_generation();
  bool wait_for(size_t arrived, Stage then);
  void launch_again();
  bool may_end(bool* undecided);
  void go_on_after(int64_t sequence);
  void restore();
  void adopt();
  void go_on();
  void compute();
  void publish();
  void reduce();
  void mark_done();
  void apply();
  void boundary();
  bool write_part();
  void report_part();
  Segment& segment() { return world_.segments.at(generation); }
  Segment::Combine& combine() { return segment().combines[sequence_]; }
  int64_t steps_done() const { return sequence_ / world_.job.phases; }
  bool at_end() const { return sequence_ == world_.job.sequences(); }
  unsigned own_taint() const { return taint_ | (fenced ? unsigned{kFenced} : 0u); }

  World& world_;
  std::optional<GenerationStart> newest_;
  bool leaving_ = false;
  GenerationStart current_;
  int index_ = 0;
  ShardRange range_;

  bool has_state_ = false;
  uint64_t weights_ = 0;
  std::vector<uint64_t> shard_states_;  // true for its own range only
  unsigned taint_ = 0;
  int64_t sequence_ = 0;    // the next combine
  int64_t entered_at_ = 0;  // the sequence number at which it adopted its generation
  std::vector<uint64_t> contributions_;
  uint64_t handled_ = 0;    // serial of the newest request it followed
  uint64_t snapshots_ = 0;  // begun in this generation
  bool held_ = false;
  uint64_t part_hash_ = 0;
  int launches_ = 1;  // of this combine's kernel
};

}  // namespace tandem::simulation
