// reduce/link_chain.h -- a sum by kernels, and what is tried once that was refused (reduce/peer_link.h).
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <utility>

#include "reduce/direct_gpu_link.h"
#include "reduce/peer_link.h"

namespace tandem {

// `then` is made in take(), where all members learn of the refusal at the same combine; null: host memory stays.
class LinkChain : public DirectGpuLink {
 public:
  using Make = std::function<std::unique_ptr<DirectGpuLink>()>;
  LinkChain(std::unique_ptr<PeerSumLink> first, Make then) : first_(std::move(first)), make_(std::move(then)) {}

  bool carries() const override { return now().carries(); }
  bool completes() const override { return now().completes(); }
  bool queues_steps() const override { return now().queues_steps(); }
  void sum(float* total, std::span<const float* const> mine, int64_t floats, int64_t sequence,
           LinkIntegers integers) override {
    now().sum(total, mine, floats, sequence, integers);
  }
  void begin_queued(int64_t sequence, LinkIntegers ours) override { now().begin_queued(sequence, ours); }
  void queue(const QueuedSum& sum) override { now().queue(sum); }
  int end_queued(int64_t sequence, int sums) override { return now().end_queued(sequence, sums); }
  double last_seconds() const override { return now().last_seconds(); }
  int words() const override { return now().words(); }
  void give(std::span<int64_t> words, int64_t sequence) override { now().give(words, sequence); }
  void take(std::span<const int64_t> largest) override {
    now().take(largest);
    if (!then_ && first_->gave_up() && make_) then_ = std::exchange(make_, nullptr)();
  }
  double late_seconds() const override { return now().late_seconds(); }

 private:
  DirectGpuLink& now() const { return then_ ? *then_ : *first_; }

  std::unique_ptr<PeerSumLink> first_;
  Make make_;
  std::unique_ptr<DirectGpuLink> then_;
};

}  // namespace tandem
