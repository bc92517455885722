#include "world.h"

#include <fmt/format.h>

#include <cstdio>

namespace tandem::simulation {

constexpr size_t kEventsKept = 40;

std::string text(const Event& event) {
  return fmt::format("{:>7}  {:<24} rank {:>3}  {} {}", event.tick, event.what, event.rank, event.a, event.b);
}

int Segment::index_of(int rank) const {
  for (size_t i = 0; i < members.size(); ++i)
    if (members[i].rank == rank) return static_cast<int>(i);
  return -1;
}

void World::tell(const char* what, int rank, int64_t a, int64_t b) {
  events.push_back({tick, what, rank, a, b});
  if (events.size() > kEventsKept) events.pop_front();
  if (verbose) fmt::print("{}\n", text(events.back()));
}

Snapshot World::assemble(uint64_t generation, int64_t step) const {
  const auto name = fmt::format("the snapshot of step {} (generation {})", step, generation);
  const auto written = parts.find({generation, step});
  if (written == parts.end()) throw Violation(name + " has no parts");
  Snapshot snapshot{.step = step, .weights = reference.weights.at(step * job.phases)};
  for (const ShardAssignment& member : segments.at(generation).members) {
    const auto part = written->second.find(member.rank);
    if (part == written->second.end()) throw Violation(fmt::format("{} misses the part of rank {}", name, member.rank));
    if (part->second.range != member.range)
      throw Violation(fmt::format("{}: rank {} wrote other shards", name, member.rank));
    if (part->second.taint != 0) throw Violation(fmt::format("{}: the part of rank {} is tainted", name, member.rank));
    if (part->second.weights != snapshot.weights)
      throw Violation(fmt::format("{}: rank {} has other weights", name, member.rank));
    if (part->second.handled != written->second.begin()->second.handled)
      throw Violation(fmt::format("{}: rank {} followed other requests", name, member.rank));
    snapshot.handled = part->second.handled;
    snapshot.shards.insert(snapshot.shards.end(), part->second.shards.begin(), part->second.shards.end());
  }
  if (snapshot.shards != reference.shards.at(step)) throw Violation(name + " is not the true state of its shards");
  return snapshot;
}

}  // namespace tandem::simulation
