// dqn.h -- what an environment of your own includes, to be learned by tandem's DQN (examples/own_env).
#pragma once

#include "recipes/dqn_entry.h"
#include "rl/dqn/dqn.h"
