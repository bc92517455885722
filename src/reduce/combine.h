// reduce/combine.h -- where the shards' contributions to a phase meet, and become the same total everywhere.
//
// The loop gives it each shard's contribution, in any order, and takes the total. LocalCombine serves one process that
// drives every shard, for any plan; transports between processes implement the same four calls.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "reduce/exact_sum.h"
#include "reduce/exchange_message.h"
#include "reduce/shard_range.h"

namespace tandem {

// The lengths of a contribution; the same for every shard of a phase.
struct ContributionLayout {
  int64_t floats = 0;  // summed along the tree: gradients, statistics, losses
  int64_t counts = 0;  // integers, summed
  int64_t maxima = 0;  // integers, the largest wins
  bool mail = false;   // rows for other shards
  bool operator==(const ContributionLayout&) const = default;
};

struct Contribution {
  std::span<const float> floats;  // empty: they come in a partial
  std::span<const int64_t> counts, maxima;
  std::vector<ExchangeMessage> letters;
  bool stays = false;  // the floats stay as they are until finish() is over: a transport need not copy them
};

struct Total {
  std::span<const float> floats;
  std::span<const int64_t> counts, maxima;
};

using Partials = std::vector<ExactSum<float>::Partial>;

class Combine {
 public:
  virtual ~Combine() = default;
  virtual void begin(const ContributionLayout& layout) = 0;
  virtual void add(int shard, Contribution contribution) = 0;
  // The sum of a whole subtree of this worker's shards, made elsewhere. These shards are added too, without floats.
  // `stays`: as a contribution's.
  virtual void add_partial(int node, std::span<const float> floats, bool stays) = 0;
  // The subtrees that this worker's shards make up (SumTree::cover), for one that adds up the shards' floats itself.
  // Empty: it can't.
  virtual std::vector<int> subtrees() const { return {}; }
  // A word ahead of add(), said again as more is ready: floats [first, last) of this shard's vector are final, and the
  // vector will stay where it is until finish() is over. A transport may send them while the shard computes the rest;
  // most have no use for it.
  virtual void ready(int shard, std::span<const float> vector, int64_t first, int64_t last) {}
  virtual bool wants_ready(int shard) const { return false; }
  // ---- on a GPU: a shard's floats are added when they are queued, the rest of its contribution when it is known ----
  virtual void begin_floats();  // once more from the start, within a phase
  virtual void add_floats(int shard, std::span<const float> floats, bool stays);
  virtual Partials floats_added() const;  // what this worker's shards add up to, once all are added
  // The same sums, at the same places, made by a recording of add_floats().
  virtual void set_floats(Partials sums);

  virtual Total finish() = 0;                       // every shard of every worker; valid until begin()
  virtual const Inbox& inbox(int shard) const = 0;  // what the last phase sent to a shard of ours
  virtual void drop_mail() = 0;                     // at a step's end
  // A sum in the middle of a phase, for shards that run in lock-step (sync_bn): values[i] is what shards[i] gives, and
  // becomes the total over all shards of all workers. In double, along the same tree.
  virtual void meet(std::span<const int> shards, std::span<const std::span<double>> values) = 0;
  // The place of the next finish() or meet() in the program, and as it was at the last begin(); see fleet/order.h.
  virtual int64_t next_sequence() const { return 0; }
  virtual int64_t begun_at() const { return 0; }
  // In finish(), until the last of the others had come, in all; 0 where that can't be told apart from the transfer.
  virtual double late_seconds() const { return 0; }
};

// All shards in this process. The plan's ranges are summed apart and joined as workers would join them, so that a plan
// is exercised even where one process plays all its parts.
class LocalCombine : public Combine {
 public:
  LocalCombine(int shards, std::vector<ShardRange> ranges, int64_t first_sequence = 0);
  void begin(const ContributionLayout& layout) override;
  void add(int shard, Contribution contribution) override;
  void add_partial(int node, std::span<const float> floats, bool stays) override;
  std::vector<int> subtrees() const override;
  Total finish() override;
  const Inbox& inbox(int shard) const override { return inboxes_.at(shard); }
  void drop_mail() override;
  void meet(std::span<const int> shards, std::span<const std::span<double>> values) override;
  int64_t next_sequence() const override { return sequence_; }
  int64_t begun_at() const override { return begun_at_; }

 private:
  struct Sums {  // one per distinct vector length: buffers are kept between steps
    int64_t length;
    std::vector<std::unique_ptr<ExactSum<float>>> per_range;
    std::unique_ptr<ExactSum<float>> joined;  // unused with one range
  };
  Sums& sums_for(int64_t length);

  SumTree tree_;
  std::vector<ShardRange> ranges_;
  std::vector<int> range_of_;  // by shard
  std::vector<std::unique_ptr<Sums>> sums_;
  Sums* now_ = nullptr;
  int64_t sequence_, begun_at_;
  ContributionLayout layout_;
  std::vector<int64_t> counts_, maxima_;
  std::vector<ExchangeMessage> outgoing_;
  std::vector<Inbox> inboxes_;
};

}  // namespace tandem
