// reduce/combine.h -- turns the shards' contributions to a phase into one total, the same bits on every worker.
//
// A phase is begin(), add() of each shard in any order, finish() for the total; inbox() has the messages that other
// shards sent. LocalCombine serves one process that runs every shard, for any plan; the transports
// between processes (shm_combine.h, gloo_combine.h) implement the same calls. Whoever has contributions on a GPU also
// uses DeviceCombine.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <vector>

#include "reduce/exact_sum.h"
#include "reduce/exchange_message.h"
#include "reduce/shard_range.h"

namespace tandem {

// The lengths of a contribution; the same for every shard of a phase.
struct ContributionLayout {
  int64_t floats = 0;     // summed along the tree: gradients, statistics, losses
  int64_t counts = 0;     // integers, summed
  int64_t maxima = 0;     // integers, the largest wins
  bool exchange = false;  // messages to other shards
  bool operator==(const ContributionLayout&) const = default;
};

struct Contribution {
  std::span<const float> floats;  // empty: they come in a partial sum
  std::span<const int64_t> counts, maxima;
  std::vector<ExchangeMessage> messages;
  bool stays = false;  // the floats stay unchanged until finish() returns: a transport need not copy them
};

struct Total {
  std::span<const float> floats;
  std::span<const int64_t> counts, maxima;
};

using Partials = std::vector<ExactSum<float>::Partial>;

struct DeviceIntegers;  // direct_gpu_link.h
struct QueuedSum;

// What the capture of a CUDA graph asks of a combine, whose floats lie on a GPU.
class DeviceCombine {
 public:
  virtual void begin_floats() = 0;            // drops the floats added so far in this phase
  virtual Partials partial_sums() const = 0;  // of this worker's shards, once all are added
  // The same sums at the same addresses, written by the replay of a graph that captured Combine::add_floats().
  virtual void set_partial_sums(Partials sums) = 0;

  // Whether this phase's total can be made by work that is queued on the GPU, after it has begun; then, in place of
  // finish(): all shards are added, begin_total() | queue_total(), or the replay of what captured it | end_total().
  // False: others are late, and queue_total() has to come again. Throws MembersChanged: what was queued after it is
  // void.
  virtual bool queues_total() const { return false; }
  virtual void begin_total() {}
  virtual std::span<const float> queue_total(const DeviceIntegers& integers) { return {}; }
  virtual bool end_total() { return true; }

  // The same for all combines of a step at once, each a sum at its place among other work, where nothing of it needs
  // the host: begin_totals() | queue() of each, or a replay | end_totals() says how many have ended: the others come
  // again. Each has its sequence number. `maxima`: the host's, of a sum that takes them.
  virtual bool queues_steps() const { return false; }  // from now on; the same on all workers
  virtual void begin_totals(int sums, std::span<int64_t> maxima) {}
  virtual void queue(const QueuedSum& sum) {}
  virtual int end_totals() { return 0; }
  virtual double total_seconds() const { return 0; }  // that the last ones took on the GPU

 protected:
  ~DeviceCombine() = default;
};

class Combine {
 public:
  virtual ~Combine() = default;

  // ---- one phase ----
  virtual void begin(const ContributionLayout& layout) = 0;
  virtual void add(int shard, Contribution contribution) = 0;
  // A shard's floats ahead of the rest, which add() brings without them. On a GPU: as soon as its work is queued.
  // `stays`: as in Contribution.
  virtual void add_floats(int shard, std::span<const float> floats, bool stays) = 0;
  virtual Total finish() = 0;  // over every shard of every worker; valid until begin()
  // In place of finish(), where the combine was done by other means: every member has its total, or will (peer_link.h).
  virtual void completed() { throw std::logic_error("this combine can't be done by other means"); }
  virtual const Inbox& inbox(int shard) const = 0;  // what the last phase sent to a shard of this worker
  virtual void clear_inboxes() = 0;                 // at the end of a step

  // An all-reduce inside a phase, for shards that run in lock-step (sync_bn): values[i] belongs to shards[i] and
  // becomes the sum over all shards of all workers. In double, along the same tree.
  virtual void all_reduce(std::span<const int> shards, std::span<const std::span<double>> values) = 0;

  // The sequence number of the next finish() or all_reduce(), and the one at the last begin(); see fleet/generation.h.
  virtual int64_t next_sequence() const = 0;
  virtual int64_t begun_at() const = 0;

  // ---- sums of whole subtrees ----
  // The subtrees that this worker's shards make up (SumTree::cover). Empty: the caller can't add up floats itself.
  virtual std::vector<int> subtrees() const { return {}; }
  // The sum of one of them. Its shards are added too, without floats. `stays`: as in Contribution.
  virtual void add_partial(int node, std::span<const float> floats, bool stays) = 0;

  // ---- overlap of backward and transport ----
  // Before add(), as backward proceeds: floats [first, last) of this shard's vector are final, and the vector stays
  // where it is until finish() returns. A transport may send them already.
  virtual bool wants_ready(int shard) const { return false; }
  virtual void ready(int shard, std::span<const float> vector, int64_t first, int64_t last) {}

  // Seconds spent in finish() until the last member had arrived, in all; 0 where that can't be told from the transfer.
  virtual double late_seconds() const { return 0; }

  virtual DeviceCombine* as_device() { return nullptr; }  // null: takes contributions in host memory only
};

// All shards in this process. The plan's ranges are summed apart and joined as workers would join them, so that a plan
// is tested even in one process.
class LocalCombine : public Combine {
 public:
  LocalCombine(int shards, std::vector<ShardRange> ranges, int64_t first_sequence = 0);
  void begin(const ContributionLayout& layout) override;
  void add(int shard, Contribution contribution) override;
  void add_floats(int shard, std::span<const float> floats, bool stays) override;
  void add_partial(int node, std::span<const float> floats, bool stays) override;
  std::vector<int> subtrees() const override;
  Total finish() override;
  const Inbox& inbox(int shard) const override { return inboxes_.at(shard); }
  void clear_inboxes() override;
  void all_reduce(std::span<const int> shards, std::span<const std::span<double>> values) override;
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
