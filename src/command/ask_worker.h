// command/ask_worker.h -- a run's worker restores a checkpoint and answers in JSON: how good it is on the validation
// sets, or what the recipe was asked (Recipe::answer()).
#pragma once

#include <filesystem>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "command/command.h"
#include "runs/run_folder.h"

namespace tandem {

// `word`: "best", "last" or a step. Empty: the best, where there is one, else the last; `word` then becomes its name.
// Throws ConfigError if there is none.
std::filesystem::path checkpoint_asked_for(const RunFolder& run, std::string& word);

// The flags --checkpoint and --device of the command say which and where.
struct WorkerAnswer {
  std::string checkpoint;  // "best"
  std::shared_ptr<const nlohmann::json> found;
};
// `question`: null: its validation sets. `failed`: the end of "RUN could not be ...". Throws Error.
WorkerAnswer ask_worker(const Command& command, const RunFolder& run, const nlohmann::json& question,
                        const char* failed);

}  // namespace tandem
