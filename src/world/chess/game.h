// world/chess/game.h -- a game: where it began, its moves, and whether it is over, by which rule.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "world/chess/moves.h"

namespace tandem::chess {

// When a game is drawn without a claim. FIDE: five times the same position, 75 moves of each side without capture or
// pawn move; a player may claim at three and at fifty. Self-play usually ends there, to save time.
struct DrawRules {
  int repetitions = 5;  // 3 or 5
  int moves = 75;       // 50 or 75

  static constexpr DrawRules fide() { return {5, 75}; }
  static constexpr DrawRules at_first_claim() { return {3, 50}; }
};

enum class GameEnd : uint8_t {
  kNone,  // the game goes on
  kCheckmate,
  kStalemate,
  kDeadPosition,  // neither side has what it takes to mate
  kMoveRule,      // 50 or 75 moves
  kRepetition,    // three or five times
};
std::string_view word_of(GameEnd end);  // "checkmate", "move rule": for people and for scripts

struct GameResult {
  GameEnd end = GameEnd::kNone;
  std::optional<Side> winner;  // nobody: a draw, or the game goes on

  bool over() const { return end != GameEnd::kNone; }
  std::string_view text() const;  // "1-0", "0-1", "1/2-1/2", "*"
  bool operator==(const GameResult&) const = default;
};

// Could this side still mate, by material alone? King alone, with one minor piece, or with bishops of one colour: no,
// unless pieces of the other side could stand in their own king's way. As python-chess judges.
TANDEM_HD bool has_mating_material(const Position& p, Side side);
TANDEM_HD bool is_dead_position(const Position& p);

// How often `hash`, the last of `hashes`, stands among them, itself included; halfmove_clock is that of the last
// position, since nothing before a capture or a pawn move can repeat.
TANDEM_HD int repetitions_of_last(const uint64_t* hashes, int64_t size, int halfmove_clock);

// By the rules and their order of precedence: mate, dead position, stalemate, move rule, repetition. So a mate with
// the last move that the move rule allows wins.
GameResult result_of(const Position& position, int repetitions, const DrawRules& rules);

class Game {
 public:
  Game();  // from the starting position
  explicit Game(const Position& start);

  const Position& position() const { return position_; }
  const Position& start() const { return start_; }
  std::span<const Move> moves() const { return moves_; }
  // hashes()[n]: after n moves.
  std::span<const uint64_t> hashes() const { return hashes_; }

  // `move` is legal; the program stops otherwise in a debug build.
  void play(Move move);
  // Takes back the last `count` moves; false where there are not that many.
  bool undo(int count = 1);

  GameResult result(const DrawRules& rules = DrawRules::fide()) const;
  // How often the present position was there, now included.
  int repetitions() const;
  // The side to move may claim a draw: the condition holds, or a legal move of its would bring it about.
  bool can_claim_fifty_moves() const;
  bool can_claim_threefold_repetition() const;
  bool can_claim_draw() const { return can_claim_fifty_moves() || can_claim_threefold_repetition(); }

 private:
  Position start_, position_;
  std::vector<Move> moves_;
  std::vector<uint64_t> hashes_;
};

// ---- what a GPU compiles too ----

TANDEM_HD bool has_mating_material(const Position& p, Side side) {
  const Bitboard own = p.of(side), others = p.of(other(side));
  if (own & (p.pawns | p.straight)) return true;
  // A knight mates alone only a king that its own men shut in; a queen never has to.
  if (own & p.knights) return count(own) > 2 || (others & ~p.kings & ~p.queens());
  const Bitboard bishops = p.bishops();
  if (own & bishops) return ((bishops & kDarkSquares) && (bishops & kLightSquares)) || p.pawns || p.knights;
  return false;
}
TANDEM_HD bool is_dead_position(const Position& p) {
  return !has_mating_material(p, Side::kWhite) && !has_mating_material(p, Side::kBlack);
}

TANDEM_HD int repetitions_of_last(const uint64_t* hashes, int64_t size, int halfmove_clock) {
  const uint64_t hash = hashes[size - 1];
  const int64_t oldest = size - 1 - halfmove_clock > 0 ? size - 1 - halfmove_clock : 0;
  int times = 1;
  for (int64_t i = size - 3; i >= oldest; i -= 2) times += hashes[i] == hash;  // the same side is to move
  return times;
}

}  // namespace tandem::chess
