// tests/gpu/operators.cc -- which of libtorch's CUDA operators give equal bits, and at what price.
//
//   gpu_operators [--repeat 20] [--reverse] [--hold-mib 3000] [--only WORD]
// Every operator that the recipes need runs forward and backward, `repeat` times, while a second stream keeps the GPU
// busy and the allocator's free blocks are shuffled; once as libtorch comes ("free"), once behind the switchboard of
// engine/determinism.h ("exact"). One JSON line each: {"op","mode","distinct","hash","us","refused"}. Processes are
// compared by whoever runs several of them (tests/gpu/test_gpu.py). Exit 2 if there is no GPU.
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime.h>
#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/determinism.h"
#include "kernels/cpu/random_fill.h"
#include "kernels/cpu/state_hash.h"
#include "kernels/gpu/kernels.h"

namespace tandem {
namespace {

using at::Tensor;

uint32_t next_site = 0;

// Numbers of the same distribution as activations: a function of the order in which a case asks for them.
Tensor normal(at::IntArrayRef sizes, at::ScalarType type = at::kFloat, float deviation = 1) {
  Tensor values = at::empty(sizes, at::TensorOptions(at::kCUDA).dtype(at::kFloat));
  cuda::fill_normal(values.data_ptr<float>(), values.numel(), RandomKey{7, 0, 0, next_site++}, 0, 0, deviation,
                    c10::cuda::getCurrentCUDAStream().stream());
  return values.to(type);
}

Tensor integers(at::IntArrayRef sizes, int64_t below) {
  Tensor host = at::empty(sizes, at::kLong);
  const RandomKey key{8, 0, 0, next_site++};
  for (int64_t i = 0; i < host.numel(); ++i)
    host.data_ptr<int64_t>()[i] = random_below(key, static_cast<uint64_t>(i), static_cast<uint32_t>(below));
  return host.to(at::kCUDA);
}

Tensor leaf(Tensor t) { return t.detach().set_requires_grad(true); }

struct Case {
  std::string name;
  // Makes the inputs, and returns what is run again and again on them.
  std::function<std::function<std::vector<Tensor>()>()> prepare;
};

// Forward and backward with a fixed gradient: the output and the gradients of all leaves.
std::function<std::vector<Tensor>()> both(std::vector<Tensor> leaves, std::function<Tensor()> forward) {
  return [leaves = std::move(leaves), forward = std::move(forward), seed = Tensor()]() mutable {
    for (Tensor& t : leaves) t.mutable_grad() = Tensor();
    const Tensor out = forward();
    if (!seed.defined()) {
      next_site = 1000;
      seed = normal(out.sizes(), out.scalar_type());
    }
    out.backward(seed);
    std::vector<Tensor> results{out.detach()};
    for (const Tensor& t : leaves) results.push_back(t.grad());
    return results;
  };
}

std::vector<Case> cases() {
  std::vector<Case> list;
  const auto add = [&](std::string name, auto prepare) { list.push_back({std::move(name), prepare}); };
  const auto types = {std::pair{"fp32", at::kFloat}, {"bf16", at::kBFloat16}, {"fp16", at::kHalf}};

  for (const auto& [word, type] : types) {
    const auto t = type;
    for (const auto& [rows, in, out] : {std::array{256, 128, 512}, {8192, 768, 3072}, {256, 512, 31}})
      add(fmt::format("linear {}x{}->{} {}", rows, in, out, word), [=] {
        Tensor x = leaf(normal({rows, in}, t)), w = leaf(normal({out, in}, t, 0.05f)), b = leaf(normal({out}, t));
        return both({x, w, b}, [=] { return at::linear(x, w, b); });
      });
  }
  add("linear 8192x768->3072 tf32", [] {
    Tensor x = leaf(normal({8192, 768})), w = leaf(normal({3072, 768})), b = leaf(normal({3072}));
    return both({x, w, b}, [=] {
      at::globalContext().setAllowTF32CuBLAS(true);
      Tensor y = at::linear(x, w, b);
      return y;
    });
  });
  add("bmm 192x128x64x128 bf16", [] {
    Tensor a = leaf(normal({192, 128, 64}, at::kBFloat16)), b = leaf(normal({192, 64, 128}, at::kBFloat16));
    return both({a, b}, [=] { return at::bmm(a, b); });
  });
  for (const auto& [word, type] : types) {
    const auto t = type;
    add(fmt::format("layer_norm 8192x768 {}", word), [=] {
      Tensor x = leaf(normal({8192, 768}, t)), w = leaf(normal({768}, t)), b = leaf(normal({768}, t));
      return both({x, w, b}, [=] { return at::layer_norm(x, {768}, w, b); });
    });
    add(fmt::format("lstm 3x256 window 20 batch 256 {}", word), [=] {
      torch::nn::LSTM lstm(torch::nn::LSTMOptions(160, 256).num_layers(3).batch_first(true));
      std::vector<Tensor> leaves;
      for (Tensor& p : lstm->parameters()) {
        Tensor value = normal(p.sizes(), t, 0.05f);
        p.set_data(value);
        leaves.push_back(p);
      }
      lstm->flatten_parameters();
      Tensor x = leaf(normal({256, 20, 160}, t));
      leaves.push_back(x);
      return both(leaves, [=]() mutable { return std::get<0>(lstm->forward(x)); });
    });
  }

  // Attention: [batch, heads, length, 64]; which kernel serves it is chosen by the switches of the context.
  enum Kernel { kFlash, kEfficient, kCudnn, kMath };
  const auto attention = [&](std::string name, Kernel kernel, int64_t b, int64_t h, int64_t l, bool causal,
                             at::ScalarType t) {
    add(std::move(name), [=] {
      Tensor q = leaf(normal({b, h, l, 64}, t)), k = leaf(normal({b, h, l, 64}, t)), v = leaf(normal({b, h, l, 64}, t));
      return both({q, k, v}, [=] {
        at::Context& context = at::globalContext();
        context.setSDPUseFlash(kernel == kFlash);
        context.setSDPUseMemEfficient(kernel == kEfficient);
        context.setSDPUseCuDNN(kernel == kCudnn);
        context.setSDPUseMath(kernel == kMath);
        return at::scaled_dot_product_attention(q, k, v, {}, 0.0, causal);
      });
    });
  };
  attention("attention flash gpt2 bf16", kFlash, 8, 12, 1024, true, at::kBFloat16);
  attention("attention flash bert bf16", kFlash, 64, 12, 128, false, at::kBFloat16);
  attention("attention efficient gpt2 bf16", kEfficient, 8, 12, 1024, true, at::kBFloat16);
  attention("attention efficient bert bf16", kEfficient, 64, 12, 128, false, at::kBFloat16);
  attention("attention cudnn gpt2 bf16", kCudnn, 8, 12, 1024, true, at::kBFloat16);
  attention("attention cudnn bert bf16", kCudnn, 64, 12, 128, false, at::kBFloat16);
  attention("attention math gpt2 bf16", kMath, 8, 12, 1024, true, at::kBFloat16);
  attention("attention math bert bf16", kMath, 64, 12, 128, false, at::kBFloat16);
  attention("attention math trader fp32", kMath, 256, 8, 20, false, at::kFloat);

  for (const auto& [word, type] : types) {
    const auto t = type;
    struct Conv {
      const char* name;
      int64_t in, out, size, kernel, stride, pad;
    };
    for (const Conv c : {Conv{"7x7/2 stem 3->64", 3, 64, 224, 7, 2, 3}, Conv{"3x3 64", 64, 64, 56, 3, 1, 1},
                         Conv{"1x1 256->64", 256, 64, 56, 1, 1, 0}, Conv{"3x3/2 128", 128, 128, 56, 3, 2, 1},
                         Conv{"1x1/2 1024->2048", 1024, 2048, 14, 1, 2, 0}})
      for (const bool last : {false, true})
        add(fmt::format("conv2d {} {} {}", c.name, last ? "channels-last" : "nchw", word), [=] {
          const auto format = last ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Contiguous;
          Tensor x = leaf(normal({32, c.in, c.size, c.size}, t).contiguous(format));
          Tensor w = leaf(normal({c.out, c.in, c.kernel, c.kernel}, t, 0.05f).contiguous(format));
          return both({x, w}, [=] { return at::conv2d(x, w, {}, c.stride, c.pad); });
        });
  }
  for (const auto& [word, type] : {std::pair{"fp16", at::kHalf}, {"bf16", at::kBFloat16}, {"fp32", at::kFloat}}) {
    const auto t = type;
    struct Conv {
      int64_t in, out, depth, size;
    };
    for (const Conv c : {Conv{1, 32, 17, 128}, Conv{32, 64, 8, 64}, Conv{64, 128, 4, 32}, Conv{128, 256, 2, 16}})
      for (const bool last : {false, true})
        add(fmt::format("conv3d {}->{} {} {}", c.in, c.out, last ? "ndhwc" : "ncdhw", word), [=] {
          const auto format = last ? at::MemoryFormat::ChannelsLast3d : at::MemoryFormat::Contiguous;
          Tensor x = leaf(normal({8, c.in, c.depth, c.size, c.size}, t).contiguous(format));
          Tensor w = leaf(normal({c.out, c.in, 3, 3, 3}, t, 0.05f).contiguous(format));
          return both({x, w}, [=] { return at::conv3d(x, w, {}, 1, 1); });
        });
  }

  for (const bool cudnn : {false, true})
    for (const auto& [name, sizes] : {std::pair{"1d 256x512", std::vector<int64_t>{256, 512}},
                                      {"2d 32x64x56x56", {32, 64, 56, 56}},
                                      {"3d 8x32x17x64x64", {8, 32, 17, 64, 64}}})
      add(fmt::format("batch_norm {} {}", name, cudnn ? "cudnn" : "native"), [=, sizes = sizes] {
        const int64_t channels = sizes[1];
        Tensor x = leaf(normal(sizes)), w = leaf(normal({channels})), b = leaf(normal({channels}));
        return both({x, w, b}, [=] {
          Tensor mean = at::zeros({channels}, x.options().requires_grad(false)), var = at::ones_like(mean);
          return at::batch_norm(x, w, b, mean, var, true, 0.1, 1e-5, cudnn);
        });
      });
  const auto pooled = [&](std::string name, std::vector<int64_t> sizes, auto pool) {
    add(std::move(name), [=] {
      Tensor x = leaf(normal(sizes));
      return both({x}, [=] { return pool(x); });
    });
  };
  pooled("max_pool2d 3/2", {32, 64, 112, 112}, [](Tensor x) { return at::max_pool2d(x, {3, 3}, {2, 2}, {1, 1}); });
  pooled("avg_pool2d 2", {32, 64, 56, 56}, [](Tensor x) { return at::avg_pool2d(x, {2, 2}); });
  pooled("adaptive_avg_pool2d 1", {32, 2048, 7, 7}, [](Tensor x) { return at::adaptive_avg_pool2d(x, {1, 1}); });
  pooled("adaptive_max_pool2d 1", {32, 256, 7, 7}, [](Tensor x) {
    return std::get<0>(at::adaptive_max_pool2d(x, {1, 1}));
  });
  pooled("max_pool3d 2", {8, 32, 16, 64, 64}, [](Tensor x) { return at::max_pool3d(x, {2, 2, 2}); });
  pooled("max_pool3d 3/2 overlapping", {8, 32, 16, 64, 64}, [](Tensor x) {
    return at::max_pool3d(x, {3, 3, 3}, {2, 2, 2}, {1, 1, 1});
  });
  pooled("avg_pool3d 2", {8, 32, 16, 64, 64}, [](Tensor x) { return at::avg_pool3d(x, {2, 2, 2}); });
  pooled("adaptive_avg_pool3d 1", {8, 256, 2, 16, 16}, [](Tensor x) { return at::adaptive_avg_pool3d(x, {1, 1, 1}); });
  pooled("mean over space 3d", {8, 256, 2, 16, 16}, [](Tensor x) { return x.mean({2, 3, 4}); });
  pooled("upsample bilinear 2", {8, 32, 32, 32}, [](Tensor x) {
    return at::upsample_bilinear2d(x, at::IntArrayRef{64, 64}, /*align_corners=*/false);
  });

  for (const auto& [word, type] : {std::pair{"fp32", at::kFloat}, {"bf16", at::kBFloat16}}) {
    const auto t = type;
    add(fmt::format("embedding 50257x768, 8192 tokens {}", word), [=] {
      Tensor w = leaf(normal({50257, 768}, t)), rows = integers({8, 1024}, 50257);
      return both({w}, [=] { return at::embedding(w, rows); });
    });
    add(fmt::format("embedding 2x768, 8192 tokens {}", word), [=] {  // segment ids: thousands of rows add to one
      Tensor w = leaf(normal({2, 768}, t)), rows = integers({8, 1024}, 2);
      return both({w}, [=] { return at::embedding(w, rows); });
    });
    add(fmt::format("cross_entropy 4096x50257 {}", word), [=] {
      Tensor x = leaf(normal({4096, 50257}, t)), labels = integers({4096}, 50257);
      return both({x}, [=] { return at::cross_entropy_loss(x, labels); });
    });
    add(fmt::format("cross_entropy 256x10 per row {}", word), [=] {
      Tensor x = leaf(normal({256, 10}, t)), labels = integers({256}, 10);
      return both({x}, [=] { return at::cross_entropy_loss(x, labels, {}, at::Reduction::None); });
    });
    add(fmt::format("softmax 8192x1024 {}", word), [=] {
      Tensor x = leaf(normal({8192, 1024}, t));
      return both({x}, [=] { return at::softmax(x, 1); });
    });
    add(fmt::format("gelu 8192x3072 {}", word), [=] {
      Tensor x = leaf(normal({8192, 3072}, t));
      return both({x}, [=] { return at::gelu(x, "tanh"); });
    });
    add(fmt::format("sums of 8192x3072 {}", word), [=] {
      Tensor x = leaf(normal({8192, 3072}, t));
      return both({x}, [=] {
        return at::cat({x.sum(0), x.mean(1), x.sum().reshape({1}), x.to(at::kFloat).std(0).to(t)});
      });
    });
  }
  add("gather 256x31", [] {
    Tensor x = leaf(normal({256, 31})), at_column = integers({256, 1}, 31);
    return both({x}, [=] { return x.gather(1, at_column); });
  });
  add("gather, many to one", [] {
    Tensor x = leaf(normal({64, 512})), at_row = integers({65536, 512}, 64);
    return both({x}, [=] { return x.gather(0, at_row); });
  });
  add("index_select, many to one", [] {
    Tensor x = leaf(normal({64, 512})), rows = integers({65536}, 64);
    return both({x}, [=] { return x.index_select(0, rows); });
  });
  add("x[rows], many to one", [] {
    Tensor x = leaf(normal({64, 512})), rows = integers({65536}, 64);
    return both({x}, [=] { return x.index({rows}); });
  });
  const auto plain = [&](std::string name, auto make) {  // forward only
    add(std::move(name), [=] {
      auto call = make();
      return [=]() -> std::vector<Tensor> { return {call()}; };
    });
  };
  plain("scatter_add float, many to one", [] {
    Tensor x = normal({65536, 64}), rows = integers({65536, 64}, 64);
    return [=] { return at::zeros({64, 64}, x.options()).scatter_add(0, rows, x); };
  });
  plain("index_add float, many to one", [] {
    Tensor x = normal({65536, 64}), rows = integers({65536}, 64);
    return [=] { return at::zeros({64, 64}, x.options()).index_add(0, rows, x); };
  });
  plain("index_put accumulate, many to one", [] {
    Tensor x = normal({65536, 64}), rows = integers({65536}, 64);
    return [=] { return at::zeros({64, 64}, x.options()).index_put({rows}, x, true); };
  });
  plain("scatter_add int64, many to one", [] {
    Tensor x = integers({65536, 64}, 1000), rows = integers({65536, 64}, 64);
    return [=] { return at::zeros({64, 64}, x.options()).scatter_add(0, rows, x); };
  });
  plain("bincount int64", [] {
    Tensor x = integers({1 << 20}, 4096);
    return [=] { return at::bincount(x, {}, 4096); };
  });
  plain("cumsum float 1 M", [] {
    Tensor x = normal({1 << 20});
    return [=] { return x.cumsum(0); };
  });
  plain("cumsum float 256 x 4096", [] {
    Tensor x = normal({256, 4096});
    return [=] { return x.cumsum(1); };
  });
  plain("cumsum int64 1 M", [] {
    Tensor x = integers({1 << 20}, 1 << 20);
    return [=] { return x.cumsum(0); };
  });
  plain("sort 1 M, stable", [] {
    Tensor x = integers({1 << 20}, 1000);
    return [=] { return std::get<1>(at::sort(x, true, 0, false)); };
  });
  plain("topk 32 of 256 x 4096, ties", [] {
    Tensor x = integers({256, 4096}, 100).to(at::kFloat);
    return [=] { return std::get<1>(x.topk(32, 1)); };
  });
  plain("argmax with ties", [] {
    Tensor x = integers({4096, 64}, 5).to(at::kFloat);
    return [=] { return x.argmax(1); };
  });
  plain("max over a dimension with ties", [] {
    Tensor x = integers({4096, 64}, 5).to(at::kFloat);
    return [=] { return std::get<1>(x.max(1)); };
  });
  plain("searchsorted 256 in 1 M", [] {
    Tensor x = std::get<0>(integers({1 << 20}, 1 << 30).sort()), q = integers({256}, 1 << 30);
    return [=] { return at::searchsorted(x, q); };
  });
  plain("norm of 100 M", [] {
    Tensor x = normal({1 << 20}).repeat({96});
    return [=] { return x.norm(); };
  });
  return list;
}

// Other work on the GPU and another state of the allocator, different in every repetition.
class Disturbance {
 public:
  Disturbance() : stream_(c10::cuda::getStreamFromPool(false)) {
    a_ = at::ones({2048, 2048}, at::TensorOptions(at::kCUDA).dtype(at::kBFloat16));
    cudaDeviceSynchronize();
  }
  void stir(int repetition) {
    blocks_.resize(6);
    const RandomKey key{9, 0, 0, 0};
    for (int i = 0; i < 3; ++i) {
      const auto draw = static_cast<uint64_t>(8 * repetition + 2 * i);
      blocks_[random_below(key, draw, 6)] =
          at::empty({1 + random_below(key, draw + 1, 24 << 20)}, at::TensorOptions(at::kCUDA).dtype(at::kByte));
    }
    if (repetition % 6 == 5) c10::cuda::CUDACachingAllocator::emptyCache();
    c10::cuda::CUDAStreamGuard other(stream_);
    for (int i = 0; i < 1 + repetition % 4; ++i) b_ = at::mm(a_, a_);
  }

