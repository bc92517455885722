#include "launch/worker_host.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/cores.h"
#include "base/errors.h"
#include "launch/local_worker_handle.h"
#include "launch/oom_count.h"
#include "launch/rendezvous.h"
#include "launch/secret.h"
#include "launch/signal_queue.h"
#include "launch/worker_folder.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

constexpr int kHostTickMs = 20;
constexpr double kStateSeconds = 0.1, kKillSeconds = 1;
constexpr size_t kBuffers = 3, kMostLog = 64 << 10;

// A worker's log until it was sent: in memory, so that neither a full disk nor a killed supervisor matters.
class Log {
 public:
  Log() : fd_(memfd_create("tandem-log", MFD_CLOEXEC)) {
    if (fd_ < 0) throw IoError("cannot make a log for the worker", errno, "close other programs and try again");
  }
  ~Log() { close(fd_); }
  Log(const Log&) = delete;
  Log& operator=(const Log&) = delete;
  fs::path path() const { return fmt::format("/proc/self/fd/{}", fd_); }

  // What was written since the last call, at most so much. A worker's last words stay readable.
  std::string next(size_t most) {
    std::string text(most, '\0');
    const ssize_t got = pread(fd_, text.data(), text.size(), taken_);
    text.resize(got > 0 ? static_cast<size_t>(got) : 0);
    taken_ += static_cast<off_t>(text.size());
    const off_t done = taken_ - LocalWorkerHandle::kLastWordsBytes;
    if (done > 0) fallocate(fd_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, done);
    return text;
  }

 private:
  int fd_;
  off_t taken_ = 0;
};

class WorkerHost {
 public:
  explicit WorkerHost(const WorkerHostRequest& request);
  int run();

 private:
  void heard(const Frame& frame);
  void start(const nlohmann::json& head);
  void report(nlohmann::json head);  // of the worker that runs, or ran last
  void end_worker();
  void to_worker(nlohmann::json body);
  void make_buffers(uint64_t bytes);
  void replace_buffer(size_t buffer);
  std::span<std::byte> part(const nlohmann::json& head, const char* buffer, uint64_t bytes) const;
  void give(const nlohmann::json& head);
  void relay();
  void send_log();
  void send_state();
  void reaped();
  void handle(int signal);
  [[noreturn]] void lost();

  const WorkerHostRequest& request_;
  std::unique_ptr<Link> link_;  // first: while it waits for rank 0, Ctrl-C ends it
  SignalQueue signals_;
  Log log_;
  std::optional<WorkerFolder> folder_;  // while the worker starts
  std::unique_ptr<LocalWorkerHandle> handle_;
  std::vector<SharedMemory> buffers_;
  std::optional<uint64_t> oom_kills_before_ = kernel_oom_kills();
  uint64_t start_ = 0;  // which of them runs, or ran last
  double state_sent_ = 0;
  bool killed_ = false, stop_reported_ = false;
  std::optional<int> exit_;
};

WorkerHost::WorkerHost(const WorkerHostRequest& request)
    : request_(request), link_(join_rank_zero(request.info, request.secret, request.build, request.join_seconds)) {
  const int rank = request.info.rank;
  WorkerCommand command{.program = request.build.worker,
                        .arguments = {},
                        .environment = {{"OMP_NUM_THREADS", "1"},
                                        {"MKL_NUM_THREADS", "1"},
                                        {kWorkerCores, std::to_string(cores_of_worker(1, request.info.local_size))}}};
  handle_ = std::make_unique<LocalWorkerHandle>(rank, DeviceSpec{}, std::move(command), log_.path());
  WorkerFolder::sweep();
}

void WorkerHost::lost() {
  throw Error(ExitCode::kPeerLost, fmt::format("rank {} lost rank 0", request_.info.rank), link_->why_broken(),
              "see what rank 0 said; the run goes on from its newest checkpoint with `tandem resume`");
}

