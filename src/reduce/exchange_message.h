// reduce/exchange_message.h -- the third form of combining: rows copied to the shard that they are meant for, no
// arithmetic.
//
// A shard sends rows of bytes to other shards in one phase; they are there in the next. A shard reads them ordered by
// (sender, order of sending), so delivery does not depend on who ran first. Asking is two phases: send the question,
// let the owner send the rows back. Mail lives inside a step; none is left at a step's end.
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
  void clear() { letters_.clear(); }
  void put(ExchangeMessage letter) { letters_.push_back(std::move(letter)); }
  void sort();  // by sender; letters of one sender keep their order
  std::span<const ExchangeMessage> letters() const { return letters_; }

 private:
  std::vector<ExchangeMessage> letters_;
};

}  // namespace tandem
