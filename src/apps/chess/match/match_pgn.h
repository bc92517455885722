// apps/chess/match/match_pgn.h -- the games of a match, added to a PGN file while they are played, in the order of
// their numbers: a game that ended early waits for those before it.
#pragma once

#include <map>
#include <string>

#include "apps/chess/match/match_game.h"
#include "apps/chess/pgn_file.h"

namespace tandem::chess {

class MatchPgn {
 public:
  // With today's date, where `tags` have none.
  MatchPgn(PgnFile file, std::string first, std::string second, MatchTags tags);
  // Throws IoError where the disk does not take it; games that wait are kept.
  void add(FinishedGame game);
  // Those that still wait for others, at the end of a match that stopped early.
  void add_waiting();
  const std::filesystem::path& path() const { return file_.path(); }

 private:
  void write(const FinishedGame& game);

  PgnFile file_;
  std::string first_, second_;
  MatchTags tags_;
  std::map<int64_t, FinishedGame> waiting_;
  int64_t next_ = 0;
};

}  // namespace tandem::chess
