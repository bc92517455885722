// apps/chess/match/match_game.h -- one game between two players, from its opening to its end.
#pragma once

#include <cstdint>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "apps/chess/match/move_times.h"
#include "apps/chess/match/time_control.h"
#include "world/chess/pgn.h"
#include "world/chess/players/player.h"

namespace tandem::chess {

struct MatchRules {
  DrawRules draws = DrawRules::at_first_claim();  // as match programs end games
  int max_plies = 400;                            // half-moves with those of the opening; a draw then
  ThinkRequest limits;                            // for players without limits of their own
  std::optional<TimeControl> clock;               // it runs for these and for all others
};

// Who went wrong, and how.
struct GameFault {
  Side side;
  PlayerFault::Kind kind;
  std::string what, why;
};

struct FinishedGame {
  int64_t number = 0;  // from 0
  bool first_is_white = true;
  Game game;
  GameResult result;                    // of what is on the board
  std::optional<Side> winner;           // also by a fault of the other side
  std::optional<GameFault> fault = {};  // the game was lost by it
  bool too_long = false;                // drawn by max_plies
  std::optional<Side> flag = {};        // whose flag fell; a draw where nobody won
  MoveTimes times[2];                   // of White and of Black
  bool broken_off = false;              // it was stopped: it has no result
  std::vector<std::string> comments;    // as in PgnGame

  std::string result_text() const;  // "1-0"; "*" where it was broken off
  std::string ending() const;       // "checkmate", "Fake 1.0 crashed": for a table
  // Of the first player, times two.
  int points() const;
};

// The seeds of White and Black follow from that of the match and the number of the game.
uint64_t seed_of_player(uint64_t match_seed, int64_t game, Side side);

// Begins at the end of `opening`. A fault of a player ends the game; other errors are thrown.
FinishedGame play_game(const Game& opening, Player& white, Player& black, uint64_t white_seed, uint64_t black_seed,
                       const MatchRules& rules, const std::stop_token& stop);

// What all games of a match have in common; empty: no such tag.
struct MatchTags {
  std::string event, date, time_control;  // "2026.01.31"; "60+0.6"
};

PgnGame pgn_of_game(const FinishedGame& played, const std::string& white, const std::string& black,
                    const MatchTags& tags);

}  // namespace tandem::chess
