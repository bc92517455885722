#include "kernels/cuda_device.h"

#include <cuda_runtime.h>

#include <new>
#include <string>

namespace tandem::cuda {
namespace {

void check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  cudaGetLastError();  // an error that was told must not be told again by the next call
  if (error == cudaErrorMemoryAllocation) throw std::bad_alloc();
  throw CudaError(static_cast<int>(error),
                  std::string(what) + ": " + cudaGetErrorName(error) + ", " + cudaGetErrorString(error));
}

class CudaDevice : public Device {
 public:
  explicit CudaDevice(Stream stream) : stream_(stream) {
    check(cudaMalloc(&answer_, sizeof(double)), "memory for answers");
    check(cudaHostAlloc(&answer_host_, sizeof(double), cudaHostAllocDefault), "pinned memory for answers");
  }
  ~CudaDevice() override {
    cudaFree(answer_);
    cudaFreeHost(answer_host_);
    cudaFree(scratch_);
  }
  bool is_cuda() const override { return true; }

  void* allocate(size_t bytes) override {
    void* memory = nullptr;
    check(cudaMalloc(&memory, bytes ? bytes : 1), "memory on the card");
    return memory;
  }
  void release(void* memory) noexcept override { cudaFree(memory); }
  void zero(void* memory, size_t bytes) override {
    if (bytes) check(cudaMemsetAsync(memory, 0, bytes, stream_), "filling with zeros");
  }
  void copy(void* to, const void* from, size_t bytes) override {
    if (bytes) check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream_), "copy on the card");
  }
  void to_host(void* host, const void* from, size_t bytes) override {
    if (!bytes) return;
    check(cudaMemcpyAsync(host, from, bytes, cudaMemcpyDeviceToHost, stream_), "copy to the host");
    wait();
  }
  void from_host(void* to, const void* host, size_t bytes) override {
    if (!bytes) return;
    check(cudaMemcpyAsync(to, host, bytes, cudaMemcpyHostToDevice, stream_), "copy to the card");
    wait();  // pinned memory is read later than the call returns
  }
  void pin(void* host, size_t bytes) override {
    if (cudaHostRegister(host, bytes, cudaHostRegisterDefault) != cudaSuccess) cudaGetLastError();
  }
  void unpin(void* host) noexcept override {
    if (cudaHostUnregister(host) != cudaSuccess) cudaGetLastError();
  }
  void wait() override { check(cudaStreamSynchronize(stream_), "waiting for the card"); }

  void add_in_order(float* out, const float* const* inputs, int count, int64_t n) override {
    cuda::add_in_order(out, inputs, count, n, stream_);
  }
  void soft_update(float* target, const float* p, float tau, int64_t n) override {
    cuda::soft_update(target, p, tau, n, stream_);
  }
  void adam_update(float* p, const float* g, float* m, float* v, int64_t n, const AdamParams& params,
                   float grad_scale) override {
    cuda::adam_update(p, g, m, v, n, params, grad_scale, stream_);
  }
  void sgd_update(float* p, const float* g, float* velocity, int64_t n, const SgdParams& params,
                  float grad_scale) override {
    cuda::sgd_update(p, g, velocity, n, params, grad_scale, stream_);
  }
  void fill_dropout_mask(float* out, int64_t n, const RandomKey& key, uint64_t first, double drop) override {
    cuda::fill_dropout_mask(out, n, key, first, drop, stream_);
  }
  double sum_of_squares(const float* x, int64_t n) override {
    cuda::sum_of_squares(static_cast<double*>(answer_), x, n,
                         static_cast<double*>(scratch(sizeof(double) * norm_scratch_doubles(n))), stream_);
    return answer<double>();
  }
  bool all_finite(const float* x, int64_t n) override {
    cuda::all_finite(static_cast<int*>(answer_), x, n, stream_);
    return answer<int>() != 0;
  }
  int64_t first_nonfinite(const float* x, int64_t n) override {
    cuda::first_nonfinite(static_cast<int64_t*>(answer_), x, n, stream_);
    return answer<int64_t>();
  }
  uint64_t state_hash(const void* data, int64_t bytes) override {
    cuda::state_hash(static_cast<uint64_t*>(answer_), data, bytes,
                     static_cast<uint64_t*>(scratch(sizeof(uint64_t) * hash_block_count(bytes))), stream_);
    return answer<uint64_t>();
  }

 private:
  template <class T>
  T answer() {
    to_host(answer_host_, answer_, sizeof(T));
    return *static_cast<T*>(answer_host_);
  }
  void* scratch(size_t bytes) {
    if (bytes > scratch_bytes_) {
      wait();  // the old one may be in use
      check(cudaFree(scratch_), "giving memory back");
      scratch_ = nullptr;
      scratch_bytes_ = 0;
      check(cudaMalloc(&scratch_, bytes), "memory for partial results");
      scratch_bytes_ = bytes;
    }
    return scratch_;
  }

  Stream stream_;
  void *answer_ = nullptr, *answer_host_ = nullptr, *scratch_ = nullptr;
  size_t scratch_bytes_ = 0;
};

}  // namespace

std::unique_ptr<Device> make_cuda_device(Stream stream) { return std::make_unique<CudaDevice>(stream); }

}  // namespace tandem::cuda
