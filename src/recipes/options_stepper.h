// recipes/options_stepper.h -- the options environment as training steps it: on a GPU by its own kernel
// (market/cuda_options_environment.h), with the market's days in the GPU's memory.
#pragma once

#include <memory>

#include "market/options_environment.h"

namespace tandem {

// The same environment; its rollouts are stepped where the policy is. On a CPU the host steps them as ever.
std::unique_ptr<OptionsEnvironment> stepped_beside_the_policy(const OptionsEnvironment& environment);

}  // namespace tandem
