// tests/gpu/twins_norm.cu -- layer norm, cross-entropy, embedding and dropout: the CUDA kernels beside their CPU twins.
//
// Bit for bit, over widths, types, shards and alignments; and rows of shards in one call beside one call per shard.
// Then microseconds and GB/s (of the bytes a perfect kernel moves) at the shapes of GPT-2 small, 32 x 1,024 tokens.
// Prints "ok" last. Exit 1 if something differs, 2 if there is no GPU. Builds alone, on a bare machine:
//   nvcc -std=c++20 -O3 -arch=native --fmad=false -Isrc -Xcompiler
//   -ffp-contract=off,-fno-math-errno,-Wno-unknown-pragmas
//     -o twins_norm tests/gpu/twins_norm.cu src/kernels/gpu/{norm_kernels,cross_entropy,token_kernels}.cu
//     src/kernels/cpu/{norm_kernels,token_kernels,dropout_kernels,random_fill}.cc
#include <cuda_runtime.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "kernels/cpu/random_fill.h"
#include "kernels/gpu/layer_kernels.h"

namespace {

using namespace tandem;

void must(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "error: %s: %s, %s\n", what, cudaGetErrorName(error), cudaGetErrorString(error));
  std::exit(2);
}

uint32_t next_site = 0;
bool all_equal = true;

// The same numbers in host and device memory, `shift` elements after an aligned address.
class Numbers {
 public:
  Numbers(int64_t n, FloatType type, float deviation = 1, int shift = 0)
      : type_(type), n_(n), shift_(shift), host_(static_cast<size_t>((n + shift) * bytes_of(type))) {
    std::vector<float> values(static_cast<size_t>(n));
    fill_normal(values.data(), n, RandomKey{99, 1, 2, next_site++}, 0, 0, deviation);
    for (int64_t i = 0; i < n; ++i) store_float(host_.data(), type, shift + i, values[i]);
    must(cudaMalloc(&device_, host_.size() + 64), "cudaMalloc");
    must(cudaMemcpy(device_, host_.data(), host_.size(), cudaMemcpyHostToDevice), "copy to the device");
  }
  Numbers(const Numbers&) = delete;
  ~Numbers() { cudaFree(device_); }
  TypedInput in(bool gpu) const { return {base(gpu), type_}; }
  TypedOutput out(bool gpu) { return {base(gpu), type_}; }
  float* floats(bool gpu) { return static_cast<float*>(base(gpu)); }
  bool equal(const char* what) {
    std::vector<char> back(host_.size());
    must(cudaMemcpy(back.data(), device_, back.size(), cudaMemcpyDeviceToHost), "copy to the host");
    for (int64_t i = 0; i < shift_ + n_; ++i) {
      const float a = load_float(back.data(), type_, i), b = load_float(host_.data(), type_, i);
      const size_t width = static_cast<size_t>(bytes_of(type_));
      if (std::memcmp(&back[i * width], &host_[i * width], width) == 0 || (a != a && b != b)) continue;
      std::printf("  %s differs at %lld of %lld: GPU %.9g, CPU %.9g\n", what, static_cast<long long>(i - shift_),
                  static_cast<long long>(n_), a, b);
      return false;
    }
    return true;
  }

 private:
  void* base(bool gpu) const {
    return (gpu ? static_cast<char*>(device_) : const_cast<char*>(host_.data())) + shift_ * bytes_of(type_);
  }
  FloatType type_;
  int64_t n_;
  int shift_;
  std::vector<char> host_;
  void* device_ = nullptr;
};

class Integers {
 public:
  explicit Integers(std::vector<int64_t> values) : host_(std::move(values)) {
    must(cudaMalloc(&device_, host_.size() * 8 + 8), "cudaMalloc");
    must(cudaMemcpy(device_, host_.data(), host_.size() * 8, cudaMemcpyHostToDevice), "copy to the device");
  }
  Integers(const Integers&) = delete;
  ~Integers() { cudaFree(device_); }
  const int64_t* at(bool gpu) const { return gpu ? device_ : host_.data(); }
  const std::vector<int64_t>& host() const { return host_; }

