// fleet/generation.h -- the start of a generation as its members receive it, and the words they use among themselves.
//
// rank             a worker's number for the life of the run; a replacement on the same device keeps it
// generation       the number of a member list; every change of members or of the plan makes a higher one
// sequence number  of a combine in the program: 0, 1, 2, ... from step 0 on, the same on every worker and for every
//                  plan. A phase that is run again takes the same sequence numbers again, in a higher generation.
// mark             how far a member got: it has done its part of every combine up to `sequence`, the last of them in
//                  `generation`
#pragma once

#include <cstdint>
#include <vector>

#include "reduce/shard_range.h"

namespace tandem {

struct Mark {
  uint64_t generation = 0;
  int64_t sequence = -1;
  bool operator==(const Mark&) const = default;
};

struct ShardAssignment {
  int rank = 0;
  ShardRange range;
  bool operator==(const ShardAssignment&) const = default;
};

// Who works on which shards from now on, and from which state.
struct GenerationStart {
  enum class From {
    kStart,      // the state of step 0, made from the seed
    kSnapshot,   // the snapshot of `snapshot_step`: everything is put back, moved shards included
    kSamePhase,  // go on: finish combines up to `cut` with the old members, then run the phase again with these
  };
  uint64_t generation = 0;
  std::vector<ShardAssignment> members;  // ascending ranges that cover all shards
  From from = From::kStart;
  int64_t snapshot_step = -1;  // of the last whole snapshot
  int64_t cut = -1;
  bool operator==(const GenerationStart&) const = default;
};

}  // namespace tandem
