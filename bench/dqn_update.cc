// bench/dqn_update.cc -- one DQN update of the recipe web-agent on one core: how long its parts take, and its numbers.
//
//   dqn_update                 microseconds of acting, of the update of all shards, and of the weights' packing
//   dqn_update --steps n       whole steps of the recipe with one environment per shard and a full buffer of 1 M: the
//                              median and the fastest tenth of the processor time, as JSON
//   dqn_update --dump FILE     a batch of 256 in 8 shards with weights, dropout masks, loss, TD errors and gradients,
//                              as safetensors, for bench/dqn_cpu_baseline.py to check against
#include <fmt/format.h>
#include <torch/torch.h>

#include <cstring>
#include <ctime>
#include <numeric>

#include "checkpoint/safetensors.h"
#include "engine/determinism.h"
#include "engine/job_state.h"
#include "engine/memory.h"
#include "engine/train_loop.h"
#include "kernels/cpu/random_fill.h"
#include "kernels/philox.h"
#include "recipes/makers.h"
#include "recipes/web_agent_settings.h"
#include "reduce/sum_tree.h"
#include "rl/dqn/dueling_cpu.h"
#include "rl/dqn/dueling_net.h"

namespace tandem {
namespace {

constexpr int64_t kState = 128, kActions = 10, kBatch = 256, kShards = 8, kShardRows = kBatch / kShards;

at::Tensor numbers(std::vector<int64_t> shape, uint32_t site, float scale = 1) {
  const at::Tensor t = at::empty(shape);
  for (int64_t i = 0; i < t.numel(); ++i)
    t.data_ptr<float>()[i] = scale * random_normal({.seed = 7, .site = site}, static_cast<uint64_t>(i));
  return t;
}

struct Update {
  Update()
      : net(std::make_shared<DuelingNetImpl>(kState, kActions, settings)),
        target(std::make_shared<DuelingNetImpl>(kState, kActions, settings)) {
    state.add_model(net);
    state.add_target_network(target, "target");
    state.seal(0, 0);
    at::NoGradGuard no_grad;
    uint32_t site = 100;
    for (const auto& which : {net, target})
      for (auto& p : which->named_parameters()) {
        const bool matrix = p.value().dim() > 1;
        const float scale = matrix ? 1 / std::sqrt(static_cast<float>(p.value().size(1))) : 0.1f;
        p.value().copy_(numbers(p.value().sizes().vec(), ++site, scale));
        if (p.key().starts_with("norm") && p.key().ends_with("weight")) p.value().add_(1);
      }
    before = numbers({kBatch, kState}, 1);
    after = numbers({kBatch, kState}, 2);
    reward = numbers({kBatch}, 3);
    discount = at::full({kBatch}, 0.97f);
    discount.narrow(0, 0, 16).zero_();
    weight = numbers({kBatch}, 4).abs().clamp(0.05, 1);
    action = at::arange(kBatch) % kActions;
    cpu_net = std::make_unique<DuelingCpu>(net, target, settings, kShardRows);
  }
  static std::vector<RandomSource> masks(int64_t shard) {
    return {RandomKey{1, 2, static_cast<uint32_t>(shard), 8}, RandomKey{1, 2, static_cast<uint32_t>(shard), 9}};
  }
  // All shards batched; the sum of their gradients is where the net's are.
  double run(std::vector<float>* errors, int64_t version) {
    const DuelingCpu::Rows rows = cpu_net->rows(kShards);
    const auto fill = [](float* to, const at::Tensor& from) { std::copy_n(from.data_ptr<float>(), from.numel(), to); };
    fill(rows.before, before);
    fill(rows.after, after);
    fill(rows.reward, reward);
    fill(rows.discount, discount);
    fill(rows.weight, weight);
    std::copy_n(action.data_ptr<int64_t>(), kBatch, rows.action);
    std::vector<std::vector<RandomSource>> streams;
    for (int64_t s = 0; s < kShards; ++s) streams.push_back(masks(s));
    const DuelingCpu::Learned learned = cpu_net->learn_batched(streams, 1.0 / kBatch, version);
    const Subtree all{0, kShards, tree.merges(tree.root()), state.contribution(0)};
    cpu_net->backward_batched(1, {&all, 1}, state.parameters().data());
    if (errors) errors->assign(learned.td_errors.begin(), learned.td_errors.end());
    return std::accumulate(learned.losses.begin(), learned.losses.end(), 0.0);
  }
  NetSettings settings{.dropout = 0.2};
  JobState state{kShards, 1};
  SumTree tree{kShards};
  std::shared_ptr<DuelingNetImpl> net, target;
  at::Tensor before, after, reward, discount, weight, action;
  std::unique_ptr<DuelingCpu> cpu_net;
};

void dump(const char* path) {
  Update update;
  std::vector<float> errors;
  const double loss = update.run(&errors, -1);
  std::vector<std::pair<std::string, at::Tensor>> tensors{
      {"before", update.before}, {"after", update.after},   {"reward", update.reward},    {"discount", update.discount},
      {"weight", update.weight}, {"action", update.action}, {"loss", at::full({1}, loss)}};
  tensors.emplace_back("errors", at::from_blob(errors.data(), {kBatch}));
  for (size_t l = 0; l < update.settings.hidden.size(); ++l) {
    at::Tensor mask = at::empty({kBatch, update.settings.hidden[l]});
    const int64_t piece = kShardRows * update.settings.hidden[l];
    for (int64_t s = 0; s < kShards; ++s)
      fill_dropout_mask(mask.data_ptr<float>() + s * piece, piece, Update::masks(s)[l], 0, update.settings.dropout);
    tensors.emplace_back(fmt::format("mask{}", l + 1), mask);
  }
  for (const auto& p : update.net->named_parameters()) {
    tensors.emplace_back("net." + p.key(), p.value().detach());
    tensors.emplace_back("grad." + p.key(), p.value().grad());
  }
  for (const auto& p : update.target->named_parameters()) tensors.emplace_back("target." + p.key(), p.value().detach());
  std::vector<TensorView> views;
  for (const auto& [name, t] : tensors)
    views.push_back({name,
                     t.scalar_type() == at::kLong ? DType::kI64 : DType::kF32,
                     std::vector<int64_t>(t.sizes().begin(), t.sizes().end()),
                     {static_cast<const std::byte*>(t.const_data_ptr()), t.nbytes()}});
  write_safetensors(FileSystem::real(), path, views);
}

double microseconds(const std::function<void()>& work) {
  for (int i = 0; i < 5; ++i) work();
  std::vector<double> times;
  for (int i = 0; i < 100; ++i) {
    const std::clock_t begin = std::clock();
    work();
    times.push_back(static_cast<double>(std::clock() - begin) * 1e6 / CLOCKS_PER_SEC);
  }
  std::nth_element(times.begin(), times.begin() + 50, times.end());
  return times[50];
}

void measure() {
  Update update;
  int64_t version = 0;
  const double all = microseconds([&] { update.run(nullptr, ++version); });
  const double warm = microseconds([&] { update.run(nullptr, version); });
  at::NoGradGuard no_grad;
  const at::Tensor seen = numbers({32, kState}, 9);
  const double act = microseconds([&] { update.cpu_net->q_values(seen, version); });
  fmt::print("update of {} rows in {} shards {:.0f} us, of these packing {:.0f}; 32 rows to act {:.0f} us\n", kBatch,
             kShards, all, all - warm, act);
}

void recipe_steps(int64_t steps) {
  WebAgentSettings settings;
  settings.agent = "analysis";
  settings.net.dropout = 0.2;
  settings.environments = 1;
  settings.learning_starts = settings.capacity;
  settings.check();
  TrainLoop loop(settings, make_web_agent(settings), ShardPlan::balance(kShards, std::vector{1.0}));
  std::vector<double> times;
  for (int64_t i = 0; i < steps + 20; ++i) {
    const std::clock_t begin = std::clock();
    loop.step();
    if (i >= 20) times.push_back(static_cast<double>(std::clock() - begin) * 1e6 / CLOCKS_PER_SEC);
  }
  std::sort(times.begin(), times.end());
  fmt::print("{{\"median_us\": {:.0f}, \"fastest_tenth_us\": {:.0f}}}\n", times[times.size() / 2],
             times[times.size() / 10]);
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  tandem::keep_freed_memory();
  tandem::set_determinism();
  if (argc == 3 && !std::strcmp(argv[1], "--steps"))
    tandem::recipe_steps(std::max(10LL, std::atoll(argv[2])));
  else if (argc == 3 && !std::strcmp(argv[1], "--dump"))
    tandem::dump(argv[2]);
  else
    tandem::measure();
  return 0;
}