 private:
  std::vector<int64_t> host_;
  int64_t* device_ = nullptr;
};

void report(const std::string& what, bool equal) {
  std::printf("%s %s\n", equal ? "equal  " : "DIFFERS", what.c_str());
  all_equal = all_equal && equal;
}

void timed(const char* what, double bytes, const std::function<void()>& launch) {
  cudaEvent_t begin, end;
  must(cudaEventCreate(&begin), "event");
  must(cudaEventCreate(&end), "event");
  constexpr int kRuns = 10;
  for (int i = 0; i < 3; ++i) launch();
  must(cudaEventRecord(begin), "event");
  for (int i = 0; i < kRuns; ++i) launch();
  must(cudaEventRecord(end), "event");
  must(cudaEventSynchronize(end), what);
  float ms = 0;
  must(cudaEventElapsedTime(&ms, begin, end), "event");
  std::printf("time    %-56s %9.1f us %8.0f GB/s\n", what, ms * 1000 / kRuns, bytes * kRuns / (ms * 1e6));
}

const char* name_of(FloatType type) {
  return type == FloatType::kFloat ? "float" : type == FloatType::kBFloat16 ? "bf16" : "fp16";
}

// ---- layer norm ----

struct NormTypes {
  FloatType x, residual, sum, out;
};

struct NormCase {
  NormCase(int of_shards, int64_t of_rows, int of_width, NormTypes types, int shift, bool with_residual)
      : shards(of_shards),
        rows(of_rows),
        width(of_width),
        adds(with_residual),
        x(n(), types.x, 2, shift),
        residual(n(), types.residual, 1, shift),
        sum(n(), with_residual ? types.sum : types.x, 1, shift),
        out(n(), types.out, 1, shift),
        dy(n(), types.out, 1, shift),
        dsum(n(), types.sum, 1, shift),
        grad(n(), types.x, 1, shift),
        second(n(), types.residual, 1, shift),
        weight(width, FloatType::kFloat),
        bias(width, FloatType::kFloat),
        mean(shards * rows, FloatType::kFloat),
        rstd(shards * rows, FloatType::kFloat),
        weight_leaves(shards * width, FloatType::kFloat),
        bias_leaves(shards * width, FloatType::kFloat),
        scratch(layer_norm_scratch(shards, rows, width), FloatType::kFloat) {}
  int64_t n() const { return shards * rows * width; }
  LayerNormForwardCall forward(bool gpu) {
    LayerNormForwardCall call{
        shards * rows,    width,           1e-5f, x.in(gpu), {}, weight.floats(gpu), bias.floats(gpu), {}, out.out(gpu),
        mean.floats(gpu), rstd.floats(gpu)};
    if (adds) call.residual = residual.in(gpu), call.sum = sum.out(gpu);
    return call;
  }
  LayerNormBackwardCall backward(bool gpu) {
    LayerNormBackwardCall call;
    call.shards = shards, call.shard_rows = rows, call.width = width;
    call.sum = adds ? sum.in(gpu) : x.in(gpu), call.out_grad = dy.in(gpu);
    if (adds) call.sum_grad = dsum.in(gpu), call.second_grad = second.out(gpu);
    call.weight = weight.floats(gpu), call.mean = mean.floats(gpu), call.rstd = rstd.floats(gpu);
    call.grad = grad.out(gpu);
    call.weight_leaves = weight_leaves.floats(gpu), call.bias_leaves = bias_leaves.floats(gpu);
    call.scratch = scratch.floats(gpu);
    return call;
  }
  bool equal() {
    return (!adds || (sum.equal("sum") && second.equal("gradient of the residual"))) && out.equal("output") &&
           mean.equal("mean") && rstd.equal("rstd") && grad.equal("gradient") && weight_leaves.equal("weight leaves") &&
           bias_leaves.equal("bias leaves");
  }
  int shards;
  int64_t rows;
  int width;
  bool adds;
  Numbers x, residual, sum, out, dy, dsum, grad, second, weight, bias, mean, rstd, weight_leaves, bias_leaves, scratch;
};

