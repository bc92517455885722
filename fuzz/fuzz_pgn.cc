// fuzz/fuzz_pgn.cc -- world/chess/pgn.h: any bytes are games or faults.
//
// Beyond not crashing: the reader comes to an end, faults have a place, and a game that was read is written and read
// back the same.
#include <cstdlib>
#include <sstream>

#include "world/chess/pgn.h"

namespace {

using namespace tandem::chess;

void require(bool good) {
  if (!good) std::abort();
}

void check_game(const PgnGame& game, const PgnLimits& limits) {
  std::istringstream in(pgn_of(game));
  PgnReader reader(in, limits);
  const auto again = reader.next();
  require(again && !reader.fault());
  require(again->game.start() == game.game.start() && again->game.position() == game.game.position());
  require(again->game.moves().size() == game.game.moves().size() && again->result == game.result);
  for (const auto& [name, value] : game.tags) require(again->tag(name) == value);
  require(!reader.next());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::istringstream in(std::string(reinterpret_cast<const char*>(data), size));
  const PgnLimits limits{.longest_word = 100, .most_tags = 10, .most_moves = 100};
  PgnReader reader(in, limits);
  int64_t games = 0, line = 0;
  while (const auto game = reader.next()) {
    ++games;
    require(game->game.moves().size() <= limits.most_moves && game->tags.size() <= limits.most_tags);
    if (const auto& fault = reader.fault()) {
      require(fault->game == games && fault->line >= line && !fault->why.empty());
      line = fault->line;
    } else {
      // The roster and the position are tags too.
      check_game(*game, {.longest_word = 256, .most_tags = 20, .most_moves = 100});
    }
    require(games <= static_cast<int64_t>(size));
  }
  return 0;
}
