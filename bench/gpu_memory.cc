// bench/gpu_memory.cc -- the memory that training takes on a GPU, beside which bench/gpu_memory_baseline.py sets
// PyTorch's.
//
//   gpu_memory [gpt2|resnet50] [steps] [shards]        both models, 40 steps, 8 shards
//
// gpt2: GPT-2 small (12 layers of 768, 12 heads, vocabulary 50,257, tied weights: 124 M parameters), 8 sequences of
// 1,024 tokens an update. resnet50: ResNet-50, channels last, 64 images of 224 x 224. Plain libtorch layers, AdamW,
// bf16 autocast, made-up data, one worker. One JSON line each: `peak` is what libtorch's allocator reserved and the
// engine allocated beside it, at most, without the CUDA context; `used` what the driver says, at most, after a step;
// both in bytes. `rolled_back`: the state kept to roll back to came back to the bit; `keep_ms`: what keeping it takes.
// It needs a GPU that nobody else uses, and libtandem_cuda.so beside it.
#include <fmt/format.h>
#include <sys/wait.h>
#include <torch/torch.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/errors.h"
#include "engine/determinism.h"
#include "engine/gpu_device.h"
#include "engine/supervised.h"
#include "engine/train_loop.h"
#include "kernels/cpu/random_fill.h"
#include "nn/batch_norm.h"
#include "nn/channels_last.h"
#include "nn/tie_weights.h"

