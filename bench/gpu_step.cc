// bench/gpu_step.cc -- what a step costs on a GPU: the engine beside plain libtorch, and beside its own kernels bare.
//
// eager:  `tiny`'s model and 24 micro-batches as a person writes them with libtorch (BatchNorm1d, dropout, Adam), call
// by call; the engine must be 10 times as fast. bare:  one shard of a larger model, the same kernels captured
// into one graph by hand-written code, without an engine around them. Both train first and must end with the same
// weights; goal: the engine within 3 %. memory:  AdamW over 100 M weights and the sum of 8 shards' vectors, beside what
// a copy on this GPU reaches. One JSON line each. It needs a GPU and libtandem_cuda.so beside it.
#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <cstring>
#include <iostream>

#include "base/clock.h"
#include "base/errors.h"
#include "engine/determinism.h"
#include "engine/gpu_device.h"
#include "engine/input_staging.h"
#include "engine/supervised.h"
#include "engine/train_loop.h"
#include "engine/tree_sums.h"
#include "kernels/cpu/random_fill.h"
#include "nn/dropout.h"
#include "nn/here.h"
#include "reduce/exact_sum.h"

namespace tandem {
namespace {

double median(std::vector<double> v) {
  std::nth_element(v.begin(), v.begin() + v.size() / 2, v.end());
  return v[v.size() / 2];
}

template <class Step>
double step_us(int steps, Step step) {
  std::vector<double> times;
  for (int i = 0; i < steps; ++i) {
    const double begin = monotonic_seconds();
    step();
    device().wait();
    times.push_back((monotonic_seconds() - begin) * 1e6);
  }
  return median(times);
}

struct Size {
  const char* name;
  int64_t features, hidden, batch, shards;
};

struct Settings : RecipeSettings {
  explicit Settings(const Size& size) {
    shards = size.shards;
    batch_size = size.batch;
    nan.rollback_every = 0;
  }
};

struct Net : torch::nn::Module {
  Net(int64_t features, int64_t hidden)
      : fc1(register_module("fc1", torch::nn::Linear(features, hidden))),
        bn1(register_module("bn1", BatchNorm(hidden))),
        fc2(register_module("fc2", torch::nn::Linear(hidden, hidden))),
        bn2(register_module("bn2", BatchNorm(hidden))),
        out(register_module("out", torch::nn::Linear(hidden, 10))) {}
  at::Tensor forward(at::Tensor x, const RandomSource& first, const RandomSource& second) {
    x = dropout(at::relu(bn1(fc1(x))), 0.1, first);
    return out(dropout(at::relu(bn2(fc2(x))), 0.1, second));
  }
  torch::nn::Linear fc1;
  BatchNorm bn1;
  torch::nn::Linear fc2;
  BatchNorm bn2;
  torch::nn::Linear out;
};

struct Data : Dataset {
  explicit Data(const Size& size)
      : x(at::empty({16 * size.batch, size.features})), y(at::empty({16 * size.batch}, at::kLong)) {
    fill_normal(x.data_ptr<float>(), x.numel(), {.seed = 3});
    for (int64_t i = 0; i < y.numel(); ++i) y.data_ptr<int64_t>()[i] = i % 10;
  }
  int64_t size() const override { return y.numel(); }
  std::vector<at::Tensor> load(std::span<const int64_t> samples, const RandomKey&) const override {
    const at::Tensor rows =
        torch::from_blob(const_cast<int64_t*>(samples.data()), {int64_t(samples.size())}, at::kLong);
    return {x.index_select(0, rows), y.index_select(0, rows)};
  }
  at::Tensor x, y;
};

struct BenchRecipe : SupervisedRecipe {
  BenchRecipe(const Settings& s, const Size& size) : SupervisedRecipe(s), size(size) {}
  std::shared_ptr<torch::nn::Module> make_model() override {
    return net = std::make_shared<Net>(size.features, size.hidden);
  }
  std::unique_ptr<Dataset> make_data() override { return std::make_unique<Data>(size); }
  at::Tensor forward(const Batch& batch, ShardContext& context) override {
    return net->forward(batch.tensors[0], context.random(0), context.random(1));
  }
  const Size& size;
  std::shared_ptr<Net> net;
};

TrainLoop engine_for(const Settings& settings, const Size& size) {
  return TrainLoop(settings, std::make_unique<BenchRecipe>(settings, size),
                   ShardPlan::balance(static_cast<int>(size.shards), std::vector<double>{1}));
}

at::Tensor row_losses(const at::Tensor& output, const at::Tensor& labels) {
  return torch::nn::functional::cross_entropy(output, labels,
                                              torch::nn::functional::CrossEntropyFuncOptions().reduction(torch::kNone));
}

// What a person writes with libtorch: `shards` micro-batches, then Adam.
struct EagerNet : torch::nn::Module {
  explicit EagerNet(const Size& s)
      : fc1(register_module("fc1", torch::nn::Linear(s.features, s.hidden))),
        bn1(register_module("bn1", torch::nn::BatchNorm1d(s.hidden))),
        fc2(register_module("fc2", torch::nn::Linear(s.hidden, s.hidden))),
        bn2(register_module("bn2", torch::nn::BatchNorm1d(s.hidden))),
        out(register_module("out", torch::nn::Linear(s.hidden, 10))) {}
  at::Tensor forward(at::Tensor x) {
    x = torch::dropout(at::relu(bn1(fc1(x))), 0.1, true);
    return out(torch::dropout(at::relu(bn2(fc2(x))), 0.1, true));
  }
  torch::nn::Linear fc1;
  torch::nn::BatchNorm1d bn1;
  torch::nn::Linear fc2;
  torch::nn::BatchNorm1d bn2;
  torch::nn::Linear out;
};

void eager(const Size& size) {
  const Settings settings(size);
  TrainLoop engine = engine_for(settings, size);
  EagerNet net(size);
  net.to(at::kCUDA);
  torch::optim::Adam optimizer(net.parameters(), torch::optim::AdamOptions(1e-3));
  const Data data(size);
  const int64_t rows = size.batch / size.shards;
  const auto eager_step = [&] {
    optimizer.zero_grad();
    for (int64_t s = 0; s < size.shards; ++s) {
      const at::Tensor x = data.x.narrow(0, s * rows, rows).to(at::kCUDA),
                       y = data.y.narrow(0, s * rows, rows).to(at::kCUDA);
      (row_losses(net.forward(x), y).sum() / static_cast<double>(size.batch)).backward();
    }
    optimizer.step();
  };
  for (int i = 0; i < 10; ++i) {
    eager_step();
    engine.step();
  }
  std::vector<double> theirs, ours;
  for (int block = 0; block < 7; ++block) {
    theirs.push_back(step_us(6, eager_step));
    ours.push_back(step_us(14, [&] { engine.step(); }));
  }
  fmt::print(
      "{{\"part\": \"eager\", \"size\": \"{}\", \"libtorch_us\": {:.1f}, \"engine_us\": {:.1f}, \"times\": {:.2f}}}\n",
      size.name, median(theirs), median(ours), median(theirs) / median(ours));
}

// The same kernels as the engine's, captured by hand-written code: one shard, inputs copied once a step, the loss
// copied back.
bool bare(const Size& size) {
  const Settings settings(size);
  TrainLoop engine = engine_for(settings, size);
  auto net = std::make_shared<Net>(size.features, size.hidden);
  JobState state(1, static_cast<uint64_t>(settings.seed));
  state.add_model(net);
  state.seal(1, 2);
  Update update(settings, state, size.batch);
  const Data data(size);
  const EpochSampler sampler(data.size(), 1, 1, size.batch, static_cast<uint64_t>(settings.seed));
  const auto load = [&](int64_t step) {
    auto tensors = data.load(sampler.slice(step, 0, 0).samples, {});
    tensors.push_back(at::ones({size.batch}));
    return tensors;
  };
  int64_t step = 0;
  InputStaging staging(1, load(0));
  PhaseOutputs outputs(1, 1, 1);
  const auto fill = [&](int64_t number) {
    staging.put(static_cast<int>(number % 2), 0, {.seed = state.seed(), .step = static_cast<uint64_t>(number)},
                load(number));
  };
  TreeSums sums(state);
  PassPart part{.last = 1, .merges = {0}};
  const auto work = [&] {
    const std::span<float> vector = state.contribution();
    part.vector = vector;
    sums.begin(1, {&part, 1}, 1, false);
    state.layers().sums = &sums;
    device().zero(vector.data(), vector.size_bytes());
    outputs.queue_clear();
    static_cast<MicroBatch&>(state.layers()) = {.training = true, .share = 1, .real = 1};
    const auto& in = staging.tensors(0);
    const RandomKey key{.seed = state.seed()};
    RandomSource first(key, staging.key(0)), second(key, staging.key(0));
    second.site = 1;
    const at::Tensor output = net->forward(in[0], first, second);
    const at::Tensor loss = (row_losses(output, in[1]) * in[2]).sum() / static_cast<double>(size.batch);
    (loss * staging.loss_scale()).backward();
    sums.finish();
    {
      at::NoGradGuard no_grad;
      at::from_blob(vector.data() + vector.size() - 1, {1}, here()).select(0, 0).add_(loss);
      outputs.counts_on_gpu(0).select(0, 0).add_((output.argmax(1) == in[1]).sum());
    }
    update.queue(vector, staging.params(), outputs.decision_on_gpu(), {});
    outputs.queue_fetch(vector.data() + vector.size() - 1);
  };
  std::unique_ptr<CudaGraph> graph;
  fill(0);
  const auto bare_step = [&] {
    const int copy = static_cast<int>(step % 2);
    staging.put(copy, update.params(0));
    staging.queue_up(copy);
    if (graph)
      graph->replay();
    else
      work();
    fill(step + 1);
    device().wait();
    update.settle(state.contribution(), 0, outputs.decision());
    ++step;
  };
  std::string refused;
  for (int i = 0; i < 12; ++i) {
    if (i == 4) graph = gpu()->capture(work, &refused);
    bare_step();
    engine.step();
  }
  std::vector<std::byte> a(state.parameters().size_bytes()), b(a.size());
  device().to_host(a.data(), state.parameters().data(), a.size());
  device().to_host(b.data(), engine.state().parameters().data(), b.size());
  std::vector<double> theirs, ours, ratios;
  for (int block = 0; block < 15; ++block) {
    theirs.push_back(step_us(14, bare_step));
    ours.push_back(step_us(14, [&] { engine.step(); }));
    ratios.push_back(ours.back() / theirs.back());
  }
  fmt::print(
      "{{\"part\": \"bare\", \"size\": \"{}\", \"same_weights\": {}, \"graph\": {}, \"bare_us\": {:.1f}, "
      "\"engine_us\": {:.1f}, "
      "\"ratio\": {:.4f}}}\n",
      size.name, a == b, graph != nullptr, median(theirs), median(ours), median(ratios));
  return a == b && graph;
}

void memory() {
  constexpr int64_t kFloats = 100'000'000;
  const auto gigabytes = [&](double bytes, auto call) { return bytes / step_us(25, call) * 1e-3; };
  const auto vector = [&] { return static_cast<float*>(device().allocate(kFloats * sizeof(float))); };
  std::vector<float*> v;
  for (int i = 0; i < 9; ++i) {
    v.push_back(vector());
    device().zero(v.back(), kFloats * sizeof(float));
  }
  const double copy = gigabytes(8.0 * kFloats, [&] { device().copy(v[0], v[1], kFloats * sizeof(float)); });
  at::Tensor memory = at::zeros({4096}, here(at::kByte));
  auto* params = static_cast<UpdateParams*>(memory.data_ptr());
  auto* decision = reinterpret_cast<UpdateDecision*>(params + 1);
  UpdateParams host_params;
  host_params.adam[0] = adam_params(1e-3, 0.9, 0.999, 1e-8, 0.01, true, 3);
  const UpdateDecision host_decision{.scale = 1};
  device().from_host(params, &host_params, sizeof(host_params));
  device().from_host(decision, &host_decision, sizeof(host_decision));
  const double adam = gigabytes(
      28.0 * kFloats, [&] { device().adam_update(v[0], v[1], v[2], v[3], kFloats, &params->adam[0], decision); });
  const SumTree tree(8);
  ExactSum<float> sum(tree, kFloats, 0, 8, device());
  const double tree_sum = gigabytes(36.0 * kFloats, [&] {
    sum.begin();
    for (int s = 0; s < 8; ++s) sum.add(s, {v[s], kFloats}, true);
  });
  const double in_order = gigabytes(
      36.0 * kFloats, [&] { device().add_in_order(v[8], const_cast<const float* const*>(v.data()), 8, kFloats); });
  fmt::print(
      "{{\"part\": \"memory\", \"copy_gbps\": {:.0f}, \"adamw_gbps\": {:.0f}, \"sum_of_8_as_they_come_gbps\": {:.0f}, "
      "\"sum_of_8_gbps\": {:.0f}}}\n",
      copy, adam, tree_sum, in_order);
}

}  // namespace
}  // namespace tandem

int main() {
  try {
    tandem::open_gpu(0.9);
  } catch (const tandem::Error& error) {
    fmt::print("left out: {} ({})\n", error.what(), error.why());
    return 0;
  }
  tandem::set_determinism();
  const tandem::Size tiny{"tiny, 24 shards", 32, 64, 192, 24};
  tandem::eager(tiny);
  bool good = true;
  for (const tandem::Size& size : {tandem::Size{"mlp 512-4096, 2048 rows", 512, 4096, 2048, 1},
                                   tandem::Size{"mlp 512-8192, 8192 rows", 512, 8192, 8192, 1}})
    good = tandem::bare(size) && good;
  tandem::memory();
  return good ? 0 : 1;
}
