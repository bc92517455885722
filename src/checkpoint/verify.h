// checkpoint/verify.h -- reads one checkpoint folder and proves every byte of it, or names the bad file and tensor.
#pragma once

#include <filesystem>

#include "base/file_system.h"
#include "checkpoint/manifest.h"
#include "checkpoint/safetensors.h"

namespace tandem {

inline constexpr char kModelFile[] = "model.safetensors";
inline constexpr char kStateFile[] = "state.safetensors.zst";   // of format 2: one zstd frame
inline constexpr char kPlainStateFile[] = "state.safetensors";  // of format 1
inline constexpr char kManifestFile[] = "manifest.json";

// kModel leaves the state unread: whoever only wants the weights need not wait for a replay buffer.
enum class CheckpointParts { kAll, kModel };

struct VerifiedCheckpoint {
  Manifest manifest;
  SafetensorsFile model, state;
};

// Throws CheckpointError "<file>: <what is wrong>" for damage, a missing file and a sector that cannot be read; IoError
// for what says nothing about the checkpoint, such as too many open files or a missing right.
VerifiedCheckpoint read_and_verify(FileSystem& fs, const std::filesystem::path& dir,
                                   CheckpointParts parts = CheckpointParts::kAll);

// What ties a data file to its manifest, kept in the file's own metadata.
std::map<std::string, std::string> tie_metadata(const Manifest& manifest);

}  // namespace tandem
