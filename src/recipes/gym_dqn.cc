// recipes/gym_dqn.cc -- `dqn`: a Gymnasium environment of rl/gym/gym_environment.h, learned by rl/dqn/dqn.h.
#include "recipes/gym_settings.h"
#include "recipes/makers.h"
#include "rl/dqn/dqn.h"
#include "rl/gym/gym_environment.h"

namespace tandem {
namespace {

struct Learner {
  DqnSettings settings;
};

// The learner's settings live as long as the learner: the base that holds them comes first.
class GymDqn : private Learner, public Dqn {
 public:
  explicit GymDqn(const GymSettings& s)
      : Learner{s.learner()},
        Dqn(settings, std::make_unique<GymEnvironment>(GymOptions{.environment = s.id,
                                                                  .arguments = s.arguments,
                                                                  .python = s.python,
                                                                  .timeout_seconds = s.timeout,
                                                                  .restarts = s.restarts,
                                                                  .live = s.count},
                                                       s.longest, s.exact == "require")) {}
};

}  // namespace

std::unique_ptr<Recipe> make_gym_dqn(const GymSettings& settings) { return std::make_unique<GymDqn>(settings); }

}  // namespace tandem
