// launch/channel.h -- messages between a worker and the process that supervises it: JSON over an inherited socket pair.
//
// A message is whole or not there, may carry descriptors (memory that both sides map), and is bounded. A peer that is
// gone reads as the end of the channel, never as an error in the middle.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

namespace tandem {

struct Message {
  nlohmann::json body;
  std::vector<int> fds;  // owned by whoever takes the message
};

class Channel {
 public:
  Channel() = default;
  explicit Channel(int fd) : fd_(fd) {}  // owns it
  Channel(Channel&& other) noexcept;
  Channel& operator=(Channel&& other) noexcept;
  ~Channel();

  struct Pair;
  static Pair pair();  // both ends close on exec

  int fd() const { return fd_; }
  bool open() const { return fd_ >= 0; }
  // False if the other end is gone. Bodies of any size: those above the socket's limit travel as shared memory.
  bool send(const nlohmann::json& body, const std::vector<int>& fds = {}) const;
  // The next message; nothing if none is there within the time (milliseconds, -1: for ever), or at the end (ended()).
  std::optional<Message> receive(int timeout_ms);
  bool ended() const { return ended_; }

 private:
  int fd_ = -1;
  bool ended_ = false;
};

struct Channel::Pair {
  Channel ours, theirs;
};

}  // namespace tandem
