// rl/dqn/dqn_gpu.h -- the DQN learner on a GPU: environments, replay, acting, drawing and the update as our own
// kernels.
//
// All state of a shard lies on the GPU. A launch serves any number of shards and of agents: the
// result of a row, a draw or a weight never depends on how many others are in the launch. All sums have a fixed order;
// no library is used. The kernels compile for the CPU too (kernels/gpu/emulator.h), where tests compare them with
// dueling_cpu.h and replay.h: the same bits but for the GEMMs (kernels/gpu/gemm.h).
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/gpu/block_choice.h"
#include "kernels/gpu/kernel_tables.h"
#include "kernels/philox.h"
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

// Sizes that all agents share. An agent shard is one shard of one agent among those that a launch serves.
struct DqnShape {
  int32_t agents = 1, shards = 1;             // shards of an agent, all of them
  BlockChoice blocks;                         // with the precision of GEMM operands
  int32_t first_shard = 0, local_shards = 1;  // shards of an agent that this launch serves: this worker's
  int32_t shard_batch = 0, batch = 0;         // rows that a shard learns from in a step; shard_batch * shards
  int32_t environments = 0;                   // of a shard
  int32_t observation_size = 0, hidden1 = 0, hidden2 = 0, head = 0, actions = 0;  // widths of the net
  int32_t n_step = 1;
  int32_t levels = 0;            // of the priority tree
  int64_t ring_rows = 0;         // of an environment's ring in the replay buffer
  int64_t level_first[10] = {};  // index in the tree's array of each level's first node; level 0 are the leaves
  float gamma = 1, epsilon_norm = 1e-5f;
  double alpha = 0, dropout = 0;
  int32_t merges[32] = {};  // of the tree of shards, after each shard (kernels/gpu/tree_sum.h)
  TANDEM_HD int agent_shards() const { return agents * local_shards; }
  TANDEM_HD int agent_of(int agent_shard) const {
    return agents == 1 ? 0 : agent_shard / local_shards;
  }  // division is slow on a GPU
};
inline constexpr int kMaxGpuActions = 16;
inline constexpr int kMaxGpuWidth = 1024;  // of a hidden layer
inline constexpr int kMaxGpuBatch = 4096;
inline constexpr int kMaxGpuSteps = 32;   // of an n-step return
inline constexpr int kMaxGpuPending = 4;  // partial sums of the shards' tree on the stack at once (TreeStack)

// Where an agent's tensors begin in its flat vector of weights; gradients lie alike.
struct DqnOffsets {
  int64_t w1, b1, scale1, shift1, w2, b2, scale2, shift2, heads, heads_bias, value, value_bias, advantage,
      advantage_bias;
};

// Where an agent's packed weights begin, in fragments (kernels/gpu/packed_weights.h): those of its net and of its
// target network, then those of the net transposed, for backward.
struct PackedNetLayout {
  int32_t w1 = 0, w2, heads, per_net, backward2, backward_heads, per_agent;
  TANDEM_HD explicit PackedNetLayout(const DqnShape& s) {
    const int32_t first = s.observation_size * s.hidden1 / 8, second = s.hidden1 * s.hidden2 / 8,
                  third = s.hidden2 * s.head / 4;
    w2 = first;
    heads = w2 + second;
    per_net = heads + third;
    backward2 = 2 * per_net;
    backward_heads = backward2 + second;
    per_agent = backward_heads + third;
  }
};

struct GpuDqnAgent {
  const float *net, *target;
  float* td_errors;             // [batch] of the last step's draws; below 0: none
  int64_t* max_priority;        // the largest priority seen
  int64_t* min_drawn_priority;  // the smallest one of this step's draws
  int64_t* priority_sums;       // [shards]: each shard's sum of priorities
  int64_t offset;               // of its weights among those of all agents
};

