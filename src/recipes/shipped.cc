#include "recipes/shipped.h"

#include <fmt/format.h>

#include "base/errors.h"
#include "command/command.h"
#include "config/resolved_recipe.h"
#include "recipes/baselines.h"
#include "recipes/dqn_checkpoint.h"
#include "recipes/experience_at_start.h"
#include "recipes/gym_eval.h"
#include "recipes/gym_ppo_settings.h"
#include "recipes/gym_settings.h"
#include "recipes/options_settings.h"
#include "recipes/tiny_rl_eval.h"
#include "recipes/tiny_rl_settings.h"
#include "recipes/tiny_settings.h"
#include "recipes/validation_eval.h"
#include "recipes/video_settings.h"
#include "recipes/web_agent_settings.h"
#include "world/web_agents.h"

namespace tandem {
namespace {

using On = SettingFlag::On;

// Needs: on the host the peak of one worker over 60 steps at the recipe's own sizes, as measured, with some room; on a
// GPU that and about 0.7 GiB for CUDA's context and libraries, which is an estimate (`tandem plan` measures).
constexpr MemoryNeed kSmall{1.0, 0.2}, kGymNeed{1.0, 0.3}, kWebNeed{2.0, 1.3}, kOptionsNeed{2.0, 0.6},
    kVideoNeed{12.0, 2.0};

const SettingFlag kExperienceFlag{"--experience", "experience.files", "files",
                                  "JSON lines of a real system to learn from, separated by commas", On::kTrainOnly};

const SettingFlag kEnvironmentFlag{
    "--env", "env.id", "name", "environment of recipes dqn and ppo: gym:CartPole-v1, my_module:MyEnv", On::kPlanToo};
const SettingFlag kEnvironmentsFlag{"--num-envs", "env.count", "n", "parallel environments, over all shards",
                                    On::kPlanToo};

std::string web_action_name(const std::string& agent, int64_t action) {
  const int32_t number = web_agent_of(agent);
  if (number < 0) return "";
  const WebAgentInfo& info = kWebAgentTable[number];
  return fmt::format("{} {}", action % 2 == 0 ? info.light : info.heavy, info.actions[action / 2]);
}

RecipeInfo tiny() {
  RecipeInfo info{"tiny", "a small classifier on generated data: dropout, batch norm, 24 shards",
                  [] { return std::make_unique<TinySettings>(); }};
  info.verbs = {validation_eval_verb()};
  info.need = kSmall;
  info.baseline = kTinyBaseline;
  info.tries_machine = true;
  return info;
}

RecipeInfo tiny_rl() {
  RecipeInfo info{"tiny-rl", "a small Q-learner: shards own games and a replay ring",
                  [] { return std::make_unique<TinyRlSettings>(); }};
  info.verbs = {tiny_rl_eval_verb()};
  info.need = kSmall;
  return info;
}

RecipeInfo web_agent(const AgentOnGpu& on_gpu) {
  RecipeInfo info{"web-agent", "one of the six web-test agents: dueling double DQN, prioritized replay over all shards",
                  [] { return std::make_unique<WebAgentSettings>(); }, WebAgentSettings::quick()};
  info.flags = {
      kExperienceFlag,
      {"--gate", "gate", "rules", "with --from: old=refuse, warn or off (worse on the old), new=... (worse on the new)",
       On::kTrainOnly}};
  info.verbs = {act_verb(on_gpu, web_action_name)};
  info.examples = {{"plan web-agent --hardware 3060ti+2x3070 --price-kwh 0.30", "unequal GPUs, your electricity"}};
  info.need = kWebNeed;
  info.checkpoint_bytes = [](const RecipeSettings& settings) {
    const auto& agent = dynamic_cast<const WebAgentSettings&>(settings);
    return agent.agents().size() * dqn_checkpoint_bytes(agent, kObservation, kActions);
  };
  info.bench.among_all = false;  // web-test trains it
  info.baseline = kWebAgentBaseline;
  begin_with_experience(info);
  info.before_train = [](const Command& command, ResolvedRecipe& recipe) {
    if (!command.arguments.from && recipe.resolver->strength("gate") > 1)
      throw ConfigError("--gate without --from", "gates judge a model that goes on from a trained run",
                        "name the run: --from last");
    take_experience(command, recipe);
  };
  return info;
}

RecipeInfo gym_dqn(const AgentOnGpu& on_gpu) {
  RecipeInfo info{"dqn", "dueling double DQN on any Gymnasium environment: --env gym:CartPole-v1",
                  [] { return std::make_unique<GymSettings>(); }};
  info.flags = {kEnvironmentFlag, kEnvironmentsFlag, kExperienceFlag};
  info.verbs = {act_verb(on_gpu), gym_eval_verb()};
  info.examples = {{"train dqn --env gym:CartPole-v1 --num-envs 8", "a DQN on an environment in Python"},
                   {"train dqn --experience history.jsonl", "offline, from recorded transitions of any size"}};
  info.need = kGymNeed;
  begin_with_experience(info);
  return info;
}

RecipeInfo options_trader() {
  RecipeInfo info{"options", "an options trader on daily bars: LSTM and attention (CLSTM), PPO, walk-forward folds",
                  [] { return std::make_unique<OptionsSettings>(); }, OptionsSettings::quick()};
  info.flags = {
      {"--data", "data", "folder", "of options: daily bars, a file for each symbol; none: a generated market",
       On::kPlanToo},
      {"--symbols", "symbols", "list", "of options: those to use, separated by commas; none: all of the folder",
       On::kPlanToo},
      {"--walk-forward", "walk_forward", "n", "of options: train each of n folds, judged by the days after it",
       On::kPlanToo},
      {"--seeds", "seeds", "n", "of options: n runs of each fold, by seeds", On::kPlanToo},
      {"--fold", "fold", "n", "of options: the fold of one run", On::kPlanToo},
      {"--pretraining", "pretrain.iterations", "n",
       "of options: first learn to forecast price, volatility and volume from so many rollouts", On::kPlanToo},
      {"--enable-multi-leg", "env.multi_leg", std::string(kSwitchValue),
       "of options: 91 actions, with spreads, straddles, iron condors and butterflies", On::kPlanToo}};
  info.examples = {{"train options --quick", "an options trader on a generated market, a short training"},
                   {"train options --num_gpus 4 --num_episodes 5000 --batch_size 256", "on four GPUs"},
                   {"train options --data prices --walk-forward 4 --seeds 3", "twelve runs: every fold, three seeds"}};
  info.need = kOptionsNeed;
  info.gpu_precision = "tf32";
  info.bench.among_all = false;  // hours on a CPU
  return info;
}

RecipeInfo video() {
  RecipeInfo info{"video", "what an animal does in each frame of a video: a 3D CNN on 17-frame clips, by macro F1",
                  [] { return std::make_unique<VideoSettings>(); }, VideoSettings::quick()};
  info.flags = {
      {"--data", "data", "folder", "of video: videos and annotations, a CSV for each trial; none: a generated set",
       On::kPlanToo},
      {"--lr-scaling", "schedule.batch_scaling", "word",
       "none, linear, sqrt: the learning rate grows with the batch, beside that of schedule.base_batch", On::kPlanToo}};
  info.examples = {{"train video --quick", "a video classifier on a generated set, a short training"},
                   {"train video --data mice --gpus 0,1,2", "on your videos, on three GPUs"}};
  info.need = kVideoNeed;
  info.gpu_precision = "bf16";
  info.bench.among_all = false;  // hours on a CPU
  return info;
}

RecipeInfo gym_ppo() {
  RecipeInfo info{"ppo", "PPO on any Gymnasium environment, discrete or continuous actions: --env gym:Pendulum-v1",
                  [] { return std::make_unique<GymPpoSettings>(); }};
  info.flags = {kEnvironmentFlag, kEnvironmentsFlag};
  info.verbs = {gym_ppo_eval_verb()};
  info.examples = {{"train ppo --env gym:CartPole-v1 --num-envs 8", "PPO on an environment in Python"}};
  info.need = kGymNeed;
  return info;
}

}  // namespace

std::vector<RecipeInfo> shipped_recipes(const AgentOnGpu& on_gpu) {
  return {tiny(), tiny_rl(), web_agent(on_gpu), gym_dqn(on_gpu), gym_ppo(), options_trader(), video()};
}

}  // namespace tandem
