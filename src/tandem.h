// tandem.h -- what the author of a recipe includes: settings, data, layers, the recipe itself (examples/own_model).
//
// The main() of a program includes <tandem/program.h>, an environment for the DQN <tandem/dqn.h>.
#pragma once

#include "engine/packing.h"
#include "engine/supervised.h"
#include "kernels/cpu/random_fill.h"
#include "nn/attention.h"
#include "nn/batch_norm.h"
#include "nn/channels_last.h"
#include "nn/clips.h"
#include "nn/conv2d.h"
#include "nn/conv3d.h"
#include "nn/cross_entropy.h"
#include "nn/dropout.h"
#include "nn/embedding.h"
#include "nn/first_block3d.h"
#include "nn/layer_norm.h"
#include "nn/linear.h"
#include "nn/lstm.h"
#include "nn/multihead_attention.h"
#include "nn/norm_pool3d.h"
#include "nn/pool2d.h"
#include "nn/pool3d.h"
#include "nn/shard_sums.h"
#include "nn/tie_weights.h"
