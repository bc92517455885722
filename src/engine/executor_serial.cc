// engine/executor_serial.cc -- one pass after the other, each over one shard or over several (engine/shard_groups.h);
// on a GPU the next one is queued while one runs.
#include <algorithm>
#include <utility>

#include "engine/executor.h"
#include "engine/shard_groups.h"
#include "engine/shard_runner.h"

namespace tandem {

void PhaseExecutor::apply(const PhaseRun& run, const PhaseResult& result, StepContext& context) {
  // The recipe sees its own part of the total, without gradient, batch-norm statistics, NaN flag and request.
  const size_t maxima = static_cast<size_t>(run.phase->maxima);
  shards_.recipe().apply(*run.phase, {result.floats, result.total.counts, result.total.maxima.first(maxima)}, context);
}

namespace {

class SerialExecutor : public PhaseExecutor {
 public:
  SerialExecutor(ShardRunner& shards, std::unique_ptr<ShardGroups> groups)
      : PhaseExecutor(shards), groups_(std::move(groups)) {}
  PhaseResult run(const PhaseRun& run) override {
    if (!groups_) groups_ = std::make_unique<ShardGroups>(shards_, run);
    shards_.begin(run);
    const int size = groups_->size(run);
    add_all(run, size);
    if (size > 1 && has_nan(run)) {  // which shard it was shows when they run one by one
      shards_.begin(run);
      add_all(run, 1);
    }
    shards_.batches().forget_before(run.step + 1);
    shards_.read_sums(run);
    shards_.add_sums(run);
    return shards_.finish_with_floats(run);
  }
  std::optional<int64_t> equal_at() const override {
    return groups_ && groups_->possible() ? groups_->last_equal() : std::nullopt;
  }

 private:
  void add_all(const PhaseRun& run, int size) {
    shards_.clear_sums(run);
    shards_.state().use_contribution(0);
    if (size > 1)
      add_groups(run, size);
    else
      add_shards(run);
    shards_.sums(run).queue_fetch();
    shards_.wait();
    if (shards_.count() > 0) shards_.shard_ends(shards_.count() - 1);
  }

  void add_shards(const PhaseRun& run) {
    const int count = shards_.count();
    for (int index = 0; index < count; ++index) {
      const std::span<const float> floats = shards_.run_shard(run, index, 0);
      const bool last = index + 1 == count;
      // The last one's vector stays until finish() returns: a transport need not copy it.
      shards_.combine().add_floats(shards_.order()[static_cast<size_t>(index)], floats, /*stays=*/last);
      if (!last) shards_.shard_ends(index);
    }
    shards_.send_mail(run);
  }

  void add_groups(const PhaseRun& run, int size) {
    std::vector<ShardGroup> groups = shards_.groups(size);
    for (ShardGroup& group : groups) {
      shards_.run_group(run, group, 0);
      const bool last = &group == &groups.back();
      for (const PassPart& part : group.parts) shards_.combine().add_partial(part.node, part.vector, /*stays=*/last);
      for (int i = 0; i < group.count; ++i) {  // the time of the pass is the first one's
        if (i > 0) shards_.shard_begins(group.first + i);
        if (!last || i + 1 < group.count) shards_.shard_ends(group.first + i);
      }
    }
  }

  bool has_nan(const PhaseRun& run) {
    if (!run.phase->gradients || shards_.state().shards() == 1) return false;
    for (int i = 0; i < shards_.count(); ++i)
      if (shards_.sums(run).bad(i) >= 0) return true;
    return false;
  }

  std::unique_ptr<ShardGroups> groups_;
};

}  // namespace

std::unique_ptr<Executor> make_serial(ShardRunner& shards, std::unique_ptr<ShardGroups> groups) {
  return std::make_unique<SerialExecutor>(shards, std::move(groups));
}

std::unique_ptr<Executor> make_serial(ShardRunner& shards) { return make_serial(shards, nullptr); }

}  // namespace tandem
