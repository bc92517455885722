// kernels/gpu/profile.cu -- how long each kernel of a queue of work takes.
#include <vector>

#include "kernels/gpu/launch.h"
#include "kernels/gpu/profile.h"

namespace tandem::cuda {
namespace {

// Keeps the stream busy until the host sets *released.
__global__ void hold(volatile int* released) {
  while (*released == 0) {
  }
}

struct NamedEvent {
  std::string name;
  cudaEvent_t event;
};
std::vector<NamedEvent> marks;
Stream profiled_stream;

void mark(const char* name) {
  cudaEvent_t event = nullptr;
  cudaEventCreate(&event);
  cudaEventRecord(event, profiled_stream);
  marks.push_back({name, event});
}

}  // namespace

std::vector<std::pair<std::string, double>> profile(Stream stream, const std::function<void()>& work) {
  int* released = nullptr;
  cudaHostAlloc(&released, sizeof(int), cudaHostAllocMapped);
  if (!released) throw CudaError(static_cast<int>(cudaGetLastError()), "no pinned memory to profile with");
  *released = 0;
  profiled_stream = stream;
  hold<<<1, 1, 0, stream>>>(released);  // until all is queued: launch latency on the host is not measured
  mark("");
  launch_watch = mark;
  {
    const struct Release {  // however work() ends: the GPU must not spin for ever
      int* released;
      ~Release() {
        launch_watch = nullptr;
        *static_cast<volatile int*>(released) = 1;
      }
    } release{released};
    work();
  }
  cudaStreamSynchronize(stream);
  std::vector<std::pair<std::string, double>> seconds;
  for (size_t i = 0; i + 1 < marks.size(); ++i) {
    float ms = 0;
    cudaEventElapsedTime(&ms, marks[i].event, marks[i + 1].event);
    seconds.emplace_back(marks[i + 1].name, 1e-3 * static_cast<double>(ms));
  }
  for (const NamedEvent& m : marks) cudaEventDestroy(m.event);
  marks.clear();
  cudaFreeHost(released);
  return seconds;
}

}  // namespace tandem::cuda
