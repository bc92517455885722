// tests/simulation/world.h -- what the simulated processes share: segments, snapshots, and the log of what happened.
//
// Whoever finds a promise broken throws Violation. Data that must never count carries a taint: what a fenced process
// writes, and what follows from a flipped state. Taint flows through combines into states and snapshots as the data do.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "fleet/generation.h"
#include "job.h"

namespace tandem::simulation {

class Violation : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Ways to break the protocol on purpose, to see that the simulation would tell.
enum class Mutant {
  kNone,
  kOldMessages,    // reports of an older generation, or of a rank that was replaced, count as of today
  kMissingPart,    // a snapshot counts as whole with one part missing
  kCutHigh,        // the cut is one sequence number too far
  kCutLow,         // ... too near
  kUnclipped,      // a second death's mark is taken as it is
  kForgetRestore,  // a generation goes on after a restore that not everybody has adopted
  kDropShard,      // the plan forgets the last shard
  kZombieMark,     // a worker that could not be killed is lost with a mark, as if it were dead
  kHostMarks,      // what a GPU did by itself counts only once its host has said so
  kOneWait,        // a GPU applies a total before all have done their part
  kNotHeld,        // a GPU applies what its sum left unfinished
  kHeldGoesOn,     // ... or makes the sum behind one that it left unfinished
  kOpenMarks,      // the GPU of a dead worker may still end sums after the launcher has read its mark
};

enum Taint : unsigned { kFenced = 1, kFlipped = 2 };

struct Event {
  uint64_t tick = 0;
  const char* what = "";
  int rank = -1;
  int64_t a = 0, b = 0;
};
std::string text(const Event& event);

// The shared memory of one generation (as reduce/shm_combine.h).
struct Segment {
  struct Combine {
    std::vector<uint64_t> contributions;
    std::vector<int> times;  // each shard was added
    size_t published = 0, done = 0;
    uint64_t request = 0, total = 0;
    unsigned taint = 0;
  };
  std::vector<ShardAssignment> members;
  std::vector<int64_t> done;    // by member
  std::vector<int64_t> flags;   // by member: done by its GPU, as it says itself (reduce/peer_words.h)
  std::vector<int64_t> closed;  // by member: sums up to this one may end with it
  static constexpr int64_t kOpen = INT64_MAX, kUndecided = -2;
  std::map<int64_t, Combine> combines;  // by sequence number

  int index_of(int rank) const;  // -1: no member
};

struct Part {
  ShardRange range;
  uint64_t weights = 0;
  std::vector<uint64_t> shards;  // of its range
  uint64_t handled = 0;          // serial of the newest request that was followed: replicated state, too
  unsigned taint = 0;
};

struct Snapshot {
  int64_t step = 0;
  uint64_t weights = 0;
  std::vector<uint64_t> shards;
  uint64_t handled = 0;
};

struct World {
  World(const Job& job, uint64_t seed, Mutant mutant, bool verbose)
      : job(job), reference(job), dice(seed), mutant(mutant), verbose(verbose) {}

  void tell(const char* what, int rank, int64_t a = 0, int64_t b = 0);
  // All parts of the snapshot, put together; a Violation if it is not the true state of that step.
  Snapshot assemble(uint64_t generation, int64_t step) const;

  const Job job;
  const Reference reference;
  Dice dice;
  const Mutant mutant;
  const bool verbose;
  uint64_t tick = 0;
  std::deque<Event> events;  // the last ones

  // Gone when the launcher dies.
  std::map<uint64_t, Segment> segments;                               // by generation
  std::map<std::pair<uint64_t, int64_t>, std::map<int, Part>> parts;  // by generation and step, then rank
  std::optional<Snapshot> whole;
  uint64_t newest_generation = 0;
};

}  // namespace tandem::simulation
