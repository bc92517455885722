// tests/gpu/environment_twins.cu -- the six web-test environments on the GPU beside the CPU: equal bits over whole
// episodes, then speed.
//
// One JSON line per agent: {"agent","environments","steps","equal","steps_per_s","with_observation_per_s"}. Exit 1 if a
// state, observation or result differs, 2 if there is no GPU. Builds alone, on a bare machine:
//   nvcc -std=c++20 -O3 -arch=native --fmad=false -Isrc -Xcompiler -ffp-contract=off -o environment_twins
//     tests/gpu/environment_twins.cu src/world/cuda_web_agents.cu src/world/web_agents.cc src/base/sha256.cc -lcrypto
#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "world/cuda_web_agents.h"

namespace {

using namespace tandem;

enum Site : uint32_t { kFirst, kStep, kChoice };

void check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "error: %s: %s, %s\n", what, cudaGetErrorName(error), cudaGetErrorString(error));
  std::exit(2);
}

template <typename T>
class OnGpu {
 public:
  explicit OnGpu(size_t n) : n_(n) { check(cudaMalloc(&data_, n * sizeof(T)), "cudaMalloc"); }
  OnGpu(const OnGpu&) = delete;
  ~OnGpu() { cudaFree(data_); }
  T* data() { return data_; }
  void put(const std::vector<T>& from) {
    check(cudaMemcpy(data_, from.data(), n_ * sizeof(T), cudaMemcpyHostToDevice), "copy to the device");
  }
  std::vector<T> get() {
    std::vector<T> out(n_);
    check(cudaMemcpy(out.data(), data_, n_ * sizeof(T), cudaMemcpyDeviceToHost), "copy to the host");
    return out;
  }

 private:
  T* data_ = nullptr;
  size_t n_;
};

template <typename T>
bool same(const char* what, const std::vector<T>& host, OnGpu<T>& gpu, uint64_t step) {
  const std::vector<T> back = gpu.get();
  for (size_t i = 0; i < host.size(); ++i)
    if (std::memcmp(&back[i], &host[i], sizeof(T)) != 0) {
      std::fprintf(stderr, "  %s %zu differs at step %llu\n", what, i, static_cast<unsigned long long>(step));
      return false;
    }
  return true;
}

struct Both {
  Both(int32_t agent, int64_t n)
      : agent(agent),
        n(n),
        states(n),
        actions(n),
        results(n),
        seen(n * kObservation),
        gpu_states(n),
        gpu_actions(n),
        gpu_results(n),
        gpu_seen(n * kObservation),
        gpu_key(1) {}
  int32_t agent;
  int64_t n;
  std::vector<WebTestState> states;
  std::vector<int32_t> actions;
  std::vector<StepResult> results;
  std::vector<float> seen;
  OnGpu<WebTestState> gpu_states;
  OnGpu<int32_t> gpu_actions;
  OnGpu<StepResult> gpu_results;
  OnGpu<float> gpu_seen;
  OnGpu<RandomKey> gpu_key;
};

