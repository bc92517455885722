// ppo.h -- what an environment of your own includes, to be learned by tandem's PPO (examples/own_env).
#pragma once

#include "recipes/ppo_entry.h"
#include "rl/ppo/ppo.h"
