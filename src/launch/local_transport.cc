#include "launch/local_transport.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "kernels/peer_sum.h"

namespace tandem {

void LocalTransport::begin(const GenerationStart& start, int) {
  ShmShape shape = shape_;
  for (const ShardAssignment& a : start.members) shape.ranges.push_back(a.range);
  segments_.push_back(
      {start.generation, start.members, shape, SharedMemory::create("tandem-combine", shm_combine_bytes(shape)), {}});
  const size_t members = start.members.size();
  if (!links_ || members < 2 || members > static_cast<size_t>(kMostPeers)) return;
  std::vector<std::vector<Channel>>& links = segments_.back().links;
  links.resize(members);
  for (std::vector<Channel>& of_member : links) of_member.resize(members);
  for (size_t a = 0; a < members; ++a)
    for (size_t b = a + 1; b < members; ++b) {
      Channel::Pair pair = Channel::pair();
      links[a][b] = std::move(pair.ours);
      links[b][a] = std::move(pair.theirs);
    }
}

void LocalTransport::give(WorkerHandle& worker, nlohmann::json body) {
  Segment& segment = segments_.back();
  std::vector<int> fds{segment.memory.fd()};
  for (size_t i = 0; i < segment.links.size(); ++i) {
    if (segment.members[i].rank != worker.rank()) continue;
    for (const Channel& link : segment.links[i])
      if (link.open()) fds.push_back(link.fd());
    body["links"] = segment.links.size() - 1;
  }
  for (const int fd : pool_.fds()) fds.push_back(fd);
  worker.send(body, fds);
}

void LocalTransport::wake() {
  for (const Segment& segment : segments_) wake_all(segment.memory);
}

std::optional<Mark> LocalTransport::mark_of(int rank) {
  std::optional<Mark> newest;
  for (auto segment = segments_.rbegin(); segment != segments_.rend(); ++segment) {
    for (size_t i = 0; i < segment->members.size(); ++i) {
      if (segment->members[i].rank != rank) continue;
      if (!newest) newest = Mark{segment->generation, -1};
      std::optional<int64_t> sequence = done_mark(segment->memory, static_cast<int>(i));
      if (segment->members.size() > 1)  // what its GPU did by itself
        sequence = std::max(
            sequence, peer_words(segment->shape, segment->memory).close(static_cast<int>(i), segment->generation));
      if (sequence) return Mark{segment->generation, *sequence};
    }
  }
  return newest ? newest : Mark{0, -1};
}

void LocalTransport::decided(int64_t cut) {
  for (const Segment& segment : segments_)
    if (segment.members.size() > 1) peer_words(segment.shape, segment.memory).decide(cut);
  wake();
}

void LocalTransport::all_adopted(uint64_t generation) {
  while (segments_.size() > 1 && segments_[1].generation <= generation) segments_.pop_front();
}

}  // namespace tandem
