// checkpoint/best.h -- checkpoints/best: the checkpoint whose validation was the best, kept beside the rotation.
//
// It is a folder like any other checkpoint, made of the same files by hard links, so that it costs no room while that
// one is there; copies where the file system has no links.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>

#include "base/file_system.h"

namespace tandem {

inline constexpr char kBestFolder[] = "best";

// Whether a checkpoint of this step with these scalars is the best so far.
bool is_best_checkpoint(const nlohmann::json& scalars, std::int64_t step);
// Makes the checkpoint in `folder` (of `checkpoints`) the best one: whole or not at all, the one before until then.
void keep_best(FileSystem& fs, const std::filesystem::path& checkpoints, const std::filesystem::path& folder);
// What a crash in keep_best() left behind.
void mend_best(FileSystem& fs, const std::filesystem::path& checkpoints);
// The step of the best one; nothing if there is none that can be read. Throws ConfigError where a link is in the way.
std::optional<std::int64_t> best_step(FileSystem& fs, const std::filesystem::path& checkpoints);

}  // namespace tandem
