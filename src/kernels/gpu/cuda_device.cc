#include "kernels/gpu/cuda_device.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <map>
#include <mutex>
#include <new>
#include <string>
#include <vector>

namespace tandem::cuda {
namespace {

void check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  cudaGetLastError();  // cleared, or the next call would report it again
  if (error == cudaErrorMemoryAllocation) throw std::bad_alloc();
  throw CudaError(static_cast<int>(error),
                  std::string(what) + ": " + cudaGetErrorName(error) + ", " + cudaGetErrorString(error));
}

class CudaKernelDevice : public Device {
 public:
  explicit CudaKernelDevice(const Stream* stream) : stream_(*stream) {
    check(cudaMalloc(&results_, sizeof(Results)), "memory for results");
    check(cudaMemset(results_, 0, sizeof(Results)), "filling with zeros");
    check(cudaHostAlloc(&results_host_, sizeof(Results), cudaHostAllocDefault), "pinned memory for results");
  }
  ~CudaKernelDevice() override {
    cudaFree(results_);
    cudaFreeHost(results_host_);
    for (void* scratch : scratches_) cudaFree(scratch);
  }
  bool is_cuda() const override { return true; }

  void* allocate(size_t bytes) override {
    void* memory = nullptr;
    check(cudaMalloc(&memory, bytes ? bytes : 1), "memory on the GPU");
    const std::lock_guard lock(allocated_mutex_);
    sizes_[memory] = bytes;
    allocated_.now += bytes;
    allocated_.most = std::max(allocated_.most, allocated_.now);
    return memory;
  }
  void release(void* memory) noexcept override {
    cudaFree(memory);
    const std::lock_guard lock(allocated_mutex_);
    if (const auto found = sizes_.find(memory); found != sizes_.end()) {
      allocated_.now -= found->second;
      sizes_.erase(found);
    }
  }
  AllocatedBytes allocated() const {
    const std::lock_guard lock(allocated_mutex_);
    return allocated_;
  }
  void zero(void* memory, size_t bytes) override {
    if (bytes) check(cudaMemsetAsync(memory, 0, bytes, stream_), "filling with zeros");
  }
  void fill_ones(void* memory, size_t bytes) override {
    if (bytes) check(cudaMemsetAsync(memory, 0xFF, bytes, stream_), "filling with ones");
  }
  void copy(void* dst, const void* src, size_t bytes) override {
    if (bytes) check(cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDeviceToDevice, stream_), "copy on the GPU");
  }
  void to_host(void* host, const void* src, size_t bytes) override {
    queue_to_host(host, src, bytes);
    if (bytes) wait();
  }
  void from_host(void* dst, const void* host, size_t bytes) override {
    queue_from_host(dst, host, bytes);
    if (bytes) wait();  // pinned memory is read later than the call returns
  }
  void queue_to_host(void* host, const void* src, size_t bytes) override {
    if (void* const mapped = mapped_address(host, bytes); mapped && cuda::copy_few(mapped, src, bytes, stream_)) return;
    for_each_range(host, bytes, [&](size_t offset, size_t length) {
      check(cudaMemcpyAsync(static_cast<std::byte*>(host) + offset, static_cast<const std::byte*>(src) + offset, length,
                            cudaMemcpyDeviceToHost, stream_),
            "copy to the host");
    });
  }
  void queue_from_host(void* dst, const void* host, size_t bytes) override {
    if (void* const mapped = mapped_address(host, bytes); mapped && cuda::copy_few(dst, mapped, bytes, stream_)) return;
    for_each_range(host, bytes, [&](size_t offset, size_t length) {
      check(cudaMemcpyAsync(static_cast<std::byte*>(dst) + offset, static_cast<const std::byte*>(host) + offset, length,
                            cudaMemcpyHostToDevice, stream_),
            "copy to the GPU");
    });
  }
  bool pin(void* host, size_t bytes) override {
    void* mapped = nullptr;
    const bool registered = cudaHostRegister(host, bytes, cudaHostRegisterDefault) == cudaSuccess;
    if (!registered || cudaHostGetDevicePointer(&mapped, host, 0) != cudaSuccess) {
      cudaGetLastError();
      if (registered) cudaHostUnregister(host);
      return false;
    }
    const std::lock_guard lock(pinned_mutex_);
    pinned_[static_cast<const std::byte*>(host)] = {bytes, static_cast<std::byte*>(mapped)};
    return true;
  }
  void unpin(void* host) noexcept override {
    {
      const std::lock_guard lock(pinned_mutex_);
      pinned_.erase(static_cast<const std::byte*>(host));
    }
    if (cudaHostUnregister(host) != cudaSuccess) cudaGetLastError();
  }
  void wait() override { check(cudaStreamSynchronize(stream_), "waiting for the GPU"); }

  void add_in_order(float* out, const float* const* inputs, int count, int64_t n) override {
    cuda::add_in_order(out, inputs, count, n, stream_);
  }
  void soft_update(float* target, const float* p, float tau, int64_t n) override {
    cuda::soft_update(target, p, tau, n, stream_);
  }
  void fill_dropout_mask(float* out, int64_t n, const RandomSource& key, uint64_t first, double drop) override {
    if (key.on_device)
      cuda::fill_dropout_mask(out, n, key.on_device, key.site, first, drop, stream_);
    else
      cuda::fill_dropout_mask(out, n, key, first, drop, stream_);
  }

