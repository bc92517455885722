// explain/read_run.h -- what a run's folder says about its speed: ranks.jsonl, gpus.jsonl, recipe.toml, run.json.
//
// Looked at is the newest plan of the newest start, since shards that moved changed the picture; the first steps, which
// choose and allocate, are left out. Files that are missing or damaged leave their part empty; nothing throws.
#pragma once

#include <cstddef>
#include <filesystem>
#include <vector>

#include "explain/explain.h"

namespace tandem {

Evidence read_evidence(const std::filesystem::path& run_dir, const std::string& run);
// Settings of the run alone: recipe, batch, shards, ...
void read_settings(const std::filesystem::path& run_dir, Evidence& evidence);
// The GPUs between two times (Unix seconds); of the file's end alone, if `tail_bytes` is not 0.
void read_gpus(const std::filesystem::path& run_dir, double from, double to, size_t tail_bytes, Evidence& evidence);
// What else used the machine between two lines.
void read_machine(const TimesLine& earlier, const TimesLine& later, Evidence& evidence);
// What was done between two lines, by rank; rows as in the later one.
std::vector<RankRow> between(const TimesLine& earlier, const TimesLine& later);

}  // namespace tandem
