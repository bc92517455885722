// recipes/web_environment.h -- the environment of a web-test agent as a learner sees it.
#pragma once

#include "rl/environment.h"
#include "world/web_agents.h"

namespace tandem {

class WebEnvironment : public Environment {
 public:
  explicit WebEnvironment(int32_t agent) : agent_(agent) {}
  int64_t observation_size() const override { return kObservation; }
  int64_t actions() const override { return kActions; }
  int64_t state_bytes() const override { return sizeof(WebTestState); }
  int64_t max_episode_steps() const override { return kWebAgentTable[agent_].length; }
  std::vector<std::string> terms() const override;
  std::optional<double> score(double mean_return) const override;  // of world/scale.h
  void reset(std::byte* states, int64_t n, const RandomKey& key, const Outcome* only_ended) const override;
  void observe(const std::byte* states, float* out, int64_t n) const override;
  void step(std::byte* states, const int32_t* actions, Outcome* out, int64_t n, const RandomKey& key) const override;

 protected:
  int32_t agent_;
};

}  // namespace tandem
