// runs/run_places.h -- before a run goes on: what it will append to are files, and its folders are folders.
//
// A run folder may come from elsewhere. A link or a pipe in the place of one of its files is refused before anything is
// written; the opens themselves refuse it too (base/plain_file.h), for one that is put there later.
#pragma once

#include <filesystem>

namespace tandem {

// Throws ConfigError that names the first one that is not what it should be; checkpoints/ and the generations in it
// too, of the run and of the runs of a set (agents/*).
void check_run_places(const std::filesystem::path& run_dir);

}  // namespace tandem
