// cuda/card.cc -- libtandem_cuda.so: one card, through libtorch's CUDA libraries.
#include "engine/card.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime.h>
#include <fmt/format.h>
#include <torch/version.h>

#include <nlohmann/json.hpp>
#include <span>
#include <stdexcept>
#include <vector>

#include "base/sha256.h"
#include "kernels/cuda_device.h"

namespace tandem {
namespace {

class CudaCard : public Card {
 public:
  explicit CudaCard(double memory_fraction) : stream_(c10::cuda::getStreamFromPool(false, 0)) {
    if (const cudaError_t error = cudaGetDeviceProperties(&facts_, 0); error != cudaSuccess)
      throw std::runtime_error(cudaGetErrorString(error));
    c10::cuda::CUDACachingAllocator::init(1);
    c10::cuda::CUDACachingAllocator::setMemoryFraction(memory_fraction, 0);
    CudaCard::prepare_thread();
    device_ = cuda::make_cuda_device(stream_.stream());
  }

  Device& device() override { return *device_; }
  void prepare_thread() override {
    c10::cuda::set_device(0);
    c10::cuda::setCurrentCUDAStream(stream_);
  }
  void* stream() override { return stream_.stream(); }
  bool idle() override { return cudaStreamQuery(stream_.stream()) != cudaErrorNotReady; }
  std::string name() const override { return facts_.name; }
  std::string memory_told() const override {
    size_t free = 0, total = 0;
    cudaMemGetInfo(&free, &total);
    return fmt::format("{:.1f} of {:.1f} GiB", static_cast<double>(total - free) / (1 << 30),
                       static_cast<double>(total) / (1 << 30));
  }
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
                          {"arithmetic", arithmetic()}}
        .dump();
  }

 private:
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
  cudaDeviceProp facts_{};
  std::unique_ptr<Device> device_;
};

}  // namespace
}  // namespace tandem

extern "C" tandem::Card* tandem_open_card(double memory_fraction, std::string* refused) {
  int count = 0;
  if (const cudaError_t error = cudaGetDeviceCount(&count); error != cudaSuccess || count == 0) {
    *refused = error == cudaSuccess ? "no card is visible to this process"
                                    : fmt::format("{}: {}", cudaGetErrorName(error), cudaGetErrorString(error));
    return nullptr;
  }
  try {
    return new tandem::CudaCard(memory_fraction);
  } catch (const std::exception& error) {
    *refused = error.what();
    return nullptr;
  }
}
