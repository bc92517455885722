// tandem.h -- what a program with its own model includes; see examples/own_model.
#pragma once

#include "cli/program.h"
#include "engine/supervised.h"
#include "kernels/random_fill.h"
#include "nn/batch_norm.h"
#include "nn/dropout.h"
