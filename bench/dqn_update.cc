// bench/dqn_update.cc -- one DQN update of the recipe web-agent on one core: how long its parts take, and its numbers.
//
//   dqn_update                 microseconds of acting, of the update of all shards, and of the weights' packing
//   dqn_update --layers        the hand-written update beside the same one made of nn/'s layers: equal within 1e-4,
//   then
//                              the ratio of their processor times
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
#include "engine/tree_sums.h"
#include "kernels/cpu/random_fill.h"
#include "kernels/philox.h"
#include "nn/dropout.h"
#include "nn/layer_norm.h"
#include "nn/linear.h"
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

// ---- the same update of layers ----

// DuelingNet without attention, of layers that run several shards in one pass. Names and order are its.
class LayeredNet : public torch::nn::Module {
 public:
  explicit LayeredNet(const NetSettings& settings) : settings_(settings) {
    int64_t width = kState;
    for (size_t i = 0; i < settings.hidden.size(); ++i) {
      const std::string number = std::to_string(i + 1);
      layers_.push_back(register_module("hidden" + number, Linear(width, settings.hidden[i])));
      width = settings.hidden[i];
      norms_.push_back(register_module("norm" + number, LayerNorm(width)));
    }
    heads_ = register_module("heads", Linear(width, 2 * settings.head));
    value_ = register_module("value", Linear(settings.head, 1));
    advantage_ = register_module("advantage", Linear(settings.head, kActions));
  }
  // `masks`: one stream for each hidden layer, of all shards. Null: no dropout.
  at::Tensor forward(const at::Tensor& states, const std::vector<RandomSource>* masks = nullptr) {
    at::Tensor x = states;
    for (size_t i = 0; i < layers_.size(); ++i) {
      x = at::relu(norms_[i](layers_[i](x)));
      if (masks) x = dropout(x, settings_.dropout, masks->at(i));
    }
    const at::Tensor head_features = at::relu(heads_(x));
    const at::Tensor state_value = value_(head_features.narrow(1, 0, settings_.head));
    const at::Tensor advantages = advantage_(head_features.narrow(1, settings_.head, settings_.head));
    return state_value + (advantages - advantages.mean(1, /*keepdim=*/true));
  }

 private:
  NetSettings settings_;
  std::vector<Linear> layers_;
  std::vector<LayerNorm> norms_;
  Linear heads_{nullptr}, value_{nullptr}, advantage_{nullptr};
};

// What Update does, with its weights, rows and dropout masks.
struct LayeredUpdate {
  explicit LayeredUpdate(const Update& update)
      : given(update),
        net(std::make_shared<LayeredNet>(update.settings)),
        target(std::make_shared<LayeredNet>(update.settings)) {
    state.add_model(net);
    state.add_target_network(target, "target");
    state.seal(0, 0);
    at::NoGradGuard no_grad;
    const auto copy = [](torch::nn::Module& to, const torch::nn::Module& from) {
      const auto values = from.named_parameters();
      for (auto& p : to.named_parameters()) p.value().copy_(values[p.key()]);
    };
    copy(*net, *update.net);
    copy(*target, *update.target);
    parts.push_back({tree.root(), 0, kShards, tree.merges(tree.root()), state.contribution(0)});
    LayerContext& pass = state.layers();
    pass.training = true;
    pass.shards = kShards;
    pass.sums = &sums;
    masks = Update::masks(0);
    for (RandomSource& mask : masks) mask.shards = kShards;
  }
  at::Tensor plain_forward(const std::shared_ptr<LayeredNet>& which) {
    at::NoGradGuard no_grad;
    return which->forward(given.after);
  }
  double run(std::vector<float>* errors) {
    const at::Tensor chosen = plain_forward(net).argmax(1, /*keepdim=*/true);
    const at::Tensor goal = given.reward + given.discount * plain_forward(target).gather(1, chosen).squeeze(1);
    sums.begin(kShards, parts, /*recipe_floats=*/0, /*wait=*/false);
    const at::Tensor q = net->forward(given.before, &masks).gather(1, given.action.unsqueeze(1)).squeeze(1);
    const at::Tensor loss = (at::huber_loss(q, goal, at::Reduction::None) * given.weight).sum() * (1.0 / kBatch);
    loss.backward();
    sums.finish();
    const at::Tensor sizes = (q.detach() - goal).abs();
    if (errors) errors->assign(sizes.data_ptr<float>(), sizes.data_ptr<float>() + kBatch);
    return loss.item<double>();
  }
  const Update& given;
  JobState state{kShards, 1};
  SumTree tree{kShards};
  TreeSums sums{state};
  std::vector<PassPart> parts;
  std::shared_ptr<LayeredNet> net, target;
  std::vector<RandomSource> masks;
};

