#include "engine/determinism.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <cstdlib>
#include <stdexcept>

#include "engine/gpu_device.h"

namespace tandem {

void set_determinism() {
  setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", 0);  // read when the first cuBLAS handle is made
  setenv("ONEDNN_JIT_PROFILE", "0", 0);  // else it leaves /tmp/perf-<pid>.map of every process on some processors
  at::Context& context = at::globalContext();
  context.setDeterministicAlgorithms(true, /*warn_only=*/false);
  context.setDeterministicFillUninitializedMemory(false);
  context.setDeterministicCuDNN(true);
  context.setBenchmarkCuDNN(false);
  context.setAllowTF32CuBLAS(false);
  context.setAllowTF32CuDNN(false);
  prepare_thread();
}

void prepare_thread() {
  at::set_num_threads(1);
  if (device().is_cuda()) gpu()->prepare_thread();
}

void check_determinism() {
  const at::Context& context = at::globalContext();
  if (!context.deterministicAlgorithms() || context.deterministicAlgorithmsWarnOnly())
    throw std::logic_error("deterministic algorithms were switched off");
  if (at::get_num_threads() != 1) throw std::logic_error("the number of threads per operator was changed");
}

std::string aten_generator_state() {
  const auto bytes_of = [](const at::Generator& generator) {
    const at::Tensor state = generator.get_state();
    return std::string(static_cast<const char*>(state.data_ptr()), static_cast<size_t>(state.nbytes()));
  };
  std::string state = bytes_of(at::detail::getDefaultCPUGenerator());  // lint: allow(random) read, not drawn
  if (device().is_cuda())
    state += bytes_of(at::globalContext().defaultGenerator(at::kCUDA));  // lint: allow(random) likewise
  return state;
}

}  // namespace tandem
