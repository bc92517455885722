#include "rl/dqn/dqn_range.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "engine/executor_captured.h"
#include "rl/dqn/dqn.h"
#include "rl/replay/draws_of_step.h"
#include "rl/replay/priority.h"

namespace tandem {
namespace {

CUstream_st* range_stream() { return static_cast<CUstream_st*>(gpu()->current_stream()); }

// Gives out a block piece by piece; a null block only counts.
class BlockPieces {
 public:
  explicit BlockPieces(std::byte* block) : block_(block) {}
  void* operator()(size_t bytes) {
    const size_t at = std::exchange(used_, (used_ + bytes + 255) / 256 * 256);
    return block_ ? block_ + at : nullptr;
  }
  size_t used() const { return used_; }

 private:
  std::byte* block_;
  size_t used_ = 0;
};

// A block on the device with its twin, laid out alike on both sides.
template <class LayOut>
std::unique_ptr<Mirror> laid_out(const LayOut& lay_out) {
  BlockPieces counted(nullptr);
  lay_out(/*on_host=*/false, [&](size_t bytes) { return counted(bytes); });
  auto memory = std::make_unique<Mirror>(counted.used());
  BlockPieces here(memory->on_host()), there(memory->on_gpu());
  lay_out(true, [&](size_t bytes) { return here(bytes); });
  lay_out(false, [&](size_t bytes) { return there(bytes); });
  return memory;
}

}  // namespace

void ReplayedWork::queue(const std::function<void()>& work, std::string* refused) {
  if (!graph_ && !eager_ && warm_) {
    eager_ = !eager_asked_for().empty();
    if (!eager_) graph_ = gpu()->capture(work, refused);
    eager_ = !graph_;
  }
  if (graph_)
    graph_->replay();
  else
    work();
  warm_ = true;
}

DqnRange::DqnRange(DqnLaunch launch, const DqnKernels& kernels, GpuAdvance advance, DqnReplicated& replicated)
    : launch_(std::move(launch)), k_(kernels), advance_(advance), replicated_(replicated), host_{} {
  const DqnShape& shape = launch_.shape;
  inputs_ = laid_out(
      [&](bool on_host, const TakeMemory& take) { lay_out_inputs(shape, on_host ? host_ : launch_.work, take); });
  acted_ = laid_out(
      [&](bool on_host, const TakeMemory& take) { lay_out_acted(shape, on_host ? host_ : launch_.work, take); });
  served_ = laid_out([&](bool on_host, const TakeMemory& take) {
    ServedDraws& side = on_host ? host_draws_ : draws_;
    side.owners = static_cast<int32_t*>(take(launch_.draws() * sizeof(int32_t)));
    side.rows = static_cast<std::byte*>(take(launch_.draws() * ServedDraws::row_bytes(shape)));
  });
}

void DqnRange::put_params(const StepParams& params) { std::memcpy(inputs_->on_host(), &params, sizeof(params)); }

void DqnRange::act(const StepParams& params, std::span<ShardContext> shards) {
  put_params(params);
  acting_.queue(
      [this] {
        inputs_->queue_up(0, sizeof(StepParams));
        k_.observe(launch_.shape, launch_.work, advance_, range_stream());
        k_.act(launch_.shape, launch_.offsets, launch_.work, advance_, range_stream());
        acted_->queue_down();
        replicated_.queue_fetch_ranges();
      },
      &refused_);
  device().wait();
  const int count = launch_.shape.local_shards;
  for (int j = 0; j < launch_.shape.agents; ++j)
    for (int i = 0; i < count; ++i) {
      const ActCounts counts = ActCounts::of(shards[i].counts, j, shards[i].shards);
      counts.episodes() = host_.shard_episodes[j * count + i];
      counts.priority_sum(shards[i].shard) = host_.shard_priority_sums[j * count + i];
      counts.set_returns(shards[i].shard, host_.shard_returns[j * count + i]);
    }
  replicated_.ranges_fetched(shards[0].step);
}

void DqnRange::serve(const StepParams& params, std::span<ShardContext> shards) {
  put_params(params);
  serving_.queue(
      [this] {
        inputs_->queue_up(0, sizeof(StepParams));
        k_.serve(launch_.shape, launch_.work, draws_, range_stream());
        device().queue_to_host(host_draws_.owners, draws_.owners, launch_.draws() * sizeof(int32_t));
      },
      &refused_);
  for (int j = 0; j < launch_.shape.agents; ++j) queue_fetch_rows(j);
  device().wait();
  for (int j = 0; j < launch_.shape.agents; ++j) send(shards, j);
}

// The rows of the draws that fall into this range, which are neighbours, and not those of other workers.
void DqnRange::queue_fetch_rows(int agent) {
  const DqnShape& shape = launch_.shape;
  const std::span<const int64_t> sums = replicated_.host_priority_sums(agent);
  int64_t before_own_after[3] = {};
  for (int s = 0; s < shape.shards; ++s)
    before_own_after[s < shape.first_shard ? 0 : s < shape.first_shard + shape.local_shards ? 1 : 2] += sums[s];
  const ShardDraws draws = draws_of_shard(before_own_after, 1, shape.batch);
  const size_t bytes = ServedDraws::row_bytes(shape),
               first = static_cast<size_t>(int64_t{agent} * shape.batch + draws.first) * bytes;
  device().queue_to_host(host_draws_.rows + first, draws_.rows + first,
                         static_cast<size_t>(draws.last - draws.first) * bytes);
}

// A message from each shard to each that learns from its rows; draws ascend.
void DqnRange::send(std::span<ShardContext> shards, int agent) {
  const DqnShape& shape = launch_.shape;
  const size_t bytes = ServedDraws::row_bytes(shape),
               first = static_cast<size_t>(agent) * static_cast<size_t>(shape.batch);
  const int32_t* const owners = host_draws_.owners + first;
  const std::byte* const rows = host_draws_.rows + first * bytes;
  for (ShardContext& context : shards) context.maxima[agent] = 0;  // nothing drawn
  int end = 0;
  for (int k = 0; k < shape.batch; k = end) {
    const int learner = k / shape.shard_batch, last = std::min(shape.batch, (learner + 1) * shape.shard_batch);
    for (end = k + 1; end < last && owners[end] == owners[k];) ++end;
    if (owners[k] < 0) continue;
    ShardContext& context = shards[owners[k] - shape.first_shard];
    for (int i = k; i < end; ++i) {
      TravellingRow row;
      std::memcpy(&row, rows + static_cast<size_t>(i) * bytes, sizeof(row));
      if (row.draw != i || row.agent != agent) throw std::logic_error("a draw's row did not come with its owner");
      context.maxima[agent] = std::max(context.maxima[agent], kNoPriority - row.priority);
    }
    context.send(learner, {rows + static_cast<size_t>(k) * bytes, static_cast<size_t>(end - k) * bytes});
  }
}

// The rows that the shards received, to where the launch reads them.
void DqnRange::fill_inputs(std::span<ShardContext> shards) {
  const DqnShape& shape = launch_.shape;
  const int64_t width = shape.observation_size, each = shape.shard_batch;
  const size_t bytes = static_cast<size_t>(width) * sizeof(float), row_bytes = ServedDraws::row_bytes(shape);
  for (int64_t i = 0; i < shape.local_shards; ++i)
    for (const ExchangeMessage& message : shards[i].messages()) {
      const std::byte* const end = message.row.data() + message.row.size();
      for (const std::byte* at = message.row.data(); at < end; at += row_bytes) {
        TravellingRow row;
        std::memcpy(&row, at, sizeof(row));
        const int64_t agent_shard = row.agent * int64_t{shape.local_shards} + i, r = row.draw - shards[i].shard * each,
                      to = agent_shard * each + r;
        float* const before = host_.states + (agent_shard * 2 * each + r) * width;
        std::memcpy(before, at + sizeof(row), bytes);
        std::memcpy(before + each * width, at + sizeof(row) + bytes, bytes);
        host_.reward[to] = row.transition.reward;
        host_.discount[to] = row.transition.discount;
        host_.action[to] = row.transition.action;
        host_.priority[to] = row.priority;
      }
    }
}

void DqnRange::learn(const StepParams& params, std::span<ShardContext> shards, std::span<float> gradient, float* tail) {
  put_params(params);
  fill_inputs(shards);
  if (gradient.data() != gradient_.data() || tail != tail_) learning_ = {};  // a graph of other addresses
  gradient_ = gradient;
  tail_ = tail;
  learning_.queue(
      [this] {
        inputs_->queue_up(0);
        device().zero(gradient_.data(), gradient_.size_bytes());  // the padding between tensors is nobody's
        DqnWork work = launch_.work;
        k_.pack_weights(launch_.shape, launch_.offsets, work, range_stream());
        work.packed_resident = true;  // forward and backward share what was just packed
        k_.learn(launch_.shape, launch_.offsets, work, gradient_.data(), tail_, range_stream());
      },
      &refused_);
}

}  // namespace tandem
