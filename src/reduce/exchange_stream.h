// reduce/exchange_stream.h -- exchange messages as bytes, for transports between processes.
//
// The messages for each member lie together, in order of sending, so that a member reads its own part alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "reduce/exchange_message.h"
#include "reduce/shard_range.h"

namespace tandem {

// Which member each shard belongs to.
std::vector<int> members_of_shards(int shards, std::span<const ShardRange> ranges);

struct ExchangeStream {
  std::vector<std::byte> bytes;
  std::vector<uint64_t> first;  // bytes of the stream before member m's part; one more at the end
  std::span<const std::byte> part(int member) const {
    return std::span(bytes).subspan(first[member], first[member + 1] - first[member]);
  }
};

// Empties `messages`: those to member `me` are put into the inboxes (by shard, from `mine.first` on), others are
// packed.
ExchangeStream pack_messages(std::vector<ExchangeMessage>& messages, int members, std::span<const int> member_of,
                             int me, ShardRange mine, std::span<Inbox> inboxes);
// The inverse, for one sender's part. Throws std::runtime_error if the bytes are no messages to shards of ours.
void unpack_messages(std::span<const std::byte> part, ShardRange mine, std::span<Inbox> inboxes);

}  // namespace tandem
