#include "cuda/parts.h"

#include "kernels/gpu/profile.h"
#include "recipes/cuda_web_environment.h"
#include "rl/dqn/dqn_gpu.h"

namespace tandem::cuda {

void* part(const std::string& name) {
  static const DqnKernels dqn{queue_observe, queue_act,     queue_draws, queue_serve,
                              queue_learn,   queue_applied, queue_halves};
  if (name == "dqn") return const_cast<DqnKernels*>(&dqn);
  if (name == "profile") return reinterpret_cast<void*>(&profile);
  if (name == "web") return reinterpret_cast<void*>(&advance_web);
  return nullptr;
}

}  // namespace tandem::cuda