 private:
  c10::cuda::CUDAStream stream_;
  Tensor a_, b_;
  std::vector<Tensor> blocks_;
};

uint64_t hash_of(const std::vector<Tensor>& results) {
  uint64_t hash = 0;
  for (const Tensor& t : results) {
    const Tensor flat = t.contiguous();
    const auto bytes = static_cast<int64_t>(flat.nbytes());
    const auto numbers = at::TensorOptions(at::kCUDA).dtype(at::kLong);
    const Tensor blocks = at::empty({std::max<int64_t>(1, hash_block_count(bytes))}, numbers),
                 one = at::empty({1}, numbers);
    const auto pointer = [](const Tensor& p) { return reinterpret_cast<uint64_t*>(p.data_ptr<int64_t>()); };
    cuda::state_hash(pointer(one), flat.data_ptr(), bytes, pointer(blocks), c10::cuda::getCurrentCUDAStream().stream());
    hash = fold_hash(hash, static_cast<uint64_t>(one.item<int64_t>()));
  }
  return hash;
}

void set_free() {
  at::Context& context = at::globalContext();
  context.setDeterministicAlgorithms(false, false);
  context.setDeterministicCuDNN(false);
}

nlohmann::json judge(const Case& item, bool exact, int repeat) {
  nlohmann::json result{{"op", item.name}, {"mode", exact ? "exact" : "free"}};
  exact ? set_determinism() : set_free();
  next_site = 0;
  try {
    auto call = item.prepare();
    std::vector<uint64_t> seen;
    {
      Disturbance disturbance;
      for (int i = 0; i < repeat; ++i) {
        disturbance.stir(i);
        const uint64_t hash = hash_of(call());
        if (i == 0) result["hash"] = fmt::format("{:016x}", hash);
        if (std::find(seen.begin(), seen.end(), hash) == seen.end()) seen.push_back(hash);
      }
    }
    result["distinct"] = seen.size();
    std::vector<float> times;
    cudaEvent_t begin, end;
    cudaEventCreate(&begin);
    cudaEventCreate(&end);
    for (int i = 0; i < 8; ++i) {
      cudaDeviceSynchronize();
      cudaEventRecord(begin, c10::cuda::getCurrentCUDAStream());
      call();
      cudaEventRecord(end, c10::cuda::getCurrentCUDAStream());
      cudaEventSynchronize(end);
      float ms = 0;
      cudaEventElapsedTime(&ms, begin, end);
      times.push_back(ms * 1000);
    }
    std::nth_element(times.begin(), times.begin() + 4, times.end());
    result["us"] = times[4];
    cudaEventDestroy(begin);
    cudaEventDestroy(end);
  } catch (const std::exception& error) {
    result["refused"] = std::string(error.what()).substr(0, 160);
  }
  at::globalContext().setAllowTF32CuBLAS(false);
  c10::cuda::CUDACachingAllocator::emptyCache();
  return result;
}

int run(int argc, char** argv) {
  int repeat = 20, hold_mib = 0;
  bool reverse = false;
  std::string only;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--reverse")
      reverse = true;
    else if (word == "--repeat" && i + 1 < argc)
      repeat = std::atoi(argv[++i]);
    else if (word == "--hold-mib" && i + 1 < argc)
      hold_mib = std::atoi(argv[++i]);
    else if (word == "--only" && i + 1 < argc)
      only = argv[++i];
    else {
      std::fprintf(stderr, "error: '%s' is not known\n  do     see the top of tests/gpu/operators.cc\n", argv[i]);
      return 2;
    }
  }
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0) {
    std::fprintf(stderr, "error: no CUDA GPU here\n");
    return 2;
  }
  setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", 0);
  const Tensor held =
      at::empty({1 + (static_cast<int64_t>(hold_mib) << 20)}, at::TensorOptions(at::kCUDA).dtype(at::kByte));
  std::vector<Case> list = cases();
  if (reverse) std::reverse(list.begin(), list.end());
  for (const Case& item : list) {
    if (!only.empty() && item.name.find(only) == std::string::npos) continue;
    for (const bool exact : {false, true}) {
      std::puts(judge(item, exact, repeat).dump().c_str());
      std::fflush(stdout);
    }
  }
  return 0;
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) { return tandem::run(argc, argv); }