void norm_twins() {
  constexpr auto f = FloatType::kFloat, b = FloatType::kBFloat16, h = FloatType::kHalf;
  const LayerNormKernels &cpu = LayerNormKernels::cpu(), &gpu = cuda::layer_norm_kernels();
  for (const int width : {1, 7, 64, 255, 256, 768, 1000, 1024, 1032, 1600, 4096, 8192})
    for (const NormTypes& types :
         {NormTypes{f, f, f, f}, NormTypes{b, f, f, b}, NormTypes{b, b, b, b}, NormTypes{h, f, f, h}})
      for (const auto& [shards, rows, shift] :
           {std::array{1, 1, 0}, std::array{3, 37, 0}, std::array{5, 130, 0}, std::array{2, 33, 1}}) {
        if (width > 1024 && rows > 100) continue;
        NormCase one(shards, rows, width, types, shift, rows != 1);
        cpu.forward(one.forward(false), nullptr);
        cpu.backward(one.backward(false), nullptr);
        gpu.forward(one.forward(true), nullptr);
        gpu.backward(one.backward(true), nullptr);
        const bool equal = one.equal();
        if (!equal || rows == 37)
          report("layer norm " + std::to_string(shards) + " x " + std::to_string(rows) + " x " + std::to_string(width) +
                     " " + name_of(types.x) + (shift ? " unaligned" : ""),
                 equal);
        all_equal = all_equal && equal;
      }
  NormCase many(1, 70000, 64, {f, f, f, f}, 0, true);  // rows of a partial sum are doubled above 8,192
  cpu.forward(many.forward(false), nullptr);
  cpu.backward(many.backward(false), nullptr);
  gpu.forward(many.forward(true), nullptr);
  gpu.backward(many.backward(true), nullptr);
  report("layer norm 1 x 70000 x 64 float", many.equal());
  {
    NormCase gpt2(8, 4096, 768, {b, f, f, b}, 0, true);
    const double n = static_cast<double>(gpt2.n());
    timed("layer norm + residual, 32768 x 768, forward", n * (2 + 4 + 4 + 2),
          [&] { gpu.forward(gpt2.forward(true), nullptr); });
    timed("layer norm + residual, 32768 x 768, backward", n * (2 + 4 + 4 + 2 + 4),
          [&] { gpu.backward(gpt2.backward(true), nullptr); });
  }
  NormCase half(8, 4096, 768, {b, b, b, b}, 0, false);
  const double n = static_cast<double>(half.n());
  timed("layer norm bf16, 32768 x 768, forward", n * 4, [&] { gpu.forward(half.forward(true), nullptr); });
  timed("layer norm bf16, 32768 x 768, backward", n * 6, [&] { gpu.backward(half.backward(true), nullptr); });
}

// ---- cross-entropy ----

std::vector<int64_t> labels_of(int64_t rows, int64_t classes, bool bad) {
  std::vector<int64_t> labels(static_cast<size_t>(rows));
  for (int64_t r = 0; r < rows; ++r)
    labels[r] = r % 7 == 3 ? -100
                : bad && r % 11 == 5
                    ? classes + r
                    : random_below(RandomKey{3, 0, 0, 0}, static_cast<uint64_t>(r), static_cast<uint32_t>(classes));
  return labels;
}

struct LossCase {
  LossCase(int64_t of_rows, int64_t of_classes, FloatType type, bool weighted, int shift, bool bad)
      : rows(of_rows),
        classes(of_classes),
        weights(weighted),
        logits(rows * classes, type, 5, shift),
        grad(rows * classes, type, 1, shift),
        class_weights(classes, FloatType::kFloat),
        losses(rows, FloatType::kFloat),
        log_sums(2 * rows, FloatType::kFloat),
        loss_grads(rows, FloatType::kFloat),
        labels(labels_of(rows, classes, bad)) {}
  CrossEntropyForward forward(bool gpu) {
    return {rows,
            classes,
            logits.in(gpu),
            labels.at(gpu),
            weights ? class_weights.floats(gpu) : nullptr,
            -100,
            losses.floats(gpu),
            log_sums.floats(gpu)};
  }
  CrossEntropyBackward backward(bool gpu) { return {forward(gpu), loss_grads.floats(gpu), grad.out(gpu)}; }
  int64_t rows, classes;
  bool weights;
  Numbers logits, grad, class_weights, losses, log_sums, loss_grads;
  Integers labels;
};

