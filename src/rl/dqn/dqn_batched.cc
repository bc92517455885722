// rl/dqn/dqn_batched.cc -- all shards of one worker in one pass: on a GPU by our kernels, on a CPU by the hand-written
// net, to the bits of one by one.
#include <torch/torch.h>

#include <cstring>

#include "nn/sites.h"
#include "rl/dqn/dqn.h"
#include "rl/dqn/dqn_on_gpu.h"
#include "rl/dqn/dueling_cpu.h"
#include "rl/replay/priority.h"

namespace tandem {

void Dqn::run_batched(const Phase& phase, std::span<ShardContext> shards, std::span<const Subtree> sums) {
  at::NoGradGuard no_grad;
  if (on_gpu_) return on_gpu_->run_batched(static_cast<DqnPhase>(phase.id), shards, sums);
  for (int agent = 0; agent < agents(); ++agent) {
    switch (static_cast<DqnPhase>(phase.id)) {
      case kActPhase:
        act_batched(agent, shards);
        break;
      case kLearnPhase:
        learn_batched(agent, shards, sums);
        break;
      case kServePhase:
        throw std::logic_error("the serve phase has no batched form");
    }
  }
}

void Dqn::act_batched(int index, std::span<ShardContext> shards) {
  DqnAgent& agent = agents_[index];
  for (ShardContext& context : shards) give_priorities(agent, context);
  const int64_t n = s_.playing(), width = shape_.observation_size;
  at::Tensor seen = at::empty({static_cast<int64_t>(shards.size()) * n, width}), best = at::empty({0}, at::kLong);
  if (n > 0) {
    for (size_t i = 0; i < shards.size(); ++i)
      agent.environment->observe(reinterpret_cast<std::byte*>(shards[i].state(agent.states).data_ptr<uint8_t>()),
                                 seen.data_ptr<float>() + static_cast<int64_t>(i) * n * width, n);
    best = cpu_net(index)->q_values(seen, shards[0].step).argmax(1);
  }
  for (size_t i = 0; i < shards.size(); ++i)
    step_environments(index, shards[i], seen.data_ptr<float>() + static_cast<int64_t>(i) * n * width,
                      best.data_ptr<int64_t>() + static_cast<int64_t>(i) * n);
}

void Dqn::learn_batched(int index, std::span<ShardContext> shards, std::span<const Subtree> sums) {
  DqnAgent& agent = agents_[index];
  DuelingCpu& net = *cpu_net(index);
  const int64_t micro_rows = s_.micro_batch_size(), width = shape_.observation_size,
                least = agent.priority_range.data_ptr<int64_t>()[1];
  const size_t bytes = static_cast<size_t>(width) * sizeof(float);
  const double power = beta(shards[0].step), share = 1 / static_cast<double>(s_.batch_size);
  const DuelingCpu::Rows rows = net.rows(static_cast<int64_t>(shards.size()));
  std::vector<std::vector<RandomSource>> streams;
  for (size_t i = 0; i < shards.size(); ++i) {
    const int64_t first = shards[i].shard * micro_rows;
    for (const ExchangeMessage& message : shards[i].messages()) {
      const std::byte* const end = message.row.data() + message.row.size();
      for (const std::byte* at = message.row.data(); at < end; at += sizeof(TravellingRow) + 2 * bytes) {
        TravellingRow head;
        std::memcpy(&head, at, sizeof(head));
        if (head.agent != index) continue;
        const int64_t to = static_cast<int64_t>(i) * micro_rows + head.draw - first;
        std::memcpy(rows.before + to * width, at + sizeof(head), bytes);
        std::memcpy(rows.after + to * width, at + sizeof(head) + bytes, bytes);
        rows.reward[to] = head.transition.reward;
        rows.discount[to] = head.transition.discount;
        rows.action[to] = head.transition.action;
        rows.weight[to] = importance_weight(head.priority, least, power);
      }
    }
    streams.push_back(masks(shards[i]));
  }
  const DuelingCpu::Learned learned = net.learn_batched(streams, share, shards[0].step);
  for (size_t i = 0; i < shards.size(); ++i) {
    const std::span<float> floats = shards[i].floats;
    floats[first_sum(index) + kLoss] += learned.losses[i];
    floats[first_sum(index) + kMeanQ] += learned.q_sums[i] * static_cast<float>(share);
    for (int64_t r = 0; r < micro_rows; ++r)
      floats[first_td_error(index, shards[i]) + r] += learned.td_errors[static_cast<int64_t>(i) * micro_rows + r];
  }
  net.backward_batched(static_cast<float>(shards[0].loss_scale()), sums, shards[0].job().parameters().data());
}

}  // namespace tandem
