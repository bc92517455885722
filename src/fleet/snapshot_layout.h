// fleet/snapshot_layout.h -- where each tensor of a job lies in the block of memory that holds a snapshot.
//
// The workers write a snapshot together: each the shards it owns and one slice of the replicated tensors. The launcher
// owns the memory, so a worker's death can't reach it, and needs no libtorch to write it out as a checkpoint or to fill
// it from one. All offsets follow from the recipe, so every worker makes the same layout.
//   [ scalars as JSON, 64 KiB | replicated tensors | shard 0 | shard 1 | ... ]
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/store.h"

namespace tandem {

struct SnapshotTensor {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  bool model = false;  // goes into model.safetensors
  int shard = -1;      // -1: replicated
  uint64_t offset = 0, bytes = 0;
  std::vector<std::string> aliases;  // further names of a tied parameter, which is stored once
};

class SnapshotLayout {
 public:
  static constexpr uint64_t kScalarBytes = 1 << 20, kAlign = 64;

  // Replicated ones first, then shard by shard.
  void add(SnapshotTensor tensor);
  const std::vector<SnapshotTensor>& tensors() const { return tensors_; }
  uint64_t bytes() const { return end_; }
  uint64_t replicated_end() const { return replicated_end_; }

  nlohmann::json to_json() const;
  static SnapshotLayout from_json(const nlohmann::json& json);  // checked; throws std::exception if it makes no sense
  bool operator==(const SnapshotLayout& other) const { return to_json() == other.to_json(); }

  // ---- on a block of bytes() ----
  static void put_scalars(std::span<std::byte> block, const nlohmann::json& scalars);
  static nlohmann::json get_scalars(std::span<const std::byte> block);
  // Views into the block: what the store saves.
  void describe(std::span<const std::byte> block, CheckpointContents& contents) const;
  // Copies a checkpoint in. Throws CheckpointError if a tensor is missing, of another shape, or not known here.
  void fill(std::span<std::byte> block, const LoadedCheckpoint& checkpoint) const;
  // The digest of the weights in it.
  std::string digest(std::span<const std::byte> block) const;

 private:
  std::vector<SnapshotTensor> tensors_;
  uint64_t end_ = kScalarBytes, replicated_end_ = kScalarBytes;
};

}  // namespace tandem