void loss_twins() {
  const CrossEntropyKernels &cpu = CrossEntropyKernels::cpu(), &gpu = cuda::cross_entropy_kernels();
  for (const FloatType type : {FloatType::kFloat, FloatType::kBFloat16, FloatType::kHalf})
    for (const int64_t classes : {1, 2, 10, 31, 256, 1000, 1024, 1025, 2057, 8192, 50257})
      for (const int shift : {0, 1}) {
        const int64_t rows = classes > 10000 ? 19 : 85;
        LossCase one(rows, classes, type, classes % 2 == 0, shift, true);
        cpu.forward(one.forward(false), nullptr);
        cpu.backward(one.backward(false), nullptr);
        gpu.forward(one.forward(true), nullptr);
        gpu.backward(one.backward(true), nullptr);
        report("cross-entropy " + std::to_string(rows) + " x " + std::to_string(classes) + " " + name_of(type) +
                   (shift ? " unaligned" : ""),
               one.losses.equal("loss") && one.log_sums.equal("log of the sum") && one.grad.equal("gradient"));
      }
  LossCase gpt2(8192, 50257, FloatType::kBFloat16, false, 0, false);
  const double bytes = 2.0 * 8192 * 50257;
  timed("cross-entropy 8192 x 50257 bf16, forward", bytes, [&] { gpu.forward(gpt2.forward(true), nullptr); });
  timed("cross-entropy 8192 x 50257 bf16, backward", 2 * bytes, [&] { gpu.backward(gpt2.backward(true), nullptr); });
}

// ---- embedding ----

struct TokenCase {
  TokenCase(int of_shards, int64_t of_rows, int64_t of_count, int of_width, FloatType type)
      : shards(of_shards),
        rows(of_rows),
        count(of_count),
        width(of_width),
        weight(count * width, FloatType::kFloat),
        out(shards * rows * width, FloatType::kFloat),
        dy(shards * rows * width, type),
        leaves(shards * count * width, FloatType::kFloat, 0),
        tokens(labels_of(shards * rows, count, true)),
        order(sorted_rows()),
        keys(sorted_keys()) {}
  int64_t key(int64_t row) const {
    const int64_t token = tokens.host()[row];
    return token < 0 || token >= count ? shards * count : row / rows * count + token;
  }
  std::vector<int64_t> sorted_rows() const {
    std::vector<int64_t> found(static_cast<size_t>(shards * rows));
    std::iota(found.begin(), found.end(), 0);
    std::stable_sort(found.begin(), found.end(), [&](int64_t a, int64_t b) { return key(a) < key(b); });
    return found;
  }
  std::vector<int64_t> sorted_keys() const {
    std::vector<int64_t> found;
    for (const int64_t row : order.host()) found.push_back(key(row));
    return found;
  }
  EmbeddingForward forward(bool gpu) {
    return {shards * rows, count, width, tokens.at(gpu), weight.floats(gpu), out.floats(gpu)};
  }
  EmbeddingBackward backward(bool gpu) {
    return {shards, rows, count, 1, width, tokens.at(gpu), keys.at(gpu), order.at(gpu), dy.in(gpu), leaves.floats(gpu)};
  }
  int shards;
  int64_t rows, count;
  int width;
  Numbers weight, out, dy, leaves;
  Integers tokens, order, keys;
};

