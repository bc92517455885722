// apps/chess/match/openings.h -- where the games of a match begin: openings by rule, or those of a file.
//
// A file ends in .pgn (each game's moves are an opening), or holds a position a line: EPD, or FEN. Each opening of a
// file is taken once before one is taken again, in an order that the seed draws. Half-moves of an opening are those
// that a game begins with: a position of an EPD has none, whatever its move number.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

#include "world/chess/game.h"

namespace tandem::chess {

class Openings {
 public:
  // By rule (world/chess/players/random_opening.h), `plies` half-moves long.
  static Openings by_rule(uint64_t seed, int plies);
  // Of a PGN's games, their first `plies` half-moves where that is given; of positions it must not be. Throws
  // ConfigError with the line of a position or move that is none, or at which a game is over by `rules`.
  static Openings of_file(const std::filesystem::path& file, uint64_t seed, std::optional<int> plies,
                          const DrawRules& rules = DrawRules::at_first_claim());

  // The opening of pair `number`, which counts from 0.
  Game opening(int64_t number) const;
  // How many differ; nothing: as many as are asked for.
  std::optional<int64_t> count() const;
  // Half-moves of the longest.
  int most_plies() const;

 private:
  uint64_t seed_ = 0;
  int plies_ = 0;
  std::vector<Game> games_;  // of a file
};

}  // namespace tandem::chess
