// rl/dqn/gpu/replay_store.cu -- prioritized replay on a GPU: storing, priorities, drawing.
#include "kernels/float_bits.h"
#include "rl/dqn/gpu/dqn_kernels.h"
#include "rl/dqn/gpu/packed_net.h"
#include "rl/replay/draws_of_step.h"
#include "rl/replay/priority.h"

namespace tandem::cuda {
namespace {

constexpr int kFanBits = PriorityTree::kFanBits, kFan = 1 << kFanBits;

// Priorities are integers (rl/replay/priority.h) and so are the tree's sums: atomic additions in any order give the
// same tree. One thread changes one leaf.
__device__ void change_priority(const DqnShape& shape, int64_t* tree, int64_t leaf, int64_t old_priority,
                                int64_t priority) {
  const int64_t difference = priority - old_priority;
  if (difference == 0) return;
  tree[leaf] = priority;
  int64_t node = leaf;
#pragma unroll 1
  for (int level = 1; level < shape.levels; ++level) {
    node >>= kFanBits;
    atomicAdd(reinterpret_cast<unsigned long long*>(tree + shape.level_first[level] + node),
              static_cast<unsigned long long>(difference));
  }
}

constexpr int kStoreThreads = 256;

// The row of a ring of `rows` that was written `back` rows before `row`.
__device__ int64_t row_before(int64_t row, int64_t back, int64_t rows) {
  return row >= back ? row - back : row - back + rows;
}

// What a thread's environment did in this step; all loads are in flight together.
struct EnvironmentStep {
  float reward = 0, episode_return = 0;
  int32_t action = 0;
  int rows_back = 0;  // how many of the last n_step rows belong to this episode
  End end = End::kNone;
  int64_t written = 0, row = 0;  // rows written before; where in the ring this one goes

