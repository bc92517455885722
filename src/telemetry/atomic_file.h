// telemetry/atomic_file.h -- a small file of the run folder is replaced whole or not at all.
//
// base's replace_file for files that are rewritten every few seconds from the train loop: the temporary name is unique
// (a worker and `tandem report` may write the same file), and the fsync can be left out where a power cut may cost the
// last seconds, because an fsync on a busy disk can hold a step for as long as a checkpoint takes to write.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "base/file_system.h"

namespace tandem {

enum class Durability { kPowerCut, kProcessDeath };  // what the new content survives

// Throws IoError; the old file is then untouched and the temporary one gone.
void write_file_atomically(const std::filesystem::path& path, std::string_view text,
                           Durability durability = Durability::kPowerCut, FileSystem& fs = FileSystem::real());

// Takes away the temporary files that killed writers left in this folder. Those of processes that are alive stay. For
// whoever holds the run's lock; what can't be removed stays, without a word.
void remove_abandoned_temporaries(const std::filesystem::path& folder);

// The file's text, or nothing if it can't be read or is larger than `limit`.
std::optional<std::string> read_small_file(const std::filesystem::path& path, size_t limit = size_t{64} << 20);

}  // namespace tandem
