// reduce/exchange_message.h -- the third form of combining: rows copied to the shard that they are meant for, no
// arithmetic.
//
// A shard sends rows of bytes to other shards in one phase; they are there in the next. A shard reads them ordered by
// (sender, order of sending), so delivery does not depend on who ran first. A request takes two phases: send it, and
// let the owner send the rows back. Messages live inside a step; none is left at its end.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace tandem {

struct ExchangeMessage {
  int from = 0, to = 0;
  std::vector<std::byte> row;
};

// What one shard received, in order.
class Inbox {
 public:
  void clear() { messages_.clear(); }
  void put(ExchangeMessage message) { messages_.push_back(std::move(message)); }
  void sort();  // by sender; messages of one sender keep their order
  std::span<const ExchangeMessage> messages() const { return messages_; }

 private:
  std::vector<ExchangeMessage> messages_;
};

}  // namespace tandem
