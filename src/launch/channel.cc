#include "launch/channel.h"

#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/errors.h"
#include "base/shared_memory.h"

namespace tandem {
namespace {

constexpr size_t kMostInline = 32 << 10, kMostFds = 64;
constexpr uint64_t kMostBody = uint64_t{1} << 30;

bool send_packet(int fd, std::string_view text, const std::vector<int>& fds) {
  iovec part{const_cast<char*>(text.data()), text.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kMostFds)] = {};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  if (!fds.empty()) {
    header.msg_control = control;
    header.msg_controllen = CMSG_SPACE(sizeof(int) * fds.size());
    cmsghdr* c = CMSG_FIRSTHDR(&header);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof(int) * fds.size());
    std::memcpy(CMSG_DATA(c), fds.data(), sizeof(int) * fds.size());
  }
  while (true) {
    if (sendmsg(fd, &header, MSG_NOSIGNAL) >= 0) return true;
    if (errno != EINTR) return false;
  }
}

}  // namespace

Channel::Channel(Channel&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), ended_(std::exchange(other.ended_, false)) {}

Channel& Channel::operator=(Channel&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(ended_, other.ended_);
  return *this;
}

Channel::~Channel() {
  if (fd_ >= 0) close(fd_);
}

Channel::Pair Channel::pair() {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
    throw IoError("cannot make a socket pair for the worker", errno, "close other programs and try again");
  const int room = 1 << 20;  // as much as the system grants: a stopped worker must not stop the launcher
  for (const int end : ends) setsockopt(end, SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
  return {Channel(ends[0]), Channel(ends[1])};
}

bool Channel::send(const nlohmann::json& body, const std::vector<int>& fds) const {
  const std::string text =
      body.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);  // a path may be no UTF-8
  if (text.size() <= kMostInline) return send_packet(fd_, text, fds);
  SharedMemory large = SharedMemory::create("tandem-message", text.size());
  std::memcpy(large.bytes().data(), text.data(), text.size());
  std::vector<int> more{large.fd()};
  more.insert(more.end(), fds.begin(), fds.end());
  return send_packet(fd_, nlohmann::json{{"large", text.size()}}.dump(), more);
}

std::optional<Message> Channel::receive(int timeout_ms) {
  pollfd wait{fd_, POLLIN, 0};
  if (ended_ || poll(&wait, 1, timeout_ms) <= 0) return std::nullopt;
  std::string text(kMostInline, '\0');
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kMostFds)];
  iovec part{text.data(), text.size()};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  header.msg_control = control;
  header.msg_controllen = sizeof control;
  ssize_t got;
  do {
    got = recvmsg(fd_, &header, MSG_CMSG_CLOEXEC);
  } while (got < 0 && errno == EINTR);
  if (got <= 0) {
    ended_ = true;
    return std::nullopt;
  }
  Message message;
  for (cmsghdr* c = CMSG_FIRSTHDR(&header); c; c = CMSG_NXTHDR(&header, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    const size_t before = message.fds.size();
    message.fds.resize(before + count);
    std::memcpy(message.fds.data() + before, CMSG_DATA(c), count * sizeof(int));
  }
  text.resize(static_cast<size_t>(got));
  message.body = nlohmann::json::parse(text);
  if (message.body.contains("large") && !message.fds.empty()) {
    const uint64_t bytes = message.body.at("large");
    if (bytes > kMostBody) throw std::runtime_error("a message of absurd size");
    const SharedMemory large = SharedMemory::adopt(message.fds.front(), bytes);
    message.fds.erase(message.fds.begin());
    const char* begin = reinterpret_cast<const char*>(large.bytes().data());
    message.body = nlohmann::json::parse(begin, begin + bytes);
  }
  return message;
}

}  // namespace tandem
