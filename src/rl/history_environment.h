// rl/history_environment.h -- stands for the environment where a learner has a recorded history alone: it knows the
// sizes and can't be played.
#pragma once

#include <stdexcept>

#include "rl/environment.h"

namespace tandem {

class HistoryEnvironment : public Environment {
 public:
  HistoryEnvironment(int64_t observation_size, int64_t actions) : size_(observation_size), actions_(actions) {}
  int64_t observation_size() const override { return size_; }
  int64_t actions() const override { return actions_; }
  int64_t state_bytes() const override { return 1; }
  int64_t max_episode_steps() const override { return 1; }
  void reset(std::byte*, int64_t, const RandomKey&, const Outcome*) const override { refuse(); }
  void observe(const std::byte*, float*, int64_t) const override { refuse(); }
  void step(std::byte*, const int32_t*, Outcome*, int64_t, const RandomKey&) const override { refuse(); }

 private:
  [[noreturn]] static void refuse() { throw std::logic_error("a history can't be played"); }
  int64_t size_, actions_;
};

}  // namespace tandem
