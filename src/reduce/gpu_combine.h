// reduce/gpu_combine.h -- the combine of a worker whose contributions lie on a GPU, through host memory.
//
// The GPU adds up the whole subtrees that this worker holds. Only those partial sums are copied to the host, where
// `inner` combines them with those of other workers; the total is copied back. A lone worker copies nothing. A ready
// link between the GPUs (direct_gpu_link.h) replaces the copies, or the whole of `inner` but for its mark. Host memory
// serves until the link is ready, and where GPUs can't reach each other: two workers on one GPU, MIG, GPUs of several
// machines.
#pragma once

#include <memory>
#include <vector>

#include "kernels/device.h"
#include "reduce/combine.h"
#include "reduce/direct_gpu_link.h"

namespace tandem {

class GpuCombine : public Combine, public DeviceCombine {
 public:
  // `mine`: this worker's shards; `inner` was made for them.
  GpuCombine(int shards, ShardRange mine, std::unique_ptr<Combine> inner, Device& device,
             std::unique_ptr<DirectGpuLink> link = nullptr);
  ~GpuCombine() override;
  void begin(const ContributionLayout& layout) override;
  void add(int shard, Contribution contribution) override;  // floats on the GPU, if they were not added before
  DeviceCombine* as_device() override { return this; }
  void begin_floats() override;
  void add_floats(int shard, std::span<const float> floats, bool stays) override;
  Partials partial_sums() const override;
  void set_partial_sums(Partials sums) override;
  bool queues_total() const override { return completes_; }
  void begin_total() override;
  std::span<const float> queue_total(const DeviceIntegers& integers) override;
  bool end_total() override;
  bool queues_steps() const override { return link_ && link_->queues_steps(); }
  void begin_totals(int sums, std::span<int64_t> maxima) override;
  void queue(const QueuedSum& sum) override { link_->queue(sum); }
  int end_totals() override;
  double total_seconds() const override { return link_ ? link_->last_seconds() : 0; }
  void add_partial(int node, std::span<const float> floats, bool stays) override;
  std::vector<int> subtrees() const override { return tree_.cover(mine_.first, mine_.last); }
  Total finish() override;  // floats on the GPU
  void completed() override { inner_->completed(); }
  const Inbox& inbox(int shard) const override { return inner_->inbox(shard); }
  void clear_inboxes() override { inner_->clear_inboxes(); }
  void all_reduce(std::span<const int> shards, std::span<const std::span<double>> values) override {
    inner_->all_reduce(shards, values);
  }
  int64_t next_sequence() const override { return inner_->next_sequence(); }
  int64_t begun_at() const override { return inner_->begun_at(); }
  double late_seconds() const override { return inner_->late_seconds() + (link_ ? link_->late_seconds() : 0); }

 private:
  struct Vectors;  // of one length
  Vectors& vectors_for(int64_t length);

  SumTree tree_;
  ShardRange mine_;
  std::unique_ptr<Combine> inner_;
  Device& device_;
  bool alone_;
  std::vector<std::unique_ptr<Vectors>> all_;
  Vectors* now_ = nullptr;
  std::unique_ptr<DirectGpuLink> link_;  // goes first: what it has under way uses the vectors
  bool linked_ = false;                  // the floats of this phase go over it
  bool completes_ = false;               // and everything else
  int added_ = 0;                        // shards, where it completes
  int sums_ = 0;                         // that are queued together
  std::vector<int64_t> counts_, maxima_;
};

}  // namespace tandem
