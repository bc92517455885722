// world/cuda_web_agents.cu -- kernels of cuda_web_agents.h.
#include "kernels/gpu/launch.h"
#include "world/cuda_web_agents.h"

namespace tandem::cuda {
namespace {

// A key on the device, with the site of the kernel's own.
template <typename Key>
struct AtSite {
  const Key* pointer;
  uint32_t site;
  __device__ Key get() const {
    Key key = *pointer;
    key.site = site;
    return key;
  }
};

template <class Env, template <typename> class Source>
__global__ void reset(WebTestState* states, int64_t n, Source<RandomKey> source, int64_t first,
                      const StepResult* only_done) {
  const RandomKey key = source.get();
  for (int64_t i = first_item(); i < n; i += item_stride())
    if (only_done == nullptr || only_done[i].done != 0) reset_one(Env{}, states[i], key, first + i);
}

template <class Env>
__global__ void observe(const WebTestState* states, float* out, int64_t n) {
  for (int64_t i = first_item(); i < n; i += item_stride()) observe_one(Env{}, states[i], out + kObservation * i);
}

template <class Env, template <typename> class Source>
__global__ void step(WebTestState* states, const int32_t* actions, StepResult* results, int64_t n,
                     Source<RandomKey> source, int64_t first) {
  const RandomKey key = source.get();
  for (int64_t i = first_item(); i < n; i += item_stride())
    results[i] = step_one(Env{}, states[i], actions[i], key, first + i);
}

// Small blocks: a state is up to a kilobyte, and a few hundred environments should reach every SM.
constexpr int kBlock = 64;
int blocks_for(int64_t n) {
  return static_cast<int>(std::max<int64_t>(1, std::min<int64_t>((n + kBlock - 1) / kBlock, 65535)));
}

template <template <typename> class Source>
void launch_reset(int32_t agent, WebTestState* states, int64_t n, const Source<RandomKey>& key, int64_t first,
                  const StepResult* only_done, Stream stream) {
  if (n <= 0) return;
  with_web_environment(agent, [&](auto environment) {
    reset<decltype(environment), Source><<<blocks_for(n), kBlock, 0, stream>>>(states, n, key, first, only_done);
  });
  check_launch("reset_web");
}

template <template <typename> class Source>
void launch_step(int32_t agent, WebTestState* states, const int32_t* actions, StepResult* results, int64_t n,
                 const Source<RandomKey>& key, int64_t first, Stream stream) {
  if (n <= 0) return;
  with_web_environment(agent, [&](auto environment) {
    step<decltype(environment), Source><<<blocks_for(n), kBlock, 0, stream>>>(states, actions, results, n, key, first);
  });
  check_launch("step_web");
}

}  // namespace

void reset_web(int32_t agent, WebTestState* states, int64_t n, const RandomKey& key, int64_t first,
               const StepResult* only_done, Stream stream) {
  launch_reset(agent, states, n, Given<RandomKey>{key}, first, only_done, stream);
}
void reset_web(int32_t agent, WebTestState* states, int64_t n, const RandomKey* key, uint32_t site, int64_t first,
               const StepResult* only_done, Stream stream) {
  launch_reset(agent, states, n, AtSite<RandomKey>{key, site}, first, only_done, stream);
}

void observe_web(int32_t agent, const WebTestState* states, float* out, int64_t n, Stream stream) {
  if (n <= 0) return;
  with_web_environment(agent, [&](auto environment) {
    observe<decltype(environment)><<<blocks_for(n), kBlock, 0, stream>>>(states, out, n);
  });
  check_launch("observe_web");
}

void step_web(int32_t agent, WebTestState* states, const int32_t* actions, StepResult* results, int64_t n,
              const RandomKey& key, int64_t first, Stream stream) {
  launch_step(agent, states, actions, results, n, Given<RandomKey>{key}, first, stream);
}
void step_web(int32_t agent, WebTestState* states, const int32_t* actions, StepResult* results, int64_t n,
              const RandomKey* key, uint32_t site, int64_t first, Stream stream) {
  launch_step(agent, states, actions, results, n, AtSite<RandomKey>{key, site}, first, stream);
}

}  // namespace tandem::cuda
