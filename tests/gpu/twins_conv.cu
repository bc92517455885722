// tests/gpu/twins_conv.cu -- batch norm, pools and convolution columns: the CUDA kernels beside their CPU twins.
//
// Bit for bit, over sizes, types, shards, memory formats and alignments; and shards in one call beside one call per
// shard. Then microseconds and GB/s (of the bytes a perfect kernel moves) at the shapes of ResNet-50 with 256 images.
// Prints "ok" last. Exit 1 if something differs, 2 if there is no GPU. Builds alone, on a bare machine:
//   nvcc -std=c++20 -O3 -arch=native --fmad=false -Isrc -Xcompiler
//   -ffp-contract=off,-fno-math-errno,-Wno-unknown-pragmas
//     -o twins_conv tests/gpu/twins_conv.cu src/kernels/gpu/{batch_norm,pool,conv}_kernels.cu
//     src/kernels/cpu/{batch_norm,pool,conv}_kernels.cc src/kernels/cpu/random_fill.cc
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "kernels/batch_norm_kernels.h"
#include "kernels/conv_kernels.h"
#include "kernels/cpu/random_fill.h"
#include "kernels/float_bits.h"
#include "kernels/pool_kernels.h"

namespace {

using namespace tandem;

void must(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "error: %s: %s, %s\n", what, cudaGetErrorName(error), cudaGetErrorString(error));
  std::exit(2);
}

uint32_t next_site = 0;
bool all_equal = true;

void report(const std::string& what, bool equal) {
  if (!equal) std::printf("DIFFERS: %s\n", what.c_str());
  all_equal = all_equal && equal;
}

// The same numbers in host and device memory, `shift` elements after an aligned address.
class Numbers {
 public:
  explicit Numbers(int64_t n, FloatType type = FloatType::kFloat, int shift = 0, float mean = 0, bool coarse = false)
      : type_(type), n_(n), shift_(shift), host_(static_cast<size_t>((n + shift) * bytes_of(type))) {
    std::vector<float> values(static_cast<size_t>(n));
    fill_normal(values.data(), n, RandomKey{77, 1, 2, next_site++}, 0, mean, 1);
    for (int64_t i = 0; i < n; ++i)
      store_float(host_.data(), type, shift + i,
                  coarse ? static_cast<float>(static_cast<int>(2 * values[i])) : values[i]);
    must(cudaMalloc(&device_, host_.size() + 64), "cudaMalloc");
    must(cudaMemcpy(device_, host_.data(), host_.size(), cudaMemcpyHostToDevice), "copy to the device");
  }
  Numbers(const Numbers&) = delete;
  ~Numbers() { cudaFree(device_); }
  char* at(bool gpu, int64_t element = 0) const {
    return (gpu ? static_cast<char*>(device_) : const_cast<char*>(host_.data())) + (shift_ + element) * bytes_of(type_);
  }
  float* floats(bool gpu, int64_t element = 0) const { return reinterpret_cast<float*>(at(gpu, element)); }
  std::vector<char> back() const {
    std::vector<char> values(host_.size());
    must(cudaMemcpy(values.data(), device_, values.size(), cudaMemcpyDeviceToHost), "copy to the host");
    return values;
  }
  bool same(const char* what) const {
    const std::vector<char> values = back();
    const size_t width = static_cast<size_t>(bytes_of(type_));
    for (int64_t i = 0; i < shift_ + n_; ++i) {
      if (std::memcmp(&values[i * width], &host_[i * width], width) == 0) continue;
      const float a = load_float(values.data(), type_, i), b = load_float(host_.data(), type_, i);
      if (a != a && b != b) continue;
      std::printf("  %s differs at %lld of %lld: GPU %.9g, CPU %.9g\n", what, static_cast<long long>(i - shift_),
                  static_cast<long long>(n_), a, b);
      return false;
    }
    return true;
  }

 private:
  FloatType type_;
  int64_t n_;
  int shift_;
  std::vector<char> host_;
  void* device_ = nullptr;
};

const char* name_of(FloatType type) {
  return type == FloatType::kFloat ? "float" : type == FloatType::kBFloat16 ? "bf16" : "fp16";
}

