// engine/executor_lockstep.cc -- all shards side by side, with an all-reduce at every batch norm (sync_bn).
#include "engine/executor.h"
#include "engine/lockstep.h"
#include "engine/shard_runner.h"

namespace tandem {
namespace {

class LockstepExecutor : public PhaseExecutor {
 public:
  explicit LockstepExecutor(ShardRunner& shards)
      : PhaseExecutor(shards),
        lockstep_([this](auto ids, auto values) { shards_.combine().all_reduce(ids, values); }) {}

  PhaseResult run(const PhaseRun& run) override {
    shards_.begin(run);
    shards_.clear_sums(run);
    JobState& state = shards_.state();
    state.use_contribution(0);
    struct EndReduce {
      JobState& state;
      ~EndReduce() { state.layers().all_reduce = nullptr; }
    } end{state};
    state.layers().all_reduce = [this](std::span<double> values) { lockstep_.all_reduce(values); };
    std::vector<std::span<const float>> floats(shards_.order().size());  // each has a vector of its own
    lockstep_.run(
        shards_.order(),
        [&](int i) {
          floats[static_cast<size_t>(i)] = shards_.run_shard(run, i, i);
          shards_.shard_ends(i);
        },
        [&](int i) {
          state.use_contribution(i);
          static_cast<MicroBatch&>(state.layers()) = shards_.scratch(i).norm;
          state.layers().sums = shards_.scratch(i).tree.get();
        });
    for (size_t i = 0; i < floats.size(); ++i)
      shards_.combine().add_floats(shards_.order()[i], floats[i], /*stays=*/true);
    shards_.send_mail(run);
    shards_.sums(run).queue_fetch();
    shards_.wait();
    shards_.read_sums(run);
    shards_.add_sums(run);
    return shards_.finish_with_floats(run);
  }

 private:
  Lockstep lockstep_;
};

}  // namespace

std::unique_ptr<Executor> make_lockstep(ShardRunner& shards) { return std::make_unique<LockstepExecutor>(shards); }

}  // namespace tandem
