// rl/dqn/dqn_apply.cc -- what a step's totals change on every worker alike: priorities, TD errors, target networks.
#include <algorithm>
#include <bit>
#include <stdexcept>

#include "kernels/cpu/sums.h"
#include "rl/dqn/dqn.h"
#include "rl/dqn/dqn_on_gpu.h"
#include "rl/replay/experience.h"
#include "rl/replay/priority.h"

namespace tandem {

void Dqn::apply(const Phase& phase, const Total& total, StepContext& context) {
  switch (static_cast<DqnPhase>(phase.id)) {
    case kActPhase:
      return acted(total, context);
    case kServePhase:
      return served(total, context);
    case kLearnPhase:
      return learned(total, context);
  }
  throw std::logic_error("the DQN has no phase '" + phase.name + "'");
}

void Dqn::acted(const Total& total, StepContext& context) {
  for (int agent = 0; agent < agents(); ++agent) {
    int64_t* const sums = on_gpu_ ? on_gpu_->replicated().host_priority_sums(agent).data()
                                  : agents_[agent].priority_sums.data_ptr<int64_t>();
    std::copy_n(total.counts.data() + agent * ActCounts::words(s_.shards) + 1, s_.shards, sums);
  }
  if (on_gpu_) on_gpu_->replicated().queue_priority_sums();
  record_acted(total.counts, context);
}

void Dqn::record_acted(std::span<const int64_t> all_counts, StepContext& context) {
  context.record->metrics.emplace_back("epsilon", epsilon(context.step));
  for (int agent = 0; agent < agents(); ++agent) {
    const int64_t* const counts = all_counts.data() + agent * ActCounts::words(s_.shards);
    std::vector<float> returns;
    for (int64_t shard = 0; shard < s_.shards; ++shard)
      returns.push_back(std::bit_cast<float>(static_cast<uint32_t>(counts[1 + s_.shards + shard])));
    std::vector<const float*> addends;
    for (const float& value : returns) addends.push_back(&value);
    float all = 0;
    add_along_tree(&all, addends, merges_, 1);
    record_returns(agent, static_cast<double>(counts[0]), all, context);
  }
}

// The largest priority seen and the least one drawn.
int64_t* Dqn::priority_range_on_host(int agent) {
  return on_gpu_ ? on_gpu_->replicated().host_priority_range(agent).data()
                 : agents_[agent].priority_range.data_ptr<int64_t>();
}

void Dqn::served(const Total& total, StepContext& context) {
  if (on_gpu_) on_gpu_->replicated().need_ranges(context.step);
  for (int agent = 0; agent < agents(); ++agent) priority_range_on_host(agent)[1] = kNoPriority - total.maxima[agent];
  if (on_gpu_) on_gpu_->replicated().queue_priority_ranges();
}

void Dqn::learned(const Total& total, StepContext& context) {
  experience_.reset();
  const int64_t batch = s_.batch_size;
  double loss = 0;
  if (on_gpu_ && !context.skipped) on_gpu_->replicated().need_ranges(context.step);
  for (int index = 0; index < agents(); ++index) {
    const float* const sums = total.floats.data() + first_sum(index);
    loss += sums[kLoss];
    context.record->metrics.emplace_back(metric(index, "mean_q"), sums[kMeanQ]);
    float* const errors =
        on_gpu_ ? on_gpu_->replicated().host_td_errors(index).data() : agents_[index].td_errors.data_ptr<float>();
    if (context.skipped) {
      std::fill_n(errors, batch, -1.0f);
      continue;
    }
    std::copy_n(sums + kTdErrors, batch, errors);
    int64_t& top = priority_range_on_host(index)[0];
    top = std::max(top, priority_of(*std::max_element(errors, errors + batch), s_.alpha));
  }
  if (on_gpu_ && context.skipped)  // a roll-back may have put older ranges there
    on_gpu_->replicated().queue_td_errors();
  else if (on_gpu_)
    on_gpu_->replicated().queue_priority_ranges_and_td_errors();
  context.record->loss = loss / agents();
  context.record->samples = static_cast<double>(batch * agents());
  if (context.skipped) return;
  const std::span<float> target = context.state->target_network(0);
  device().soft_update(target.data(), context.state->parameters().data(), static_cast<float>(s_.target_rate),
                       static_cast<int64_t>(target.size()));
}

}  // namespace tandem
