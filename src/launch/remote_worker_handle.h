// launch/remote_worker_handle.h -- a worker that another machine's supervisor (launch/worker_host.h) holds for this
// launcher.
//
// Everything goes over one link. What the launcher reads at any time (progress, facts) is what the supervisor reported
// last, ten times a second. Every start is numbered, and what is said to a worker or of it carries the number: what a
// dead one left on the way is never taken for its successor's. It also moves parts of snapshots between this launcher's
// memory and that host's.
#pragma once

#include <deque>
#include <filesystem>
#include <functional>

#include "launch/link.h"
#include "launch/worker_handle.h"

namespace tandem {

class RemoteWorkerHandle : public WorkerHandle {
 public:
  // `recipe_toml`: what the worker there is to train. Its log is kept in `log`, here.
  RemoteWorkerHandle(int rank, DeviceSpec device, Link& link, std::string host, std::string recipe_toml,
                     std::filesystem::path log);

  void start(bool replacement) override;
  bool running() const override { return running_; }
  bool has_ended() const override;
  void kill() override { post({{"kill", true}}); }
  Death reap(bool fenced, bool oom_counted) override;
  void pause(bool stop) override { post({{"pause", stop}}); }
  std::vector<int> poll_fds() const override { return {link_.poll_fd()}; }
  void send(const nlohmann::json& body, const std::vector<int>& fds) override;
  std::optional<Message> receive() override;
  void revoke(uint64_t generation, int64_t cut) override { post({{"revoke", generation}, {"cut", cut}}); }
  void post_request(uint64_t packed) override { post({{"wish", packed}}); }
  void post_target(uint64_t generation, uint64_t nth, unsigned buffer) override {
    post({{"target", generation}, {"nth", nth}, {"buffer", buffer}});
  }
  std::optional<std::string> pop_record() override;
  Progress progress() const override;
  RankTimes times() const override { return state_.times; }
  WorkerFacts facts(uint64_t newest_generation) const override;
  std::string position(const std::vector<std::string>& phases) const override { return position_text(state_, phases); }
  std::string last_words() const override { return last_words_; }
  std::string log_name() const override { return log_.string(); }
  std::string host_lost() override;
  std::optional<int> take_signal() override { return std::exchange(signal_, std::nullopt); }

  // ---- parts of snapshots ----
  void make_buffers(uint64_t bytes) { link_.send({{"buffers", bytes}}); }  // before its first generation
  // Whoever still writes there does it for nobody; what it held is gone.
  void replace_buffer(int buffer) { link_.send({{"replace", buffer}}); }
  void put(int buffer, uint64_t at, std::span<const std::byte> bytes);  // into that host's buffer
  void get(int buffer, uint64_t at, uint64_t bytes, uint64_t id);       // asks for them; on_bytes is called
  // Bytes that came for get(id); `last`: nothing more will.
  using OnBytes = std::function<void(int buffer, uint64_t at, std::string_view bytes, uint64_t id, bool last)>;
  void on_bytes(OnBytes call) { on_bytes_ = std::move(call); }

 private:
  void post(nlohmann::json head);  // of this start
  void take_in();
  void heard(Frame& frame);

  Link& link_;
  std::string host_, recipe_toml_;
  std::filesystem::path log_;
  uint64_t starts_ = 0;
  bool running_ = false, ended_ = false;
  WorkerState state_;
  Death death_;
  std::string last_words_, lost_;
  std::deque<nlohmann::json> messages_;
  std::deque<std::string> records_;
  std::optional<int> signal_;
  OnBytes on_bytes_;
  double heard_at_ = 0, looked_at_ = 0;
};

}  // namespace tandem
