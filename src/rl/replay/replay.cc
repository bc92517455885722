#include "rl/replay/replay.h"

#include <cstring>

namespace tandem {

Replay::Replay(const ReplayShape& shape, float* seen, ReplayRow* rows, int64_t* written, std::span<int64_t> sums)
    : shape_(shape), seen_(seen), rows_(rows), written_(written), tree_(sums, shape.leaves()) {}

void Replay::put(int64_t leaf, const float* observation, const ReplayRow& row) {
  tree_.set(leaf, 0);
  std::memcpy(seen_ + leaf * shape_.observation_size, observation,
              static_cast<size_t>(shape_.observation_size) * sizeof(float));
  rows_[leaf] = row;
}

void Replay::add(int64_t environment, const float* observation, int32_t action, float reward, End end,
                 const float* last, int64_t priority) {
  const int64_t now = written_[environment]++;
  put(leaf(environment, now), observation, {reward, action, end, 0});
  // Backwards through the rows of this episode that wait for their reward. At the end of an episode none waits longer;
  // else the one n steps back has what it needs: its n rewards, and this row's observation as what came after.
  for (int64_t back = 0; back <= shape_.n_step && back <= now; ++back) {
    const int64_t row = leaf(environment, now - back);
    if (back > 0 && (rows_[row].end != End::kNone || rows_[row].closing)) break;  // of an earlier episode
    if (end != End::kNone || back == shape_.n_step) tree_.set(row, priority);
  }
  if (end == End::kTruncated) put(leaf(environment, written_[environment]++), last, {0, 0, End::kNone, 1});
}

void Replay::prefetch(int64_t row) const {
  const int64_t base = row / shape_.rows * shape_.rows, later = base + (row - base + shape_.n_step) % shape_.rows;
  constexpr int64_t kLineFloats = 16;
  for (const int64_t at : {row, later}) {
    __builtin_prefetch(rows_ + at);
    for (int64_t i = 0; i < shape_.observation_size; i += kLineFloats)
      __builtin_prefetch(seen_ + at * shape_.observation_size + i);
  }
}

Transition Replay::take(int64_t row, float* before, float* after) const {
  const int64_t base = row / shape_.rows * shape_.rows;
  const size_t bytes = static_cast<size_t>(shape_.observation_size) * sizeof(float);
  std::memcpy(before, seen_ + row * shape_.observation_size, bytes);
  Transition t{0, 1, rows_[row].action};
  const float gamma = static_cast<float>(shape_.gamma);
  int64_t at = row;
  for (int64_t k = 0; k < shape_.n_step; ++k) {
    t.reward += t.discount * rows_[at].reward;
    t.discount *= gamma;
    const End end = rows_[at].end;
    if (end == End::kTerminated) t.discount = 0;
    at = at + 1 == base + shape_.rows ? base : at + 1;
    if (end != End::kNone) break;
  }
  std::memcpy(after, seen_ + (t.discount == 0 ? row : at) * shape_.observation_size, bytes);
  return t;
}

}  // namespace tandem
