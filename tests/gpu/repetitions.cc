// tests/gpu/repetitions.cc -- one digest over many repetitions in one process, while everything that may not matter is
// in motion: the order of the shards, the allocator's memory, a second stream full of work, graphs or eager.
//
//   gpu_repetitions 20        prints a JSON line per recipe; exits 1 if a digest differs
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <numeric>
#include <random>
#include <set>
#include <thread>

#include "base/clock.h"
#include "engine/determinism.h"
#include "engine/gpu_device.h"
#include "engine/snapshot.h"
#include "engine/train_loop.h"
#include "mixed_recipe.h"
#include "recipes/makers.h"
#include "recipes/tiny_rl_settings.h"
#include "recipes/tiny_settings.h"

namespace tandem {
namespace {

// Keeps a stream of its own busy with products of changing sizes, and memory moving, until it goes.
class Disturbance {
 public:
  Disturbance() : thread_([this] { work(); }) {}
  ~Disturbance() {
    over_ = true;
    thread_.join();
  }

 private:
  void work() {
    c10::cuda::set_device(0);
    c10::cuda::setCurrentCUDAStream(c10::cuda::getStreamFromPool(true, 0));
    std::mt19937 random(3);
    std::vector<at::Tensor> held(7);
    while (!over_) {
      const int64_t n = 256 + static_cast<int64_t>(random() % 1500);
      const at::Tensor a = at::ones({n, n}, at::kCUDA);
      held[random() % held.size()] = a.matmul(a);
      c10::cuda::getCurrentCUDAStream().synchronize();
    }
  }
  std::atomic<bool> over_ = false;
  std::thread thread_;
};

template <class Settings, class Make>
bool repeat(const char* name, const Settings& settings, Make make, int steps, int repetitions) {
  std::mt19937 random(11);
  std::set<std::string> digests;
  const double begin = monotonic_seconds();
  for (int i = 0; i < repetitions; ++i) {
    setenv("TANDEM_GRAPHS", i % 4 == 1 ? "off" : "on", 1);
    std::vector<at::Tensor> shift;
    for (int k = 0; k < i % 5; ++k)
      shift.push_back(at::empty({static_cast<int64_t>(1 + random() % 3'000'000)}, at::kCUDA));
    TrainLoop loop(settings, make(settings), ShardPlan::balance(static_cast<int>(settings.shards), std::vector{1.0}));
    if (i > 0) {
      std::vector<int> order(settings.shards);
      std::iota(order.begin(), order.end(), 0);
      std::shuffle(order.begin(), order.end(), random);
      loop.visit_in_order(order);
    }
    while (loop.steps_done() < steps) loop.step();
    digests.insert(digest_of(loop));
  }
  fmt::print("{{\"recipe\": \"{}\", \"repetitions\": {}, \"digests\": {}, \"seconds\": {:.1f}}}\n", name, repetitions,
             digests.size(), monotonic_seconds() - begin);
  std::fflush(stdout);
  return digests.size() == 1;
}

int run(int repetitions) {
  open_gpu(0.9);
  set_determinism();
  const Disturbance disturbance;
  TinySettings tiny;
  TinyRlSettings tiny_rl;
  MixedSettings mixed;
  bool equal = repeat(
      "tiny", tiny, [](const TinySettings& s) { return make_tiny(s); }, 30, repetitions);
  equal = repeat(
              "tiny-rl", tiny_rl, [](const TinyRlSettings& s) { return make_tiny_rl(s); }, 12, repetitions) &&
          equal;
  equal = repeat(
              "mixed", mixed, [](const MixedSettings& s) { return make_mixed(s); }, 18, repetitions) &&
          equal;
  return equal ? 0 : 1;
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) { return tandem::run(argc > 1 ? std::atoi(argv[1]) : 20); }
