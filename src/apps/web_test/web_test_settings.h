// apps/web_test/web_test_settings.h -- settings of `web-test`: all six agents of a web-testing product, each a job of
// recipe `web-agent`. Every key of web-agent holds for all of them; `analysis.steps = 9000` for one.
#pragma once

#include <string>
#include <vector>

#include "config/members.h"
#include "recipes/web_agent_settings.h"

namespace tandem {

struct WebTestSettings : DqnSettings, HasMembers {
  std::string strategy = "agents";  // agents, ddp, ensemble
  std::string assignment = "auto";  // auto, balanced, specialized, hierarchical
  std::string agents;               // "requirements,generation"; empty: all six
  std::string together = "auto";    // auto, on, off: agents with equal settings side by side in one run
  std::string assign;               // "requirements=0,generation=1": the device that an agent begins on

  static std::vector<std::string> all_agents() {
    return {"requirements", "generation", "execution", "observation", "analysis", "evolution"};
  }

  // Steps alone: what is left of a job must be known beforehand.
  std::vector<std::string> units() const override { return {}; }

  void describe(Describer& d) override {
    DqnSettings::describe(d);
    d.key("strategy", strategy, Choices{{"agents", "ddp", "ensemble"}},
          "agents: one per device; ddp: each in turn on all devices; ensemble: three members of each", Role::kRunning);
    d.key("assignment", assignment, Choices{{"auto", "balanced", "specialized", "hierarchical"}},
          "agent that a free device takes next (docs/web-test.md); auto: the one with which the set ends first",
          Role::kRunning);
    d.key("together", together, Choices{{"auto", "on", "off"}},
          "several agents in one run: always, never, or (auto) on GPUs where the forecast is better with it",
          Role::kRunning);
    d.key("agents", agents, "agents to train, in this order; empty: all six", Role::kRunning);
    d.key("assign", assign, "device that an agent begins on, by number: analysis=0,evolution=1", Role::kRunning);
  }

  std::vector<std::string> members() const override { return all_agents(); }
  std::vector<std::string> shared_keys() const override {
    return {"strategy", "assignment", "together", "agents", "assign", "devices", "max_time"};
  }

  void check() const override;
};

// The agents that a text names, in its order. Throws ConfigError: unknown (with the nearest name), twice, none.
std::vector<std::string> agents_named(const std::string& text);

// Device of each agent that a text pins to one. Throws ConfigError: unknown agent or device, an agent twice.
std::vector<std::pair<std::string, int>> pins_named(const std::string& text, int devices);

}  // namespace tandem
