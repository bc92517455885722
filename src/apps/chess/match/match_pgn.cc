#include "apps/chess/match/match_pgn.h"

#include <algorithm>

#include "base/clock.h"

namespace tandem::chess {

MatchPgn::MatchPgn(PgnFile file, std::string first, std::string second, MatchTags tags)
    : file_(std::move(file)), first_(std::move(first)), second_(std::move(second)), tags_(std::move(tags)) {
  if (!tags_.date.empty()) return;
  tags_.date = utc_stamp().substr(0, 10);
  std::ranges::replace(tags_.date, '-', '.');
}

void MatchPgn::add(FinishedGame game) {
  if (game.broken_off) return;
  waiting_.emplace(game.number, std::move(game));
  for (auto at = waiting_.find(next_); at != waiting_.end(); at = waiting_.find(++next_)) {
    write(at->second);
    waiting_.erase(at);
  }
}

void MatchPgn::add_waiting() {
  for (const auto& [number, game] : waiting_) write(game);
  waiting_.clear();
}

void MatchPgn::write(const FinishedGame& game) {
  const std::string& white = game.first_is_white ? first_ : second_;
  const std::string& black = game.first_is_white ? second_ : first_;
  file_.add(pgn_of(pgn_of_game(game, white, black, tags_)));
}

}  // namespace tandem::chess
