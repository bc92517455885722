// tests/gpu/shard_attention.cc -- attention, layer norm, embedding, dropout and cross-entropy as layers, on a GPU.
//
//   gpu_shard_attention
// Attention: 8 shards in one pass beside 1, 2 and 4 of them, bits compared, and microseconds of forward and backward;
// its error against float. The others: the bits of the GPU beside the CPU's, gradients of parameters included. One line
// each; "ok" last. Exit 1 if something differs, 2 if there is no GPU.
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime.h>
#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "engine/determinism.h"
#include "kernels/gpu/layer_kernels.h"
#include "nn/attention.h"
#include "nn/cross_entropy.h"
#include "nn/dropout.h"
#include "nn/embedding.h"
#include "nn/kernel_choice.h"
#include "nn/layer_norm.h"
#include "nn/test_pass.h"

namespace tandem {
namespace {

constexpr int kShards = 8;
bool all_well = true;

void tell(bool well, const std::string& what) {
  std::printf("%s %s\n", well ? "equal  " : "DIFFERS", what.c_str());
  std::fflush(stdout);
  all_well = all_well && well;
}

at::Tensor gpu_numbers(at::IntArrayRef sizes, uint32_t site, at::ScalarType type = at::kFloat) {
  return test_numbers(sizes, site).to(at::kCUDA).to(type);
}

double microseconds(const std::function<void()>& call) {
  std::vector<float> times;
  cudaEvent_t begin, end;
  cudaEventCreate(&begin);
  cudaEventCreate(&end);
  for (int i = 0; i < 12; ++i) {
    cudaEventRecord(begin, c10::cuda::getCurrentCUDAStream());
    call();
    cudaEventRecord(end, c10::cuda::getCurrentCUDAStream());
    cudaEventSynchronize(end);
    float ms = 0;
    cudaEventElapsedTime(&ms, begin, end);
    if (i >= 2) times.push_back(ms * 1000);
  }
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  std::nth_element(times.begin(), times.begin() + 5, times.end());
  return times[5];
}

// ---- attention ----

struct AttentionCase {
  std::string name;
  AttentionOptions options;
  int64_t rows, heads, tokens, size;  // rows of one shard
  at::ScalarType type;
  bool masked;
};

struct AttentionRun {
  at::Tensor out, grad;
};

class AttentionBench {
 public:
  explicit AttentionBench(const AttentionCase& of) : case_(of), attention_(of.options) {
    const int64_t rows = of.rows * kShards;
    qkv_ = gpu_numbers({rows, of.tokens, 3, of.heads, of.size}, 1, of.type);
    out_grad_ = gpu_numbers({rows, of.tokens, of.heads * of.size}, 2, of.type);
    if (!of.masked) return;
    mask_ = gpu_numbers({rows, of.tokens}, 3).gt(-0.3);
    mask_.select(1, 0).fill_(true);
  }
  AttentionRun run(int first, int count) {
    const TestPass pass(*attention_, count);
    at::Tensor mine = part(qkv_, first, count).detach().requires_grad_();
    const at::Tensor out = forward(mine, first, count);
    out.backward(part(out_grad_, first, count));
    return {out.detach(), mine.grad()};
  }
  double forward_us(int count) {
    const TestPass pass(*attention_, count);
    const at::Tensor mine = part(qkv_, 0, count).detach().requires_grad_();
    return microseconds([&] { forward(mine, 0, count); });
  }
  double both_us(int count) {
    return microseconds([&] { run(0, count); });
  }
  // Relative to the largest number, against float and torch's own formula; of the first shard.
  double error() {
    const AttentionRun found = run(0, 1);
    at::Tensor full = part(qkv_, 0, 1).to(at::kFloat).requires_grad_();
    const auto one = [&](int64_t i) { return full.select(2, i).transpose(1, 2); };
    at::Tensor scores = at::matmul(one(0), one(1).transpose(2, 3)) / std::sqrt(static_cast<double>(case_.size));
    const double low = -std::numeric_limits<double>::infinity();
    if (case_.options.causal)
      scores =
          scores.masked_fill(at::ones({case_.tokens, case_.tokens}, scores.options().dtype(at::kBool)).triu(1), low);
    if (mask_.defined())
      scores = scores.masked_fill(part(mask_, 0, 1).logical_not().view({case_.rows, 1, 1, case_.tokens}), low);
    const at::Tensor out = at::matmul(at::softmax(scores, -1), one(2)).transpose(1, 2).flatten(2);
    out.backward(part(out_grad_, 0, 1).to(at::kFloat));
    const auto off = [](const at::Tensor& a, const at::Tensor& b) {
      return ((a.to(at::kFloat) - b).abs().max() / b.abs().max()).item<double>();
    };
    return std::max(off(found.out, out), off(found.grad, full.grad()));
  }

