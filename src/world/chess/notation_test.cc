// Moves as text: UCI and SAN, what is understood, and why a move is refused.
#include "world/chess/notation.h"

#include <gtest/gtest.h>

#include <set>

#include "world/chess/perft_positions.h"

namespace tandem::chess {
namespace {

using Fault = MoveReading::Fault;

std::string san_in(const Position& position, std::string_view uci) {
  const MoveReading reading = read_uci(position, uci);
  EXPECT_TRUE(reading.good()) << uci << ": " << reading.why;
  return reading.good() ? san_of(position, reading.move) : "";
}
std::string san_in(std::string_view fen, std::string_view uci) { return san_in(position_of_fen(fen), uci); }

void expect_names_of_all_moves(const Position& start) {
  MoveList first;
  legal_moves(start, first);
  for (const Move before : first) {
    const Position position = after(start, before);
    MoveList list;
    legal_moves(position, list);
    std::set<std::string> names;
    for (const Move move : list) {
      const std::string san = san_of(position, move), uci = uci_of(move);
      EXPECT_TRUE(names.insert(san).second) << san << " twice in " << fen_of(position);
      EXPECT_EQ(read_san(position, san).move, move) << san << " in " << fen_of(position);
      EXPECT_EQ(read_uci(position, uci).move, move) << uci << " in " << fen_of(position);
      EXPECT_EQ(read_move(position, san).move, move) << san;
      EXPECT_EQ(read_move(position, uci).move, move) << uci;
    }
  }
}

TEST(Notation, NamesEveryMoveOnceAndReadsItBack) {
  for (const auto* known : {&kPerftPositions, &kEdgePositions})
    for (const PerftPosition& start : *known) expect_names_of_all_moves(position_of_fen(start.fen));
}

TEST(San, SaysAsMuchAsIsNeeded) {
  EXPECT_EQ(san_in(kStartFen, "g1f3"), "Nf3");
  EXPECT_EQ(san_in("7k/8/8/8/8/5N2/8/K5N1 w - - 0 1", "f3h4"), "Nh4");
  EXPECT_EQ(san_in("7k/8/8/8/8/8/8/KN3N2 w - - 0 1", "b1d2"), "Nbd2");
  EXPECT_EQ(san_in("7k/8/8/8/R7/8/8/R6K w - - 0 1", "a1a3"), "R1a3");
  EXPECT_EQ(san_in("7k/8/8/3N4/8/8/8/KN1N4 w - - 0 1", "d5c3"), "N5c3");
  EXPECT_EQ(san_in("7k/8/8/1N1N4/8/8/8/KN6 w - - 0 1", "b5c3"), "Nb5c3") << "neither file nor rank is enough";
  EXPECT_EQ(san_in("1b5k/8/8/4N3/8/8/8/K1N5 w - - 0 1", "c1d3"), "Ncd3");
  EXPECT_EQ(san_in("4r2k/8/8/8/8/4N3/8/2N1K3 w - - 0 1", "c1e2"), "Ne2") << "the other one is pinned";
}

TEST(San, MarksCapturesChecksMatesAndPromotions) {
  EXPECT_EQ(san_in("7k/8/8/3p4/4P3/8/8/K7 w - - 0 1", "e4d5"), "exd5");
  EXPECT_EQ(san_in("7k/8/8/3pP3/8/8/8/K7 w - d6 0 1", "e5d6"), "exd6");
  EXPECT_EQ(san_in("3r3k/4P3/8/8/8/8/8/K7 w - - 0 1", "e7d8q"), "exd8=Q+");
  EXPECT_EQ(san_in("7k/4P3/8/8/8/8/8/K7 w - - 0 1", "e7e8n"), "e8=N");
  EXPECT_EQ(san_in("6k1/5ppp/8/8/8/8/8/K3R3 w - - 0 1", "e1e8"), "Re8#");
  EXPECT_EQ(san_in("5k2/8/8/8/8/8/8/4K2R w K - 0 1", "e1g1"), "O-O+");
  EXPECT_EQ(san_in("r3k3/8/8/8/8/8/8/3K4 b q - 0 1", "e8c8"), "O-O-O+");
}

TEST(San, IsReadAsPeopleWriteIt) {
  const Position start = start_position();
  for (const char* text : {"Nf3", "Nf3+", "Nf3#", "Ngf3", "N1f3", "Ng1f3", "Ng1-f3", "Nxf3", "g1f3", "g1-f3"})
    EXPECT_EQ(uci_of(read_san(start, text).move), "g1f3") << text;
  const Position promotion = position_of_fen("8/k3P3/8/8/8/8/8/4K2R w K - 0 1");
  for (const char* text : {"e8=Q", "e8Q", "e8q", "e8=q", "e7e8q", "e7-e8=Q"})
    EXPECT_EQ(uci_of(read_san(promotion, text).move), "e7e8q") << text;
  for (const char* text : {"O-O", "0-0", "O-O+", "e1g1", "e1h1"})
    EXPECT_EQ(uci_of(read_san(promotion, text).move), "e1g1") << text;
}

TEST(San, TooLittleOrWrongIsRefusedWithTheReason) {
  const auto refused = [](std::string_view fen, std::string_view text) {
    const MoveReading reading = read_san(position_of_fen(fen), text);
    EXPECT_FALSE(reading.good()) << text;
    EXPECT_FALSE(reading.move) << text;
    return reading.why;
  };
  const auto fault = [](std::string_view fen, std::string_view text) {
    return read_san(position_of_fen(fen), text).fault;
  };
  const char* const two_knights = "7k/8/8/8/8/8/8/KN3N2 w - - 0 1";
  EXPECT_EQ(fault(two_knights, "Nd2"), Fault::kAmbiguous);
  EXPECT_EQ(refused(two_knights, "Nd2"), "the knights on b1 and f1 can both go to d2");
  EXPECT_EQ(refused(kStartFen, "Nd4"), "no knight can go to d4");
  EXPECT_EQ(refused(kStartFen, "Nd2"), "a piece of one's own is on d2");
  EXPECT_EQ(refused(kStartFen, "e5"), "no pawn can go to e5");
  EXPECT_EQ(refused(kStartFen, "O-O"), "castling on the king's side is not possible here");
  EXPECT_EQ(refused(two_knights, "Qd2"), "there is no such queen");
  EXPECT_EQ(refused("4r2k/8/8/8/8/4N3/8/4K3 w - - 0 1", "Nd5"), "the king would be in check");
  EXPECT_EQ(refused("4r2k/8/8/8/8/8/8/4K2N w - - 0 1", "Ng3"), "the king would still be in check");
  EXPECT_EQ(refused("7k/4P3/8/8/8/8/8/4K3 w - - 0 1", "e8"), "it must be said what the pawn becomes: q, r, b or n");
  EXPECT_EQ(refused("7k/4P3/8/8/8/8/8/4K3 w - - 0 1", "e8=K"), "a pawn can't become a king");
  for (const char* text : {"", "x", "e", "e9", "i4", "Nf3 ", " Nf3", "Pe4", "e4!", "--", "0000", "O-O-O-O", "Nf3++",
                           "e8=", "e8=Qq", "\xff\xfe"})
    EXPECT_EQ(fault(kStartFen, text), Fault::kUnreadable) << text;
  EXPECT_EQ(refused(kStartFen, "hello\x1b[2J"), "\"hello?[2J\" is no move in SAN (e4, Nf3, exd5, e8=Q, O-O)");
}

TEST(Uci, RefusesWithTheReason) {
  const auto refused = [](std::string_view fen, std::string_view text) {
    const MoveReading reading = read_uci(position_of_fen(fen), text);
    EXPECT_EQ(reading.fault, Fault::kIllegal) << text;
    return reading.why;
  };
  EXPECT_EQ(refused(kStartFen, "e4e5"), "there is no piece on e4");
  EXPECT_EQ(refused(kStartFen, "e7e5"), "it is White's move, and the pawn on e7 is not theirs");
  EXPECT_EQ(refused(kStartFen, "e1e2"), "a piece of one's own is on e2");
  EXPECT_EQ(refused(kStartFen, "e2e5"), "the pawn on e2 can't reach e5");
  EXPECT_EQ(refused(kStartFen, "a1a5"), "the rook on a1 can't reach a5");
  EXPECT_EQ(refused("7k/4P3/8/8/8/8/8/K7 w - - 0 1", "e7e8"), "it must be said what the pawn becomes: q, r, b or n");
  EXPECT_EQ(refused("7k/4P3/8/8/8/8/8/K7 w - - 0 1", "e7e8p"), "a pawn can't become a pawn");
  EXPECT_EQ(refused(kStartFen, "e2e4q"), "nothing is promoted by this move");
  EXPECT_EQ(refused("4k3/8/8/8/8/8/8/4K2R w - - 0 1", "e1g1"), "castling is not possible here");
  EXPECT_EQ(refused("4r2k/8/8/8/8/8/8/4K3 w - - 0 1", "e1e2"), "the king would still be in check");
  for (const char* text : {"", "e2", "e2e", "e2e9", "i2e4", "e2e4x", "e7e8Q", "e2e4qq", "e2e2", "0000", "E2E4"})
    EXPECT_EQ(read_uci(start_position(), text).fault, Fault::kUnreadable) << text;
}

TEST(Uci, CastlingIsTheKingsMove) {
  const Position position = position_of_fen("r3k2r/8/8/8/8/8/8/R3K2R b KQkq - 0 1");
  EXPECT_EQ(read_uci(position, "e8g8").move.kind(), MoveKind::kCastling);
  EXPECT_EQ(uci_of(read_uci(position, "e8h8").move), "e8g8") << "as some programs write it";
  EXPECT_EQ(uci_of(read_uci(position, "e8a8").move), "e8c8");
  EXPECT_EQ(uci_of(Move()), "0000");
}

}  // namespace
}  // namespace tandem::chess
