// bench/engine_overhead.cc -- what the engine costs: a step of TrainLoop beside a bare libtorch loop with the same
// kernels.
//
// One shard, the same model, data, dropout masks, batch norm and fused Adam; the bare loop is what a person would write
// by hand around them. First both train and must end with the same weights, bit for bit; then blocks of steps are timed
// in turn, and the ratio of their medians is printed. Goal: at most 1.02.
#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <cstring>

#include "base/clock.h"
#include "engine/determinism.h"
#include "engine/snapshot.h"
#include "engine/supervised.h"
#include "engine/train_loop.h"
#include "engine/tree_sums.h"
#include "kernels/cpu/norms.h"
#include "kernels/cpu/optimizers.h"
#include "kernels/cpu/random_fill.h"
#include "kernels/cpu/sums.h"
#include "nn/dropout.h"

namespace tandem {
namespace {

struct Size {
  const char* name;
  int64_t features, hidden, batch;
};

struct Settings : RecipeSettings {
  explicit Settings(const Size& size) {
    shards = 1;
    batch_size = size.batch;
    loader.threads = 0;
    nan.rollback_every = 0;
  }
};

struct Net : torch::nn::Module {
  Net(int64_t features, int64_t hidden)
      : fc1(register_module("fc1", torch::nn::Linear(features, hidden))),
        bn(register_module("bn", BatchNorm(hidden))),
        fc2(register_module("fc2", torch::nn::Linear(hidden, hidden))),
        out(register_module("out", torch::nn::Linear(hidden, 10))) {}
  at::Tensor forward(const at::Tensor& x, const RandomKey& key) {
    return out(dropout(at::relu(fc2(at::relu(bn(fc1(x))))), 0.1, key));
  }
  torch::nn::Linear fc1;
  BatchNorm bn;
  torch::nn::Linear fc2, out;
};

struct Data : Dataset {
  explicit Data(int64_t features) : x(at::empty({4096, features})), y(at::empty({4096}, at::kLong)) {
    fill_normal(x.data_ptr<float>(), x.numel(), {.seed = 3});
    for (int64_t i = 0; i < 4096; ++i) y.data_ptr<int64_t>()[i] = i % 10;
  }
  int64_t size() const override { return 4096; }
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
  std::unique_ptr<Dataset> make_data() override { return std::make_unique<Data>(size.features); }
  at::Tensor forward(const Batch& batch, ShardContext& context) override {
    return net->forward(batch.tensors[0], context.random(0));
  }
  const Size& size;
  std::shared_ptr<Net> net;
};

// The baseline: nothing but libtorch and the kernels.
class BareLoop {
 public:
  BareLoop(const Settings& s, const Size& size)
      : settings_(s),
        net_(std::make_shared<Net>(size.features, size.hidden)),
        data_(size.features),
        state_(1, s.seed),
        sampler_(data_.size(), 1, 1, s.batch_size, s.seed) {
    state_.add_model(net_);  // for the flat buffers only
    state_.seal(0, 2);
  }

  double step() {
    const Slice slice = sampler_.slice(step_, 0, 0);
    const auto batch = data_.load(slice.samples, {});
    at::Tensor weight = at::ones({settings_.batch_size});
    std::span<float> vector = state_.contribution();
    std::fill(vector.begin(), vector.end(), 0.0f);
    LayerContext& layers = state_.layers();
    static_cast<MicroBatch&>(layers) = {.training = true, .share = 1, .real = 1};
    layers.sums = &sums_;
    part_.vector = vector;
    sums_.begin(1, {&part_, 1}, 0, false);
    const at::Tensor output = net_->forward(batch[0], {.seed = state_.seed(), .step = static_cast<uint64_t>(step_)});
    const at::Tensor losses = torch::nn::functional::cross_entropy(
        output, batch[1], torch::nn::functional::CrossEntropyFuncOptions().reduction(torch::kNone));
    const at::Tensor loss = (losses * weight).sum() / static_cast<double>(settings_.batch_size);
    loss.backward();
    sums_.finish();
    const double value = loss.item<float>();
    {
      at::NoGradGuard no_grad;
      correct_ += (output.argmax(1) == batch[1]).sum().item<int64_t>();
    }
    const std::span<float> gradient = vector.first(state_.parameter_floats());
    const double norm2 = sum_of_squares(gradient.data(), static_cast<int64_t>(gradient.size()));  // NaN test and clip
    if (std::isfinite(norm2)) {
      const OptimizerSettings& o = settings_.optimizer;
      adam_update(state_.parameters().data(), gradient.data(), state_.optimizer_state(0).data(),
                  state_.optimizer_state(1).data(), state_.parameter_floats(),
                  adam_params(o.learning_rate, o.beta1, o.beta2, o.epsilon, 0, false, step_ + 1), 1.0f);
      const auto running = state_.running_statistics();
      soft_update(running.data(), vector.data() + state_.parameter_floats(), 0.1f,
                  static_cast<int64_t>(running.size()));
    }
    ++step_;
    return value;
  }
  std::span<const float> weights() const { return state_.parameters(); }

 private:
  const Settings& settings_;
  std::shared_ptr<Net> net_;
  Data data_;
  JobState state_;
  TreeSums sums_{state_};
  PassPart part_{.last = 1, .merges = {0}};
  EpochSampler sampler_;
  int64_t step_ = 0, correct_ = 0;
};

double median(std::vector<double> v) {
  std::nth_element(v.begin(), v.begin() + v.size() / 2, v.end());
  return v[v.size() / 2];
}

bool compare(const Size& size) {
  const Settings settings(size);
  BareLoop bare(settings, size);
  TrainLoop engine(settings, std::make_unique<BenchRecipe>(settings, size),
                   ShardPlan::balance(1, std::vector<double>{1}));
  for (int i = 0; i < 20; ++i) {
    bare.step();
    engine.step();
  }
  const bool same =
      std::memcmp(bare.weights().data(), engine.state().parameters().data(), bare.weights().size_bytes()) == 0;
  // Steps in turn, each timed alone: what disturbs the machine disturbs both alike.
  std::vector<double> ratios, bare_us, engine_us;
  const double begin = monotonic_seconds();
  for (int block = 0; block < 12 || monotonic_seconds() - begin < 6; ++block) {
    std::vector<double> b, e;
    for (int i = 0; i < 60; ++i) {
      const double t0 = monotonic_seconds();
      bare.step();
      const double t1 = monotonic_seconds();
      engine.step();
      b.push_back(t1 - t0);
      e.push_back(monotonic_seconds() - t1);
    }
    bare_us.push_back(median(b) * 1e6);
    engine_us.push_back(median(e) * 1e6);
    ratios.push_back(engine_us.back() / bare_us.back());
  }
  fmt::print("{:<22} same weights: {}   bare {:9.1f} us   engine {:9.1f} us   ratio {:.4f}\n", size.name,
             same ? "yes" : "NO", median(bare_us), median(engine_us), median(ratios));
  return same;
}

}  // namespace
}  // namespace tandem

int main() {
  tandem::set_determinism();
  bool same = true;
  for (const tandem::Size& size :
       {tandem::Size{"mlp 32-64-64, 192 rows", 32, 64, 192}, tandem::Size{"mlp 256-512, 256 rows", 256, 512, 256},
        tandem::Size{"mlp 512-1024, 256 rows", 512, 1024, 256}})
    same = tandem::compare(size) && same;
  return same ? 0 : 1;
}
