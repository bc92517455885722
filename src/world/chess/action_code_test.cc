// The action code: a bijection with the legal moves of a position, the same for both sides.
#include "world/chess/action_code.h"

#include <gtest/gtest.h>

#include "world/chess/fen.h"
#include "world/chess/moves.h"
#include "world/chess/notation.h"
#include "world/chess/perft_positions.h"

namespace tandem::chess {
namespace {

MoveList legal(const Position& position) {
  MoveList list;
  legal_moves(position, list);
  return list;
}

// Every action, tried: in the mask exactly if its move is legal, and back to the same move.
void expect_bijection(const Position& position) {
  const MoveList list = legal(position);
  const ActionMask mask = legal_action_mask(list, position.side_to_move);
  int in_mask = 0;
  for (int action = 0; action < kActionCount; ++action) {
    const Move move = move_of_action(position, action);
    EXPECT_EQ(mask.has(action), move && list.contains(move))
        << fen_of(position) << " " << action << " " << uci_of(move);
    if (!mask.has(action)) continue;
    ++in_mask;
    EXPECT_EQ(action_of(move, position.side_to_move), action) << fen_of(position) << " " << uci_of(move);
  }
  EXPECT_EQ(in_mask, list.size) << "two moves with one action: " << fen_of(position);
}

TEST(Actions, StandForOneLegalMoveEach) {
  for (const auto* known : {&kPerftPositions, &kEdgePositions})
    for (const PerftPosition& start : *known) {
      const Position position = position_of_fen(start.fen);
      expect_bijection(position);
      for (const Move move : legal(position)) expect_bijection(after(position, move));
    }
}

int action_in(std::string_view fen, const char* uci) {
  const Position position = position_of_fen(fen);
  return action_of(read_uci(position, uci).move, position.side_to_move);
}

TEST(Actions, AreNumberedForGood) {
  EXPECT_EQ(kActionCount, 4672);
  EXPECT_EQ(action_in(kStartFen, "a2a3"), 8 * 73 + 3 * 7);
  EXPECT_EQ(action_in(kStartFen, "a2a4"), 8 * 73 + 3 * 7 + 1);
  EXPECT_EQ(action_in(kStartFen, "b1a3"), 1 * 73 + 56 + 3);
  EXPECT_EQ(action_in(kStartFen, "b1c3"), 1 * 73 + 56 + 5);
  EXPECT_EQ(action_in("4k3/8/8/8/8/8/8/K6Q w - - 0 1", "h1b7"), 7 * 73 + 5 * 7 + 5);
  EXPECT_EQ(action_in("3k4/8/8/8/8/8/8/4K2R w K - 0 1", "e1g1"), 4 * 73 + 1 * 7 + 1);
  const char* const promotions = "1r5k/P7/8/8/8/8/8/K7 w - - 0 1";
  EXPECT_EQ(action_in(promotions, "a7a8q"), 48 * 73 + 3 * 7) << "as a queen's move";
  EXPECT_EQ(action_in(promotions, "a7a8n"), 48 * 73 + 64 + 3);
  EXPECT_EQ(action_in(promotions, "a7b8r"), 48 * 73 + 64 + 8);
}

TEST(Actions, OfBlackAreThoseOfWhiteOnATurnedBoard) {
  EXPECT_EQ(action_in("rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR b KQkq - 0 1", "e7e5"),
            action_in(kStartFen, "e2e4"));
  for (const auto& [white, black] : {std::pair{"a7a8n", "a2a1n"}, {"a7b8b", "a2b1b"}, {"a7a8q", "a2a1q"}})
    EXPECT_EQ(action_in("1r5k/P7/8/8/8/8/8/K7 w - - 0 1", white), action_in("k7/8/8/8/8/8/p7/1R5K b - - 0 1", black))
        << "so Black can under-promote";
}

TEST(Actions, OffTheBoardAreNoMove) {
  EXPECT_FALSE(move_of_action(start_position(), 0 * 73 + 0)) << "left of a1";
  EXPECT_FALSE(move_of_action(start_position(), 63 * 73 + 64)) << "above h8";
}

}  // namespace
}  // namespace tandem::chess
