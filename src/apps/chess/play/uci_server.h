// apps/chess/play/uci_server.h -- a player as a UCI engine, for any GUI: `tandem play chess RUN --uci`.
//
// Reads lines until `quit` or their end. One thread reads, one thinks (uci_search.h); the reader also keeps the clock
// for players that do not look at it. Nothing that a GUI sends ends it but `quit`: what is wrong is said by `info
// string`, and passed over.
#pragma once

#include <optional>
#include <string>

#include "apps/chess/play/line_reader.h"
#include "apps/chess/play/uci_input.h"
#include "apps/chess/play/uci_options.h"
#include "apps/chess/play/uci_output.h"
#include "apps/chess/play/uci_position.h"
#include "apps/chess/play/uci_search.h"

namespace tandem::chess {

// 100,000 moves.
inline constexpr size_t kLongestUciLine = 1 << 20;

class UciServer {
 public:
  // `id`: how the engine names itself to the GUI.
  UciServer(PlayerChoice choice, std::string id, int in_fd, int out_fd);

  void run();

 private:
  bool obey(const std::string& line);  // false: quit
  void greet();
  void go(const GoLimits& limits);
  UciSetup setup() const;
  void new_game();
  void stop();

  PlayerChoice choice_;
  std::string id_;
  LineReader lines_;
  UciOutput output_;
  UciOptions options_;
  UciPosition position_;
  uint64_t game_number_ = 0, seed_ = 0;
  std::optional<std::chrono::milliseconds> budget_;  // of a `go ponder`, from ponderhit on
  std::optional<LineReader::Time> deadline_;
  UciSearch search_;  // last: its thread uses the others
};

}  // namespace tandem::chess
