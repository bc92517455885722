// rl/replay/replay.h -- a shard's part of the replay buffer: rows of its environments, and their priorities.
//
// Each environment has a ring of rows, one per environment step: observation, action, reward. An observation is stored
// once: the n-step transition that begins at a row is assembled when it is drawn, from the rows that follow it. A row
// can be drawn (has a priority above 0) once its n rewards are known or its episode has ended. Where an episode was
// cut, one row more holds its last observation and is never drawn itself. A row's number, environment * rows + place in
// the ring, is its leaf in the tree. The memory is somebody else's (a shard's state), so a Replay is made for a moment
// and holds nothing.
#pragma once

#include <cstdint>
#include <span>

#include "rl/environment.h"
#include "rl/replay/priority_tree.h"

namespace tandem {

struct ReplayShape {
  int64_t environments = 1;
  int64_t rows = 0;  // of each environment; above n_step + 1
  int64_t observation_size = 0;
  int64_t n_step = 1;
  double gamma = 1;
  int64_t leaves() const { return environments * rows; }
};

struct ReplayRow {
  float reward;
  int32_t action;
  End end;
  int32_t closing;  // 1: the last observation of a truncated episode, no step
};

// What a transition of n steps is, beside its two observations.
struct Transition {
  float reward;    // the discounted sum
  float discount;  // of what comes after: gamma^n, 0 where the episode is over
  int32_t action;
};

class Replay {
 public:
  // seen [environments, rows, observation_size], rows [environments, rows], written [environments], sums words(leaves)
  Replay(const ReplayShape& shape, float* seen, ReplayRow* rows, int64_t* written, std::span<int64_t> sums);

  // One environment step. `last`: the observation after it, where the episode was truncated. Rows that can be drawn
  // from now on get `priority`; the oldest rows make room.
  void add(int64_t environment, const float* observation, int32_t action, float reward, End end, const float* last,
           int64_t priority);

  PriorityTree& priorities() { return tree_; }
  void prefetch(int64_t row) const;  // into the cache, before take()
  // A row that can be drawn: copies its observation and the one n steps later (any, where the discount is 0).
  Transition take(int64_t row, float* before, float* after) const;

 private:
  int64_t leaf(int64_t environment, int64_t number) const { return environment * shape_.rows + number % shape_.rows; }
  void put(int64_t leaf, const float* observation, const ReplayRow& row);

  ReplayShape shape_;
  float* seen_;
  ReplayRow* rows_;
  int64_t* written_;
  PriorityTree tree_;
};

}  // namespace tandem
