#include "reduce/shm_layout.h"

#include <algorithm>

#include "reduce/join.h"
#include "reduce/peer_words.h"

namespace tandem {
namespace {

constexpr uint64_t kPage = 4096;

uint64_t round_up(uint64_t n, uint64_t unit) { return (n + unit - 1) / unit * unit; }

int64_t most_integers(const ShmShape& shape) { return shape.max_counts + shape.max_maxima; }

ShmLayout layout_of(const ShmShape& shape) {
  const SumTree tree(shape.shards);
  return ShmLayout(shape, Join<float>(tree, shape.ranges).partials());
}

}  // namespace

ShmLayout::ShmLayout(const ShmShape& shape, int partial_count) {
  const uint64_t members = shape.ranges.size();
  head_stride = round_up(8 * (shape.max_counts + shape.max_maxima + members + 1), 128);
  // Not a whole number of pages: vectors that are would compete for the same cache sets.
  float_stride = round_up(4 * shape.max_floats, kPage) + 5 * 64;
  all_reduce_stride = 8 * kAllReduceDoubles;
  exchange_stride = shape.exchange ? round_up(std::max<uint64_t>(shape.exchange_bytes, 64), 64) : 0;
  heads = sizeof(Bell) + members * sizeof(MemberWords);
  result = round_up(heads + members * head_stride, kPage);
  partials = result + float_stride;
  all_reduces = round_up(partials + partial_count * float_stride, kPage);
  exchanges = round_up(all_reduces + 2 * partial_count * all_reduce_stride, kPage);
  peers = round_up(exchanges + 2 * members * exchange_stride, kPage);
  end = peers + (members > 1 ? PeerWords::bytes(static_cast<int>(members), most_integers(shape)) : 0);
}

uint64_t shm_combine_bytes(const ShmShape& shape) { return layout_of(shape).end; }

PeerWords peer_words(const ShmShape& shape, const SharedMemory& segment) {
  const ShmLayout layout = layout_of(shape);
  return {segment.bytes().subspan(layout.peers, layout.end - layout.peers), static_cast<int>(shape.ranges.size()),
          most_integers(shape)};
}

}  // namespace tandem
