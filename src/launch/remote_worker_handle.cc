#include "launch/remote_worker_handle.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/errors.h"
#include "base/plain_file.h"
#include "base/printable.h"
#include "launch/worker_host.h"

namespace tandem {
namespace {

constexpr double kSilentSeconds = 10;

// A log that can't be written must not cost a worker.
void append_to_log(const std::filesystem::path& log, std::string_view text) {
  try {
    const int fd = open_plain_file(log, O_WRONLY | O_APPEND, 0644);
    [[maybe_unused]] const auto written = write(fd, text.data(), text.size());
    close(fd);
  } catch (const Error&) {
  }
}

}  // namespace

RemoteWorkerHandle::RemoteWorkerHandle(int rank, DeviceSpec device, Link& link, std::string host,
                                       std::string recipe_toml, std::filesystem::path log)
    : WorkerHandle(rank, device),
      link_(link),
      host_(std::move(host)),
      recipe_toml_(std::move(recipe_toml)),
      log_(std::move(log)) {
  heard_at_ = looked_at_ = monotonic_seconds();
}

void RemoteWorkerHandle::start(bool replacement) {
  ++starts_;
  nlohmann::json head{{"start", true}, {"replacement", replacement}, {"recipe", recipe_toml_}};
  if (device().kind == DeviceSpec::Kind::kCuda) head["card"] = device().by_local_rank ? -1 : device().index;
  post(std::move(head));
  append_to_log(log_, "");  // there even if the worker says nothing
  running_ = true;
  ended_ = arrived = false;
  state_ = {};
  messages_.clear();
  records_.clear();
  last_words_.clear();
  failed_kind.clear();
  failed_why.clear();
  started_at = monotonic_seconds();
}

void RemoteWorkerHandle::post(nlohmann::json head) {
  head["of"] = starts_;
  link_.send(head);
}

// Whatever has come by now. Asked by callers that only want to know: the link is not part of what they see.
void RemoteWorkerHandle::take_in() {
  const double now = monotonic_seconds();
  if (now - looked_at_ > 1) heard_at_ = now;  // it was we who did not look
  looked_at_ = now;
  link_.pump();
  while (auto frame = link_.next()) {
    heard_at_ = now;
    try {
      heard(*frame);
    } catch (const nlohmann::json::exception& error) {
      lost_ = fmt::format("it sent what makes no sense: {}", error.what());
    }
  }
  if (link_.broken() && lost_.empty()) lost_ = link_.why_broken();
  if (now - heard_at_ > kSilentSeconds && lost_.empty())
    lost_ = fmt::format("it has been silent for {:.0f} s", kSilentSeconds);
}

void RemoteWorkerHandle::heard(Frame& frame) {
  const nlohmann::json& head = frame.head;
  if (head.value("of", starts_) != starts_) return;  // of a worker that was given up
  if (head.contains("message")) {
    messages_.push_back(head.at("message"));
  } else if (head.contains("state")) {
    state_ = state_from(head.at("state"));
  } else if (head.contains("records")) {
    for (const nlohmann::json& record : head.at("records")) records_.push_back(record);
  } else if (head.contains("got")) {
    if (on_bytes_) on_bytes_(head.at("got"), head.at("at"), frame.bulk, head.at("id"), head.at("last"));
  } else if (head.contains("log")) {
    append_to_log(log_, frame.bulk);
  } else if (head.contains("signal")) {
    signal_ = head.at("signal").get<int>();
  } else if (head.contains("ended")) {
    ended_ = true;
    death_ = {head.at("ended"), head.at("by_signal"), head.at("exit_code"), head.at("out_of_memory")};
    last_words_ = printable(head.at("words").get<std::string>());
  }
}

bool RemoteWorkerHandle::has_ended() const {
  const_cast<RemoteWorkerHandle*>(this)->take_in();
  return running_ && (ended_ || !lost_.empty());
}

Death RemoteWorkerHandle::reap(bool, bool) {
  Death death = ended_ ? death_ : Death{.cause = fmt::format("can't be reached on {}: {}", host_, lost_)};
  running_ = arrived = false;
  use_own_words(death);
  return death;
}

void RemoteWorkerHandle::send(const nlohmann::json& body, const std::vector<int>&) { post({{"message", body}}); }

std::optional<Message> RemoteWorkerHandle::receive() {
  take_in();
  if (messages_.empty()) return std::nullopt;
  Message message{std::move(messages_.front()), {}};
  messages_.pop_front();
  return message;
}

std::optional<std::string> RemoteWorkerHandle::pop_record() {
  if (records_.empty()) return std::nullopt;
  std::string record = std::move(records_.front());
  records_.pop_front();
  return record;
}

Progress RemoteWorkerHandle::progress() const {
  return {state_.generation, state_.shards_run, state_.compute_ns, state_.step, state_.phase};
}

WorkerFacts RemoteWorkerHandle::facts(uint64_t newest_generation) const {
  return {.rank = rank(),
          .beats = state_.beats,
          .stage = state_.stage,
          .phase = state_.phase,
          .stopped = state_.stopped,
          .in_newest_generation = state_.generation == newest_generation};
}

std::string RemoteWorkerHandle::host_lost() {
  take_in();
  return lost_.empty() ? "" : fmt::format("{}: {}", host_, lost_);
}

void RemoteWorkerHandle::put(int buffer, uint64_t at, std::span<const std::byte> bytes) {
  for (uint64_t done = 0; done < bytes.size();) {
    const uint64_t count = std::min<uint64_t>(kChunkBytes, bytes.size() - done);
    link_.send({{"put", buffer}, {"at", at + done}},
               {reinterpret_cast<const char*>(bytes.data()) + done, static_cast<size_t>(count)});
    done += count;
  }
}

void RemoteWorkerHandle::get(int buffer, uint64_t at, uint64_t bytes, uint64_t id) {
  link_.send({{"get", buffer}, {"at", at}, {"bytes", bytes}, {"id", id}});
}

}  // namespace tandem
