// recipes/act.h -- the verb `act` of recipes that learn with the DQN: states in, actions out, one JSON line for each.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "config/recipe_list.h"

namespace tandem {

class QFunction;
struct TrainedAgent;

// An agent that answers from this process's GPU (rl/dqn/gpu_agent.h); a program without libtorch has none, and starts
// its worker for it.
using AgentOnGpu = std::function<std::shared_ptr<const QFunction>(const TrainedAgent&)>;
// What an action of an agent is called; empty: it has no name.
using ActionName = std::function<std::string(const std::string& agent, int64_t action)>;

RecipeVerb act_verb(AgentOnGpu on_gpu = {}, ActionName name = {});

}  // namespace tandem
