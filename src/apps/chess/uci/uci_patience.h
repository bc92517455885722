// apps/chess/uci/uci_patience.h -- how long an engine may be silent before it counts as out of order.
#pragma once

#include <algorithm>
#include <optional>

namespace tandem::chess {

inline constexpr double kForEver = 1e9;  // seconds

struct UciPatience {
  double handshake = 30;  // until uciok
  double ready = 60;      // until readyok: networks and tables are loaded there
  double late = 5;        // beyond its move time, or its clock
  double move = 60;       // for a move without a time: by nodes or depth
  double stop = 5;        // between stop and bestmove
  double quit = 1;

  // Of a match with --timeout: for a move; and to start, if it is more than usual.
  static UciPatience of_match(std::optional<double> timeout) {
    UciPatience patience;
    if (!timeout) return patience;
    patience.late = patience.move = *timeout;
    patience.handshake = std::max(patience.handshake, *timeout);
    patience.ready = std::max(patience.ready, *timeout);
    return patience;
  }
  // Where somebody may stop it at any time, a GUI or a person: a search to a depth or over many nodes takes what it
  // takes.
  static UciPatience of_play() {
    UciPatience patience;
    patience.move = kForEver;
    return patience;
  }
};

}  // namespace tandem::chess
