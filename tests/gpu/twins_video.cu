// tests/gpu/twins_video.cu -- the kernels of video models beside their CPU twins: clips, norm + ReLU + pool, the first
// block.
//
// Bit for bit, over sizes, types and shards; and shards in one call beside one call per shard. Then microseconds, GB/s
// (of the bytes a perfect kernel moves) and Gmad/s (of the multiply-adds) at the shapes of the model on 17 frames of
// 256 x 256. Prints "ok" last. Exit 1 if something differs, 2 if there is no GPU. Builds alone, on a bare machine:
//   nvcc -std=c++20 -O3 -arch=native --fmad=false -Isrc -Xcompiler
//   -ffp-contract=off,-fno-math-errno,-Wno-unknown-pragmas
//     -o twins_video tests/gpu/twins_video.cu src/kernels/gpu/{batch_norm,clip,first_block,norm_pool}_kernels.cu
//     src/kernels/cpu/{batch_norm,clip,first_block,norm_pool}_kernels.cc src/kernels/cpu/random_fill.cc
#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "kernels/batch_norm_kernels.h"
#include "kernels/clip_kernels.h"
#include "kernels/cpu/random_fill.h"
#include "kernels/first_block_kernels.h"
#include "kernels/norm_pool_kernels.h"

namespace {

using namespace tandem;

void must(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "error: %s: %s, %s\n", what, cudaGetErrorName(error), cudaGetErrorString(error));
  std::exit(2);
}

bool all_equal = true;
uint32_t next_site = 0;

// The same bytes in host and device memory; other ones on each side where nothing is given.
class Both {
 public:
  explicit Both(int64_t bytes) : host_(static_cast<size_t>(bytes), 0x11) {
    must(cudaMalloc(&device_, static_cast<size_t>(bytes) + 64), "cudaMalloc");
    must(cudaMemset(device_, 0x22, static_cast<size_t>(bytes)), "cudaMemset");
  }
  template <typename T>
  explicit Both(const std::vector<T>& values) : Both(static_cast<int64_t>(values.size() * sizeof(T))) {
    std::memcpy(host_.data(), values.data(), host_.size());
    must(cudaMemcpy(device_, host_.data(), host_.size(), cudaMemcpyHostToDevice), "copy to the device");
  }
  Both(const Both&) = delete;
  ~Both() { cudaFree(device_); }
  template <typename T = void>
  T* at(bool gpu, int64_t byte = 0) const {
    return reinterpret_cast<T*>((gpu ? static_cast<char*>(device_) : const_cast<char*>(host_.data())) + byte);
  }
  bool same(const char* what) const {
    std::vector<char> values(host_.size());
    must(cudaMemcpy(values.data(), device_, values.size(), cudaMemcpyDeviceToHost), "copy to the host");
    for (size_t i = 0; i < values.size(); ++i)
      if (values[i] != host_[i]) {
        std::printf("  %s differs at byte %zu of %zu\n", what, i, values.size());
        return false;
      }
    return true;
  }

 private:
  std::vector<char> host_;
  void* device_ = nullptr;
};

std::vector<float> video_numbers(int64_t n, FloatType type = FloatType::kFloat) {
  std::vector<float> values(static_cast<size_t>(n)), stored(values.size());
  fill_normal(values.data(), n, RandomKey{.seed = 21, .site = next_site++}, 0, 0.4f, 0.5f);
  for (int64_t i = 0; i < n; ++i) store_float(stored.data(), type, i, values[static_cast<size_t>(i)]);
  stored.resize(static_cast<size_t>((n * bytes_of(type) + 3) / 4));
  return stored;
}

void report(const std::string& what, bool equal) {
  std::printf("%s %s\n", equal ? "equal  " : "DIFFERS", what.c_str());
  all_equal = all_equal && equal;
}
const char* name_of(FloatType type) {
  return type == FloatType::kFloat ? "float" : type == FloatType::kBFloat16 ? "bf16" : "fp16";
}