void WorkerHost::heard(const Frame& frame) {
  const nlohmann::json& head = frame.head;
  if (head.contains("start")) return start(head);
  if (head.value("of", start_) != start_) return;  // meant for one that is gone
  if (head.contains("message")) return to_worker(head.at("message"));
  if (head.contains("exit")) exit_ = head.at("exit").get<int>();
  if (head.contains("put")) {
    const std::span<std::byte> to = part(head, "put", frame.bulk.size());
    std::memcpy(to.data(), frame.bulk.data(), to.size());
  }
  if (head.contains("get")) return give(head);
  if (head.contains("buffers")) make_buffers(head.at("buffers"));
  if (head.contains("replace")) replace_buffer(head.at("replace"));
  if (!handle_->running()) return;
  if (head.contains("revoke")) handle_->revoke(head.at("revoke"), head.at("cut"));
  if (head.contains("wish")) handle_->post_request(head.at("wish"));
  if (head.contains("target")) handle_->post_target(head.at("target"), head.at("nth"), head.at("buffer"));
  if (head.contains("pause")) handle_->pause(head.at("pause"));
  if (head.contains("kill")) {
    killed_ = true;
    handle_->kill();
  }
}

void WorkerHost::report(nlohmann::json head) {
  head["of"] = start_;
  link_->send(head);
}

// Whoever hangs in the kernel is not waited for: its memory is replaced, and what it says has an old number.
void WorkerHost::end_worker() {
  if (!handle_->running()) return;
  handle_->kill();
  for (const double end = monotonic_seconds() + kKillSeconds; !handle_->has_ended() && monotonic_seconds() < end;) {
    const timespec moment{0, 1'000'000};
    nanosleep(&moment, nullptr);
  }
  handle_->reap(true, false);
}

void WorkerHost::start(const nlohmann::json& head) {
  end_worker();  // rank 0 waits for it no longer
  start_ = head.at("of");
  killed_ = false;
  try {
    if (const auto gpu = head.find("card"); gpu != head.end()) {
      const int number = gpu->get<int>();
      handle_->drive(number < 0 ? gpu_of_local_rank(request_.info.local_rank) : gpu_here(number));
    }
    folder_.emplace(head.at("recipe"));
    handle_->work_in(folder_->path());
    handle_->start(head.at("replacement"));
  } catch (const Error& error) {
    folder_.reset();
    report({{"ended", fmt::format("cannot be started: {} ({})", error.what(), error.why())},
            {"by_signal", 0},
            {"exit_code", 1},
            {"out_of_memory", false},
            {"words", ""}});
  }
}

// The start of a generation gets what only this host can add: its memory, its address, and the secret that never
// travels.
void WorkerHost::to_worker(nlohmann::json body) {
  if (!handle_->running()) return;
  std::vector<int> fds;
  if (body.contains("order")) {
    make_buffers(body.at("bytes"));
    for (const SharedMemory& buffer : buffers_) fds.push_back(buffer.fd());
    nlohmann::json& mesh = body.at("mesh");
    mesh["address"] = link_->local_address();
    mesh["secret"] = to_hex(mesh_secret_of(request_.secret, request_.info.job, mesh.at("nonce")));
  }
  handle_->send(body, fds);
}

void WorkerHost::make_buffers(uint64_t bytes) {
  if (buffers_.size() == kBuffers) return;
  for (size_t i = 0; i < kBuffers; ++i) buffers_.push_back(SharedMemory::create("tandem-snapshot", bytes));
}

void WorkerHost::replace_buffer(size_t buffer) {
  if (buffer >= buffers_.size()) return;  // none are made yet
  buffers_[buffer] = SharedMemory::create("tandem-snapshot", buffers_[buffer].bytes().size());
}

std::span<std::byte> WorkerHost::part(const nlohmann::json& head, const char* buffer, uint64_t bytes) const {
  const uint64_t at = head.at("at"), index = head.at(buffer);
  if (index >= buffers_.size() || at > buffers_[index].bytes().size() || bytes > buffers_[index].bytes().size() - at)
    throw Error(ExitCode::kFailed, "rank 0 named a part of a snapshot that does not exist",
                "the two are not of one mind", "please report it");
  return buffers_[index].bytes().subspan(at, bytes);
}

