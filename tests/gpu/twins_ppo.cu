// tests/gpu/twins_ppo.cu -- PPO's kernels on a GPU beside their CPU twins. One line for each case of
// rl/ppo/ppo_twins.h, "ok" or what differs. Exit 1 if anything differs, 2 without a GPU.
#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

#include "rl/ppo/cuda_ppo_kernels.h"
#include "rl/ppo/ppo_twins.h"

namespace {

void check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "error: %s: %s, %s\n", what, cudaGetErrorName(error), cudaGetErrorString(error));
  std::exit(2);
}

struct GpuMemory {
  template <class T>
  class Array {
   public:
    explicit Array(const std::vector<T>& values) : n_(values.size()) {
      check(cudaMalloc(&data_, n_ * sizeof(T) + 16), "cudaMalloc");
      check(cudaMemcpy(data_, values.data(), n_ * sizeof(T), cudaMemcpyHostToDevice), "copy to the device");
    }
    Array(const Array&) = delete;
    ~Array() { cudaFree(data_); }
    T* data() const { return data_; }
    std::vector<T> get() const {
      std::vector<T> back(n_);
      check(cudaMemcpy(back.data(), data_, n_ * sizeof(T), cudaMemcpyDeviceToHost), "copy to the host");
      return back;
    }

   private:
    size_t n_;
    T* data_ = nullptr;
  };
};

}  // namespace

int main() {
  int gpus = 0;
  if (cudaGetDeviceCount(&gpus) != cudaSuccess || gpus == 0) {
    std::fprintf(stderr, "error: no CUDA GPU\n");
    return 2;
  }
  bool equal = true;
  for (const tandem::PpoTwinCase& one : tandem::kPpoTwinCases) {
    const std::string what = tandem::PpoTwins<GpuMemory>(tandem::cuda::ppo_kernels(), one).differs();
    std::printf("%-50s %s\n", one.name, what.empty() ? "ok" : what.c_str());
    equal = equal && what.empty();
  }
  return equal ? 0 : 1;
}
