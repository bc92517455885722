// recipes/gym_ppo.cc -- `ppo`: a Gymnasium environment of rl/gym/gym_environment.h, learned by rl/ppo/ppo.h.
#include "recipes/gym_ppo_settings.h"
#include "recipes/makers.h"
#include "rl/gym/gym_environment.h"
#include "rl/ppo/ppo.h"

namespace tandem {
namespace {

struct GymPpoLearner {
  GymPpoSettings learner_settings;
};

// The learner's settings live as long as the learner: the base that holds them comes first.
class GymPpo : private GymPpoLearner, public Ppo {
 public:
  explicit GymPpo(const GymPpoSettings& s)
      : GymPpoLearner{s.learner()},
        Ppo(learner_settings,
            std::make_unique<GymEnvironment>(s.gym_options(s.count), s.longest, s.exact == "require")) {}
};

}  // namespace

std::unique_ptr<Recipe> make_gym_ppo(const GymPpoSettings& settings) { return std::make_unique<GymPpo>(settings); }

}  // namespace tandem
