// cli/gpu_flags.h -- `--gpus` and `--num-gpus` as the setting `devices`.
//
// A single number is how many, as it is for `plan` and for most trainers: `--gpus 4` is the first four. Several
// numbers, or one with a comma after it, say which: `--gpus 0,2`, `--gpus 4,`. `--gpus 0` is the first GPU.
#pragma once

#include <string>

namespace tandem {

// "cuda:0,cuda:1"; "cuda:all" for -1 and all. Throw ConfigError.
std::string devices_of_gpus(const std::string& text);
std::string devices_of_count(const std::string& text, const std::string& flag = "--num-gpus");

}  // namespace tandem
