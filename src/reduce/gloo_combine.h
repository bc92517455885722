// reduce/gloo_combine.h -- the combine between workers of several machines, over Gloo.
//
// Every member owns one slice of the vector. Each sends its partial sums of a slice to the slice's owner; the owner
// adds them in tree order, block by block as they come in, and sends every finished block to all. Counts, maxima and
// the sizes of messages travel beside, and each member adds them up itself. Receives are posted in begin(), so that
// what others send early arrives while this one still computes. A member with a single shard sends the blocks of its
// vector that ready() names while the rest is computed; with more shards a partial sum is complete only at the very
// end.
//
// A peer that is gone ends the wait with MembersChanged, and so does the watch, which a thread of its own asks 50 times
// a second while somebody waits (Gloo can't wait for a while without closing everything at the end of it). There is no
// shared memory to tell afterwards how far a lost member got: the coordinator goes back to a snapshot.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "reduce/combine.h"
#include "reduce/watch.h"

namespace gloo {
class Context;
}

namespace tandem {

class GlooCombine : public Combine {
 public:
  // `context` is connected (reduce/gloo_mesh.h), its rank is this member and its size the number of ranges; nothing
  // else is sent over it. As in ShmCombine, after MembersChanged the object and its context are only destroyed.
  GlooCombine(int shards, std::vector<ShardRange> ranges, std::shared_ptr<gloo::Context> context, uint64_t generation,
              int64_t first_sequence, const Watch& watch);
  ~GlooCombine() override;
  void begin(const ContributionLayout& layout) override;
  void add(int shard, Contribution contribution) override;
  void add_floats(int shard, std::span<const float> floats, bool stays) override;
  void add_partial(int node, std::span<const float> floats, bool stays) override;
  std::vector<int> subtrees() const override;
  void ready(int shard, std::span<const float> vector, int64_t first, int64_t last) override;
  bool wants_ready(int shard) const override;
  Total finish() override;
  const Inbox& inbox(int shard) const override;  // for shards of this member's range
  void clear_inboxes() override;
  void all_reduce(std::span<const int> shards, std::span<const std::span<double>> values) override;
  int64_t next_sequence() const override;
  int64_t begun_at() const override;
  double waited_seconds() const;  // waiting for others, in all

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace tandem
