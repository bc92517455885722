#include "launch/snapshot_pool.h"

#include <stdexcept>
#include <utility>

namespace tandem {

SnapshotPool::SnapshotPool(uint64_t bytes) : bytes_(bytes), buffers_(3) {
  for (Buffer& buffer : buffers_) buffer.memory = SharedMemory::create("tandem-snapshot", bytes);
}

std::vector<int> SnapshotPool::fds() const {
  std::vector<int> fds;
  for (const Buffer& buffer : buffers_) fds.push_back(buffer.memory.fd());
  return fds;
}

std::optional<int> SnapshotPool::begin() {
  if (target_ >= 0) throw std::logic_error("a snapshot is being written already");
  for (int i = 0; i < static_cast<int>(buffers_.size()); ++i) {
    if (i == base_ || buffers_[i].leased) continue;
    target_ = i;
    return i;
  }
  return std::nullopt;
}

void SnapshotPool::whole(int64_t step) {
  if (target_ < 0) throw std::logic_error("no snapshot is being written");
  buffers_[target_].step = step;
  base_ = target_;
  target_ = -1;
}

std::optional<int> SnapshotPool::abandon() {
  if (target_ < 0) return std::nullopt;
  buffers_[target_].memory = SharedMemory::create("tandem-snapshot", bytes_);
  buffers_[target_].step = -1;
  return std::exchange(target_, -1);
}

int SnapshotPool::make_base(int64_t step) {
  base_ = 0;
  buffers_[0].step = step;
  return base_;
}

}  // namespace tandem
