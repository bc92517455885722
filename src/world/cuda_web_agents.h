// world/cuda_web_agents.h -- the CUDA twins of web_agents.h: the same names, arguments and bits, one thread an
// environment.
//
// Pointers are to device memory; a call only queues work on `stream` and may be captured into a graph. The second form
// of each reads the key on the device, but for its site, so that one captured graph serves all steps and shards. A
// refused launch throws CudaError.
#pragma once

#include "kernels/gpu/kernels.h"
#include "world/web_agents.h"

namespace tandem::cuda {

void reset_web(int32_t agent, WebTestState* states, int64_t n, const RandomKey& key, int64_t first,
               const StepResult* only_done, Stream stream);
void reset_web(int32_t agent, WebTestState* states, int64_t n, const RandomKey* key, uint32_t site, int64_t first,
               const StepResult* only_done, Stream stream);
void observe_web(int32_t agent, const WebTestState* states, float* out, int64_t n, Stream stream);  // [n, 128]
void step_web(int32_t agent, WebTestState* states, const int32_t* actions, StepResult* results, int64_t n,
              const RandomKey& key, int64_t first, Stream stream);
void step_web(int32_t agent, WebTestState* states, const int32_t* actions, StepResult* results, int64_t n,
              const RandomKey* key, uint32_t site, int64_t first, Stream stream);

}  // namespace tandem::cuda
