// kernels/gpu/hang.cu -- a kernel that never ends: what a GPU that stops answering looks like, for tests.
#include "kernels/gpu/launch.h"

namespace tandem::cuda {
namespace {

__global__ void spin(volatile int* released) {
  while (*released == 0) {
  }
}

}  // namespace

void hang(Stream stream) {
  int* released = nullptr;
  cudaHostAlloc(&released, sizeof(int), cudaHostAllocMapped);  // never set
  if (released) *released = 0;
  spin<<<1, 1, 0, stream>>>(released);
  check_launch("hang");
}

}  // namespace tandem::cuda
