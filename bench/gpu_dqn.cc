// bench/gpu_dqn.cc -- a step of the DQN learner on a GPU: acting, drawing from the buffer, learning, priorities.
//
//   gpu_dqn [--profile] [key=value ...]          settings of web-agent; agent=all: six side by side
//
// One JSON line: microseconds a step of the engine's own loop (host work included), with and without acting, and
// decisions a second. --profile:
// each kernel's time as well.
#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <vector>

#include "base/errors.h"
#include "config/resolver.h"
#include "engine/determinism.h"
#include "engine/gpu_device.h"
#include "engine/snapshot.h"
#include "engine/train_loop.h"
#include "kernels/gpu/profile.h"
#include "recipes/makers.h"
#include "recipes/web_agent_settings.h"
#include "rl/dqn/dqn.h"

namespace tandem {
namespace {

void profile(TrainLoop& loop) {
  using Spent = std::vector<std::pair<std::string, double>>;
  const ProfileKernels& profiler = *gpu()->kernels<ProfileKernels>();
  constexpr int kTimes = 20;
  Spent sums;
  for (int i = 0; i < kTimes; ++i) {
    loop.measure_next([&](const std::function<void()>& work) {
      const Spent now = profiler.profile(static_cast<CUstream_st*>(gpu()->stream()), work);
      if (sums.empty()) sums.resize(now.size());
      for (size_t k = 0; k < now.size(); ++k) sums[k] = {now[k].first, sums[k].second + now[k].second / kTimes};
    });
    loop.step();
  }
  double all = 0;
  for (const auto& [name, seconds] : sums) {
    fmt::print(stderr, "{:8.2f} us  {}\n", 1e6 * seconds, name);
    all += seconds;
  }
  fmt::print(stderr, "{:8.2f} us  all kernels\n", 1e6 * all);
}

int run(int argc, char** argv) {
  open_gpu(0.9);
  set_determinism();
  WebAgentSettings settings;
  Resolver resolver(settings);
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    const size_t equals = argument.find('=');
    if (equals != std::string::npos) resolver.set(argument.substr(0, equals), argument.substr(equals + 1), argument);
  }
  settings.check();
  if (settings.schedule.total_steps == 0) settings.schedule.total_steps = settings.steps;
  constexpr int kWarm = 100, kSteps = 2000;
  std::unique_ptr<Recipe> recipe = make_web_agent(settings);
  auto& dqn = dynamic_cast<Dqn&>(*recipe);
  TrainLoop loop(settings, std::move(recipe), ShardPlan::balance(static_cast<int>(settings.shards), std::vector{1.0}));
  for (int i = 0; i < kWarm; ++i) {
    loop.step();
    for (const std::string& note : loop.take_notes(true)) fmt::print(stderr, "{}\n", note);
  }
  std::vector<double> times;
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < kSteps; ++i) times.push_back(loop.step().seconds);
  const double all = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  std::ranges::sort(times);
  if (argc > 1 && std::string_view(argv[1]) == "--profile") profile(loop);
  dqn.rest(true);
  loop.set_steps_done(loop.steps_done());  // captured anew
  for (int i = 0; i < kWarm; ++i) loop.step();
  const auto resting = std::chrono::steady_clock::now();
  for (int i = 0; i < kSteps; ++i) loop.step();
  const double learning = std::chrono::duration<double>(std::chrono::steady_clock::now() - resting).count();
  const double agents = static_cast<double>(settings.agents().size());
  const double decisions = agents * static_cast<double>(settings.shards * settings.environments);
  fmt::print(
      "{{\"agents\":{},\"batch\":{},\"environments\":{},\"us_per_step\":{:.1f},\"us_median\":{:.1f},\"us_without_"
      "acting\":{:.1f},"
      "\"decisions_per_s\":{:.0f},\"digest\":\"{}\"}}\n",
      agents, settings.batch_size, settings.shards * settings.environments, 1e6 * all / kSteps, 1e6 * times[kSteps / 2],
      1e6 * learning / kSteps, decisions * kSteps / all, digest_of(loop).substr(0, 16));
  return 0;
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  try {
    return tandem::run(argc, argv);
  } catch (const tandem::Error& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 2;
  }
}
