// engine/executor_serial.cc -- shard by shard; on a GPU the next one is queued while one runs.
#include "engine/executor.h"
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
  using PhaseExecutor::PhaseExecutor;
  PhaseResult run(const PhaseRun& run) override {
    shards_.begin(run);
    shards_.clear_sums(run);
    shards_.state().use_contribution(0);
    const int count = shards_.count();
    for (int index = 0; index < count; ++index) {
      const std::span<const float> floats = shards_.run_shard(run, index, 0);
      const bool last = index + 1 == count;
      // The last one's vector stays until finish() returns: a transport need not copy it.
      shards_.combine().add_floats(shards_.order()[static_cast<size_t>(index)], floats, /*stays=*/last);
      if (!last) shards_.shard_ends(index);
    }
    shards_.send_mail(run);
    shards_.sums(run).queue_fetch();
    shards_.wait();
    if (count > 0) shards_.shard_ends(count - 1);
    shards_.read_sums(run);
    shards_.add_sums(run);
    return shards_.finish_with_floats(run);
  }
};

}  // namespace

std::unique_ptr<Executor> make_serial(ShardRunner& shards) { return std::make_unique<SerialExecutor>(shards); }

}  // namespace tandem
