#include "reduce/nccl_comm.h"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <future>
#include <thread>
#include <utility>

namespace tandem {

NcclComm::NcclComm(std::shared_ptr<const NcclLibrary> library, NcclGpu gpu, const NcclTimes& times,
                   std::function<void(const std::string&)> stuck)
    : library_(std::move(library)), gpu_(std::move(gpu)), times_(times), stuck_(std::move(stuck)) {}

NcclComm::~NcclComm() { abort(); }

bool NcclComm::under_watch(const char* what, const std::function<void()>& call) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(times_.abort_seconds);
  std::promise<void> promise;
  std::future<void> back = promise.get_future();
  std::thread thread([&] {
    call();
    promise.set_value();
  });
  if (back.wait_until(end) != std::future_status::ready) {
    stuck_(fmt::format("{} did not come back in {:g} s", what, times_.abort_seconds));
    _exit(1);  // the thread still uses what stands above
  }
  thread.join();
  while (!gpu_.idle()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  return true;
}

void NcclComm::form(const NcclId& id, int members, int me) {
  NcclConfig config;
  const int said = library_->comm_init_rank_config(&handle_, members, id, me, &config);
  if (said != kNcclSuccess && said != kNcclInProgress) refused_ = said;
}

void NcclComm::shrink(std::vector<int> without) {
  child_ = std::make_unique<NcclLibrary::Comm>(nullptr);
  int said = kNcclSuccess;
  const bool freed = under_watch("NCCL's shrink", [&] {
    NcclConfig config;
    said = library_->comm_shrink(handle_, without.data(), static_cast<int>(without.size()), child_.get(), &config,
                                 NcclLibrary::kShrinkAbort);
  });
  if (!freed || (said != kNcclSuccess && said != kNcclInProgress)) {
    abort();
    refused_ = said != kNcclSuccess ? said : kNcclInternalError;
  }
}

int NcclComm::result() {
  if (refused_ != kNcclSuccess || !handle_) return refused_;
  int now = kNcclSuccess;
  if (const int said = library_->comm_get_async_error(handle_, &now); said != kNcclSuccess) now = said;
  if (now != kNcclSuccess || !child_) return now;
  if (!*child_) return kNcclInProgress;
  const NcclLibrary::Comm parent = std::exchange(handle_, *child_);
  child_.reset();
  stop([&] { library_->comm_abort(parent); });
  return result();
}

void NcclComm::stop(const std::function<void()>& call) {
  if (under_watch("NCCL's abort", call)) return;
  stuck_(fmt::format("work of NCCL stayed on the GPU for {:g} s after its abort", times_.abort_seconds));
  _exit(1);
}

void NcclComm::abort() {
  const NcclLibrary::Comm handle = std::exchange(handle_, nullptr);
  if (!handle) return;
  stop([&] {
    library_->comm_abort(handle);  // of a parent: it stops the forming of its child as well
    if (child_ && *child_) library_->comm_abort(*child_);
  });
  child_.reset();
}

}  // namespace tandem
