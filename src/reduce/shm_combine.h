// reduce/shm_combine.h -- the combine between worker processes of one machine, through shared memory.
//
// One segment per generation (fleet/generation.h), made by the launcher and handed over by descriptor; a worker that
// was fenced holds an older segment, so nothing it still writes can reach anybody. Each member adds up the whole
// subtrees it holds straight into its own area; then each reduces one slice of the vector from everybody's partials, in
// tree order, into the shared result; when all have, the result is the total, read in place.
//   add ... add | publish | wait for all | reduce my slice | mark done | wait for all | total
// completed() takes the place of finish() where a link between the GPUs carried the whole of a combine: it marks this
// member's part as done and waits for nobody.
// done[member] is the authority on what was completed: a combine is complete once every member's done reached it, and
// whether a dead member's did is read from its last segment (done_mark).
//
// Why one buffer of each is enough:
//   an area    its owner writes it again in the next phase, after finish() saw everybody's done: all have read it
//   the result is written for sequence number t+1 once all have published t+1, which a member does in its next
//              finish(), after it applied t. So nobody writes it while somebody still reads the total before
//   all-reduce a double buffer per member and one wait: whoever came to all-reduce k+1 has read all of k, so when my
//              wait for k+1 is over, the buffer of k is free. My part is done when my values are there: done is the
//              word that publishes them (their last round, if they are many)
//   exchange   a double buffer too; what does not fit goes in further rounds of the same sequence number
//
// Memory orders: `published` and `done` are stored after the data they speak of, and read before it (release, acquire).
// They are sequentially consistent besides, for the bell: the last one to arrive at a wait, and only that one, wakes
// the sleepers. It stores its word and then reads everybody's; of two that arrive at once, one sees the other, and
// somebody rings. A sleeper counts itself in, reads the bell, looks at the words once more and then sleeps, unless the
// bell has changed (futex); the ringer changes the bell and then reads the count. One of the two sees the other. And
// nobody sleeps for more than 20 ms.
//
// Peers are other processes of the same program, but one may be broken: whatever they write, a member writes only into
// its own areas and its own slice, and reads only inside the segment.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/shared_memory.h"
#include "reduce/combine.h"
#include "reduce/peer_words.h"
#include "reduce/watch.h"

namespace tandem {

struct ShmShape {
  int shards = 1;
  std::vector<ShardRange> ranges;                          // by member
  int64_t max_floats = 0, max_counts = 0, max_maxima = 0;  // of any phase
  int64_t max_joined = 0;                                  // floats that a link between GPUs joins at once
  bool exchange = false;
  uint64_t exchange_bytes = 4 << 20;  // room for one member's messages of a phase; more goes in rounds
};

uint64_t shm_combine_bytes(const ShmShape& shape);
// Room in it that the combine does not use itself: for the words of a link between the GPUs (peer_link.h). Of two
// members or more.
PeerWords peer_words(const ShmShape& shape, const SharedMemory& segment);
// The sequence number up to which a member did its part in this segment; nothing if it did none. For the launcher.
std::optional<int64_t> done_mark(const SharedMemory& segment, int member);
// The same for a member that may not be dead yet: from now on it can do no more parts here, so the answer is final.
std::optional<int64_t> close_mark(const SharedMemory& segment, int member);
// Wakes everybody who sleeps in this segment, so that they ask their Watch. For the launcher.
void wake_all(const SharedMemory& segment);

class ShmCombine : public Combine {
 public:
  // `first_sequence`: the sequence number of the next combine (sequence numbers count finish() and all_reduce() alike).
  ShmCombine(const ShmShape& shape, int me, SharedMemory segment, uint64_t generation, int64_t first_sequence,
             const Watch& watch);
  ~ShmCombine() override;
  void begin(const ContributionLayout& layout) override;
  void add(int shard, Contribution contribution) override;
  void add_floats(int shard, std::span<const float> floats, bool stays) override;
  void add_partial(int node, std::span<const float> floats, bool stays) override;
  std::vector<int> subtrees() const override;
  Total finish() override;
  void completed() override;
  const Inbox& inbox(int shard) const override;  // for shards of this member's range
  void clear_inboxes() override;
  void all_reduce(std::span<const int> shards, std::span<const std::span<double>> values) override;
  int64_t next_sequence() const override;  // of the next finish() or all_reduce()
  int64_t begun_at() const override;       // next_sequence() as it was at the last begin()
  double late_seconds() const override;
  double waited_seconds() const;  // waiting for others, in all

  // Called at these places of finish() (at the first and the last of all_reduce()). For tests that die there.
  enum class Point { kBeforePublish, kPublished, kReduced, kDone };
  void at_points(std::function<void(Point)> call);

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace tandem
