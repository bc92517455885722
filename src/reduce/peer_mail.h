// reduce/peer_mail.h -- letters between the members of one generation on one machine: what a member needs to map the
// memory of another (peer_link.h). Over socket pairs that the launcher made for this generation, one for each pair.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace tandem {

struct PeerLetter {
  enum class Kind : uint32_t { kOffer, kReads, kHostArea };
  Kind kind = Kind::kOffer;
  uint64_t bytes = 0;     // of an area
  int blocks = 0;         // kOffer: that its GPU runs at once
  uint64_t gpu = 0;       // kOffer: which one it is, where its workers take turns; else 0
  bool has_area = false;  // kOffer: on its GPU, by `fd`
  bool steps = false;     // kOffer: it can queue all sums of a step at once
  bool host = false;      // kReads: not the area on the GPU
  int fd = -1;            // owned by whoever has the letter
};

class PeerMail {
 public:
  virtual ~PeerMail() = default;
  virtual void send(int member, const PeerLetter& letter) = 0;  // which keeps its descriptor; a dead member gets none
  virtual std::optional<PeerLetter> receive(int member) = 0;    // what is there by now
};

// `sockets` by member, which it owns; of SOCK_SEQPACKET; our own is -1.
std::unique_ptr<PeerMail> socket_peer_mail(std::vector<int> sockets);

}  // namespace tandem
