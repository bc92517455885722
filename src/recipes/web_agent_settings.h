// recipes/web_agent_settings.h -- settings of `web-agent`: one of the six decision problems of a web-testing product.
#pragma once

#include "rl/dqn_settings.h"

namespace tandem {

struct WebAgentSettings : DqnSettings {
  std::string agent = "requirements";

  void describe(Describer& d) override {
    DqnSettings::describe(d);
    d.key("agent", agent,
          Choices{{"requirements", "generation", "execution", "observation", "analysis", "evolution"}},
          "which of the six is trained");
  }

  // A short training that shows what it does: about 20 seconds of one core.
  static WebAgentSettings quick() {
    WebAgentSettings s;
    s.shards = 2;
    s.batch_size = 64;
    s.environments = 8;
    s.capacity = 100'000;
    s.learning_starts = 2000;
    s.target_rate = 0.01;
    s.epsilon_steps = 1500;
    s.optimizer.learning_rate = 1e-3;
    s.schedule.kind = "cosine";
    s.beta_steps = 4000;
    s.steps = 4000;
    s.net.dropout = 0;
    return s;
  }
};

}  // namespace tandem
