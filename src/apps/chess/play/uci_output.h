// apps/chess/play/uci_output.h -- what our UCI engine says: whole lines, each written at once, by any thread.
#pragma once

#include <atomic>
#include <chrono>
#include <mutex>
#include <string>
#include <string_view>

#include "world/chess/players/player.h"

namespace tandem::chess {

class UciOutput {
 public:
  explicit UciOutput(int fd) : fd_(fd) {}

  void line(std::string_view text);
  // "info string ...", as one line whatever it holds.
  void say(std::string_view text);
  // Nobody reads any more.
  bool closed() const { return closed_; }

 private:
  int fd_;
  std::mutex mutex_;
  std::atomic<bool> closed_ = false;
};

// "info depth 4 score cp 31 nodes 1203 nps 601500 time 2 pv e2e4 e7e5": what the player said, and no more.
std::string info_line(const Thought& thought, std::chrono::nanoseconds since_start);
// "bestmove e2e4", "bestmove (none)" where there is no move.
std::string bestmove_line(Move move);

}  // namespace tandem::chess
