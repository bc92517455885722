// bench/web_agent_learning.cc -- how well and how fast a web-test agent learns, in one process on one core.
//
//   web_agent_learning [--quick] [--curve] [--gpu] [key=value ...]      agent=all trains the six in one job
//
// Prints steps a second of processor time (others may use the machine; on a GPU it is the host's) and the greedy score
// after training (0: random play, 1: the solver), on episodes that training never saw. Without the scale of
// world/scale.h it prints returns beside those of random play.
#include <fmt/format.h>
#include <torch/torch.h>

#include <cstring>
#include <ctime>

#include "base/errors.h"
#include "config/resolver.h"
#include "engine/determinism.h"
#include "engine/gpu_device.h"
#include "engine/memory.h"
#include "engine/train_loop.h"
#include "recipes/makers.h"
#include "recipes/web_agent_settings.h"
#include "rl/dqn/dqn.h"

namespace tandem {
namespace {

constexpr int64_t kEpisodes = 1000;
constexpr uint64_t kSeed = 20251027;

std::string text_of(const Evaluation& e) {
  std::string text = fmt::format("return {:8.3f} +- {:.3f}", e.mean, e.error);
  if (e.score) text += fmt::format("   score {:6.3f} +- {:.3f}", *e.score, *e.score_error);
  return text;
}

void train(WebAgentSettings settings, bool curve) {
  settings.check();
  if (settings.schedule.total_steps == 0) settings.schedule.total_steps = settings.steps;
  auto recipe = make_web_agent(settings);
  const Dqn& dqn = dynamic_cast<const Dqn&>(*recipe);
  TrainLoop loop(settings, std::move(recipe), ShardPlan::balance(static_cast<int>(settings.shards), std::vector{1.0}));
  const std::clock_t begin = std::clock();
  double evaluating = 0;
  const auto seconds = [&] { return static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC - evaluating; };
  std::vector<std::pair<std::string, double>> phases;
  while (loop.steps_done() < settings.steps) {
    const StepRecord record = loop.step();
    if (phases.empty()) phases = record.phase_seconds;
    for (size_t i = 0; i < phases.size(); ++i) phases[i].second += record.phase_seconds[i].second;
    if (!curve || record.step % std::max<int64_t>(1, settings.steps / 10) != 0) continue;
    const double now = seconds();
    fmt::print("  step {:6}  {:6.1f} s  {}\n", record.step, now, text_of(dqn.evaluate(kEpisodes / 4, kSeed)));
    std::fflush(stdout);
    evaluating += seconds() - now;
  }
  const double steps = static_cast<double>(settings.steps), all = seconds();
  for (int agent = 0; agent < dqn.agents(); ++agent)
    fmt::print("{:13} {:6} steps in {:6.1f} s = {:6.1f} a second   {}   random {:.3f}\n", settings.agents()[agent],
               settings.steps, all, steps / all, text_of(dqn.evaluate(kEpisodes, kSeed, agent)),
               evaluate_random(dqn.environment(agent), kEpisodes, kSeed).mean);
  for (const auto& [name, time] : phases) fmt::print(" {} {:.0f} us", name, time / steps * 1e6);
  fmt::print("\n");
  std::fflush(stdout);
}

int run(int argc, char** argv) {
  keep_freed_memory();
  for (int i = 1; i < argc; ++i)
    if (!std::strcmp(argv[i], "--gpu") || !std::strcmp(argv[i], "--card")) open_gpu(0.9);
  set_determinism();
  WebAgentSettings settings;
  bool curve = false;
  Resolver resolver(settings);
  for (int i = 1; i < argc; ++i)
    if (!std::strcmp(argv[i], "--quick"))
      for (const auto& [key, value] : WebAgentSettings::quick()) resolver.set(key, value, "--quick");
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--curve") curve = true;
    const size_t equals = argument.find('=');
    if (argument.starts_with("--") || equals == std::string::npos) continue;
    resolver.set(argument.substr(0, equals), argument.substr(equals + 1), argument);
  }
  train(settings, curve);
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