  __device__ EnvironmentStep(const DqnShape& shape, const DqnWork& work, const DqnShard& shard, int agent_shard,
                             int first) {
    const int e = first + static_cast<int>(threadIdx.x);
    if (e >= shape.environments) return;
    const int64_t index = int64_t{agent_shard} * shape.environments + e;
    written = shard.written[e];
    reward = work.rewards[index];
    action = work.actions[index];
    end = static_cast<End>(work.ends[index]);
    episode_return = shard.returns[e] + reward;
    row = written % shape.ring_rows;
    rows_back = static_cast<int>(written < shape.n_step ? written : shape.n_step);
    const int candidates = rows_back;
    constexpr int kLoadsInFlight = 4;
#pragma unroll 1
    for (int first_back = 1; first_back <= candidates; first_back += kLoadsInFlight) {
      ReplayRow previous[kLoadsInFlight];
#pragma unroll
      for (int k = 0; k < kLoadsInFlight; ++k)
        if (first_back + k <= candidates)
          previous[k] = shard.rows[e * shape.ring_rows + row_before(row, first_back + k, shape.ring_rows)];
#pragma unroll
      for (int k = 0; k < kLoadsInFlight; ++k)
        if (first_back + k <= candidates && (previous[k].end != End::kNone || previous[k].closing) &&
            rows_back >= first_back + k)
          rows_back = first_back + k - 1;
    }
  }
};

// Dropout bits of the i-th row of an agent, counting the rows of the first layer, then of the second; by one warp.
__device__ void draw_dropout(const DqnShape& shape, const DqnWork& work, int agent, int i) {
  const int rows_of_layer = shape.local_shards * shape.shard_batch, layer = i >= rows_of_layer ? 1 : 0,
            row_index = i - layer * rows_of_layer;
  if (row_index >= rows_of_layer) return;
  const int shard = row_index / shape.shard_batch, row = row_index - shard * shape.shard_batch,
            agent_shard = agent * shape.local_shards + shard;
  RandomKey key = work.params->key;
  key.shard = work.environments[agent_shard].shard;
  key.site = kDropout + layer;
  *dropout_bits_at(shape, work, key.site, agent_shard, row) =
      draw_dropout_bits(key, row, layer == 0 ? shape.hidden1 : shape.hidden2, dropout_shape(shape.dropout));
}

// Dropout bits and packed weights stand here because they depend on nothing of this step and store() has few blocks (48
// for six agents): extra blocks run on SMs that would be idle, which saves 3 us of forward.
struct ExtraBlocks {
  int dropout = 0, packing = 0;  // blocks of an agent; packing: weights that acting does not need
};
__device__ void extra_work(const DqnShape& shape, const DqnOffsets& offsets, const DqnWork& work,
                           const ExtraBlocks& blocks, int block) {
  const int blocks_per_agent = blocks.dropout + blocks.packing, agent = block / blocks_per_agent,
            agent_block = block - agent * blocks_per_agent;
  const PackedNetLayout packed(shape);
  if (agent_block < blocks.dropout)
    draw_dropout(shape, work, agent, agent_block * (kStoreThreads / 32) + static_cast<int>(threadIdx.x) / 32);
  else
    pack_fragments(shape, offsets, work, agent, packed.per_net + (agent_block - blocks.dropout) * kStoreThreads,
                   packed.per_agent);
}

// Grid: a block for each agent shard, then the extra blocks. An agent shard's block sets the priorities of the last
// step's draws, then stores what its environments did, a thread to an environment, as Replay::add() does (the
// observations are in the rings already: store_observation()).
//
// One function of more than 60 lines: one block does both, in order, with barriers between.
__global__ void __launch_bounds__(kStoreThreads)
    store(DqnShape shape, DqnOffsets offsets, DqnWork work, ExtraBlocks extra) {
  __shared__ float episode_returns[kStoreThreads];
  __shared__ bool ended[kStoreThreads];
  if (static_cast<int>(blockIdx.x) >= shape.agent_shards()) {
    extra_work(shape, offsets, work, extra, static_cast<int>(blockIdx.x) - shape.agent_shards());
    return;
  }
  const int agent_shard = blockIdx.x, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const GpuDqnAgent& agent = work.agents[shape.agent_of(agent_shard)];
  const DqnShard& shard = work.shards[agent_shard];
  const int64_t max_priority = *agent.max_priority;
  EnvironmentStep step(shape, work, shard, agent_shard, 0);
  // Draws are made in the order of what lies in the buffer (place_of_draw()), so that those of one row are neighbours:
  // the last of them says what its error is.
  for (int k = threadIdx.x; k < shape.batch; k += kStoreThreads) {
    const int32_t leaf = shard.drawn[k], next = k + 1 < shape.batch ? shard.drawn[k + 1] : -1;
    const float error = agent.td_errors[k];
    if (leaf >= 0 && leaf != next && error >= 0) {  // NaN: not
      const int64_t old_priority = shard.tree[leaf];
      change_priority(shape, shard.tree, leaf, old_priority, priority_of(error, shape.alpha));
    }
  }
  __syncthreads();  // the draws' priorities are set: the leaves read below are up to date
  float returns = 0;
  int64_t episodes = 0;
  for (int first_environment = 0; first_environment < shape.environments; first_environment += kStoreThreads) {
    if (first_environment > 0) step = EnvironmentStep(shape, work, shard, agent_shard, first_environment);
    if (const int e = first_environment + static_cast<int>(threadIdx.x); e < shape.environments) {
      const End end = step.end;
      const int64_t ring = e * shape.ring_rows;
      ended[threadIdx.x] = end != End::kNone;
      episode_returns[threadIdx.x] = step.episode_return;
      shard.returns[e] = end != End::kNone ? 0.0f : step.episode_return;
      shard.rows[ring + step.row] = {step.reward, step.action, end, 0};
      shard.written[e] = step.written + 1;
      // Its row can't be drawn yet, unless the episode is over; then all that waited can, else the oldest of them.
      constexpr int kLoadsInFlight = 4;
#pragma unroll 1
      for (int back = 0; back <= step.rows_back; back += kLoadsInFlight) {
        int64_t leaf[kLoadsInFlight], old_priority[kLoadsInFlight], new_priority[kLoadsInFlight];
#pragma unroll
        for (int k = 0; k < kLoadsInFlight; ++k) {
          const bool episode_over = end != End::kNone, newest = back + k == 0, oldest = back + k == shape.n_step;
          leaf[k] = ring + row_before(step.row, back + k, shape.ring_rows);
          new_priority[k] = episode_over || oldest ? max_priority : 0;
          old_priority[k] =
              back + k <= step.rows_back && (episode_over || newest || oldest) ? shard.tree[leaf[k]] : new_priority[k];
        }
#pragma unroll
        for (int k = 0; k < kLoadsInFlight; ++k)
          change_priority(shape, shard.tree, leaf[k], old_priority[k], new_priority[k]);
      }
    }
    __syncthreads();  // what each environment did is in shared memory; warp 0 adds up in the environments' order
    if (warp == 0)
      for (int i = 0; i < kStoreThreads && first_environment + i < shape.environments; i += 32) {
        const bool ends_episode = first_environment + i + lane < shape.environments && ended[i + lane];
        for (unsigned lanes = __ballot_sync(kFullMask, ends_episode); lanes != 0; lanes &= lanes - 1) {
          returns = returns + episode_returns[i + __ffs(static_cast<int>(lanes)) - 1];
          ++episodes;
        }
      }
    __syncthreads();  // warp 0 has read it: the next environments may overwrite it
  }
  if (threadIdx.x != 0) return;
  work.shard_returns[agent_shard] = returns;
  work.shard_episodes[agent_shard] = episodes;
  if (work.shard_priority_sums)  // the barriers above: all changes of the tree are in
    work.shard_priority_sums[agent_shard] = shard.tree[shape.level_first[shape.levels - 1]];
}

// PriorityTree::find by a warp: the leaf at whose priority the prefix sum over all leaves passes `mass`. From the root
// down, sixteen lanes load a node's sixteen children, and a prefix sum finds the child.
__device__ int64_t find(const DqnShape& shape, const int64_t* tree, int64_t mass) {
  const int lane = threadIdx.x % 32;
  int64_t node = 0;
  for (int level = shape.levels - 2; level >= 0; --level) {
    node <<= kFanBits;
    const int64_t level_begin = shape.level_first[level], level_end = shape.level_first[level + 1];
    const bool has_child = lane < kFan && level_begin + node + lane < level_end;
    int64_t prefix_sum = has_child ? tree[level_begin + node + lane] : 0;
#pragma unroll
    for (int delta = 1; delta < kFan; delta *= 2) {
      const int64_t other = __shfl_up_sync(kFullMask, prefix_sum, delta);
      if (lane >= delta) prefix_sum += other;
    }
    const int child = __ffs(static_cast<int>(__ballot_sync(kFullMask, lane < kFan && mass < prefix_sum))) - 1;
    const int64_t skipped = __shfl_sync(kFullMask, prefix_sum, child > 0 ? child - 1 : 0);
    if (child > 0) mass -= skipped;
    node += child;
  }
  return node;
}

// Replay::take by a warp: the n-step transition that begins with `row` (a leaf), and its two observations.
__device__ Transition take(const DqnShape& shape, const DqnShard& shard, int64_t row, float* before, float* after) {
  const int lane = threadIdx.x % 32;
  const int64_t ring_begin =
      int64_t{static_cast<uint32_t>(row) / static_cast<uint32_t>(shape.ring_rows)} * shape.ring_rows;
  const int64_t ring_end = ring_begin + shape.ring_rows;
  // Lane k loads the k-th row from `row` on (kMaxGpuSteps is a warp's lanes).
  const int64_t lane_row = row + lane < ring_end ? row + lane : row + lane - shape.ring_rows;
  const ReplayRow lane_step = lane < shape.n_step ? shard.rows[lane_row] : ReplayRow{};
  Transition t{0, 1, __shfl_sync(kFullMask, lane_step.action, 0)};
  int64_t next_row = row;
  for (int k = 0; k < shape.n_step; ++k) {
    t.reward = t.reward + t.discount * __shfl_sync(kFullMask, lane_step.reward, k);
    t.discount = t.discount * shape.gamma;
    const End end = static_cast<End>(__shfl_sync(kFullMask, static_cast<int>(lane_step.end), k));
    if (end == End::kTerminated) t.discount = 0;
    next_row = next_row + 1 == ring_end ? ring_begin : next_row + 1;
    if (end != End::kNone) break;
  }
  const float* const first_observation = shard.seen + row * shape.observation_size;
  const float* const next_observation = shard.seen + (t.discount == 0 ? row : next_row) * shape.observation_size;
  for (int i = lane; i < shape.observation_size; i += 32) {
    before[i] = first_observation[i];
    after[i] = next_observation[i];
  }
  return t;
}

constexpr int kDrawWarps = 4;  // draws of a block, a warp each

// Where draw k falls, by a warp whose lane s has the sum of shard s's priorities (at most 32 shards).
struct DrawPlace {
  int owner;     // the shard; -1: no shard has any priority
  int64_t mass;  // in the mass of that shard