void token_twins() {
  const EmbeddingKernels &cpu = EmbeddingKernels::cpu(), &gpu = cuda::embedding_kernels();
  for (const FloatType type : {FloatType::kFloat, FloatType::kBFloat16})
    for (const auto& [shards, rows, count, width] : {std::array{1, 1, 3, 5}, std::array{3, 100, 7, 64},
                                                     std::array{5, 333, 2, 768}, std::array{2, 64, 1000, 130}}) {
      TokenCase one(shards, rows, count, width, type);
      cpu.forward(one.forward(false), nullptr);
      cpu.backward(one.backward(false), nullptr);
      gpu.forward(one.forward(true), nullptr);
      gpu.backward(one.backward(true), nullptr);
      report("embedding " + std::to_string(shards) + " x " + std::to_string(rows) + ", " + std::to_string(count) +
                 " x " + std::to_string(width) + " " + name_of(type),
             one.out.equal("output") && one.leaves.equal("leaves"));
    }
  TokenCase gpt2(8, 4096, 50257, 768, FloatType::kFloat);
  const double n = 32768.0 * 768;
  timed("embedding 32768 of 50257 x 768, forward", n * 8, [&] { gpu.forward(gpt2.forward(true), nullptr); });
  timed("embedding 32768 of 50257 x 768, backward (no sort, no zeros)", n * 8,
        [&] { gpu.backward(gpt2.backward(true), nullptr); });
}

// ---- dropout ----

void dropout_twins() {
  const DropoutKernels &cpu = DropoutKernels::cpu(), &gpu = cuda::dropout_kernels();
  const RandomKey key{0x123456789ABCDEFu, (uint64_t{5} << 32) + 77, 23, 4000};
  RandomKey elsewhere = key;
  elsewhere.site = 1;  // the site is the call's
  RandomKey* device_key;
  must(cudaMalloc(&device_key, sizeof key), "cudaMalloc");
  must(cudaMemcpy(device_key, &elsewhere, sizeof key, cudaMemcpyHostToDevice), "copy to the device");
  const auto call_for = [&](int shards, int64_t each, Numbers& x, Numbers& residual, Numbers& out, FloatType type,
                            bool adds, bool on_device, bool on_gpu) {
    DropoutCall call{
        shards, each, x.in(on_gpu), {}, out.out(on_gpu), type, 0.3, key, on_device && on_gpu ? device_key : nullptr};
    if (on_device && on_gpu) call.key.seed = call.key.step = 0, call.key.shard = 0;  // not to be looked at
    if (adds) call.residual = residual.in(on_gpu);
    return call;
  };
  for (const FloatType type : {FloatType::kFloat, FloatType::kBFloat16, FloatType::kHalf})
    for (const bool adds : {false, true})
      for (const auto& [shards, each, shift] :
           {std::array{1, 3, 0}, std::array{3, 4096, 0}, std::array{5, 77, 0}, std::array{4, 64, 1}}) {
        Numbers x(shards * each, type, 1, shift), residual(shards * each, FloatType::kFloat, 1, shift),
            out(shards * each, adds ? FloatType::kFloat : type, 1, shift);
        bool equal = true;
        for (const bool on_device : {false, true}) {
          cpu.apply(call_for(shards, each, x, residual, out, type, adds, on_device, false), nullptr);
          gpu.apply(call_for(shards, each, x, residual, out, type, adds, on_device, true), nullptr);
          equal = equal && out.equal("dropout");
        }
        report("dropout " + std::to_string(shards) + " x " + std::to_string(each) + " " + name_of(type) +
                   (adds ? " + residual" : ""),
               equal);
      }
  const int64_t n = 32768 * 768;
  Numbers x(n, FloatType::kBFloat16), residual(n, FloatType::kFloat), out(n, FloatType::kFloat),
      half(n, FloatType::kBFloat16);
  timed("dropout bf16, 32768 x 768", n * 4.0,
        [&] { gpu.apply(call_for(8, n / 8, x, residual, half, FloatType::kBFloat16, false, true, true), nullptr); });
  timed("dropout bf16 + residual float, 32768 x 768", n * 10.0,
        [&] { gpu.apply(call_for(8, n / 8, x, residual, out, FloatType::kBFloat16, true, true, true), nullptr); });
  cudaFree(device_key);
}

}  // namespace

int main() {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::fprintf(stderr, "error: no CUDA GPU\n  why    %s\n  do     run this on a machine with one\n",
                 cudaGetErrorString(cudaGetLastError()));
    return 2;
  }
  try {
    norm_twins();
    loss_twins();
    token_twins();
    dropout_twins();
    must(cudaDeviceSynchronize(), "the last kernels");
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
  std::puts(all_equal ? "ok" : "the GPU's kernels differ from the CPU's");
  return all_equal ? 0 : 1;
}