bool equal_bits(Both& b, uint64_t steps) {
  reset_web(b.agent, b.states.data(), b.n, {7, 0, 3, kFirst}, 100);
  cuda::reset_web(b.agent, b.gpu_states.data(), b.n, RandomKey{7, 0, 3, kFirst}, 100, nullptr, nullptr);
  for (uint64_t step = 1; step <= steps; ++step) {
    observe_web(b.agent, b.states.data(), b.seen.data(), b.n);
    cuda::observe_web(b.agent, b.gpu_states.data(), b.gpu_seen.data(), b.n, nullptr);
    rule_web(b.agent, b.states.data(), b.actions.data(), b.n);
    for (int64_t i = 0; i < b.n; ++i) {
      Draws draws = Draws::of({7, step, 3, kChoice}, i);
      if (draws.chance(0.4f)) b.actions[i] = random_policy(draws);
    }
    b.gpu_actions.put(b.actions);
    const RandomKey key{7, step, 3, kStep}, again{7, step, 3, kFirst};
    step_web(b.agent, b.states.data(), b.actions.data(), b.results.data(), b.n, key, 100);
    if (step % 2 == 0) {  // both forms: the key given, and read on the device
      cuda::step_web(b.agent, b.gpu_states.data(), b.gpu_actions.data(), b.gpu_results.data(), b.n, key, 100, nullptr);
    } else {
      b.gpu_key.put({RandomKey{7, step, 3, 99}});  // its site is not read
      cuda::step_web(b.agent, b.gpu_states.data(), b.gpu_actions.data(), b.gpu_results.data(), b.n, b.gpu_key.data(),
                     kStep, 100, nullptr);
    }
    if (!same("observation", b.seen, b.gpu_seen, step) || !same("result", b.results, b.gpu_results, step)) return false;
    reset_web(b.agent, b.states.data(), b.n, again, 100, b.results.data());
    cuda::reset_web(b.agent, b.gpu_states.data(), b.n, again, 100, b.gpu_results.data(), nullptr);
    if (!same("state", b.states, b.gpu_states, step)) return false;
  }
  return true;
}

// Steps of one environment a second, n of them at a time, restarts included.
double speed(Both& b, bool observed) {
  constexpr int kSteps = 200;
  cuda::reset_web(b.agent, b.gpu_states.data(), b.n, RandomKey{8, 0, 0, kFirst}, 0, nullptr, nullptr);
  for (int64_t i = 0; i < b.n; ++i) b.actions[i] = static_cast<int32_t>(i % kActions);
  b.gpu_actions.put(b.actions);
  cudaEvent_t begin, end;
  check(cudaEventCreate(&begin), "event");
  check(cudaEventCreate(&end), "event");
  for (int step = 0; step < kSteps + 20; ++step) {
    if (step == 20) check(cudaEventRecord(begin), "event");
    const uint64_t at = static_cast<uint64_t>(step) + 1;
    if (observed) cuda::observe_web(b.agent, b.gpu_states.data(), b.gpu_seen.data(), b.n, nullptr);
    cuda::step_web(b.agent, b.gpu_states.data(), b.gpu_actions.data(), b.gpu_results.data(), b.n,
                   RandomKey{8, at, 0, kStep}, 0, nullptr);
    cuda::reset_web(b.agent, b.gpu_states.data(), b.n, RandomKey{8, at, 0, kFirst}, 0, b.gpu_results.data(), nullptr);
  }
  check(cudaEventRecord(end), "event");
  check(cudaEventSynchronize(end), "run");
  float ms = 0;
  check(cudaEventElapsedTime(&ms, begin, end), "time");
  check(cudaEventDestroy(begin), "event");
  check(cudaEventDestroy(end), "event");
  return static_cast<double>(b.n) * kSteps / ms * 1000;
}

}  // namespace

int main() {
  int gpus = 0;
  if (cudaGetDeviceCount(&gpus) != cudaSuccess || gpus == 0) {
    std::fprintf(stderr, "error: no GPU here\n");
    return 2;
  }
  bool all = true;
  for (int32_t agent = 0; agent < kWebAgents; ++agent) {
    constexpr int64_t kCompared = 1001, kMany = 65536;
    constexpr uint64_t kSteps = 150;
    Both few(agent, kCompared);
    const bool equal = equal_bits(few, kSteps);
    all = all && equal;
    Both many(agent, kMany);
    const double bare = speed(many, false), observed = speed(many, true);
    std::printf(
        "{\"agent\":\"%s\",\"environments\":%lld,\"steps\":%llu,\"equal\":%s,\"steps_per_s\":%.0f,"
        "\"with_observation_per_s\":%.0f}\n",
        kWebAgentTable[agent].name.data(), static_cast<long long>(kCompared), static_cast<unsigned long long>(kSteps),
        equal ? "true" : "false", bare, observed);
    std::fflush(stdout);
  }
  return all ? 0 : 1;
}