// Shards in one call on the CPU; on the GPU in one call, or in one each.
void norm_twins(const BatchNormShape& shape, bool relu, bool with_add, int shift, bool one_by_one) {
  const int64_t n = shape.shards * shape.rows * shape.channels, table = shape.shards * shape.channels;
  Numbers x(n, shape.type, shift, 3), add(n, shape.type, shift), y(n, shape.type, shift), dy(n, shape.type, shift);
  Numbers dx(n, shape.type, shift), dadd(n, shape.type, shift), weight(shape.channels), bias(shape.channels);
  Numbers mean(table), inv_std(table), means(table), vars(table), weights(table), biases(table);
  Numbers scratch(batch_norm_scratch_floats(shape));
  for (const bool gpu : {false, true}) {
    const BatchNormKernels& kernels = gpu ? cuda::batch_norm_kernels() : BatchNormKernels::cpu();
    BatchNormShape s = shape;
    if (gpu && one_by_one) s.shards = 1;
    for (int shard = 0; shard < shape.shards; shard += s.shards) {
      const int64_t from = shard * s.rows * s.channels, c = shard * s.channels;
      kernels.statistics(s, x.at(gpu, from), 1e-5f, 0.25f, mean.floats(gpu, c), inv_std.floats(gpu, c),
                         means.floats(gpu, c), vars.floats(gpu, c), scratch.floats(gpu), nullptr);
      kernels.forward(s, x.at(gpu, from), with_add ? add.at(gpu, from) : nullptr, mean.floats(gpu, c),
                      inv_std.floats(gpu, c), weight.floats(gpu), bias.floats(gpu), relu, y.at(gpu, from), nullptr);
      const BatchNormKernels::Backward given{dy.at(gpu, from),
                                             x.at(gpu, from),
                                             with_add ? y.at(gpu, from) : nullptr,
                                             mean.floats(gpu, c),
                                             inv_std.floats(gpu, c),
                                             weight.floats(gpu),
                                             bias.floats(gpu),
                                             relu};
      kernels.backward_sums(s, given, weights.floats(gpu, c), biases.floats(gpu, c), scratch.floats(gpu), nullptr);
      kernels.backward(s, given, weights.floats(gpu, c), biases.floats(gpu, c), dx.at(gpu, from),
                       with_add ? dadd.at(gpu, from) : nullptr, nullptr);
    }
  }
  must(cudaDeviceSynchronize(), "batch norm kernels");
  const bool equal = mean.same("mean") & inv_std.same("inv_std") & means.same("mean leaves") & vars.same("var leaves") &
                     y.same("y") & weights.same("weight leaves") & biases.same("bias leaves") & dx.same("dx") &
                     dadd.same("dadd");
  report("batch norm, " + std::to_string(shape.shards) + " shards of " + std::to_string(shape.rows) + " x " +
             std::to_string(shape.channels) + ", inner " + std::to_string(shape.inner) + ", " + name_of(shape.type) +
             (relu ? ", relu" : "") + (with_add ? ", add" : "") + (one_by_one ? ", one by one" : ""),
         equal);
}

void all_norm_twins() {
  struct Size {
    int64_t rows, channels, inner;
  };
  const std::vector<Size> sizes{{70, 5, 1},    {256, 64, 1},     {2 * 49, 24, 49}, {9 * 169, 72, 1},
                                {300, 200, 1}, {3 * 99, 19, 99}, {12'600, 64, 1},  {17'000, 8, 1}};
  for (const FloatType type : {FloatType::kFloat, FloatType::kBFloat16, FloatType::kHalf})
    for (const Size& size : sizes)
      for (const int shards : {1, 3}) {
        const BatchNormShape shape{shards, size.rows, size.channels, size.inner, type};
        norm_twins(shape, true, true, 0, false);
        norm_twins(shape, true, false, 0, shards > 1);
        norm_twins(shape, false, true, 1, false);
      }
}

