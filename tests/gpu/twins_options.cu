// tests/gpu/twins_options.cu -- the options environments on the GPU beside the CPU: equal bits over random play, then
// speed.
//
// One JSON line per set of actions: {"actions","environments","steps","equal","many","steps_per_s"}; steps_per_s is of
// `many` environments at once, with observations, table rows and restarts. Exit 1 if a state, observation, reward, end
// or row differs, 2 if there is no GPU. Builds alone, on a bare machine:
//   nvcc -std=c++20 -O3 -arch=native --fmad=false -Isrc -Xcompiler -ffp-contract=off -o twins_options
//     tests/gpu/twins_options.cu src/market/cuda_options_environment.cu
#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

#include "market/cuda_options_environment.h"
#include "market/options_observation.h"
#include "market/options_test_market.h"

namespace {

using namespace tandem;

constexpr uint32_t kResetSite = 3, kShard = 6;

void check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "error: %s: %s, %s\n", what, cudaGetErrorName(error), cudaGetErrorString(error));
  std::exit(2);
}

template <typename T>
class OnGpu {
 public:
  explicit OnGpu(size_t n) : n_(n) { check(cudaMalloc(&data_, n * sizeof(T)), "cudaMalloc"); }
  explicit OnGpu(const std::vector<T>& from) : OnGpu(from.size()) { put(from); }
  OnGpu(const OnGpu&) = delete;
  OnGpu(OnGpu&& other) noexcept : data_(std::exchange(other.data_, nullptr)), n_(other.n_) {}
  OnGpu& operator=(OnGpu&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(n_, other.n_);
    return *this;
  }
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

struct GpuMarket {
  explicit GpuMarket(const OptionsTestMarket& market)
      : days(market.days), ranges(market.ranges), rows(static_cast<int64_t>(market.days.size())) {}
  MarketView view() {
    return {days.data(), nullptr, nullptr, rows, ranges.data(), static_cast<int32_t>(ranges.get().size())};
  }
  OnGpu<MarketDay> days;
  OnGpu<MarketView::Range> ranges;
  int64_t rows;
};

struct GpuArrays {
  explicit GpuArrays(const std::vector<OptionsState>& begun)
      : states(begun),
        actions(begun.size()),
        rewards(begun.size()),
        seen(begun.size() * kOwnFeatures),
        idle(std::vector<int32_t>(begun.size())),
        ends(begun.size()),
        rows(begun.size()) {}
  OnGpu<OptionsState> states;
  OnGpu<float> actions, rewards, seen;
  OnGpu<int32_t> idle, ends, rows;

  void step(int64_t n, const MarketView& market, const OptionsRules& rules, const RandomKey& key) {
    cuda::step_options_rollout({reinterpret_cast<std::byte*>(states.data()), actions.data(), idle.data(),
                                rewards.data(), ends.data(), seen.data(), rows.data()},
                               n, market, rules, {}, RandomSource(key), 0, nullptr);
    std::swap(idle, ends);
  }
};

std::vector<OptionsState> begun_states(const MarketView& market, const OptionsRules& rules, size_t n) {
  std::vector<OptionsState> states(n);
  for (size_t i = 0; i < n; ++i)
    reset_options(states[i], market, rules, {7, 0, kShard, kResetSite}, static_cast<int64_t>(i));
  return states;
}

std::vector<float> random_actions(size_t n, uint64_t step, int32_t count) {
  std::vector<float> actions(n);
  for (size_t i = 0; i < n; ++i)
    actions[i] = static_cast<float>(random_below({7, step, 0, 9}, i, static_cast<uint32_t>(count)));
  return actions;
}

bool equal_bits(const OptionsTestMarket& market, const OptionsRules& rules, size_t n, uint64_t steps) {
  GpuMarket there(market);
  const MarketView view = market.view(), gpu_view = there.view();
  std::vector<OptionsState> states = begun_states(view, rules, n);
  GpuArrays gpu(states);
  std::vector<float> rewards(n), seen(n * kOwnFeatures);
  std::vector<int32_t> ends(n), rows(n);
  for (uint64_t step = 1; step <= steps; ++step) {
    const RandomKey key{7, step, kShard, kResetSite};
    const std::vector<float> actions = random_actions(n, step, rules.actions());
    gpu.actions.put(actions);
    gpu.step(static_cast<int64_t>(n), gpu_view, rules, key);
    for (size_t i = 0; i < n; ++i) {
      OptionsOutcome outcome;
      if (ends[i] == 0) outcome = step_options(states[i], static_cast<int32_t>(actions[i]), view, rules, NoTradeLog{});
      rewards[i] = outcome.reward;
      ends[i] = outcome.end;
      rows[i] = states[i].day;
      observe_options(states[i], view, rules, &seen[i * kOwnFeatures]);
      if (outcome.end != 0) reset_options(states[i], view, rules, key, static_cast<int64_t>(i));
    }
    if (!same("state", states, gpu.states, step) || !same("reward", rewards, gpu.rewards, step) ||
        !same("end", ends, gpu.idle, step) || !same("row", rows, gpu.rows, step) ||
        !same("own feature", seen, gpu.seen, step))
      return false;
  }
  return true;
}

// Steps of one environment a second, n of them at a time.
double speed(const OptionsTestMarket& market, const OptionsRules& rules, size_t n) {
  constexpr int kSteps = 200, kWarm = 60;  // slots are filled by then
  GpuMarket there(market);
  const MarketView view = there.view();
  GpuArrays gpu(begun_states(market.view(), rules, n));
  cudaEvent_t begin, end;
  check(cudaEventCreate(&begin), "event");
  check(cudaEventCreate(&end), "event");
  float ms = 0;
  for (int step = 0; step < kWarm + kSteps; ++step) {
    gpu.actions.put(random_actions(n, static_cast<uint64_t>(step) + 1, rules.actions()));
    check(cudaEventRecord(begin), "event");
    gpu.step(static_cast<int64_t>(n), view, rules, {8, static_cast<uint64_t>(step), 0, 0});
    check(cudaEventRecord(end), "event");
    check(cudaEventSynchronize(end), "run");
    float one = 0;
    check(cudaEventElapsedTime(&one, begin, end), "time");
    if (step >= kWarm) ms += one;
  }
  check(cudaEventDestroy(begin), "event");
  check(cudaEventDestroy(end), "event");
  return static_cast<double>(n) * kSteps / ms * 1000;
}

}  // namespace

int main() {
  int gpus = 0;
  if (cudaGetDeviceCount(&gpus) != cudaSuccess || gpus == 0) {
    std::fprintf(stderr, "error: no GPU here\n");
    return 2;
  }
  constexpr size_t kCompared = 10'000;
  constexpr uint64_t kSteps = 400;
  const OptionsTestMarket market = random_options_market(8, 1500, 1);
  bool all = true;
  for (const int32_t multi_leg : {0, 1}) {
    const OptionsRules rules{.multi_leg = multi_leg};
    const bool equal = equal_bits(market, rules, kCompared, kSteps);
    all = all && equal;
    for (const size_t many : {size_t{1024}, size_t{65536}}) {
      std::printf(
          "{\"actions\":%d,\"environments\":%zu,\"steps\":%llu,\"equal\":%s,\"many\":%zu,\"steps_per_s\":%.0f}\n",
          rules.actions(), kCompared, static_cast<unsigned long long>(kSteps), equal ? "true" : "false", many,
          speed(market, rules, many));
      std::fflush(stdout);
    }
  }
  return all ? 0 : 1;
}
