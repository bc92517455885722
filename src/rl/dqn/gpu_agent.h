// rl/dqn/gpu_agent.h -- a trained agent that answers by libtorch from this process's device: `tandem act --devices
// cuda:0`.
#pragma once

#include <memory>

#include "rl/dqn/q_function.h"
#include "rl/dqn/trained_agent.h"

namespace tandem {

// On the device that is open; with TANDEM_ACT_DEVICE in the environment it opens the GPU first. Throws Error.
std::shared_ptr<const QFunction> agent_on_gpu(const TrainedAgent& trained);

}  // namespace tandem
