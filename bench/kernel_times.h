// bench/kernel_times.h -- the GPU kernels of a piece of work and their times, from libtorch's profiler.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace tandem {

struct KernelTime {
  std::string name;
  int calls = 0;
  double us = 0;  // of all calls
};

// Copies included, longest first. `work` waits for the GPU. A first call with no work before any CUDA graph is made
// lets kernels in graphs be seen.
std::vector<KernelTime> kernel_times(const std::function<void()>& work);

// A line for each of the `most` longest, with its share of the sum of all.
std::string kernel_table(const std::vector<KernelTime>& kernels, size_t most = 25);

}  // namespace tandem
