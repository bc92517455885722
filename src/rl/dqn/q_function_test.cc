#include "rl/dqn/q_function.h"

#include <gtest/gtest.h>

namespace tandem {
namespace {

struct Fixed : QFunction {
  explicit Fixed(std::vector<float> q) : q(std::move(q)) {}
  int64_t observation_size() const override { return 1; }
  int64_t actions() const override { return static_cast<int64_t>(q.size()); }
  void q_values(const float* states, int64_t n, float* out) const override {
    for (int64_t r = 0; r < n; ++r)
      for (size_t a = 0; a < q.size(); ++a) out[r * actions() + static_cast<int64_t>(a)] = q[a] * states[r];
  }
  std::vector<float> q;
};

TEST(QEnsemble, WeighsMembersEquallyWhateverTheScaleOfTheirValues) {
  const QEnsemble ensemble({std::make_shared<Fixed>(std::vector<float>{0, 1, 2}),
                            std::make_shared<Fixed>(std::vector<float>{0, 3, 1}),
                            std::make_shared<Fixed>(std::vector<float>{1000, 0, 500})});
  const float states[2] = {1, 2};
  float q[6];
  ensemble.q_values(states, 2, q);
  EXPECT_EQ(best_action(q, 3), 2);
  for (int a = 0; a < 3; ++a) EXPECT_NEAR(q[a], q[3 + a], 1e-6) << "the scale of a state's values says nothing";
}

TEST(QEnsemble, IgnoresAMemberWithEqualValues) {
  const QEnsemble ensemble(
      {std::make_shared<Fixed>(std::vector<float>{4, 4}), std::make_shared<Fixed>(std::vector<float>{0, 1})});
  const float state = 1;
  float q[2];
  ensemble.q_values(&state, 1, q);
  EXPECT_NEAR(q[1], 0.5, 1e-6);
  EXPECT_NEAR(q[0], -0.5, 1e-6);
}

TEST(QFunction, TakesTheFirstOfEqualActions) {
  const float q[4] = {1, 3, 3, 2};
  EXPECT_EQ(best_action(q, 4), 1);
}

}  // namespace
}  // namespace tandem
