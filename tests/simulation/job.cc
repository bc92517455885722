#include "job.h"

namespace tandem::simulation {

uint64_t Dice::next() {
  state_ += 0x9e3779b97f4a7c15;
  uint64_t z = state_;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

uint64_t mix(uint64_t a, uint64_t b) { return Dice(a ^ (b * 0xd6e8feb86659fd93 + 0x2545f4914f6cdd1d)).next(); }

uint64_t Job::contribution(uint64_t weights, uint64_t shard_state, int64_t sequence, int shard) const {
  return mix(mix(weights, shard_state), static_cast<uint64_t>(sequence) * 1024 + static_cast<uint64_t>(shard));
}

uint64_t Job::next_shard_state(uint64_t shard_state, uint64_t weights, int64_t sequence) const {
  return stateful ? mix(shard_state, mix(weights, static_cast<uint64_t>(sequence))) : 0;
}

uint64_t Job::total(const std::vector<uint64_t>& contributions) const {
  uint64_t sum = 3;
  for (uint64_t one : contributions) sum = mix(sum, one);
  return sum;
}

uint64_t Job::apply(uint64_t weights, uint64_t total, int64_t sequence) const {
  return mix(mix(weights, total), static_cast<uint64_t>(sequence));
}

Reference::Reference(const Job& job) {
  std::vector<uint64_t> state(job.shards), contributions(job.shards);
  for (int shard = 0; shard < job.shards; ++shard) state[shard] = job.first_shard_state(shard);
  weights.push_back(job.first_weights());
  shards.push_back(state);
  for (int64_t sequence = 0; sequence < job.sequences(); ++sequence) {
    for (int shard = 0; shard < job.shards; ++shard) {
      contributions[shard] = job.contribution(weights.back(), state[shard], sequence, shard);
      state[shard] = job.next_shard_state(state[shard], weights.back(), sequence);
    }
    weights.push_back(job.apply(weights.back(), job.total(contributions), sequence));
    if ((sequence + 1) % job.phases == 0) shards.push_back(state);
  }
}

}  // namespace tandem::simulation