PoolShape pool_shape(int64_t images, int64_t channels, int size, int kernel, int stride, int pad, bool last,
                     FloatType type) {
  const int out = (size + 2 * pad - kernel) / stride + 1, wide = (size + 3 + 2 * pad - kernel) / stride + 1;
  return {images, channels, size, size + 3,        out, wide, kernel, kernel, stride, stride,
          pad,    pad,      last, kernel % 2 == 0, type};
}

void pool_twins(const PoolShape& s, int shift) {
  const int64_t in = s.images * s.channels * s.in_h * s.in_w, out = s.images * s.channels * s.out_h * s.out_w;
  Numbers x(in, s.type, shift, 0, true), y(out, s.type, shift), mean(out, s.type, shift), dy(out, s.type, shift);
  Numbers dx(in, s.type, shift), dmean(in, s.type, shift), image(s.images * s.channels, s.type, shift);
  Numbers dimage(in, s.type, shift), places((out + 3) / 4 + 1);
  for (const bool gpu : {false, true}) {
    const PoolKernels& kernels = gpu ? cuda::pool_kernels() : PoolKernels::cpu();
    uint8_t* const where = reinterpret_cast<uint8_t*>(places.at(gpu)) + shift;
    kernels.max(s, x.at(gpu), y.at(gpu), where, nullptr);
    kernels.max_gradient(s, dy.at(gpu), where, dx.at(gpu), nullptr);
    kernels.mean(s, x.at(gpu), mean.at(gpu), nullptr);
    kernels.mean_gradient(s, dy.at(gpu), dmean.at(gpu), nullptr);
    kernels.image_mean(s, x.at(gpu), image.at(gpu), nullptr);
    kernels.image_mean_gradient(s, image.at(gpu), dimage.at(gpu), nullptr);
  }
  must(cudaDeviceSynchronize(), "pool kernels");
  const bool equal = y.same("max") & dx.same("max gradient") & mean.same("mean") & dmean.same("mean gradient") &
                     image.same("image mean") & dimage.same("image mean gradient");
  report("pool " + std::to_string(s.channels) + " channels of " + std::to_string(s.in_h) + " x " +
             std::to_string(s.in_w) + ", kernel " + std::to_string(s.kernel_h) + ", " + name_of(s.type) +
             (s.channels_last ? ", channels last" : ", contiguous") + (shift ? ", unaligned" : ""),
         equal);
}

void all_pool_twins() {
  for (const FloatType type : {FloatType::kFloat, FloatType::kBFloat16, FloatType::kHalf})
    for (const bool last : {false, true}) {
      pool_twins(pool_shape(3, 64, 14, 3, 2, 1, last, type), 0);
      pool_twins(pool_shape(3, 64, 14, 3, 2, 1, last, type), 1);
      pool_twins(pool_shape(5, 19, 9, 2, 2, 0, last, type), 0);
      pool_twins(pool_shape(2, 8, 31, 5, 1, 2, last, type), 0);
    }
}

ConvShape conv_shape_of(int64_t images, int64_t channels, int size, int kernel, int stride, int pad, int bytes) {
  const int out = (size + 2 * pad - kernel) / stride + 1;
  return {images, channels, size, size, out, out, kernel, kernel, stride, stride, pad, pad, 1, 1, bytes};
}

void conv_twins(const ConvShape& s, int shift) {
  const FloatType type = s.element_bytes == 2 ? FloatType::kBFloat16 : FloatType::kFloat;
  const int64_t places = s.places(), first = places / 3, count = places - first;
  Numbers x(s.images * s.channels * s.in_h * s.in_w, type, shift), columns(count * s.columns(), type);
  ConvKernels::cpu().columns(s, x.at(false), first, count, columns.at(false), nullptr);
  cuda::conv_kernels().columns(s, x.at(true), first, count, columns.at(true), nullptr);
  constexpr int64_t kPerShard = 3, kCount = 5, kFirst = 2;
  const int64_t n = s.columns() + (shift ? 1 : 0);
  Numbers chunks(kCount * n), leaves(3 * n);
  ConvKernels::cpu().add_chunks(chunks.floats(false), kFirst, kCount, kPerShard, n, leaves.floats(false), nullptr);
  cuda::conv_kernels().add_chunks(chunks.floats(true), kFirst, kCount, kPerShard, n, leaves.floats(true), nullptr);
  must(cudaDeviceSynchronize(), "convolution kernels");
  report("columns of " + std::to_string(s.channels) + " channels, " + std::to_string(s.in_h) + " x " +
             std::to_string(s.in_w) + ", kernel " + std::to_string(s.kernel_h) + ", stride " +
             std::to_string(s.stride_h) + ", " + name_of(type),
         columns.same("columns") & leaves.same("chunk sums"));
}

