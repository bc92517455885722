#include "world/chess/players/random_opening.h"

#include <cstdlib>
#include <limits>
#include <optional>

#include "kernels/philox.h"
#include "world/chess/players/search.h"
#include "world/chess/players/sites.h"

namespace tandem::chess {
namespace {

// Nothing where the game ends on the way.
std::optional<Game> draw_opening(const RandomKey& key, int plies) {
  Game game;
  for (int ply = 0; ply < plies; ++ply) {
    MoveList list;
    legal_moves(game.position(), list);
    if (list.size == 0) return std::nullopt;
    game.play(list[static_cast<int>(random_below(key, static_cast<uint64_t>(ply), static_cast<uint32_t>(list.size)))]);
  }
  if (game.result(DrawRules::at_first_claim()).over()) return std::nullopt;
  return game;
}

}  // namespace

Game random_opening(uint64_t seed, int64_t number, int plies) {
  Game fairest;
  int least = std::numeric_limits<int>::max();
  for (uint32_t attempt = 0; attempt < kOpeningAttempts && least > kBalance; ++attempt) {
    const RandomKey key{.seed = seed, .step = static_cast<uint64_t>(number), .shard = attempt, .site = kOpeningMove};
    const std::optional<Game> game = draw_opening(key, plies);
    if (!game || in_check(game->position())) continue;
    const int ahead = std::abs(GameSearch(*game, Leaf::kSettled).value_at(2));
    if (ahead < least) least = ahead, fairest = *game;
  }
  return fairest;
}

}  // namespace tandem::chess
