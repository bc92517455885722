// apps/chess/match/match_pgn.h -- the games of a match as a PGN file that grows while they are played, in the order of
// their numbers: a game that ended early waits for those before it.
#pragma once

#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include "apps/chess/match/match_game.h"

namespace tandem::chess {

class MatchPgn {
 public:
  // Opens `file` anew. Throws IoError, as all of these do where the disk does not take it.
  MatchPgn(std::filesystem::path file, std::string first, std::string second, std::string event);
  void add(FinishedGame game);
  // Those that still wait for others, at the end of a match that stopped early.
  void add_waiting();

 private:
  void write(const FinishedGame& game);

  std::filesystem::path file_;
  std::string first_, second_, event_, date_;
  std::ofstream out_;
  std::map<int64_t, FinishedGame> waiting_;
  int64_t next_ = 0;
};

}  // namespace tandem::chess
