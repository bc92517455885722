// launch/snapshot_pool.h -- the memory that snapshots are written into: the launcher's, so that no worker's death
// reaches it.
//
// Three buffers: the last whole snapshot (what a death goes back to), one that may be on its way to the disk, one that
// the workers write next. A buffer that was being written when a generation ended is replaced by fresh memory: whoever
// was fenced holds the old one and can write there as long as it likes.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/shared_memory.h"

namespace tandem {

class SnapshotPool {
 public:
  explicit SnapshotPool(uint64_t bytes);

  std::vector<int> fds() const;  // in the order of the buffers
  std::span<std::byte> bytes(int buffer) const { return buffers_.at(buffer).memory.bytes(); }

  // A buffer for the workers to write into; nothing if all are in use.
  std::optional<int> begin();
  // What begin() gave holds the whole snapshot of this step; it replaces the base.
  void whole(int64_t step);
  // The generation ended: if begin()'s buffer was being written it gets new memory, and this tells which it is.
  std::optional<int> abandon();

  int base() const { return base_; }  // -1: no whole snapshot yet
  int64_t step_of(int buffer) const { return buffers_.at(buffer).step; }
  int64_t base_step() const { return base_ < 0 ? -1 : buffers_[base_].step; }
  // Filled by the caller (a checkpoint that is resumed) before any worker exists.
  int make_base(int64_t step);

  // A buffer on its way to the disk is not reused until it is given back.
  void lease(int buffer) { buffers_.at(buffer).leased = true; }
  void give_back(int buffer) { buffers_.at(buffer).leased = false; }

 private:
  struct Buffer {
    SharedMemory memory;
    int64_t step = -1;
    bool leased = false;
  };
  uint64_t bytes_;
  std::vector<Buffer> buffers_;
  int base_ = -1, target_ = -1;
};

}  // namespace tandem
