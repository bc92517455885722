// kernels/gpu/hang.cu -- a kernel that never ends: what a GPU that stops answering looks like, for tests.
#include "kernels/gpu/launch.h"

namespace tandem::cuda {
namespace {

__global__ void spin(volatile int* told) {
  while (*told == 0) {
  }
}

}  // namespace

void hang(Stream stream) {
  int* told = nullptr;
  cudaHostAlloc(&told, sizeof(int), cudaHostAllocMapped);  // nobody ever tells
  if (told) *told = 0;
  spin<<<1, 1, 0, stream>>>(told);
  check_launch("hang");
}

}  // namespace tandem::cuda
