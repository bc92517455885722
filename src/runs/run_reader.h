// runs/run_reader.h -- one run folder as one row of the index.
#pragma once

#include <cstdint>
#include <filesystem>

#include "runs/index.h"

namespace tandem {

// Reads run.json, training_stats.json and recipe.toml; what is missing or damaged is left at its default. Never throws
// for a bad file.
RunRow read_run(const std::filesystem::path& dir);

// Changes whenever one of those files is replaced: newest modification time and sizes, mixed into one number.
int64_t run_stamp(const std::filesystem::path& dir);

}  // namespace tandem
