// rl/dqn/initial_weights.h -- weights that a training begins with, from a safetensors file.
#pragma once

#include <string>

namespace torch::nn {
class Module;
}

namespace tandem {

class SafetensorsFile;

// Every parameter of the module gets the tensor of its name. Throws CheckpointError if one is missing or of another
// size; `name` is what the message calls the file.
void copy_weights(torch::nn::Module& module, const SafetensorsFile& model, const std::string& name);
// The same from a file whose digest (checkpoint/digest.h) must be `digest`.
void load_weights(torch::nn::Module& module, const std::string& file, const std::string& digest);

}  // namespace tandem
