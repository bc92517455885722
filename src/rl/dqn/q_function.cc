#include "rl/dqn/q_function.h"

#include <algorithm>
#include <cmath>

namespace tandem {
namespace {

constexpr int64_t kAtOnce = 256;  // observations per batch

}  // namespace

void QEnsemble::q_values(const float* states, int64_t n, float* out) const {
  const int64_t count = actions();
  std::fill_n(out, n * count, 0.0f);
  std::vector<float> own(static_cast<size_t>(n * count));
  for (const auto& member : members_) {
    member->q_values(states, n, own.data());
    for (int64_t r = 0; r < n; ++r) {
      const float* const q = own.data() + r * count;
      double mean = 0, squares = 0;
      for (int64_t a = 0; a < count; ++a) mean += q[a] / static_cast<double>(count);
      for (int64_t a = 0; a < count; ++a) squares += (q[a] - mean) * (q[a] - mean) / static_cast<double>(count);
      if (squares <= 0) continue;  // no opinion
      const double scale = 1 / (std::sqrt(squares) * static_cast<double>(members_.size()));
      for (int64_t a = 0; a < count; ++a) out[r * count + a] += static_cast<float>((q[a] - mean) * scale);
    }
  }
}

int32_t best_action(const float* q, int64_t actions) {
  return static_cast<int32_t>(std::max_element(q, q + actions) - q);
}

Policy greedy_play(const Environment& environment, const QFunction& q) {
  return [&environment, &q](const std::byte* states, int64_t n, uint64_t, const ChosenActions& actions) {
    const int64_t width = environment.observation_size(), count = environment.actions();
    std::vector<float> seen(static_cast<size_t>(kAtOnce * width)), values(static_cast<size_t>(kAtOnce * count));
    for (int64_t first = 0; first < n; first += kAtOnce) {
      const int64_t rows = std::min(kAtOnce, n - first);
      environment.observe(states + first * environment.state_bytes(), seen.data(), rows);
      q.q_values(seen.data(), rows, values.data());
      for (int64_t r = 0; r < rows; ++r) actions.discrete[first + r] = best_action(values.data() + r * count, count);
    }
  };
}

}  // namespace tandem
