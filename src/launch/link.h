// launch/link.h -- the connection between rank 0's launcher and the supervisor of another rank: TCP, frames, proofs.
//
// Before anything else is said, both sides prove that they know the user's secret, for this job and this rank, by a
// challenge (docs/launchers.md): an earlier conversation, played again, proves nothing. From a stranger at most 116
// bytes are read, into fixed fields, and nothing is parsed. Afterwards every frame carries an HMAC under a key of this
// conversation, so nobody in between can add or change one. Nothing is encrypted.
//
//   frame = u32 bytes of head | u32 bytes of bulk | head (JSON) | bulk | HMAC of all this and the frame's number
#pragma once

#include <cstdint>
#include <deque>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>

namespace tandem {

struct Frame {
  nlohmann::json head;
  std::string bulk;
};

// ---- frames: pure ----

inline constexpr uint32_t kMostHead = 64 << 20, kMostBulk = 4 << 20;

// `key` empty: no proof is added or asked for (what the fuzzer reads).
std::string encode_frame(const nlohmann::json& head, std::string_view bulk, const std::string& key, uint64_t number);

class FrameReader {
 public:
  explicit FrameReader(std::string key) : key_(std::move(key)) {}
  void feed(std::string_view bytes) { waiting_.append(bytes); }
  // The next whole frame. Throws std::runtime_error for one that is too large, not authentic or not JSON; nothing more
  // can be read then.
  std::optional<Frame> next();

 private:
  std::string key_, waiting_;
  size_t begin_ = 0;  // of what is not read yet
  uint64_t number_ = 0;
};

// ---- the handshake ----

struct Credentials {
  std::string secret, job;
  int size = 1;
};

struct SessionKeys {
  std::string from_client, from_server;
};

// The server's side, without a socket: bytes in, bytes out. For whoever connects, one of these.
class Greeting {
 public:
  enum class State { kHello, kProof, kProved, kRefused };
  static constexpr size_t kHelloBytes = 16 + 32 + 32, kProofBytes = 4 + 32;

  Greeting(const Credentials& credentials, std::string nonce) : credentials_(credentials), nonce_(std::move(nonce)) {}
  size_t wanted() const;  // so many bytes are read next, never more
  // Exactly wanted() bytes; returns the answer.
  std::string heard(std::string_view bytes);
  State state() const { return state_; }
  const std::string& why() const { return why_; }  // of kRefused
  bool same_job() const { return same_job_; }
  int rank() const { return rank_; }  // as claimed; true once kProved
  const SessionKeys& keys() const { return keys_; }

 private:
  const Credentials& credentials_;
  std::string nonce_, their_nonce_, why_;
  State state_ = State::kHello;
  bool same_job_ = false;
  int rank_ = -1;
  SessionKeys keys_;
};

class Link;

struct Attempt {
  enum class Outcome { kProved, kNobody, kStranger, kOtherJob, kWrongSecret } outcome = Outcome::kNobody;
  std::optional<int> fd;  // kProved: yours
  SessionKeys keys;
  std::string why;
};
// Connects to numeric `address` and proves itself as `rank`; waits at most `seconds` for each answer.
Attempt call(const std::string& address, int port, const Credentials& credentials, int rank, double seconds);

// ---- the connection ----

class Link {
 public:
  // Owns the descriptor.
  Link(int fd, const SessionKeys& keys, bool server);
  ~Link();
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  int poll_fd() const { return poll_fd_; }  // readable when there is something to read, or to write and room for it
  // Never waits: what does not fit into the socket is kept.
  void send(const nlohmann::json& head, std::string_view bulk = {});
  // Reads and writes what can be, without waiting; then next() has the frames that are whole.
  void pump();
  std::optional<Frame> next();
  bool broken() const { return !why_broken_.empty(); }
  const std::string& why_broken() const { return why_broken_; }
  // Waits until all is sent, or the time is up or the link broken.
  void finish_sending(double seconds);
  // No more from here; waits for the other side's end, so that what was sent last is not lost with the socket.
  void close_gently(double seconds);
  std::string local_address() const;  // "10.0.0.7"

 private:
  void read_some();
  void write_some();
  void watch_for_room(bool on);
  void wait(double seconds) const;

  int fd_, poll_fd_;
  std::string key_out_;
  uint64_t sent_ = 0;
  FrameReader reader_;
  std::deque<Frame> arrived_;
  std::deque<std::string> outgoing_;
  size_t written_ = 0;  // of the first of them
  bool watching_room_ = false;
  std::string why_broken_;
};

// Resolves to one numeric address. Throws ConfigError naming `what` (MASTER_ADDR).
std::string resolve_address(const std::string& name, const std::string& what);

}  // namespace tandem
