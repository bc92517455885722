// rl/dqn/gpu/replay_store.cu -- prioritized replay on a GPU: storing, priorities, drawing.
#include "rl/dqn/gpu/dqn_kernels.h"
#include "rl/dqn/gpu/packed_net.h"
#include "rl/replay/draws_of_step.h"
#include "rl/replay/priority.h"

namespace tandem::cuda {
namespace {

constexpr int kFanBits = PriorityTree::kFanBits, kFan = 1 << kFanBits;

// Integer sums: atomics in any order give the same tree.
__device__ void change_priority(const DqnShape& shape, int64_t* tree, int64_t leaf, int64_t before, int64_t priority) {
  const int64_t difference = priority - before;
  if (difference == 0) return;
  tree[leaf] = priority;
#pragma unroll 1
  for (int level = 1; level < shape.levels; ++level) {
    leaf >>= kFanBits;
    atomicAdd(reinterpret_cast<unsigned long long*>(tree + shape.level_first[level] + leaf),
              static_cast<unsigned long long>(difference));
  }
}

constexpr int kStoreThreads = 256;

__device__ int64_t row_before(int64_t place, int64_t back, int64_t rows) {
  return place >= back ? place - back : place - back + rows;
}

// What a thread's environment did; all loads are in flight together.
struct EnvironmentStep {
  float reward = 0, sum = 0;
  int32_t action = 0;
  int reach = 0;  // rows of this episode before this one
  End end = End::kNone;
  int64_t now = 0, place = 0;

  __device__ EnvironmentStep(const DqnShape& shape, const DqnWork& work, const DqnShard& shard, int job_shard,
                             int first) {
    const int e = first + static_cast<int>(threadIdx.x);
    if (e >= shape.environments) return;
    const int64_t at = int64_t{job_shard} * shape.environments + e;
    now = shard.written[e];
    reward = work.rewards[at];
    action = work.actions[at];
    end = static_cast<End>(work.ends[at]);
    sum = shard.returns[e] + reward;
    place = now % shape.rows;
    reach = static_cast<int>(now < shape.n_step ? now : shape.n_step);
    const int there = reach;
    constexpr int kAtOnce = 4;  // loads in flight together
#pragma unroll 1
    for (int first_back = 1; first_back <= there; first_back += kAtOnce) {
      ReplayRow row[kAtOnce];
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k)
        if (first_back + k <= there)
          row[k] = shard.rows[e * shape.rows + row_before(place, first_back + k, shape.rows)];
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k)
        if (first_back + k <= there && (row[k].end != End::kNone || row[k].closing) && reach >= first_back + k)
          reach = first_back + k - 1;
    }
  }
};

// Dropout bits of the i-th row of a job, counting those of both layers; by one warp.
__device__ void draw_dropout(const DqnShape& shape, const DqnWork& work, int job, int i) {
  const int all = shape.count * shape.shard_batch, layer = i >= all ? 1 : 0, at = i - layer * all;
  if (at >= all) return;
  const int shard = at / shape.shard_batch, row = at - shard * shape.shard_batch, job_shard = job * shape.count + shard;
  RandomKey key = work.params->key;
  key.shard = work.environments[job_shard].shard;
  key.site = kDropout + layer;
  *dropout_bits_at(shape, work, key.site, job_shard, row) =
      draw_dropout_bits(key, row, layer == 0 ? shape.hidden1 : shape.hidden2, dropout_shape(shape.dropout));
}

// Dropout bits and packed weights stand here because they depend on nothing of this step and store() has few blocks (48
// for six agents): extra blocks run on SMs that would be idle, which saves 3 us of forward.
struct ExtraBlocks {
  int dropout = 0, packing = 0;  // blocks of a job; packing: weights that acting does not need
};
__device__ void extra_work(const DqnShape& shape, const DqnOffsets& offsets, const DqnWork& work,
                           const ExtraBlocks& blocks, int block) {
  const int of_job = blocks.dropout + blocks.packing, job = block / of_job, at = block - job * of_job;
  const PackedNetLayout packed(shape);
  if (at < blocks.dropout)
    draw_dropout(shape, work, job, at * (kStoreThreads / 32) + static_cast<int>(threadIdx.x) / 32);
  else
    pack_fragments(shape, offsets, work, job, packed.of_net + (at - blocks.dropout) * kStoreThreads, packed.all);
}