 private:
  at::Tensor part(const at::Tensor& x, int first, int count) const { return shards_of(x, kShards, first, count); }
  at::Tensor forward(const at::Tensor& qkv, int first, int count) {
    std::optional<RandomSource> key;
    if (case_.options.dropout > 0) {
      key.emplace(RandomKey{1, 2, static_cast<uint32_t>(3 + first), 4});
      key->shards = count;
    }
    return attention_->forward_packed(qkv, mask_.defined() ? part(mask_, first, count) : mask_, key);
  }
  AttentionCase case_;
  Attention attention_;
  at::Tensor qkv_, out_grad_, mask_;
};

void attention_case(const AttentionCase& of) {
  AttentionBench bench(of);
  const AttentionRun whole = bench.run(0, kShards);
  bool equal = true;
  std::string differing;
  for (const int group : {1, 2, 4, 3})
    for (int first = 0; first + group <= kShards; first += group) {
      const AttentionRun found = bench.run(first, group);
      const bool out = at::equal(found.out, shards_of(whole.out, kShards, first, group)),
                 grad = at::equal(found.grad, shards_of(whole.grad, kShards, first, group));
      if (out && grad) continue;
      if (equal) differing = fmt::format("; first at {} shards: {}", group, out ? "backward" : "forward");
      equal = false;
    }
  const bool repeats = at::equal(bench.run(0, kShards).grad, whole.grad);
  std::string error = of.options.dropout > 0 ? "-" : fmt::format("{:.1e}", bench.error());
  const double forward = bench.forward_us(kShards), both = bench.both_us(kShards);
  const double one_forward = bench.forward_us(1), one_both = bench.both_us(1);
  tell(equal && repeats,
       fmt::format(
           "{} {}x{}x{}x{} a shard: 8 shards forward {:.0f} us, backward {:.0f} us; 1 shard {:.0f}, {:.0f} us; error "
           "{}{}{}",
           of.name, of.rows, of.heads, of.tokens, of.size, forward, both - forward, one_forward, one_both - one_forward,
           error, differing, repeats ? "" : "; does not repeat"));
}

void attention_cases() {
  using K = AttentionKernel;
  const auto bf16 = at::kBFloat16;
  const AttentionOptions flash{.causal = true, .kernel = K::kFlash}, efficient{.causal = true, .kernel = K::kEfficient};
  attention_case({"flash causal bf16", flash, 4, 12, 1024, 64, bf16, false});
  const AttentionOptions cudnn{.causal = true, .kernel = K::kCudnnFlash};
  attention_case({"cuDNN forward, flash backward, causal bf16", cudnn, 4, 12, 1024, 64, bf16, false});
  attention_case({"efficient causal bf16", efficient, 4, 12, 1024, 64, bf16, false});
  attention_case({"flash causal bf16, one sequence", flash, 1, 12, 1024, 64, bf16, false});
  attention_case({"flash causal fp16, heads of 128", flash, 2, 8, 512, 128, at::kHalf, false});
  attention_case({"efficient masked bf16", {.kernel = K::kEfficient}, 16, 12, 128, 64, bf16, true});
  attention_case({"flash bf16", {.kernel = K::kFlash}, 16, 12, 128, 64, bf16, false});
  attention_case({"flash causal bf16, 256 tokens", flash, 1, 2, 256, 64, bf16, false});
  attention_case({"efficient float", {.kernel = K::kEfficient}, 16, 12, 128, 64, at::kFloat, false});
  attention_case({"math with dropout bf16", {.dropout = 0.1}, 16, 12, 128, 64, bf16, true});
}

// ---- the others: GPU beside CPU ----

bool same_numbers(const at::Tensor& gpu, const at::Tensor& cpu) { return same_bits(gpu.cpu(), cpu.cpu()); }

void layer_norm_on_both() {
  LayerNorm norm(768);
  std::vector<at::Tensor> seen[2];
  for (const bool gpu : {false, true}) {
    norm->to(gpu ? at::kCUDA : at::kCPU);
    const auto on = [&](uint32_t site) { return test_numbers({3 * 70, 768}, site).to(norm->weight.device()); };
    const TestPass pass(*norm, 3);
    at::Tensor x = on(1).to(at::kBFloat16).requires_grad_(), residual = on(2).requires_grad_();
    const auto [sum, normed] = norm->forward_residual(x, residual);
    torch::autograd::backward({sum, normed}, {on(3), on(4).to(normed.dtype())});
    seen[gpu] = {sum.detach(),
                 normed.detach(),
                 x.grad(),
                 residual.grad(),
                 pass.sums.leaves(norm->weight),
                 pass.sums.leaves(norm->bias)};
  }
  bool equal = true;
  for (size_t i = 0; i < seen[0].size(); ++i) equal = equal && same_numbers(seen[1][i], seen[0][i]);
  tell(equal, "layer norm with a residual, 3 x 70 x 768, beside the CPU");
}

void embedding_on_both() {
  Embedding embedding(100, 96, 7);
  at::Tensor tokens = at::empty({3 * 40, 5}, at::kLong);
  for (int64_t i = 0; i < tokens.numel(); ++i)
    tokens.data_ptr<int64_t>()[i] = random_below(RandomKey{6, 0, 0, 0}, static_cast<uint64_t>(i), 100);
  std::vector<at::Tensor> seen[2];
  for (const bool gpu : {false, true}) {
    embedding->to(gpu ? at::kCUDA : at::kCPU);
    const at::Device where = embedding->weight.device();
    const TestPass pass(*embedding, 3);
    const at::Tensor out = embedding->forward(tokens.to(where));
    out.backward(test_numbers(out.sizes(), 1).to(where));
    seen[gpu] = {out.detach(), pass.sums.leaves(embedding->weight)};
  }
  tell(same_numbers(seen[1][0], seen[0][0]) && same_numbers(seen[1][1], seen[0][1]),
       "embedding 100 x 96, 3 x 200 tokens, beside the CPU");
  const at::Tensor bad = embedding->forward(at::full({1}, 100, at::TensorOptions(at::kCUDA).dtype(at::kLong)));
  tell(bad.isnan().all().item<bool>(), "a token that is not there gives NaN");
}

void loss_and_dropout_on_both() {
  std::vector<at::Tensor> seen[2];
  for (const bool gpu : {false, true}) {
    const auto on = [&](at::Tensor x) { return x.to(gpu ? at::kCUDA : at::kCPU); };
    at::Tensor logits = on(test_numbers({30, 5003}, 1)).to(at::kBFloat16).requires_grad_();
    RandomSource key(RandomKey{1, 2, 3, 4});
    key.shards = 3;
    const at::Tensor losses = cross_entropy(dropout(logits, 0.2, key), on(at::arange(30)));
    losses.backward(on(test_numbers({30}, 2)));
    seen[gpu] = {losses.detach(), logits.grad()};
  }
  tell(same_numbers(seen[1][0], seen[0][0]) && same_numbers(seen[1][1], seen[0][1]),
       "dropout and cross-entropy, 30 x 5003 bf16, beside the CPU");
}

int run() {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0) {
    std::fprintf(stderr, "error: no CUDA GPU here\n");
    return 2;
  }
  setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", 0);
  set_determinism();
  const KernelTables tables = KernelTables()
                                  .add(cuda::layer_norm_kernels())
                                  .add(cuda::cross_entropy_kernels())
                                  .add(cuda::embedding_kernels())
                                  .add(cuda::dropout_kernels());
  offer_gpu_kernels({&tables, [] { return static_cast<void*>(c10::cuda::getCurrentCUDAStream().stream()); }});
  layer_norm_on_both();
  embedding_on_both();
  loss_and_dropout_on_both();
  attention_cases();
  std::puts(all_well ? "ok" : "not all is equal");
  return all_well ? 0 : 1;
}

}  // namespace
}  // namespace tandem

int main() {
  try {
    return tandem::run();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
}
