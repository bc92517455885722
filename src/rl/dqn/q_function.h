// rl/dqn/q_function.h -- a trained agent as its users see it: numbers in, a value for each action out. No libtorch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "rl/play.h"

namespace tandem {

class QFunction {
 public:
  virtual ~QFunction() = default;
  virtual int64_t observation_size() const = 0;
  virtual int64_t actions() const = 0;
  // states [n, observation_size] -> out [n, actions]. Several threads may ask at once.
  virtual void q_values(const float* states, int64_t n, float* out) const = 0;
};

// Several agents as one. Each one's values are first brought to mean 0 and deviation 1 over the actions of a state, so
// that an agent with larger values has no more weight; then they are averaged.
class QEnsemble : public QFunction {
 public:
  explicit QEnsemble(std::vector<std::shared_ptr<const QFunction>> members) : members_(std::move(members)) {}
  int64_t observation_size() const override { return members_.front()->observation_size(); }
  int64_t actions() const override { return members_.front()->actions(); }
  void q_values(const float* states, int64_t n, float* out) const override;

 private:
  std::vector<std::shared_ptr<const QFunction>> members_;
};

// The action of the largest value; of equal ones the first.
int32_t best_action(const float* q, int64_t actions);
// The greedy policy. Both must outlive it.
Policy greedy_play(const Environment& environment, const QFunction& q);

}  // namespace tandem