  __device__ DrawPlace(const DqnShape& shape, RandomKey key, int k, int64_t priority_sum) {
    const int lane = threadIdx.x % 32;
    int64_t prefix_sum = priority_sum;
#pragma unroll
    for (int delta = 1; delta < 32; delta *= 2) {
      const int64_t other = __shfl_up_sync(kFullMask, prefix_sum, delta);
      if (lane >= delta) prefix_sum += other;
    }
    const int64_t total = __shfl_sync(kFullMask, prefix_sum, 31);
    key.site = kDraw;
    mass = place_of_draw(key, k, shape.batch, total);
    owner = __ffs(static_cast<int>(__ballot_sync(kFullMask, lane < shape.shards && mass < prefix_sum))) - 1;
    const int64_t skipped = __shfl_sync(kFullMask, prefix_sum, owner > 0 ? owner - 1 : 0);
    if (owner > 0) mass -= skipped;
  }
};

// All draws of a step. Grid: (blocks of kDrawWarps draws, agents).
__global__ void __launch_bounds__(kDrawWarps * 32) draw(DqnShape shape, DqnWork work) {
  const int lane = threadIdx.x % 32, k = blockIdx.x * kDrawWarps + threadIdx.x / 32, agent_index = blockIdx.y;
  if (k >= shape.batch) return;
  const DqnShard* const shards = work.shards + int64_t{agent_index} * shape.shards;
  const int64_t root = shape.level_first[shape.levels - 1];
  const int64_t priority_sum = lane < shape.shards ? shards[lane].tree[root] : 0;
  if (k == 0 && lane < shape.shards) work.agents[agent_index].priority_sums[lane] = priority_sum;
  const DrawPlace place(shape, work.params->key, k, priority_sum);
  const DqnShard& owner = shards[place.owner];
  const int64_t row = find(shape, owner.tree, place.mass);
  for (int s = lane; s < shape.shards; s += 32) shards[s].drawn[k] = s == place.owner ? static_cast<int32_t>(row) : -1;
  const int learner = k / shape.shard_batch, r = k % shape.shard_batch;
  const int64_t agent_shard = int64_t{agent_index} * shape.shards + learner;
  float* const states = work.states + (agent_shard * 2 * shape.shard_batch + r) * shape.observation_size;
  const Transition t = take(shape, owner, row, states, states + int64_t{shape.shard_batch} * shape.observation_size);
  if (lane != 0) return;
  const int64_t dst = agent_shard * shape.shard_batch + r;
  work.reward[dst] = t.reward;
  work.discount[dst] = t.discount;
  work.action[dst] = t.action;
  work.priority[dst] = owner.tree[row];
}

// A thread for each word of each agent.
__global__ void acted(DqnShape shape, DqnWork work, int64_t* counted) {
  const int words = static_cast<int>(acted_words(shape.shards)), i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= shape.agents * words) return;
  const int agent = i / words, word = i - agent * words, first_agent_shard = agent * shape.local_shards;
  int64_t value = 0;
  if (word == 0) {
    for (int s = 0; s < shape.local_shards; ++s) value += work.shard_episodes[first_agent_shard + s];
  } else {
    const bool is_return = word > shape.shards;
    const int local = word - 1 - (is_return ? shape.shards : 0) - shape.first_shard;
    if (local >= 0 && local < shape.local_shards)
      value = is_return ? static_cast<int64_t>(bits_of_float(work.shard_returns[first_agent_shard + local]))
                        : work.shard_priority_sums[first_agent_shard + local];
  }
  counted[i] = value;
}

// The draws of a step that fall into the served shards. Grid: (blocks of kDrawWarps draws, agents).
__global__ void __launch_bounds__(kDrawWarps * 32)
    serve(DqnShape shape, DqnWork work, ServedDraws draws, int64_t row_bytes) {
  const int lane = threadIdx.x % 32, k = blockIdx.x * kDrawWarps + threadIdx.x / 32, agent_index = blockIdx.y;
  if (k >= shape.batch || is_held(work)) return;
  const GpuDqnAgent& agent = work.agents[agent_index];
  int64_t priority_sum = 0;
  if (lane < shape.shards)
    priority_sum = work.acted_by_all ? work.acted_by_all[agent_index * acted_words(shape.shards) + 1 + lane]
                                     : agent.priority_sums[lane];
  if (work.acted_by_all && k == 0 && lane < shape.shards) agent.priority_sums[lane] = priority_sum;
  const DrawPlace place(shape, work.params->key, k, priority_sum);
  const DqnShard* const shards = work.shards + int64_t{agent_index} * shape.local_shards;
  const int local = place.owner - shape.first_shard;
  const bool is_served = place.owner >= 0 && local >= 0 && local < shape.local_shards;
  const int64_t row = is_served ? find(shape, shards[local].tree, place.mass) : -1,
                dst = int64_t{agent_index} * shape.batch + k;
  for (int s = lane; s < shape.local_shards; s += 32) shards[s].drawn[k] = s == local ? static_cast<int32_t>(row) : -1;
  std::byte* const travelling = draws.rows + dst * row_bytes;
  if (draws.owners && lane == 0) draws.owners[dst] = is_served ? place.owner : -1;
  for (int i = lane; !draws.owners && !is_served && i < row_bytes / static_cast<int64_t>(sizeof(float4)); i += 32)
    reinterpret_cast<float4*>(travelling)[i] = {0, 0, 0, 0};
  if (!is_served) return;
  float* const observations = reinterpret_cast<float*>(travelling + sizeof(TravellingRow));
  const Transition t = take(shape, shards[local], row, observations, observations + shape.observation_size);
  if (lane == 0) *reinterpret_cast<TravellingRow*>(travelling) = {shards[local].tree[row], k, agent_index, t, 0};
}

// Grid: (blocks of kDrawWarps draws, agents), a warp to a draw. An agent's first warp finds the least priority too.
__global__ void __launch_bounds__(kDrawWarps * 32)
    receive(DqnShape shape, DqnWork work, const std::byte* rows, int64_t row_bytes) {
  const int lane = threadIdx.x % 32, k = blockIdx.x * kDrawWarps + threadIdx.x / 32, agent_index = blockIdx.y;
  if (k >= shape.batch || is_held(work)) return;
  const std::byte* const of_agent = rows + int64_t{agent_index} * shape.batch * row_bytes;
  const auto row_of = [&](int draw) { return reinterpret_cast<const TravellingRow*>(of_agent + draw * row_bytes); };
  if (k == 0) {
    int64_t least = kLargestPriority + 1;
    for (int i = lane; i < shape.batch; i += 32)
      if (const int64_t priority = row_of(i)->priority; priority < least) least = priority;
#pragma unroll
    for (int lane_mask = 16; lane_mask > 0; lane_mask /= 2) {
      const int64_t other = __shfl_xor_sync(kFullMask, least, lane_mask);
      least = other < least ? other : least;
    }
    if (lane == 0) *work.agents[agent_index].min_drawn_priority = least;
  }
  const int learner = k / shape.shard_batch, r = k - learner * shape.shard_batch, local = learner - shape.first_shard;
  if (local < 0 || local >= shape.local_shards) return;
  const TravellingRow* const row = row_of(k);
  const int64_t agent_shard = int64_t{agent_index} * shape.local_shards + local,
                dst = agent_shard * shape.shard_batch + r;
  const float* const observations = reinterpret_cast<const float*>(row + 1);
  float* const before = work.states + (agent_shard * 2 * shape.shard_batch + r) * shape.observation_size;
  float* const after = before + int64_t{shape.shard_batch} * shape.observation_size;
  for (int i = lane; i < shape.observation_size; i += 32) {
    before[i] = observations[i];
    after[i] = observations[shape.observation_size + i];
  }
  if (lane != 0) return;
  work.reward[dst] = row->transition.reward;
  work.discount[dst] = row->transition.discount;
  work.action[dst] = row->transition.action;
  work.priority[dst] = row->priority;
}

}  // namespace

