// tests/gpu/twins_linear.cu -- linear layers on a GPU: kernels beside their CPU twins, GEMMs of some shards beside all.
//
// One line per check, "ok" or what differs; then microseconds and GB/s or TFLOP/s at the shapes of GPT-2 small (32
// sequences of 1,024 tokens) and of ResNet-50's last layer (256 images), in 8 shards and in one; then the algorithms
// chosen. Exit 1 if anything differs, 2 without a GPU.
#include <cuda_runtime.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "base/errors.h"
#include "kernels/cpu/random_fill.h"
#include "kernels/gpu/kernels.h"
#include "kernels/gpu/launch.h"
#include "kernels/gpu/linear_cublaslt.h"
#include "kernels/gpu/typed_vectors.h"
#include "kernels/linear_kernels.h"
#include "kernels/tree_kernels.h"

namespace {

using namespace tandem;

constexpr FloatType kTypes[] = {FloatType::kFloat, FloatType::kBFloat16, FloatType::kHalf};
const char* name_of(FloatType type) {
  return type == FloatType::kFloat ? "fp32" : type == FloatType::kBFloat16 ? "bf16" : "fp16";
}

void check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "error: %s: %s, %s\n", what, cudaGetErrorName(error), cudaGetErrorString(error));
  std::exit(2);
}

bool all_equal = true;
void report(const std::string& what, bool equal) {
  std::printf("%-78s %s\n", what.c_str(), equal ? "ok" : "DIFFERS");
  std::fflush(stdout);
  all_equal = all_equal && equal;
}

class DeviceBytes {
 public:
  explicit DeviceBytes(int64_t bytes) { check(cudaMalloc(&data_, static_cast<size_t>(bytes + 64)), "cudaMalloc"); }
  DeviceBytes(const DeviceBytes&) = delete;
  ~DeviceBytes() { cudaFree(data_); }
  char* at(int64_t byte = 0) const { return static_cast<char*>(data_) + byte; }

 private:
  void* data_ = nullptr;
};

double microseconds(const std::function<void()>& launch) {
  cudaEvent_t begin, end;
  check(cudaEventCreate(&begin), "event");
  check(cudaEventCreate(&end), "event");
  constexpr int kRuns = 20;
  for (int i = 0; i < 3; ++i) launch();
  check(cudaEventRecord(begin), "event");
  for (int i = 0; i < kRuns; ++i) launch();
  check(cudaEventRecord(end), "event");
  check(cudaEventSynchronize(end), "running kernels");
  float ms = 0;
  check(cudaEventElapsedTime(&ms, begin, end), "event");
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  return ms * 1000 / kRuns;
}

// Numbers of a type on both sides, `shift` elements after an aligned address.
struct Both {
  Both(FloatType of, int64_t n, uint32_t site, int at_element = 0, float deviation = 2)
      : type(of),
        count(n),
        shift(at_element),
        host(static_cast<size_t>((n + shift) * bytes_of(of))),
        memory((n + shift) * bytes_of(of)) {
    std::vector<float> values(static_cast<size_t>(n));
    fill_normal(values.data(), n, RandomKey{7, 1, 2, site}, 0, 0, deviation);
    for (int64_t i = 0; i < n; ++i) {
      float x = values[static_cast<size_t>(i)];
      if (i % 97 == 5) x *= 30;
      if (i % 31 == 7) x = i % 2 ? 0.0f : -0.0f;
      store_float(host.data(), type, shift + i, x);
    }
    check(cudaMemcpy(memory.at(), host.data(), host.size(), cudaMemcpyHostToDevice), "copy to the device");
  }
  char* cpu() { return host.data() + shift * bytes_of(type); }
  char* gpu() { return memory.at(shift * bytes_of(type)); }
  bool equal() {
    std::vector<char> back(host.size());
    check(cudaMemcpy(back.data(), memory.at(), back.size(), cudaMemcpyDeviceToHost), "copy to the host");
    for (int64_t i = 0; i < shift + count; ++i) {
      const char *a = back.data() + i * bytes_of(type), *b = host.data() + i * bytes_of(type);
      if (std::memcmp(a, b, static_cast<size_t>(bytes_of(type))) == 0) continue;
      std::printf("  element %lld of %lld: GPU %.9g, CPU %.9g\n", static_cast<long long>(i - shift),
                  static_cast<long long>(count), load_float(back.data(), type, i), load_float(host.data(), type, i));
      return false;
    }
    return true;
  }
  FloatType type;
  int64_t count;
  int shift;
  std::vector<char> host;
  DeviceBytes memory;
};

