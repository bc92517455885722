// cuda/cuda_gpu.cc -- libtandem_cuda.so: one GPU, through libtorch's CUDA libraries.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/AutogradState.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime.h>
#include <fmt/format.h>
#include <torch/version.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <span>
#include <stdexcept>
#include <vector>

#include "base/sha256.h"
#include "cuda/cuda_copy_stream.h"
#include "cuda/offered_kernels.h"
#include "cuda/work_memory.h"
#include "engine/gpu_device.h"
#include "kernels/gpu/cuda_device.h"

namespace tandem {
namespace {

constexpr int kGpuKernels = 2;  // part of the kind: raise it when kernels of ours give other bits than before

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

class Graph : public CudaGraph {
 public:
  Graph(cudaGraphExec_t graph, std::shared_ptr<const void> memory, cudaStream_t stream)
      : graph_(graph), memory_(std::move(memory)), stream_(stream) {}
  ~Graph() override { cudaGraphExecDestroy(graph_); }
  void replay() override {
    if (const cudaError_t error = cudaGraphLaunch(graph_, stream_); error != cudaSuccess)
      throw cuda::CudaError(static_cast<int>(error), fmt::format("running a graph: {}", cudaGetErrorString(error)));
  }

 private:
  cudaGraphExec_t graph_;
  std::shared_ptr<const void> memory_;  // that its work allocates from
  cudaStream_t stream_;
};

class CudaGpu : public GpuDevice {
 public:
  explicit CudaGpu(double memory_fraction) : stream_(c10::cuda::getStreamFromPool(false, 0)) {
    if (const cudaError_t error = cudaGetDeviceProperties(&facts_, 0); error != cudaSuccess)
      throw std::runtime_error(cudaGetErrorString(error));
    c10::cuda::CUDACachingAllocator::init(1);
    c10::cuda::CUDACachingAllocator::setMemoryFraction(memory_fraction, 0);
    CudaGpu::prepare_thread();
    current_ = stream_.stream();
    device_ = cuda::make_cuda_device(&current_);
    fraction_ = memory_fraction;
  }

  Device& device() override { return *device_; }
  void prepare_thread() override {
    c10::cuda::set_device(0);
    c10::cuda::setCurrentCUDAStream(stream_);
    // Backward runs in the thread that calls it: on a GPU, libtorch would hand it to one thread for all.
    c10::AutogradState::get_tls_state().set_multithreading_enabled(false);
  }
  void fork(int branches) override {
    constexpr int kMost = c10::cuda::max_compile_time_stream_priorities - 1;
    while (static_cast<int>(branches_.size()) < branches)
      branches_.push_back({c10::cuda::getStreamFromPool(-kMost, 0)});
    check(cudaEventRecord(event_of(forked_), stream_.stream()));
    for (int b = 0; b < branches; ++b) check(cudaStreamWaitEvent(branches_[b].stream.stream(), forked_, 0));
  }
  void branch(int number) override {
    const c10::cuda::CUDAStream& chosen = number < 0 ? stream_ : branches_.at(number).stream;
    c10::cuda::setCurrentCUDAStream(chosen);
    current_ = chosen.stream();
  }
  void join(int branches) override {
    branch(-1);
    for (int b = 0; b < branches; ++b) {
      check(cudaEventRecord(event_of(branches_[b].done), branches_[b].stream.stream()));
      check(cudaStreamWaitEvent(stream_.stream(), branches_[b].done, 0));
    }
  }

  void in_work_memory(const std::function<void()>& work) override {
    const cuda::WorkMemory::Inside here(work_memory_);
    work();
  }
  void trim() override { work_memory_.trim(); }
  void begin_peak() override {
    memory();  // keeps the peak that is forgotten here
    c10::cuda::CUDACachingAllocator::resetPeakStats(0);
    peak_base_ = allocated().current;
  }
  size_t peak_bytes() const override {
    return static_cast<size_t>(std::max<int64_t>(0, allocated().peak - peak_base_));
  }
  size_t free_bytes() const override {
    size_t free = 0, total = 0;
    cudaMemGetInfo(&free, &total);
    const double used = static_cast<double>(total - free), most = fraction_ * static_cast<double>(total);
    return static_cast<size_t>(std::max(0.0, most - used));
  }

  // libtorch's, that of Device::allocate(), and own_bytes_: the context and the libraries' own memory, which is what is
  // used beside those two as this process begins. Somebody else's memory can't be told from it, so it counts for no
  // more than they ever take.
  GpuMemory memory() const override {
    const auto reserved = c10::cuda::CUDACachingAllocator::getDeviceStats(0)
                              .reserved_bytes[static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE)];
    if (own_bytes_ == 0) {
      size_t free = 0, total = 0;
      cudaMemGetInfo(&free, &total);
      const auto held =
          static_cast<uint64_t>(std::max<int64_t>(0, reserved.current)) + cuda::allocated_bytes(*device_).now;
      own_bytes_ = std::min<uint64_t>(total - free - std::min<uint64_t>(held, total - free), uint64_t{1} << 30);
    }
    most_reserved_ = std::max({most_reserved_, reserved.peak, reserved.current});
    const cuda::AllocatedBytes ours = cuda::allocated_bytes(*device_);
    return {own_bytes_ + ours.now + static_cast<uint64_t>(reserved.current),
            own_bytes_ + ours.most + static_cast<uint64_t>(most_reserved_)};
  }