void queue_observe(const DqnShape& shape, const DqnWork& work, GpuAdvance advance, CUstream_st* stream) {
  advance(work.environments, shape.agent_shards(), shape.environments, &work.params->key, kLuck, kNewEpisode, true,
          stream);
}

void queue_act(const DqnShape& shape, const DqnOffsets& offsets, const DqnWork& work, GpuAdvance advance,
               CUstream_st* stream) {
  if (advance) {
    queue_decisions(shape, offsets, work, stream);
    advance(work.environments, shape.agent_shards(), shape.environments, &work.params->key, kLuck, kNewEpisode, false,
            stream);
  }
  const PackedNetLayout packed(shape);
  const bool packs = work.packed_resident && uses_packed_weights(shape, offsets, work);
  ExtraBlocks extra;
  if (work.dropout_bits)
    extra.dropout = static_cast<int>(ceil_div(int64_t{2} * shape.local_shards * shape.shard_batch, kStoreThreads / 32));
  if (packs) extra.packing = static_cast<int>(ceil_div(packed.per_agent - packed.per_net, kStoreThreads));
  TANDEM_LAUNCH("dqn store", store, dim3(shape.agent_shards() + shape.agents * (extra.dropout + extra.packing)),
                dim3(kStoreThreads), stream, shape, offsets, work, extra);
}