// A shard's part of the replay buffer: a ring of ring_rows rows for each environment. A leaf of the priority tree is a
// row, numbered environment * ring_rows + row.
struct DqnShard {
  float* returns;    // [environments]: the sum of rewards of the running episode
  float* seen;       // [environments][ring_rows][observation_size]
  ReplayRow* rows;   // [environments][ring_rows]
  int64_t* written;  // [environments]: rows written so far
  int64_t* tree;     // priorities, and their sums level by level (PriorityTree)
  int32_t* drawn;    // [batch]: the leaf of each of the last step's draws; -1: another shard's
};

// What changes from step to step; read on the device.
struct StepParams {
  RandomKey key;
  double explore = 0, beta = 0;
  float loss_scale = 1, pad = 0;
};

// Results of a step for the host, of each agent.
struct StepOutputs {
  float loss, mean_q, returns;
  int32_t pad;
  int64_t episodes;
};

// Memory of the launches, all on the device. [agent shard]: agent * local_shards + shard - first_shard.
struct DqnWork {
  const GpuDqnAgent* agents;              // [agents]
  const DqnShard* shards;                 // [agent shard]
  const ShardEnvironments* environments;  // [agent shard]
  const StepParams* params;
  // acting: [agent shard][environments]
  float *observed, *rewards;
  int32_t *actions, *ends;
  // drawn: [agent shard][...]
  float* states;             // [2][shard_batch][observation_size]: before, after
  float *reward, *discount;  // [shard_batch]
  int32_t* action;           // [shard_batch]
  int64_t* priority;         // [shard_batch]
  // activations: [agent shard][passes][rows][width]; passes: the rows learned from, the next states by the net, and by
  // the target network (double DQN). preact: W x + b of a hidden layer, overwritten by its norm (LayerNorm in
  // kernels/gpu/layer_norm.h): by normalized values where rows are learned from, by the layer's output elsewhere.
  float *preact1, *preact2, *head_features;
  // Of rows that are learned from, [agent shard][shard_batch]: the output of a hidden layer, and 1 / deviation of its
  // norm.
  float *out1, *out2, *inv_std1, *inv_std2;
  // Their dropout bits, drawn beforehand by queue_act(), or null: [layer][agent shard][shard_batch][lane]
  // (kernels/gpu/dropout_bits.h).
  uint32_t* dropout_bits;
  // Gradients, [agent shard][shard_batch][width]: of the head features; of a norm's output and of its preact.
  float *head_grad, *norm_out_grad2, *preact_grad2, *norm_out_grad1, *preact_grad1;
  float* out_grad;          // [agent shard][shard_batch][1 + actions]: gradient of the state value, of each advantage
  float *row_loss, *row_q;  // [agent shard][shard_batch]
  float* agent_sums;        // [agents][2]: loss, mean Q
  float* shard_returns;     // [agent shard]: returns of the episodes that ended in this step
  int64_t* shard_episodes;  // [agent shard]: how many
  int64_t* shard_priority_sums;  // [agent shard]: the sum of its priorities once it has stored; or null
  StepOutputs* outputs;          // [agents]
  // Where the GPUs sum by themselves in the middle of the step, else null: what acting counted on all workers,
  // [agents][acted_words()]; and a word that is 0 where a sum did not end: what it should have made may not be read.
  const int64_t* acted_by_all;
  const int64_t* hold;
  // [agents][PackedNetLayout::per_agent] packed weights in bf16 or fp16. Resident: queue_after_update() and queue_act()
  // keep them up to date; else whoever uses them packs them first.
  void* packed;
  bool packed_resident;
};

// What acting counts for one agent: episodes; the sum of each shard's priorities; the bits of each shard's returns.
TANDEM_HD int64_t acted_words(int64_t shards) { return 1 + 2 * shards; }

// A transition as it travels between workers; two observations follow, before and after.
struct TravellingRow {
  int64_t priority;
  int32_t draw, agent;
  Transition transition;
  int32_t unused = 0;
};
static_assert(sizeof(TravellingRow) == 32);

