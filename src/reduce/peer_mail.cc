#include "reduce/peer_mail.h"

#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace tandem {
namespace {

// Both ends are one program.
struct Packet {
  PeerLetter::Kind kind;
  int32_t blocks;
  uint64_t bytes, gpu;
  uint8_t has_area, steps, host;
};

class SocketPeerMail : public PeerMail {
 public:
  explicit SocketPeerMail(std::vector<int> sockets) : sockets_(std::move(sockets)) {}
  ~SocketPeerMail() override {
    for (const int fd : sockets_)
      if (fd >= 0) close(fd);
  }

  void send(int member, const PeerLetter& letter) override {
    Packet packet{letter.kind, letter.blocks, letter.bytes, letter.gpu, letter.has_area, letter.steps, letter.host};
    iovec part{&packet, sizeof packet};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    msghdr header{};
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    if (letter.fd >= 0) {
      header.msg_control = control;
      header.msg_controllen = sizeof control;
      cmsghdr* const c = CMSG_FIRSTHDR(&header);
      c->cmsg_level = SOL_SOCKET;
      c->cmsg_type = SCM_RIGHTS;
      c->cmsg_len = CMSG_LEN(sizeof(int));
      std::memcpy(CMSG_DATA(c), &letter.fd, sizeof(int));
    }
    while (sendmsg(sockets_.at(static_cast<size_t>(member)), &header, MSG_NOSIGNAL) < 0 && errno == EINTR) {
    }
  }

  std::optional<PeerLetter> receive(int member) override {
    Packet packet{};
    iovec part{&packet, sizeof packet};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))];
    msghdr header{};
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    header.msg_control = control;
    header.msg_controllen = sizeof control;
    ssize_t got;
    do {
      got = recvmsg(sockets_.at(static_cast<size_t>(member)), &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    } while (got < 0 && errno == EINTR);
    if (got <= 0) return std::nullopt;  // nothing yet, or it is gone
    PeerLetter letter;
    if (cmsghdr* const c = CMSG_FIRSTHDR(&header); c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS)
      std::memcpy(&letter.fd, CMSG_DATA(c), sizeof(int));
    if (got != sizeof packet) {  // from a broken program: as if nothing had come
      if (letter.fd >= 0) close(letter.fd);
      return std::nullopt;
    }
    letter.kind = packet.kind;
    letter.blocks = packet.blocks;
    letter.bytes = packet.bytes;
    letter.gpu = packet.gpu;
    letter.has_area = packet.has_area != 0;
    letter.steps = packet.steps != 0;
    letter.host = packet.host != 0;
    return letter;
  }

 private:
  std::vector<int> sockets_;
};

}  // namespace

std::unique_ptr<PeerMail> socket_peer_mail(std::vector<int> sockets) {
  return std::make_unique<SocketPeerMail>(std::move(sockets));
}

}  // namespace tandem