  void decide_update(UpdateDecision* decision, const UpdateParams* params, const float* gradient, int64_t n,
                     const float* statistics, int64_t statistic_count, const int64_t* bad, int bad_count) override {
    cuda::sum_of_squares(&results_->number, gradient, n, norm_scratch(n), stream_);
    cuda::all_finite(&results_->truth, statistics, statistic_count, stream_);
    cuda::decide_update(decision, params, &results_->number, &results_->truth, bad, bad_count, stream_);
  }
  void adam_update(float* p, const float* g, float* m, float* v, int64_t n, const AdamParams* params,
                   const UpdateDecision* decision) override {
    cuda::adam_update(p, g, m, v, n, params, decision, stream_);
  }
  void decide_groups(UpdateDecision* decisions, UpdateDecision* decision, const UpdateParams* params,
                     const float* gradient, int64_t n, int groups, const int64_t* bad, int bad_count) override {
    cuda::decide_groups(
        decisions, decision, params, gradient, n, groups, bad, bad_count,
        static_cast<double*>(scratch(sizeof(double) * static_cast<size_t>(groups) * norm_scratch_doubles(n))),
        &results_->arrived, stream_);
  }
  void adam_update(float* p, const float* g, float* m, float* v, const UpdateSegment* segments, int count, int64_t n,
                   const UpdateParams* params, const UpdateDecision* decisions, const TargetUpdate& target) override {
    cuda::adam_update(p, g, m, v, segments, count, n, params, decisions, target, stream_);
  }
  void sgd_update(float* p, const float* g, float* velocity, int64_t n, const SgdParams* params,
                  const UpdateDecision* decision) override {
    cuda::sgd_update(p, g, velocity, n, params, decision, stream_);
  }
  void soft_update(float* target, const float* p, float tau, int64_t n, const UpdateDecision* decision) override {
    cuda::soft_update(target, p, tau, n, decision, stream_);
  }
  void find_nonfinite(int64_t* index, const float* x, int64_t n) override {
    cuda::lower_to_nonfinite(index, x, n, stream_);
  }

  double sum_of_squares(const float* x, int64_t n) override {
    cuda::sum_of_squares(&results_->number, x, n, norm_scratch(n), stream_);
    return read_result(&Results::number);
  }
  int64_t first_nonfinite(const float* x, int64_t n) override {
    cuda::first_nonfinite(&results_->index, x, n, stream_);
    return read_result(&Results::index);
  }
  uint64_t state_hash(const void* data, int64_t bytes) override {
    cuda::state_hash(&results_->hash, data, bytes,
                     static_cast<uint64_t*>(scratch(sizeof(uint64_t) * hash_block_count(bytes))), stream_);
    return read_result(&Results::hash);
  }

 private:
  struct Pinned {
    size_t bytes;
    std::byte* mapped;  // its address on the GPU
  };
  // The device address of this host memory; null if it is not pinned as a whole.
  void* mapped_address(const void* host, size_t bytes) {
    const auto* const begin = static_cast<const std::byte*>(host);
    const std::lock_guard lock(pinned_mutex_);
    auto found = pinned_.upper_bound(begin);
    if (found == pinned_.begin()) return nullptr;
    --found;
    const size_t offset = static_cast<size_t>(begin - found->first);
    return offset + bytes <= found->second.bytes ? found->second.mapped + offset : nullptr;
  }
  // Calls f(offset, length) with ranges of host memory that are pinned as a whole or not at all: CUDA refuses one copy
  // of both.
  template <class F>
  void for_each_range(const void* host, size_t bytes, F f) {
    const auto* const begin = static_cast<const std::byte*>(host);
    for (size_t offset = 0, end; offset < bytes; offset = end) {
      end = bytes;
      {
        const std::lock_guard lock(pinned_mutex_);
        const auto next = pinned_.upper_bound(begin + offset);
        if (next != pinned_.end()) end = std::min(end, static_cast<size_t>(next->first - begin));
        if (next != pinned_.begin())
          if (const auto* const pinned_end = std::prev(next)->first + std::prev(next)->second.bytes;
              pinned_end > begin + offset)
            end = std::min(end, static_cast<size_t>(pinned_end - begin));
      }
      f(offset, end - offset);
    }
  }
  struct Results {  // of the calls that return a value, and scratch of decide_groups()
    double number;
    int64_t index;
    uint64_t hash;
    int truth;
    unsigned arrived;  // decide_groups()' count of blocks; 0 between calls
  };
  template <class T>
  T read_result(T Results::*which) {
    to_host(&(results_host_->*which), &(results_->*which), sizeof(T));
    return results_host_->*which;
  }
  double* norm_scratch(int64_t n) { return static_cast<double*>(scratch(sizeof(double) * norm_scratch_doubles(n))); }
  // A CUDA graph may hold the address of an older one: none is freed.
  void* scratch(size_t bytes) {
    if (scratches_.empty() || bytes > scratch_bytes_) {
      void* larger = nullptr;
      check(cudaMalloc(&larger, bytes ? bytes : 1), "memory for partial results");
      scratches_.push_back(larger);
      scratch_bytes_ = bytes;
    }
    return scratches_.back();
  }

  const Stream& stream_;
  Results *results_ = nullptr, *results_host_ = nullptr;  // on the GPU, and in pinned memory
  std::vector<void*> scratches_;
  size_t scratch_bytes_ = 0;
  mutable std::mutex allocated_mutex_;
  std::map<void*, size_t> sizes_;  // of what is allocated
  AllocatedBytes allocated_;
  std::mutex pinned_mutex_;
  std::map<const std::byte*, Pinned> pinned_;  // by first byte
};

}  // namespace

std::unique_ptr<Device> make_cuda_device(const Stream* stream) { return std::make_unique<CudaKernelDevice>(stream); }

AllocatedBytes allocated_bytes(const Device& device) {
  return dynamic_cast<const CudaKernelDevice&>(device).allocated();
}

}  // namespace tandem::cuda