// Merges of a binary tree over `shards` leaves.
void add_merges(int first, int last, std::vector<int>& merges) {
  if (last - first == 1) return merges.push_back(0);
  add_merges(first, (first + last + 1) / 2, merges);
  add_merges((first + last + 1) / 2, last, merges);
  ++merges.back();
}

void tree_twins() {
  for (const int shards : {1, 2, 3, 5, 8, 24, 63, 100, 1000})
    for (const int64_t n : {int64_t{1}, int64_t{7}, int64_t{4096}, int64_t{70'001}}) {
      if (shards > 100 && n > 5000) continue;
      std::vector<int> merges;
      add_merges(0, shards, merges);
      bool equal = true;
      for (const int odd : {0, 1, 3})
        for (const bool add : {false, true}) {
          const int64_t stride = (n + 3) / 4 * 4 + (odd == 3 ? 1 : 0);
          Both leaves(FloatType::kFloat, shards * stride, 1, odd == 1 ? 1 : 0), out(FloatType::kFloat, n, 2);
          TreeKernels::cpu().tree_sum(reinterpret_cast<float*>(leaves.cpu()), stride, shards, merges.data(),
                                      reinterpret_cast<float*>(out.cpu()), n, add, nullptr);
          cuda::tree_sum(reinterpret_cast<float*>(leaves.gpu()), stride, shards, merges.data(),
                         reinterpret_cast<float*>(out.gpu()), n, add, nullptr);
          equal = equal && out.equal() && leaves.equal();
        }
      report("tree_sum, " + std::to_string(shards) + " shards of " + std::to_string(n), equal);
    }
  for (const int shards : {1, 3, 8})
    for (const int64_t rows : {int64_t{1}, int64_t{1000}, int64_t{4096}, int64_t{5001}}) {
      Both x(FloatType::kFloat, shards * rows, 3), weight(FloatType::kFloat, shards * rows, 4),
          sums(FloatType::kFloat, 2 * shards, 5);
      auto* const host = reinterpret_cast<float*>(sums.cpu());
      auto* const device = reinterpret_cast<float*>(sums.gpu());
      const auto* const w = reinterpret_cast<float*>(weight.cpu());
      const auto* const device_w = reinterpret_cast<float*>(weight.gpu());
      TreeKernels::cpu().shard_sums(reinterpret_cast<float*>(x.cpu()), w, shards, rows, host, nullptr);
      TreeKernels::cpu().shard_sums(reinterpret_cast<float*>(x.cpu()), nullptr, shards, rows, host + shards, nullptr);
      cuda::shard_sums(reinterpret_cast<float*>(x.gpu()), device_w, shards, rows, device, nullptr);
      cuda::shard_sums(reinterpret_cast<float*>(x.gpu()), nullptr, shards, rows, device + shards, nullptr);
      report("shard_sums, " + std::to_string(shards) + " shards of " + std::to_string(rows), sums.equal());
    }
}

void row_twins() {
  const LinearKernels& cpu = LinearKernels::cpu();
  for (const FloatType type : kTypes)
    for (const GeluForm form : {GeluForm::kTanh, GeluForm::kErf})
      for (const auto& [shards, rows, columns, shift] : {std::tuple{1, 1, 1, 0},
                                                         {2, 5, 37, 0},
                                                         {3, 64, 256, 0},
                                                         {3, 65, 264, 0},
                                                         {5, 200, 1000, 0},
                                                         {2, 70, 512, 1},
                                                         {1, 17'000, 40, 0},
                                                         {8, 1, 777, 3}}) {
        const int64_t n = int64_t{shards} * rows * columns;
        Both dy(type, n, 10, shift), z(type, n, 11, shift), y(type, n, 12, shift), dz(type, n, 13, shift);
        Both sums(FloatType::kFloat, 2 * shards * columns, 14);
        Both scratch(FloatType::kFloat, column_scratch_floats(shards, rows, columns), 15);
        auto* const host = reinterpret_cast<float*>(sums.cpu());
        auto* const device = reinterpret_cast<float*>(sums.gpu());
        auto* const space = reinterpret_cast<float*>(scratch.gpu());
        cpu.gelu(z.cpu(), y.cpu(), n, type, form, nullptr);
        cuda::gelu(z.gpu(), y.gpu(), n, type, form, nullptr);
        cpu.gelu_gradient(dy.cpu(), z.cpu(), dz.cpu(), shards, rows, columns, type, form, host, nullptr, nullptr);
        cuda::gelu_gradient(dy.gpu(), z.gpu(), dz.gpu(), shards, rows, columns, type, form, device, space, nullptr);
        cpu.column_sums(dy.cpu(), shards, rows, columns, type, host + shards * columns, nullptr, nullptr);
        cuda::column_sums(dy.gpu(), shards, rows, columns, type, device + shards * columns, space, nullptr);
        const bool gelu_equal = y.equal(), gradient_equal = dz.equal(), sums_equal = sums.equal();
        report(std::string("gelu ") + (form == GeluForm::kTanh ? "tanh " : "erf ") + name_of(type) +
                   ", gradient, sums: " + std::to_string(shards) + " x " + std::to_string(rows) + " x " +
                   std::to_string(columns) + " from element " + std::to_string(shift),
               gelu_equal && gradient_equal && sums_equal);
      }
}

__global__ void convert(const float* from, void* to, FloatType type, int64_t n) {
  for (int64_t i = cuda::first_item(); i < n; i += cuda::item_stride()) cuda::store_one(to, type, i, from[i]);
}
__global__ void count_differences(const uint32_t* a, const uint32_t* b, int64_t words, unsigned long long* found) {
  for (int64_t i = cuda::first_item(); i < words; i += cuda::item_stride())
    if (a[i] != b[i]) atomicAdd(found, 1ull);
}

// Normal numbers on the device.
std::unique_ptr<DeviceBytes> device_numbers(FloatType type, int64_t n, uint32_t site) {
  auto numbers = std::make_unique<DeviceBytes>(n * bytes_of(type));
  const DeviceBytes floats(n * 4);
  cuda::fill_normal(reinterpret_cast<float*>(floats.at()), n, RandomKey{7, 1, 2, site}, 0, 0, 1, nullptr);
  convert<<<4096, 256>>>(reinterpret_cast<float*>(floats.at()), numbers->at(), type, n);
  check(cudaDeviceSynchronize(), "making numbers");
  return numbers;
}

unsigned long long differences(const char* a, const char* b, int64_t bytes) {
  unsigned long long* found = nullptr;
  check(cudaMallocManaged(&found, sizeof *found), "cudaMallocManaged");
  *found = 0;
  count_differences<<<4096, 256>>>(reinterpret_cast<const uint32_t*>(a), reinterpret_cast<const uint32_t*>(b),
                                   bytes / 4, found);
  check(cudaDeviceSynchronize(), "comparing");
  const unsigned long long count = *found;
  cudaFree(found);
  return count;
}

struct Layer {
  const char* name;
  int64_t job_rows, in, out;
  FloatType type = FloatType::kBFloat16;
  bool tf32 = false, bias = true;
};

// One layer's GEMMs: all 8 shards at once beside 1, 2, 3 and 5 of them, and some numbers beside sums in double.
class LayerGemms {
 public:
  LayerGemms(const Layer& layer, int shards)
      : layer_(layer),
        shards_(shards),
        x_(device_numbers(layer.type, layer.job_rows * layer.in, 20)),
        dy_(device_numbers(layer.type, layer.job_rows * layer.out, 21)),
        w_(device_numbers(layer.type, layer.in * layer.out, 22)),
        bias_(device_numbers(layer.type, layer.out, 23)),
        workspace_(kGemmWorkspaceBytes) {}

  LinearGemmShape shape(GemmKind kind) const {
    return {kind,        layer_.job_rows / shards_,
            shards_,     layer_.in,
            layer_.out,  layer_.type,
            layer_.tf32, kind == GemmKind::kForward && layer_.bias};
  }
  int64_t shard_bytes_out(GemmKind kind) const {
    if (kind == GemmKind::kWeightLeaves) return layer_.in * layer_.out * 4;
    return layer_.job_rows / shards_ * (kind == GemmKind::kForward ? layer_.out : layer_.in) * bytes_of(layer_.type);
  }
  void run(GemmKind kind, int first, int count, char* out, cudaStream_t stream = nullptr) const {
    GemmCall call;
    call.shape = shape(kind);
    call.shards = count;
    const int64_t rows = first * (layer_.job_rows / shards_) * bytes_of(layer_.type);
    call.x = x_->at(rows * layer_.in);
    call.dy = dy_->at(rows * layer_.out);
    call.w = w_->at();
    call.bias = layer_.bias ? bias_->at() : nullptr;
    call.out = out;
    call.workspace = workspace_.at();
    cuda::gemm_kernels().run(call, stream);
  }

  void compare(GemmKind kind) const {
    const int64_t bytes = shard_bytes_out(kind);
    const DeviceBytes all(bytes * shards_), some(bytes * shards_);
    run(kind, 0, shards_, all.at());
    unsigned long long differ = 0;
    for (const int group : {1, 2, 3, 5}) {
      if (group > shards_) continue;
      check(cudaMemset(some.at(), 0xFF, static_cast<size_t>(bytes * shards_)), "cudaMemset");
      for (int first = 0; first < shards_; first += group)
        run(kind, first, std::min(group, shards_ - first), some.at(first * bytes));
      differ += differences(all.at(), some.at(), bytes * shards_);
    }
    const double error = largest_error(kind, all);
    const double bound = layer_.type == FloatType::kFloat && !layer_.tf32 ? 1e-5 : 1e-2;
    report(std::string(layer_.name) + " " + shape(kind).text() +
               (differ ? ", " + std::to_string(differ) + " words differ" : std::string()) +
               (error < bound ? std::string() : ", error " + std::to_string(error)),
           differ == 0 && error < bound);
  }

  // Of some numbers against sums in double, relative to the root of the sum's length.
  double largest_error(GemmKind kind, const DeviceBytes& out) const {
    const int64_t shard_rows = layer_.job_rows / shards_, size = bytes_of(layer_.type);
    const int64_t rows = kind == GemmKind::kWeightLeaves ? layer_.out : layer_.job_rows;
    const int64_t columns = kind == GemmKind::kForward ? layer_.out : layer_.in;
    const auto one = [&](const char* from, int64_t index, FloatType type) {
      char bytes[4];
      check(
          cudaMemcpy(bytes, from + index * bytes_of(type), static_cast<size_t>(bytes_of(type)), cudaMemcpyDeviceToHost),
          "copy to the host");
      return static_cast<double>(load_float(bytes, type, 0));
    };
    const auto line = [&](const char* from, int64_t first, int64_t stride, int64_t count) {
      std::vector<char> bytes(static_cast<size_t>(count * size));
      check(
          cudaMemcpy2D(bytes.data(), static_cast<size_t>(size), from + first * size, static_cast<size_t>(stride * size),
                       static_cast<size_t>(size), static_cast<size_t>(count), cudaMemcpyDeviceToHost),
          "copy to the host");
      std::vector<double> values;
      for (int64_t i = 0; i < count; ++i) values.push_back(load_float(bytes.data(), layer_.type, i));
      return values;
    };
    double worst = 0;
    for (int sample = 0; sample < 24; ++sample) {
      const int64_t row = (sample * 7919) % rows, column = (sample * 104'729) % columns, shard = sample % shards_;
      std::vector<double> a, b;
      double expected = 0, found = 0;
      if (kind == GemmKind::kForward) {
        a = line(x_->at(), row * layer_.in, 1, layer_.in), b = line(w_->at(), column * layer_.in, 1, layer_.in);
        if (layer_.bias) expected = one(bias_->at(), column, layer_.type);
        found = one(out.at(), row * columns + column, layer_.type);
      } else if (kind == GemmKind::kInputGradient) {
        a = line(dy_->at(), row * layer_.out, 1, layer_.out), b = line(w_->at(), column, layer_.in, layer_.out);
        found = one(out.at(), row * columns + column, layer_.type);
      } else {
        a = line(dy_->at(), shard * shard_rows * layer_.out + row, layer_.out, shard_rows);
        b = line(x_->at(), shard * shard_rows * layer_.in + column, layer_.in, shard_rows);
        found = one(out.at(), (shard * layer_.out + row) * layer_.in + column, FloatType::kFloat);
      }
      for (size_t i = 0; i < a.size(); ++i) expected += a[i] * b[i];
      worst = std::max(worst, std::fabs(found - expected) / (std::fabs(expected) + std::sqrt(double(a.size()))));
    }
    return worst;
  }

  double time(GemmKind kind) const {
    const DeviceBytes out(shard_bytes_out(kind) * shards_);
    return microseconds([&] { run(kind, 0, shards_, out.at()); });
  }

  // A captured GEMM gives the bits of one that is queued.
  void compare_captured() const {
    const int64_t bytes = shard_bytes_out(GemmKind::kWeightLeaves) * shards_;
    const DeviceBytes plain(bytes), captured(bytes);
    cudaStream_t stream;
    check(cudaStreamCreate(&stream), "stream");
    run(GemmKind::kWeightLeaves, 0, shards_, plain.at(), stream);
    cudaGraph_t graph;
    cudaGraphExec_t ready;
    check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capturing");
    run(GemmKind::kWeightLeaves, 0, shards_, captured.at(), stream);
    check(cudaStreamEndCapture(stream, &graph), "capturing");
    check(cudaGraphInstantiate(&ready, graph, 0), "capturing");
    check(cudaGraphLaunch(ready, stream), "replaying");
    check(cudaStreamSynchronize(stream), "replaying");
    report(std::string(layer_.name) + " captured", differences(plain.at(), captured.at(), bytes) == 0);
    cudaGraphExecDestroy(ready);
    cudaGraphDestroy(graph);
    cudaStreamDestroy(stream);
  }

 private:
  Layer layer_;
  int shards_;
  std::unique_ptr<DeviceBytes> x_, dy_, w_, bias_;
  DeviceBytes workspace_;
};

constexpr GemmKind kKinds[] = {GemmKind::kForward, GemmKind::kInputGradient, GemmKind::kWeightLeaves};

void gemm_checks() {
  const std::vector<Layer> layers{
      {"GPT-2 c_attn", 32'768, 768, 2304},
      {"GPT-2 c_proj", 32'768, 768, 768},
      {"GPT-2 c_fc", 32'768, 768, 3072},
      {"GPT-2 c_out", 32'768, 3072, 768},
      {"GPT-2 head, padded", 8'192, 768, 50'304, FloatType::kBFloat16, false, false},
      {"GPT-2 head", 8'192, 768, 50'257, FloatType::kBFloat16, false, false},
      {"BERT fp16", 16'384, 768, 3072, FloatType::kHalf},
      {"ResNet fc", 256, 2048, 1000},
      {"small fp32", 512, 300, 77, FloatType::kFloat},
      {"fp32", 8'192, 768, 768, FloatType::kFloat},
      {"tf32", 8'192, 768, 3072, FloatType::kFloat, true},
      {"odd bf16", 1'000, 37, 51},
  };
  for (const Layer& layer : layers) {
    const LayerGemms gemms(layer, 8);
    for (const GemmKind kind : kKinds) {
      try {
        gemms.compare(kind);
      } catch (const Error& refused) {
        report(std::string(layer.name) + " " + refused.what() + ": " + refused.why(), false);
      }
    }
    if (layer.in == 768 && layer.out == 768 && layer.type == FloatType::kBFloat16) gemms.compare_captured();
  }
}

void gemm_times() {
  std::printf("\nGEMMs, microseconds: 8 shards, the same rows as one shard, their ratio, TFLOP/s of the first\n");
  for (const Layer& layer : {Layer{"GPT-2 c_attn", 32'768, 768, 2304},
                             {"GPT-2 c_proj", 32'768, 768, 768},
                             {"GPT-2 c_fc", 32'768, 768, 3072},
                             {"GPT-2 c_out", 32'768, 3072, 768},
                             {"GPT-2 head, padded", 32'768, 768, 50'304, FloatType::kBFloat16, false, false},
                             {"ResNet fc", 256, 2048, 1000}}) {
    const LayerGemms eight(layer, 8), one(layer, 1);
    for (const GemmKind kind : kKinds) {
      const double many = eight.time(kind), whole = one.time(kind);
      const double flops = 2.0 * double(layer.job_rows) * double(layer.in) * double(layer.out);
      std::printf("%-60s %9.1f %9.1f %6.2f %8.1f\n", (layer.name + (" " + eight.shape(kind).text())).c_str(), many,
                  whole, many / whole, flops / many * 1e-6);
    }
  }
}

void row_times() {
  std::printf("\nRows, microseconds and GB/s of what must be moved\n");
  const auto line = [](const char* what, double bytes, double us) {
    std::printf("%-60s %9.1f %9.1f\n", what, us, bytes / us * 1e-3);
  };
  constexpr int64_t kRows = 4096, kColumns = 3072, kShards = 8, kN = kShards * kRows * kColumns;
  const auto z = device_numbers(FloatType::kBFloat16, kN, 30), dy = device_numbers(FloatType::kBFloat16, kN, 31);
  const DeviceBytes y(kN * 2), sums(kShards * kColumns * 4),
      scratch(column_scratch_floats(kShards, kRows, kColumns) * 4);
  auto* const to = reinterpret_cast<float*>(sums.at());
  auto* const space = reinterpret_cast<float*>(scratch.at());
  for (const GeluForm form : {GeluForm::kTanh, GeluForm::kErf}) {
    const bool tanh = form == GeluForm::kTanh;
    line(tanh ? "gelu tanh, 8 x 4096 x 3072 bf16" : "gelu erf, 8 x 4096 x 3072 bf16", 4.0 * kN,
         microseconds([&] { cuda::gelu(z->at(), y.at(), kN, FloatType::kBFloat16, form, nullptr); }));
    line(tanh ? "gelu tanh gradient and bias sums" : "gelu erf gradient and bias sums", 6.0 * kN, microseconds([&] {
           cuda::gelu_gradient(dy->at(), z->at(), y.at(), kShards, kRows, kColumns, FloatType::kBFloat16, form, to,
                               space, nullptr);
         }));
  }
  line("column sums, 8 x 4096 x 3072 bf16", 2.0 * kN, microseconds([&] {
         cuda::column_sums(dy->at(), kShards, kRows, kColumns, FloatType::kBFloat16, to, space, nullptr);
       }));
  line("column sums, 8 x 4096 x 768 bf16", 2.0 * kShards * kRows * 768, microseconds([&] {
         cuda::column_sums(dy->at(), kShards, kRows, 768, FloatType::kBFloat16, to, space, nullptr);
       }));
  std::vector<int> merges;
  add_merges(0, 8, merges);
  for (const int64_t n : {int64_t{768 * 768}, int64_t{768 * 3072}, int64_t{768} * 50'304}) {
    const DeviceBytes leaves(8 * n * 4), out(n * 4);
    line(("tree_sum of 8 x " + std::to_string(n)).c_str(), 36.0 * double(n), microseconds([&] {
           cuda::tree_sum(reinterpret_cast<float*>(leaves.at()), n, 8, merges.data(),
                          reinterpret_cast<float*>(out.at()), n, false, nullptr);
         }));
  }
  line("shard_sums, 8 x 4096", 4.0 * 8 * 4096,
       microseconds([&] { cuda::shard_sums(to, nullptr, 8, kColumns, space, nullptr); }));
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
    tree_twins();
    row_twins();
    gemm_checks();
    gemm_times();
    row_times();
    std::printf("\nAlgorithms chosen\n");
    const std::vector<std::string> choices = cuda::gemm_kernels().choices();
    for (const std::string& choice : choices) std::printf("%s\n", choice.c_str());
    cuda::gemm_kernels().force(choices);  // what was written can be read
  } catch (const Error& error) {
    std::fprintf(stderr, "error: %s\n  why    %s\n  do     %s\n", error.what(), error.why().c_str(),
                 error.todo().c_str());
    return 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
  std::printf("\n%s\n", all_equal ? "all ok" : "SOMETHING DIFFERS");
  return all_equal ? 0 : 1;
}