// One block a job shard: the last draws' priorities, then what the environments did (Replay::add; decide() has put the
// observations into the rings). Blocks beyond the job shards do extra work.
__global__ void __launch_bounds__(kStoreThreads)
    store(DqnShape shape, DqnOffsets offsets, DqnWork work, ExtraBlocks extra) {
  __shared__ float returned[kStoreThreads];
  __shared__ bool over[kStoreThreads];
  if (static_cast<int>(blockIdx.x) >= shape.job_shards()) {
    extra_work(shape, offsets, work, extra, static_cast<int>(blockIdx.x) - shape.job_shards());
    return;
  }
  const int job_shard = blockIdx.x, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const DqnJob& job = work.jobs[shape.job_of(job_shard)];
  const DqnShard& shard = work.shards[job_shard];
  const int64_t top = *job.max_priority;
  EnvironmentStep done(shape, work, shard, job_shard, 0);
  // Draws are made in the order of what lies in the buffer (place_of_draw()), so that those of one row are neighbours:
  // the last of them says what its error is.
  for (int k = threadIdx.x; k < shape.batch; k += kStoreThreads) {
    const int32_t row = shard.drawn[k], next = k + 1 < shape.batch ? shard.drawn[k + 1] : -1;
    const float error = job.td_errors[k];
    if (row >= 0 && row != next && error >= 0) {  // NaN: not
      const int64_t before = shard.tree[row];
      change_priority(shape, shard.tree, row, before, priority_of(error, shape.alpha));
    }
  }
  __syncthreads();
  float returns = 0;
  int64_t episodes = 0;
  for (int first = 0; first < shape.environments; first += kStoreThreads) {
    if (first > 0) done = EnvironmentStep(shape, work, shard, job_shard, first);
    if (const int e = first + static_cast<int>(threadIdx.x); e < shape.environments) {
      const End end = done.end;
      const int64_t ring = e * shape.rows;
      over[threadIdx.x] = end != End::kNone;
      returned[threadIdx.x] = done.sum;
      shard.returns[e] = end != End::kNone ? 0.0f : done.sum;
      shard.rows[ring + done.place] = {done.reward, done.action, end, 0};
      shard.written[e] = done.now + 1;
      // Its row can't be drawn yet, unless the episode is over; then all that waited can, else the oldest of them.
      constexpr int kAtOnce = 4;  // loads in flight together
#pragma unroll 1
      for (int back = 0; back <= done.reach; back += kAtOnce) {
        int64_t leaf[kAtOnce], before[kAtOnce], now[kAtOnce];
#pragma unroll
        for (int k = 0; k < kAtOnce; ++k) {
          const bool all = end != End::kNone, own = back + k == 0, oldest = back + k == shape.n_step;
          leaf[k] = ring + row_before(done.place, back + k, shape.rows);
          now[k] = all || oldest ? top : 0;
          before[k] = back + k <= done.reach && (all || own || oldest) ? shard.tree[leaf[k]] : now[k];
        }
#pragma unroll
        for (int k = 0; k < kAtOnce; ++k) change_priority(shape, shard.tree, leaf[k], before[k], now[k]);
      }
    }
    __syncthreads();
    if (warp == 0)
      for (int i = 0; i < kStoreThreads && first + i < shape.environments; i += 32) {
        const bool ends = first + i + lane < shape.environments && over[i + lane];
        for (unsigned more = __ballot_sync(kFullMask, ends); more != 0; more &= more - 1) {
          returns = returns + returned[i + __ffs(static_cast<int>(more)) - 1];
          ++episodes;
        }
      }
    __syncthreads();
  }
  if (threadIdx.x != 0) return;
  work.shard_returns[job_shard] = returns;
  work.shard_episodes[job_shard] = episodes;
}