  std::unique_ptr<CudaGraph> capture(const std::function<void()>& work, std::string* refused) override {
    const cudaStream_t stream = stream_.stream();
    cudaGraph_t graph = nullptr;
    const cuda::WorkMemory::Inside here(work_memory_);
    // Thread-local: what loader threads do to their own memory meanwhile is their own affair.
    cudaError_t error = cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal);
    if (error == cudaSuccess) {
      try {
        work();
      } catch (const std::exception& refusal) {
        *refused = first_line(refusal.what());
        if (refused->empty()) *refused = "an error without words";
      }
      branch(-1);
      error = cudaStreamEndCapture(stream, &graph);
    }
    cudaGraphExec_t ready = nullptr;
    if (error == cudaSuccess && refused->empty())
      error = cudaGraphInstantiate(&ready, graph, cudaGraphInstantiateFlagUseNodePriority);
    if (graph) cudaGraphDestroy(graph);
    if (refused->empty() && error != cudaSuccess) *refused = cudaGetErrorString(error);
    if (!refused->empty()) {
      cudaGetLastError();
      return nullptr;
    }
    return std::make_unique<Graph>(ready, work_memory_.pool(), stream);
  }
  const KernelTables& kernel_tables() const override { return cuda::offered_kernels(); }
  void hang() override { cuda::hang(stream_.stream()); }
  void* stream() override { return stream_.stream(); }
  void* current_stream() override { return current_; }
  std::unique_ptr<CopyStream> copy_stream() override { return cuda::make_copy_stream(stream_.stream()); }
  bool idle() override { return cudaStreamQuery(stream_.stream()) != cudaErrorNotReady; }
  std::string name() const override { return facts_.name; }
  std::string kind_parts() override {
    int runtime = 0;
    cudaRuntimeGetVersion(&runtime);
    return nlohmann::json{{"device", "cuda"},
                          {"card", facts_.name},
                          {"capability", fmt::format("{}.{}", facts_.major, facts_.minor)},
                          {"multiprocessors", facts_.multiProcessorCount},
                          {"cuda", runtime},
                          {"cudnn", at::detail::getCUDAHooks().versionRuntimeCuDNN()},
                          {"torch", TORCH_VERSION},
                          {"kernels", kGpuKernels},
                          {"arithmetic", arithmetic()}}
        .dump();
  }

 private:
  struct Branch {
    c10::cuda::CUDAStream stream;
    cudaEvent_t done = nullptr;
  };
  static void check(cudaError_t error) {
    if (error != cudaSuccess)
      throw cuda::CudaError(static_cast<int>(error), fmt::format("queues of a GPU: {}", cudaGetErrorString(error)));
  }
  static cudaEvent_t event_of(cudaEvent_t& event) {
    if (!event) check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    return event;
  }
  bool is_ours(cudaStream_t stream) const {
    const auto is_it = [&](const Branch& b) { return b.stream.stream() == stream; };
    return stream == stream_.stream() || std::ranges::any_of(branches_, is_it);
  }
  static const c10::CachingAllocator::Stat& allocated() {
    static thread_local c10::CachingDeviceAllocator::DeviceStats stats;
    stats = c10::cuda::CUDACachingAllocator::getDeviceStats(0);
    return stats.allocated_bytes[static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE)];
  }

  // What the libraries make of fixed numbers: it catches what no version tells.
  std::string arithmetic() {
    at::NoGradGuard no_grad;
    const auto numbers = [&](at::IntArrayRef sizes, uint32_t site) {
      at::Tensor t = at::empty(sizes, at::TensorOptions(at::kCUDA).dtype(at::kFloat));
      cuda::fill_normal(t.data_ptr<float>(), t.numel(), RandomKey{1, 0, 0, site}, 0, 0, 1, stream_.stream());
      return t;
    };
    const at::Tensor a = numbers({256, 512}, 0), b = numbers({512, 128}, 1), image = numbers({4, 16, 32, 32}, 2),
                     weight = numbers({32, 16, 3, 3}, 3);
    const at::Tensor product = a.matmul(b);
    const at::Tensor half = a.to(at::kBFloat16).matmul(b.to(at::kBFloat16)).to(at::kFloat);
    const at::Tensor all = at::cat({product.flatten(), half.flatten(), product.tanh().flatten(), product.sum(0),
                                    at::softmax(product, 1).flatten(), at::conv2d(image, weight, {}, 1, 1).flatten()})
                               .cpu();
    Sha256 hash;
    hash.update(std::as_bytes(std::span(all.data_ptr<float>(), static_cast<size_t>(all.numel()))));
    return hash.hex().substr(0, 16);
  }

  c10::cuda::CUDAStream stream_;
  cudaStream_t current_ = nullptr;  // where device_ queues its work: that stream, or a branch
  std::vector<Branch> branches_;
  cudaEvent_t forked_ = nullptr;
  cuda::WorkMemory work_memory_{[this](cudaStream_t s) { return is_ours(s); }};
  double fraction_ = 1;
  int64_t peak_base_ = 0;
  mutable uint64_t own_bytes_ = 0;
  mutable int64_t most_reserved_ = 0;
  cudaDeviceProp facts_{};
  std::unique_ptr<Device> device_;
};

}  // namespace
}  // namespace tandem

extern "C" tandem::GpuDevice* tandem_open_gpu(double memory_fraction, std::string* refused) {
  int count = 0;
  if (const cudaError_t error = cudaGetDeviceCount(&count); error != cudaSuccess || count == 0) {
    *refused = error == cudaSuccess ? "no GPU is visible to this process"
                                    : fmt::format("{}: {}", cudaGetErrorName(error), cudaGetErrorString(error));
    return nullptr;
  }
  try {
    return new tandem::CudaGpu(memory_fraction);
  } catch (const std::exception& error) {
    *refused = error.what();
    return nullptr;
  }
}
