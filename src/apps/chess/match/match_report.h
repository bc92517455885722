// apps/chess/match/match_report.h -- what a match came to, as a table for people and as an object for scripts.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "apps/chess/match/match_game.h"
#include "apps/chess/match/match_score.h"

namespace tandem::chess {

struct MatchSide {
  std::string given, name;             // "stockfish:1500"; "Stockfish 15.1, UCI_Elo 1500"
  std::optional<double> promised_elo;  // the anchor of the scale
};

struct FailedGame {
  int64_t number;  // from 1
  std::string player, what, why;
};

struct MatchReport {
  MatchSide first, second;
  std::optional<double> anchor;  // Elo of the second player as the user knows it, where no side promises its own
  int64_t asked = 0;             // games
  uint64_t seed = 0;
  std::string openings, limit;  // in words
  std::string pgn;              // the file
  std::string stopped;          // why it ended early; empty: it did not

  MatchScore score;                       // of the first player
  int64_t first_as_white[3] = {0, 0, 0};  // its losses, draws, wins with White
  std::map<std::string, int64_t> endings;
  std::vector<FailedGame> failures;
  MoveTimes first_times, second_times;
  double seconds = 0;

  // Games may come in any order; a pair counts once both of its games are there.
  void add(const FinishedGame& game);

 private:
  std::map<int64_t, int> half_pairs_;  // pair -> points of the game that is there
};

// "12.5-3.5", and once there is a pair: "12.5-3.5  Elo +210 (+120 .. +330)".
std::string score_so_far(const MatchReport& report);
std::string match_table(const MatchReport& report);
nlohmann::json match_json(const MatchReport& report);

}  // namespace tandem::chess