// PriorityTree::find by a warp: sixteen lanes load a node's sixteen children, and a prefix sum finds the child.
__device__ int64_t find(const DqnShape& shape, const int64_t* tree, int64_t at) {
  const int lane = threadIdx.x % 32;
  int64_t index = 0;
  for (int level = shape.levels - 2; level >= 0; --level) {
    index <<= kFanBits;
    const int64_t first = shape.level_first[level], last = shape.level_first[level + 1];
    const bool there = lane < kFan && first + index + lane < last;
    int64_t upto = there ? tree[first + index + lane] : 0;  // with those before it
#pragma unroll
    for (int d = 1; d < kFan; d *= 2) {
      const int64_t other = __shfl_up_sync(kFullMask, upto, d);
      if (lane >= d) upto += other;
    }
    const int chosen = __ffs(static_cast<int>(__ballot_sync(kFullMask, lane < kFan && at < upto))) - 1;
    const int64_t before = __shfl_sync(kFullMask, upto, chosen > 0 ? chosen - 1 : 0);
    if (chosen > 0) at -= before;
    index += chosen;
  }
  return index;
}

// Replay::take by a warp.
__device__ Transition take(const DqnShape& shape, const DqnShard& shard, int64_t row, float* before, float* after) {
  const int lane = threadIdx.x % 32;
  const int64_t base = int64_t{static_cast<uint32_t>(row) / static_cast<uint32_t>(shape.rows)} * shape.rows;
  const int64_t last = base + shape.rows;
  // Lane k loads the k-th row from here (kMostGpuSteps is a warp's lanes).
  const int64_t mine = row + lane < last ? row + lane : row + lane - shape.rows;
  const ReplayRow own = lane < shape.n_step ? shard.rows[mine] : ReplayRow{};
  Transition t{0, 1, __shfl_sync(kFullMask, own.action, 0)};
  int64_t at = row;
  for (int k = 0; k < shape.n_step; ++k) {
    t.reward = t.reward + t.discount * __shfl_sync(kFullMask, own.reward, k);
    t.discount = t.discount * shape.gamma;
    const End end = static_cast<End>(__shfl_sync(kFullMask, static_cast<int>(own.end), k));
    if (end == End::kOver) t.discount = 0;
    at = at + 1 == last ? base : at + 1;
    if (end != End::kNone) break;
  }
  const float* const first = shard.seen + row * shape.state;
  const float* const later = shard.seen + (t.discount == 0 ? row : at) * shape.state;
  for (int i = lane; i < shape.state; i += 32) {
    before[i] = first[i];
    after[i] = later[i];
  }
  return t;
}

constexpr int kDrawWarps = 4;

__global__ void __launch_bounds__(kDrawWarps * 32) draw(DqnShape shape, DqnWork work) {
  const int lane = threadIdx.x % 32, k = blockIdx.x * kDrawWarps + threadIdx.x / 32, index = blockIdx.y;
  if (k >= shape.batch) return;
  const DqnShard* const shards = work.shards + int64_t{index} * shape.shards;
  const int64_t root = shape.level_first[shape.levels - 1];
  const int64_t mass = lane < shape.shards ? shards[lane].tree[root] : 0;  // there are 32 shards at most
  if (k == 0 && lane < shape.shards) work.jobs[index].priority_sums[lane] = mass;
  int64_t upto = mass;  // with those before it
#pragma unroll
  for (int d = 1; d < 32; d *= 2) {
    const int64_t other = __shfl_up_sync(kFullMask, upto, d);
    if (lane >= d) upto += other;
  }
  const int64_t total = __shfl_sync(kFullMask, upto, 31);
  RandomKey key = work.params->key;
  key.site = kDraw;
  int64_t at = place_of_draw(key, k, shape.batch, total);
  const int owner = __ffs(static_cast<int>(__ballot_sync(kFullMask, lane < shape.shards && at < upto))) - 1;
  const int64_t before = __shfl_sync(kFullMask, upto, owner > 0 ? owner - 1 : 0);
  if (owner > 0) at -= before;
  const int64_t row = find(shape, shards[owner].tree, at);
  for (int s = lane; s < shape.shards; s += 32) shards[s].drawn[k] = s == owner ? static_cast<int32_t>(row) : -1;
  const int learner = k / shape.shard_batch, r = k % shape.shard_batch;
  const int64_t job_shard = int64_t{index} * shape.shards + learner;
  float* const states = work.states + (job_shard * 2 * shape.shard_batch + r) * shape.state;
  const Transition t = take(shape, shards[owner], row, states, states + int64_t{shape.shard_batch} * shape.state);
  if (lane != 0) return;
  const int64_t to = job_shard * shape.shard_batch + r;
  work.reward[to] = t.reward;
  work.discount[to] = t.discount;
  work.action[to] = t.action;
  work.priority[to] = shards[owner].tree[row];
}

