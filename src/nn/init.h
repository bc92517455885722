// nn/init.h -- torch's usual initial weights, drawn from the run's own random stream.
#pragma once

#include <cstdint>

namespace torch::nn {
class Module;
}

namespace tandem {

// Overwrites the weights of Linear, Conv, Embedding, LSTM and GRU layers by torch's default rules (uniform within
// 1/sqrt(fan_in), or normal for embeddings) with numbers keyed by (seed, number of the parameter). Parameters of other
// modules keep the values that their constructor gave them. Returns the first free number, for a second module.
uint64_t init_weights(torch::nn::Module& module, uint64_t seed, uint64_t first_number = 0);

}  // namespace tandem
