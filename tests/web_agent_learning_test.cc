// A short training teaches: two agents, a few seconds each, judged on episodes that training never saw.
#include <gtest/gtest.h>

#include <fstream>

#include "apps/web_test/web_evaluation.h"
#include "base/temp_dir.h"
#include "config/resolver.h"
#include "engine/determinism.h"
#include "engine/train_loop.h"
#include "recipes/makers.h"
#include "recipes/web_agent_settings.h"
#include "recipes/web_environment.h"
#include "rl/dqn/dqn.h"

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

// Half by the rule of thumb, half at random: what a cautious team's records look like.
TEST(WebAgentLearning, FromHistoryAloneItBeatsWhoWroteTheHistory) {
  constexpr int32_t kAgent = 5;  // evolution
  const WebEnvironment world(kAgent);
  const Policy random = random_play(world, 7);
  const Policy writer = [&](const std::byte* states, int64_t n, uint64_t step, const ChosenActions& actions) {
    std::vector<int32_t> by_rule(static_cast<size_t>(n));
    random(states, n, step, actions);
    rule_web(kAgent, reinterpret_cast<const WebTestState*>(states), by_rule.data(), n);
    for (int64_t i = 0; i < n; ++i)
      if (random_uniform(RandomKey{7, step, 0, 99}, i) < 0.5) actions.discrete[i] = by_rule[static_cast<size_t>(i)];
  };
  const TempDir dir;
  std::ofstream(dir / "history.jsonl") << record_episodes("evolution", writer, 250, 7);

  WebAgentSettings settings;
  Resolver resolver(settings);
  for (const auto& [key, value] : WebAgentSettings::quick()) resolver.set(key, value, "--quick");
  settings.agent = "evolution";
  settings.experience.files = (dir / "history.jsonl").string();
  settings.steps = settings.schedule.total_steps = 600;
  settings.check();
  ASSERT_EQ(settings.playing(), 0);
  set_determinism();
  TrainLoop loop(settings, make_web_agent(settings), ShardPlan::balance(2, std::vector{1.0}));
  while (loop.steps_done() < settings.steps) loop.step();
  const Evaluation learned = dynamic_cast<const Dqn&>(loop.recipe()).evaluate(400, 1),
                   wrote = play(world, writer, 400, 1);
  EXPECT_GT(learned.mean, wrote.mean + 3 * (learned.error + wrote.error))
      << "learned " << *learned.score << " wrote " << *wrote.score;
  RecordProperty("learned", std::to_string(*learned.score));
  RecordProperty("wrote", std::to_string(*wrote.score));
}

TEST(WebAgentLearning, AnalysisIsFarAboveRandomInAFewSeconds) { learns("analysis"); }
TEST(WebAgentLearning, GenerationIsFarAboveRandomInAFewSeconds) { learns("generation"); }

}  // namespace
}  // namespace tandem
