// tandem.h -- what a program with its own model or environment includes; see examples/own_model and examples/own_env.
#pragma once

#include "cli/program.h"
#include "engine/supervised.h"
#include "kernels/cpu/random_fill.h"
#include "nn/batch_norm.h"
#include "nn/dropout.h"
#include "rl/dqn/dqn.h"