// Of each tensor: the largest difference as a part of the largest number. Throws where one is above 1e-4.
void check_same(Update& by_hand, LayeredUpdate& layered) {
  const auto difference = [](const at::Tensor& a, const at::Tensor& b) {
    return ((a - b).abs().max() / a.abs().max()).item<double>();
  };
  std::vector<float> hand_errors, layer_errors;
  const double hand_loss = by_hand.run(&hand_errors, -1), layer_loss = layered.run(&layer_errors);
  const double loss = std::abs(hand_loss - layer_loss) / std::abs(hand_loss);
  const double errors =
      difference(at::from_blob(hand_errors.data(), {kBatch}), at::from_blob(layer_errors.data(), {kBatch}));
  double gradients = 0;
  const auto hand = by_hand.net->named_parameters(), layers = layered.net->named_parameters();
  for (const auto& p : hand) gradients = std::max(gradients, difference(p.value().grad(), layers[p.key()].grad()));
  fmt::print("largest difference: loss {:.1e}, TD errors {:.1e}, gradients {:.1e}\n", loss, errors, gradients);
  if (!(loss < 1e-4 && errors < 1e-4 && gradients < 1e-4))  // a NaN is no pass
    throw std::runtime_error("the layers and the hand-written net compute different things");
}

// Blocks by turns, so that what else runs on the machine slows both. Microseconds per call.
struct ByTurns {
  std::vector<double> first, second;
  static double median(std::vector<double> values) {
    std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
    return values[values.size() / 2];
  }
  double ratio() const { return median(second) / median(first); }
};
ByTurns by_turns(const std::function<void()>& first, const std::function<void()>& second) {
  constexpr int kBlocks = 41, kCalls = 10;
  const auto block = [](const std::function<void()>& work) {
    const std::clock_t begin = std::clock();
    for (int i = 0; i < kCalls; ++i) work();
    return static_cast<double>(std::clock() - begin) * 1e6 / CLOCKS_PER_SEC / kCalls;
  };
  ByTurns times;
  block(first), block(second);  // warms up
  for (int i = 0; i < kBlocks; ++i) {
    times.first.push_back(block(first));
    times.second.push_back(block(second));
  }
  return times;
}

void compare_with_layers() {
  Update by_hand;
  LayeredUpdate layered(by_hand);
  check_same(by_hand, layered);
  int64_t version = 0;
  const ByTurns whole = by_turns([&] { by_hand.run(nullptr, ++version); }, [&] { layered.run(nullptr); });
  const ByTurns plain =
      by_turns([&] { by_hand.cpu_net->q_values(by_hand.after, version); }, [&] { layered.plain_forward(layered.net); });
  const auto learning = [](const std::vector<double>& update, const std::vector<double>& forward) {
    return ByTurns::median(update) - 2 * ByTurns::median(forward);
  };
  const double hand_learns = learning(whole.first, plain.first), layers_learn = learning(whole.second, plain.second);
  fmt::print("{} rows in {} shards, one pass, medians of processor time by turns: hand-written, layers, ratio\n",
             kBatch, kShards);
  fmt::print("  update: 3 forwards, loss, backward, leaves summed, weights packed  {:6.0f} us {:6.0f} us  {:.2f}\n",
             ByTurns::median(whole.first), ByTurns::median(whole.second), whole.ratio());
  fmt::print("  forward without gradient (hand-written: weights packed before)     {:6.0f} us {:6.0f} us  {:.2f}\n",
             ByTurns::median(plain.first), ByTurns::median(plain.second), plain.ratio());
  fmt::print("  the update less two of these: forward with dropout, backward       {:6.0f} us {:6.0f} us  {:.2f}\n",
             hand_learns, layers_learn, layers_learn / hand_learns);
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
  else if (argc == 2 && !std::strcmp(argv[1], "--layers"))
    tandem::compare_with_layers();
  else
    tandem::measure();
  return 0;
}
