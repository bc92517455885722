#include "reduce/exchange_stream.h"

#include <cstring>
#include <stdexcept>

namespace tandem {
namespace {

struct Head {
  int32_t from, to;
  uint64_t bytes;
};

}  // namespace

std::vector<int> members_of_shards(int shards, std::span<const ShardRange> ranges) {
  std::vector<int> member_of(shards, -1);
  for (size_t m = 0; m < ranges.size(); ++m)
    for (int shard = ranges[m].first; shard < ranges[m].last; ++shard) member_of.at(shard) = static_cast<int>(m);
  return member_of;
}

ExchangeStream pack_messages(std::vector<ExchangeMessage>& messages, int members, std::span<const int> member_of,
                             int me, ShardRange mine, std::span<Inbox> inboxes) {
  ExchangeStream stream;
  stream.first.assign(members + 1, 0);
  for (const ExchangeMessage& message : messages) {
    const int to = member_of[message.to];
    if (to != me) stream.first[to + 1] += sizeof(Head) + message.row.size();
  }
  for (int m = 0; m < members; ++m) stream.first[m + 1] += stream.first[m];
  stream.bytes.resize(stream.first[members]);
  std::vector<uint64_t> at(stream.first.begin(), stream.first.end() - 1);
  for (ExchangeMessage& message : messages) {
    const int to = member_of[message.to];
    if (to == me) {
      inboxes[message.to - mine.first].put(std::move(message));
      continue;
    }
    const Head head{message.from, message.to, message.row.size()};
    std::memcpy(stream.bytes.data() + at[to], &head, sizeof head);
    if (!message.row.empty())
      std::memcpy(stream.bytes.data() + at[to] + sizeof head, message.row.data(), message.row.size());
    at[to] += sizeof head + message.row.size();
  }
  messages.clear();
  return stream;
}

void unpack_messages(std::span<const std::byte> part, ShardRange mine, std::span<Inbox> inboxes) {
  while (!part.empty()) {
    Head head;
    if (part.size() < sizeof head) throw std::runtime_error("exchange messages from another worker are cut short");
    std::memcpy(&head, part.data(), sizeof head);
    part = part.subspan(sizeof head);
    if (head.bytes > part.size()) throw std::runtime_error("exchange messages from another worker are cut short");
    if (head.to < mine.first || head.to >= mine.last)
      throw std::runtime_error("an exchange message from another worker is for a shard that is not here");
    inboxes[head.to - mine.first].put({head.from, head.to, {part.begin(), part.begin() + head.bytes}});
    part = part.subspan(head.bytes);
  }
}

}  // namespace tandem
