// tests/gpu/twins_lstm.cu -- LSTM steps and dropout by rows on a GPU beside their CPU twins.
//
// One line per check, "ok" or what differs; then microseconds and GB/s of a step of 1,024 rows x 256 units inside
// sequences of 20. Exit 1 if anything differs, 2 without a GPU.
#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <tuple>
#include <vector>

#include "kernels/cpu/random_fill.h"
#include "kernels/dropout_kernels.h"
#include "kernels/float_bits.h"
#include "kernels/gpu/kernels.h"
#include "kernels/gpu/layer_kernels.h"
#include "kernels/lstm_kernels.h"

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

double microseconds(const std::function<void()>& launch) {
  cudaEvent_t begin, end;
  check(cudaEventCreate(&begin), "event");
  check(cudaEventCreate(&end), "event");
  constexpr int kRuns = 100;
  for (int i = 0; i < 5; ++i) launch();
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

// The same bytes on both sides.
class BothSides {
 public:
  explicit BothSides(size_t bytes) : host_(bytes) { check(cudaMalloc(&device_, bytes + 64), "cudaMalloc"); }
  BothSides(const BothSides&) = delete;
  ~BothSides() { cudaFree(device_); }
  void upload() {
    check(cudaMemcpy(device_, host_.data(), host_.size(), cudaMemcpyHostToDevice), "copy to the device");
  }
  template <class T>
  T* at(bool gpu, int64_t byte = 0) {
    return reinterpret_cast<T*>((gpu ? static_cast<char*>(device_) : host_.data()) + byte);
  }
  std::vector<char> download() const {
    std::vector<char> back(host_.size());
    check(cudaMemcpy(back.data(), device_, back.size(), cudaMemcpyDeviceToHost), "copy to the host");
    return back;
  }
  const std::vector<char>& host() const { return host_; }

 private:
  std::vector<char> host_;
  void* device_ = nullptr;
};

// Numbers of a type, `shift` elements after an aligned address; some of them huge, some zeros.
struct LstmArray {
  LstmArray(FloatType of, int64_t n, uint32_t site, int at_element = 0, float deviation = 1.5f)
      : type(of), count(n), shift(at_element), bytes(static_cast<size_t>((n + at_element) * bytes_of(of))) {
    std::vector<float> values(static_cast<size_t>(n));
    fill_normal(values.data(), n, RandomKey{7, 1, 2, site}, 0, 0, deviation);
    for (int64_t i = 0; i < n; ++i) {
      float x = values[static_cast<size_t>(i)];
      if (i % 97 == 5) x *= 30;
      if (i % 31 == 7) x = i % 2 ? 0.0f : -0.0f;
      store_float(bytes.at<void>(false), type, shift + i, x);
    }
    bytes.upload();
  }
  void* at(bool gpu, int64_t element = 0) { return bytes.at<char>(gpu, (shift + element) * bytes_of(type)); }
  float* floats(bool gpu, int64_t element = 0) { return static_cast<float*>(at(gpu, element)); }
  bool equal(const char* what) {
    const std::vector<char> back = bytes.download();
    for (int64_t i = 0; i < shift + count; ++i) {
      const size_t at = static_cast<size_t>(i * bytes_of(type)), size = static_cast<size_t>(bytes_of(type));
      if (std::memcmp(back.data() + at, bytes.host().data() + at, size) == 0) continue;
      std::printf("  %s, element %lld of %lld: GPU %.9g, CPU %.9g\n", what, static_cast<long long>(i - shift),
                  static_cast<long long>(count), load_float(back.data(), type, i),
                  load_float(bytes.host().data(), type, i));
      return false;
    }
    return true;
  }
  FloatType type;
  int64_t count;
  int shift;
  BothSides bytes;
};

struct LstmShape {
  int64_t rows, hidden, steps;
  FloatType type;
  int shift = 0;
};

// Sequences whose step `t` is run, forward and backward.
struct LstmArrays {
  explicit LstmArrays(const LstmShape& s)
      : shape(s),
        gates(s.type, s.rows * s.steps * 4 * s.hidden, 1, s.shift),
        recurrent(s.type, s.rows * 4 * s.hidden, 2, s.shift),
        cells(FloatType::kFloat, s.rows * s.steps * s.hidden, 3, s.shift),
        out(s.type, s.rows * s.steps * s.hidden, 4, s.shift),
        out_copy(s.type, s.rows * s.hidden, 5, s.shift),
        out_grad(s.type, s.rows * s.steps * s.hidden, 6, s.shift),
        hidden_grad(s.type, s.rows * s.hidden, 7, s.shift),
        cell_grad(FloatType::kFloat, s.rows * s.hidden, 8, s.shift),
        gates_grad(s.type, s.rows * s.steps * 4 * s.hidden, 9, s.shift),
        gates_grad_copy(s.type, s.rows * 4 * s.hidden, 10, s.shift) {}

  LstmForwardStep forward(int64_t t, bool gpu) {
    const int64_t n = shape.hidden, states = shape.steps * n;
    return {.rows = shape.rows,
            .hidden = n,
            .type = shape.type,
            .gates = gates.at(gpu, t * 4 * n),
            .gates_stride = 4 * states,
            .recurrent = t > 0 ? recurrent.at(gpu) : nullptr,
            .cell_before = t > 0 ? cells.floats(gpu, (t - 1) * n) : nullptr,
            .cell_before_stride = states,
            .cell = cells.floats(gpu, t * n),
            .cell_stride = states,
            .out = out.at(gpu, t * n),
            .out_stride = states,
            .out_copy = t + 1 < shape.steps ? out_copy.at(gpu) : nullptr};
  }
  LstmBackwardStep backward(int64_t t, bool gpu) {
    const int64_t n = shape.hidden, states = shape.steps * n;
    return {.rows = shape.rows,
            .hidden = n,
            .type = shape.type,
            .gates = gates.at(gpu, t * 4 * n),
            .gates_stride = 4 * states,
            .cell = cells.floats(gpu, t * n),
            .cell_before = t > 0 ? cells.floats(gpu, (t - 1) * n) : nullptr,
            .cell_stride = states,
            .out_grad = out_grad.at(gpu, t * n),
            .out_grad_stride = states,
            .hidden_grad = t + 1 < shape.steps ? hidden_grad.at(gpu) : nullptr,
            .cell_grad = cell_grad.floats(gpu),
            .gates_grad = gates_grad.at(gpu, t * 4 * n),
            .gates_grad_stride = 4 * states,
            .gates_grad_copy = t > 0 ? gates_grad_copy.at(gpu) : nullptr};
  }

  LstmShape shape;
  LstmArray gates, recurrent, cells, out, out_copy, out_grad, hidden_grad, cell_grad, gates_grad, gates_grad_copy;
};

void lstm_twins() {
  for (const FloatType type : kTypes)
    for (const auto& [rows, hidden, steps, shift] :
         {std::tuple{1, 1, 1, 0}, std::tuple{3, 8, 2, 0}, std::tuple{5, 21, 3, 0}, std::tuple{7, 64, 3, 1},
          std::tuple{2000, 40, 3, 0}, std::tuple{1024, 256, 4, 0}}) {
      LstmArrays a({rows, hidden, steps, type, shift});
      for (int64_t t = 0; t < steps; ++t) {
        LstmKernels::cpu().forward(a.forward(t, false), nullptr);
        cuda::lstm_kernels().forward(a.forward(t, true), nullptr);
      }
      const std::string what =
          std::to_string(rows) + " x " + std::to_string(steps) + " x " + std::to_string(hidden) + " " + name_of(type);
      report("LSTM forward " + what,
             a.gates.equal("gates") && a.cells.equal("cells") && a.out.equal("out") && a.out_copy.equal("copy of out"));
      for (int64_t t = steps - 1; t >= 0; --t) {
        LstmKernels::cpu().backward(a.backward(t, false), nullptr);
        cuda::lstm_kernels().backward(a.backward(t, true), nullptr);
      }
      report("LSTM backward " + what, a.gates_grad.equal("gates_grad") && a.cell_grad.equal("cell_grad") &&
                                          a.gates_grad_copy.equal("copy of gates_grad") && a.gates.equal("gates"));
    }
}

void dropout_row_twins() {
  for (const FloatType type : kTypes)
    for (const auto& [shards, rows, width, shift] :
         {std::tuple{1, 1, 3, 0}, std::tuple{2, 5, 8, 0}, std::tuple{3, 7, 21, 0}, std::tuple{2, 9, 64, 1},
          std::tuple{8, 128, 256, 0}}) {
      LstmArray x(type, shards * rows * width, 1, shift), out(type, shards * rows * width, 2, shift);
      BothSides ids(sizeof(int64_t) * static_cast<size_t>(shards * rows));
      for (int64_t i = 0; i < shards * rows; ++i) ids.at<int64_t>(false)[i] = i * 7919 % 1'000'000'007 + (i % 3) * 5e9;
      ids.upload();
      for (const bool gpu : {false, true}) {
        const DropoutCall call{.shards = shards,
                               .shard_elements = int64_t{rows} * width,
                               .x = {x.at(gpu), type},
                               .residual = {},
                               .out = {out.at(gpu), type},
                               .product = type,
                               .drop_probability = 0.3,
                               .key = {0x123456789ABCDEFu, 77, 23, 4000},
                               .key_on_device = nullptr,
                               .row_ids = ids.at<int64_t>(gpu),
                               .row_elements = width};
        (gpu ? cuda::dropout_kernels() : DropoutKernels::cpu()).apply(call, nullptr);
      }
      report("dropout by rows " + std::to_string(shards) + " x " + std::to_string(rows) + " x " +
                 std::to_string(width) + " " + name_of(type),
             out.equal("dropout"));
    }
}

void lstm_times() {
  std::printf("\nA step of 1,024 rows x 256 units in sequences of 20: microseconds, GB/s of what must be moved\n");
  for (const FloatType type : kTypes) {
    constexpr int64_t kRows = 1024, kHidden = 256, kSteps = 20, kUnits = kRows * kHidden;
    LstmArrays a({kRows, kHidden, kSteps, type});
    const double size = bytes_of(type);
    const auto line = [&](const char* what, double bytes, double us) {
      std::printf("%-40s %9.2f %9.1f\n", (std::string(what) + name_of(type)).c_str(), us, bytes / us * 1e-3);
    };
    int64_t t = 0;
    line("LSTM step forward ", double(kUnits) * (14 * size + 8),
         microseconds([&] { cuda::lstm_kernels().forward(a.forward(1 + t++ % (kSteps - 2), true), nullptr); }));
    line("LSTM step backward ", double(kUnits) * (14 * size + 16),
         microseconds([&] { cuda::lstm_kernels().backward(a.backward(1 + t++ % (kSteps - 2), true), nullptr); }));
  }
}

}  // namespace

int main() {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::fprintf(stderr, "error: no CUDA GPU\n  why    %s\n  do     run this on a machine with one\n",
                 cudaGetErrorString(cudaGetLastError()));
    return 2;
  }
  lstm_twins();
  dropout_row_twins();
  lstm_times();
  std::printf("\n%s\n", all_equal ? "all ok" : "SOMETHING DIFFERS");
  return all_equal ? 0 : 1;
}