void clip_twins(int64_t rows, int length, int stride, int height, int width, FloatType type, bool augments) {
  constexpr int64_t kFrames = 60;
  std::vector<uint8_t> pixels(static_cast<size_t>(kFrames * height * width));
  for (size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<uint8_t>(random_u32(RandomKey{.seed = 1}, i));
  std::vector<int64_t> first;
  std::vector<RandomKey> keys;
  for (int64_t row = 0; row < rows; ++row) {
    // The second one leaves the frames: NaN, whose bits are no promise in fewer bits.
    first.push_back(row == 1 && type == FloatType::kFloat ? kFrames - 1 : 2 * row);
    keys.push_back({.seed = 3, .step = static_cast<uint64_t>(row), .shard = 4, .site = 5});
  }
  const Both frames(pixels), starts(first), streams(keys);
  const Both out(rows * length * height * width * bytes_of(type));
  for (const bool gpu : {false, true}) {
    const ClipCall call{.frames = frames.at<uint8_t>(gpu),
                        .frame_count = kFrames,
                        .first_frame = starts.at<int64_t>(gpu),
                        .rows = rows,
                        .length = length,
                        .stride = stride,
                        .height = height,
                        .width = width,
                        .augment = {.flip = 0.5f},
                        .keys = augments ? streams.at<RandomKey>(gpu) : nullptr,
                        .out = {out.at(gpu), type}};
    (gpu ? cuda::clip_kernels() : ClipKernels::cpu()).make(call, nullptr);
  }
  must(cudaDeviceSynchronize(), "clips");
  report("clips of " + std::to_string(length) + " x " + std::to_string(height) + " x " + std::to_string(width) + ", " +
             name_of(type) + (augments ? ", augmented" : ""),
         out.same("clips"));
}

// On the GPU all shards in one call, or one call each.
void norm_pool_twins(const NormPoolShape& shape, bool one_by_one) {
  const int64_t width = bytes_of(shape.type), in = shape.clips * shape.clip_in() * shape.channels,
                places = shape.clips * shape.clip_out(), out = places * shape.channels;
  const int64_t shards = shape.shards, table = shards * shape.channels * 4;
  const Both x(video_numbers(shards * in, shape.type)), dy(video_numbers(shards * out, shape.type));
  const Both weight(video_numbers(shape.channels)), bias(video_numbers(shape.channels));
  const Both mean(table), inv_std(table), weights(table), biases(table), y(shards * out * width),
      dx(shards * in * width);
  const Both codes(shards * places * shape.code_words() * 4);
  const Both scratch(4 * batch_norm_scratch_floats(shape.inputs()));
  for (const bool gpu : {false, true}) {
    const BatchNormKernels& norms = gpu ? cuda::batch_norm_kernels() : BatchNormKernels::cpu();
    const NormPoolKernels& kernels = gpu ? cuda::norm_pool_kernels() : NormPoolKernels::cpu();
    NormPoolShape s = shape;
    if (gpu && one_by_one) s.shards = 1;
    for (int64_t shard = 0; shard < shards; shard += s.shards) {
      const int64_t c = shard * s.channels * 4;
      const NormPoolKernels::Given given{x.at(gpu, shard * in * width), mean.at<float>(gpu, c),
                                         inv_std.at<float>(gpu, c), weight.at<float>(gpu), bias.at<float>(gpu)};
      uint32_t* const code = codes.at<uint32_t>(gpu, shard * places * s.code_words() * 4);
      norms.statistics(s.inputs(), given.x, 1e-5f, 1, mean.at<float>(gpu, c), inv_std.at<float>(gpu, c), nullptr,
                       nullptr, scratch.at<float>(gpu), nullptr);
      kernels.forward(s, given, y.at(gpu, shard * out * width), code, nullptr);
      kernels.backward_sums(s, given, dy.at(gpu, shard * out * width), code, weights.at<float>(gpu, c),
                            biases.at<float>(gpu, c), scratch.at<float>(gpu), nullptr);
      kernels.backward(s, given, dy.at(gpu, shard * out * width), code, weights.at<float>(gpu, c),
                       biases.at<float>(gpu, c), dx.at(gpu, shard * in * width), nullptr);
    }
  }
  must(cudaDeviceSynchronize(), "norm + ReLU + pool");
  report(
      "norm + ReLU + pool, " + std::to_string(shards) + " shards, " + std::to_string(shape.channels) + " channels, " +
          name_of(shape.type) + (one_by_one ? ", one by one" : ""),
      y.same("y") & codes.same("codes") & weights.same("weight leaves") & biases.same("bias leaves") & dx.same("dx"));
}

void first_block_twins(const FirstBlockShape& shape, bool one_by_one) {
  const int64_t width = bytes_of(shape.type), places = shape.clips * shape.clip_out(), out = places * shape.channels;
  const int64_t shards = shape.shards, channels = shape.channels, table = shards * channels * 4;
  const Both x(video_numbers(shards * shape.places(), shape.type)), dy(video_numbers(shards * out, shape.type));
  const Both weight(video_numbers(channels * kTaps)), scale(video_numbers(channels)), shift(video_numbers(channels));
  const Both mean(table), inv_std(table), means(table), vars(table), weights(table * kTaps), scales(table),
      shifts(table);
  const Both sums(shards * kTapSums * 8), gradients(table * 2 * (kTaps + 1)), scratch(8 * first_block_scratch(shape));
  const Both y(shards * out * width), codes(shards * places * shape.code_words() * 4);
  for (const bool gpu : {false, true}) {
    const FirstBlockKernels& kernels = gpu ? cuda::first_block_kernels() : FirstBlockKernels::cpu();
    FirstBlockShape s = shape;
    if (gpu && one_by_one) s.shards = 1;
    for (int64_t shard = 0; shard < shards; shard += s.shards) {
      const int64_t c = shard * channels * 4;
      const void* const from = x.at(gpu, shard * s.places() * width);
      double* const own = sums.at<double>(gpu, shard * kTapSums * 8);
      double* const gradient = gradients.at<double>(gpu, c * 2 * (kTaps + 1));
      uint32_t* const code = codes.at<uint32_t>(gpu, shard * places * s.code_words() * 4);
      kernels.tap_sums(s, from, own, scratch.at<double>(gpu), nullptr);
      kernels.statistics(s, own, weight.at<float>(gpu), 1e-5f, 0.5f, mean.at<float>(gpu, c), inv_std.at<float>(gpu, c),
                         means.at<float>(gpu, c), vars.at<float>(gpu, c), nullptr);
      const FirstBlockKernels::Norm norm{weight.at<float>(gpu), mean.at<float>(gpu, c), inv_std.at<float>(gpu, c),
                                         scale.at<float>(gpu), shift.at<float>(gpu)};
      kernels.forward(s, from, norm, y.at(gpu, shard * out * width), code, nullptr);
      kernels.gradient_sums(s, from, dy.at(gpu, shard * out * width), code, gradient, scratch.at<double>(gpu), nullptr);
      kernels.leaves(s, own, gradient, norm, weights.at<float>(gpu, c * kTaps), scales.at<float>(gpu, c),
                     shifts.at<float>(gpu, c), nullptr);
    }
  }
  must(cudaDeviceSynchronize(), "first block");
  report("first block, " + std::to_string(shards) + " shards, " + std::to_string(channels) + " channels, " +
             std::to_string(shape.time) + " x " + std::to_string(shape.height) + " x " + std::to_string(shape.width) +
             ", " + name_of(shape.type) + (one_by_one ? ", one by one" : ""),
         sums.same("sums of taps") & mean.same("mean") & inv_std.same("inv_std") & means.same("mean leaves") &
             vars.same("variance leaves") & y.same("y") & codes.same("codes") & gradients.same("gradient sums") &
             weights.same("weight leaves") & scales.same("scale leaves") & shifts.same("shift leaves"));
}

void all_twins() {
  for (const FloatType type : {FloatType::kFloat, FloatType::kBFloat16, FloatType::kHalf}) {
    clip_twins(3, 17, 1, 64, 64, type, true);
    clip_twins(3, 5, 2, 19, 23, type, true);
    clip_twins(3, 17, 1, 64, 64, type, false);
    for (const bool one_by_one : {false, true}) {
      norm_pool_twins({3, 2, 64, {5, 32, 32}, {2, 2, 2}, type}, one_by_one);
      norm_pool_twins({2, 2, 19, {3, 9, 11}, {1, 2, 2}, type}, one_by_one);
      norm_pool_twins({2, 1, 256, {2, 17, 16}, {2, 2, 2}, type}, one_by_one);
      first_block_twins({2, 2, 32, 17, 64, 64, type}, one_by_one);
      first_block_twins({3, 1, 16, 2, 31, 150, type}, one_by_one);
      first_block_twins({1, 1, 64, 3, 2, 5, type}, one_by_one);
    }
  }
}

// Device memory alone: random bits as bf16 are finite where the exponent is kept small.
class Timed {
 public:
  explicit Timed(int64_t bytes) {
    std::vector<uint32_t> words(static_cast<size_t>(bytes / 4 + 1));
    for (size_t i = 0; i < words.size(); ++i)
      words[i] = 0x3E803E80u + (static_cast<uint32_t>(i * 2654435761u) & 0x007F007Fu);
    must(cudaMalloc(&data_, words.size() * 4), "cudaMalloc");
    must(cudaMemcpy(data_, words.data(), words.size() * 4, cudaMemcpyHostToDevice), "copy to the device");
  }
  Timed(const Timed&) = delete;
  ~Timed() { cudaFree(data_); }
  template <typename T = void>
  T* get() const {
    return static_cast<T*>(data_);
  }

 private:
  void* data_ = nullptr;
};

void time_of(const char* what, double clips, double bytes, double multiply_adds, const std::function<void()>& launch) {
  cudaEvent_t begin, end;
  must(cudaEventCreate(&begin), "event");
  must(cudaEventCreate(&end), "event");
  constexpr int kRuns = 10;
  launch();
  must(cudaEventRecord(begin), "event");
  for (int i = 0; i < kRuns; ++i) launch();
  must(cudaEventRecord(end), "event");
  must(cudaEventSynchronize(end), "running a kernel");
  float ms = 0;
  must(cudaEventElapsedTime(&ms, begin, end), "event");
  const double us = 1e3 * ms / kRuns;
  std::printf("%-40s %8.1f us a clip %7.0f GB/s %8.0f Gmad/s\n", what, us / clips, bytes / us / 1e3,
              multiply_adds / us / 1e3);
}

void first_block_times(int shards, int64_t clips) {
  const FirstBlockShape s{shards, clips, 32, 17, 256, 256, FloatType::kBFloat16};
  const double all = static_cast<double>(shards * clips), in = all * 17 * 256 * 256, out = in / 4;
  const Timed x(static_cast<int64_t>(2 * in)), y(static_cast<int64_t>(2 * out * 32)),
      codes(static_cast<int64_t>(16 * out));
  const Timed tables(64 << 20), scratch(8 * first_block_scratch(s)), sums(int64_t{8} * shards * kTapSums);
  const Timed gradients(int64_t{8} * shards * 32 * (kTaps + 1));
  const auto table = [&](int i) { return tables.get<float>() + i * 65'536; };
  const FirstBlockKernels& kernels = cuda::first_block_kernels();
  const FirstBlockKernels::Norm norm{table(0), table(1), table(2), table(3), table(4)};
  std::printf("first block, %d shards of %lld clips, 17 x 256 x 256, 32 channels, bf16\n", shards,
              static_cast<long long>(clips));
  time_of("  sums of taps", all, 2 * in, 63 * in,
          [&] { kernels.tap_sums(s, x.get(), sums.get<double>(), scratch.get<double>(), nullptr); });
  time_of("  statistics", all, 0, 0, [&] {
    kernels.statistics(s, sums.get<double>(), table(0), 1e-5f, 1, table(5), table(6), table(7), table(8), nullptr);
  });
  time_of("  forward", all, 2 * in + 80 * out, 27 * 32 * in,
          [&] { kernels.forward(s, x.get(), norm, y.get(), codes.get<uint32_t>(), nullptr); });
  time_of("  gradient sums", all, 2 * in + 80 * out, 27 * 32 * out, [&] {
    kernels.gradient_sums(s, x.get(), y.get(), codes.get<uint32_t>(), gradients.get<double>(), scratch.get<double>(),
                          nullptr);
  });
  time_of("  leaves", all, 0, 0, [&] {
    kernels.leaves(s, sums.get<double>(), gradients.get<double>(), norm, table(9), table(10), table(11), nullptr);
  });
}

void norm_pool_times(int64_t channels, int time, int size) {
  const NormPoolShape s{8, 8, channels, {time, size, size}, {2, 2, 2}, FloatType::kBFloat16};
  const double in = 2.0 * 64 * static_cast<double>(s.clip_in() * channels),
               out = 2.0 * 64 * static_cast<double>(s.clip_out() * channels);
  const Timed x(static_cast<int64_t>(in)), dx(static_cast<int64_t>(in)), y(static_cast<int64_t>(out)),
      codes(static_cast<int64_t>(out));
  const Timed tables(1 << 20), scratch(4 * batch_norm_scratch_floats(s.inputs()));
  const auto table = [&](int i) { return tables.get<float>() + i * 8 * channels; };
  const NormPoolKernels::Given given{x.get(), table(0), table(1), table(2), table(3)};
  const NormPoolKernels& kernels = cuda::norm_pool_kernels();
  std::printf("norm + ReLU + pool, 64 clips of %d x %d x %d, %lld channels, bf16\n", time, size, size,
              static_cast<long long>(channels));
  time_of("  forward", 64, in + 1.25 * out, 0,
          [&] { kernels.forward(s, given, y.get(), codes.get<uint32_t>(), nullptr); });
  time_of("  gradient sums", 64, in + 1.25 * out, 0, [&] {
    kernels.backward_sums(s, given, y.get(), codes.get<uint32_t>(), table(4), table(5), scratch.get<float>(), nullptr);
  });
  time_of("  gradient", 64, 2 * in + 1.25 * out, 0,
          [&] { kernels.backward(s, given, y.get(), codes.get<uint32_t>(), table(4), table(5), dx.get(), nullptr); });
}

void clip_times() {
  constexpr int64_t kFrames = 4096, kRows = 128, kPixels = 256 * 256;
  const Timed frames(kFrames * kPixels), out(kRows * 17 * kPixels * 2);
  std::vector<int64_t> first;
  std::vector<RandomKey> keys;
  for (int64_t row = 0; row < kRows; ++row)
    first.push_back(row * 31 % (kFrames - 17)), keys.push_back({.seed = 2, .step = static_cast<uint64_t>(row)});
  const Both starts(first), streams(keys);
  for (const bool augments : {false, true}) {
    const ClipCall call{.frames = frames.get<uint8_t>(),
                        .frame_count = kFrames,
                        .first_frame = starts.at<int64_t>(true),
                        .rows = kRows,
                        .length = 17,
                        .height = 256,
                        .width = 256,
                        .keys = augments ? streams.at<RandomKey>(true) : nullptr,
                        .out = {out.get(), FloatType::kBFloat16}};
    time_of(augments ? "128 clips of 17 x 256 x 256, augmented" : "128 clips of 17 x 256 x 256", 128,
            128.0 * 17 * kPixels * 3, 0, [&] { cuda::clip_kernels().make(call, nullptr); });
  }
}

}  // namespace

int main() {
  int gpus = 0;
  if (cudaGetDeviceCount(&gpus) != cudaSuccess || gpus == 0) {
    std::fprintf(stderr, "error: there is no GPU\n");
    return 2;
  }
  all_twins();
  clip_times();
  first_block_times(1, 64);
  first_block_times(8, 8);
  norm_pool_times(64, 17, 128);
  norm_pool_times(128, 8, 64);
  norm_pool_times(256, 4, 32);
  std::printf("%s\n", all_equal ? "ok" : "NOT ok");
  return all_equal ? 0 : 1;
}
