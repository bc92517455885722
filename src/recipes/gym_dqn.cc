// recipes/gym_dqn.cc -- `dqn`: a Gymnasium environment of rl/gym/gym_environment.h, or a recorded history alone,
// learned by rl/dqn/dqn.h.
#include <fmt/format.h>

#include "base/errors.h"
#include "base/shell_word.h"
#include "recipes/gym_settings.h"
#include "recipes/makers.h"
#include "rl/dqn/dqn.h"
#include "rl/gym/gym_environment.h"
#include "rl/history_environment.h"

namespace tandem {
namespace {

struct Learner {
  GymSettings settings;
};

// Beside a history: the environment must be the one that it was recorded in.
void check_fits(const GymSettings& s, const Environment& environment) {
  if (s.experience.files.empty()) return;
  if (environment.observation_size() == s.history_state_size && environment.actions() >= s.history_actions) return;
  throw ConfigError(
      fmt::format("{} does not fit the experience", s.id),
      fmt::format("its states have {} numbers and it knows {} actions, the experience has {} and {}",
                  environment.observation_size(), environment.actions(), s.history_state_size, s.history_actions),
      "name the environment that was recorded, or leave experience.share at 1: no environment runs then");
}

std::unique_ptr<Environment> environment_of(const GymSettings& s) {
  if (s.offline()) {
    if (s.history_state_size < 1 || s.history_actions < 1)
      throw ConfigError("the sizes of the experience are not known", "`tandem train` reads them from its files",
                        "set experience.state_size and experience.actions");
    return std::make_unique<HistoryEnvironment>(s.history_state_size, s.history_actions);
  }
  auto environment = std::make_unique<GymEnvironment>(s.gym_options(s.count), s.longest, s.exact == "require");
  if (environment->action_size() > 0)
    throw ConfigError(fmt::format("{} has continuous actions", s.id), "a DQN values each of n actions",
                      fmt::format("learn it with PPO: `tandem train ppo --env {}`", shell_word(s.id)));
  check_fits(s, *environment);
  return environment;
}

// The learner's settings live as long as the learner: the base that holds them comes first.
class GymDqn : private Learner, public Dqn {
 public:
  explicit GymDqn(const GymSettings& s) : Learner{s.learner()}, Dqn(settings, environment_of(s)) {}
};

}  // namespace

std::unique_ptr<Recipe> make_gym_dqn(const GymSettings& settings) { return std::make_unique<GymDqn>(settings); }

}  // namespace tandem
