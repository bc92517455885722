#include "cuda/offered_kernels.h"

#include "kernels/batch_norm_kernels.h"
#include "kernels/clip_kernels.h"
#include "kernels/conv_kernels.h"
#include "kernels/first_block_kernels.h"
#include "kernels/gpu/layer_kernels.h"
#include "kernels/gpu/linear_cublaslt.h"
#include "kernels/gpu/profile.h"
#include "kernels/linear_kernels.h"
#include "kernels/lstm_kernels.h"
#include "kernels/norm_pool_kernels.h"
#include "kernels/peer_sum.h"
#include "kernels/pool_kernels.h"
#include "kernels/tree_kernels.h"
#include "market/cuda_options_environment.h"
#include "recipes/cuda_web_environment.h"
#include "rl/dqn/dqn_gpu.h"
#include "rl/ppo/cuda_ppo_kernels.h"
#include "world/cuda_chess.h"

namespace tandem::cuda {

const KernelTables& offered_kernels() {
  static const DqnKernels dqn{queue_observe, queue_act,   queue_draws,    queue_acted,        queue_serve,
                              queue_receive, queue_learn, queue_combined, queue_after_update, queue_pack_weights};
  static const LinearKernels linear{gelu, gelu_gradient, column_sums};
  static const OptionsKernels options{step_options_rollout};
  static const PeerKernels peers{queue_peer_sum, most_peer_blocks};
  static const ProfileKernels profiler{profile};
  static const TreeKernels tree{tree_sum, shard_sums};
  static const WebKernels web{advance_web};
  static const KernelTables all = KernelTables()
                                      .add(batch_norm_kernels())
                                      .add(chess_kernels())
                                      .add(clip_kernels())
                                      .add(conv_kernels())
                                      .add(first_block_kernels())
                                      .add(norm_pool_kernels())
                                      .add(pool_kernels())
                                      .add(layer_norm_kernels())
                                      .add(cross_entropy_kernels())
                                      .add(embedding_kernels())
                                      .add(dropout_kernels())
                                      .add(dqn)
                                      .add(gemm_kernels())
                                      .add(linear)
                                      .add(lstm_kernels())
                                      .add(ppo_kernels())
                                      .add(options)
                                      .add(peers)
                                      .add(profiler)
                                      .add(tree)
                                      .add(web);
  return all;
}

}  // namespace tandem::cuda
