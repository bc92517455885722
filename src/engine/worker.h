// engine/worker.h -- the process that drives one device: takes orders, trains its shards, writes its part of snapshots.
//
// It is started by a launcher that holds everything a death must not reach: the member list, the snapshots, the records
// of the steps, the files. The worker has a channel for commands (TANDEM_WORKER_FD), a page of shared memory
// (TANDEM_PAGE_FD) and its number (TANDEM_RANK), and nothing else in the world that another worker could break.
#pragma once

#include <filesystem>
#include <vector>

#include "engine/recipe.h"

namespace tandem {

// Returns the exit code. What went wrong is reported to the launcher.
int work(const std::filesystem::path& run_dir, const std::vector<RecipeEntry>& recipes);

}  // namespace tandem
