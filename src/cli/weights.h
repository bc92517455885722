// cli/weights.h -- finds and verifies the weights that a word on the command line means.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/safetensors.h"
#include "cli/commands.h"

namespace tandem {

struct Weights {
  SafetensorsFile model;
  std::filesystem::path path;        // file or checkpoint folder
  std::string run_id, recipe, kind;  // empty for a bare file that does not tell
  std::optional<int64_t> step;
  std::vector<std::string> refused;  // newer checkpoints passed over, each with its reason
};

// `word` is a .safetensors file, a checkpoint folder, a run's folder, or a run as RunFolder::find takes it; `step`
// chooses one of a run's checkpoints, and --agent one agent of a run that has several: its best run, and in it the
// weights that are its own. Every byte is verified against its sums where there are any. Throws Error.
Weights find_weights(const Command& command, const std::string& word, std::optional<int64_t> step);

}  // namespace tandem