void all_conv_twins() {
  for (const int bytes : {2, 4}) {
    conv_twins(conv_shape_of(3, 64, 14, 3, 1, 1, bytes), 0);
    conv_twins(conv_shape_of(3, 64, 15, 3, 2, 1, bytes), 0);
    conv_twins(conv_shape_of(2, 64, 14, 1, 2, 0, bytes), 0);
    conv_twins(conv_shape_of(2, 3, 33, 7, 2, 3, bytes), 0);
    conv_twins(conv_shape_of(2, 5, 9, 3, 1, 1, bytes), 1);
  }
}

double microseconds(const std::function<void()>& launch) {
  cudaEvent_t begin, end;
  must(cudaEventCreate(&begin), "event");
  must(cudaEventCreate(&end), "event");
  constexpr int kRuns = 20;
  launch();
  must(cudaEventRecord(begin), "event");
  for (int i = 0; i < kRuns; ++i) launch();
  must(cudaEventRecord(end), "event");
  must(cudaEventSynchronize(end), "running a kernel");
  float ms = 0;
  must(cudaEventElapsedTime(&ms, begin, end), "event");
  return 1e3 * ms / kRuns;
}

void time_of(const std::string& what, double bytes, const std::function<void()>& launch) {
  const double us = microseconds(launch);
  std::printf("%-58s %8.1f us %7.0f GB/s\n", what.c_str(), us, bytes / us / 1e3);
}

// Device memory alone: what is timed needs no numbers of its own.
class Bytes {
 public:
  explicit Bytes(int64_t bytes) {
    must(cudaMalloc(&data_, static_cast<size_t>(bytes)), "cudaMalloc");
    must(cudaMemset(data_, 0x3C, static_cast<size_t>(bytes)), "cudaMemset");
  }
  Bytes(const Bytes&) = delete;
  ~Bytes() { cudaFree(data_); }
  template <typename T = void>
  T* get() const {
    return static_cast<T*>(data_);
  }

 private:
  void* data_ = nullptr;
};

void norm_times(int shards, int64_t places, int64_t channels) {
  const BatchNormShape s{shards, 256 / shards * places, channels, 1, FloatType::kBFloat16};
  const int64_t n = 256 * places * channels, table = 4 * shards * channels;
  const Bytes x(2 * n), y(2 * n), dy(2 * n), dx(2 * n), dadd(2 * n), scratch(4 * batch_norm_scratch_floats(s));
  const Bytes tables(8 * table);
  const auto row = [&](int i) { return tables.get<float>() + i * shards * channels; };
  const BatchNormKernels& kernels = cuda::batch_norm_kernels();
  const std::string at =
      std::to_string(shards) + " shards, 256 x " + std::to_string(places) + " x " + std::to_string(channels) + " bf16";
  const double bytes = 2.0 * static_cast<double>(n);
  time_of("batch norm statistics, " + at, bytes, [&] {
    kernels.statistics(s, x.get(), 1e-5f, 1, row(0), row(1), row(2), row(3), scratch.get<float>(), nullptr);
  });
  time_of("batch norm + relu, " + at, 2 * bytes,
          [&] { kernels.forward(s, x.get(), nullptr, row(0), row(1), row(2), row(3), true, y.get(), nullptr); });
  time_of("batch norm + add + relu, " + at, 3 * bytes,
          [&] { kernels.forward(s, x.get(), dy.get(), row(0), row(1), row(2), row(3), true, y.get(), nullptr); });
  const BatchNormKernels::Backward alone{dy.get(), x.get(), nullptr, row(0), row(1), row(2), row(3), true};
  const BatchNormKernels::Backward added{dy.get(), x.get(), y.get(), row(0), row(1), row(2), row(3), true};
  time_of("gradient sums, relu, " + at, 2 * bytes,
          [&] { kernels.backward_sums(s, alone, row(4), row(5), scratch.get<float>(), nullptr); });
  time_of("gradient, relu, " + at, 3 * bytes,
          [&] { kernels.backward(s, alone, row(4), row(5), dx.get(), nullptr, nullptr); });
  time_of("gradient sums, add + relu, " + at, 3 * bytes,
          [&] { kernels.backward_sums(s, added, row(4), row(5), scratch.get<float>(), nullptr); });
  time_of("gradient, add + relu, " + at, 5 * bytes,
          [&] { kernels.backward(s, added, row(4), row(5), dx.get(), dadd.get(), nullptr); });
}

