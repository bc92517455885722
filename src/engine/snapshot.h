// engine/snapshot.h -- the whole state of a job at a step boundary, copied out, and put back.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "checkpoint/store.h"
#include "engine/train_loop.h"

namespace tandem {

// Owns copies, so the job can go on while a thread writes them.
struct Snapshot {
  CheckpointContents contents;  // views into `held`
  std::vector<at::Tensor> held;
};

// Fills step, shards, tensors and scalars; who the run is (id, recipe, settings, kind) is the caller's to add. Buffers
// of an earlier snapshot may be given for reuse: fresh memory costs more than the copy.
Snapshot take_snapshot(TrainLoop& loop, std::vector<at::Tensor> reuse = {});

// Throws CheckpointError if a tensor is missing or of another shape; the loop is then unusable.
void restore_snapshot(TrainLoop& loop, const LoadedCheckpoint& checkpoint);

// The digest of the weights as they are now.
std::string digest_of(TrainLoop& loop);

}  // namespace tandem
