// rl/dqn/dqn_gpu.h -- the DQN learner on a GPU: environments, replay, acting, drawing and the update as kernels of
// ours.
//
// Everything of a shard lies on the GPU. A launch serves any number of shards and of jobs (a job is one agent): what a
// row, a draw or a weight becomes never depends on how many others are in the launch. All sums run in orders that the
// code fixes, with no library. The kernels compile for the CPU too (kernels/gpu/emulator.h), where tests compare them
// with dueling_cpu.h and replay.h: the same bits but for the matrix products (cuda_dqn_products.h).
#pragma once

#include <cstdint>

#include "kernels/philox.h"
#include "kernels/rounding.h"
#include "kernels/update_decision.h"
#include "rl/gpu_environment.h"
#include "rl/replay/replay.h"

namespace tandem {

// The random streams of a DQN step.
enum DqnSite : uint32_t {
  kExplore,
  kMove,
  kLuck,
  kNewEpisode,
  kDraw,
  kFirstMove,
  kFirstLuck,
  kFirstEpisode,
  kDropout  // and one more for each further hidden layer
};

// Sizes that all jobs share.
struct DqnShape {
  int32_t jobs = 1, shards = 1;  // shards of a job, all of them
  // Of its products: 1, 2, or 4 where they fit (cuda_dqn_staged.h); or rows of all its layers, 16, 24, 32 or 40, where
  // these fit (cuda_dqn_rows.h). Both 0: what suits.
  int32_t tiles_of_block = 0, rows_of_block = 0;
  int32_t first = 0, count = 1;  // those that this launch serves
  int32_t piece = 0, batch = 0;  // rows that a shard learns from; piece * shards
  int32_t environments = 0;      // of a shard
  int32_t state = 0, wide = 0, narrow = 0, head = 0, actions = 0;
  int32_t n_step = 1, levels = 0;  // levels of the priority tree
  int64_t rows = 0;                // of an environment's ring
  int64_t level_first[10] = {};
  float gamma = 1, epsilon_norm = 1e-5f;
  double alpha = 0, dropout = 0;
  int32_t merges[32] = {};                 // sums of shards along the tree: how many are joined after each (see Stack)
  Precision precision = Precision::kFp32;  // of the factors of products
  TANDEM_HD int sets() const { return jobs * count; }
  TANDEM_HD int job_of(int set) const { return jobs == 1 ? 0 : set / count; }  // a GPU is slow to divide
};
inline constexpr int kMostGpuActions = 16;
inline constexpr int kMostGpuWidth = 1024;  // of a hidden layer
inline constexpr int kMostGpuBatch = 4096;
inline constexpr int kMostGpuSteps = 32;  // of an n-step return
inline constexpr int kMostGpuDepth = 4;   // of the sums that wait while others are made

// Where a job's tensors begin in its flat vector of weights; gradients lie alike.
struct DqnPlaces {
  int64_t w1, b1, scale1, shift1, w2, b2, scale2, shift2, heads, heads_bias, value, value_bias, advantage,
      advantage_bias;
};

// Where a job's weights in halves begin, in pieces (cuda_dqn_halves.h): those of its net and of its target network, one
// after the other, then those of the net that the way back takes.
inline bool is_of_halves(Precision precision) { return precision == Precision::kBf16 || precision == Precision::kFp16; }
inline constexpr int kHalvesBytes = 16;  // of a piece, eight numbers
struct DqnHalves {
  int32_t w1 = 0, w2, heads, of_net, back2, back_heads, all;
  TANDEM_HD explicit DqnHalves(const DqnShape& s) {
    const int32_t first = s.state * s.wide / 8, second = s.wide * s.narrow / 8, third = s.narrow * s.head / 4;
    w2 = first;
    heads = w2 + second;
    of_net = heads + third;
    back2 = 2 * of_net;
    back_heads = back2 + second;
    all = back_heads + third;
  }
};

struct DqnJob {
  const float *net, *target;
  float* errors;  // [batch] of the last step's draws; below 0: none
  int64_t* tops;  // the largest priority seen, the least one drawn
  int64_t* sums;  // [shards] mass of each shard's priorities
  int64_t place;  // where its weights begin among those of all jobs
};

struct DqnShard {
  float* returns;
  float* seen;
  ReplayRow* rows;
  int64_t* written;
  int64_t* tree;
  int32_t* drawn;
};

// What changes from step to step; read on the GPU.
struct StepParams {
  RandomKey key;
  double explore = 0, beta = 0;
  float loss_scale = 1, pad = 0;
};

// What a step tells, of each job.
struct StepOutputs {
  float loss, mean_q, returns;
  int32_t pad;
  int64_t episodes;
};

// Memory of the launches, all on the GPU. [set] counts job * count + shard - first.
struct DqnWork {
  const DqnJob* jobs;      // [jobs]
  const DqnShard* shards;  // [set]
  const GpuSet* worlds;    // [set]
  const StepParams* order;
  // acting: [set][environments]
  float *observed, *rewards;
  int32_t *actions, *ends;
  // drawn: [set][...]
  float* states;             // [2][piece][state]: before, after
  float *reward, *discount;  // [piece]
  int32_t* action;           // [piece]
  int64_t* priority;         // [piece]
  // activations: [set][kinds][rows][width]; kinds: learned from, chosen by, judged by
  float *sums1, *sums2, *both;
  // Of rows that are learned from, [set][piece]: what comes out of a layer. Their sums become the normed ones; other
  // rows' become what comes out.
  float *out1, *out2, *inverse1, *inverse2;
  // What dropout leaves of them, drawn beforehand by queue_act(), or null: [layer][set][piece][lane], the four
  // numbers of a lane's i-th turn in the i-th four bits.
  uint32_t* left;
  float *both_grad, *dz2, *dx2, *dz1, *dx1;  // [set][piece][width]
  float* out_grad;                           // [set][piece][1 + actions]
  float *row_loss, *row_q;                   // [set][piece]
  float* job_sums;                           // [jobs][2]: loss, mean Q
  float* shard_returns;                      // [set]
  int64_t* shard_episodes;                   // [set]
  StepOutputs* told;                         // [jobs]
  // [jobs][DqnHalves::all] of bf16 or fp16, for who takes them. Kept, by queue_applied() and queue_act(); or made by
  // who takes them, each time.
  void* halves;
  bool halves_kept;
};

namespace cuda {

void queue_observe(const DqnShape& shape, const DqnWork& work, GpuAdvance advance, CUstream_st* stream);
// Last errors become priorities; one decision in each environment, stored. Without `advance` what was done last is
// stored again. Beside it what learning will need of `work`, where it is asked for: dropout, and weights in halves.
void queue_act(const DqnShape& shape, const DqnPlaces& places, const DqnWork& work, GpuAdvance advance,
               CUstream_st* stream);
// All draws of the step, by a worker that holds every shard; it writes states, reward, ... of `work`.
void queue_draws(const DqnShape& shape, const DqnWork& work, CUstream_st* stream);
// The draws in the mass of the shards served, for others to learn from: their transitions at `rows` [set][batch], those
// of other shards untouched. jobs[].sums must hold the masses.
struct DrawnRow {
  int64_t priority;
  int32_t draw, action;
  float reward, discount;
};
void queue_serve(const DqnShape& shape, const DqnWork& work, DrawnRow* heads, float* states, CUstream_st* stream);
// The update's gradient of what lies in states, reward, ...: the sum of the shards served along their tree, laid out as
// the weights; padding is left as it is. Errors, loss and mean Q go to the jobs, or where there is a `tail` (loss, mean
// Q, the errors of all draws, of each job) to it.
void queue_learn(const DqnShape& shape, const DqnPlaces& places, const DqnWork& work, float* gradient, float* tail,
                 CUstream_st* stream);
// After the weights and their target networks have moved, if plan says so: the largest priority; and what is told.
// Where halves are kept, those that the next decisions need.
void queue_applied(const DqnShape& shape, const DqnPlaces& places, const DqnWork& work, const UpdateDecision* plan,
                   CUstream_st* stream);
// Where halves of weights are kept: the first ones, or those of weights that were changed by others.
void queue_halves(const DqnShape& shape, const DqnPlaces& places, const DqnWork& work, CUstream_st* stream);

}  // namespace cuda

// The same by their addresses: they are in a library that a worker without a GPU never loads (GPU::part("dqn")).
struct DqnKernels {
  decltype(&cuda::queue_observe) observe;
  decltype(&cuda::queue_act) act;
  decltype(&cuda::queue_draws) draws;
  decltype(&cuda::queue_serve) serve;
  decltype(&cuda::queue_learn) learn;
  decltype(&cuda::queue_applied) applied;
  decltype(&cuda::queue_halves) halves;
};

}  // namespace tandem
