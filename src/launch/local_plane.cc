#include "launch/local_plane.h"

#include <nlohmann/json.hpp>

namespace tandem {

void LocalPlane::begin(const Order& order, int) {
  ShmShape shape = shape_;
  for (const Assignment& a : order.members) shape.ranges.push_back(a.range);
  segments_.push_back(
      {order.generation, order.members, SharedMemory::create("tandem-combine", shm_combine_bytes(shape))});
}

void LocalPlane::give(WorkerHandle& seat, nlohmann::json body) {
  std::vector<int> fds{segments_.back().memory.fd()};
  for (const int fd : pool_.fds()) fds.push_back(fd);
  seat.send(body, fds);
}

void LocalPlane::wake() {
  for (const Segment& segment : segments_) wake_all(segment.memory);
}

std::optional<Mark> LocalPlane::mark_of(int rank) const {
  std::optional<Mark> newest;
  for (auto segment = segments_.rbegin(); segment != segments_.rend(); ++segment) {
    for (size_t i = 0; i < segment->members.size(); ++i) {
      if (segment->members[i].rank != rank) continue;
      if (!newest) newest = Mark{segment->generation, -1};
      if (const auto sequence = done_mark(segment->memory, static_cast<int>(i)))
        return Mark{segment->generation, *sequence};
    }
  }
  return newest ? newest : Mark{0, -1};
}

void LocalPlane::all_adopted(uint64_t generation) {
  while (segments_.size() > 1 && segments_[1].generation <= generation) segments_.pop_front();
}

}  // namespace tandem
