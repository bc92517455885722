// tests/simulation/job.h -- a training job made of hashes: what it computes shows every lost, doubled or foreign step.
//
// Replicated state is a 64-bit chain, each shard has one of its own. A contribution depends on both, on the step, the
// phase and the shard; a total on all contributions in shard order. So the final state equals that of the plain
// sequential run below only if every combine was applied exactly once, with every shard in it exactly once.
#pragma once

#include <cstdint>
#include <vector>

namespace tandem::simulation {

// splitmix64: the simulation's only source of chance.
class Dice {
 public:
  explicit Dice(uint64_t seed) : state_(seed) {}
  uint64_t next();
  int below(int n) { return static_cast<int>(next() % static_cast<uint64_t>(n)); }
  int between(int low, int high) { return low + below(high - low + 1); }
  bool chance(int percent) { return below(100) < percent; }

 private:
  uint64_t state_;
};

uint64_t mix(uint64_t a, uint64_t b);

struct Job {
  int shards = 1, phases = 1, steps = 5;
  bool stateful = false;
  bool gpus = false;                        // they sum by themselves, but for every third combine
  bool fused_steps = false;                 // they make all combines of a step by themselves
  int snapshot_every = 4, check_every = 3;  // steps

  int64_t sequences() const { return static_cast<int64_t>(steps) * phases; }
  bool on_gpus(int64_t sequence) const { return gpus && (fused_steps || sequence % 3 != 1); }
  bool ends_step(int64_t sequence) const { return (sequence + 1) % phases == 0; }
  // Of what a GPU was told at once, and its host waits for.
  bool begins_launch(int64_t sequence) const { return !fused_steps || sequence % phases == 0; }
  int64_t end_of_launch(int64_t sequence) const {
    return fused_steps ? sequence / phases * phases + phases - 1 : sequence;
  }
  uint64_t first_weights() const { return mix(1, static_cast<uint64_t>(shards)); }
  uint64_t first_shard_state(int shard) const { return stateful ? mix(2, static_cast<uint64_t>(shard)) : 0; }
  uint64_t contribution(uint64_t weights, uint64_t shard_state, int64_t sequence, int shard) const;
  uint64_t next_shard_state(uint64_t shard_state, uint64_t weights, int64_t sequence) const;
  uint64_t total(const std::vector<uint64_t>& contributions) const;
  uint64_t apply(uint64_t weights, uint64_t total, int64_t sequence) const;
};

// The run of one process that nothing happens to.
struct Reference {
  explicit Reference(const Job& job);
  std::vector<uint64_t> weights;              // before sequence number t; the last one is the result
  std::vector<std::vector<uint64_t>> shards;  // after step s, by shard
};

}  // namespace tandem::simulation
