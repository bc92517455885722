// launch/local_worker_handle.h -- a worker process of this machine: forked from here, with an inherited channel and
// page.
#pragma once

#include <memory>

#include "base/shared_memory.h"
#include "fleet/worker_page.h"
#include "launch/worker_handle.h"
#include "launch/worker_process.h"

namespace tandem {

class LocalWorkerHandle : public WorkerHandle {
 public:
  // `command` without what belongs to this rank.
  LocalWorkerHandle(int rank, DeviceSpec device, WorkerCommand command, std::filesystem::path log)
      : WorkerHandle(rank, device), command_(std::move(command)), log_(std::move(log)) {}

  void start(bool replacement) override;
  bool running() const override { return process_ != nullptr; }
  bool has_ended() const override { return process_ && process_->ended(); }
  void kill() override { process_->kill_group(); }
  Death reap(bool fenced, bool oom_counted) override;
  void pause(bool stop) override;
  void release() override;
  std::vector<int> poll_fds() const override;
  void send(const nlohmann::json& body, const std::vector<int>& fds) override { channel_.send(body, fds); }
  std::optional<Message> receive() override;
  void revoke(uint64_t generation, int64_t cut) override { page().revoke(generation, cut); }
  void post_request(uint64_t packed) override { page().request.store(packed, std::memory_order_release); }
  void post_target(uint64_t generation, uint64_t nth, unsigned buffer) override {
    page().post_target(generation, nth, buffer);
  }
  std::optional<std::string> pop_record() override { return page().pop(); }
  Progress progress() const override;
  RankTimes times() const override { return times_in(page()); }
  WorkerFacts facts(uint64_t newest_generation) const override;
  std::string position(const std::vector<std::string>& phases) const override;
  std::string last_words() const override;
  std::string log_name() const override { return log_.string(); }

  static constexpr int64_t kLastWordsBytes = 64 << 10;  // of its log are looked at for them
  void work_in(const std::filesystem::path& folder) { command_.arguments = {"work", folder.string()}; }
  WorkerState state() const;
  pid_t pid() const override { return process_ ? process_->pid() : -1; }
  WorkerPage& page() const { return *reinterpret_cast<WorkerPage*>(page_memory_.bytes().data()); }

 private:
  WorkerCommand command_;
  std::filesystem::path log_;
  uint64_t log_begin_ = 0;
  std::unique_ptr<WorkerProcess> process_;
  Channel channel_;
  SharedMemory page_memory_;
};

}  // namespace tandem