void queue_draws(const DqnShape& shape, const DqnWork& work, CUstream_st* stream) {
  TANDEM_LAUNCH("dqn draw", draw, dim3(ceil_div(shape.batch, kDrawWarps), shape.agents), dim3(kDrawWarps * 32), stream,
                shape, work);
}

void queue_acted(const DqnShape& shape, const DqnWork& work, int64_t* counted, CUstream_st* stream) {
  constexpr int kThreads = 128;
  TANDEM_LAUNCH("dqn acted", acted, dim3(ceil_div(shape.agents * acted_words(shape.shards), kThreads)), dim3(kThreads),
                stream, shape, work, counted);
}

void queue_serve(const DqnShape& shape, const DqnWork& work, const ServedDraws& draws, CUstream_st* stream) {
  TANDEM_LAUNCH("dqn serve", serve, dim3(ceil_div(shape.batch, kDrawWarps), shape.agents), dim3(kDrawWarps * 32),
                stream, shape, work, draws, static_cast<int64_t>(ServedDraws::row_bytes(shape)));
}

void queue_receive(const DqnShape& shape, const DqnWork& work, const std::byte* rows, CUstream_st* stream) {
  TANDEM_LAUNCH("dqn receive", receive, dim3(ceil_div(shape.batch, kDrawWarps), shape.agents), dim3(kDrawWarps * 32),
                stream, shape, work, rows, static_cast<int64_t>(ServedDraws::row_bytes(shape)));
}

}  // namespace tandem::cuda
