#include "launch/seat_host.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/errors.h"
#include "launch/local_seat.h"
#include "launch/oom_count.h"
#include "launch/rendezvous.h"
#include "launch/secret.h"
#include "launch/signal_queue.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

constexpr int kTickMs = 20;
constexpr double kStateSeconds = 0.1;
constexpr size_t kBuffers = 3, kMostLog = 64 << 10;

// recipe.toml and logs/ for the worker: gone with the supervisor.
class Folder {
 public:
  Folder() {
    std::string name = (fs::temp_directory_path() / "tandem-seat-XXXXXX").string();
    if (!mkdtemp(name.data()))
      throw IoError(fmt::format("cannot make a folder {}", name), errno, "set TMPDIR to one that is yours");
    path_ = name;
    fs::create_directories(path_ / "logs");
  }
  ~Folder() {
    std::error_code none;
    fs::remove_all(path_, none);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

class SeatHost {
 public:
  explicit SeatHost(const SeatHostRequest& request);
  int run();

 private:
  void heard(const Frame& frame);
  void start(const nlohmann::json& head);
  void to_worker(nlohmann::json body);
  void make_buffers(uint64_t bytes);
  std::span<std::byte> part(const nlohmann::json& head, const char* buffer, uint64_t bytes) const;
  void give(const nlohmann::json& head);
  void relay();
  void send_log();
  void send_state();
  void buried();
  void handle(int signal);
  [[noreturn]] void lost();

  const SeatHostRequest& request_;
  std::unique_ptr<Link> link_;  // first: while it waits for rank 0, Ctrl-C ends it
  SignalQueue signals_;
  Folder folder_;
  std::unique_ptr<LocalSeat> seat_;
  std::vector<SharedMemory> buffers_;
  std::optional<uint64_t> oom_kills_before_ = kernel_oom_kills();
  uint64_t log_sent_ = 0;
  double state_sent_ = 0;
  bool killed_ = false, stop_told_ = false;
  std::optional<int> exit_;
};

SeatHost::SeatHost(const SeatHostRequest& request)
    : request_(request), link_(join_rank_zero(request.place, request.secret, request.version, request.join_seconds)) {
  const int rank = request.place.rank;
  WorkerCommand command{.program = request.worker,
                        .arguments = {"work", folder_.path().string()},
                        .environment = {{"OMP_NUM_THREADS", "1"}, {"MKL_NUM_THREADS", "1"}}};
  seat_ = std::make_unique<LocalSeat>(rank, DeviceSpec{}, std::move(command),
                                      folder_.path() / "logs" / fmt::format("rank-{}.log", rank));
}

void SeatHost::lost() {
  throw Error(ExitCode::kPeerLost, fmt::format("rank {} lost rank 0", request_.place.rank), link_->why_broken(),
              "see what rank 0 said; the run goes on from its newest checkpoint with `tandem resume`");
}

void SeatHost::heard(const Frame& frame) {
  const nlohmann::json& head = frame.head;
  if (head.contains("message")) return to_worker(head.at("message"));
  if (head.contains("start")) return start(head);
  if (head.contains("exit")) exit_ = head.at("exit").get<int>();
  if (head.contains("put")) {
    const std::span<std::byte> to = part(head, "put", frame.bulk.size());
    std::memcpy(to.data(), frame.bulk.data(), to.size());
  }
  if (head.contains("get")) return give(head);
  if (head.contains("buffers")) make_buffers(head.at("buffers"));
  if (!seat_->running()) return;
  if (head.contains("revoke")) seat_->revoke(head.at("revoke"), head.at("cut"));
  if (head.contains("wish")) seat_->wish(head.at("wish"));
  if (head.contains("target")) seat_->post_target(head.at("target"), head.at("nth"), head.at("buffer"));
  if (head.contains("pause")) seat_->pause(head.at("pause"));
  if (head.contains("kill")) {
    killed_ = true;
    seat_->kill();
  }
}

void SeatHost::start(const nlohmann::json& head) {
  std::ofstream(folder_.path() / "recipe.toml") << head.at("recipe").get<std::string>();
  killed_ = false;
  try {
    seat_->start(head.at("replacement"));
  } catch (const Error& error) {
    link_->send({{"ended", fmt::format("cannot be started: {} ({})", error.what(), error.why())},
                 {"by_signal", 0},
                 {"exit_code", 1},
                 {"out_of_memory", false},
                 {"words", ""}});
  }
}

// An order gets what only this host can add: its memory, its address, and the secret that never travels.
void SeatHost::to_worker(nlohmann::json body) {
  if (!seat_->running()) return;
  std::vector<int> fds;
  if (body.contains("order")) {
    make_buffers(body.at("bytes"));
    for (const SharedMemory& buffer : buffers_) fds.push_back(buffer.fd());
    nlohmann::json& mesh = body.at("mesh");
    mesh["address"] = link_->local_address();
    mesh["secret"] = to_hex(mesh_secret_of(request_.secret, request_.place.job, mesh.at("nonce")));
  }
  seat_->send(body, fds);
}

void SeatHost::make_buffers(uint64_t bytes) {
  if (buffers_.size() == kBuffers) return;
  for (size_t i = 0; i < kBuffers; ++i) buffers_.push_back(SharedMemory::create("tandem-snapshot", bytes));
}

std::span<std::byte> SeatHost::part(const nlohmann::json& head, const char* buffer, uint64_t bytes) const {
  const uint64_t at = head.at("at"), index = head.at(buffer);
  if (index >= buffers_.size() || at > buffers_[index].bytes().size() || bytes > buffers_[index].bytes().size() - at)
    throw Error(ExitCode::kFailed, "rank 0 named a part of a snapshot that does not exist",
                "the two are not of one mind", "please report it");
  return buffers_[index].bytes().subspan(at, bytes);
}

void SeatHost::give(const nlohmann::json& head) {
  const uint64_t total = head.at("bytes"), at = head.at("at");
  const std::span<const std::byte> bytes = part(head, "get", total);
  for (uint64_t done = 0; done < total;) {
    const uint64_t count = std::min(kPieceBytes, total - done);
    link_->send({{"got", head.at("get")}, {"at", at + done}, {"id", head.at("id")}, {"last", done + count == total}},
                {reinterpret_cast<const char*>(bytes.data()) + done, static_cast<size_t>(count)});
    done += count;
  }
}

void SeatHost::relay() {
  const auto send_records = [&] {
    nlohmann::json records = nlohmann::json::array();
    while (const auto record = seat_->pop_record()) records.push_back(*record);
    if (!records.empty()) link_->send({{"records", records}});
  };
  while (auto message = seat_->receive()) {
    for (const int fd : message->fds) close(fd);
    send_records();  // what it had recorded when it said this: its last snapshot may end the run
    link_->send({{"message", message->body}});
  }
  send_records();
}

void SeatHost::send_log() {
  std::ifstream file(seat_->log_name(), std::ios::binary);
  file.seekg(static_cast<std::streamoff>(log_sent_));
  std::string text(kMostLog, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(std::max<std::streamsize>(0, file.gcount())));
  if (text.empty()) return;
  log_sent_ += text.size();
  link_->send({{"log", true}}, text);
}

void SeatHost::send_state() {
  state_sent_ = monotonic_seconds();
  link_->send({{"state", to_json(seat_->state())}});
}

// The worker is gone: what it said last, where it was, why.
void SeatHost::buried() {
  relay();
  send_log();
  send_state();
  const std::string words = seat_->last_words();
  const auto oom_kills = kernel_oom_kills();
  const bool oom = oom_kills && oom_kills_before_ && *oom_kills > *oom_kills_before_;
  oom_kills_before_ = oom_kills;
  const Death death = seat_->bury(killed_, oom);
  link_->send({{"ended", death.cause},
               {"by_signal", death.signal},
               {"exit_code", death.exit_code},
               {"out_of_memory", death.out_of_memory},
               {"words", words}});
}

// Stopping is rank 0's to do: all ranks finish the step and save it. torchrun and mpirun signal everybody, but a node's
// own agent may signal its ranks alone.
void SeatHost::handle(int signal) {
  if (signal != SIGINT && signal != SIGTERM && signal != SIGHUP) return;
  if (std::exchange(stop_told_, true)) return;
  link_->send({{"signal", signal}});
}

int SeatHost::run() {
  while (true) {
    std::vector<pollfd> waits{{signals_.fd(), POLLIN, 0}, {link_->poll_fd(), POLLIN, 0}};
    if (seat_->running())
      for (const int fd : seat_->poll_fds()) waits.push_back({fd, POLLIN, 0});
    poll(waits.data(), waits.size(), kTickMs);
    while (const auto signal = signals_.next()) handle(*signal);
    link_->pump();
    while (const auto frame = link_->next()) heard(*frame);
    if (exit_) break;
    if (link_->broken()) lost();
    if (seat_->running()) relay();
    if (seat_->running() && seat_->has_ended()) buried();
    if (monotonic_seconds() - state_sent_ >= kStateSeconds) {
      if (seat_->running()) {
        send_log();
        send_state();
      } else {
        state_sent_ = monotonic_seconds();
        link_->send({{"alive", true}});
      }
    }
  }
  if (seat_->running()) {
    seat_->kill();
    seat_->bury(true, false);
  }
  send_log();
  link_->close_gently(2);
  return *exit_;
}

}  // namespace

nlohmann::json to_json(const WorkerState& s) {
  return {s.generation, s.shards_run, s.compute_ns, s.beats, s.step, static_cast<int>(s.stage),
          s.phase,      s.shard,      s.stopped};
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
          .stopped = json.at(8)};
}

int host_seat(const SeatHostRequest& request) { return SeatHost(request).run(); }

}  // namespace tandem
