// launch/local_plane.h -- members on this machine: a segment of shared memory per generation, and the launcher's own
// buffers for snapshots, handed over by descriptor.
#pragma once

#include <deque>
#include <vector>

#include "base/shared_memory.h"
#include "launch/plane.h"
#include "launch/snapshot_pool.h"
#include "reduce/shm_combine.h"

namespace tandem {

class LocalPlane : public Plane {
 public:
  // `shape` without its ranges.
  LocalPlane(ShmShape shape, const SnapshotPool& pool) : shape_(std::move(shape)), pool_(pool) {}
  void begin(const Order& order, int base) override;
  void give(WorkerHandle& seat, nlohmann::json body) override;
  void wake() override;
  std::optional<Mark> mark_of(int rank) const override;
  void all_adopted(uint64_t generation) override;
  void reuse(int) override {}
  void abandoned(int) override {}  // the pool did it
  void whole(int) override {}
  bool gathered(int) override { return true; }
  bool heard(WorkerHandle&, const nlohmann::json&) override { return false; }

 private:
  struct Segment {
    uint64_t generation;
    std::vector<Assignment> members;
    SharedMemory memory;
  };
  ShmShape shape_;
  const SnapshotPool& pool_;
  std::deque<Segment> segments_;  // newest last
};

}  // namespace tandem
