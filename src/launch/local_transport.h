// launch/local_transport.h -- members on this machine: a segment of shared memory per generation, and the launcher's
// own buffers for snapshots, handed over by descriptor.
#pragma once

#include <deque>
#include <vector>

#include "base/shared_memory.h"
#include "launch/channel.h"
#include "launch/snapshot_pool.h"
#include "launch/transport.h"
#include "reduce/shm_combine.h"

namespace tandem {

class LocalTransport : public Transport {
 public:
  // `shape` without its ranges. `links`: each pair of members gets a socket pair, by which they tell each other of
  // memory that they share (reduce/peer_mail.h).
  LocalTransport(ShmShape shape, const SnapshotPool& pool, bool links)
      : shape_(std::move(shape)), pool_(pool), links_(links) {}
  void begin(const GenerationStart& start, int base) override;
  void give(WorkerHandle& worker, nlohmann::json body) override;
  void wake() override;
  std::optional<Mark> mark_of(int rank) override;
  void decided(int64_t cut) override;
  void all_adopted(uint64_t generation) override;
  void reuse(int) override {}
  void abandoned(int) override {}  // the pool did it
  void whole(int) override {}
  bool gathered(int) override { return true; }
  bool heard(WorkerHandle&, const nlohmann::json&) override { return false; }

 private:
  struct Segment {
    uint64_t generation;
    std::vector<ShardAssignment> members;
    ShmShape shape;
    SharedMemory memory;
    std::vector<std::vector<Channel>> links;  // [member][other member]; empty: none
  };
  ShmShape shape_;
  const SnapshotPool& pool_;
  bool links_;
  std::deque<Segment> segments_;  // newest last
};

}  // namespace tandem