void WorkerHost::give(const nlohmann::json& head) {
  const uint64_t total = head.at("bytes"), at = head.at("at");
  const std::span<const std::byte> bytes = part(head, "get", total);
  for (uint64_t done = 0; done < total;) {
    const uint64_t count = std::min(kChunkBytes, total - done);
    link_->send({{"got", head.at("get")}, {"at", at + done}, {"id", head.at("id")}, {"last", done + count == total}},
                {reinterpret_cast<const char*>(bytes.data()) + done, static_cast<size_t>(count)});
    done += count;
  }
}

void WorkerHost::relay() {
  const auto send_records = [&] {
    nlohmann::json records = nlohmann::json::array();
    while (const auto record = handle_->pop_record()) records.push_back(*record);
    if (!records.empty()) report({{"records", records}});
  };
  while (auto message = handle_->receive()) {
    for (const int fd : message->fds) close(fd);
    send_records();  // what it had recorded when it said this: its last snapshot may end the run
    if (message->body.contains("hello")) folder_.reset();
    report({{"message", message->body}});
  }
  send_records();
}

void WorkerHost::send_log() {
  const std::string text = log_.next(kMostLog);
  if (!text.empty()) link_->send({{"log", true}}, text);
}

void WorkerHost::send_state() {
  state_sent_ = monotonic_seconds();
  report({{"state", to_json(handle_->state())}});
}

// The worker is gone: what it said last, where it was, why.
void WorkerHost::reaped() {
  relay();
  send_log();
  send_state();
  const std::string words = handle_->last_words();
  const auto oom_kills = kernel_oom_kills();
  const bool oom = oom_kills && oom_kills_before_ && *oom_kills > *oom_kills_before_;
  oom_kills_before_ = oom_kills;
  const Death death = handle_->reap(killed_, oom);
  folder_.reset();
  report({{"ended", death.cause},
          {"by_signal", death.signal},
          {"exit_code", death.exit_code},
          {"out_of_memory", death.out_of_memory},
          {"words", words}});
}

// Stopping is rank 0's to do: all ranks finish the step and save it. torchrun and mpirun signal everybody, but a node's
// own agent may signal its ranks alone.
void WorkerHost::handle(int signal) {
  if (signal != SIGINT && signal != SIGTERM && signal != SIGHUP) return;
  if (std::exchange(stop_reported_, true)) return;
  link_->send({{"signal", signal}});
}

int WorkerHost::run() {
  while (true) {
    std::vector<pollfd> waits{{signals_.fd(), POLLIN, 0}, {link_->poll_fd(), POLLIN, 0}};
    if (handle_->running())
      for (const int fd : handle_->poll_fds()) waits.push_back({fd, POLLIN, 0});
    poll(waits.data(), waits.size(), kHostTickMs);
    while (const auto signal = signals_.next()) handle(*signal);
    link_->pump();
    while (const auto frame = link_->next()) heard(*frame);
    if (exit_) break;
    if (link_->broken()) lost();
    if (handle_->running()) relay();
    if (handle_->running() && handle_->has_ended()) reaped();
    if (monotonic_seconds() - state_sent_ >= kStateSeconds) {
      if (handle_->running()) {
        send_log();
        send_state();
      } else {
        state_sent_ = monotonic_seconds();
        link_->send({{"alive", true}});
      }
    }
  }
  end_worker();
  send_log();
  link_->close_gently(2);
  return *exit_;
}

}  // namespace

nlohmann::json to_json(const WorkerState& s) {
  return {s.generation, s.shards_run, s.compute_ns, s.beats,         s.step, static_cast<int>(s.stage),
          s.phase,      s.shard,      s.stopped,    to_json(s.times)};
}

WorkerState state_from(const nlohmann::json& json) {
  return {.generation = json.at(0),
          .shards_run = json.at(1),
          .compute_ns = json.at(2),
          .beats = json.at(3),
          .step = json.at(4),
          .stage = static_cast<Stage>(std::min(json.at(5).get<uint32_t>(), static_cast<uint32_t>(Stage::kIdle))),
          .phase = json.at(6),
          .shard = json.at(7),
          .stopped = json.at(8),
          .times = times_from(json.at(9))};
}

int host_worker(const WorkerHostRequest& request) { return WorkerHost(request).run(); }

}  // namespace tandem
