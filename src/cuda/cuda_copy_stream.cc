#include "cuda/cuda_copy_stream.h"

#include <fmt/format.h>

#include <vector>

#include "kernels/gpu/kernels.h"

namespace tandem::cuda {
namespace {

void check_upload(cudaError_t error) {
  if (error == cudaSuccess) return;
  cudaGetLastError();  // cleared, or the next call would report it again
  throw CudaError(static_cast<int>(error), fmt::format("uploading to the GPU: {}", cudaGetErrorString(error)));
}

class UploadStream : public CopyStream {
 public:
  explicit UploadStream(cudaStream_t work) : work_(work) {
    // Non-blocking: the default stream, which libraries may use, would make it wait for everything.
    check_upload(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    work_done_ = new_event();
  }
  ~UploadStream() override {
    UploadStream::wait();
    for (const cudaEvent_t event : slots_) cudaEventDestroy(event);
    if (work_done_) cudaEventDestroy(work_done_);
    cudaStreamDestroy(stream_);
  }
  void upload(void* dst, const void* host, size_t bytes) override {
    if (bytes) check_upload(cudaMemcpyAsync(dst, host, bytes, cudaMemcpyHostToDevice, stream_));
  }
  void record(int slot) override {
    while (static_cast<int>(slots_.size()) <= slot) slots_.push_back(new_event());
    check_upload(cudaEventRecord(slots_[static_cast<size_t>(slot)], stream_));
  }
  bool done(int slot) override {
    const cudaError_t state = cudaEventQuery(slots_.at(static_cast<size_t>(slot)));
    if (state != cudaErrorNotReady) check_upload(state);
    return state == cudaSuccess;
  }
  void work_waits_for(int slot) override {
    check_upload(cudaStreamWaitEvent(work_, slots_.at(static_cast<size_t>(slot)), 0));
  }
  void uploads_wait_for_work() override {
    check_upload(cudaEventRecord(work_done_, work_));
    check_upload(cudaStreamWaitEvent(stream_, work_done_, 0));
  }
  void wait() noexcept override {
    if (cudaStreamSynchronize(stream_) != cudaSuccess) cudaGetLastError();
  }

 private:
  static cudaEvent_t new_event() {
    cudaEvent_t event = nullptr;
    check_upload(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    return event;
  }

  cudaStream_t work_, stream_ = nullptr;
  cudaEvent_t work_done_ = nullptr;
  std::vector<cudaEvent_t> slots_;
};

}  // namespace

std::unique_ptr<CopyStream> make_copy_stream(cudaStream_t work) { return std::make_unique<UploadStream>(work); }

}  // namespace tandem::cuda
