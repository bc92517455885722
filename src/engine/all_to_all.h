// engine/all_to_all.h -- an exchange of fixed size whose rows stay on the device: every shard has a row for every
// shard.
//
// Where this worker holds all shards, delivery is one queued copy and can be captured. With others, rows travel as
// messages of the combine. The same bits either way.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/device.h"
#include "reduce/exchange_message.h"
#include "reduce/shard_range.h"

namespace tandem {

class AllToAll {
 public:
  AllToAll(int shards, ShardRange mine, int64_t floats, Device& device);
  void clear();           // queued: what is to be sent is zero
  void clear_incoming();  // the same for what came: nothing outlives a step
  // Of one of this worker's shards, by its index among them: [shards][floats].
  at::Tensor outgoing(int index) const { return out_[index]; }
  at::Tensor incoming(int index) const { return in_[index]; }
  bool is_local() const { return mine_.size() == shards_; }
  void deliver();                                          // queued; where all shards are here
  std::vector<ExchangeMessage> messages(int index) const;  // waits for the device
  void receive(int index, std::span<const ExchangeMessage> messages);
  std::span<const std::byte> sent() const;  // all of it, on the device

 private:
  int shards_;
  ShardRange mine_;
  int64_t floats_;
  Device& device_;
  at::Tensor out_, in_;  // [local shards][shards][floats]
};

}  // namespace tandem
