// recipes/web_agent_settings.h -- settings of `web-agent`: one of the six agents of a web-testing product.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "config/spelling.h"
#include "recipes/gate_rules.h"
#include "rl/dqn/dqn_settings.h"
#include "world/web_agents.h"

namespace tandem {

struct WebAgentSettings : DqnSettings {
  std::string agent = "requirements";
  std::string gate;  // recipes/gate_rules.h

  void describe(Describer& d) override {
    DqnSettings::describe(d);
    d.key("agent", agent, "which of the six agents to train, or several in one run: analysis,evolution; or all");
    d.key("gate", gate,
          Grammar{"old=refuse, old=warn or old=off, and the same of new, such as old=warn,new=off", wrong_gate_rules},
          "with --from: what a gate that is not passed does; refuse where it is not named", Role::kRunning);
  }

  static const std::vector<std::string>& all_agents() {
    static const std::vector<std::string> all{"requirements", "generation", "execution",
                                              "observation",  "analysis",   "evolution"};
    return all;
  }

  std::vector<std::string> agents() const {
    if (agent == "all") return all_agents();
    std::vector<std::string> names;
    for (size_t begin = 0; begin <= agent.size();) {
      const size_t end = std::min(agent.find(',', begin), agent.size());
      names.push_back(agent.substr(begin, end - begin));
      begin = end + 1;
    }
    return names;
  }

  void check() const override {
    DqnSettings::check();
    const std::vector<std::string> names = agents();
    for (size_t i = 0; i < names.size(); ++i) {
      if (std::ranges::find(all_agents(), names[i]) == all_agents().end()) {
        const std::string near = nearest_word(names[i], all_agents());
        throw ConfigError(
            fmt::format("there is no agent '{}'", printable(names[i])),
            fmt::format("the six are {}", fmt::join(all_agents(), ", ")),
            near.empty() ? "name one of them, several with commas, or all" : fmt::format("did you mean '{}'?", near));
      }
      if (std::ranges::count(names, names[i]) > 1)
        throw ConfigError(fmt::format("agent '{}' is named twice", names[i]), "each learns once",
                          "name every agent once");
    }
    if (names.size() > 1 && !(experience.files.empty() && from.empty()))
      throw ConfigError("several agents side by side, with weights or experience to begin with",
                        "these belong to one agent", "name one agent, or use `tandem train web-test`");
    if (names.size() > 1 && precision == "fp16")
      throw ConfigError("several agents side by side in fp16", "the loss scale of one would be the other's",
                        "use --precision bf16 or fp32, or train them one by one");
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