// What queue_serve() writes. Draws ascend with the shards that they fall into, so those from one shard to one learner
// lie side by side: a message as it is.
struct ServedDraws {
  // [agents][batch]: the shard that a draw falls into; -1: one that is not served. Null: rows of those are zeros.
  int32_t* owners;
  std::byte* rows;  // [agents][batch], row_bytes each: a TravellingRow and its observations
  static size_t row_bytes(const DqnShape& shape) {
    return sizeof(TravellingRow) + 2 * static_cast<size_t>(shape.observation_size) * sizeof(float);
  }
  static int64_t floats(int64_t agents, int64_t batch, int64_t observation_size) {  // of all rows
    return agents * batch * (static_cast<int64_t>(sizeof(TravellingRow) / sizeof(float)) + 2 * observation_size);
  }
};

namespace cuda {

void queue_observe(const DqnShape& shape, const DqnWork& work, GpuAdvance advance, CUstream_st* stream);
// The last TD errors become priorities; one decision in each environment, stored. Without `advance` what was done last
// is stored again. In the same launch as the storing: dropout bits and packed weights for learning, where `work` asks.
void queue_act(const DqnShape& shape, const DqnOffsets& offsets, const DqnWork& work, GpuAdvance advance,
               CUstream_st* stream);
// All draws of the step, by a worker that holds every shard; it writes states, reward, discount, action and priority of
// `work`.
void queue_draws(const DqnShape& shape, const DqnWork& work, CUstream_st* stream);
// For `counted`, [agents][acted_words()]: what acting counted, with zeros in the places of shards that others serve.
void queue_acted(const DqnShape& shape, const DqnWork& work, int64_t* counted, CUstream_st* stream);
// The draws that fall into the shards served, ready to travel. agents[].priority_sums must hold the sums of all shards,
// or they are taken from acted_by_all.
void queue_serve(const DqnShape& shape, const DqnWork& work, const ServedDraws& draws, CUstream_st* stream);
// From the rows of all draws, [agents][batch]: those that the shards served learn from to states, reward, discount,
// action and priority of `work`; the least priority of all.
void queue_receive(const DqnShape& shape, const DqnWork& work, const std::byte* rows, CUstream_st* stream);
// The gradient of the rows in states, reward, ...: the sum of the shards served along their tree, laid out as the
// weights; padding is left as it is. Loss, mean Q and TD errors go to agent_sums and GpuDqnAgent::td_errors. With
// several workers they go to `tail` instead, the end of the vector that is combined: [agents][2 + batch] of loss, mean
// Q, TD errors.
void queue_learn(const DqnShape& shape, const DqnOffsets& offsets, const DqnWork& work, float* gradient, float* tail,
                 CUstream_st* stream);
// From such a tail, summed over all workers, to agent_sums and GpuDqnAgent::td_errors.
void queue_combined(const DqnShape& shape, const DqnWork& work, const float* tail, CUstream_st* stream);
// After the weights and the target networks were updated, if `decision` says so: the largest priority, and the step's
// outputs. Where packed weights are resident, those of the next decisions.
void queue_after_update(const DqnShape& shape, const DqnOffsets& offsets, const DqnWork& work,
                        const UpdateDecision* decision, CUstream_st* stream);
// Where packed weights are resident: all of them, at first or after others changed the weights.
void queue_pack_weights(const DqnShape& shape, const DqnOffsets& offsets, const DqnWork& work, CUstream_st* stream);

}  // namespace cuda

// The same by their addresses: they are in a library that a worker without a GPU never loads (GpuDevice::kernels()).
struct DqnKernels {
  static constexpr KernelTableId kId{"dqn", 3};
  decltype(&cuda::queue_observe) observe;
  decltype(&cuda::queue_act) act;
  decltype(&cuda::queue_draws) draws;
  decltype(&cuda::queue_acted) acted;
  decltype(&cuda::queue_serve) serve;
  decltype(&cuda::queue_receive) receive;
  decltype(&cuda::queue_learn) learn;
  decltype(&cuda::queue_combined) combined;
  decltype(&cuda::queue_after_update) after_update;
  decltype(&cuda::queue_pack_weights) pack_weights;
};

}  // namespace tandem
