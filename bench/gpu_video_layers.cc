// bench/gpu_video_layers.cc -- the layers of a video model beside cuDNN and libtorch's, in one run: milliseconds of
// forward, and of forward and backward, for clips of 17 x 256 x 256 in bf16, channels last.
//
//   gpu_video_layers [CLIPS [SHARDS]]      default: 64 8
//
// Ours: SHARDS shards in one pass, bits that do not depend on it. Theirs: the batch as a whole, cuDNN with its search
// for the fastest engine, backward of the max pool with atomics. First how far the results are apart, then time, by
// turns.
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime.h>
#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "engine/determinism.h"
#include "kernels/batch_norm_kernels.h"
#include "kernels/clip_kernels.h"
#include "kernels/first_block_kernels.h"
#include "kernels/norm_pool_kernels.h"
#include "kernels/pool_kernels.h"
#include "nn/clips.h"
#include "nn/first_block3d.h"
#include "nn/kernel_choice.h"
#include "nn/norm_pool3d.h"
#include "nn/test_pass.h"

namespace tandem {
namespace {

constexpr auto kLast = at::MemoryFormat::ChannelsLast3d;
constexpr int kRounds = 9;

at::Tensor bench_numbers(at::IntArrayRef sizes, uint32_t site, at::ScalarType type = at::kBFloat16) {
  const at::Tensor x = test_numbers(sizes, site).to(at::kCUDA).to(type);
  return x.dim() == 5 ? x.contiguous(kLast) : x;
}

// As PyTorch trains: cuDNN may choose, nothing need be deterministic.
void use_their_settings(bool theirs) {
  at::globalContext().setDeterministicAlgorithms(!theirs, /*warn_only=*/false);
  at::globalContext().setDeterministicCuDNN(!theirs);
  at::globalContext().setBenchmarkCuDNN(theirs);
}

double milliseconds(const std::function<void()>& call) {
  cudaEvent_t begin, end;
  cudaEventCreate(&begin);
  cudaEventCreate(&end);
  const auto stream = c10::cuda::getCurrentCUDAStream();
  cudaEventRecord(begin, stream);
  call();
  cudaEventRecord(end, stream);
  cudaEventSynchronize(end);
  float ms = 0;
  cudaEventElapsedTime(&ms, begin, end);
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  return ms;
}
double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

// Each gives its output; with `backward` gradients flow to weights and, where it has one, to the input.
using Piece = std::function<at::Tensor(bool backward)>;

void compare(const std::string& name, int64_t clips, const Piece& ours, const Piece& theirs, bool has_backward = true) {
  use_their_settings(true);
  const at::Tensor expected = theirs(false).to(at::kFloat);
  use_their_settings(false);
  const double apart = ((ours(false).to(at::kFloat) - expected).norm() / expected.norm()).item<double>();
  std::string line = fmt::format("{:<34} {:.1e}", name, apart);
  for (const bool backward : {false, true}) {
    if (backward && !has_backward) continue;
    std::vector<double> own, other;
    for (int round = 0; round < kRounds + 2; ++round) {
      use_their_settings(false);
      const double a = milliseconds([&] { ours(backward); });
      use_their_settings(true);
      const double b = milliseconds([&] { theirs(backward); });
      if (round >= 2) own.push_back(a), other.push_back(b);
    }
    const double a = median(own), b = median(other);
    line += fmt::format("  {} {:8.3f} ms {:8.3f} ms {:5.2f}x {:7.1f} us a clip", backward ? "both" : "fwd", a, b, b / a,
                        1e3 * a / static_cast<double>(clips));
  }
  use_their_settings(false);
  std::puts(line.c_str());
  std::fflush(stdout);
}

struct BenchLayers {
  Conv3d conv;
  BatchNorm norm;
  MaxPool3d pool;
  StoredSums sums;
  at::Tensor weight, scale, shift;  // the same as leaves of autograd, in their types
  BenchLayers(int64_t in, int64_t out, const torch::ExpandingArray<3>& box, int shards)
      : conv(Conv3dOptions{.in = in, .out = out, .kernel = 3, .padding = 1, .bias = false}),
        norm(out),
        pool(Pool3dOptions{.kernel = box}) {
    conv->to(at::kCUDA);
    norm->to(at::kCUDA);
    const auto context = std::make_shared<LayerContext>();
    static_cast<MicroBatch&>(*context) = {.training = true, .share = 1, .real = 1};
    context->shards = context->job_shards = shards;
    conv->bind(context, "conv");
    norm->bind(context, "norm");
    pool->bind(context, "pool");
    for (const auto& part : pool->children()) std::dynamic_pointer_cast<ShardAware>(part)->bind(context, "pool.part");
    weight = conv->weight.detach().to(at::kBFloat16).contiguous(kLast).requires_grad_();
    scale = norm->weight.detach().clone().requires_grad_();
    shift = norm->bias.detach().clone().requires_grad_();
  }
  // Leaves go to fresh sums: what is kept of them is no part of the layers.
  at::Tensor run(const at::Tensor& x, bool backward, const std::function<at::Tensor(const at::Tensor&)>& forward) {
    const at::AutoGradMode grad(backward);
    sums = StoredSums();
    norm->pass().sums = &sums;
    const at::Tensor y = forward(x);
    if (backward) y.backward(at::ones_like(y));
    return y.detach();
  }
  static at::Tensor run_theirs(bool backward, const std::function<at::Tensor()>& forward) {
    const at::AutoGradMode grad(backward);
    const at::Tensor y = forward();
    if (backward) y.backward(at::ones_like(y));
    return y.detach();
  }
  at::Tensor their_norm(const at::Tensor& x) {
    return at::relu(at::batch_norm(x, scale, shift, {}, {}, true, 0.1, 1e-5, true));
  }
};

void bench_block(int number, int64_t clips, int shards, int64_t in, int64_t out, int64_t frames, int64_t side,
                 const std::vector<int64_t>& box) {
  BenchLayers layers(in, out, torch::ExpandingArray<3>(box), shards);
  const std::string block = "block " + std::to_string(number);
  const at::Tensor x = bench_numbers({clips, in, frames, side, side}, 1).requires_grad_(number > 1);
  const auto their_conv = [&] { return at::conv3d(x, layers.weight, {}, 1, 1); };
  const at::IntArrayRef kernel(box);
  if (number == 1) {
    // Statistics of the whole batch are those of one shard: with several the results are not the same function.
    compare(
        block + ", all of it", clips,
        [&](bool backward) {
          return layers.run(x, backward, [&](const at::Tensor& t) {
            return first_block(*layers.conv, *layers.norm, *layers.pool, t);
          });
        },
        [&](bool backward) {
          return BenchLayers::run_theirs(
              backward, [&] { return at::max_pool3d(layers.their_norm(their_conv()), kernel, kernel); });
        });
    return;
  }
  compare(
      block + ", convolution", clips,
      [&](bool backward) { return layers.run(x, backward, [&](const at::Tensor& t) { return layers.conv(t); }); },
      [&](bool backward) { return BenchLayers::run_theirs(backward, their_conv); });
  const at::Tensor z = bench_numbers({clips, out, frames, side, side}, 2).requires_grad_();
  compare(
      block + ", norm + ReLU + pool", clips,
      [&](bool backward) {
        return layers.run(z, backward,
                          [&](const at::Tensor& t) { return norm_relu_pool(*layers.norm, *layers.pool, t); });
      },
      [&](bool backward) {
        return BenchLayers::run_theirs(backward, [&] { return at::max_pool3d(layers.their_norm(z), kernel, kernel); });
      });
}

void bench_clips(int64_t clips) {
  constexpr int64_t kFrames = 2048;
  const at::Tensor frames = at::arange(kFrames * 256 * 256, at::TensorOptions(at::kCUDA).dtype(at::kInt))
                                .mul_(40'503)
                                .to(at::kByte)
                                .view({kFrames, 256, 256});
  const at::Tensor first = (at::arange(clips, at::TensorOptions(at::kCUDA).dtype(at::kLong)) * 37) % (kFrames - 17);
  at::Tensor keys = at::zeros({clips, 3}, at::TensorOptions(at::kCUDA).dtype(at::kLong));
  keys.select(1, 1).copy_(first);
  const auto gathered = [&] {
    const at::Tensor numbers = (first.unsqueeze(1) + at::arange(17, first.options())).view({-1});
    return frames.index_select(0, numbers).to(at::kFloat).div(255).to(at::kBFloat16).view({clips, 1, 17, 256, 256});
  };
  compare(
      "clips, plain", clips, [&](bool) { return make_clips(frames, first, {}, {}, {}, at::kBFloat16); },
      [&](bool) { return gathered(); }, false);
  compare(
      "clips, augmented; theirs plain", clips,
      [&](bool) { return make_clips(frames, first, {}, {}, keys, at::kBFloat16); }, [&](bool) { return gathered(); },
      false);
}

int run_bench(int64_t clips, int shards) {
  int gpus = 0;
  if (cudaGetDeviceCount(&gpus) != cudaSuccess || gpus == 0) {
    std::fprintf(stderr,
                 "error: there is no GPU\n  why    this compares layers on one\n  do     run it where "
                 "nvidia-smi shows one\n");
    return 2;
  }
  if (clips < 1 || shards < 1 || clips % shards != 0) {
    std::fprintf(stderr,
                 "error: %lld clips in %d shards\n  why    shards have the same number of clips each\n  do     "
                 "give numbers from 1 up that divide\n",
                 static_cast<long long>(clips), shards);
    return 2;
  }
  set_determinism();
  const KernelTables tables = KernelTables()
                                  .add(cuda::batch_norm_kernels())
                                  .add(cuda::clip_kernels())
                                  .add(cuda::first_block_kernels())
                                  .add(cuda::norm_pool_kernels())
                                  .add(cuda::pool_kernels());
  offer_gpu_kernels({&tables, [] { return static_cast<void*>(c10::cuda::getCurrentCUDAStream().stream()); }});
  std::printf("%lld clips in %d shards; ours, theirs, how much faster ours is\n", static_cast<long long>(clips),
              shards);
  bench_clips(clips);
  bench_block(1, clips, shards, 1, 32, 17, 256, {1, 2, 2});
  bench_block(2, clips, shards, 32, 64, 17, 128, {2, 2, 2});
  bench_block(3, clips, shards, 64, 128, 8, 64, {2, 2, 2});
  bench_block(4, clips, shards, 128, 256, 4, 32, {2, 2, 2});
  return 0;
}

}  // namespace
}  // namespace tandem

int main(int count, char** words) {
  try {
    return tandem::run_bench(count > 1 ? std::atoll(words[1]) : 64, count > 2 ? std::atoi(words[2]) : 8);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
}
