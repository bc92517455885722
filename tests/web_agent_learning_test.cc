// A short training teaches: two agents, a few seconds each, judged on episodes that training never saw.
#include <gtest/gtest.h>

#include "config/resolver.h"
#include "engine/determinism.h"
#include "engine/train_loop.h"
#include "recipes/makers.h"
#include "recipes/web_agent_settings.h"
#include "rl/dqn.h"

namespace tandem {
namespace {

void learns(const std::string& agent) {
  WebAgentSettings settings;
  Resolver resolver(settings);
  for (const auto& [key, value] : WebAgentSettings::quick()) resolver.set(key, value, "--quick");
  settings.agent = agent;
  settings.steps = settings.schedule.total_steps = 500;
  settings.epsilon_steps = 200;
  settings.check();
  set_determinism();
  TrainLoop loop(settings, make_web_agent(settings), ShardPlan::balance(2, std::vector{1.0}));
  const Dqn& dqn = dynamic_cast<const Dqn&>(loop.recipe());
  while (loop.steps_done() < settings.steps) loop.step();
  const Evaluation learned = dqn.evaluate(400, 1), random = evaluate_random(dqn.environment(), 400, 1);
  EXPECT_GT(learned.mean, random.mean + 6 * (learned.error + random.error))
      << agent << " " << learned.mean << " +- " << learned.error << ", random " << random.mean;
  EXPECT_EQ(learned.terms.size(), 4u);
  if (learned.score) {
    EXPECT_GT(*learned.score, 0.1);
  }
}

TEST(WebAgentLearning, AnalysisIsFarAboveRandomInAFewSeconds) { learns("analysis"); }
TEST(WebAgentLearning, GenerationIsFarAboveRandomInAFewSeconds) { learns("generation"); }

}  // namespace
}  // namespace tandem
