// engine/snapshot.h -- the whole state of a job at a step boundary, copied into a block of memory, and put back.
//
// Several workers write one snapshot together: each the shards it owns and one slice of the replicated tensors; whoever
// reads it takes everything replicated and the shards it owns then. fleet/snapshot_layout.h tells what lies where.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/shared_memory.h"
#include "checkpoint/store.h"
#include "engine/train_loop.h"
#include "fleet/snapshot_layout.h"

namespace tandem {

// The same on every worker of a job.
SnapshotLayout snapshot_layout(TrainLoop& loop);

// This worker's part: member `me` of `members`. The first one adds the scalars.
void write_part(TrainLoop& loop, const SnapshotLayout& layout, std::span<std::byte> block, int me, int members);
// The same into shared memory, large tensors of the host past the mapping (SharedMemory::write); returns their bytes.
// `handled`: the newest request that was carried out, kept among the scalars.
uint64_t write_part(TrainLoop& loop, const SnapshotLayout& layout, const SharedMemory& memory, int me, int members,
                    uint64_t handled);
// Everything replicated, this process's shards, the step; returns the sequence number of the next combine.
int64_t read_snapshot(TrainLoop& loop, const SnapshotLayout& layout, std::span<const std::byte> block);

// The hash of weights, optimizer and whatever else all workers hold alike.
uint64_t replicated_hash(TrainLoop& loop);
// The same number, where no bit has flipped in host memory: what is kept there to roll back to counts as it was kept.
uint64_t quick_replicated_hash(TrainLoop& loop);
// The digest of the weights as they are now.
std::string digest_of(TrainLoop& loop);

// ---- for one process that holds everything ----
// Owns its copy, so the job can go on while it is written.
struct Snapshot {
  CheckpointContents contents;  // views into `block`
  std::vector<std::byte> block;
};
// Fills step, shards, tensors and scalars; who the run is (id, recipe, settings, kind) is the caller's to add.
Snapshot take_snapshot(TrainLoop& loop);
// Throws CheckpointError if a tensor is missing or of another shape; the loop is unchanged then.
void restore_snapshot(TrainLoop& loop, const LoadedCheckpoint& checkpoint);

// For tests: damages one weight of this process's copy, as failing memory would.
void flip_a_bit(TrainLoop& loop);

}  // namespace tandem