void pool_times() {
  const PoolShape stem{256, 64, 112, 112, 56, 56, 3, 3, 2, 2, 1, 1, true, true, FloatType::kBFloat16};
  const double in = 2.0 * 256 * 64 * 112 * 112, out = in / 4;
  const Bytes x(static_cast<int64_t>(in)), y(static_cast<int64_t>(out)), places(static_cast<int64_t>(out / 2));
  const PoolKernels& kernels = cuda::pool_kernels();
  time_of("max pool 3 x 3 / 2, 256 x 112 x 112 x 64 bf16", in + 1.5 * out,
          [&] { kernels.max(stem, x.get(), y.get(), places.get<uint8_t>(), nullptr); });
  time_of("its gradient", in + 1.5 * out,
          [&] { kernels.max_gradient(stem, y.get(), places.get<uint8_t>(), x.get(), nullptr); });
  const PoolShape head{256, 2048, 7, 7, 1, 1, 7, 7, 1, 1, 0, 0, true, true, FloatType::kBFloat16};
  time_of("image mean, 256 x 7 x 7 x 2048 bf16", 2.0 * 256 * 49 * 2048,
          [&] { kernels.image_mean(head, x.get(), y.get(), nullptr); });
  time_of("its gradient", 2.0 * 256 * 49 * 2048, [&] { kernels.image_mean_gradient(head, y.get(), x.get(), nullptr); });
}

void conv_times(int64_t images, int64_t channels, int size, int kernel, int stride, int pad) {
  const ConvShape s = conv_shape_of(images, channels, size, kernel, stride, pad, 2);
  const int64_t in = 2 * images * channels * size * size, out = 2 * s.places() * s.columns();
  const Bytes x(in), columns(out);
  time_of("columns, " + std::to_string(images) + " x " + std::to_string(size) + " x " + std::to_string(size) + " x " +
              std::to_string(channels) + ", " + std::to_string(kernel) + " x " + std::to_string(kernel) + " / " +
              std::to_string(stride) + " bf16",
          static_cast<double>(in + out),
          [&] { cuda::conv_kernels().columns(s, x.get(), 0, s.places(), columns.get(), nullptr); });
}

}  // namespace

int main() {
  int gpus = 0;
  if (cudaGetDeviceCount(&gpus) != cudaSuccess || gpus == 0) {
    std::fprintf(stderr, "error: there is no GPU\n");
    return 2;
  }
  all_norm_twins();
  all_pool_twins();
  all_conv_twins();
  std::printf("%s\n", all_equal ? "equal: every kernel and its CPU twin" : "some kernels DIFFER from their CPU twins");
  for (const int shards : {1, 8}) {
    norm_times(shards, 112 * 112, 64);
    norm_times(shards, 56 * 56, 256);
    norm_times(shards, 14 * 14, 1024);
    norm_times(shards, 7 * 7, 2048);
  }
  pool_times();
  conv_times(32, 64, 56, 3, 1, 1);
  conv_times(128, 256, 14, 3, 1, 1);
  conv_times(256, 512, 7, 3, 1, 1);
  conv_times(128, 128, 56, 3, 2, 1);
  conv_times(64, 3, 224, 7, 2, 3);
  std::printf("%s\n", all_equal ? "ok" : "NOT ok");
  return all_equal ? 0 : 1;
}
