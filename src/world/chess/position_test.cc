// Promises of a position through every kind of move: hash, rights, en passant, counters, boards that agree.
#include "world/chess/position.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>

#include "kernels/philox.h"
#include "world/chess/fen.h"
#include "world/chess/move_functions.h"
#include "world/chess/notation.h"
#include "world/chess/perft_positions.h"

namespace tandem::chess {
namespace {

Position after_moves(std::string_view fen, std::initializer_list<const char*> moves) {
  Position position = position_of_fen(fen);
  for (const char* text : moves) {
    const MoveReading reading = read_uci(position, text);
    EXPECT_TRUE(reading.good()) << text << ": " << reading.why;
    make_move(position, reading.move);
  }
  return position;
}

// What every position must be, whatever was played.
void expect_sound(const Position& p) {
  EXPECT_EQ(p.hash, hash_of(p)) << fen_of(p);
  EXPECT_EQ(count(p.occupied()), count(p.pawns) + count(p.knights) + count(p.bishops()) + count(p.rooks()) +
                                     count(p.queens()) + count(p.kings))
      << "two pieces on one square: " << fen_of(p);
  EXPECT_EQ(p.white & ~p.occupied(), 0u) << fen_of(p);
  EXPECT_EQ(p.reserved, 0);
  const FenReading again = read_fen(fen_of(p));
  ASSERT_TRUE(again.good()) << fen_of(p) << ": " << again.complaint();
  EXPECT_EQ(std::memcmp(&again.position, &p, sizeof p), 0) << fen_of(p);
}

// Every position a few plies from `position`.
void walk(const Position& position, int depth) {
  expect_sound(position);
  if (depth == 0) return;
  MoveList list;
  legal_moves(position, list);
  for (const Move move : list) walk(after(position, move), depth - 1);
}

void for_each_position(const std::function<void(const Position&)>& check) {
  for (const auto* known : {&kPerftPositions, &kEdgePositions})
    for (const PerftPosition& start : *known) {
      SCOPED_TRACE(start.fen);
      check(position_of_fen(start.fen));
    }
}

TEST(Positions, StaySoundThroughAllMoves) {
  for_each_position([](const Position& position) { walk(position, 2); });
}

TEST(Positions, StaySoundThroughALongGame) {
  for_each_position([](const Position& start) {
    Position position = start;
    for (uint64_t ply = 0; ply < 300; ++ply) {
      MoveList list;
      legal_moves(position, list);
      if (list.size == 0) break;
      make_move(position, list[random_below({.seed = 7}, ply, static_cast<uint32_t>(list.size))]);
      expect_sound(position);
    }
  });
}

// That none is missed, perft_test.cc shows.
TEST(Positions, LegalMovesLeaveNoKingInCheckAndHaveOneOrderOnEveryCpu) {
  for_each_position([](const Position& position) {
    MoveList first;
    legal_moves(position, first);
    for (const MoveFunctions* functions : {portable_moves(), bmi2_moves(), pext_moves()}) {
      if (!functions) continue;
      MoveList list;
      functions->legal_moves(position, list);
      ASSERT_EQ(list.size, first.size) << functions->name;
      EXPECT_EQ(functions->count_legal_moves(position), first.size) << functions->name;
      for (int i = 0; i < list.size; ++i) {
        EXPECT_EQ(list[i], first[i]) << functions->name;
        Position next = after(position, list[i]);
        next.side_to_move = position.side_to_move;
        EXPECT_FALSE(functions->in_check(next)) << functions->name << " " << uci_of(list[i]);
      }
    }
  });
}

TEST(PositionLayout, IsOneCacheLineWithoutUndefinedBytes) {
  static_assert(sizeof(Position) == 64 && alignof(Position) == 64 && std::is_trivially_copyable_v<Position>);
  static_assert(sizeof(Move) == 2 && std::is_trivially_copyable_v<Move>);
  static_assert(std::has_unique_object_representations_v<Position>, "so that memcmp() compares positions");
}

TEST(PositionHash, IsThatOfThePositionNotOfTheWayToIt) {
  const Position one = after_moves(kStartFen, {"g1f3", "g8f6", "b1c3", "b8c6"});
  const Position two = after_moves(kStartFen, {"b1c3", "b8c6", "g1f3", "g8f6"});
  EXPECT_EQ(one.hash, two.hash);
  EXPECT_TRUE(same_position(one, two));
  const Position moved_king = after_moves("r3k2r/8/8/8/8/8/8/R3K2R w KQkq - 0 1", {"e1e2", "e8e7", "e2e1", "e7e8"});
  EXPECT_NE(moved_king.hash, position_of_fen("r3k2r/8/8/8/8/8/8/R3K2R w KQkq - 0 1").hash) << "the rights are gone";
  EXPECT_EQ(moved_king.hash, position_of_fen("r3k2r/8/8/8/8/8/8/R3K2R w - - 9 9").hash) << "counters do not count";
  EXPECT_NE(start_position().hash, position_of_fen("rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR b KQkq - 0 1").hash);
}

TEST(EnPassant, CountsOnlyIfACaptureIsLegal) {
  EXPECT_EQ(after_moves(kStartFen, {"e2e4"}).en_passant, 0) << "no pawn is beside it";
  EXPECT_EQ(after_moves(kStartFen, {"e2e4", "a7a6", "e4e5", "d7d5"}).en_passant, 43);
  // A pawn is beside it, but pinned: along its file, along a diagonal, or with the other along the rank.
  for (const char* fen :
       {"k3r3/3p4/8/4P3/8/8/8/4K3 b - - 0 1", "k7/3p2b1/8/4P3/8/8/1K6/8 b - - 0 1", "k7/3p4/8/K3P2r/8/8/8/8 b - - 0 1"})
    EXPECT_EQ(after_moves(fen, {"d7d5"}).en_passant, 0) << fen;
  EXPECT_EQ(after_moves("k7/3p4/8/4P3/8/8/8/K7 b - - 0 1", {"d7d5"}).en_passant, 43);
  EXPECT_EQ(after_moves("k7/3p4/1b6/2P1P3/8/8/8/6K1 b - - 0 1", {"d7d5"}).en_passant, 43) << "one of two may";
  EXPECT_EQ(position_of_fen("rnbqkbnr/pppppppp/8/8/4P3/8/PPPP1PPP/RNBQKBNR b KQkq e3 0 1").en_passant, 0);
}

TEST(CastlingRights, EndWithKingRookOrCapturedRook) {
  const char* const fen = "r3k2r/8/8/8/8/8/8/R3K2R w KQkq - 0 1";
  const auto rights = [&](std::initializer_list<const char*> moves) { return int{after_moves(fen, moves).castling}; };
  EXPECT_EQ(rights({}), 15);
  EXPECT_EQ(rights({"e1d1"}), kBlackShort | kBlackLong);
  EXPECT_EQ(rights({"e1g1"}), kBlackShort | kBlackLong);
  EXPECT_EQ(rights({"a1b1"}), kWhiteShort | kBlackShort | kBlackLong);
  EXPECT_EQ(rights({"h1h8"}), kWhiteLong | kBlackLong) << "a rook takes a rook: both rights end";
  EXPECT_EQ(rights({"h1g1", "a8a1"}), kBlackShort);
}

TEST(Counters, CountAndStayWithinTheirBytes) {
  const Position p = after_moves(kStartFen, {"g1f3", "g8f6", "f3e5", "f6e4", "e5d7"});
  EXPECT_EQ(p.halfmove_clock, 0) << "a capture";
  EXPECT_EQ(p.fullmove_number, 3);
  EXPECT_EQ(after_moves(kStartFen, {"g1f3", "g8f6", "f3e5"}).halfmove_clock, 3);
  const Position last = after_moves("8/8/8/4k3/8/8/8/K6R b - - 65535 65535", {"e5e4"});
  EXPECT_EQ(last.halfmove_clock, 65535);
  EXPECT_EQ(last.fullmove_number, 65535);
}

TEST(Pieces, AreWhereTheyWerePut) {
  Position p;
  for (int type = 0; type < 6; ++type)
    for (const Side side : {Side::kWhite, Side::kBlack})
      p.put(side, static_cast<PieceType>(type), type * 8 + static_cast<int>(side));
  for (Square square = 0; square < 64; ++square) {
    const bool held = square < 48 && file_of(square) < 2;
    EXPECT_EQ(p.type_at(square), held ? static_cast<PieceType>(square / 8) : PieceType::kNone) << square;
    EXPECT_EQ(held && p.side_at(square) == Side::kBlack, held && file_of(square) == 1) << square;
  }
}

TEST(MoveListRoom, IsEnoughForAnyPieces) {
  MoveList list;
  legal_moves(position_of_fen("R6R/3Q4/1Q4Q1/4Q3/2Q4Q/Q4Q2/pp1Q4/kBNN1KB1 w - - 0 1"), list);
  EXPECT_EQ(list.size, 218) << "the most that a game can reach";
  // No game has fourteen queens, but a FEN may.
  legal_moves(position_of_fen("Q6Q/3Q4/1Q4Q1/4Q3/2Q4Q/Q4Q2/pp1Q4/kBQQ1KQ1 w - - 0 1"), list);
  EXPECT_GT(list.size, 218);
  EXPECT_LE(list.size, kMostMoves);
}

}  // namespace
}  // namespace tandem::chess
