// recipes/web_agent_settings.h -- settings of `web-agent`: one of the six decision problems of a web-testing product.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "rl/dqn_settings.h"
#include "world/web_agents.h"

namespace tandem {

struct WebAgentSettings : DqnSettings {
  std::string agent = "requirements";

  void describe(Describer& d) override {
    DqnSettings::describe(d);
    d.key("agent", agent, Choices{{"requirements", "generation", "execution", "observation", "analysis", "evolution"}},
          "which of the six is trained");
  }

  std::optional<HistoryShape> history_shape() const override {
    HistoryShape shape{kObservation, kActions, {}};
    for (const WebAgentInfo& info : kWebAgentTable) shape.agents.emplace_back(info.name);
    return shape;
  }
  int32_t history_agent() const override { return web_agent_of(agent); }

  // What `--quick` sets: a short training that shows what it does, about 20 seconds of one core.
  static std::vector<std::pair<std::string, std::string>> quick() {
    return {{"shards", "2"},
            {"batch_size", "64"},
            {"environments", "16"},
            {"capacity", "100000"},
            {"learning_starts", "2000"},
            {"target_rate", "0.01"},
            {"epsilon.steps", "1500"},
            {"replay.beta_steps", "4000"},
            {"net.dropout", "0"},
            {"schedule.kind", "cosine"},
            {"steps", "4000"}};
  }
};

}  // namespace tandem
