#include "engine/all_to_all.h"

#include <ATen/ATen.h>

#include <cstring>
#include <stdexcept>

#include "nn/here.h"

namespace tandem {

AllToAll::AllToAll(int shards, ShardRange mine, int64_t floats, Device& device)
    : shards_(shards),
      mine_(mine),
      floats_(floats),
      device_(device),
      out_(at::zeros({mine.size(), shards, floats}, here())),
      in_(at::zeros({mine.size(), shards, floats}, here())) {}

void AllToAll::clear() { device_.zero(out_.data_ptr(), out_.nbytes()); }

void AllToAll::clear_incoming() { device_.zero(in_.data_ptr(), in_.nbytes()); }

void AllToAll::deliver() {
  at::NoGradGuard no_grad;
  in_.copy_(out_.transpose(0, 1));
}

std::vector<ExchangeMessage> AllToAll::messages(int index) const {
  const at::Tensor rows = out_[index].cpu();
  const size_t bytes = static_cast<size_t>(floats_) * sizeof(float);
  std::vector<ExchangeMessage> all;
  for (int to = 0; to < shards_; ++to) {
    const auto* const row = reinterpret_cast<const std::byte*>(rows.data_ptr<float>() + to * floats_);
    all.push_back({mine_.first + index, to, {row, row + bytes}});
  }
  return all;
}

void AllToAll::receive(int index, std::span<const ExchangeMessage> messages) {
  const size_t bytes = static_cast<size_t>(floats_) * sizeof(float);
  at::Tensor rows = at::zeros({shards_, floats_});
  for (const ExchangeMessage& message : messages) {
    if (message.row.size() != bytes) throw std::logic_error("a row of another size in an all-to-all exchange");
    std::memcpy(rows.data_ptr<float>() + message.from * floats_, message.row.data(), bytes);
  }
  in_[index].copy_(rows);
}

std::span<const std::byte> AllToAll::sent() const {
  return {static_cast<const std::byte*>(out_.data_ptr()), static_cast<size_t>(out_.nbytes())};
}

}  // namespace tandem
