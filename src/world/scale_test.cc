#include "world/scale.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "world/solver/solver.h"
#include "world/web_agents.h"

namespace tandem {
namespace {

TEST(WebScale, BelongsToTheseEnvironments) {
  EXPECT_EQ(web_test_digest(), kWebTestDigest)
      << "an environment changed: run tandem_world_solve and put its rows and this digest into world/scale.h";
}

class EachScale : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(WebScale, EachScale, testing::Range(0, kWebAgents),
                         [](const auto& info) { return std::string(kWebAgentTable[info.param].name); });

TEST_P(EachScale, IsWhatAQuickReplayGives) {
  const WebScale& scale = kWebScale[GetParam()];
  with_web_environment(GetParam(), [&](auto environment) {
    const Solver<decltype(environment)> solver(99);
    Params params;
    std::copy(std::begin(scale.tuned_params), std::end(scale.tuned_params), params.begin());
    const auto near = [](const PolicyReturn& now, const WebReturn& then) {
      EXPECT_NEAR(now.mean, then.mean, 4 * std::hypot(now.error, then.error));
    };
    near(solver.play_random(1500), scale.random);
    near(solver.play_rule(1500), scale.rule);
    near(solver.play_tuned(params, 1500), scale.tuned);
  });
}

TEST_P(EachScale, HasRoomBetweenRandomRuleAndSolver) {
  const WebScale& scale = kWebScale[GetParam()];
  EXPECT_EQ(scale.score(scale.random.mean), 0);
  EXPECT_EQ(scale.score(scale.solver().mean), 1);
  EXPECT_GT(scale.score(scale.rule.mean), 0.3);
  EXPECT_LT(scale.score(scale.rule.mean), 0.75);
  EXPECT_LT(scale.solver().error, 0.05 * (scale.solver().mean - scale.random.mean));
}

// Planning never does worse than the policy it starts from, beyond chance.
TEST_P(EachScale, PlanningIsNoWorseThanItsBase) {
  const WebScale& scale = kWebScale[GetParam()];
  EXPECT_GT(scale.planned.mean, scale.tuned.mean - 3 * scale.planned.error);
}

}  // namespace
}  // namespace tandem
