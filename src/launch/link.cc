#include "launch/link.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/clock.h"
#include "base/errors.h"
#include "base/sha256.h"
#include "launch/secret.h"

namespace tandem {
namespace {

constexpr size_t kMacBytes = 32, kWordBytes = 16;
constexpr std::string_view kHello("tandem-link 1\0\0\0", kWordBytes), kOtherJob("tandem-other-job", kWordBytes),
    kWelcome("tandem-welcome\0\0", kWordBytes), kUnproved("tandem-unproved\0", kWordBytes);

std::string text_of(uint64_t number) { return std::string(reinterpret_cast<const char*>(&number), sizeof number); }

std::string job_tag(const Credentials& c) {
  Sha256 sum;
  sum.update("tandem job/");
  sum.update(std::to_string(c.size));
  sum.update("/");
  sum.update(c.job);
  return from_hex(sum.hex());
}

std::string proof(const Credentials& c, std::string_view role, int rank, std::string_view client,
                  std::string_view server) {
  return keyed_digest(c.secret, {"tandem link 1", role, c.job, text_of(static_cast<uint64_t>(c.size)),
                                 text_of(static_cast<uint64_t>(rank)), client, server});
}

SessionKeys session_keys(const Credentials& c, int rank, std::string_view client, std::string_view server) {
  return {proof(c, "key from client", rank, client, server), proof(c, "key from server", rank, client, server)};
}

}  // namespace

// ---- frames ----

std::string encode_frame(const nlohmann::json& head, std::string_view bulk, const std::string& key, uint64_t number) {
  const std::string text = head.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  if (text.size() > kMostHead || bulk.size() > kMostBulk) throw std::logic_error("a frame of absurd size");
  const uint32_t lengths[2] = {static_cast<uint32_t>(text.size()), static_cast<uint32_t>(bulk.size())};
  std::string frame;
  frame.reserve(sizeof lengths + text.size() + bulk.size() + kMacBytes);
  frame.append(reinterpret_cast<const char*>(lengths), sizeof lengths);
  frame += text;
  frame += bulk;
  if (!key.empty()) frame += keyed_digest(key, {text_of(number), frame});
  return frame;
}

std::optional<Frame> FrameReader::next() {
  const std::string_view rest = std::string_view(waiting_).substr(begin_);
  uint32_t lengths[2];
  if (rest.size() < sizeof lengths) return std::nullopt;
  std::memcpy(lengths, rest.data(), sizeof lengths);
  if (lengths[0] > kMostHead || lengths[1] > kMostBulk) throw std::runtime_error("a frame of absurd size");
  const size_t body = sizeof lengths + lengths[0] + lengths[1], whole = body + (key_.empty() ? 0 : kMacBytes);
  if (rest.size() < whole) return std::nullopt;
  if (!key_.empty() &&
      !same_digest(rest.substr(body, kMacBytes), keyed_digest(key_, {text_of(number_), rest.substr(0, body)})))
    throw std::runtime_error("a frame that the other side did not send");
  ++number_;
  Frame frame;
  const std::string_view head = rest.substr(sizeof lengths, lengths[0]);
  frame.head = nlohmann::json::parse(head.begin(), head.end());
  if (!frame.head.is_object()) throw std::runtime_error("a frame without a head");
  frame.bulk = rest.substr(sizeof lengths + lengths[0], lengths[1]);
  begin_ += whole;
  if (begin_ == waiting_.size() || begin_ > (size_t{1} << 20)) {
    waiting_.erase(0, begin_);
    begin_ = 0;
  }
  return frame;
}

// ---- the handshake ----

size_t Greeting::wanted() const {
  return state_ == State::kHello ? kHelloBytes : state_ == State::kProof ? kProofBytes : 0;
}

std::string Greeting::heard(std::string_view bytes) {
  if (bytes.size() != wanted()) throw std::logic_error("another number of bytes was wanted");
  if (state_ == State::kHello) {
    if (!bytes.starts_with(kHello)) {
      state_ = State::kRefused;
      why_ = "it does not speak this program's language";
      return "";  // not even what we are
    }
    if (!same_digest(bytes.substr(kWordBytes, 32), job_tag(credentials_))) {
      state_ = State::kRefused;
      why_ = "it belongs to another job";
      return std::string(kOtherJob) + std::string(32, '\0');
    }
    same_job_ = true;
    their_nonce_ = bytes.substr(kWordBytes + 32);
    state_ = State::kProof;
    return std::string(kHello) + nonce_;
  }
  uint32_t rank = 0;
  std::memcpy(&rank, bytes.data(), sizeof rank);
  rank_ = static_cast<int>(rank & 0x7fffffff);
  if (!same_digest(bytes.substr(sizeof rank), proof(credentials_, "client", rank_, their_nonce_, nonce_))) {
    state_ = State::kRefused;
    why_ = "it does not know the secret";
    return std::string(kUnproved) + std::string(32, '\0');
  }
  state_ = State::kProved;
  keys_ = session_keys(credentials_, rank_, their_nonce_, nonce_);
  return std::string(kWelcome) + proof(credentials_, "server", rank_, their_nonce_, nonce_);
}

namespace {

struct Socket {
  int fd = -1;
  ~Socket() {
    if (fd >= 0) close(fd);
  }
};

bool ready(int fd, short events, double until) {
  while (true) {
    const double left = until - monotonic_seconds();
    pollfd wait{fd, events, 0};
    const int got = poll(&wait, 1, left > 0 ? static_cast<int>(left * 1000) + 1 : 0);
    if (got > 0) return true;
    if (got == 0 || errno != EINTR) return false;
  }
}

bool write_all(int fd, std::string_view bytes, double until) {
  while (!bytes.empty()) {
    const ssize_t got = send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (got > 0)
      bytes.remove_prefix(static_cast<size_t>(got));
    else if (got < 0 && errno != EAGAIN && errno != EINTR)
      return false;
    else if (!ready(fd, POLLOUT, until))
      return false;
  }
  return true;
}

std::optional<std::string> read_exactly(int fd, size_t count, double until) {
  std::string bytes(count, '\0');
  size_t have = 0;
  while (have < count) {
    const ssize_t got = recv(fd, bytes.data() + have, count - have, 0);
    if (got > 0)
      have += static_cast<size_t>(got);
    else if (got == 0 || (errno != EAGAIN && errno != EINTR))
      return std::nullopt;
    else if (!ready(fd, POLLIN, until))
      return std::nullopt;
  }
  return bytes;
}

std::string numeric(const sockaddr_storage& address, socklen_t length) {
  char text[NI_MAXHOST] = "";
  getnameinfo(reinterpret_cast<const sockaddr*>(&address), length, text, sizeof text, nullptr, 0, NI_NUMERICHOST);
  return text;
}

}  // namespace

Attempt call(const std::string& address, int port, const Credentials& credentials, int rank, double seconds) {
  Attempt attempt;
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICHOST;
  if (getaddrinfo(address.c_str(), std::to_string(port).c_str(), &hints, &found) != 0) {
    attempt.why = "no such address";
    return attempt;
  }
  Socket socket{::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
  int error = socket.fd < 0 || connect(socket.fd, found->ai_addr, found->ai_addrlen) != 0 ? errno : 0;
  freeaddrinfo(found);
  if (error == EINPROGRESS) {
    socklen_t length = sizeof error;
    error = !ready(socket.fd, POLLOUT, monotonic_seconds() + seconds)           ? ETIMEDOUT
            : getsockopt(socket.fd, SOL_SOCKET, SO_ERROR, &error, &length) == 0 ? error
                                                                                : errno;
  }
  if (error != 0) {
    attempt.why = std::generic_category().message(error);
    return attempt;
  }
  const auto stranger = [&](const char* why) {
    attempt.outcome = Attempt::Outcome::kStranger;
    attempt.why = why;
    return attempt;
  };
  const std::string nonce = random_bytes(32);
  const auto until = [&] { return monotonic_seconds() + seconds; };
  if (!write_all(socket.fd, std::string(kHello) + job_tag(credentials) + nonce, until())) return stranger("it hung up");
  const auto hello = read_exactly(socket.fd, kWordBytes + 32, until());
  if (!hello) return stranger("it gave no answer");
  if (hello->starts_with(kOtherJob)) {
    attempt.outcome = Attempt::Outcome::kOtherJob;
    attempt.why = "another job listens there";
    return attempt;
  }
  if (!hello->starts_with(kHello)) return stranger("it does not speak this program's language");
  const std::string theirs = hello->substr(kWordBytes);
  const uint32_t number = static_cast<uint32_t>(rank);
  if (!write_all(socket.fd,
                 std::string(reinterpret_cast<const char*>(&number), sizeof number) +
                     proof(credentials, "client", rank, nonce, theirs),
                 until()))
    return stranger("it hung up");
  const auto answer = read_exactly(socket.fd, kWordBytes + 32, until());
  if (!answer) return stranger("it gave no answer");
  if (answer->starts_with(kUnproved) || !answer->starts_with(kWelcome) ||
      !same_digest(std::string_view(*answer).substr(kWordBytes), proof(credentials, "server", rank, nonce, theirs))) {
    attempt.outcome = Attempt::Outcome::kWrongSecret;
    attempt.why = "it does not know our secret, or we not its";
    return attempt;
  }
  attempt.outcome = Attempt::Outcome::kProved;
  attempt.keys = session_keys(credentials, rank, nonce, theirs);
  attempt.fd = std::exchange(socket.fd, -1);
  return attempt;
}

std::string resolve_address(const std::string& name, const std::string& what) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  const int error = getaddrinfo(name.c_str(), nullptr, &hints, &found);
  if (error != 0)
    throw ConfigError(fmt::format("{} {} can't be resolved", what, name), gai_strerror(error),
                      fmt::format("set {} to the address of rank 0's machine, as `ip address` shows it there", what));
  const addrinfo* chosen = found;  // IPv4 where there is one: many hosts files name an IPv6 loopback that is not there
  for (const addrinfo* next = found; next; next = next->ai_next)
    if (next->ai_family == AF_INET && chosen->ai_family != AF_INET) chosen = next;
  sockaddr_storage address{};
  std::memcpy(&address, chosen->ai_addr, chosen->ai_addrlen);
  const std::string text = numeric(address, chosen->ai_addrlen);
  freeaddrinfo(found);
  if (text == "0.0.0.0" || text == "::")
    throw ConfigError(fmt::format("{} {} means every interface of this machine", what, name),
                      "rank 0 listens on one address only, so that no other network can reach it",
                      fmt::format("set {} to the address of rank 0's machine that the others are to use", what));
  return text;
}

// ---- the connection ----

Link::Link(int fd, const SessionKeys& keys, bool server)
    : fd_(fd),
      poll_fd_(epoll_create1(EPOLL_CLOEXEC)),
      key_out_(server ? keys.from_server : keys.from_client),
      reader_(server ? keys.from_client : keys.from_server) {
  fcntl(fd_, F_SETFL, fcntl(fd_, F_GETFL) | O_NONBLOCK);
  const int on = 1, idle = 4, every = 2, probes = 3;
  const unsigned silent_ms = 10'000;
  setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  // A machine that vanished is noticed within 10 s, whether we wait for it or send to it.
  setsockopt(fd_, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  setsockopt(fd_, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
  setsockopt(fd_, IPPROTO_TCP, TCP_KEEPINTVL, &every, sizeof every);
  setsockopt(fd_, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
  setsockopt(fd_, IPPROTO_TCP, TCP_USER_TIMEOUT, &silent_ms, sizeof silent_ms);
  epoll_event event{.events = EPOLLIN, .data = {}};
  epoll_ctl(poll_fd_, EPOLL_CTL_ADD, fd_, &event);
}

Link::~Link() {
  close(fd_);
  close(poll_fd_);
}

void Link::watch_for_room(bool on) {
  if (on == watching_room_) return;
  watching_room_ = on;
  epoll_event event{.events = EPOLLIN | (on ? static_cast<uint32_t>(EPOLLOUT) : 0u), .data = {}};
  epoll_ctl(poll_fd_, EPOLL_CTL_MOD, fd_, &event);
}

void Link::send(const nlohmann::json& head, std::string_view bulk) {
  if (broken()) return;
  outgoing_.push_back(encode_frame(head, bulk, key_out_, sent_++));
  write_some();
}

void Link::write_some() {
  while (!outgoing_.empty() && !broken()) {
    const std::string& first = outgoing_.front();
    const ssize_t got = ::send(fd_, first.data() + written_, first.size() - written_, MSG_NOSIGNAL);
    if (got < 0) {
      if (errno == EINTR) continue;
      if (errno != EAGAIN) why_broken_ = std::generic_category().message(errno);
      break;
    }
    written_ += static_cast<size_t>(got);
    if (written_ < first.size()) continue;
    outgoing_.pop_front();
    written_ = 0;
  }
  watch_for_room(!outgoing_.empty() && !broken());
}

void Link::read_some() {
  char bytes[1 << 16];
  // What came is handed out before more is taken: a peer that sends without end must not keep us here.
  for (size_t taken = 0; taken < (8u << 20) && why_broken_.empty();) {
    const ssize_t got = recv(fd_, bytes, sizeof bytes, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return;
    if (got <= 0) {
      why_broken_ = got == 0 ? "it closed the connection" : std::generic_category().message(errno);
      return;
    }
    taken += static_cast<size_t>(got);
    try {
      reader_.feed({bytes, static_cast<size_t>(got)});
      while (auto frame = reader_.next()) arrived_.push_back(std::move(*frame));
    } catch (const std::exception& error) {
      why_broken_ = fmt::format("it sent {}", error.what());
    }
  }
}

void Link::pump() {
  if (broken()) return;
  write_some();
  if (!broken()) read_some();
}

std::optional<Frame> Link::next() {
  if (arrived_.empty()) return std::nullopt;
  Frame frame = std::move(arrived_.front());
  arrived_.pop_front();
  return frame;
}

void Link::wait(double seconds) const {
  pollfd wait{poll_fd_, POLLIN, 0};
  poll(&wait, 1, seconds > 0 ? static_cast<int>(seconds * 1000) + 1 : 0);
}

void Link::finish_sending(double seconds) {
  for (const double end = monotonic_seconds() + seconds;
       !outgoing_.empty() && !broken() && monotonic_seconds() < end;) {
    wait(end - monotonic_seconds());
    pump();
  }
}

void Link::close_gently(double seconds) {
  const double end = monotonic_seconds() + seconds;
  finish_sending(seconds);
  shutdown(fd_, SHUT_WR);
  while (!broken() && monotonic_seconds() < end) {
    wait(end - monotonic_seconds());
    pump();
    arrived_.clear();
  }
  if (!broken()) why_broken_ = "closed";
}

std::string Link::local_address() const {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &length);
  return numeric(address, length);
}

}  // namespace tandem
