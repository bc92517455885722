// rl/dqn/trained_agent.h -- the newest whole weights of a run of the DQN learner, ready to answer.
#pragma once

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "checkpoint/safetensors.h"
#include "rl/dqn/q_net.h"

namespace tandem {

struct TrainedAgent {
  std::shared_ptr<const QNet> net;
  std::filesystem::path run;
  int64_t step = 0;
  std::string digest, kind, recipe;
  std::string agent;        // empty: the recipe has no such key
  nlohmann::json settings;  // those that decide the weights, from the checkpoint
  SafetensorsFile model;
  std::vector<std::string> refused;  // newer checkpoints passed over, each with its reason
};

// Reads the weights and leaves the replay buffer alone. Throws Error if there are none, or of another kind of net. Of a
// run whose agents learned in one job, `agent` says whose: weights and digest are those that it would have alone.
TrainedAgent load_agent(const std::filesystem::path& run, const std::string& agent = "");

}  // namespace tandem
