// engine/executor_batched.cc -- all shards of this worker in one pass of the recipe.
//
// Their floats come as the sums of the whole subtrees that these shards make up (reduce/sum_tree.h), so the bits are
// those of one by one. Where a sum is not finite, they run one by one: that shows which shard it was.
#include <algorithm>

#include "base/clock.h"
#include "engine/executor.h"
#include "engine/precision.h"
#include "engine/shard_runner.h"
#include "kernels/cpu/sums.h"
#include "reduce/sum_tree.h"

namespace tandem {
namespace {

class BatchedExecutor : public PhaseExecutor {
 public:
  explicit BatchedExecutor(ShardRunner& shards)
      : PhaseExecutor(shards),
        serial_(make_serial(shards)),
        tree_(shards.state().shards()),
        nodes_(shards.combine().subtrees()) {}

  PhaseResult run(const PhaseRun& run) override {
    shards_.begin(run);
    shards_.clear_sums(run);
    const std::vector<std::span<float>> vectors = prepare(run);
    shards_.shard_begins(0);
    const double begin = monotonic_seconds();
    shards_.checked_for_generator(run, [&] {
      PrecisionScope precision(shards_.settings().precision);
      shards_.recipe().run_batched(*run.phase, contexts_, sums_);
    });
    if (shards_.gpu()) shards_.add_gpu_seconds(monotonic_seconds() - begin);  // mostly its waits
    for (int i = 0; i < shards_.count(); ++i) shards_.take_messages(contexts_[static_cast<size_t>(i)], i);
    shards_.send_mail(run);
    shards_.wait();
    if (!is_finite(run)) return serial_->run(run);
    for (size_t k = 0; k < sums_.size(); ++k) {
      add_host_floats(run, sums_[k]);
      shards_.combine().add_partial(nodes_[k], vectors[k], /*stays=*/true);
    }
    shards_.report_all_ended();
    shards_.add_sums(run);
    return shards_.finish_with_floats(run);
  }

 private:
  // The contexts, and a vector for each subtree, whose tail is zero.
  std::vector<std::span<float>> prepare(const PhaseRun& run) {
    const size_t floats = static_cast<size_t>(run.phase->floats);
    contexts_.clear();
    batches_.resize(run.phase->batches ? static_cast<size_t>(shards_.count()) : 0);
    for (int i = 0; i < shards_.count(); ++i) {
      contexts_.push_back(shards_.context_of(run, i));
      if (run.phase->batches) shards_.give_batch(run, contexts_.back(), batches_[static_cast<size_t>(i)]);
    }
    sums_.clear();
    std::vector<std::span<float>> vectors;
    if (shards_.layout_of(*run.phase, run.last).floats == 0) return vectors;
    for (size_t k = 0; k < nodes_.size(); ++k) {
      const SumTree::Node& node = tree_.node(nodes_[k]);
      const std::span<float> vector = shards_.vector_of(run, static_cast<int>(k), static_cast<int>(k));
      const std::span<float> tail = vector.last(floats);
      if (!tail.empty()) shards_.device().zero(tail.data(), tail.size_bytes());
      const int first = node.first - shards_.mine().first, last = node.last - shards_.mine().first;
      sums_.push_back({first, last, tree_.merges(nodes_[k]), vector.first(vector.size() - floats), tail});
      vectors.push_back(vector);
    }
    return vectors;
  }

  bool is_finite(const PhaseRun& run) {
    if (!run.phase->gradients) return true;
    return std::ranges::all_of(sums_, [&](const Subtree& sum) {
      return shards_.device().first_nonfinite(sum.gradient.data(), static_cast<int64_t>(sum.gradient.size())) < 0;
    });
  }

  // What the shards added up on the host, along the tree.
  void add_host_floats(const PhaseRun& run, const Subtree& sum) {
    if (sum.tail.empty()) return;
    std::vector<const float*> floats;
    for (int i = sum.first; i < sum.last; ++i) floats.push_back(shards_.scratch(i).floats.data());
    host_.resize(sum.tail.size());
    add_along_tree(host_.data(), floats, sum.merges, static_cast<int64_t>(host_.size()));
    if (std::ranges::any_of(host_, [](float x) { return x != 0; })) shards_.put_floats(run, host_, sum.tail);
  }

  std::unique_ptr<Executor> serial_;
  SumTree tree_;
  std::vector<int> nodes_;
  std::vector<ShardContext> contexts_;  // kept for their memory
  std::vector<Batch> batches_;
  std::vector<Subtree> sums_;
  std::vector<float> host_;
};

}  // namespace

std::unique_ptr<Executor> make_batched(ShardRunner& shards, const PhaseRun& run) {
  const Phase& phase = *run.phase;
  if (!phase.batched || run.set || shards.count() == 0 || !std::ranges::is_sorted(shards.order())) return nullptr;
  if (shards.combine().subtrees().empty()) return nullptr;  // nobody takes sums of several shards
  if (phase.gradients && (shards.settings().accumulation > 1 || shards.state().statistic_floats() > 0)) return nullptr;
  // A lone shard's gradient may be sent while it is made.
  if (phase.one_backward && shards.count() == 1 && shards.combine().wants_ready(shards.order().front())) return nullptr;
  return std::make_unique<BatchedExecutor>(shards);
}

}  // namespace tandem
