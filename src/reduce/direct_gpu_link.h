// reduce/direct_gpu_link.h -- a transport between GPUs that bypasses the host, and how its ends agree to use it.
//
// A link is made for one generation. Its members need a few rounds of agreement first. Their words are sent as maxima
// of the phases that use host memory meanwhile, so agreement needs no combine of its own and waits for nobody, and a
// death during it is an ordinary one.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "kernels/peer_sum.h"
#include "reduce/combine.h"
#include "reduce/shard_range.h"

namespace tandem {

struct LinkMembers {
  int shards = 1;
  std::vector<ShardRange> ranges;  // by member; none is empty
  std::vector<int> ranks;          // by member: the same process from generation to generation, or its replacement
  int me = 0;
  uint64_t generation = 0;
};

struct LinkIntegers {
  std::span<int64_t> counts, maxima;
};

// Integers of a phase that lie on the GPU: of this worker's shards, and, after the sum, of all.
struct DeviceIntegers {
  int counts = 0, maxima = 0, flag = -1;  // as in PeerSum
  PeerShardWords of_shards;
  int64_t* total = nullptr;
  int64_t* bad = nullptr;
  bool from_host = true;  // what the host gave is added
};

// A sum that is queued on the GPU.
struct QueuedSum {
  float* total = nullptr;
  std::span<const float* const> mine;  // this member's partial sums; with `bits` its vector
  int64_t floats = 0;
  bool bits = false;  // as in PeerSum
  int ahead = 0;      // so many come before it since begin_queued()
  DeviceIntegers integers;
};

class DirectGpuLink {
 public:
  static constexpr int kWords = 26;  // at most

  virtual ~DirectGpuLink() = default;
  // Whether floats go over it. Changes in take() alone, so at a sequence number all members have one answer.
  virtual bool carries() const = 0;
  // Whether sum() is a combine by itself, of integers too: no finish() follows it, but completed(). The same on all.
  virtual bool completes() const { return false; }
  // Whether, from now on, all sums of a step may be queued at once. The same on all.
  virtual bool queues_steps() const { return false; }
  // total[i] = the sum over all shards, on the GPU; `mine`: this member's partial sums. `integers`, of a link that
  // completes: ours, and then those of all. Nothing is under way any more when it returns. When it throws
  // MembersChanged, `mine` may still be read until the link of the next generation is made, or this one is gone: what
  // is queued on the GPU after that comes later.
  virtual void sum(float* total, std::span<const float* const> mine, int64_t floats, int64_t sequence,
                   LinkIntegers integers) = 0;

  // The same, of a link that completes, in three parts, so that a CUDA graph may hold the middle one: one sum, or
  // several with other work between them. Between begin and end each is queued; end_queued() waits for all that
  // was launched and says how many have ended. Those that have not, since others are late, are queued again, from the
  // first of them on (what was done is not done twice); `bad` holds then whatever comes after it.
  virtual void begin_queued(int64_t sequence, LinkIntegers ours) { throw std::logic_error("nothing is queued here"); }
  virtual void queue(const QueuedSum& sum) { throw std::logic_error("nothing is queued here"); }
  virtual int end_queued(int64_t sequence, int sums) { throw std::logic_error("nothing is queued here"); }
  virtual double last_seconds() const { return 0; }  // that the last sums took on the GPU

  virtual int words() const = 0;                                      // that it wants to exchange in the next combine
  virtual void give(std::span<int64_t> words, int64_t sequence) = 0;  // none below 0; throws MembersChanged
  virtual void take(std::span<const int64_t> largest) = 0;            // of all members
  // Seconds spent in sum() until the last member had arrived, in all; 0 where that can't be told from the transfer.
  virtual double late_seconds() const { return 0; }
};

inline ContributionLayout with_link_words(ContributionLayout layout) {
  layout.maxima += DirectGpuLink::kWords;
  return layout;
}

// The combine `inner` with the words of a link added to its maxima.
class LinkTalk : public Combine {
 public:
  LinkTalk(std::unique_ptr<Combine> inner, DirectGpuLink& link, int shards_here)
      : inner_(std::move(inner)), link_(link), shards_here_(shards_here) {}
  void begin(const ContributionLayout& layout) override;
  void add(int shard, Contribution contribution) override;
  void add_floats(int shard, std::span<const float> floats, bool stays) override {
    inner_->add_floats(shard, floats, stays);
  }
  void add_partial(int node, std::span<const float> floats, bool stays) override {
    inner_->add_partial(node, floats, stays);
  }
  Total finish() override;
  void completed() override { inner_->completed(); }
  const Inbox& inbox(int shard) const override { return inner_->inbox(shard); }
  void clear_inboxes() override { inner_->clear_inboxes(); }
  void all_reduce(std::span<const int> shards, std::span<const std::span<double>> values) override {
    inner_->all_reduce(shards, values);
  }
  int64_t next_sequence() const override { return inner_->next_sequence(); }
  int64_t begun_at() const override { return inner_->begun_at(); }
  double late_seconds() const override { return inner_->late_seconds(); }

 private:
  std::unique_ptr<Combine> inner_;
  DirectGpuLink& link_;
  int shards_here_, added_ = 0, last_shard_ = -1;
  size_t words_ = 0;
  Contribution last_;  // held back: the words go with it, as late as can be
  std::vector<int64_t> counts_, maxima_;
};

}  // namespace tandem
