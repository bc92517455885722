// kernels/cuda_portable.h -- launches of kernels that also compile for the CPU, where tests run them thread by thread
// (cuda_on_cpu.h stands in for the compiler's own words then).
#pragma once

#if defined(__CUDACC__)
#include "kernels/cuda_launch.h"
#define TANDEM_LAUNCH(name, kernel, grid, block, stream, ...) \
  do {                                                        \
    kernel<<<(grid), (block), 0, (stream)>>>(__VA_ARGS__);    \
    ::tandem::cuda::check_launch(name);                       \
  } while (false)
#else
#include "kernels/cuda_on_cpu.h"
#define TANDEM_LAUNCH(name, kernel, grid, block, stream, ...) \
  ::tandem::cuda_on_cpu::launch((grid), (block), [&] { kernel(__VA_ARGS__); })
#endif