namespace tandem {
namespace {

// ---- GPT-2 small ----

constexpr int64_t kLayers = 12, kWidth = 768, kHeads = 12, kVocabulary = 50257, kTokens = 1024;

struct BlockImpl : torch::nn::Module {
  BlockImpl()
      : ln_1(register_module("ln_1", torch::nn::LayerNorm(torch::nn::LayerNormOptions({kWidth})))),
        ln_2(register_module("ln_2", torch::nn::LayerNorm(torch::nn::LayerNormOptions({kWidth})))),
        c_attn(register_module("c_attn", torch::nn::Linear(kWidth, 3 * kWidth))),
        c_proj(register_module("c_proj", torch::nn::Linear(kWidth, kWidth))),
        c_fc(register_module("c_fc", torch::nn::Linear(kWidth, 4 * kWidth))),
        c_out(register_module("c_out", torch::nn::Linear(4 * kWidth, kWidth))) {}
  at::Tensor forward(at::Tensor x) {  // [rows, tokens, width]
    const int64_t rows = x.size(0), tokens = x.size(1);
    std::vector<at::Tensor> qkv = c_attn(ln_1(x)).split(kWidth, 2);
    for (at::Tensor& t : qkv) t = t.view({rows, tokens, kHeads, kWidth / kHeads}).transpose(1, 2);
    const at::Tensor attention = at::scaled_dot_product_attention(qkv[0], qkv[1], qkv[2], {}, 0, /*is_causal=*/true);
    x = x + c_proj(attention.transpose(1, 2).reshape({rows, tokens, kWidth}));
    return x + c_out(at::gelu(c_fc(ln_2(x)), "tanh"));
  }
  torch::nn::LayerNorm ln_1, ln_2;
  torch::nn::Linear c_attn, c_proj, c_fc, c_out;
};
TORCH_MODULE(Block);

struct Gpt2Impl : torch::nn::Module {
  Gpt2Impl()
      : wte(register_module("wte", torch::nn::Embedding(kVocabulary, kWidth))),
        wpe(register_module("wpe", torch::nn::Embedding(kTokens, kWidth))),
        blocks(register_module("h", torch::nn::ModuleList())),
        ln_f(register_module("ln_f", torch::nn::LayerNorm(torch::nn::LayerNormOptions({kWidth})))),
        head(register_module("head", torch::nn::Linear(torch::nn::LinearOptions(kWidth, kVocabulary).bias(false)))) {
    for (int64_t i = 0; i < kLayers; ++i) blocks->push_back(Block());
    tie_weights(head, wte);
  }
  at::Tensor forward(const at::Tensor& tokens) {  // [rows, tokens] -> [rows, tokens, vocabulary]
    at::Tensor x = wte(tokens) + wpe->weight;
    for (const auto& block : *blocks) x = block->as<Block>()->forward(x);
    return head(ln_f(x));
  }
  torch::nn::Embedding wte, wpe;
  torch::nn::ModuleList blocks;
  torch::nn::LayerNorm ln_f;
  torch::nn::Linear head;
};
TORCH_MODULE(Gpt2);

// ---- ResNet-50 ----

torch::nn::Conv2d conv(int64_t in, int64_t out, int64_t kernel, int64_t stride) {
  return torch::nn::Conv2d(torch::nn::Conv2dOptions(in, out, kernel).stride(stride).padding(kernel / 2).bias(false));
}

struct BottleneckImpl : torch::nn::Module {
  BottleneckImpl(int64_t in, int64_t width, int64_t stride)
      : conv1(register_module("conv1", conv(in, width, 1, 1))),
        conv2(register_module("conv2", conv(width, width, 3, stride))),
        conv3(register_module("conv3", conv(width, 4 * width, 1, 1))),
        bn1(register_module("bn1", BatchNorm(width))),
        bn2(register_module("bn2", BatchNorm(width))),
        bn3(register_module("bn3", BatchNorm(4 * width))) {
    if (stride == 1 && in == 4 * width) return;
    downsample = register_module("downsample", conv(in, 4 * width, 1, stride));
    bn4 = register_module("bn4", BatchNorm(4 * width));
  }
  at::Tensor forward(const at::Tensor& x) {
    at::Tensor y = bn1(conv1(x)).relu_();
    y = bn2(conv2(y)).relu_();
    y = bn3(conv3(y));
    y += downsample ? bn4(downsample(x)) : x;
    return y.relu_();
  }
  torch::nn::Conv2d conv1, conv2, conv3, downsample{nullptr};
  BatchNorm bn1, bn2, bn3, bn4{nullptr};
};
TORCH_MODULE(Bottleneck);

struct ResNet50Impl : torch::nn::Module {
  ResNet50Impl()
      : conv1(register_module("conv1", conv(3, 64, 7, 2))),
        bn1(register_module("bn1", BatchNorm(64))),
        blocks(register_module("blocks", torch::nn::ModuleList())),
        fc(register_module("fc", torch::nn::Linear(2048, 1000))) {
    int64_t in = 64;
    for (const auto& [width, count, stride] :
         {std::tuple{64, 3, 1}, std::tuple{128, 4, 2}, std::tuple{256, 6, 2}, std::tuple{512, 3, 2}})
      for (int i = 0; i < count; ++i, in = 4 * width) blocks->push_back(Bottleneck(in, width, i == 0 ? stride : 1));
    use_channels_last(*this);
  }
  at::Tensor forward(at::Tensor x) {
    x = bn1(conv1(x.contiguous(at::MemoryFormat::ChannelsLast))).relu_();
    x = at::max_pool2d(x, 3, 2, 1);
    for (const auto& block : *blocks) x = block->as<Bottleneck>()->forward(x);
    return fc(x.mean({2, 3}));
  }
  torch::nn::Conv2d conv1;
  BatchNorm bn1;
  torch::nn::ModuleList blocks;
  torch::nn::Linear fc;
};
TORCH_MODULE(ResNet50);

// ---- recipes ----

struct MemorySettings : RecipeSettings {
  MemorySettings(int64_t batch, int64_t shard_count) {
    shards = shard_count;
    batch_size = batch;
    precision = "bf16";
    optimizer.kind = "adamw";
    optimizer.learning_rate = 1e-4;
    nan.patience = 1;
  }
};

// Rows of tensors that are made once.
struct Rows : Dataset {
  explicit Rows(std::vector<at::Tensor> all) : tensors(std::move(all)) {}
  int64_t size() const override { return tensors[0].size(0); }
  std::vector<at::Tensor> load(std::span<const int64_t> samples, const RandomKey&) const override {
    const at::Tensor rows =
        torch::from_blob(const_cast<int64_t*>(samples.data()), {int64_t(samples.size())}, at::kLong);
    std::vector<at::Tensor> batch;
    for (const at::Tensor& t : tensors) batch.push_back(t.index_select(0, rows));
    return batch;
  }
  std::vector<at::Tensor> tensors;
};

struct Gpt2Recipe : SupervisedRecipe {
  using SupervisedRecipe::SupervisedRecipe;
  std::shared_ptr<torch::nn::Module> make_model() override { return net.ptr(); }
  InitRules initial_weights() const override {
    return InitRules()
        .kind("Linear", "weight", init::normal(0.02))
        .kind("Embedding", "weight", init::normal(0.02))
        .name("*.bias", init::zeros());
  }
  std::unique_ptr<Dataset> make_data() override {
    const at::Tensor text = (at::arange(64 * (kTokens + 1)) * 7919 % kVocabulary).view({64, kTokens + 1});
    return std::make_unique<Rows>(
        std::vector<at::Tensor>{text.narrow(1, 0, kTokens).contiguous(), text.narrow(1, 1, kTokens).contiguous()});
  }
  at::Tensor forward(const Batch& batch, ShardContext&) override { return net(batch.tensors[0]); }
  at::Tensor row_losses(const at::Tensor& output, const Batch& batch) override {
    namespace F = torch::nn::functional;
    const at::Tensor losses = F::cross_entropy(output.flatten(0, 1), batch.tensors[1].flatten(),
                                               F::CrossEntropyFuncOptions().reduction(torch::kNone));
    return losses.view({output.size(0), -1}).mean(1);
  }
  at::Tensor row_correct(const at::Tensor&, const Batch&) override { return {}; }
  Gpt2 net;
};

struct ResNetRecipe : SupervisedRecipe {
  using SupervisedRecipe::SupervisedRecipe;
  std::shared_ptr<torch::nn::Module> make_model() override { return net.ptr(); }
  std::unique_ptr<Dataset> make_data() override {
    at::Tensor images = at::empty({256, 3, 224, 224});
    fill_normal(images.data_ptr<float>(), images.numel(), {.seed = 3});
    return std::make_unique<Rows>(std::vector<at::Tensor>{images, at::arange(256) * 37 % 1000});
  }
  at::Tensor forward(const Batch& batch, ShardContext&) override { return net(batch.tensors[0]); }
  ResNet50 net;
};

// ---- measurement ----

uint64_t weights_hash(TrainLoop& loop) {
  return device().state_hash(loop.state().parameters().data(),
                             static_cast<int64_t>(loop.state().parameters().size_bytes()));
}

// Keeps the state, goes on, and has a NaN roll it back.
bool rolls_back(TrainLoop& loop, const RecipeSettings& settings, double& keep_ms) {
  const double begin = monotonic_seconds();
  loop.update().begin_step(settings.nan.rollback_every);
  device().wait();
  keep_ms = 1e3 * (monotonic_seconds() - begin);
  const uint64_t kept = weights_hash(loop);
  loop.step();
  const bool moved = weights_hash(loop) != kept;
  const std::span<float> total = loop.state().contribution();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  device().zero(total.data(), total.size_bytes());
  device().from_host(total.data(), &nan, sizeof(nan));
  const UpdateResult result = loop.update().apply(total, nan_flag(0, 0));
  return moved && result.rolled_back && weights_hash(loop) == kept;
}

int measure(const std::string& model, int steps, int64_t shards) {
  open_gpu(1.0);
  set_determinism();
  const uint64_t context = gpu()->memory().now_bytes;
  const size_t free_before = gpu()->free_bytes();
  const bool text = model == "gpt2";
  const MemorySettings settings(text ? 8 : 64, shards);
  std::unique_ptr<Recipe> recipe;
  if (text)
    recipe = std::make_unique<Gpt2Recipe>(settings);
  else
    recipe = std::make_unique<ResNetRecipe>(settings);
  TrainLoop loop(settings, std::move(recipe), ShardPlan::balance(static_cast<int>(shards), std::vector<double>{1}));
  const uint64_t at_start = gpu()->memory().now_bytes - context;
  size_t least_free = free_before;
  std::vector<double> times;
  double loss = 0;
  for (int i = 0; i < steps; ++i) {
    const StepRecord record = loop.step();
    for (const std::string& note : loop.take_notes(true)) fmt::print(stderr, "step {}: {}\n", i, note);
    device().wait();
    times.push_back(record.seconds);
    loss = record.loss;
    least_free = std::min(least_free, gpu()->free_bytes());
  }
  const uint64_t peak = gpu()->memory().peak_bytes - context;
  times.erase(times.begin(), times.begin() + static_cast<int64_t>(times.size() / 2));
  std::ranges::nth_element(times, times.begin() + static_cast<int64_t>(times.size() / 2));
  double keep_ms = 0;
  const bool rolled_back = rolls_back(loop, settings, keep_ms);
  fmt::print(
      "{{\"model\": \"{}\", \"parameters\": {}, \"shards\": {}, \"before_first_step\": {}, \"peak\": {}, \"used\": {}, "
      "\"step_ms\": {:.2f}, \"loss\": {:.4f}, \"rolled_back\": {}, \"keep_ms\": {:.2f}}}\n",
      model, loop.state().parameter_floats(), shards, at_start, peak, free_before - least_free,
      1e3 * times[times.size() / 2], loss, rolled_back, keep_ms);
  std::fflush(stdout);
  return rolled_back ? 0 : 1;
}

int guarded(const std::string& model, int steps, int64_t shards) {
  try {
    return measure(model, steps, shards);
  } catch (const Error& error) {
    const bool no_gpu = !gpu();
    fmt::print("{}: {} ({})\n", no_gpu ? "left out" : model, error.what(), error.why());
    return no_gpu ? 0 : 1;
  }
}

// A process for each: the peak is that of its whole life.
int in_child(const std::function<int()>& work) {
  std::fflush(stdout);
  const pid_t child = ::fork();
  if (child == 0) ::_exit((std::fflush(stdout), work()));
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  const std::string model = argc > 1 ? argv[1] : "";
  const int steps = argc > 2 ? std::max(8, std::atoi(argv[2])) : 40;
  const int64_t shards = argc > 3 ? std::max(1, std::atoi(argv[3])) : 8;
  if (model == "gpt2" || model == "resnet50") return tandem::guarded(model, steps, shards);
  if (!model.empty()) {
    fmt::print(stderr, "usage: gpu_memory [gpt2|resnet50] [steps] [shards]\n");
    return 2;
  }
  int code = 0;
  for (const char* each : {"gpt2", "resnet50"})
    code = std::max(code, tandem::in_child([&] { return tandem::guarded(each, steps, shards); }));
  return code;
}
