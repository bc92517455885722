// nn/kernel_choice.h -- the kernels of this folder's layers, for the device where a tensor lies.
//
// A family of kernels is a struct of function pointers with a kId (kernels/gpu/kernel_tables.h) and a static function
// cpu() that gives its CPU twin. The GPU's come from libtandem_cuda.so.
#pragma once

#include <ATen/core/Tensor.h>

#include <stdexcept>
#include <string>

#include "kernels/float_type.h"
#include "kernels/gpu/kernel_tables.h"

namespace tandem {

// By the engine, when it opens a GPU: its tables, and where its work is queued.
struct GpuKernels {
  const KernelTables* tables = nullptr;
  void* (*current_stream)() = nullptr;
};
void offer_gpu_kernels(const GpuKernels& kernels);
const GpuKernels& gpu_kernels();

template <class Kernels>
const Kernels& kernels_of_gpu() {
  const Kernels* const found = gpu_kernels().tables ? gpu_kernels().tables->template find<Kernels>() : nullptr;
  if (!found) throw std::logic_error("the GPU library has no kernels '" + std::string(Kernels::kId.name) + "'");
  return *found;
}
template <class Kernels>
const Kernels& kernels_for(const at::Tensor& x) {
  return x.is_cuda() ? kernels_of_gpu<Kernels>() : Kernels::cpu();
}

// The CUDA stream for the kernels of kernels_for(x); null on a CPU.
inline void* stream_for(const at::Tensor& x) { return x.is_cuda() ? gpu_kernels().current_stream() : nullptr; }

FloatType float_type(const at::Tensor& x);  // throws std::logic_error for another one

// The type to compute in: autocast's where that is on for the tensor's device, else the tensor's own.
at::ScalarType compute_type(const at::Tensor& x);

// While it lives, operators inside a layer's own forward and backward compute in the types that they are given,
// autocast or not.
class WithoutAutocast {
 public:
  WithoutAutocast();
  ~WithoutAutocast();
  WithoutAutocast(const WithoutAutocast&) = delete;
  WithoutAutocast& operator=(const WithoutAutocast&) = delete;

 private:
  bool cpu_, cuda_;
};

}  // namespace tandem