__global__ void __launch_bounds__(kDrawWarps * 32) serve(DqnShape shape, DqnWork work, DrawnRow* rows, float* states) {
  const int lane = threadIdx.x % 32, k = blockIdx.x * kDrawWarps + threadIdx.x / 32, job_shard = blockIdx.y;
  if (k >= shape.batch) return;
  const DqnJob& job = work.jobs[shape.job_of(job_shard)];
  const int me = job_shard - shape.job_of(job_shard) * shape.count + shape.first;
  int64_t total = 0, before = 0;
  for (int s = 0; s < shape.shards; ++s) {
    if (s < me) before += job.priority_sums[s];
    total += job.priority_sums[s];
  }
  RandomKey key = work.params->key;
  key.site = kDraw;
  const int64_t at = place_of_draw(key, k, shape.batch, total) - before;
  const DqnShard& shard = work.shards[job_shard];
  const bool mine = at >= 0 && at < job.priority_sums[me];
  DrawnRow& head = rows[int64_t{job_shard} * shape.batch + k];
  if (!mine) {
    if (lane == 0) {
      shard.drawn[k] = -1;
      head.draw = -1;
    }
    return;
  }
  const int64_t row = find(shape, shard.tree, at);
  float* const to = states + (int64_t{job_shard} * shape.batch + k) * 2 * shape.state;
  const Transition t = take(shape, shard, row, to, to + shape.state);
  if (lane != 0) return;
  shard.drawn[k] = static_cast<int32_t>(row);
  head = {shard.tree[row], k, t.action, t.reward, t.discount};
}

}  // namespace

void queue_observe(const DqnShape& shape, const DqnWork& work, GpuAdvance advance, CUstream_st* stream) {
  advance(work.environments, shape.job_shards(), shape.environments, &work.params->key, kLuck, kNewEpisode, true,
          stream);
}

void queue_act(const DqnShape& shape, const DqnOffsets& offsets, const DqnWork& work, GpuAdvance advance,
               CUstream_st* stream) {
  if (advance) {
    queue_decisions(shape, offsets, work, stream);
    advance(work.environments, shape.job_shards(), shape.environments, &work.params->key, kLuck, kNewEpisode, false,
            stream);
  }
  const PackedNetLayout packed(shape);
  const bool packs = work.packed_resident && uses_packed_weights(shape, offsets, work);
  ExtraBlocks extra;
  if (work.dropout_bits)
    extra.dropout = static_cast<int>(ceil_div(int64_t{2} * shape.count * shape.shard_batch, kStoreThreads / 32));
  if (packs) extra.packing = static_cast<int>(ceil_div(packed.all - packed.of_net, kStoreThreads));
  TANDEM_LAUNCH("dqn store", store, dim3(shape.job_shards() + shape.jobs * (extra.dropout + extra.packing)),
                dim3(kStoreThreads), stream, shape, offsets, work, extra);
}

void queue_draws(const DqnShape& shape, const DqnWork& work, CUstream_st* stream) {
  TANDEM_LAUNCH("dqn draw", draw, dim3(ceil_div(shape.batch, kDrawWarps), shape.jobs), dim3(kDrawWarps * 32), stream,
                shape, work);
}

void queue_serve(const DqnShape& shape, const DqnWork& work, DrawnRow* rows, float* states, CUstream_st* stream) {
  TANDEM_LAUNCH("dqn serve", serve, dim3(ceil_div(shape.batch, kDrawWarps), shape.job_shards()), dim3(kDrawWarps * 32),
                stream, shape, work, rows, states);
}

}  // namespace tandem::cuda
